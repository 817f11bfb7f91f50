"""Write names and defaults of docs/settings.md anew from the code: `python -m tools.settings`.

What a setting means stands on the page. A key that is new is put behind the one before it, with a meaning to
be written; one that is gone goes.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from groundwatch.models.settings import ChatSettings
from groundwatch.runtime.settings import Settings, StageSettings
from groundwatch.runtime.settings.login import OidcSettings
from groundwatch.section import Section

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"
UNWRITTEN = "?"
OPTIONAL = {ChatSettings | None: ChatSettings, OidcSettings | None: OidcSettings}
_ROW = re.compile(r"^\| `([a-z0-9_<>.]+)` \| (?:`([^|]*)`)? ?\|(.*)\|$")


def settings_of(kind: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    """Every key that can be set, with its default; None where there is none."""
    for key, field in kind.model_fields.items():
        of_any_stage = issubclass(kind, StageSettings) and key in StageSettings.model_fields
        name = f"{'<stage>.' if of_any_stage else above}{key}"
        inner = OPTIONAL.get(field.annotation, field.annotation)
        if isinstance(inner, type) and issubclass(inner, Section):
            yield from settings_of(inner, f"{name}.")
        else:
            yield name, None if field.is_required() else field.get_default(call_default_factory=True)


def toml(value: Any) -> str:
    """A value as TOML."""
    match value:
        case Mapping():
            return "{" + ", ".join(f"{key} = {toml(one)}" for key, one in value.items()) + "}"
        case str() | bool() | int() | float():
            return json.dumps(value, ensure_ascii=False)
        case Sequence():
            return "[" + ", ".join(map(toml, value)) + "]"
    raise TypeError(value)


def page(text: str) -> str:
    """The page with every key of this version, in the order that it has."""
    known = dict(settings_of(Settings))
    lines = text.splitlines()
    at = {found[1]: number for number, line in enumerate(lines) if (found := _ROW.match(line))}
    for key, default in known.items():
        found = _ROW.match(lines[at[key]]) if key in at else None
        written = found[2] if found else None
        if default is not None and (written is None or not _same(written, default)):
            written = toml(default)
        elif default is None:
            written = None
        told = f"`{written}` " if written is not None else ""
        row = f"| `{key}` | {told}|{found[3] if found else f' {UNWRITTEN} '}|"
        if found:
            lines[at[key]] = row
        else:
            behind = _before(key, list(known), at)
            lines.insert(at[behind] + 1, row)
            at = {name: number + (number > at[behind]) for name, number in at.items()} | {key: at[behind] + 1}
    gone = {number for key, number in at.items() if key not in known}
    return "\n".join(line for number, line in enumerate(lines) if number not in gone) + "\n"


def _same(written: str, default: Any) -> bool:
    plain = list(default) if isinstance(default, tuple) else default
    return bool(tomllib.loads(f"value = {written}")["value"] == plain)


def _before(key: str, keys: list[str], at: Mapping[str, int]) -> str:
    """The nearest key before it that has a row."""
    return next(one for one in reversed(keys[: keys.index(key)]) if one in at)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
