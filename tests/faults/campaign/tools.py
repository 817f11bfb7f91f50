"""What operators do in the middle of it: erase, apply retention, replay, retry dead letters, audit."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import time
from collections import Counter
from typing import Any

from tests.faults.campaign.field import TOOLS, Field
from tests.faults.campaign.traffic import Clients
from tests.faults.campaign.truth import BRIEF, Sent, Truth
from tests.faults.harness import COMMAND
from tests.faults.processes import Child

TOOL_SECONDS = 150.0
LEAVERS = 4
REPLAYS = 4
KILLED_SHARE = 0.15


class Tools:
    """The command line, each command a process of its own, some of them killed half way."""

    def __init__(self, field: Field, truth: Truth, clients: Clients, *, seed: int, began: float) -> None:
        self._field = field
        self._truth = truth
        self._clients = clients
        self._random = random.Random(f"tools {seed}")
        self._began = began
        self._started = 0
        self.calls: Counter[str] = Counter()
        self.replays: list[str] = []
        self.leavers: list[str] = []
        self.stopped = False

    async def lane(self) -> None:
        """One command after another, until stopped."""
        choices = {
            self._erase: 6,
            self._erase_tenant: 1,
            self._retain: 2,
            self._retry: 3,
            self._replay: 3,
            self._audit: 2,
            self._provision: 1,
        }
        while not self.stopped:
            await asyncio.sleep(self._random.uniform(0.5, 3.0))
            await self._random.choices(list(choices), list(choices.values()))[0]()

    async def run(
        self, *arguments: str, direct: bool = False, may_die: bool = False, may_last: bool = False
    ) -> tuple[int, str]:
        """Run a command to its end; its status and what it printed. `direct`: not through the proxy.

        One that `may_last` is killed when it has had its time.
        """
        field, self._started = self._field, self._started + 1
        url = field.system.url if direct else field.url_of(TOOLS)
        child = Child(
            f"tool-{self._started}",
            (*COMMAND, *arguments),
            field.system.environment | {"GROUNDWATCH_NATS__URL": url},
            field.folder / f"tool-{self._started}-{arguments[0]}.log",
        )
        child.start()
        killed = may_die and self._random.random() < KILLED_SHARE
        seconds = self._random.uniform(0.5, 3.0) if killed else TOOL_SECONDS
        deadline = time.monotonic() + seconds
        while child.alive and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        if child.alive:
            if not killed and not may_last:
                self._truth.violation("stuck", f"{' '.join(arguments)} for {TOOL_SECONDS} s")
            child.send(signal.SIGKILL)
            await asyncio.to_thread(child.wait)
        status = child.status
        assert status is not None
        self.calls[f"{arguments[0]}: {status}"] += 1
        return status, child.log.read_text("utf-8", "replace")

    async def erase(self, sent: Sent, *, direct: bool = False) -> bool:
        """Erase a response; whether that was told to be complete."""
        sent.gone = True
        tenant, name = sent.name
        status, _ = await self.run(
            "admin",
            "erase",
            "--response",
            name,
            "--tenant",
            tenant,
            "--yes",
            "--json",
            may_die=not direct,
            direct=direct,
        )
        if status == 0:
            self._complete(sent)
        return sent.erased

    async def erase_tenant(self, tenant: str, *, direct: bool = False) -> bool:
        """Erase all of a tenant."""
        status, _ = await self.run(
            "admin", "erase", "--tenant", tenant, "--yes", "--json", may_die=not direct, direct=direct
        )
        for sent in self._truth.sent.values():
            if sent.body["tenant"] == tenant and status == 0:
                self._complete(sent)
        return status == 0

    def _complete(self, sent: Sent) -> None:
        sent.erased, sent.erased_at = True, sent.erased_at or time.monotonic() - self._began

    async def _erase(self) -> None:
        known = [sent for sent in self._truth.acknowledged() if sent.body["tenant"] != BRIEF]
        if known:
            # Of those just recorded, which stages still have in their hands, as of those long judged.
            await self.erase(self._random.choice(known[-40:] if self._random.random() < 0.5 else known))

    async def _erase_tenant(self) -> None:
        if len(self.leavers) >= LEAVERS:
            return
        tenant = f"leaver-{len(self.leavers)}"
        self.leavers.append(tenant)
        made = [self._truth.make() for _ in range(4)]
        for sent in made:
            del self._truth.sent[sent.key]
            sent.body["tenant"] = tenant
            self._truth.sent[sent.key] = sent
        await asyncio.gather(*(self._clients.deliver(sent) for sent in made))
        for sent in made:
            sent.gone = True
        await self.erase_tenant(tenant)

    async def _retain(self) -> None:
        await self.run("admin", "retention", "--json", may_die=True)

    async def _retry(self) -> None:
        if self._random.random() < 0.5:
            self._field.cure.touch()
        await self.run("admin", "dead", "retry", "--all", "--json", may_die=True)
        await asyncio.sleep(1.0)
        self._field.cure.unlink(missing_ok=True)

    async def _replay(self) -> None:
        if len(self.replays) >= REPLAYS or len(self._truth.acknowledged()) < 50:
            return
        name = f"again-{len(self.replays)}"
        self.replays.append(name)
        # The rest is done when all is calm.
        await self.run(
            "replay", "start", "--run", name, "--sample", "40", "--json", may_die=True, may_last=True
        )

    async def _provision(self) -> None:
        """What services ask for when a server has lost a consumer."""
        await self.run("admin", "provision", may_die=True)

    async def _audit(self) -> None:
        status, told = await self.run("audit", "--json")
        if status == 1 and "not settled yet" not in told:
            self._truth.violation("audit unbalanced", told[-600:])


def printed(text: str) -> dict[str, Any]:
    """The JSON object in what a command printed, whatever lines stand before and behind it."""
    return dict(json.JSONDecoder().raw_decode(text, text.index("{\n"))[0])
