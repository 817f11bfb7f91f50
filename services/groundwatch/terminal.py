"""What a terminal, a log line or a page shows of texts that others wrote: names, answers, reasons, paths.

A terminal obeys control characters in what it prints, and rich obeys markup. So nothing else in this
package imports rich: here a string is shown as it is written, on one line, with what would not be seen as
`\\x1b` or `\\u202e`. What is meant to have a style or several lines is made by `styled` and `lines`.
"""

import re
import sys
from collections.abc import Iterable
from typing import Any

from rich import box
from rich.console import Console as _Console
from rich.console import ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

__all__ = [
    "BarColumn",
    "Console",
    "Group",
    "Live",
    "MofNCompleteColumn",
    "Progress",
    "RenderableType",
    "Table",
    "TaskID",
    "TaskProgressColumn",
    "Text",
    "TimeRemainingColumn",
    "box",
    "escape_json",
    "lines",
    "progress",
    "styled",
    "visible",
]

_HIDDEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls; tab and line feed are below
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b"  # nothing to see
    "\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"  # lines, directions, fillers
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    "\ud800-\udfff"
)
_JOINING = "\u061c\u200c-\u200f"
"""Joiners and marks of direction: scripts and emoji need them, Latin letters hide in them."""

_IN_LINES = re.compile(f"[{_HIDDEN}]|(?:(?<=[\x00-\x7f])|^)[{_JOINING}]")
_IN_ONE_LINE = re.compile(f"[{_HIDDEN}\t\n]|(?:(?<=[\x00-\x7f])|^)[{_JOINING}]")
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


def visible(text: str, *, keep_lines: bool = False) -> str:
    """The text with everything that a terminal obeys, or a reader cannot see, written out.

    Control characters, overrides and isolates of the direction of writing, characters without width and
    lone surrogates become `\\x1b`, `\\u202e` and the like. It is one line, or with `keep_lines` keeps its
    line feeds and tabs.
    """
    pattern = _IN_LINES if keep_lines else _IN_ONE_LINE
    return pattern.sub(lambda found: _written(found[0]), text)


def _written(character: str) -> str:
    if short := _SHORT.get(character):
        return short
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def escape_json(encoded: str) -> str:
    """JSON that means the same and is safe on a terminal; its line feeds stay."""
    return _IN_LINES.sub(lambda found: _as_json(found[0]), encoded)


def _as_json(character: str) -> str:
    code = ord(character)
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


class Console(_Console):
    """Where people read: a string is never markup, emoji code or control sequence."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, *, style: str | Style = "", **options: Any) -> Text:
        """A string of a print, a cell or a title."""
        return Text(
            visible(text), style=style, justify=options.get("justify"), overflow=options.get("overflow")
        )

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Whatever a text became on its way, nothing that a terminal obeys leaves here but rich's own."""
        for segment in super().render(renderable, options):
            if segment.control or not _IN_LINES.search(segment.text):
                yield segment
            else:
                yield Segment(visible(segment.text, keep_lines=True), segment.style)


def styled(*parts: str | tuple[str, str] | Text) -> Text:
    """Texts one after another; those with a style as (text, style)."""
    whole = Text()
    for part in parts:
        if isinstance(part, Text):
            whole.append_text(part)
        else:
            words, style = (part, "") if isinstance(part, str) else part
            whole.append(visible(words), style=style or None)
    return whole


def lines(*parts: str | Text) -> Text:
    """Texts one below another, each on a line."""
    return Text("\n").join([part if isinstance(part, Text) else Text(visible(part)) for part in parts])


def progress(*columns: ProgressColumn | str, quiet: bool = False) -> Progress:
    """A bar on standard error between a task's description and `columns`, gone when it is done.

    A column that is a string is a format of the task. There is no bar where that is no terminal.
    """
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        *(TextColumn(one, markup=False) if isinstance(one, str) else one for one in columns),
        console=Console(stderr=True),
        disable=quiet or not sys.stderr.isatty(),
        transient=True,
    )
