"""Erasures that are interrupted, and files that are damaged afterwards: what the audit says of both.

Each round is a server and an archive of its own. What is recorded, cooled and erased, where an erasure dies
and who takes it up, and which file is damaged and how, follows from the seed alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
from nats.js import JetStreamContext

from groundwatch.archive.cold import ColdEvents
from groundwatch.archive.events import Events, Message
from groundwatch.archive.outcomes import Archive, rows_after
from groundwatch.archive.query import Session
from groundwatch.erasure import erasing, retention
from groundwatch.erasure.finding import Stores, Subject, subject
from groundwatch.errors import GroundwatchError
from groundwatch.events import OutcomeKind, ResponseRecorded
from groundwatch.ledger.ledger import audit
from groundwatch.ledger.proof import LedgerProof, prove
from groundwatch.ledger.state import ErasedPairs
from groundwatch.ledger.store import LedgerStore
from groundwatch.runtime.delivery import outcomes
from groundwatch.runtime.delivery.bus import Bus, Outgoing
from groundwatch.runtime.delivery.direct import delete
from groundwatch.runtime.delivery.outcomes import recorded, without_score
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.delivery.streams import position_of, read_stream
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.settings import ArchiveSettings, NatsSettings, RetentionSettings
from groundwatch.topology import OUTCOMES, RESPONSES

TENANTS = ("acme", "borealis", "calder")
KINDS = ("nothing", "block", "events", "outcomes", "log")


class Died(Exception):
    """An erasure was killed here."""


class Erasing:
    """One erasure, which may be killed."""

    def __init__(self, round: Round, wanted: Subject) -> None:
        self.wanted = wanted
        self._round = round
        # Before or after something is written to the ledger, half way through what leaves a stream, or before
        # rows leave a table.
        self.moments = [
            (what, number) for what in ("say", "said", "overwrite", "erase") for number in (0, 0, 1, 2)
        ]

    async def erase(self) -> None:
        await erasing.Eraser(self._round.js, self.wanted, self._round.stores, wait=0).erase()

    async def retain(self) -> None:
        await retention.enforce(self._round.js, RetentionSettings(), self._round.stores)

    async def die(
        self, moment: tuple[str, int], work: Callable[[], Coroutine[Any, Any, None]] | None = None
    ) -> None:
        """Work that is killed at this moment, if it comes to it."""
        where, left = moment
        say, overwrite, erase = LedgerStore.say, erasing.overwrite, Events.erase

        def over(what: str) -> bool:
            nonlocal left
            left -= what == where
            return left < 0

        async def saying(store: LedgerStore, name: str, erased: ErasedPairs) -> None:
            if over("say"):
                raise Died
            await say(store, name, erased)
            if over("said"):
                raise Died

        async def overwriting(js: JetStreamContext, stream: str, sequences: Iterable[int]) -> int:
            several = list(sequences)
            if several and over("overwrite"):
                await overwrite(js, stream, several[: (len(several) + 1) // 2])
                raise Died
            return await overwrite(js, stream, several)

        def erasing_rows(table: Events, order: Any) -> int:
            if over("erase"):
                raise Died
            return erase(table, order)

        with (
            mock.patch.object(LedgerStore, "say", saying),
            mock.patch.object(erasing, "overwrite", overwriting),
            mock.patch.object(retention, "overwrite", overwriting),
            mock.patch.object(Events, "erase", erasing_rows),
        ):
            try:
                await (work or self.erase)()
            except Died:
                self._round.interrupted += 1


class Round:
    """One server, one archive, and what must be in them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.kind = KINDS[seed % len(KINDS)]
        self.forbidden: list[str] = []
        self.interrupted = 0
        self._folder = folder
        self._server = NatsServer(folder / "nats")
        self._place = folder / "archive"
        # An archive that is nowhere may lie on another machine, and no audit says what it has.
        self._place.mkdir(parents=True)
        self._live: dict[str, ResponseRecorded] = {}
        self._erased = self._number = 0
        # Names that may be taken again: of each, nothing is left.
        self._free: list[tuple[str, str]] = []
        self._stores = Stores(archive=Archive(str(self._place)), events=Events(str(self._place)))

    @property
    def js(self) -> JetStreamContext:
        return self._bus.js

    @property
    def stores(self) -> Stores:
        return self._stores

    async def run(self) -> None:
        await self._server.start()
        try:
            async with self._connected() as self._bus:
                await provision(self._bus.js)
                for _ in range(self.chance.randint(3, 6)):
                    await self._record(self.chance.randint(5, 15))
                    for step in self.chance.sample([self._cool, self._erase, self._audit, self._erase], 3):
                        await step()
                if self.kind in ("events", "outcomes", "log"):
                    await self._cool()
                self._check("before", await self._prove(), [])
                damaged = self._damaged()
            if damaged is not None:
                await self._damage(*damaged)
        finally:
            await self._server.stop()

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[Bus]:
        bus = Bus(NatsSettings(url=self._server.url), name="damage")
        await bus.connect()
        try:
            yield bus
        finally:
            await bus.close()

    async def _record(self, number: int) -> None:
        for _ in range(number):
            self._number += 1
            name, tenant = f"r{self._number}", self.chance.choice(TENANTS)
            if self._free and self.chance.random() < 0.2:
                name, tenant = self._free.pop(self.chance.randrange(len(self._free)))
            event = ResponseRecorded(
                id=name,
                tenant=tenant,
                model="heron",
                answer=f"Answer {self._number}: " + "a red ball, " * self.chance.randint(1, 40),
                protocols=("faithscore", "valor")[: self.chance.randint(1, 2)],
                recorded_at=time.time(),
            )
            await self._create(recorded(event))
            for protocol in event.protocols:
                kind = self.chance.choice((OutcomeKind.SCORED, OutcomeKind.UNSCORED, OutcomeKind.DECLINED))
                reason = "" if kind is OutcomeKind.SCORED else "refused"
                outcome = without_score(event, protocol, kind, reason)
                scored = msgspec.structs.replace(outcome, scored_at=time.time())
                await self._create(outcomes.outgoing(scored))
            self._live[event.id] = event

    async def _create(self, outgoing: Outgoing) -> None:
        # An id that is taken again is taken later than the server remembers.
        alone = msgspec.structs.replace(outgoing, message_id=f"{outgoing.message_id} {self._number}")
        assert await self._bus.create(alone) is outcomes.Stored.NEW

    async def _cool(self) -> None:
        """Archive all that there is, and let a part of it leave."""
        share = self.chance.random()
        for stream in (RESPONSES, OUTCOMES):
            at = await position_of(self._bus.js, stream)
            table = self._stores.events
            assert table is not None and self._stores.archive is not None
            position = table.snapshot().position(at.created, stream)
            reads = [read async for read in read_stream(self._bus.js, stream, start_sequence=position + 1)]
            rows = [Message(stream=stream, created=at.created, read=read) for read in reads]
            table.begin()
            table.add(rows, created=at.created, position=at.last, stream=stream)
            if stream == OUTCOMES:
                archive = self._stores.archive
                archive.begin()
                position = archive.snapshot().position(at.created)
                archive.add(
                    [row async for row in rows_after(self._bus, at, position)],
                    created=at.created,
                    position=at.last,
                )
            gone = at.first + round((at.last + 1 - at.first) * share)
            await delete(self._bus.js, stream, range(at.first, gone))

    async def _erase(self) -> None:
        """Erase something; mostly it dies on the way, and this or another erasure goes on."""
        if not self._live:
            return
        one = self.chance.choice(list(self._live.values()))
        whole = self.chance.random() < 0.2
        first = Erasing(self, subject(None if whole else one.id, one.tenant, None))
        died = self.chance.random() < 0.7
        while died:
            await first.die(self.chance.choice(first.moments))
            if self.chance.random() < 0.3:
                await self._audit(settled=False)
            if self.chance.random() < 0.2:
                await self._prove_between()
            match self.chance.choice(("same", "tenant", "retention")):
                case "tenant":
                    whole = True
                    first = Erasing(self, subject(None, one.tenant, None))
                case "retention":
                    if self.chance.random() < 0.5:
                        await first.die(self.chance.choice(first.moments), first.retain)
                    else:
                        await first.retain()
            died = self.chance.random() < 0.3
        if self.chance.random() < 0.2:
            # Two people at once.
            await asyncio.gather(first.erase(), Erasing(self, first.wanted).erase())
        await first.erase()
        theirs = [known for known, event in self._live.items() if event.tenant == one.tenant]
        for name in theirs if whole else [one.id]:
            del self._live[name]
            self._erased += 1
            # What is erased is taken again only without its tombstone: retention would remove what comes.
            await erasing.tombstones.lift(self.js, "response", subject(name, one.tenant, None).name)
            self._free.append((name, one.tenant))
        if whole:
            await erasing.tombstones.lift(self.js, "tenant", first.wanted.name)

    async def _prove_between(self) -> None:
        proof = await self._prove()
        if proof.differences or not proof.ledger.balanced:
            found = [one.describe() for one in proof.differences]
            self.forbidden.append(f"between: {proof.ledger.standing}, {found}")

    @property
    def _cold(self) -> ColdEvents:
        return ColdEvents(ArchiveSettings(url=str(self._place)))

    async def _audit(self, *, settled: bool = True) -> None:
        ledger = await audit(self._bus.js, cold=self._cold)
        if settled and not ledger.balanced:
            self.forbidden.append(f"audit: {ledger.standing}, {ledger.lost_responses}")

    async def _prove(self) -> LedgerProof:
        return await prove(self._bus.js, cold=self._cold)

    def _check(self, when: str, proof: LedgerProof, lost: list[str]) -> None:
        """Compare with what must be there; `lost` are files of the archive that must be told."""
        ledger = proof.ledger
        counted = (ledger.responses, ledger.recorded, ledger.erased, ledger.standing, ledger.lost_responses)
        pairs = sum(len(event.protocols) for event in self._live.values())
        if counted != (wanted := (len(self._live), pairs, self._erased, "balanced", ())):
            self.forbidden.append(f"{when}: responses, pairs, erased, lost are {counted}, not {wanted}")
        if proof.differences:
            self.forbidden.append(f"{when}: {[one.describe() for one in proof.differences]}")
        if (told := [file.path for file in proof.lost_files]) != lost:
            self.forbidden.append(f"{when}: {told} are told as lost, and {lost} are")

    def _damaged(self) -> tuple[Path, Callable[[bytes], bytes | None]] | None:
        """Which file is damaged, and how."""
        cut = self.chance.random()
        harms: list[Callable[[bytes], bytes | None]] = [
            lambda data: None,
            lambda data: data[: int(len(data) * cut)],
            lambda data: bytes(len(data)),
        ]
        match self.kind:
            case "block":
                files = sorted(self._folder.glob(f"nats/**/streams/{RESPONSES}/msgs/*.blk"))
                harms = harms[1:]
            case "events":
                files = sorted(self._place.glob("events/stream=*/**/*.parquet"))
            case "outcomes":
                files = sorted(self._place.glob("outcomes/day=*/*.parquet"))
            case "log":
                files, harms = sorted(self._place.glob("events/_delta_log/*.json")), harms[1:]
            case _:
                return None
        named = {
            file.path
            for table in (self._stores.archive, self._stores.events)
            if table
            for file in table.snapshot().files()
        }
        files = [file for file in files if file.suffix != ".parquet" or any(file.match(one) for one in named)]
        return (self.chance.choice(files), self.chance.choice(harms)) if files else None

    async def _damage(self, file: Path, harm: Callable[[bytes], bytes | None]) -> None:
        """Harm a file while the server is down, look, and put it back."""
        async with self._connected() as self._bus:
            before = await self._sequences()
        await self._server.stop()
        kept = shutil.copy(file, self._folder / "kept")
        _harm(file, harm)
        await self._server.start()
        async with self._connected() as self._bus:
            if self.kind == "block":
                await self._look_at_block(before)
                return
            await self._look(file)
        shutil.copy(kept, file)
        async with self._connected() as self._bus:
            self._check("put back", await self._prove(), [])

    async def _sequences(self) -> set[int]:
        return {read.sequence async for read in read_stream(self._bus.js, RESPONSES, headers_only=True)}

    async def _look_at_block(self, before: set[int]) -> None:
        assert self._stores.events is not None
        now, at = await self._sequences(), await position_of(self._bus.js, RESPONSES)
        data = self._stores.events.snapshot().dataset()
        rows = data.to_table(columns=["sequence", "stream"]).to_pylist() if data is not None else []
        archived = {row["sequence"] for row in rows if row["stream"] == RESPONSES}
        # What lies before the first of the stream is read from the archive. Where that is may have changed.
        gone = {one for one in (before | archived) - now if one >= at.first or one not in archived}
        ledger = (await self._prove()).ledger
        told = {one for lost in ledger.lost_responses for one in range(lost.first, lost.last + 1)}
        if told != gone or (gone and ledger.balanced):
            self.forbidden.append(f"block: {sorted(gone)} are gone, {sorted(told)} told, {ledger.standing}")

    async def _look(self, file: Path) -> None:
        if self.kind == "log":
            try:
                await self._prove()
            except GroundwatchError as error:
                if file.name not in str(error) or "\n" in str(error):
                    self.forbidden.append(f"log: {error}")
            else:
                self.forbidden.append(f"log: {file.name} is damaged, and nobody says so")
            return
        self._check("damaged", await self._prove(), [str(file.relative_to(self._place))])
        if self.kind == "outcomes":
            archive = self._stores.archive
            assert archive is not None
            try:
                with Session(archive.snapshot()) as session:
                    session.ask("SELECT * FROM outcomes")
            except GroundwatchError as error:
                if file.name not in str(error) or "\n" in str(error):
                    self.forbidden.append(f"query: {error}")
            else:
                self.forbidden.append(f"query: {file.name} is damaged, and nobody says so")


def _harm(file: Path, harm: Callable[[bytes], bytes | None]) -> None:
    if (harmed := harm(file.read_bytes())) is None:
        file.unlink()
    else:
        file.write_bytes(harmed)


async def damage(folder: Path, *, rounds: int, seed: int) -> dict[str, Any]:
    """Rounds with the seeds from `seed` on; `ok` is true where nothing forbidden happened."""
    kinds, interrupted, forbidden = Counter[str](), 0, list[str]()
    for number in range(seed, seed + rounds):
        one = Round(folder / str(number), number)
        await one.run()
        kinds[one.kind] += 1
        interrupted += one.interrupted
        forbidden += [f"seed {number}: {what}" for what in one.forbidden]
        shutil.rmtree(folder / str(number))
    return {
        "ok": not forbidden,
        "rounds": rounds,
        "damaged": dict(kinds),
        "erasures_interrupted": interrupted,
        "forbidden": forbidden,
    }
