"""Texts of others as a terminal, a page or JSON shows them."""

from __future__ import annotations

import io
import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.terminal import Console, Table, Text, escape_json, lines, styled, visible

OSC = "\x1b]0;owned\x07"
CHARACTERS = st.text(st.characters(exclude_categories=()))


def shown(*what: object, **options: object) -> str:
    stream = io.StringIO()
    Console(file=stream, width=60, **options).print(*what)
    return stream.getvalue()


def hidden(text: str) -> list[str]:
    """What a terminal obeys or nobody sees, but for line feeds and what scripts and emoji need."""
    kept = (
        "\u200c\u200d\u200e\u200f\u061c"
        + "".join(map(chr, range(0x600, 0x606)))
        + "\u06dd\u070f\u0890\u0891\u08e2"
    )
    return [
        one
        for one in text
        if unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        and one != "\n"
        and one not in kept
        and ord(one) not in range(0x110BD, 0x110CE)
        and ord(one) not in range(0x13430, 0x13440)
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A dog [on] a mat: 犬 🐕‍🦺 می‌خواهم", "A dog [on] a mat: 犬 🐕‍🦺 می‌خواهم"),
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("a\x9b2Jb\x7f", "a\\x9b2Jb\\x7f"),
        ("one\ntwo\tthree\r", "one\\ntwo\\tthree\\r"),
        ("user\u202etxt.exe", "user\\u202etxt.exe"),
        ("he\u200bron her\u200don \ufeffx", "he\\u200bron her\\u200don \\ufeffx"),
        ("half \ud83d", "half \\ud83d"),
        ("tag\U000e0041", "tag\\U000e0041"),
    ],
)
def test_what_cannot_be_seen_is_written_out(text, expected):
    assert visible(text) == expected


@given(CHARACTERS)
def test_nothing_hidden_is_left(text):
    assert not hidden(visible(text))
    assert "\n" not in visible(text)
    assert visible(visible(text)) == visible(text)
    visible(text).encode()


@given(CHARACTERS)
def test_a_console_shows_no_control_character_and_no_markup(text):
    table = Table(text, title=text)
    table.add_row(text)
    table.add_row(Text(text))
    for out in (
        shown(text),
        shown(table),
        shown(Text(text)),
        shown(styled(text, (text, "bold")), lines(text)),
    ):
        assert not hidden(out)


@pytest.mark.parametrize("text", ["[/x]", "[bold]x[/bold]", ":smile:", "[link=http://x]y[/link]", "\\[a]"])
def test_markup_is_text(text):
    assert shown(text) == f"{text}\n"
    table = Table(show_header=False, box=None)
    table.add_row(text)
    assert shown(table).strip() == text


def test_styles_of_our_own_reach_a_terminal():
    out = shown(styled(("worse", "bold red"), f": {OSC}"), force_terminal=True, color_system="standard")
    assert out == "\x1b[1;31mworse\x1b[0m: \\x1b]0;owned\\x07\n"


def test_cells_of_several_lines_are_ours_alone():
    table = Table(show_header=False, box=None)
    table.add_row(lines("one", "two"), "m\nNOT BALANCED")
    assert [line.strip() for line in shown(table).splitlines()] == ["one  m\\nNOT BALANCED", "two"]


@given(st.text())
def test_json_means_the_same(text):
    escaped = escape_json(json.dumps({"a": text}, ensure_ascii=False))
    assert json.loads(escaped) == {"a": text}
    assert not hidden(escaped)
