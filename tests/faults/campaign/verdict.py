"""What became of everything: the streams, the ledger, the report and the logs, held against the truth."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
from tests.faults.campaign.archived import places_of, rows_of
from tests.faults.campaign.field import Field
from tests.faults.campaign.halves import LoggedHalves
from tests.faults.campaign.recorders import Recorders, lost_by_them
from tests.faults.campaign.tools import Tools, printed
from tests.faults.campaign.truth import BRIEF, Truth, difference
from tests.faults.campaign.watching import Watcher

from groundwatch.events import ResponseScored
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.provisioning import missing
from groundwatch.runtime.delivery.streams import position_of
from groundwatch.topology import (
    ARCHIVED,
    CONSUMERS,
    DEAD,
    EXTRACTED,
    JUDGED,
    OUTCOMES,
    RESPONSES,
    RETRY,
    parse_subject,
)

CALM_SECONDS = 150.0
REPORT_SECONDS = 40.0
PLANNED = ("cannot bear",)
"""What a test engine throws on purpose: its traceback in the log is as it should be."""
TRACEBACK = re.compile(r"Traceback \(most recent call last\)|Exception ignored in|Task exception was never")

_OUTCOMES = msgspec.json.Decoder(ResponseScored)


class Found(msgspec.Struct, kw_only=True):
    """What there is in the end, hot and cold. `subjects` counts events by stream and subject."""

    subjects: dict[str, Counter[str]] = {}
    outcomes: dict[str, list[tuple[int, ResponseScored]]] = {}


class Verdict:
    """Brings everything to rest, then compares."""

    def __init__(
        self,
        field: Field,
        truth: Truth,
        tools: Tools,
        watchers: list[Watcher],
        halves: LoggedHalves,
        recorders: Recorders,
    ) -> None:
        self._field = field
        self._truth = truth
        self._tools = tools
        self._watchers = watchers
        self._recorders = recorders
        self.told_as_lost = 0
        self._halves = halves
        self.ledger: dict[str, Any] = {}
        self.cold: dict[str, int] = {}
        """How many events have left each stream."""
        self.not_provisioned: list[str] = []
        """Consumers and streams that the servers had lost in the end, and that had to be made again."""

    async def calm(self) -> None:
        """Cure what troubled answers, retry dead letters until there are none, finish what was begun."""
        self._field.cure.touch()
        self.not_provisioned = await asyncio.to_thread(self._field.system.ask, lambda bus: missing(bus.js))
        await self._tools.run("admin", "provision", direct=True)
        try:
            await asyncio.to_thread(self._field.system.wait_ready, *self._field.system.services)
        except AssertionError as error:
            self._truth.violation("stuck", str(error))
        await asyncio.to_thread(self._field.system.ask, self._halves.ended)
        deadline = time.monotonic() + CALM_SECONDS
        while True:
            await self._settle(deadline)
            if not self.ledger.get("dead_letters") or time.monotonic() > deadline:
                break
            await self._tools.run("admin", "dead", "retry", "--all", "--json", direct=True)
        for sent in list(self._truth.sent.values()):
            if sent.gone and not sent.erased and sent.acknowledged_at is not None:
                await self._tools.erase(sent, direct=True)
        for tenant in self._tools.leavers:
            await self._tools.erase_tenant(tenant, direct=True)
        await self._settle(deadline)
        # What a gateway took before it heard of the erasure goes with the next round.
        await self._tools.run("admin", "retention", "--json", direct=True)
        await self._recorders.tell()
        await self._settle(deadline)
        await self._archived(deadline)

    async def _settle(self, deadline: float) -> None:
        while True:
            status, told = await self._tools.run("audit", "--json", direct=True)
            if status not in (0, 1):
                self._truth.violation("audit unbalanced", f"status {status}: {told[-300:]}")
                return
            self.ledger = printed(told)
            # What is retried has an outcome already, and is not in flight.
            idle = not self.ledger["in_flight"] and await asyncio.to_thread(self._field.system.ask, _idle)
            if idle or time.monotonic() > deadline:
                break
            await asyncio.sleep(0.5)
        if not self.ledger["balanced"]:
            self._truth.violation("audit unbalanced", told[-600:])

    async def _archived(self, deadline: float) -> None:
        """Wait until the archive has everything that there is."""
        while missing := await asyncio.to_thread(self._field.system.ask, self._not_archived):
            if time.monotonic() > deadline:
                self._truth.violation("stuck", f"the archive has yet to take {missing}")
                return
            await asyncio.sleep(0.5)

    async def _not_archived(self, bus: Bus) -> dict[str, int]:
        at = {stream: await position_of(bus.js, stream) for stream in ARCHIVED}
        self.cold = {stream: one.first - 1 for stream, one in at.items()}
        places = await asyncio.to_thread(places_of, self._field.archive, at)
        left = {stream: one.last - places[stream] for stream, one in at.items()}
        return {stream: number for stream, number in left.items() if number > 0}

    async def replays(self) -> None:
        """Finish every replay that was begun: its ledger must balance and its scores be the right ones."""
        for name in self._tools.replays:
            status, told = await self._tools.run("replay", "resume", name, "--json", direct=True)
            if "no run" in told or "no replay" in told:
                continue
            status, told = await self._tools.run("audit", "--run", name, "--json", direct=True)
            if status:
                self._truth.violation("audit unbalanced", f"run {name}: {told[-600:]}")

    async def compare(self) -> None:
        """Every response against what must have become of it."""
        found = await asyncio.to_thread(self._field.system.ask, _read)
        truth, recorded = self._truth, _keys(found, RESPONSES)
        for stream in (RESPONSES, EXTRACTED, JUDGED, OUTCOMES):
            for subject, count in found.subjects[stream].items():
                if count > 1:
                    truth.violation("doubled", f"{count} messages of {stream} on {subject}")
        rows = await asyncio.to_thread(rows_of, self._field.archive)
        if rows.doubled:
            truth.violation("doubled", f"{rows.doubled} events are in the archive twice")
        everywhere = rows.keys.union(*(_keys(found, stream) for stream in found.subjects))
        for sent in truth.sent.values():
            key, brief = sent.key, sent.body["tenant"] == BRIEF
            outcomes = found.outcomes.get(key, [])
            if len(outcomes) > 1:
                truth.violation("doubled", f"{sent.name} has {len(outcomes)} outcomes")
            if sent.erased:
                if key in everywhere:
                    truth.violation("erased and back", f"{sent.name} is in a stream or in the archive")
                continue
            if sent.gone:
                truth.violation("stuck", f"{sent.name}: its erasure cannot be finished")
                continue
            if key not in recorded:
                if sent.acknowledged_at is not None and not brief:
                    truth.violation("lost", f"{sent.name} was acknowledged and is not recorded")
                continue
            if sent.acknowledged_at is None and sent.refused and not sent.uncertain:
                truth.violation("refused yet recorded", f"{sent.name} is in the stream")
            if not outcomes:
                kind = "stuck" if self.ledger.get("in_flight") else "lost"
                if not brief:
                    truth.violation(kind, f"{sent.name} has no outcome")
            elif not sent.conflicting and (wrong := difference(sent.body, outcomes[0][1])):
                truth.violation("wrong score", f"{sent.name}: {wrong}")
        await asyncio.to_thread(self._field.system.ask, lambda bus: self._halves.compare(bus, found.outcomes))
        if unknown := recorded - truth.sent.keys() - self._halves.keys:
            truth.violation("doubled", f"{len(unknown)} responses recorded that nobody sent")
        self.told_as_lost = await asyncio.to_thread(self._field.system.ask, lost_by_them)
        self._recorders.compare(recorded, self.told_as_lost)
        await self._report(found)
        self._watched(found)

    async def _report(self, found: Found) -> None:
        """The report of every gateway is of the outcomes that there are.

        A gateway that has counted an outcome goes on counting it when it is erased or removed.
        """
        wanted: Counter[str] = Counter()
        removed: Counter[str] = Counter()
        for sent in self._truth.sent.values():
            if sent.key not in found.outcomes:
                removed[sent.body["model"]] += 1
        for outcomes in found.outcomes.values():
            for _, outcome in outcomes:
                wanted[f"{outcome.model} {outcome.outcome.value}"] += 1
        told: Counter[str] = Counter()
        async with httpx.AsyncClient(trust_env=False, timeout=10.0) as http:
            for gateway in self._field.gateways:
                deadline = time.monotonic() + REPORT_SECONDS
                while time.monotonic() < deadline:
                    told = Counter()
                    report = (await http.get(f"{gateway.url}/v1/report")).json()
                    for row in report["models"]:
                        told[f"{row['model']} scored"] += row["scored"]
                        told[f"{row['model']} unscored"] += sum(row["unscored"].values())
                        told[f"{row['model']} declined"] += sum(row["declined"].values())
                    if _explained(told, wanted, removed):
                        break
                    await asyncio.sleep(0.5)
                else:
                    self._truth.violation("report wrong", f"{dict(told)} in place of {dict(wanted)}")

    def _watched(self, found: Found) -> None:
        there = {sequence for outcomes in found.outcomes.values() for sequence, _ in outcomes}
        for watcher in self._watchers:
            unseen = sorted(s for s in there - watcher.seen if s <= watcher.position)
            if unseen:
                self._truth.violation(
                    "watched never", f"{len(unseen)} outcomes of {len(there)}, first {unseen[:5]}"
                )

    def tracebacks(self) -> None:
        """Every traceback in any log that nobody planned."""
        for what in unplanned(self._field.folder):
            self._truth.violation("tracebacks", what)


def unplanned(folder: Path) -> Iterator[str]:
    """Every traceback in the logs of a folder, but those that test engines throw on purpose."""
    for log in sorted(folder.glob("*.log")):
        if log.name == "judge.log":
            continue
        lines = log.read_text("utf-8", "replace").splitlines()
        for at, line in enumerate(lines):
            if not TRACEBACK.search(line) or any(word in line for word in PLANNED):
                continue
            last = line if line.startswith("{") else " | ".join(lines[at + 1 : at + 400])
            yield f"{log.name}: {last[-700:]}"


def _explained(told: Counter[str], wanted: Counter[str], removed: Counter[str]) -> bool:
    """Whether a report tells every outcome, and beyond them no more than were removed of that model."""
    beyond: Counter[str] = Counter()
    for name in told | wanted:
        if told[name] < wanted[name]:
            return False
        beyond[name.partition(" ")[0]] += told[name] - wanted[name]
    return beyond <= removed


async def _idle(bus: Bus) -> bool:
    """Whether no stage has anything to do."""
    for spec in CONSUMERS:
        now = await bus.js.consumer_info(spec.stream, spec.name)
        if now.num_pending or now.num_ack_pending:
            return False
    return True


async def _read(bus: Bus) -> Found:
    found = Found()
    for stream in (RESPONSES, EXTRACTED, JUDGED, OUTCOMES, DEAD, RETRY):
        counted = found.subjects[stream] = Counter()
        async for message in bus.history.read(stream, headers_only=stream != OUTCOMES):
            if stream != OUTCOMES:
                counted[message.subject] += 1
                continue
            outcome = _OUTCOMES.decode(message.data)
            if outcome.run != "live":
                continue
            counted[message.subject] += 1
            found.outcomes.setdefault(outcome.key, []).append((message.sequence, outcome))
    return found


def _keys(found: Found, stream: str) -> set[str]:
    addresses = (parse_subject(subject) for subject in found.subjects[stream])
    return {address.key for address in addresses if address is not None}
