"""Folders with the streams of an `up` or a demo, opened for one command when nobody runs there."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from groundwatch.errors import UsageError
from groundwatch.runtime.local.nats_server import NatsServer

STREAMS = "nats"
"""The folder in the data folder in which NATS keeps the streams."""

MODELS = "triton"
"""That of a Triton of our own."""

PROVISION = "run groundwatch admin provision first"


def check_streams(folder: Path) -> None:
    """Raises `UsageError` where no system has written."""
    if not (folder / STREAMS / "jetstream").is_dir():
        what = "holds no streams" if folder.is_dir() else "there is no such folder"
        raise UsageError(f"{folder}: {what}; groundwatch demo and groundwatch up make one")


@asynccontextmanager
async def opened(folder: Path, *, max_payload: int) -> AsyncIterator[str]:
    """The address of a NATS server of our own on the streams in `folder`, while the block runs.

    Raises `UsageError` when another command, an `up` or a demo has them open.
    """
    server = NatsServer(folder / STREAMS, max_payload=max_payload)
    try:
        await server.start()
    except OSError as error:
        raise UsageError(f"{folder}: cannot be opened: {error.strerror or error}") from error
    try:
        yield server.url
    finally:
        await server.stop()
