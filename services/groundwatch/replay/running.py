"""Beginning, joining and ending runs: what the command line and the gateway call; and judging again what a
run left unscored because a judge had a fault.

A replay writes no dead letters, which would bring its events to the live stages. The outcome that stands for
one says why, and is replaced by compare-and-set when the judge has recovered, as a live one is.
"""

import asyncio
import contextlib
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping

import msgspec

from groundwatch import termination, topology
from groundwatch.archive.cold import tables
from groundwatch.erasure.finding import say_archived
from groundwatch.errors import TransientError, UsageError, words
from groundwatch.events import REPLACEABLE, Usage
from groundwatch.keys import digest, partition_of
from groundwatch.ledger.store import ErasureEntries
from groundwatch.protocols.base import Stage
from groundwatch.replay.pipeline import Choosing, Item, Pipeline
from groundwatch.replay.planning import Plan, Stretch, find_stretch, plan
from groundwatch.replay.runs import (
    AT_ONCE,
    Counts,
    Run,
    RunGone,
    Runs,
    Status,
    exists,
    judged_by,
    look_up,
    new_run,
    over_budget,
)
from groundwatch.replay.spec import Spec
from groundwatch.replay.worker import Replayer
from groundwatch.runtime.delivery.bus import Bus, Stored
from groundwatch.runtime.delivery.history import History
from groundwatch.runtime.delivery.outcomes import outgoing, replace_dead
from groundwatch.runtime.delivery.streams import FAULTS, position_of, read_stream
from groundwatch.runtime.settings import ArchiveSettings, Settings
from groundwatch.topology import EXTRACTED, JUDGED, OUTCOMES, RESPONSES, run_subjects
from groundwatch.topology.partitions import kind_of, streams_of_kind, subjects_in

KINDS = {RESPONSES: "recorded", EXTRACTED: "extracted", JUDGED: "judged", OUTCOMES: "outcome"}
"""Streams that a run has events in, with the first token of their subjects behind the prefix."""

LET_GO = 30.0
"""Seconds that whoever works at a run is given to notice that it is to be deleted."""

Progress = Callable[[Run], None]


async def dry_run(bus: Bus, spec: Spec) -> Plan:
    """What the replay would read, judge and cost. Raises `UsageError`, as beginning it would."""
    spec.check()
    await _free(await Runs.open(bus.js), spec.run)
    stretch = await find_stretch(bus.history, spec)
    return (await plan(bus.history, spec, stretch))[0]


async def begin(bus: Bus, settings: Settings, spec: Spec) -> Run:
    """Write down a new run that anybody may work at. Raises `UsageError` in one line for what is wrong."""
    spec.check()
    runs = await Runs.open(bus.js)
    await _free(runs, spec.run)
    run = await run_over(bus.history, spec, await find_stretch(bus.history, spec))
    # Engines are built before the name is taken: settings that make none leave nothing behind.
    Replayer(bus, runs, settings, run)
    await nothing_there(bus, spec.run)
    return await runs.create(run)


async def run_over(history: History, spec: Spec, stretch: Stretch) -> Run:
    """A run over this stretch, with the bound that makes its sample exact."""
    if spec.sample:
        _, spec = await plan(history, spec, stretch)
    return new_run(spec, first=stretch.first, last=stretch.last, parts=stretch.parts)


async def work(bus: Bus, settings: Settings, run: Run, *, on_progress: Progress | None = None) -> Run:
    """Work at a run until it is done, paused or cancelled. SIGTERM and Ctrl-C let go of it in good order."""
    replayer = Replayer(bus, await Runs.open(bus.js), settings, run, on_progress=on_progress)
    with _told_to_stop(replayer.stop):
        return await replayer.work()


async def pause(runs: Runs, name: str) -> Run:
    """Whoever works at it finishes what is in hand. Raises `UsageError` when it does not run."""
    return await _set(runs, name, ("running",), "paused", "by hand")


async def resume(
    runs: Runs, name: str, *, max_tokens: int | None = None, max_cost: float | None = None
) -> Run:
    """Let it run again, perhaps with a larger budget. Raises `UsageError` when it is over."""

    def how(run: Run) -> Run:
        _must_be(run, ("paused", "running"))
        spec = run.spec
        if max_tokens is not None:
            spec = msgspec.structs.replace(spec, max_tokens=max_tokens)
        if max_cost is not None:
            spec = msgspec.structs.replace(spec, max_cost=max_cost)
        if why := over_budget(spec, run.counts.usage):
            raise UsageError(f"run '{name}': {why}; allow more", "max_tokens", "max_cost")
        return msgspec.structs.replace(run, spec=spec, status="running", reason="")

    return await _change(runs, name, how)


async def cancel(runs: Runs, name: str) -> Run:
    """End it where it is; what it has written stays. Raises `UsageError` when it is over already."""
    return await _set(runs, name, ("running", "paused", "importing"), "cancelled", "by hand")


async def delete(bus: Bus, name: str, archive: ArchiveSettings) -> None:
    """Remove a run with all of its events, from the archive too. Raises `UsageError` when there is none."""
    runs = await Runs.open(bus.js)
    await runs.get(name)
    run = await _change(
        runs, name, lambda run: msgspec.structs.replace(run, status="deleting", reason="by hand")
    )
    deadline = time.monotonic() + LET_GO
    while run.workers(time.time()) and time.monotonic() < deadline:
        await asyncio.sleep(0.2)
        run = await runs.get(name)
    ledger = ErasureEntries(bus.js, digest("run", name)[:32], bus.partitions)
    for stream, subjects in _streams(bus, name):
        try:
            if kind_of(stream) == RESPONSES:
                # A sequence that the stream lacks, and of which nobody says why, counts as a loss.
                await _say(ledger, bus, stream, subjects)
            await bus.js.purge_stream(stream, subject=subjects)
        except FAULTS as error:
            raise TransientError(
                f"cannot purge {subjects} of {stream}: {words(error)}; delete it again"
            ) from error
    await _drop_from_archive(bus, name, archive, ledger)
    await ledger.finish()
    await runs.remove(name)


async def _say(ledger: ErasureEntries, bus: Bus, stream: str, subjects: str) -> None:
    """Say which of a run's responses go."""
    async for read in read_stream(bus.js, stream, subjects=(subjects,), headers_only=True):
        ledger.note(stream, read)
    await ledger.say()


def _streams(bus: Bus, name: str) -> Iterator[tuple[str, str]]:
    """Each stream that a run has events in, with their subjects."""
    for kind, token in KINDS.items():
        for partition, stream in enumerate(streams_of_kind(kind, bus.partitions)):
            yield stream, subjects_in([run_subjects(token, name)], partition)[0]


async def _drop_from_archive(bus: Bus, name: str, settings: ArchiveSettings, ledger: ErasureEntries) -> None:
    """Remove a run's rows, and have the archive leave out what it has yet to write of it."""
    if (both := tables(settings)) is None:
        return
    from groundwatch.archive.table import Erasure

    standing = {stream: await position_of(bus.js, stream) for stream, _ in _streams(bus, name)}
    erasure = Erasure(run=name, until={at.created: at.last for at in standing.values()})
    created = {stream: at.created for stream, at in standing.items() if kind_of(stream) == RESPONSES}
    await say_archived(both[1], ledger, erasure, created)
    for table in both:
        await asyncio.to_thread(table.erase, erasure)


async def _set(runs: Runs, name: str, before: tuple[Status, ...], now: Status, reason: str) -> Run:
    def how(run: Run) -> Run:
        _must_be(run, before)
        over = time.time() if now == "cancelled" else run.finished_at
        return msgspec.structs.replace(run, status=now, reason=reason, finished_at=over)

    return await _change(runs, name, how)


async def _change(runs: Runs, name: str, how: Callable[[Run], Run]) -> Run:
    await runs.get(name)
    try:
        return await runs.change(name, how)
    except RunGone as error:
        raise UsageError(str(error)) from error


def _must_be(run: Run, statuses: tuple[Status, ...]) -> None:
    if run.status not in statuses:
        raise UsageError(f"run '{run.name}': it is {run.standing}, and not {' or '.join(statuses)}")


async def _free(runs: Runs, name: str) -> None:
    if (run := await runs.find(name)) is not None:
        raise exists(name, run.status)


async def nothing_there(bus: Bus, name: str) -> None:
    """Raises `UsageError` when somebody else's events are under this name: they would count as ours."""
    found = await bus.history.next(OUTCOMES, run_subjects("outcome", name), 1)
    if found is None:
        return
    raise UsageError(
        f"run '{name}' is no replay of ours, and yet {OUTCOMES} holds an outcome of it (sequence "
        f"{found.sequence}): choose another name"
    )


@contextlib.contextmanager
def _told_to_stop(stop: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(signal.SIGINT, stop)
    except (NotImplementedError, RuntimeError, ValueError):
        # Not the main thread: whoever embeds us stops us by the run's state.
        yield
        return
    try:
        with termination.calling(lambda: loop.call_soon_threadsafe(stop)):
            yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


LOOKED_AT = 1_000
"""Outcomes with faults whose words are read, at most."""

LONGEST = 200
"""Characters of a fault's words by which faults are told apart."""


class Retried(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a run's unscored outcomes: `scored` and `unscored` (for another reason) are new,
    `faulty` have a fault again, `gone` have no event in the source any more."""

    run: str
    found: int
    scored: int = 0
    unscored: int = 0
    faulty: int = 0
    gone: int = 0
    usage: Usage = Usage()


async def faults(history: History, run: str) -> dict[str, int]:
    """The words of a run's faults with their numbers, the most frequent first; of the first 1,000 at most."""
    found: Counter[str] = Counter()
    waiting = (await _faulty(history, run))[:LOOKED_AT]
    for start in range(0, len(waiting), AT_ONCE):
        part = waiting[start : start + AT_ONCE]
        subjects = (topology.subject_of("outcome", run, one.protocol, one.key) for one in part)
        for outcome in await look_up(history, subjects):
            if outcome is not None and outcome.reason in REPLACEABLE:
                found[(outcome.detail or outcome.reason)[:LONGEST]] += 1
    return dict(found.most_common())


async def retry(bus: Bus, settings: Settings, name: str, *, own: bool = False) -> Retried:
    """Judge again what is unscored because of a fault, by the run's judges; `own`: these settings have them.

    Raises `UsageError` when somebody works at the run, or the judges are others than those it was begun with.
    """
    runs = await Runs.open(bus.js)
    run = await runs.get(name)
    if run.status not in ("done", "paused", "cancelled") or run.workers(time.time()):
        raise UsageError(
            f"run '{name}' is {run.status}: what had faults is judged again when it is done, or after "
            f"groundwatch replay pause {name}"
        )
    if not own:
        run.spec.check_judges()
    waiting = await _faulty(bus.history, name)
    stage = Stage(run.spec.stage)
    pipeline = Pipeline.of_run(run.spec, settings, bus)
    became: Counter[str] = Counter()
    usage = Usage()
    try:
        for start in range(0, len(waiting), AT_ONCE):
            items = await _items(bus.history, run, waiting[start : start + AT_ONCE], became)
            for protocol in {item.protocol for item in items}:
                judged_by(run, protocol, await pipeline.judges(protocol, stage))
            await pipeline.judge(stage, items)
            for item in items:
                usage += item.outcome.usage
                if item.outcome.reason in REPLACEABLE:
                    became["faulty"] += 1
                elif await replace_dead(bus, outgoing(item.outcome)) is Stored.NEW:
                    became[item.outcome.outcome.value] += 1
    finally:
        await pipeline.close()
        # As the stream has them: right after a crash too.
        counts = Counts()
        async for _, headers in _outcomes(bus.history, name):
            counts.note(headers.get(topology.HEADER_OUTCOME, ""), headers.get(topology.HEADER_REASON, ""))
        await runs.change(name, lambda run: _recounted(run, counts, usage))
    what = {name: became[name] for name in ("scored", "unscored", "faulty", "gone")}
    return Retried(run=name, found=len(waiting), usage=usage, **what)


async def _items(
    history: History, run: Run, addresses: list[topology.Address], became: Counter[str]
) -> list[Item]:
    """What is to be judged again; what cannot be is counted."""
    recorded = run.spec.stage == Stage.EXTRACTION
    places = [one.key if recorded else f"{one.protocol}.{one.key}" for one in addresses]
    filters = [subjects_in([run.spec.subjects], partition_of(one.key))[0] for one in addresses]
    subjects = [one.replace(">", place) for one, place in zip(filters, places, strict=True)]
    # Chosen they were already, by what the spec says of responses and samples.
    choosing = Choosing(Spec(run=run.name, source=run.spec.source, stage=run.spec.stage))
    items = []
    for address, message in zip(
        addresses, await history.last_of_each(run.spec.stream, subjects), strict=True
    ):
        chosen = choosing.choose([message]).items if message is not None else []
        mine = [item for item in chosen if item.protocol == address.protocol and not item.broken]
        if not mine:
            became["faulty" if message is not None else "gone"] += 1
        items += mine
    return items


async def _faulty(history: History, run: str) -> list[topology.Address]:
    """Where a run has an outcome that only stands for a fault."""
    return [
        address
        async for address, headers in _outcomes(history, run)
        if headers.get(topology.HEADER_REASON) in REPLACEABLE
    ]


async def _outcomes(history: History, run: str) -> AsyncIterator[tuple[topology.Address, Mapping[str, str]]]:
    """The addresses and headers of a run's outcomes."""
    subjects = (topology.run_subjects("outcome", run),)
    async for read in history.read(topology.OUTCOMES, subjects=subjects, headers_only=True):
        if (address := topology.parse_subject(read.subject)) is not None:
            yield address, read.headers


def _recounted(run: Run, counts: Counts, usage: Usage) -> Run:
    rest = {what: getattr(run.counts, what) for what in ("events", "responses", "repeated")}
    counts = msgspec.structs.replace(counts, usage=run.counts.usage + usage, **rest)
    return msgspec.structs.replace(run, counts=counts)
