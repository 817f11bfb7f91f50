"""Reading recorded responses: what is taken, and how a refusal is worded."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.events import ResponseRecorded
from groundwatch.records import Limits, Record, Refusal, convert_record, read_record, split_lines

GOOD: dict[str, object] = {"id": "1", "model": "m", "answer": "A cat."}


DEEP = b'{%b"extra": ' + b"[" * 3_900 + b"]" * 3_900 + b', "id": "1", "model": "m"}'
"""Deeper than any decoder goes: what is unknown is skipped, and skipping goes as deep."""


def line(**changes: object) -> bytes:
    return json.dumps(GOOD | changes).encode()


def test_a_whole_record():
    found = read_record(
        line(
            prompt="What is there?",
            images=["0" * 64],
            reference={
                "facts": [{"text": "There is a cat.", "holds": True}],
                "objects": ["cat"],
                "triplets": [["cat", "on", "mat"]],
                "complete": True,
            },
            tags={"version": "7"},
            tenant="acme",
            recorded_at=12.5,
            unknown="ignored",
            run="not ours to set",
            declined={"faithscore": "no"},
        ),
        Limits(digests=True),
    )
    assert isinstance(found, ResponseRecorded)
    assert found.reference is not None
    assert found.reference.triplets == (("cat", "on", "mat"),)
    assert (found.tenant, found.tags, found.recorded_at) == ("acme", {"version": "7"}, 12.5)
    assert (found.run, found.declined) == ("live", {})


@pytest.mark.parametrize(
    "answer", ["", "e\u0301 👩‍👩‍👧 🇨🇭", "قطة على السجادة\u200f", "a\x00b\x1b[31m\u2028", "x" * 200_000]
)
def test_any_text_is_an_answer(answer: str):
    found = read_record(line(answer=answer))
    assert isinstance(found, ResponseRecorded)
    assert found.answer == answer


@pytest.mark.parametrize(
    ("record", "field", "message"),
    [
        (line(answer=3), "answer", "Expected `str`, got `int`"),
        (line(answer=None), "answer", "Expected `str`, got `null`"),
        (line(id=""), "id", "length >= 1"),
        (line(id="x" * 300), "id", "length <= 256"),
        (line(model="x" * 300), "model", "length <= 256"),
        (b'{"id": "1", "answer": "a"}', "model", "is missing"),
        (line(reference={"facts": [{"text": "a"}]}), "reference.facts[0].holds", "is missing"),
        (line(reference={"triplets": [["a", "b"]]}), "reference.triplets[0]", "length 3"),
        (line(tags={"a": 1}), "tags[...]", "Expected `str`"),
        (line(images="x"), "images", "Expected `array`"),
        (line(images=["x.jpg"]), "images[0]", "SHA-256"),
        (line(images=["0" * 64] * 3), "images", "names 3 images; at most 2"),
        (line(answer="x" * 101), "answer", "has 101 characters; at most 100"),
        (line(prompt="x" * 51), "prompt", "has 51 characters; at most 50"),
        (line(reference={"objects": ["a"] * 4}), "reference", "has 4 items; at most 3"),
        (line(tags={str(n): "" for n in range(5)}), "tags", "has 5 tags; at most 4"),
        (line(tags={"a": "b" * 60}), "tags.a", "longer than 60"),
        (line(recorded_at=-1.0), "recorded_at", "not a time"),
        (b'{"id": "1", "model": "m", "answer": "half \\ud83d"}', "answer", "lone surrogate"),
        (b'{"id": "1", "model": "m", "answer": "\xff"}', "", "UTF-8"),
        (b'{"id": "1", "model": "m", "ans', "", "not JSON"),
        (b"[]", "", "Expected `object`"),
        (b"[" * 5_000, "", "Expected `object`"),
        (DEEP % b"", "", "nested too deeply"),
        (DEEP % b'"answer": 7, ', "answer", "Expected `str`, got `int`"),
        (DEEP % b'"answer": "half \\ud83d", ', "", "not JSON"),
        (line(padding="x" * 9_000), "", "more than 8000 bytes"),
    ],
)
def test_a_refusal_names_the_field(record: bytes, field: str, message: str):
    limits = Limits(line=8_000, answer=100, prompt=50, images=2, reference=3, tags=4, tag=60, digests=True)
    found = read_record(record, limits)
    assert isinstance(found, Refusal)
    assert found.field == field
    assert message in found.message
    assert (f"key '{field}'" in str(found)) == bool(field)


def test_a_refusal_keeps_the_id_where_there_is_one():
    found = read_record(line(id="seven", answer=3))
    assert isinstance(found, Refusal)
    assert found.id == "seven"


def test_one_bad_line_leaves_the_others_alone():
    stream = io.BytesIO(
        b"\xef\xbb\xbf"
        + line(id="1")
        + b"\r\n\n  \n"
        + b"{}\n"
        + line(answer="x" * 999)
        + b"\n"
        + line(id="2")
    )
    found = [(number, read_record(text, Limits(line=400))) for number, text in split_lines(stream, 400)]
    assert [number for number, _ in found] == [1, 4, 5, 6]
    assert [type(one) for _, one in found] == [ResponseRecorded, Refusal, Refusal, ResponseRecorded]
    assert "more than 400 bytes" in str(found[2][1])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("id", "model", "answer", "prompt", "images", "reference", "tags", "tenant", "recorded_at")


@given(st.binary() | st.dictionaries(st.sampled_from(FIELDS), VALUES).map(lambda d: json.dumps(d).encode()))
def test_nothing_but_a_response_or_a_refusal_comes_out(record: bytes):
    found = read_record(record)
    assert isinstance(found, ResponseRecorded | Refusal)
    assert isinstance(found, ResponseRecorded) or found.message


@given(
    st.text(alphabet=st.characters(exclude_categories=["Cs"])),
    st.dictionaries(st.text(max_size=20), st.text(max_size=20)),
)
def test_texts_arrive_as_they_were_sent(answer: str, tags: dict[str, str]):
    sent = json.dumps(GOOD | {"answer": answer, "tags": tags}).encode("utf-8", "surrogatepass")
    found = read_record(sent)
    assert isinstance(found, Refusal) or (found.answer, found.tags) == (answer, tags)


@pytest.mark.parametrize(
    ("key", "value", "meant"),
    [
        ("image", ["a.png"], "images"),
        ("image", "a.png", "images"),
        ("Images", ["a.png"], "images"),
        ("img", "a.png", "images"),
        ("question", "What is there?", "prompt"),
        ("promt", "What is there?", "prompt"),
        ("tag", {"a": "b"}, "tags"),
        ("refrence", {}, "reference"),
        ("protocol", ["faithscore"], "protocols"),
        ("recorded-at", 1.0, "recorded_at"),
    ],
)
def test_a_key_that_is_nearly_ours_is_named(key, value, meant):
    found = read_record(json.dumps({"id": "a", "model": "m", "answer": "x", key: value}).encode())
    assert isinstance(found, Refusal)
    assert str(found) == f"key '{key}': is not known; did you mean '{meant}'?"
    assert found.id == "a"


@pytest.mark.parametrize(
    ("key", "meant"), [("object", "objects"), ("Facts", "facts"), ("triplet", "triplets")]
)
def test_a_key_of_a_reference_that_is_nearly_ours_is_named(key, meant):
    said = {"id": "a", "model": "m", "answer": "x", "reference": {key: []}}
    for found in (read_record(json.dumps(said).encode()), convert_record(said, Record)):
        assert isinstance(found, Refusal)
        assert str(found) == f"key 'reference.{key}': is not known; did you mean 'reference.{meant}'?"


def test_other_keys_are_the_senders_own():
    record = {"id": "a", "model": "m", "answer": "x", "prompt": "p", "images": []}
    for key in ("question", "image", "score", "split", "ids", "x" * 1000, "", "image_id", "pid"):
        assert not isinstance(read_record(json.dumps(record | {key: 1}).encode()), Refusal), key


def test_what_is_missing_is_looked_for():
    found = read_record(b'{"id": "a", "model": "m", "response": "x"}')
    assert str(found) == "key 'answer': is missing; is it 'response'?"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (",".join(f'"a{at}":1' for at in range(1_001)), "has 1,004 keys; at most 1,000 are taken"),
        ('"reference":{' + ",".join(f'"a{at}":1' for at in range(1_001)) + "}", "has 1,001 keys"),
        ('"more":[' + "1," * 200_000 + "1]", "has more than 200,000 values"),
        ('"images":[' + '"",' * 200_000 + '""]', "has more than 200,000 values"),
    ],
    ids=["keys", "reference", "values", "images"],
)
def test_what_holds_more_than_any_response_is_not_built(more, message):
    line = f'{{"id":"a","model":"m","answer":"x",{more}}}'.encode()
    refused = read_record(line)
    assert isinstance(refused, Refusal) and message in refused.message


def test_a_long_text_is_no_number_of_values():
    answer = "red, [green]: {blue} " * 9_000
    line = json.dumps({"id": "a", "model": "m", "answer": answer, "prompt": "," * 50_000}).encode()
    assert isinstance(read_record(line), ResponseRecorded)
