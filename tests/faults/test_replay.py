"""Kill −9 the replayer or the server at any event: the run's ledger balances, and is that of a calm run."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from tests.faults.harness import Child
from tests.support.cooling import cool

from groundwatch.archive.cold import cold_events
from groundwatch.events import NoAnswer, ResponseRecorded, ResponseScored
from groundwatch.keys import home_of, response_key
from groundwatch.ledger.ledger import Ledger, audit
from groundwatch.replay.runs import Run, Runs, judgement
from groundwatch.runtime.delivery.bus import ENCODER, Bus, Outgoing, wait_acks
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.local.servers import find_binary, free_port
from groundwatch.runtime.settings import ArchiveSettings, NatsSettings
from groundwatch.topology import HEADER_PROTOCOLS, OUTCOMES, RESPONSES, run_subjects, subject_of
from groundwatch.topology.partitions import streams_of_kind

pytestmark = pytest.mark.timeout(240)

COUNT = 20_000
"""So many that whoever is killed has some of them in hand: 6,000 were done too soon on an idle machine."""
COMMAND = (sys.executable, "-c", "from groundwatch.cli import main; main()")
PATIENCE = 120.0

T = TypeVar("T")


def response(number: int, partitions: int = 1) -> ResponseRecorded:
    """Most are judged; some are declined, some have no answer."""
    name = f"r{number}"
    return ResponseRecorded(
        id=name,
        partition=home_of(response_key("default", name), partitions),
        model=f"model-{number % 3}",
        answer=f"There are {number} dogs. " * (number % 5 + 1),
        protocols=("faithscore",),
        declined={"faithscore": "sampled_out"} if number % 7 == 0 else {},
        unanswered=NoAnswer(reason="refused") if number % 11 == 0 else None,
        recorded_at=1_000.0 + number,
    )


class Stage:
    """A server with recorded responses, and replays of them as processes of their own. With an archive half
    of each partition's responses have left the stream."""

    def __init__(self, folder: Path, *, partitions: int = 1, archive: str = "") -> None:
        self.folder = folder
        self.partitions, self.archive = partitions, archive
        self.url = f"nats://127.0.0.1:{free_port()}"
        port = self.url.rpartition(":")[2]
        command = (find_binary(), "-js", "-sd", str(folder / "nats"), "-a", "127.0.0.1", "-p", port)
        self.server = Child("nats", command, {}, folder / "nats.log")
        self.children: list[Child] = [self.server]

    def start(self) -> None:
        """Start the server and record."""
        self.server.start()
        self.ask(self._record)

    async def _record(self, bus: Bus) -> None:
        await provision(bus.js, partitions=self.partitions)
        for start in range(0, COUNT, 1_000):
            receipts = []
            for number in range(start, min(start + 1_000, COUNT)):
                event = response(number, self.partitions)
                subject = subject_of("recorded", "live", event.key)
                headers = {HEADER_PROTOCOLS: ",".join(event.protocols)}
                out = Outgoing(subject=subject, payload=ENCODER.encode(event), headers=headers)
                receipts.append(await bus.start_create(out))
            await wait_acks(receipts)
            for receipt in receipts:
                receipt.result()
        if self.archive:
            for stream in streams_of_kind(RESPONSES, self.partitions):
                last = (await bus.js.stream_info(stream)).state.last_seq
                await cool(bus, self.archive, stream, last // 2, files=3)

    def replay(self, *arguments: str) -> Child:
        """Start a replaying process."""
        child = Child(
            "replay",
            (*COMMAND, *arguments, "--json", "--nats", self.url),
            {
                "GROUNDWATCH_EXTRACTION__ENGINE": "noop",
                "GROUNDWATCH_VERIFICATION__ENGINE": "noop",
                "GROUNDWATCH_NATS__PUBLISH_TIMEOUT": "3",
                "GROUNDWATCH_NATS__PARTITIONS": str(self.partitions),
                "GROUNDWATCH_ARCHIVE__URL": self.archive,
            },
            self.folder / f"replay-{len(self.children)}.log",
        )
        self.children.append(child)
        child.start()
        return child

    def finished(self, child: Child) -> dict[str, Any]:
        """What the process told at its end."""
        status = child.wait(PATIENCE)
        text = child.log.read_text()
        assert status == 0, text[-2_000:]
        return dict(json.loads(text[text.index("{\n") :]))

    def stop(self) -> None:
        """Leave nothing behind."""
        for child in reversed(self.children):
            if child.alive:
                child.end(9)

    def ask(self, question: Callable[[Bus], Awaitable[T]], *, patience: float = 30.0) -> T:
        """Ask the server over a connection of one's own."""

        async def work() -> T:
            bus = Bus(NatsSettings(url=self.url, partitions=self.partitions), name="question")
            if self.archive:
                bus.cold = cold_events(ArchiveSettings(url=self.archive))
            await bus.connect(timeout=patience)
            try:
                return await question(bus)
            finally:
                await bus.close()

        return asyncio.run(work())

    def at(self, count: int) -> None:
        """Wait until the outcomes stream has so many messages."""

        async def look(bus: Bus) -> None:
            deadline = time.monotonic() + PATIENCE
            while await outcomes_in(bus) < count:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)

        self.ask(look)

    def stored(self) -> int:
        """Outcomes of all runs."""

        return self.ask(outcomes_in)

    def run_of(self, name: str) -> Run:
        """What the bucket knows."""

        async def look(bus: Bus) -> Run:
            return await (await Runs.open(bus.js)).get(name)

        return self.ask(look)

    def books(self, name: str) -> tuple[Ledger, dict[str, bytes]]:
        """The ledger, and what was judged; an outcome that took another's place shows in its sequence."""

        async def look(bus: Bus) -> tuple[Ledger, dict[str, bytes]]:
            found: dict[str, bytes] = {}
            async for message in bus.history.read(OUTCOMES, subjects=(run_subjects("outcome", name),)):
                outcome = msgspec.json.decode(message.data, type=ResponseScored)
                assert outcome.id not in found
                found[outcome.id] = judgement(outcome)
            for stream in streams_of_kind(OUTCOMES, self.partitions):
                state = (await bus.js.stream_info(stream)).state
                assert state.messages == state.last_seq
            return await audit(bus.js, name, partitions=self.partitions, cold=bus.cold), found

        return self.ask(look)


async def outcomes_in(bus: Bus) -> int:
    infos = [await bus.js.stream_info(stream) for stream in streams_of_kind(OUTCOMES, bus.partitions)]
    return sum(int(info.state.messages) for info in infos)


@contextlib.contextmanager
def started(**options: Any) -> Iterator[Stage]:
    prefix = "groundwatch-faults-"
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder:
        archive = str(Path(folder) / "archive") if options.pop("cold", False) else ""
        made = Stage(Path(folder), archive=archive, **options)
        try:
            made.start()
            yield made
        finally:
            made.stop()


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """One server for all of these tests."""
    with started() as made:
        yield made


@pytest.fixture(scope="module")
def calm(stage: Stage) -> tuple[Ledger, dict[str, bytes]]:
    """A run in which nothing happened."""
    told = stage.finished(stage.replay("replay", "start", "--run", "calm"))
    assert told["status"] == "done" and told["counts"]["outcomes"] == COUNT
    return stage.books("calm")


def check(stage: Stage, name: str, calm: tuple[Ledger, dict[str, bytes]]) -> None:
    """The run is done, its books are those of the calm one, and what it counted is what there is."""
    ledger, judged = stage.books(name)
    assert ledger.balanced and ledger.recorded == COUNT and not ledger.in_flight, ledger
    assert msgspec.structs.replace(ledger, run="calm") == calm[0]
    assert judged == calm[1]
    run = stage.run_of(name)
    assert run.status == "done" and run.pages == ()
    counts = run.counts
    assert (counts.scored, counts.unscored, counts.declined) == (
        ledger.scored,
        ledger.unscored,
        ledger.declined,
    )
    assert counts.events == counts.responses == COUNT


def moments(name: str, count: int) -> list[int]:
    """Numbers of outcomes at which something happens."""
    return sorted(random.Random(name).sample(range(COUNT // 20, COUNT * 9 // 10), count))


def test_the_replayer_is_killed(stage: Stage, calm: tuple[Ledger, dict[str, bytes]]) -> None:
    before = stage.stored()
    child = stage.replay("replay", "start", "--run", "killed")
    for moment in moments("replayer", 3):
        stage.at(before + moment)
        assert child.alive, "it was too quick for this test"
        child.end(9)
        child = stage.replay("replay", "resume", "killed")
    stage.finished(child)
    check(stage, "killed", calm)
    # It died with work in its hands, or this test proves nothing.
    assert stage.run_of("killed").counts.repeated > 0


@pytest.mark.slow
def test_one_of_two_is_killed(stage: Stage, calm: tuple[Ledger, dict[str, bytes]]) -> None:
    before = stage.stored()
    first = stage.replay("replay", "start", "--run", "shared")
    stage.at(before + 1)
    second = stage.replay("replay", "resume", "shared")
    stage.at(before + COUNT // 2)
    first.end(9)
    stage.finished(second)
    check(stage, "shared", calm)


@pytest.mark.slow
def test_one_of_two_is_killed_over_the_border_of_two_partitions() -> None:
    """Half of each partition's responses are in the archive alone."""
    with started(partitions=2, cold=True) as stage:
        told = stage.finished(stage.replay("replay", "start", "--run", "calm"))
        assert told["status"] == "done" and told["counts"]["outcomes"] == COUNT
        calm = stage.books("calm")
        before = stage.stored()
        first = stage.replay("replay", "start", "--run", "killed")
        stage.at(before + 1)
        second = stage.replay("replay", "resume", "killed")
        stage.at(before + COUNT * 3 // 10)
        assert first.alive, "it was too quick for this test"
        first.end(9)
        stage.finished(second)
        check(stage, "killed", calm)


@pytest.mark.slow
def test_the_server_is_killed(stage: Stage, calm: tuple[Ledger, dict[str, bytes]]) -> None:
    before = stage.stored()
    child = stage.replay("replay", "start", "--run", "stormy")
    for moment in moments("server", 2):
        stage.at(before + moment)
        stage.server.end(9)
        stage.server.start()
    stage.finished(child)
    check(stage, "stormy", calm)
