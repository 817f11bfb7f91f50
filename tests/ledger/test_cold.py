"""Audits of what has left the streams, over a real table of events."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nats.js import JetStreamContext
from tests.ledger.test_incremental import judged, several, state_of
from tests.runtime.conftest import record, response
from tests.support.cooling import cool, write

from groundwatch.archive.cold import ColdEvents
from groundwatch.archive.events import Events
from groundwatch.erasure import erasing, finding, retention
from groundwatch.erasure.erasing import Eraser
from groundwatch.erasure.finding import Stores, subject
from groundwatch.errors import TransientError
from groundwatch.events import OutcomeKind
from groundwatch.ledger import proof
from groundwatch.ledger import store as ledger_store
from groundwatch.ledger.ledger import audit
from groundwatch.ledger.proof import prove
from groundwatch.ledger.reading import Reading
from groundwatch.ledger.state import OUTCOME, RECORDED, date_of
from groundwatch.ledger.store import LedgerStore
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import position_of, read_stream
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.settings import ArchiveSettings, RetentionSettings
from groundwatch.topology import DAY, LEDGER_BUCKET, OUTCOMES, RESPONSES, subject_of

STREAMS = (RESPONSES, OUTCOMES)


def events(place: Path) -> ColdEvents:
    return ColdEvents(ArchiveSettings(url=str(place)))


async def cool_all(bus: Bus, place: Path) -> None:
    for stream in STREAMS:
        await cool(bus, str(place), stream, files=3)


async def forget(bus: Bus) -> None:
    """Have the next audit begin anew."""
    await (await bus.js.key_value(LEDGER_BUCKET)).purge("state")


async def cool_by_days(bus: Bus, place: Path, days: int) -> None:
    """Move everything into the archive, a file for each of so many days in a row, as if it had been stored on
    them; yesterday is the last."""
    for stream in STREAMS:
        at = await position_of(bus.js, stream)
        reads = [read async for read in read_stream(bus.js, stream)]
        size = len(reads) // days
        for number in range(days):
            part = reads[number * size : (number + 1) * size]
            ago = (days - number) * DAY
            moved = [msgspec.structs.replace(read, time=read.time - ago) for read in part]
            write(str(place), stream, at.created, moved)
        await bus.js.purge_stream(stream, seq=at.last + 1)


def files_of(place: Path, stream: str) -> list[Path]:
    """A stream's files in the table, oldest first."""
    found = [file for file in Events(str(place)).snapshot().files() if file.stream == stream]
    return [place / "events" / file.path for file in sorted(found, key=lambda file: file.first)]


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


async def test_an_audit_from_the_beginning_finds_what_is_cold(
    bus: Bus, clean_streams: None, tmp_path: Path
) -> None:
    await several(bus, 20)
    waiting = response("waiting")
    await record(bus, waiting)
    await judged(bus, response("unscored"), OutcomeKind.UNSCORED, "refused")
    await record(bus, response("unscored"))
    before = await audit(bus.js)
    assert (before.recorded, before.scored, before.unscored, before.in_flight) == (22, 20, 1, 1)
    await cool(bus, str(tmp_path), RESPONSES, 15)
    await cool(bus, str(tmp_path), OUTCOMES, files=2)
    assert await audit(bus.js, cold=events(tmp_path)) == before
    await forget(bus)
    assert await audit(bus.js, cold=events(tmp_path)) == before
    assert (await state_of(bus)).position(RECORDED) == 22
    # Without the archive it would be another ledger.
    await forget(bus)
    assert (await audit(bus.js)).recorded == 7


async def test_an_auditor_that_was_away_goes_on_over_what_is_cold(
    bus: Bus, clean_streams: None, tmp_path: Path
) -> None:
    await several(bus, 5)
    late = response("late")
    await record(bus, late)
    assert (await audit(bus.js)).in_flight == 1
    await several(bus, 5, first=5)
    await judged(bus, late, OutcomeKind.DECLINED, "sampled_out")
    await cool_all(bus, tmp_path)
    await several(bus, 2, first=10)
    ledger = await audit(bus.js, cold=events(tmp_path))
    assert (ledger.recorded, ledger.scored, ledger.declined, ledger.in_flight) == (13, 12, 1, 0)
    assert (ledger.balanced, ledger.begun_anew, ledger.archive_unread) == (True, "", "")
    state = await state_of(bus)
    assert (state.position(RECORDED), state.position(OUTCOME)) == (13, 13)


async def test_a_lost_pair_stays_lost_when_its_response_is_cold(
    bus: Bus, clean_streams: None, tmp_path: Path
) -> None:
    await several(bus, 3)
    await record(bus, response("lost"))
    pulled = await bus.js.pull_subscribe_bind("extraction", stream=RESPONSES)
    for message in await pulled.fetch(4, timeout=60):
        await message.ack_sync()
    before = await audit(bus.js)
    assert (before.lost, before.balanced) == (1, False)
    await cool_all(bus, tmp_path)
    assert await audit(bus.js, cold=events(tmp_path)) == before
    # From a machine that cannot read the archive too.
    ledger = await audit(bus.js, cold=events(tmp_path / "elsewhere"))
    assert "mount it here" in ledger.archive_unread
    assert msgspec.structs.replace(ledger, archive_unread="") == before


async def test_an_orphan_stays_one_when_it_is_cold(bus: Bus, clean_streams: None, tmp_path: Path) -> None:
    await several(bus, 3)
    await judged(bus, response("never"), OutcomeKind.SCORED)
    before = await audit(bus.js)
    assert (before.orphans, before.expired) == (1, 0)
    await cool_all(bus, tmp_path)
    assert await audit(bus.js, cold=events(tmp_path)) == before
    ledger = await audit(bus.js, cold=events(tmp_path / "elsewhere"))
    assert (ledger.orphans, ledger.expired, ledger.archive_unread != "") == (1, 0, True)


async def test_an_auditor_that_cannot_read_the_archive_needs_it_only_for_what_it_has_not_counted(
    bus: Bus, clean_streams: None, tmp_path: Path
) -> None:
    elsewhere = events(tmp_path / "elsewhere")
    await several(bus, 5)
    dead = response("dead")
    await record(bus, dead)
    await judged(bus, dead, OutcomeKind.UNSCORED, "dead_letter")
    await audit(bus.js, cold=elsewhere)
    await cool(bus, str(tmp_path), RESPONSES)
    await cool(bus, str(tmp_path), OUTCOMES, 5)
    await several(bus, 5, first=5)
    # Its response is cold.
    await judged(bus, dead, OutcomeKind.SCORED)
    ledger = await audit(bus.js, cold=elsewhere)
    assert (ledger.recorded, ledger.scored, ledger.unscored, ledger.balanced) == (11, 11, 0, True)
    assert ledger.archive_unread == ""
    # What left before it was counted.
    await several(bus, 5, first=10)
    await cool_all(bus, tmp_path)
    state = await state_of(bus)
    with pytest.raises(TransientError, match="mount it here"):
        await audit(bus.js, cold=elsewhere)
    assert (await state_of(bus)).position(RECORDED) == state.position(RECORDED) == 11
    # An audit where it can be read helps.
    assert (await audit(bus.js, cold=events(tmp_path))).scored == 16
    assert (await audit(bus.js, cold=elsewhere)).balanced


async def test_days_that_are_cold_are_proven_again(bus: Bus, clean_streams: None, tmp_path: Path) -> None:
    await several(bus, 12)
    await cool_by_days(bus, tmp_path, 4)
    await several(bus, 2, first=12)
    ledger = await audit(bus.js, cold=events(tmp_path))
    assert (ledger.recorded, ledger.scored, ledger.sealed_days, ledger.balanced) == (14, 14, 4, True)
    proof = await prove(bus.js, cold=events(tmp_path))
    assert (proof.proven, proof.removed, proof.differences, proof.unproven) == (5, 0, (), ())
    assert (proof.ledger.sealed_days, proof.lost_files) == (4, ())


async def test_a_dead_letter_that_was_retried_when_it_was_cold_is_proven(
    bus: Bus, clean_streams: None, tmp_path: Path
) -> None:
    dead = response("dead")
    await record(bus, dead)
    await judged(bus, dead, OutcomeKind.UNSCORED, "dead_letter")
    past = events(tmp_path)
    await audit(bus.js, cold=past)
    await cool(bus, str(tmp_path), RESPONSES)
    await judged(bus, dead, OutcomeKind.SCORED)
    ledger = await audit(bus.js, cold=past)
    assert (ledger.scored, ledger.unscored, ledger.reasons) == (1, 0, {})
    await cool(bus, str(tmp_path), OUTCOMES)
    proof = await prove(bus.js, cold=past)
    assert (proof.proven, proof.differences, proof.ledger.balanced) == (1, (), True)


@pytest.mark.parametrize("harm", [Path.unlink, cut_short])
@pytest.mark.parametrize(("stream", "number"), [(RESPONSES, 0), (RESPONSES, 2), (OUTCOMES, 1)])
async def test_a_day_whose_file_is_lost_cannot_be_proven(
    bus: Bus, clean_streams: None, tmp_path: Path, stream: str, number: int, harm: Callable[[Path], None]
) -> None:
    await several(bus, 12)
    await cool_by_days(bus, tmp_path, 4)
    await audit(bus.js, cold=events(tmp_path))
    days = sorted((await state_of(bus)).lines)
    lost = files_of(tmp_path, stream)[number]
    harm(lost)
    proof = await prove(bus.js, cold=events(tmp_path))
    assert (proof.unproven, proof.proven) == ((date_of(days[number]),), 3)
    assert (proof.differences, proof.removed, proof.ledger.balanced) == ((), 0, True)
    (file,) = proof.lost_files
    assert lost.as_posix().endswith(file.path)
    assert (file.stream, file.day.isoformat()) == (stream, date_of(days[number]))
    assert (file.first, file.last) == (3 * number + 1, 3 * number + 3)


async def test_the_command_tells_which_days_cannot_be_proven(
    bus: Bus, clean_streams: None, nats_server: NatsServer, tmp_path: Path
) -> None:
    await several(bus, 6)
    await cool_by_days(bus, tmp_path, 2)
    await audit(bus.js, cold=events(tmp_path))
    files_of(tmp_path, OUTCOMES)[1].unlink()
    day = date_of(max((await state_of(bus)).lines))

    def command(*options: str) -> subprocess.CompletedProcess[str]:
        names = {"GROUNDWATCH_NATS__URL": nats_server.url, "GROUNDWATCH_ARCHIVE__URL": str(tmp_path)}
        return subprocess.run(
            [sys.executable, "-m", "groundwatch", "audit", *options],
            env=os.environ | names,
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )

    assert command().returncode == 0
    done = command("--full")
    assert done.returncode == 1
    assert f"cannot be proven: {day}" in done.stdout
    assert "1 days are as their lines say" in done.stdout
    (told,) = done.stderr.splitlines()
    assert "lost 1 of its files" in told and "restore" in told
    told = command("--full", "--json").stdout
    assert msgspec.json.decode(told)["unproven"] == [day]
    # An audit that has it yet to count says so too.
    await forget(bus)
    done = command()
    assert done.returncode != 0
    (told,) = done.stderr.splitlines()
    assert "has lost" in told


@pytest.mark.parametrize("whose", ["response", "tenant"])
@pytest.mark.parametrize("seen", [True, False])
async def test_an_erasure_of_what_is_cold_takes_it_out_of_its_line(
    bus: Bus, clean_streams: None, tmp_path: Path, whose: str, seen: bool
) -> None:
    await several(bus, 2)
    gone = response("gone", tenant="acme")
    await record(bus, gone)
    await judged(bus, gone, OutcomeKind.SCORED)
    # The archive has it all by the time that the streams have some of it still.
    await cool(bus, str(tmp_path), RESPONSES)
    if seen:
        assert (await audit(bus.js, cold=events(tmp_path))).scored == 3
    at = await position_of(bus.js, OUTCOMES)
    reads = [read async for read in read_stream(bus.js, OUTCOMES)]
    write(str(tmp_path), OUTCOMES, at.created, reads)
    await bus.js.purge_stream(OUTCOMES, seq=2)
    stores = Stores(events=Events(str(tmp_path)))
    wanted = subject("gone" if whose == "response" else None, "acme", None)
    for _ in range(2):
        await Eraser(bus.js, wanted, stores, wait=0).erase()
    await cool_all(bus, tmp_path)
    past = events(tmp_path)
    for _ in range(2):
        ledger = await audit(bus.js, cold=past)
        assert (ledger.responses, ledger.recorded, ledger.scored, ledger.balanced) == (2, 2, 2, True)
        assert (ledger.orphans, ledger.expired) == (0, 0)
    (line,) = (await state_of(bus)).lines.values()
    assert (line.erased, line.balanced) == (1, True)
    proof = await prove(bus.js, cold=past)
    assert (proof.proven, proof.differences) == (1, ())
    store = await LedgerStore.open(bus.js)
    assert store is not None and await store.erased() == {}


async def test_an_erasure_that_died_before_it_removed_what_is_cold_says_it_once(
    bus: Bus, clean_streams: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await several(bus, 2)
    gone = response("gone", tenant="acme")
    await record(bus, gone)
    await judged(bus, gone, OutcomeKind.SCORED)
    past = events(tmp_path)
    await audit(bus.js, cold=past)
    await cool_all(bus, tmp_path)
    wanted, stores = subject(None, "acme", None), Stores(events=Events(str(tmp_path)))

    with dying(monkeypatch, 0), pytest.raises(Died):
        await Eraser(bus.js, wanted, stores, wait=0).erase()
    # It has said what goes and not that it is gone.
    assert (await audit(bus.js, cold=past)).recorded == 2
    await Eraser(bus.js, wanted, stores, wait=0).erase()
    ledger = await audit(bus.js, cold=past)
    assert (ledger.responses, ledger.recorded, ledger.scored, ledger.balanced) == (2, 2, 2, True)
    assert (await prove(bus.js, cold=past)).differences == ()
    assert (await bus.js.stream_info(RESPONSES)).state.messages == 0
    assert subject_of("recorded", "live", gone.key) not in str([read.subject for read in _all(tmp_path)])


class Died(Exception):
    """An erasure was killed."""


@contextlib.contextmanager
def dying(monkeypatch: pytest.MonkeyPatch, after: int) -> Iterator[None]:
    """Whoever erases dies instead of its next removal, after so many, hot or cold."""
    removals = 0

    def count() -> None:
        nonlocal removals
        removals += 1
        if removals > after:
            raise Died

    async def overwrite(js: JetStreamContext, stream: str, sequences: Iterable[int]) -> int:
        several = list(sequences)
        if several:
            count()
        return await whole(js, stream, several)

    def erase(table: Events, order: Any) -> int:
        count()
        return rows(table, order)

    whole, rows = erasing.overwrite, Events.erase
    with monkeypatch.context() as patched:
        for module in (erasing, retention):
            patched.setattr(module, "overwrite", overwrite)
        patched.setattr(Events, "erase", erase)
        yield


@pytest.mark.parametrize("by", ["response", "tenant", "retention"])
@pytest.mark.parametrize("cold", [(), (RESPONSES,), (OUTCOMES,), STREAMS])
async def test_wherever_an_erasure_dies_its_response_is_out_as_a_whole(
    bus: Bus,
    clean_streams: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cold: tuple[str, ...],
    by: str,
) -> None:
    """Both audits say the same after each death, whoever takes it up."""
    await several(bus, 2)
    past, stores = events(tmp_path), Stores(events=Events(str(tmp_path)))
    await audit(bus.js, cold=past)
    gone = response("gone", tenant="acme", protocols=("faithscore", "valor"))
    await record(bus, gone)
    await judged(bus, gone, OutcomeKind.SCORED)
    await judged(bus, gone, OutcomeKind.DECLINED, "sampled_out", protocol="valor")
    for stream in cold:
        await cool(bus, str(tmp_path), stream)

    async def take_up() -> None:
        if by == "retention":
            await retention.enforce(bus.js, RetentionSettings(), stores)
        else:
            await Eraser(
                bus.js, subject("gone" if by == "response" else None, "acme", None), stores, wait=0
            ).erase()

    with dying(monkeypatch, 0), pytest.raises(Died):
        await Eraser(bus.js, subject("gone", "acme", None), stores, wait=0).erase()
    for after in range(8):
        ledger = await audit(bus.js, cold=past)
        assert (ledger.responses, ledger.recorded, ledger.scored, ledger.declined) == (2, 2, 2, 0), after
        assert (ledger.erased, ledger.balanced) == (1, True), after
        assert (await prove(bus.js, cold=past)).differences == (), after
        try:
            with dying(monkeypatch, after):
                await take_up()
        except Died:
            continue
        break
    await Eraser(bus.js, subject("gone", "acme", None), stores, wait=0).erase()
    ledger = await audit(bus.js, cold=past)
    assert (ledger.responses, ledger.recorded, ledger.erased, ledger.balanced) == (2, 2, 1, True)
    assert (await prove(bus.js, cold=past)).differences == ()


async def test_what_does_not_fit_into_memory_is_named_in_whole_responses_too(
    bus: Bus, clean_streams: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding, "PORTION", 2)
    monkeypatch.setattr(ledger_store, "TOGETHER", 1)
    for number in range(5):
        event = response(f"r{number}", tenant="acme", protocols=("faithscore", "valor"))
        await record(bus, event)
        for protocol in event.protocols:
            await judged(bus, event, OutcomeKind.SCORED, protocol=protocol)
    await cool(bus, str(tmp_path), RESPONSES, 4)
    await cool(bus, str(tmp_path), OUTCOMES, 5)
    with dying(monkeypatch, 0), pytest.raises(Died):
        stores = Stores(events=Events(str(tmp_path)))
        await Eraser(bus.js, subject(None, "acme", None), stores, wait=0).erase()
    store = await LedgerStore.open(bus.js)
    assert store is not None
    named = [
        [(one.recorded, one.outcome, one.first) for one in entries.pairs]
        for entries in (await store.erased()).values()
    ]
    expected = [[(n, 2 * n - 1, True), (n, 2 * n, False)] for n in range(1, 6)]
    assert sorted(named) == expected
    assert (await audit(bus.js, cold=events(tmp_path))).responses == 0


async def test_an_erasure_during_a_proof_is_no_difference(
    bus: Bus, clean_streams: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await several(bus, 3)
    past, stores = events(tmp_path), Stores(events=Events(str(tmp_path)))

    class Slow(Reading):
        """What is read again is counted when one of it has been erased."""

        async def _count(self, *arguments: Any) -> None:
            if self._state.since == 0.0 and not self._state.began:
                await Eraser(bus.js, subject("r1", response("r1").tenant, None), stores, wait=0).erase()
            await super()._count(*arguments)

    monkeypatch.setattr(proof, "Reading", Slow)
    assert (await prove(bus.js, cold=past)).differences == ()
    ledger = await audit(bus.js, cold=past)
    assert (ledger.responses, ledger.scored, ledger.erased, ledger.balanced) == (2, 2, 1, True)


def _all(place: Path) -> list:
    from groundwatch.archive.events import to_reads

    table = Events(str(place)).snapshot().dataset().to_table()
    return to_reads(table)
