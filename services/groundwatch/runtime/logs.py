"""Structured logs: one line of JSON for machines, colours for people at a terminal."""

from __future__ import annotations

import logging
import sys

import structlog

logger: structlog.stdlib.BoundLogger = structlog.get_logger("groundwatch")


def configure(*, level: str = "info", style: str = "auto") -> None:
    """Set up logging once for this process, to standard error: standard output is for results."""
    console = style == "console" or (style == "auto" and sys.stderr.isatty())
    renderer: structlog.types.Processor = (
        structlog.dev.ConsoleRenderer() if console else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        # Looked up anew for each line: standard error may be replaced while we run.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )
    logging.getLogger("nats").setLevel(logging.CRITICAL)
