"""The faults: each is done to something, lasts for a moment, and is undone."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import msgspec
from tests.faults.campaign.field import ARCHIVE, ARCHIVE_DISK, JUDGE, SERVICES, TOOLS, Field
from tests.faults.campaign.judge import MODES
from tests.faults.campaign.truth import Truth

TERM_SECONDS = 40.0
LONG_SHARE = 0.12
YOUNG_SECONDS = 2.0
"""So old a process is before it can answer SIGTERM: until then it ends as every process does."""
IMPATIENT_SHARE = 0.2
LINK = ("disconnect", "black hole", "refused connections", "slow link")


class Done(msgspec.Struct, frozen=True):
    """A fault that happened: from when to when, in seconds of the campaign."""

    kind: str
    victim: str
    began: float
    undone: float


class Faults:
    """Lanes in which one fault follows another, each on something that no other lane troubles."""

    def __init__(self, field: Field, truth: Truth, *, seed: int, began: float) -> None:
        self._field = field
        self._truth = truth
        self._random = random.Random(f"faults {seed}")
        self._began = began
        self._busy: set[str] = set()
        self._starting: set[asyncio.Task[None]] = set()
        self.done: list[Done] = []
        self.stopped = False
        links = [*SERVICES, TOOLS]
        # One archive is all there is, and what it cools by waits anew whenever it starts.
        services = [name for name in SERVICES for _ in range(1 if name == ARCHIVE else 4)]
        servers = list(field.system.servers)
        disks = [name for name in servers if field.disks[name].mounted]
        archives = [ARCHIVE_DISK] if field.disks[ARCHIVE_DISK].mounted else []
        kinds: list[tuple[str, float, list[str], Callable[[str], Awaitable[None]]]] = [
            ("kill -9", 12, services, self._kill),
            ("SIGTERM", 5, services, self._term),
            ("SIGSTOP", 14, services, self._pause),
            ("kill -9 of a server", 3, servers, self._kill),
            ("SIGTERM of a server", 3, servers, self._term),
            ("SIGSTOP of a server", 5, servers, self._pause),
            ("kill -9 of all at once", 0.7, ["*"], self._kill_all),
            ("restart of the servers one by one", 0.7, ["*"], self._roll),
            ("disconnect", 18, links, self._cut),
            ("black hole", 12, links, self._hole),
            ("refused connections", 6, links, self._refuse),
            ("slow link", 6, links, self._slow),
            ("kill -9 of the judge", 2, [JUDGE], self._kill),
            ("SIGSTOP of the judge", 2, [JUDGE], self._pause),
            *((f"judge: {mode}", 2.5, ["judging"], self._misjudge(mode)) for mode in MODES),
            *([("full disk", 0.7, disks, self._fill)] if disks else []),
            *([("full disk of the archive", 2, archives, self._fill)] if archives else []),
        ]
        self._kinds = {name: (victims, act) for name, _, victims, act in kinds}
        self._weights = {name: weight for name, weight, _, _ in kinds}

    async def lane(self, first: str = "") -> None:
        """One fault after another, until stopped; `first` of this kind."""
        while not self.stopped:
            names = list(self._weights)
            kind = first or self._random.choices(names, [self._weights[name] for name in names])[0]
            first = ""
            victims, act = self._kinds[kind]
            place = "link" if kind in LINK else ""
            victim = self._random.choice(victims)
            token = f"{place} {victim}"
            if token in self._busy or self._alone(victim):
                await asyncio.sleep(0.05)
                continue
            self._busy.add(token)
            started = self._now()
            self._log(f"{kind} of {victim}")
            try:
                await act(victim)
                self.done.append(Done(kind, victim, started, self._now()))
                self._log(f"undone: {kind} of {victim}")
            finally:
                self._busy.discard(token)
                self._let_start(token, victim)
            await asyncio.sleep(self._random.uniform(0.0, 0.4))

    def _let_start(self, token: str, name: str) -> None:
        """Leave a process that was started alone until it serves, or a busy machine would only start it.

        One in five is troubled again at once: that is a fault too.
        """
        child = self._field.children.get(name)
        if token.startswith("link") or child is None or self._random.random() < IMPATIENT_SHARE:
            return
        if child.age < YOUNG_SECONDS and name in SERVICES:
            self._busy.add(token)
            task = asyncio.create_task(self._field.serves(name))
            self._starting.add(task)
            task.add_done_callback(lambda _: self._busy.discard(token))
            task.add_done_callback(self._starting.discard)

    def _log(self, what: str) -> None:
        """Beside the logs of the processes, with the time of day that they have too."""
        with (self._field.folder / "faults.log").open("a") as log:
            log.write(f"{datetime.now(UTC).isoformat()} {what}\n")

    def _alone(self, victim: str) -> bool:
        """Whether this one must wait: what is done to all is done while no process is troubled."""
        processes = {token for token in self._busy if not token.startswith("link")}
        if victim == "*":
            return bool(processes - {" judging", f" {JUDGE}"})
        return " *" in processes

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _moment(self) -> float:
        """Seconds that a fault lasts: mostly short, at times longer than timeouts."""
        if self._random.random() < LONG_SHARE:
            return self._random.uniform(5, 18)
        return self._random.uniform(0.1, 1.5)

    async def _kill(self, name: str) -> None:
        await self._end([name], signal.SIGKILL)

    async def _term(self, name: str) -> None:
        await self._end([name], signal.SIGTERM)

    async def _kill_all(self, _: str) -> None:
        await self._end([*self._field.system.servers, *SERVICES], signal.SIGKILL)

    async def _roll(self, _: str) -> None:
        for name in self._field.system.servers:
            await self._end([name], signal.SIGTERM)
            await asyncio.sleep(2.0)

    async def _end(self, names: list[str], number: int) -> None:
        """End these, and start them again in the same order."""
        field = self._field
        field.down.update(names)
        try:
            young = {name for name in names if field.children[name].age < YOUNG_SECONDS}
            for name in names:
                field.children[name].send(number)
            for name in names:
                if not await field.ended_in(name, TERM_SECONDS):
                    self._truth.violation("ended badly", f"{name}: not within {TERM_SECONDS} s of {number}")
                    self._log(f"not ended: {name}")
                    field.children[name].send(signal.SIGKILL)
                    await field.ended_in(name, TERM_SECONDS)
                status = field.children[name].status
                if number == signal.SIGTERM and name in SERVICES and status and name not in young:
                    self._truth.violation("ended badly", f"{name}: status {status} after SIGTERM")
            await asyncio.sleep(self._random.uniform(0.1, 1.0))
            for name in names:
                field.children[name].start()
            if JUDGE in names:
                await field.behave("ok")
        finally:
            field.down.difference_update(names)

    async def _pause(self, name: str) -> None:
        child = self._field.children[name]
        child.send(signal.SIGSTOP)
        try:
            await asyncio.sleep(self._moment())
        finally:
            child.send(signal.SIGCONT)

    async def _cut(self, name: str) -> None:
        self._field.proxies[name].cut()

    async def _hole(self, name: str) -> None:
        await self._link(name, "hole")
        if self._random.random() < 0.5:
            # A firewall that has forgotten its connections.
            self._field.proxies[name].cut()

    async def _refuse(self, name: str) -> None:
        await self._link(name, "refuse")

    async def _slow(self, name: str) -> None:
        await self._link(name, "slow")

    async def _link(self, name: str, mode: str) -> None:
        proxy = self._field.proxies[name]
        proxy.set(mode)  # type: ignore[arg-type]
        try:
            await asyncio.sleep(self._moment())
        finally:
            proxy.set("pass")

    def _misjudge(self, mode: str) -> Callable[[str], Awaitable[None]]:
        async def misjudge(_: str) -> None:
            await self._field.behave(mode)
            try:
                await asyncio.sleep(self._moment())
            finally:
                await self._field.behave("ok")

        return misjudge

    async def _fill(self, name: str) -> None:
        """Fill a disk; free it, and start the server that it is of again, as the runbook says."""
        disk = self._field.disks[name]
        disk.fill()
        try:
            await asyncio.sleep(self._random.uniform(1, 6))
        finally:
            disk.free()
        if name in self._field.system.servers:
            await self._end([name], signal.SIGTERM)
