"""Reading TOML that others wrote: whatever is wrong with it is one error."""

import tomllib
from pathlib import Path
from typing import Any

DEEPEST = 32
"""Tables in tables that a file may have; settings have five."""


class NotToml(ValueError):
    """A text is no TOML, or none that we take; says why."""


def parse(text: str) -> dict[str, Any]:
    """Raises `NotToml`, also where Python's own reader gives up."""
    try:
        found = tomllib.loads(text)
    except RecursionError:
        raise NotToml("it is nested too deep") from None
    except ValueError as error:
        raise NotToml(str(error)) from error
    if _deeper(found, DEEPEST):
        raise NotToml("it is nested too deep")
    return found


def read(path: Path) -> dict[str, Any]:
    """The tables of a file. Raises `OSError`, and `NotToml`."""
    try:
        return parse(path.read_text("utf-8"))
    except NotToml:
        raise
    except ValueError as error:
        # No text, or a path with a NUL in it.
        raise NotToml(str(error)) from error


def _deeper(value: object, levels: int) -> bool:
    inner: Any = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels == 0 or any(_deeper(one, levels - 1) for one in inner)
