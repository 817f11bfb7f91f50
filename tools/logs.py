"""Write docs/logs.md, every event that the services log: `python -m tools.logs`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "services" / "groundwatch"
PAGE = ROOT / "docs" / "logs.md"
LEVELS = {"error": "error", "exception": "error", "warning": "warning", "info": "info", "debug": "debug"}
NOT_SERVICES = ("client",)
"""What runs elsewhere, with logs of its own."""

HEAD = """# What the services log

One line for each event: JSON with `telemetry.log_format = "json"` (as in a cluster), else for people. \
`event` is the name here, `level` and `timestamp` stand beside it, and then what it tells. \
`telemetry.log_level` leaves out what is below it. What happens again and again, such as a judge that \
stays away, is told when it begins and when it ends. Written by `python -m tools.logs`.

```sh
kubectl -n NAMESPACE logs deploy/RELEASE-STAGE --since 1h | grep -E '"level": ?"(warning|error)"'
```

| event | level | tells | from |
| --- | --- | --- | --- |
"""


class Logged(NamedTuple):
    """An event by its name, its level, what it tells and the room that logs it."""

    event: str
    level: str
    tells: tuple[str, ...]
    room: str


def logged() -> Iterator[Logged]:
    """Every call of a logger, once for each place in the code."""
    for path in sorted(SOURCE.rglob("*.py")):
        room = path.relative_to(SOURCE).parts[0]
        if room in NOT_SERVICES:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="logger"), attr=level), args=[event]) if (
                    level in LEVELS
                ):
                    tells = (key.arg for key in node.keywords if key.arg not in (None, "exc_info"))
                    yield Logged(_name(event), LEVELS[level], tuple(filter(None, tells)), room)


def _name(event: ast.expr) -> str:
    """As it is written, with `…` for what is filled in."""
    if isinstance(event, ast.JoinedStr):
        return "".join(str(one.value) if isinstance(one, ast.Constant) else "…" for one in event.values)
    assert isinstance(event, ast.Constant), ast.unparse(event)
    return str(event.value)


def page() -> str:
    """The page's text."""
    rows: dict[tuple[str, str], tuple[dict[str, None], set[str]]] = {}
    for one in logged():
        tells, rooms = rows.setdefault((one.event, one.level), ({}, set()))
        tells.update(dict.fromkeys(one.tells))
        rooms.add(one.room)
    return HEAD + "".join(
        f"| `{event}` | {level} | {', '.join(f'`{name}`' for name in tells)} | {', '.join(sorted(rooms))} |\n"
        for (event, level), (tells, rooms) in sorted(rows.items())
    )


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
