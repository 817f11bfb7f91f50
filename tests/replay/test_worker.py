"""What a replay writes: every outcome once, the same bytes by the same judges, whoever works and stops."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
import pytest
from tests.replay.conftest import Replays, outcomes, record, response, settings_of

from groundwatch.errors import TransientError, UsageError
from groundwatch.events import ClaimsExtracted, ClaimsVerified, Drawn, NoAnswer, OutcomeKind, Usage
from groundwatch.extraction.engines.base import NoopExtractionEngine
from groundwatch.ledger.ledger import audit
from groundwatch.replay import worker
from groundwatch.replay.running import cancel, delete, dry_run, pause, resume
from groundwatch.replay.runs import Runs, changed, judgement, paired
from groundwatch.replay.spec import Spec
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.outcomes import outgoing
from groundwatch.runtime.delivery.streams import read_stream
from groundwatch.runtime.settings import ArchiveSettings
from groundwatch.topology import EXTRACTED, JUDGED, RESPONSES, subject_of
from groundwatch.verification.engines.base import NoopVerificationEngine


async def test_every_response_has_its_outcome(replays: Replays, bus: Bus) -> None:
    await record(bus, *(response(f"r{number}") for number in range(450)))
    run = await replays.done("again")
    assert run.status == "done" and run.share == 1.0
    assert run.counts.events == run.counts.responses == run.counts.scored == 450
    assert len(await outcomes(bus, "again")) == 450
    ledger = await audit(bus.js, "again")
    assert ledger.balanced and ledger.recorded == ledger.scored == 450 and not ledger.in_flight
    # Live traffic's own ledger does not know of it.
    assert (await audit(bus.js)).scored == 0


async def test_the_same_judges_say_the_same_bytes(replays: Replays, bus: Bus) -> None:
    settings = settings_of(bus, extraction="reader", verification="reference")
    answers = ("A dog sits beside a blue ball.", "Two red balls lie on the grass.", "I like it.", "A dog.")
    await record(bus, *(response(f"r{number}", answer=answers[number % 4]) for number in range(40)))
    await replays.done("first", settings, keep=True)
    await replays.done("second", settings, keep=True)
    first, second = await outcomes(bus, "first"), await outcomes(bus, "second")
    assert len(first) == 40
    assert {name: judgement(one) for name, one in first.items()} == {
        name: judgement(one) for name, one in second.items()
    }
    found = await changed(bus.history, "first", "second")
    assert (found.pairs, found.same_judges, found.changed, found.share) == (40, 40, 0, 0.0)
    assert any(one.outcome is OutcomeKind.SCORED and one.score != 1.0 for one in first.values())
    for stream, event in ((EXTRACTED, ClaimsExtracted), (JUDGED, ClaimsVerified)):
        kept: dict[str, dict[str, bytes]] = {"first": {}, "second": {}}
        async for message in read_stream(bus.js, stream):
            run = message.subject.split(".")[2]
            decoded = msgspec.json.decode(message.data, type=event)
            assert (decoded.response if event is ClaimsExtracted else decoded.extracted.response).run == run
            kept[run][message.subject.rpartition(".")[2]] = message.data.replace(
                b'"run":"%s"' % run.encode(), b""
            )
        # "I like it." states nothing that could be judged.
        assert kept["first"] == kept["second"] and len(kept["first"]) == 30


async def test_another_judge_is_told_from_the_same_one(replays: Replays, bus: Bus) -> None:
    await record(bus, response("r"))
    await replays.done("rules", settings_of(bus, extraction="reader", verification="reference"))
    await replays.done("noop", source="live")
    found = await changed(bus.history, "rules", "noop")
    assert (found.pairs, found.same_judges, found.share) == (1, 0, None)


async def test_a_judge_that_changes_its_mind_is_told(
    replays: Replays, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    await record(bus, *(response(f"r{number}") for number in range(10)))
    await replays.done("first")
    verify = NoopVerificationEngine.verify

    async def moody(self, extracted, protocol):
        found = await verify(self, extracted, protocol)
        return [
            msgspec.structs.replace(one, verdicts=()) if event.response.id == "r3" else one
            for event, one in zip(extracted, found, strict=True)
        ]

    monkeypatch.setattr(NoopVerificationEngine, "verify", moody)
    await replays.done("second")
    found = await changed(bus.history, "first", "second")
    assert (found.same_judges, found.changed, found.share) == (10, 1, 0.1)


async def test_what_is_not_judged_keeps_its_reason(replays: Replays, bus: Bus) -> None:
    drawn = {"faithscore": Drawn(probability=0.25, lowest=0.25)}
    await record(
        bus,
        response("declined", declined={"faithscore": "sampled_out"}, drawn=drawn),
        response("silent", answer="", unanswered=NoAnswer(reason="refused", detail="no")),
        response("odd", protocols=("no-such", "faithscore")),
        response("chain", protocols=("genception",)),
    )
    await bus.js.publish(
        subject_of("recorded", "live", "0" * 32), b"{", headers={"Gw-Protocols": "faithscore"}
    )
    run = await replays.done("again")
    found = await outcomes(bus, "again")
    told = {name: (one.outcome.value, one.reason) for name, one in found.items()}
    assert told == {
        "declined faithscore": ("declined", "sampled_out"),
        "silent faithscore": ("unscored", "refused"),
        "odd no-such": ("unscored", "dead_letter"),
        "odd faithscore": ("scored", ""),
        # It does not decode, so nobody knows whose it is.
        "unknown faithscore": ("unscored", "undecodable"),
    }
    assert found["declined faithscore"].drawn == drawn["faithscore"]
    assert run.counts.reasons["declined: sampled_out"] == 1
    ledger = await audit(bus.js, "again")
    assert ledger.balanced and ledger.recorded == run.counts.outcomes == 5


async def test_a_later_stage_asks_no_earlier_judge(
    replays: Replays, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    await record(bus, *(response(f"r{number}") for number in range(20)))
    settings = settings_of(bus, extraction="reader", verification="reference")
    await replays.done("first", settings, keep=True)

    async def never(*_):
        raise AssertionError("asked")

    monkeypatch.setattr(NoopExtractionEngine, "extract", never)
    run = await replays.done("verified", source="first", stage="verification")
    assert run.counts.scored == 20
    assert {one.score for one in (await outcomes(bus, "verified")).values()} == {1.0}
    monkeypatch.setattr(NoopVerificationEngine, "verify", never)
    await replays.done("scored", source="first", stage="scoring")
    first, again = await outcomes(bus, "first"), await outcomes(bus, "scored")
    assert {name: judgement(one) for name, one in first.items()} == {
        name: judgement(one) for name, one in again.items()
    }
    for name in ("verified", "scored"):
        assert (await audit(bus.js, name)).balanced


async def test_a_sample_is_exact_and_repeatable(replays: Replays, bus: Bus) -> None:
    await record(bus, *(response(f"r{number}", model=f"m{number % 2}") for number in range(100)))
    await replays.done("one", sample=7, models=("m1",))
    await replays.done("two", sample=7, models=("m1",))
    await replays.done("three", sample=7, models=("m1",), seed=5)
    one, two, three = [await outcomes(bus, name) for name in ("one", "two", "three")]
    assert len(one) == len(three) == 7 and one.keys() == two.keys() != three.keys()
    assert {outcome.model for outcome in one.values()} == {"m1"}
    ledger = await audit(bus.js, "one")
    assert ledger.balanced and ledger.recorded == 7


async def test_many_share_a_run(replays: Replays, bus: Bus) -> None:
    await record(bus, *(response(f"r{number}") for number in range(1_000)))
    run = await replays.begin("shared")
    runs = await Runs.open(bus.js)
    workers = [await replays.replayer(run) for _ in range(3)]
    await asyncio.gather(*(one.work() for one in workers))
    done = await runs.get("shared")
    assert done.status == "done" and done.counts.scored == done.counts.events == 1_000
    assert done.counts.repeated == 0 and len(await outcomes(bus, "shared")) == 1_000


@pytest.mark.parametrize("broken", [False, True])
async def test_pages_one_after_the_other_are_read_by_one_consumer(
    replays: Replays, bus: Bus, broken: bool
) -> None:
    for start in range(0, 900, 300):
        await record(bus, *(response(f"r{number}") for number in range(start, start + 300)))
        await record(bus, *(response(f"o{number}") for number in range(start, start + 300)), run="other")
    run = await replays.begin("r")
    assert run.page < 200
    replayer = await replays.replayer(run)
    write, before, seen = replayer.writer.write, await consumers(bus), list[str]()

    async def watched(*arguments: Any, **options: Any) -> Any:
        for name in await consumers(bus) - before - set(seen):
            seen.append(name)
            if broken and len(seen) < 3:
                await bus.js.delete_consumer(RESPONSES, name)
        return await write(*arguments, **options)

    replayer.writer.write = watched  # type: ignore[method-assign]
    done = await replayer.work()
    assert (done.status, done.counts.events, done.counts.scored) == ("done", 900, 900)
    assert (done.counts.repeated, done.pages, done.share) == (0, (), 1.0)
    assert len(seen) == 1 or (broken and len(seen) > 1)
    assert await consumers(bus) == before


async def consumers(bus: Bus) -> set[str]:
    return {one.name or "" for one in await bus.js.consumers_info(RESPONSES)}


async def test_pausing_and_resuming_repeats_nothing(
    replays: Replays, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "BATCH", 20)
    await record(bus, *(response(f"r{number}") for number in range(300)))
    asked: list[str] = []
    extract = NoopExtractionEngine.extract

    async def watched(self, responses, protocol):
        asked.extend(one.id for one in responses)
        if len(asked) == 100:
            await pause(runs, "p")
        return await extract(self, responses, protocol)

    monkeypatch.setattr(NoopExtractionEngine, "extract", watched)
    runs = await Runs.open(bus.js)
    run = await replays.begin("p")
    paused = await (await replays.replayer(run)).work()
    assert paused.status == "paused" and 100 <= paused.counts.scored < 300
    ledger = await audit(bus.js, "p")
    assert ledger.balanced and ledger.in_flight == 300 - paused.counts.scored
    assert ledger.in_flight_at == {"replay (paused)": ledger.in_flight}
    with pytest.raises(UsageError, match="it is paused"):
        await pause(runs, "p")
    done = await (await replays.replayer(await resume(runs, "p"))).work()
    assert done.status == "done" and done.counts.scored == 300
    assert len(asked) == len(set(asked)) == 300
    with pytest.raises(UsageError, match="it is done"):
        await resume(runs, "p")


async def test_a_death_before_saying_so_pays_no_judge_twice(
    replays: Replays, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    await record(bus, *(response(f"r{number}") for number in range(90)))
    run = await replays.begin("d")
    dying = await replays.replayer(run)
    reported = worker.reported

    def dead(run, me, at, *arguments, **named):
        if at > 1:
            raise KeyboardInterrupt
        return reported(run, me, at, *arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(worker, "reported", dead)
        with pytest.raises(KeyboardInterrupt):
            await dying.work()
    written = len(await outcomes(bus, "d"))
    assert written > 0
    runs = await Runs.open(bus.js)
    assert (await runs.get("d")).counts.outcomes == 0
    # Nobody waits for a process that is known to be gone.
    await runs.change(
        "d",
        lambda run: msgspec.structs.replace(
            run, pages=tuple(msgspec.structs.replace(page, expires=0.0) for page in run.pages)
        ),
    )
    asked: list[str] = []
    extract = NoopExtractionEngine.extract

    async def watched(self, responses, protocol):
        asked.extend(one.id for one in responses)
        return await extract(self, responses, protocol)

    monkeypatch.setattr(NoopExtractionEngine, "extract", watched)
    done = await (await replays.replayer(run)).work()
    assert done.counts.scored == 90 and done.counts.repeated == written
    assert len(asked) == 90 - written
    assert (await audit(bus.js, "d")).balanced


async def test_a_budget_pauses_and_more_of_it_goes_on(
    replays: Replays, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "BATCH", 10)
    monkeypatch.setattr(worker, "REPORT_SECONDS", 0.0)
    extract = NoopExtractionEngine.extract

    async def dear(self, responses, protocol):
        await asyncio.sleep(0.05)
        found = await extract(self, responses, protocol)
        return [
            msgspec.structs.replace(one, usage=Usage(calls=1, input_tokens=9, output_tokens=1, cost=0.01))
            for one in found
        ]

    monkeypatch.setattr(NoopExtractionEngine, "extract", dear)
    await record(bus, *(response(f"r{number}") for number in range(300)))
    paused = await replays.done("b", max_cost=0.5)
    assert paused.status == "paused" and "$0.50" in paused.reason
    assert 50 <= paused.counts.scored < 300
    runs = await Runs.open(bus.js)
    with pytest.raises(UsageError, match="allow more"):
        await resume(runs, "b")
    done = await (await replays.replayer(await resume(runs, "b", max_cost=100.0))).work()
    assert done.counts.scored == done.counts.usage.calls == 300


async def test_a_dry_run_tells_what_the_run_takes_within_a_factor_of_two(
    replays: Replays, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where only the protocol is replayed that takes a tenth, or ten times, of the others."""
    extract = NoopExtractionEngine.extract
    calls = {"faithscore": 10, "tri-he": 1}

    async def dear(self, responses, protocol):
        each = Usage(calls=calls[protocol.name], input_tokens=90 * calls[protocol.name])
        found = await extract(self, responses, protocol)
        return [msgspec.structs.replace(one, usage=each) for one in found]

    monkeypatch.setattr(NoopExtractionEngine, "extract", dear)
    await record(bus, *(response(f"r{number}", protocols=tuple(calls)) for number in range(40)))
    await replays.done("first")
    for one in (await outcomes(bus, "first")).values():
        await bus.create(outgoing(msgspec.structs.replace(one, run="live")))
    for protocols in ((), *((name,) for name in calls)):
        name = "-".join(("again", *protocols))
        planned = await dry_run(bus, Spec(run=name, protocols=protocols))
        taken = (await replays.done(name, protocols=protocols)).counts.usage
        assert planned.calls is not None and planned.input_tokens is not None
        assert taken.calls == 40 * sum(calls[one] for one in protocols or calls)
        assert taken.calls / 2 <= planned.calls <= taken.calls * 2, name
        assert taken.input_tokens / 2 <= planned.input_tokens <= taken.input_tokens * 2, name


async def test_a_run_is_never_of_two_judges(replays: Replays, bus: Bus) -> None:
    await record(bus, response("r"))
    run = await replays.begin("mixed")
    runs = await Runs.open(bus.js)
    await runs.change(
        "mixed", lambda run: msgspec.structs.replace(run, judges={"faithscore.extraction": "0123456789ab"})
    )
    with pytest.raises(UsageError, match="never of two"):
        await (await replays.replayer(run)).work()
    assert not await outcomes(bus, "mixed")


async def test_a_fault_that_passes_is_waited_for(
    replays: Replays, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: set[str] = set()
    extract = NoopExtractionEngine.extract

    async def moody(self, responses, protocol):
        found = list(await extract(self, responses, protocol))
        for index, one in enumerate(responses):
            if one.id == "never" or (one.id == "once" and one.id not in failed):
                failed.add(one.id)
                found[index] = TransientError("not now")
            if one.id == "bug":
                raise ValueError("cannot bear it")
        return found

    monkeypatch.setattr(NoopExtractionEngine, "extract", moody)
    await record(bus, *(response(name) for name in ("fine", "once", "never", "bug")))
    await replays.done("moody")
    told = {name: one.reason for name, one in (await outcomes(bus, "moody")).items()}
    assert told == {
        "fine faithscore": "",
        "once faithscore": "",
        "never faithscore": "dead_letter",
        "bug faithscore": "dead_letter",
    }
    assert (await audit(bus.js, "moody")).balanced


async def test_the_recorded_pace(replays: Replays, bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    came: list[tuple[float, str]] = []
    extract = NoopExtractionEngine.extract

    async def watched(self, responses, protocol):
        now = asyncio.get_running_loop().time()
        came.extend((now, one.id) for one in responses)
        return await extract(self, responses, protocol)

    monkeypatch.setattr(NoopExtractionEngine, "extract", watched)
    await record(bus, *(response(f"r{number}", recorded_at=1_000.0 + 2 * number) for number in range(4)))
    began = asyncio.get_running_loop().time()
    await replays.done("slow", speed=10.0)
    assert [name for _, name in came] == ["r0", "r1", "r2", "r3"]
    # 6 s at ten times the pace: later is possible on a busy machine, sooner is not.
    assert came[3][0] - began >= 0.6


async def test_a_deleted_run_leaves_nothing_and_its_name_is_free(replays: Replays, bus: Bus) -> None:
    await record(bus, *(response(f"r{number}") for number in range(30)))
    await replays.done("gone", keep=True)
    await delete(bus, "gone", ArchiveSettings())
    for stream in ("GW_OUTCOMES", "GW_EXTRACTED", "GW_JUDGED"):
        assert (await bus.js.stream_info(stream)).state.messages == 0
    assert (await bus.js.stream_info("GW_RESPONSES")).state.messages == 30
    with pytest.raises(UsageError, match="no run 'gone'"):
        await audit(bus.js, "gone")
    # The server remembers message ids for minutes: those of the new run are others.
    assert (await replays.done("gone")).counts.scored == 30
    assert len(await outcomes(bus, "gone")) == 30


async def test_a_cancelled_run_is_about_what_it_came_to(
    replays: Replays, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "BATCH", 20)
    await record(bus, *(response(f"r{number}") for number in range(300)))
    runs = await Runs.open(bus.js)
    extract = NoopExtractionEngine.extract

    async def watched(self, responses, protocol):
        if responses[0].id == "r100":
            await cancel(runs, "c")
        return await extract(self, responses, protocol)

    monkeypatch.setattr(NoopExtractionEngine, "extract", watched)
    run = await replays.done("c")
    assert run.status == "cancelled"
    ledger = await audit(bus.js, "c")
    assert ledger.balanced and ledger.recorded == run.counts.outcomes < 300 and not ledger.in_flight


async def test_the_audit_finds_what_is_missing_and_what_is_too_much(replays: Replays, bus: Bus) -> None:
    await record(bus, *(response(f"r{number}") for number in range(5)))
    await replays.done("a")
    await bus.js.purge_stream("GW_OUTCOMES", subject=f"gw.outcome.a.faithscore.{response('r3').key}")
    ledger = await audit(bus.js, "a")
    assert not ledger.balanced and ledger.lost == 1
    await bus.js.publish(f"gw.outcome.a.faithscore.{'0' * 32}", b"{}", headers={"Gw-Outcome": "scored"})
    assert (await audit(bus.js, "a")).orphans == 1


async def test_pairs_are_what_both_sides_have(replays: Replays, bus: Bus) -> None:
    await record(bus, *(response(f"r{number}") for number in range(6)))
    await replays.done("all")
    await replays.done("some", ids=("r1", "r2"))
    for left, right in (("all", "some"), ("some", "all")):
        found = [
            (one.id, one.run, other.id, other.run) async for one, other in paired(bus.history, left, right)
        ]
        assert sorted(found) == [(name, left, name, right) for name in ("r1", "r2")]


async def test_a_paced_replay_that_is_stopped_counts_nothing_twice(replays: Replays, bus: Bus) -> None:
    """What it has counted lies behind its position, also in the middle of what was read at once."""
    began = time.time()
    await record(bus, *(response(f"r{number}", recorded_at=began + number * 0.05) for number in range(40)))
    run = await replays.begin("paced", speed=1.0)
    first = await replays.replayer(run)
    working = asyncio.create_task(first.work())
    runs = await Runs.open(bus.js)
    while (await runs.get("paced")).counts.outcomes < 10:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    first.stop()
    stopped = await working
    assert stopped.status == "running" and stopped.counts.outcomes < 40
    assert stopped.counts.events == stopped.counts.outcomes
    done = await (await replays.replayer(stopped)).work()
    assert (done.status, done.counts.outcomes, done.counts.repeated) == ("done", 40, 0)
