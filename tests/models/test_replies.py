from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.models.replies import MAX_REPLY, check, clean, encodable, last_valid
from groundwatch.protocols.faithscore import protocol as questions
from groundwatch.protocols.prompts import reply_schema

VERDICT: dict[str, object] = {
    "type": "object",
    "required": ["verdict"],
    "additionalProperties": False,
    "properties": {"verdict": {"type": "string", "enum": ["supported", "refuted"]}},
}


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ('{"verdict": "refuted"}', "refuted"),
        ('I think {"verdict": "supported"}, no: {"verdict": "refuted"}.', "refuted"),
        ('{"verdict": "refuted"} as {"verdict": "yes"} is not allowed', "refuted"),
        ('<think>{"verdict": "supported"}</think>```json\n{"verdict": "refuted"}\n```', "refuted"),
        ('{ is how it begins: {"verdict": "refuted"} [1, 2', "refuted"),
        ('{"verdict": "refuted"} {"quoted": "{\\"verdict\\": \\"supported\\"}"}', "refuted"),
    ],
)
def test_the_last_that_meets_the_schema_counts(text: str, verdict: str) -> None:
    assert last_valid(text, VERDICT) == {"verdict": verdict}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("yes, supported", "no JSON"),
        ("", "no JSON"),
        ('"supported"', "no JSON"),
        ('{"verdict": "Supported"}', r"\$.verdict: expected one of"),
        ('{"verdict": true}', r"\$.verdict: expected string"),
        ('{"verdict": "refuted", "sure": 1}', "'sure' does not belong"),
        ('{"verdict": "refuted", "verdict": "supported"}', "no JSON"),
        ('[{"verdict": "refuted"}]', "expected object"),
        ("{}", "'verdict' is missing"),
        ('{"verdict": NaN}', "no JSON"),
        ("[" + "9" * 6000 + "]", "no JSON"),
        ("x" * (MAX_REPLY + 1), "longer than"),
    ],
)
def test_anything_else_says_what_is_wrong(text: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        last_valid(text, VERDICT)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 100_000, '["' * 100_000, '[{"a":"' * 50_000])
def test_endless_brackets_end(text: str) -> None:
    """Work that grew with the square of the brackets would take hours."""
    with pytest.raises(ValueError, match="stray brackets"):
        last_valid(text, VERDICT)


def test_a_keyword_that_is_not_understood_is_a_mistake_of_ours() -> None:
    with pytest.raises(TypeError, match="minItems"):
        check([], {"type": "array", "minItems": 1})


ANY = st.none() | st.booleans() | st.integers() | st.sampled_from(["entity", "descriptive", "refuted", ""])
ITEM = st.dictionaries(
    st.sampled_from(["index", "label", "verdict", "sub_sentence", "category", "text", "more"]), ANY
)
SOUND = st.sampled_from(
    [
        {"index": 1, "label": "descriptive"},
        {"index": 0, "verdict": "refuted"},
        {"sub_sentence": 0, "category": "color", "text": "x"},
    ]
)
JSON = ANY | st.dictionaries(
    st.sampled_from(["facts", "labels", "verdicts"]), st.lists(SOUND | ITEM, max_size=2) | ANY, max_size=2
)
FORMS = [questions._Labels, questions._Facts, questions._Verdicts]


@given(JSON, st.sampled_from(FORMS))
def test_agrees_with_jsonschema(value: Any, form: type) -> None:
    schema = reply_schema(form)
    ours = True
    try:
        check(value, schema)
    except ValueError:
        ours = False
    assert ours == jsonschema.Draft202012Validator(schema).is_valid(value)


@given(st.text(st.characters()) | st.text(st.characters(categories=["Cs", "Lu"])))
def test_encodable_text_encodes_and_good_text_stays(text: str) -> None:
    mended = encodable(text)
    mended.encode()
    if not any("\ud800" <= character <= "\udfff" for character in text):
        assert mended == text


def test_cleaning_reaches_every_string() -> None:
    assert clean({"\ud800": ["\udc00", 1, None, {"a": "\ud83d\ude00"}]}) == {
        "\ufffd": ["\ufffd", 1, None, {"a": "\U0001f600"}]
    }
