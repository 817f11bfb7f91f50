"""Responses that are gone without an erasure, as from a damaged file of NATS, and erasures that died."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from tests.faults.campaign.field import Disk
from tests.ledger.test_incremental import judged, several, state_of
from tests.runtime.conftest import record, response

from groundwatch.erasure.erasing import Eraser
from groundwatch.erasure.finding import Stores, subject
from groundwatch.erasure.retention import enforce
from groundwatch.errors import Unavailable
from groundwatch.events import OutcomeKind, ResponseRecorded
from groundwatch.ledger.counting import Ledger
from groundwatch.ledger.ledger import audit
from groundwatch.ledger.proof import prove
from groundwatch.ledger.store import LedgerStore
from groundwatch.replay.running import delete as delete_run
from groundwatch.replay.runs import Runs, new_run
from groundwatch.replay.spec import Spec
from groundwatch.runtime.delivery.bus import Bus, Outgoing
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.settings import ArchiveSettings, NatsSettings, RetentionSettings
from groundwatch.topology import RESPONSES


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def overwritten(data: bytes) -> bytes:
    return bytes(len(data))


class Machine:
    """A server whose files a test may damage while it is down."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.server = NatsServer(folder)

    async def connect(self) -> Bus:
        self.bus = Bus(NatsSettings(url=self.server.url), name="test")
        await self.bus.connect()
        return self.bus

    async def damage(self, stream: str, harm: Callable[[bytes], bytes]) -> Bus:
        await self.bus.close()
        await self.server.stop()
        (block,) = self._folder.rglob(f"streams/{stream}/msgs/*.blk")
        block.write_bytes(harm(block.read_bytes()))
        await self.server.start()
        return await self.connect()


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    started = Machine(tmp_path)
    await started.server.start()
    await provision((await started.connect()).js)
    yield started
    await started.bus.close()
    await started.server.stop()


def stretches(ledger: Ledger) -> list[tuple[int, int]]:
    return [(lost.first, lost.last) for lost in ledger.lost_responses]


@pytest.mark.parametrize("harm", [cut, overwritten])
@pytest.mark.parametrize("seen", [False, True])
async def test_a_damaged_block_of_responses_is_a_loss(
    machine: Machine, harm: Callable[[bytes], bytes], seen: bool
) -> None:
    await several(machine.bus, 10)
    if seen:
        assert (await audit(machine.bus.js)).balanced
    bus = await machine.damage(RESPONSES, harm)
    left = (await bus.js.stream_info(RESPONSES)).state.messages
    assert left < 10
    for _ in range(2):
        proof = await prove(bus.js)
        assert stretches(proof.ledger) == [(left + 1, 10)]
        ledger = await audit(bus.js)
        assert (stretches(ledger), ledger.balanced) == ([(left + 1, 10)], False)
        assert ledger.unaccounted >= 10 - left
        (lost,) = ledger.lost_responses
        assert f"GW_RESPONSES: sequences {left + 1} to 10" in lost.describe()
        assert "restore" in lost.describe()
    # What comes then counts as ever.
    await several(bus, 2, first=20)
    assert stretches(await audit(bus.js)) == [(left + 1, 10)]


async def full(bus: Bus, machine: Machine, disk: Disk) -> Bus:
    """Fail to record on a full disk, then start the server again, as the runbook says."""
    disk.fill()
    with pytest.raises((Unavailable, TimeoutError)):
        await asyncio.wait_for(record(bus, response("refused", answer="A dog. " * 900)), 2)
    disk.free()
    await bus.close()
    await machine.server.stop()
    await machine.server.start()
    return await machine.connect()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path / "disk", 260)
    disk.mount()
    if not disk.mounted:
        pytest.skip("no file system may be mounted here")
    yield disk
    disk.unmount()


@pytest.mark.parametrize("before", [0, 2])
async def test_what_a_full_disk_refused_is_no_loss(small_disk: Disk, before: int) -> None:
    machine = Machine(small_disk.folder)
    await machine.server.start()
    try:
        bus = await machine.connect()
        await provision(bus.js)
        await several(bus, before)
        bus = await full(bus, machine, small_disk)
        erased = [await erased_in_work(bus, "next")]
        await several(bus, 3, first=5)
        erased.append(await erased_in_work(bus, "last"))
        for event in erased:
            # Its outcome comes when it has gone.
            await judged(bus, event, OutcomeKind.SCORED)
        for _ in range(2):
            ledger = await audit(bus.js)
            assert (stretches(ledger), ledger.orphans, ledger.balanced) == ([], 0, True)
            assert (ledger.responses, ledger.erased) == (3 + before, 2)
        proof = await prove(bus.js)
        assert (stretches(proof.ledger), proof.differences) == ([], ())
    finally:
        await machine.bus.close()
        await machine.server.stop()


async def erased_in_work(bus: Bus, name: str) -> ResponseRecorded:
    event = response(name)
    await record(bus, event)
    await Eraser(bus.js, subject(name, "default", None), Stores(), wait=0).erase()
    return event


async def test_a_first_response_that_waits_and_is_gone_is_lost(bus: Bus, clean_streams: None) -> None:
    await record(bus, response("waits"))
    assert (await audit(bus.js)).in_flight == 1
    pulled = await bus.js.pull_subscribe_bind("extraction", stream=RESPONSES)
    for message in await pulled.fetch(1, timeout=60):
        await message.ack_sync()
    await bus.js.delete_msg(RESPONSES, 1)
    for _ in range(2):
        ledger = await audit(bus.js)
        assert (ledger.lost, stretches(ledger), ledger.balanced) == (1, [(1, 1)], False)


async def test_a_first_response_that_is_gone_leaves_its_outcome(bus: Bus, clean_streams: None) -> None:
    await several(bus, 4)
    await bus.js.delete_msg(RESPONSES, 1)
    for _ in range(2):
        ledger = await audit(bus.js)
        assert (stretches(ledger), ledger.orphans, ledger.balanced) == ([], 1, False)
        assert not (await prove(bus.js)).ledger.balanced


async def test_the_first_two_responses_are_lost(bus: Bus, clean_streams: None) -> None:
    await several(bus, 4)
    for sequence in (1, 2):
        await bus.js.delete_msg(RESPONSES, sequence)
    for _ in range(2):
        ledger = await audit(bus.js)
        assert (stretches(ledger), ledger.balanced) == ([(1, 2)], False)
        assert stretches((await prove(bus.js)).ledger) == [(1, 2)]


async def test_a_hole_in_what_was_counted_is_seen_without_reading_it_again(
    bus: Bus, clean_streams: None
) -> None:
    await several(bus, 6)
    assert (await audit(bus.js)).balanced
    await bus.js.delete_msg(RESPONSES, 3)
    await bus.js.delete_msg(RESPONSES, 4)
    ledger = await audit(bus.js)
    assert (stretches(ledger), ledger.unaccounted) == ([(3, 4)], 2)


async def test_a_response_that_waits_and_is_gone_is_lost(bus: Bus, clean_streams: None) -> None:
    await several(bus, 2)
    await record(bus, response("waits"))
    pulled = await bus.js.pull_subscribe_bind("extraction", stream=RESPONSES)
    for message in await pulled.fetch(3, timeout=60):
        await message.ack_sync()
    assert (await audit(bus.js)).lost == 1
    await bus.js.delete_msg(RESPONSES, 3)
    await several(bus, 1, first=5)
    for _ in range(2):
        ledger = await audit(bus.js)
        assert (ledger.recorded, ledger.lost, stretches(ledger)) == (4, 1, [(3, 3)])


async def test_an_erasure_is_no_loss_whatever_it_erases(bus: Bus, clean_streams: None) -> None:
    await several(bus, 2)
    await bus.create(Outgoing(subject="gw.recorded.live.foreign", payload=b'{"tenant":"acme"}'))
    for run in ("live", "other"):
        await record(bus, response("gone", tenant="acme", run=run))
    await several(bus, 2, first=2)
    await Eraser(bus.js, subject(None, "acme", None), Stores(), wait=0).erase()
    assert (await bus.js.stream_info(RESPONSES)).state.messages == 4
    for _ in range(2):
        ledger = await audit(bus.js)
        assert (stretches(ledger), ledger.balanced, ledger.erased) == ([], True, 1)
    proof = await prove(bus.js)
    assert (stretches(proof.ledger), proof.differences) == ([], ())


async def test_a_run_that_is_deleted_is_no_loss(bus: Bus, clean_streams: None) -> None:
    await several(bus, 2)
    await record(bus, response("again", run="other"))
    await several(bus, 1, first=2)
    runs = await Runs.open(bus.js)
    await runs.create(new_run(Spec(run="other"), first=1, last=2))
    await delete_run(bus, "other", ArchiveSettings(url="off"))
    assert (await bus.js.stream_info(RESPONSES)).state.messages == 3
    ledger = await audit(bus.js)
    assert (stretches(ledger), ledger.balanced) == ([], True)


class Died(Exception):
    pass


@pytest.mark.parametrize("after", ["response", "tenant", "retention"])
@pytest.mark.parametrize("seen", [False, True])
async def test_an_erasure_that_another_takes_up_counts_each_response_once(
    bus: Bus, clean_streams: None, monkeypatch: pytest.MonkeyPatch, after: str, seen: bool
) -> None:
    await several(bus, 5)
    gone = response("gone", tenant="acme")
    await record(bus, gone)
    await judged(bus, gone, OutcomeKind.SCORED)
    await audit(bus.js)

    async def die(*_: object) -> int:
        raise Died

    with monkeypatch.context() as dying:
        dying.setattr("groundwatch.erasure.erasing.overwrite", die)
        with pytest.raises(Died):
            await Eraser(bus.js, subject("gone", "acme", None), Stores(), wait=0).erase()
    if seen:
        await audit(bus.js)
    if after == "retention":
        await enforce(bus.js, RetentionSettings(), Stores())
    else:
        wanted = subject("gone" if after == "response" else None, "acme", None)
        await Eraser(bus.js, wanted, Stores(), wait=0).erase()
    for _ in range(2):
        ledger = await audit(bus.js)
        assert (ledger.responses, ledger.recorded, ledger.erased) == (5, 5, 1)
        assert (ledger.balanced, ledger.lost_responses) == (True, ())
    proof = await prove(bus.js)
    assert (proof.differences, proof.ledger.responses) == ((), 5)


async def test_the_proof_compares_how_many_responses_and_for_which_reasons(
    bus: Bus, clean_streams: None
) -> None:
    await several(bus, 2)
    event = response("refused")
    await record(bus, event)
    await judged(bus, event, OutcomeKind.UNSCORED, "refused")
    await bus.create(Outgoing(subject="gw.recorded.live.foreign", payload=b'{"tenant":"acme"}'))
    await audit(bus.js)
    state = await state_of(bus)
    assert state.foreign == 1
    state.foreign += 1
    (line,) = state.lines.values()
    line.responses -= 1
    line.count("unscored", "refused", -1)
    line.count("unscored", "timed_out", 1)
    store = await LedgerStore.open(bus.js)
    assert store is not None
    await store.load()
    assert await store.save(state)
    difference, foreign = (await prove(bus.js)).differences
    assert foreign.describe() == "all days: foreign messages 1 instead of 2"
    told = difference.describe()
    assert "responses 3 instead of 2" in told
    assert "unscored: refused 1 instead of 0" in told
    assert "unscored: timed_out 0 instead of 1" in told
