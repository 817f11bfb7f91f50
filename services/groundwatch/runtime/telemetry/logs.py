"""Structured logs: one line of JSON for machines, colours for people at a terminal."""

import logging
import math
import re
import sys
import time
from typing import Any

import structlog

from groundwatch.addresses import concealed
from groundwatch.terminal import visible

logger: structlog.stdlib.BoundLogger = structlog.get_logger("groundwatch")

SETTLING = 15.0
"""Seconds after NATS is back in which all that waited for it has found out."""

_OF_NATS = re.compile(
    r"nats: |\bNATS\b|no answer from the server|consumer not found|connection (reconnecting|closed)"
    r"|Connection(Reconnecting|Closed)Error|NoRespondersError"
)


class Outage:
    """NATS away, until everything has settled again: the connection's line tells of it. What else comes of it
    is told at level debug."""

    _until = 0.0

    def begin(self) -> None:
        self._until = math.inf

    def end(self, settling: float = SETTLING) -> None:
        self._until = time.monotonic() + settling

    @property
    def lasts(self) -> bool:
        return time.monotonic() < self._until

    def leave_out(
        self, _: object, method: str, event: structlog.types.EventDict
    ) -> structlog.types.EventDict:
        texts = (one for one in event.values() if isinstance(one, str))
        name = str(event["event"])
        # What is lost is told of nowhere else.
        by_name = name.startswith("nats.") or name.endswith("lost")
        if self.lasts and not by_name and not event.get("exc_info") and any(map(_OF_NATS.search, texts)):
            raise structlog.DropEvent
        return event


outage = Outage()
"""Of the server that this process works with."""


def configure(*, level: str = "info", style: str = "auto") -> None:
    """Set up logging once for this process, to standard error: standard output is for results."""
    console = style == "console" or (style == "auto" and sys.stderr.isatty())
    renderers: tuple[structlog.types.Processor, ...] = (
        (_shown, structlog.dev.ConsoleRenderer()) if console else (structlog.processors.JSONRenderer(),)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            *([] if level == "debug" else [outage.leave_out]),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _concealed,
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        # Looked up anew for each line: standard error may be replaced while we run.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )
    logging.getLogger("nats").setLevel(logging.CRITICAL)


def _concealed(_logger: object, _method: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
    """What it says, without the secrets of addresses in it."""
    for key, value in event.items():
        event[key] = _conceal_inside(value)
    return event


def _conceal_inside(value: Any) -> Any:
    if isinstance(value, str):
        return concealed(value)
    if isinstance(value, dict):
        return {key: _conceal_inside(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_conceal_inside(one) for one in value]
    return value


def _shown(_logger: object, _method: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
    """Names, reasons and errors as a terminal may have them; a traceback keeps its lines."""
    return {visible(key): _safe(value, keep_lines=key == "exception") for key, value in event.items()}


def _safe(value: Any, *, keep_lines: bool) -> Any:
    if isinstance(value, str):
        return visible(value, keep_lines=keep_lines)
    # The renderer writes out numbers itself; what else there is it would print as it is.
    return value if isinstance(value, bool | int | float | None) else visible(str(value))
