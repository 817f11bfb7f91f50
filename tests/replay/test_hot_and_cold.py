"""Replays, comparisons and lookups over the border between what streams hold and what has left them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.replay.conftest import Replays, record, response, settings_of
from tests.support.archived import holding
from tests.support.cooling import cool

from groundwatch.archive.cold import cold_events
from groundwatch.archive.events import Events
from groundwatch.errors import TransientError, UsageError
from groundwatch.events import DEAD_LETTER, OutcomeKind
from groundwatch.gateway.comparing import compare
from groundwatch.gateway.core import look_up
from groundwatch.ledger.ledger import audit
from groundwatch.replay.exports import export
from groundwatch.replay.files import ExportReader
from groundwatch.replay.planning import Plan
from groundwatch.replay.running import delete, dry_run, faults, retry
from groundwatch.replay.runs import changed, judgement
from groundwatch.replay.spec import Spec
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.outcomes import outgoing, read_outcomes, without_score
from groundwatch.runtime.settings import ArchiveSettings
from groundwatch.topology import EXTRACTED, JUDGED, OUTCOMES, RESPONSES
from groundwatch.verification.engines.base import NoopVerificationEngine

STREAMS = (RESPONSES, EXTRACTED, JUDGED, OUTCOMES)
SOURCES = {"extraction": "live", "verification": "first", "scoring": "first"}
"""Runs whose events a replay from this stage reads."""

ANSWERS = ("A dog sits beside a blue ball.", "A dog sits beside a red ball.")


@pytest.fixture
def archive(bus: Bus, tmp_path: Path) -> str:
    """An archive, empty, that this bus reads what is cold from."""
    settings = ArchiveSettings(url=str(tmp_path / "archive"))
    bus.cold = cold_events(settings)
    return settings.url


async def held(bus: Bus, stream: str) -> int:
    return int((await bus.js.stream_info(stream)).state.messages)


async def judgements(bus: Bus, run: str) -> dict[str, bytes]:
    """What a run says of each response and protocol; two for one are an error."""
    found: dict[str, bytes] = {}
    async for outcome in read_outcomes(bus, run, follow=False):
        name = f"{outcome.id} {outcome.protocol}"
        assert name not in found, name
        found[name] = judgement(outcome)
    return found


async def source(replays: Replays, number: int) -> None:
    """`number` responses, and a run of them that has kept what was on the way."""
    await record(
        replays.bus, *(response(f"r{one}", answer=ANSWERS[one % 2], images=()) for one in range(number))
    )
    rules = settings_of(replays.bus, extraction="reader", verification="reference")
    await replays.done("first", rules, keep=True)


async def test_replays_over_the_border_give_the_same_scores(replays: Replays, archive: str) -> None:
    bus = replays.bus
    rules = settings_of(bus, extraction="reader", verification="reference")
    await source(replays, 120)
    for stage in SOURCES:
        await replays.done(
            f"hot-{stage}", rules, stage=stage, source="first" if stage != "extraction" else "live"
        )
    before = {stage: await judgements(bus, f"hot-{stage}") for stage in SOURCES}
    planned = await dry_run(bus, Spec(run="plan", sample=30))
    for stream in STREAMS:
        last = (await bus.js.stream_info(stream)).state.last_seq
        await cool(bus, archive, stream, last // 2, files=3)
        assert await held(bus, stream) < last
    assert all(len(found) == 120 for found in before.values())
    for stage in SOURCES:
        assert await judgements(bus, f"hot-{stage}") == before[stage]
        run = await replays.done(f"both-{stage}", rules, stage=stage, source=SOURCES[stage])
        assert run.counts.scored == 120
        assert await judgements(bus, f"both-{stage}") == before[stage]
        for name in (f"hot-{stage}", f"both-{stage}"):
            ledger = await audit(bus.js, name, cold=bus.cold)
            assert (ledger.scored, ledger.balanced) == (120, True)
        (section,) = (await compare(bus, f"hot-{stage}", f"both-{stage}")).sections
        assert section.paired == 120 and section.changed.value == 0
        found = await changed(bus.history, f"hot-{stage}", f"both-{stage}")
        assert (found.pairs, found.changed) == (120, 0)
    assert _without_run(await dry_run(bus, Spec(run="plan", sample=30))) == _without_run(planned)


def _without_run(plan: Plan) -> Plan:
    return msgspec.structs.replace(
        plan, seconds=None, measured_on=0, calls=0, input_tokens=0, output_tokens=0
    )


async def test_what_left_while_a_replay_worked_is_judged_once(replays: Replays, archive: str) -> None:
    bus = replays.bus
    await record(bus, *(response(f"r{number}", answer=ANSWERS[number % 2]) for number in range(300)))
    run = await replays.begin("during")
    replayer = await replays.replayer(run)
    write, cut = replayer.writer.write, [50, 120, 300]

    cooling = asyncio.Lock()

    async def writing(*args: Any, **options: Any) -> Any:
        async with cooling:
            if cut:
                await cool(bus, archive, RESPONSES, cut.pop(0))
        return await write(*args, **options)

    replayer.writer.write = writing  # type: ignore[method-assign]
    run = await replayer.work()
    assert run.status == "done" and run.counts.events == 300
    assert not cut and await held(bus, RESPONSES) == 0
    assert len(await judgements(bus, "during")) == 300


async def test_a_stretch_by_time_begins_in_the_archive(replays: Replays, archive: str) -> None:
    bus = replays.bus
    await record(bus, *(response(f"r{number}") for number in range(20)))
    await cool(bus, archive, RESPONSES, 12)
    reads = [read async for read in bus.history.read(RESPONSES)]
    begin = reads[4].time
    run = await replays.begin("late", since=begin, until=0.0)
    assert run.first == 5 and run.last == 20
    without = Bus(bus._settings, name="test")
    await without.connect()
    try:
        with pytest.raises(UsageError, match="reaches back"):
            await dry_run(without, Spec(run="none", since=reads[0].time - 1))
    finally:
        await without.close()


async def test_an_export_has_both(replays: Replays, archive: str, tmp_path: Path) -> None:
    bus = replays.bus
    await record(bus, *(response(f"r{number}") for number in range(10)))
    await cool(bus, archive, RESPONSES, 6)
    manifest = await export(bus.history, Spec(run="export"), tmp_path / "export.gwx")
    assert manifest.events == 10
    records = [
        one
        for _, part in ExportReader(tmp_path / "export.gwx").parts()
        if isinstance(part, list)
        for one in part
    ]
    assert len({one.subject for one in records}) == 10


async def test_a_cold_response_is_looked_up_with_its_outcome(replays: Replays, archive: str) -> None:
    bus = replays.bus
    one = response("old")
    await record(bus, one)
    score = without_score(one, "faithscore", OutcomeKind.SCORED, "")
    await bus.create(outgoing(msgspec.structs.replace(score, score=0.5)))
    for stream in (RESPONSES, OUTCOMES):
        await cool(bus, archive, stream)
    found = await look_up(bus, one.tenant, "old")
    assert found is not None and found["response"].id == "old" and not found["waiting"]
    assert found["outcomes"]["faithscore"].score == 0.5
    assert await look_up(bus, one.tenant, "never") is None


async def test_faults_that_are_cold_are_judged_again(
    replays: Replays, archive: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = replays.bus
    await record(bus, *(response(f"r{number}") for number in range(3)))

    async def away(*_: object) -> None:
        raise TransientError("the judge is away")

    with monkeypatch.context() as broken:
        broken.setattr(NoopVerificationEngine, "verify", away)
        await replays.done("faulty")
    for stream in (RESPONSES, OUTCOMES):
        await cool(bus, archive, stream)
    assert sum((await faults(bus.history, "faulty")).values()) == 3
    done = await retry(bus, settings_of(bus), "faulty")
    assert (done.found, done.faulty, done.gone) == (3, 0, 0)
    assert len(await judgements(bus, "faulty")) == 3
    assert await faults(bus.history, "faulty") == {}
    await cool(bus, archive, OUTCOMES)
    outcomes = [one async for one in read_outcomes(bus, "faulty", follow=False)]
    assert [one.reason == DEAD_LETTER for one in outcomes] == [False] * 3


async def test_a_deleted_run_is_gone_from_both(replays: Replays, archive: str, tmp_path: Path) -> None:
    bus = replays.bus
    await record(bus, *(response(f"r{number}") for number in range(6)))
    for run in ("gone", "stays"):
        await replays.done(run, keep=True)
    for stream in STREAMS:
        last = (await bus.js.stream_info(stream)).state.last_seq
        await cool(bus, archive, stream, last // 2)
    await delete(bus, "gone", ArchiveSettings(url=archive))
    for stream in STREAMS:
        runs = {read.subject.split(".")[2] async for read in bus.history.read(stream)}
        assert "gone" not in runs and "stays" in runs | {"stays" if stream == RESPONSES else ""}
    assert holding(Events(archive).store, [b"gw.outcome.gone.", b'"run":"gone"']) == []
    assert len(await judgements(bus, "stays")) == 6
    # Its name is free, and what comes under it again is another run's.
    await replays.done("gone")
    assert len(await judgements(bus, "gone")) == 6
