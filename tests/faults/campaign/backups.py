"""What a backup is worth: NATS is saved and lost, and everything goes on from what was restored."""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
from pathlib import Path
from typing import Literal, get_args

from tests.faults.campaign.faults import TERM_SECONDS
from tests.faults.campaign.field import SERVICES, Field
from tests.faults.campaign.tools import Tools
from tests.faults.campaign.traffic import Clients
from tests.faults.campaign.truth import BRIEF, Truth
from tests.support.backup import back_up, restore

Way = Literal["files", "snapshots", "snapshots without consumers"]
WAYS: tuple[Way, ...] = get_args(Way)

REPEATED = 60


class Backups:
    """Saves, loses and restores, in the way that the seed says."""

    def __init__(
        self,
        field: Field,
        truth: Truth,
        tools: Tools,
        clients: Clients,
        *,
        seed: int,
    ) -> None:
        self._field = field
        self._truth = truth
        self._tools = tools
        self._clients = clients
        self._random = random.Random(f"backups {seed}")
        self.way = WAYS[seed % len(WAYS)]
        self._folder = field.folder / "backup"
        self._url = field.system.url.split(",")[0]

    async def run(self) -> None:
        """Once everything is at rest: what was acknowledged before is recorded afterwards, each once."""
        match self.way:
            case "files":
                await self._stop(*SERVICES, *self._field.system.servers)
                for name in self._field.system.servers:
                    await asyncio.to_thread(shutil.copytree, self._store(name), self._folder / name)
                await self._lose()
                for name in self._field.system.servers:
                    await asyncio.to_thread(
                        shutil.copytree, self._folder / name, self._store(name), dirs_exist_ok=True
                    )
                await self._start(*self._field.system.servers)
            case _:
                await self._stop(*SERVICES)
                await back_up(self._url, self._folder, consumers=self.way != "snapshots without consumers")
                await self._restore()
        await self._start(*SERVICES)
        await self._tools.run("admin", "provision", direct=True)
        await asyncio.to_thread(self._field.system.wait_ready, *self._field.system.services)
        known = [sent for sent in self._truth.acknowledged() if sent.body["tenant"] != BRIEF]
        for sent in self._random.sample(known, min(REPEATED, len(known))):
            await self._clients.repeat(sent)

    async def _restore(self) -> None:
        await self._stop(*self._field.system.servers)
        await self._lose()
        await self._start(*self._field.system.servers)
        await asyncio.to_thread(self._field.system.ask, lambda bus: bus.js.account_info())
        await restore(self._url, self._folder)

    async def _lose(self) -> None:
        for name in self._field.system.servers:
            await asyncio.to_thread(shutil.rmtree, self._store(name) / "jetstream")

    def _store(self, name: str) -> Path:
        return self._field.disks[name].folder

    async def _stop(self, *names: str) -> None:
        self._field.down.update(names)
        for name in names:
            self._field.children[name].send(signal.SIGTERM)
        for name in names:
            if not await self._field.ended_in(name, TERM_SECONDS):
                self._truth.violation("ended badly", f"{name}: not within {TERM_SECONDS} s, for a backup")
                self._field.children[name].send(signal.SIGKILL)
                await self._field.ended_in(name, TERM_SECONDS)

    async def _start(self, *names: str) -> None:
        for name in names:
            if not self._field.children[name].alive:
                self._field.children[name].start()
        self._field.down.difference_update(names)
