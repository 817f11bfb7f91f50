"""So many responses with their outcomes through hot and cold, with kill −9 of the server at its fullest.

A nats-server with the chart's stream settings and the memory that sizing gives it for so many, an archive
service that cools, and stages. The first and the last `ends` responses are judged by real stages; each of
the others says what one of those said, with events made by the product's own encoders. When all but the last
are in the streams and the archive has yet to catch up, the server is killed (−9) and started again; then all
but about the newest `hot` of each stream cool, the last are judged, and it is killed again. At last an audit
goes over both halves, and the first and the last responses are replayed.

`ok` is true when nothing was lost by the kills, the server kept within its memory limit and the time that
the chart's probe gives it, the archive within the memory that sizing says, the ledger balances with an
outcome for every response, and each replayed response is judged as it was.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

import memory
from groundwatch.archive.cold import cold_events
from groundwatch.archive.events import Events
from groundwatch.archive.outcomes import Archive
from groundwatch.errors import CheckFailed
from groundwatch.events import (
    LIVE,
    ClaimsExtracted,
    ClaimsVerified,
    Reference,
    ResponseRecorded,
    ResponseScored,
)
from groundwatch.replay.running import begin, work
from groundwatch.replay.runs import changed
from groundwatch.replay.spec import Spec
from groundwatch.runtime.delivery import outcomes
from groundwatch.runtime.delivery.bus import Bus, wait_acks
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.delivery.streams import Read, position_of, read_stream
from groundwatch.runtime.local import servers
from groundwatch.runtime.services.run import running
from groundwatch.runtime.settings import (
    ArchiveSettings,
    ExtractionSettings,
    NatsSettings,
    Settings,
    StageSettings,
)
from groundwatch.system.services import make_service, metrics_for
from groundwatch.topology import DAY, EXTRACTED, JUDGED, OUTCOMES, RESPONSES
from sizing import USABLE, Needs, load_of, needs

sys.path.insert(0, str(Path(__file__).parents[1]))

from load import judged
from load.judged import Judged
from load.parts import LimitedServer, Processes, spent

DAYS = 3.0
"""The hot window in which so many responses would come, for what sizing says."""

REBUILD_BYTES = 50 * 2**20
START_SECONDS = 120.0
"""As the chart has it: `rebuildRate` of the volume a second, and this beside."""

LONG_DAYS = 1.0
"""A hot window in which nothing cools while this runs."""

SETTLING_SECONDS = 180.0
"""After which an archive service that has just begun lets what it has archived go, at the soonest."""
IDLE_SECONDS = 3.0
STEP_SECONDS = 1.0
ARCHIVE_STEP_SECONDS = 10.0
"""Between two looks at the archive: each reads its log."""
STILL_SECONDS = 600.0
"""How long a step may go on without any progress."""

STREAMS = (RESPONSES, EXTRACTED, JUDGED, OUTCOMES)
COLORS = ("red", "blue", "green", "brown", "white")
ANIMALS = ("dog", "cat", "bird", "horse")
THINGS = ("ball", "chair", "table", "boat", "lamp")


def response(name: str, number: int) -> ResponseRecorded:
    """One of a hundred answers; every other says something of the thing that is not so."""
    color = COLORS[number % len(COLORS)]
    animal = ANIMALS[number // len(COLORS) % len(ANIMALS)]
    thing = THINGS[number // (len(COLORS) * len(ANIMALS)) % len(THINGS)]
    there = color if number % 2 else COLORS[(number + 1) % len(COLORS)]
    return ResponseRecorded(
        id=name,
        model=f"model-{number % 3}",
        prompt="Describe this image.",
        answer=f"A {animal} sits beside a {color} {thing}.",
        reference=Reference(
            objects=(animal, thing),
            triplets=((thing, "is", there), (animal, "beside", thing)),
            complete=True,
        ),
        protocols=("faithscore",),
    )


class Course:
    """One run of this benchmark over a server of its own."""

    def __init__(self, folder: Path, responses: int, hot: int, ends: int) -> None:
        self.responses, self.hot, self.ends = responses, hot, ends
        self.archive = ArchiveSettings(url=str(folder / "archive"))
        archived = Settings(archive=self.archive)
        self.needs: Needs = needs(load_of(archived, responses / DAYS / DAY, DAYS, 1, 0.0))
        self.server = LimitedServer(
            folder / "nats",
            memory=int(self.needs.nats_memory * USABLE),
            disk=int(self.needs.nats_disk * USABLE),
        )
        rules = {
            "extraction": ExtractionSettings(engine="reader"),
            "verification": StageSettings(engine="reference"),
        }
        self.settings = Settings(nats=NatsSettings(url=self.server.url), archive=self.archive, **rules)
        self.processes = Processes(
            folder,
            {"GROUNDWATCH_NATS__URL": self.server.url, "GROUNDWATCH_ARCHIVE__URL": self.archive.url},
        )
        self.bus = Bus(self.settings.nats, name="bench")
        self.bus.cold = cold_events(self.archive)
        self.figures: dict[str, Any] = {}
        self.wrong: list[str] = []

    async def run(self) -> None:
        await self.bus.connect()
        await provision(self.bus.js, archived=True)
        self.processes.start_archive(LONG_DAYS)
        examples = await self.judge("first")
        await self.fill(examples)
        await self.kill("fullest")
        await self.archived()
        await self.cool()
        await self.judge("last")
        await self.archived()
        await self.kill("cooled")
        await self.audit()
        for name in ("first", "last"):
            await self.replay(name)
        self.processes.check_archive()
        most = self.processes.archive_bytes
        sized = {"peak_mb": _mb(most), "sized_mb": _mb(self.needs.archive_memory)}
        self.tell("archive", self.figures["archive"] | sized)
        self.check(
            most <= self.needs.archive_memory, "the archive service takes more memory than sizing says"
        )

    def tell(self, step: str, figures: dict[str, Any]) -> None:
        """Note what a step took; the whole takes an hour, so this is printed at once."""
        self.figures[step] = figures
        print(step, msgspec.json.encode(figures).decode(), file=sys.stderr, flush=True)

    def check(self, holds: bool, wrong: str) -> None:
        if not holds:
            self.wrong.append(wrong)
            print(f"wrong: {wrong}", file=sys.stderr, flush=True)

    async def judge(self, which: str) -> list[Judged]:
        """Record some and have real stages judge them: the events that came of each."""
        bus = Bus(self.settings.nats, name="stages")
        await bus.connect()
        metrics = metrics_for(self.settings)
        stages = [make_service(name, self.settings, bus, metrics) for name in judged.STAGES]
        before = {stream: (await position_of(self.bus.js, stream)).last for stream in STREAMS}
        async with running(stages, bus):
            receipts = []
            for number in range(self.ends):
                said = response(f"{which}-{number}", number)
                event = msgspec.structs.replace(said, recorded_at=time.time())
                receipts.append(
                    await self.bus.start_create(outcomes.recorded(event, outcomes.digest_of(said)))
                )
            await wait_acks(receipts)
            await self.until(lambda last: last >= before[OUTCOMES] + self.ends, OUTCOMES)
        reads = {stream: await self._read(stream, before[stream] + 1) for stream in STREAMS}
        return [_judged([reads[stream][key] for stream in STREAMS], key) for key in reads[OUTCOMES]]

    async def _read(self, stream: str, first: int) -> dict[str, Read]:
        return {
            message.subject.rpartition(".")[2]: message
            async for message in read_stream(self.bus.js, stream, start_sequence=first)
        }

    async def until(self, reached: Callable[[int], bool], stream: str) -> None:
        """Wait until the last sequence of a stream is there."""
        await self._progressing(lambda: self._last(stream), reached)

    async def _last(self, stream: str) -> int:
        return (await position_of(self.bus.js, stream)).last

    async def _progressing(
        self, look: Callable[[], Any], reached: Callable[[Any], bool], step: float = STEP_SECONDS
    ) -> None:
        before, since = None, time.monotonic()
        while not reached(now := await look()):
            if now != before:
                before, since = now, time.monotonic()
            if time.monotonic() - since > STILL_SECONDS:
                raise CheckFailed(f"no progress in {STILL_SECONDS:.0f} s, at {now}")
            self.processes.check_archive()
            await asyncio.sleep(step)

    async def fill(self, examples: Sequence[Judged]) -> None:
        """Publish all but the ends, as fast as the server takes them."""
        count, began = self.responses - 2 * self.ends, time.monotonic()
        made = judged.processes(self.server.url, examples, count)
        for process in made:
            process.start()

        async def alive() -> int:
            return sum(process.is_alive() for process in made)

        while await alive():
            self.processes.check_archive()
            await asyncio.sleep(STEP_SECONDS)
        if failed := [process.exitcode for process in made if process.exitcode]:
            raise CheckFailed(f"what makes load ended with {failed}")
        seconds = time.monotonic() - began
        self.tell(
            "recording",
            {
                "seconds": round(seconds, 1),
                "per_second": round(count / seconds),
                "server_cpu_s": round(spent(self.server.pid), 1),
            },
        )

    async def kill(self, when: str) -> None:
        """Kill −9 the server, start it again, and see what that took and whether all is there."""
        before = await self.positions()
        point: dict[str, Any] = {
            "responses": before[RESPONSES][1] - before[RESPONSES][0] + 1,
            "store_gb": round(memory.stored(self.server) / 1e9, 2),
        }
        if when != "fullest":
            await asyncio.sleep(IDLE_SECONDS)
        else:
            point["not_archived"] = sum(last for _, last in before.values()) - sum(
                (await self._places()).values()
            )
        point |= {
            "resident_mb": _mb(memory.resident(self.server)),
            "peak_before_mb": _mb(memory.highest(self.server)),
        }
        self.server.kill()
        await self.server.wait()
        began = time.monotonic()
        await self.server.restart()
        seconds = time.monotonic() - began
        peak, limit = memory.highest(self.server), self.needs.nats_memory
        allowed = START_SECONDS + self.needs.nats_disk / REBUILD_BYTES
        await self.bus.until_connected(STILL_SECONDS)
        after = await self.positions()
        self.tell(
            when,
            point
            | {
                "start_s": round(seconds, 2),
                "allowed_s": round(allowed),
                "peak_mb": _mb(peak),
                "sized_peak_mb": _mb(self.needs.nats_peak),
                "limit_mb": _mb(limit),
            },
        )
        self.check(after == before, f"{when}: {before} before kill -9, and {after} after")
        self.check(seconds <= allowed, f"{when}: the server answers after {seconds:.0f} s")
        self.check(max(peak, point["peak_before_mb"] * 1e6) <= limit, f"{when}: above the memory limit")

    async def positions(self) -> dict[str, tuple[int, int]]:
        """First and last sequence of each stream."""
        found = {stream: await position_of(self.bus.js, stream) for stream in STREAMS}
        return {stream: (at.first, at.last) for stream, at in found.items()}

    async def _places(self) -> dict[str, int]:
        """How far each stream is in the archive."""
        at = {stream: await position_of(self.bus.js, stream) for stream in STREAMS}

        def look() -> dict[str, int]:
            events, scored = Events(self.archive.url).snapshot(), Archive(self.archive.url).snapshot()
            found = {stream: events.position(one.created, stream) for stream, one in at.items()}
            found[OUTCOMES] = min(found[OUTCOMES], scored.position(at[OUTCOMES].created))
            return found

        return await asyncio.to_thread(look)

    async def archived(self) -> None:
        """Wait until the archive has everything."""
        began = time.monotonic()
        last = {stream: end for stream, (_, end) in (await self.positions()).items()}
        await self._progressing(self._places, lambda places: places == last, ARCHIVE_STEP_SECONDS)
        total = time.monotonic() - began
        if "archive" in self.figures:
            return
        self.tell(
            "archive",
            {
                "behind_s": round(total, 1),
                "rows": sum(last.values()) + last[OUTCOMES],
                "cpu_s": round(self.processes.archive_cpu, 1),
            },
        )

    async def cool(self) -> None:
        """Have the archive service cool all but the newest: with a window that ends there."""
        cut = await self.bus.history.next(RESPONSES, "gw.recorded.>", self.responses - self.hot)
        assert cut is not None
        await self.processes.stop_archive()
        began = time.monotonic()
        self.processes.start_archive((time.time() - cut.time + SETTLING_SECONDS) / DAY)

        async def firsts() -> list[int]:
            return [first for first, _ in (await self.positions()).values()]

        await self._progressing(firsts, lambda now: min(now) > self.responses - 2 * self.hot)
        seconds = time.monotonic() - began
        await self.processes.stop_archive()
        self.processes.start_archive(LONG_DAYS)
        held = {stream: last - first + 1 for stream, (first, last) in (await self.positions()).items()}
        self.tell("cooling", {"seconds": round(seconds, 1), "still_hot": held})

    async def audit(self) -> None:
        ran = await self.processes.run("audit", "--json")
        ledger = ran.printed
        counts = {name: ledger[name] for name in ("recorded", "scored", "in_flight", "lost", "orphans")}
        sized = self.needs.auditor_memory
        took = {"seconds": round(ran.seconds, 1), "peak_mb": _mb(ran.bytes), "sized_mb": _mb(sized)}
        self.tell("audit", counts | {"balanced": ledger["balanced"]} | took)
        self.check(ran.bytes <= sized, "the audit takes more memory than sizing says")
        whole = ledger["recorded"] == ledger["scored"] == self.responses and not ran.status
        self.check(whole and ledger["balanced"], f"the ledger: {counts}")

    async def replay(self, which: str) -> None:
        ids = tuple(f"{which}-{number}" for number in range(self.ends))
        began = time.monotonic()
        spec = Spec(run=f"again-{which}", ids=ids)
        run = await work(self.bus, self.settings, await begin(self.bus, self.settings, spec))
        seconds = time.monotonic() - began
        found = await changed(self.bus.history, LIVE, run.name)
        self.tell(
            f"replay_{which}",
            {
                "seconds": round(seconds, 1),
                "scored": run.counts.scored,
                "equal": found.pairs - found.changed,
            },
        )
        same = found.pairs == found.same_judges == run.counts.scored == self.ends
        self.check(same and not found.changed, f"the replay of the {which}: {found}")


def _judged(reads: Sequence[Read], key: str) -> Judged:
    recorded, extracted, verified, outcome = (read.data for read in reads)
    return Judged(
        recorded=msgspec.json.decode(recorded, type=ResponseRecorded),
        extracted=msgspec.json.decode(extracted, type=ClaimsExtracted),
        verified=msgspec.json.decode(verified, type=ClaimsVerified),
        outcome=msgspec.json.decode(outcome, type=ResponseScored),
        subjects=tuple(read.subject.replace(key, "{}") for read in reads),
        headers=tuple(dict(read.headers) for read in reads),
    )


def _mb(size: float) -> float:
    return round(size / 1e6, 1)


async def measure(*, responses: int = 2_000_000, hot: int = 200_000, ends: int = 100) -> dict[str, Any]:
    """About `hot` of them are still in the streams when the audit and the replays come."""
    servers.READY_SECONDS = 1_200.0
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="groundwatch-bench-") as folder:
        course = Course(Path(folder), responses, min(hot, responses // 5), ends)
        await course.server.start()
        try:
            await course.run()
        finally:
            await course.processes.stop_archive()
            await course.bus.close()
            await course.server.stop()
    return {
        "responses": responses,
        "seconds": round(time.monotonic() - began, 1),
        **course.figures,
        "wrong": course.wrong,
        "ok": not course.wrong,
    }
