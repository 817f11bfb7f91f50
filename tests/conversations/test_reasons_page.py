"""docs/connect.md lists every reason for a missing image, in the words of conversations.toml."""

from __future__ import annotations

import re
from pathlib import Path

from groundwatch.conversations.conversation import REASONS

PAGE = Path(__file__).parents[2] / "docs" / "connect.md"


def marked(text: str) -> str:
    """Names of settings and what libraries write, as code."""
    return re.sub(r"([^\s(),;`]*_[^\s(),;`]*)", r"`\1`", text)


def test_each_reason_is_on_the_page() -> None:
    rows = [
        f"| `{name}` | {marked(reason.library)} | {marked(reason.did)} | {marked(reason.setting)} |"
        for name, reason in REASONS.items()
    ]
    table = "\n".join(
        ["| reason | who | what it did | what keeps the image |", "| --- | --- | --- | --- |", *rows]
    )
    assert table in PAGE.read_text(), f"docs/connect.md should have:\n{table}"
