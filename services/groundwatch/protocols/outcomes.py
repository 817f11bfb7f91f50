"""Scored responses as files hold them: the lines that `groundwatch score … --out` writes."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from groundwatch.events import ResponseScored
from groundwatch.protocols.published import Place


def read_outcomes(
    lines: Iterable[tuple[Place, dict[str, Any]]], protocol: str
) -> Iterator[tuple[Place, ResponseScored]]:
    """Raises `FileFormatError` naming file, line and key, also for another protocol's outcomes."""
    for place, record in lines:
        try:
            outcome = msgspec.convert(record, ResponseScored)
        except msgspec.ValidationError as error:
            why, _, key = str(error).partition(" - at `$.")
            raise place.wrong(f"key '{key.rstrip('`')}': {why}" if key else why) from error
        if outcome.protocol != protocol:
            raise place.wrong(f"key 'protocol': expected {protocol}, not {outcome.protocol}")
        yield place, outcome
