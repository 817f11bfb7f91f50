"""docs/connect.md, as the tests use it: its sections, and the blocks in each."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "connect.md"
CLIENT = Path(__file__).parents[2] / "clients" / "python"
"""What `pip install groundwatch-client` installs, from here."""

INSTALLS = ("pip install ", "npm install ")

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def sections() -> dict[str, str]:
    """The text below each heading."""
    parts = re.split(r"^## (.+)$", PAGE.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def blocks(section: str, language: str) -> list[str]:
    """The blocks of a section in this language."""
    return [text for kind, text in _BLOCK.findall(sections()[section]) if kind == language]


def block(section: str, language: str) -> str:
    """The only block of a section in this language; empty where there is none."""
    found = blocks(section, language)
    assert len(found) <= 1, f"{section} has {len(found)} blocks of {language}"
    return found[0] if found else ""


def packages(section: str) -> tuple[str, ...]:
    """What a section tells one to install."""
    lines = [line for line in block(section, "sh").splitlines() if line.startswith(INSTALLS)]
    names = [name for line in lines for name in shlex.split(line)[2:]]
    return tuple(str(CLIENT) if name == "groundwatch-client" else name for name in names)


def commands(section: str) -> str:
    """What a section tells one to type once that is installed."""
    return "\n".join(line for line in block(section, "sh").splitlines() if not line.startswith(INSTALLS))
