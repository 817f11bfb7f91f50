"""Rounds of retention inside a process that does other things too: under `groundwatch up`."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import nats.errors
import nats.js.errors

from groundwatch.archive.place import SWITCHED_OFF, installed
from groundwatch.erasure.erasing import Stores
from groundwatch.erasure.retention import Kept, enforce
from groundwatch.errors import GroundwatchError
from groundwatch.runtime.services.tasks import SupervisedTask
from groundwatch.runtime.telemetry.logs import logger

if TYPE_CHECKING:
    from groundwatch.runtime.delivery.bus import Bus
    from groundwatch.runtime.settings import Settings

EVERY_SECONDS = 3_600.0
FIRST_SECONDS = 60.0
"""After the start, when services have other things to do."""


class RetentionService:
    """Removes again and again what is too old, and what came of an erased response after all."""

    name = "retention"

    def __init__(self, settings: Settings, bus: Bus) -> None:
        self._settings = settings
        self._bus = bus
        self._stopped = asyncio.Event()
        self._failed = ""
        self._task = SupervisedTask("retention", self._again_and_again)

    async def start(self) -> None:
        """Begin to wait for the first round."""
        self._task.start()

    async def drain(self, timeout: float) -> None:
        """Finish a round that is under way, if it ends within `timeout` seconds."""
        self._stopped.set()
        await self._task.finish(timeout)

    def problems(self) -> list[str]:
        """Why nothing is removed; nothing waits for it otherwise."""
        return [f"{self.name}: {why}" for why in (self._task.problem, self._failed) if why]

    async def once(self) -> Kept:
        """One round. Raises what NATS and the archive raise."""
        kept = await enforce(self._bus.js, self._settings.retention, self._stores())
        if kept.expired or kept.resurrected:
            logger.info("retention.removed", expired=kept.expired, erased_before=kept.resurrected)
        return kept

    def _stores(self) -> Stores:
        archive = self._settings.archive
        if archive.url in ("", SWITCHED_OFF) or not installed():
            return Stores()
        from groundwatch.archive.archive import Archive

        return Stores(archive=Archive(archive.url, archive.options))

    async def _again_and_again(self) -> None:
        pause = FIRST_SECONDS
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), pause)
            if self._stopped.is_set():
                return
            pause = EVERY_SECONDS
            try:
                await self.once()
                self._failed = ""
            except (GroundwatchError, OSError, nats.errors.Error, nats.js.errors.Error) as error:
                self._failed = f"the last round failed: {error!r}"
                logger.error("retention.failed", error=str(error) or repr(error))
