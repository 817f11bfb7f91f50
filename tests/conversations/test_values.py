"""Values that others wrote."""

from __future__ import annotations

import pytest

from groundwatch.conversations.conversation import (
    NOT_JSON,
    first_text,
    hex_id,
    json_of,
    number_of,
    structured,
    tag_value,
    text_of,
)


def test_texts():
    values = ("a", "é", "a\ud800b", b"a", None, 1, ["a"])
    assert [text_of(value) for value in values] == ["a", "é", "a?b", "", "", "", ""]


NUMBERS = {1.5: 1.5, 3: 3.0, -1: 0.0, "3": 0.0, float("nan"): 0.0, float("inf"): 0.0, 10**400: 0.0}


@pytest.mark.parametrize(("value", "number"), [*NUMBERS.items(), (True, 0.0), ([1.5], 0.0)])
def test_numbers(value, number):
    assert number_of(value) == number


@pytest.mark.parametrize("value", ["", "[", "{", "[1,]", b"\xff", "[" * 200_000, "nul"])
def test_what_is_no_json(value):
    assert json_of(value) is NOT_JSON


def test_json_as_python_writes_it():
    assert json_of('{"a": NaN}')["a"] != json_of('{"a": NaN}')["a"]
    assert json_of('["\\ud800"]') == ["\ud800"]


def test_structures():
    assert structured(" [1]") == structured(b"[1]") == structured([1]) == [1]
    assert structured("a [1]") == "a [1]"
    assert structured("[a") is NOT_JSON
    assert structured(b"\xff") is NOT_JSON
    assert structured(None) is None


def test_the_first_text_that_says_something():
    assert first_text({"a": " ", "b": 3, "c": " x "}, ("a", "b", "c", "d")) == "x"
    assert first_text({}, ("a",)) == ""


def test_tags():
    values = (True, 3, 1.5, float("nan"), 10**5000, " x ", "y" * 300, ["z"])
    assert [tag_value(value) for value in values] == ["", "3", "1.5", "", "", "x", "y" * 256, ""]


def test_ids_of_zero_are_none():
    assert [hex_id(value) for value in ("ab", "00", "", None, "a" * 65)] == ["ab", "", "", "", ""]
