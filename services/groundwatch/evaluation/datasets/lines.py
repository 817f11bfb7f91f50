"""Where a dataset is written."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from groundwatch.errors import UsageError


def write_lines(path: Path, lines: Iterable[object]) -> None:
    """Write JSON lines; raises `UsageError` where that is not possible."""
    try:
        path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror or error})") from error
