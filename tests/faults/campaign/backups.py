"""What a backup is worth: NATS is saved and lost, and everything goes on from what was restored."""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from tests.faults.campaign.faults import TERM_SECONDS
from tests.faults.campaign.field import SERVICES, Field
from tests.faults.campaign.tools import Tools
from tests.faults.campaign.traffic import Clients
from tests.faults.campaign.truth import BRIEF, Sent, Truth
from tests.faults.campaign.watching import Watcher
from tests.support.backup import back_up, restore

from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import position_of
from groundwatch.runtime.stores import repeats
from groundwatch.topology import OUTCOMES, RESPONSES

Way = Literal["files", "snapshots", "snapshots without consumers", "an index of ids that is ahead"]
WAYS: tuple[Way, ...] = get_args(Way)

SINCE = 10
"""Responses that are recorded behind the backup, where the index of ids is newer than it."""

REPEATED = 60
INDEX_SECONDS = 90.0


class Backups:
    """Saves, loses and restores, in the way that the seed says."""

    def __init__(
        self,
        field: Field,
        truth: Truth,
        tools: Tools,
        clients: Clients,
        watchers: Sequence[Watcher],
        *,
        seed: int,
    ) -> None:
        self._watchers = watchers
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
            case "an index of ids that is ahead":
                await self._an_index_that_is_ahead()
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

    async def _an_index_that_is_ahead(self) -> None:
        """What is recorded behind the backup is lost, but not what was indexed of it."""
        archive, copy = Path(self._field.archive), self._field.folder / "archive of then"
        await self._stop(*SERVICES)
        await back_up(self._url, self._folder)
        await asyncio.to_thread(shutil.copytree, archive, copy)
        await self._start(*SERVICES)
        await asyncio.to_thread(self._field.system.wait_ready, *self._field.system.services)
        lost: list[Sent] = [self._truth.make() for _ in range(SINCE)]
        await asyncio.gather(*(self._clients.deliver(sent) for sent in lost))
        if not await asyncio.to_thread(self._field.system.ask, _indexed):
            self._truth.violation("stuck", f"ids are not indexed within {INDEX_SECONDS} s")
        await self._stop(*SERVICES)
        shutil.rmtree(self._folder / repeats.STREAM)
        await back_up(self._url, self._folder, streams=[repeats.STREAM])
        await asyncio.to_thread(shutil.rmtree, archive)
        await asyncio.to_thread(shutil.copytree, copy, archive)
        await self._restore()
        last = await asyncio.to_thread(self._field.system.ask, _last_outcome)
        for watcher in self._watchers:
            # Others take the place of those that it saw behind the backup.
            watcher.position = min(watcher.position, last)
            watcher.seen = {sequence for sequence in watcher.seen if sequence <= last}
        await self._start(*SERVICES)
        for sent in lost:
            sent.acknowledged_at, sent.outcome_at = None, None
        # Nobody is told that it is recorded by an index which knows of it alone: it is recorded again.
        await asyncio.gather(*(self._clients.deliver(sent) for sent in lost))

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


async def _last_outcome(bus: Bus) -> int:
    return (await position_of(bus.js, OUTCOMES)).last


async def _indexed(bus: Bus) -> bool:
    """Wait until the index has the ids of everything that the stream has; whether it came so far."""
    last = (await position_of(bus.js, RESPONSES)).last
    for _ in range(int(INDEX_SECONDS)):
        names = await repeats.parts(bus.js)
        if max((name.last for name in names if name.stream == RESPONSES), default=0) >= last:
            return True
        await asyncio.sleep(1.0)
    return False
