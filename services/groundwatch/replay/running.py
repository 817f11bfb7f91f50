"""Beginning, joining and ending runs: what the command line and the gateway call."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Iterator

import msgspec

from groundwatch import termination
from groundwatch.archive.place import SWITCHED_OFF, require
from groundwatch.erasure.archived import say_archived
from groundwatch.errors import TransientError, UsageError
from groundwatch.keys import digest
from groundwatch.ledger.erasures import ErasureEntries
from groundwatch.replay.planning import Plan, Stretch, find_stretch, plan
from groundwatch.replay.runs import Run, RunGone, Runs, Status, exists, new_run, over_budget
from groundwatch.replay.spec import Spec
from groundwatch.replay.worker import Replayer
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.history import History
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
                f"cannot purge {subjects} of {stream}: {error!r}; delete it again"
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
    if settings.url in ("", SWITCHED_OFF):
        return
    require()
    from groundwatch.archive.events import Events
    from groundwatch.archive.outcomes import Archive
    from groundwatch.archive.table import Erasure

    standing = {stream: await position_of(bus.js, stream) for stream, _ in _streams(bus, name)}
    erasure = Erasure(run=name, until={at.created: at.last for at in standing.values()})
    events = Events(settings.url, settings.options)
    created = {stream: at.created for stream, at in standing.items() if kind_of(stream) == RESPONSES}
    await say_archived(events, ledger, erasure, created)
    for table in (Archive(settings.url, settings.options), events):
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
