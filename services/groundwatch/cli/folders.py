"""Folders with the streams of an `up` or a demo, opened for one command when nobody runs there."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from groundwatch.errors import UsageError
from groundwatch.runtime.local.nats_server import NatsServer

STREAMS = "nats"
"""The folder in the data folder in which NATS keeps the streams."""

MODELS = "triton"
"""That of a Triton of our own."""


PROVISION = "run groundwatch provision first"


def check_streams(folder: Path) -> None:
    """Raises `UsageError` where no system has written."""
    if not (folder / STREAMS / "jetstream").is_dir():
        what = "holds no streams" if folder.is_dir() else "there is no such folder"
        raise UsageError(f"--data-dir {folder}: {what}; groundwatch demo and groundwatch up make one")


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


def program() -> str:
    """What starts this program in the user's shell and folder."""
    script = Path(sys.argv[0])
    if script.name != "groundwatch" or not script.is_file():
        return f"{_near(Path(sys.executable))} -m groundwatch"
    on_path = shutil.which("groundwatch")
    return "groundwatch" if on_path and Path(on_path).samefile(script) else _near(script)


def place_of(folder: Path | None) -> str:
    """The option that names the folder; nothing for none."""
    return f" --data-dir {shlex.quote(str(folder))}" if folder is not None else ""


def told_here(message: str, folder: Path | None) -> str:
    """A message as it holds for streams that were opened in `folder`, with what to type there."""
    if folder is None or "groundwatch " not in message:
        return message
    if PROVISION in message:
        return message.replace(PROVISION, f"groundwatch up{place_of(folder)} brings the data up to date")
    return f"{message}; here with{place_of(folder)}"


def _near(path: Path) -> str:
    """The path as it is written from here; with a slash, so that no shell looks for it elsewhere."""
    path = path.absolute()
    if not path.is_relative_to(Path.cwd()):
        return shlex.quote(str(path))
    near = str(path.relative_to(Path.cwd()))
    return shlex.quote(near if os.sep in near else f".{os.sep}{near}")
