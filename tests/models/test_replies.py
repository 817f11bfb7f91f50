from __future__ import annotations

from typing import Any, Literal

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.models.replies import MAX_REPLY, clean, encodable, last_valid
from groundwatch.protocols.faithscore import protocol as questions
from groundwatch.protocols.prompts import Form, read_reply, reply_schema


class Verdict(Form, frozen=True):
    verdict: Literal["supported", "refuted"]


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
def test_the_last_that_has_the_form_counts(text: str, verdict: str) -> None:
    assert last_valid(text, Verdict) == {"verdict": verdict}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("yes, supported", "no JSON"),
        ("", "no JSON"),
        ('"supported"', "no JSON"),
        ('{"verdict": "Supported"}', r"Invalid enum value 'Supported' - at `\$.verdict`"),
        ('{"verdict": true}', r"Expected `str`, got `bool` - at `\$.verdict`"),
        ('{"verdict": "refuted", "sure": 1}', "unknown field `sure`"),
        ('{"verdict": "refuted", "verdict": "supported"}', "no JSON"),
        ('[{"verdict": "refuted"}]', "Expected `object`, got `array`"),
        ("{}", "missing required field `verdict`"),
        ('{"verdict": NaN}', "no JSON"),
        ("[" + "9" * 6000 + "]", "no JSON"),
        ("x" * (MAX_REPLY + 1), "longer than"),
    ],
)
def test_anything_else_says_what_is_wrong(text: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        last_valid(text, Verdict)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 100_000, '["' * 100_000, '[{"a":"' * 50_000])
def test_endless_brackets_end(text: str) -> None:
    """Work that grew with the square of the brackets would take hours."""
    with pytest.raises(ValueError, match="stray brackets"):
        last_valid(text, Verdict)


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
        read_reply(value, form)
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
