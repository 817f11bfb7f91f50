"""The real Triton for tests.

Fixture `triton` (session-scoped, in tests/conftest.py): one tritonserver of this test process with
random-weight checkpoints of tests/support/checkpoints.py under the default names `lvlm`, `verifier`,
`image_encoder`, `text_encoder`, `generator` and `detector`. It gives a `LiveTriton`:

    async def test_something(triton):
        models = TritonModels(triton.settings())              # or triton.settings(timeout=1.0, ...)

It starts in 10 to 30 seconds, once. Tests must not unload its models or kill it: those that do start a
server of their own with `serving(folder, models)`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from tests.support import checkpoints

from groundwatch.models.repository import ServedModel
from groundwatch.models.settings import TritonSettings
from groundwatch.runtime.local.triton_server import LoadProgress, TritonServer

ONE_THREAD: dict[str, str | int | float] = {"threads": 1}


class LiveTriton(msgspec.Struct, kw_only=True):
    """A server whose child is looked after by a thread with a loop of its own."""

    server: TritonServer
    loop: Any
    models: dict[str, ServedModel]
    progress: list[LoadProgress]

    @property
    def url(self) -> str:
        """Where clients connect."""
        return self.server.url

    def settings(self, **changes: Any) -> TritonSettings:
        """Settings that point to it, with short waits."""
        return TritonSettings(**({"url": self.url, "timeout": 30.0, "first_wait": 0.01} | changes))

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run one of the server's coroutines on its own loop, from outside."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(120)


def models_in(folder: Path) -> dict[str, ServedModel]:
    """Random-weight checkpoints for all six models."""
    vision = checkpoints.vision_language(folder / "vision_language")
    places = {
        "lvlm": vision,
        "verifier": vision,
        "image_encoder": checkpoints.image_encoder(folder / "image_encoder"),
        "text_encoder": checkpoints.text_encoder(),
        "generator": checkpoints.generator(folder / "generator"),
        "detector": checkpoints.owl(folder / "detector"),
    }
    return {
        kind: ServedModel(kind=kind, checkpoint=str(place), parameters=ONE_THREAD)
        for kind, place in places.items()
    }


@contextlib.contextmanager
def live(folder: Path) -> Iterator[LiveTriton]:
    """A server with all six models, for the session."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="triton", daemon=True)
    thread.start()
    models = models_in(folder)
    server = TritonServer(folder / "triton", models)
    progress: list[LoadProgress] = []
    triton = LiveTriton(server=server, loop=loop, models=models, progress=progress)
    try:
        asyncio.run_coroutine_threadsafe(server.start(on_progress=progress.append), loop).result(300)
        yield triton
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


@contextlib.asynccontextmanager
async def serving(folder: Path, models: Mapping[str, ServedModel]) -> AsyncIterator[TritonServer]:
    """A server of one test's own, that it may break."""
    server = TritonServer(folder, models)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
