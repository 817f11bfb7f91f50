"""What came of a run, and a run as a file.

How far the same judges say the same as in its source, and what it left unscored because a judge had a fault;
and judging just that again. A replay writes no dead letters, which would bring its events to the live stages.
The outcome that stands for one says why, and is replaced by compare-and-set when the judge has recovered, as
a live one is. An export is a stream of its own; all of an import is checked before its first event is sent.
"""

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path

import msgspec
from nats.js import JetStreamContext

from groundwatch import __version__, topology
from groundwatch.errors import UNDECODED, InputError, TransientError, UsageError
from groundwatch.events import ChainAdvanced, OutcomeKind, ResponseScored, Usage
from groundwatch.protocols.base import Stage
from groundwatch.records import Limits
from groundwatch.replay.files import ExportReader, ExportWriter, Manifest, Record, replacing
from groundwatch.replay.pipeline import Pair, Pipeline
from groundwatch.replay.planning import Stretch, find_stretch, plan
from groundwatch.replay.running import nothing_there, run_over
from groundwatch.replay.runs import Run, Runs, judged_by, new_run
from groundwatch.replay.spec import START, Spec
from groundwatch.replay.writing import Choosing
from groundwatch.runtime.delivery.bus import ENCODER, Bus, Outgoing, Stored, wait_acks
from groundwatch.runtime.delivery.outcomes import REPLACEABLE, check_recorded, limits, outgoing, replace_dead
from groundwatch.runtime.delivery.streams import Read, last_message, read_batches, read_stream
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.stores.exports import register
from groundwatch.runtime.stores.images import ImageStore, check_image
from groundwatch.topology import HEADER_DIGEST, HEADER_PROTOCOLS, PREFIX, parse_subject

AT_ONCE = 50
LOOKED_AT = 1_000
"""Outcomes with faults whose words are read, at most."""

LONGEST = 200
"""Characters of a fault's words by which faults are told apart."""

_DECODER = msgspec.json.Decoder(ResponseScored)


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """How far a replay judged as its source did. `pairs` have an outcome in both runs, `same_judges` of them
    by the same judges, `changed` of those with other bytes. `share` is changed by same_judges."""

    pairs: int
    same_judges: int
    changed: int
    share: float | None


async def paired(
    js: JetStreamContext, left: str, right: str, *, first: int = 1, last: int | None = None
) -> AsyncIterator[tuple[ResponseScored, ResponseScored]]:
    """The outcomes of the same response and protocol in two runs, in the order of the right one, from its
    sequence `first` to `last`. Outcomes that do not decode count as absent."""
    part: list[tuple[str, bytes]] = []

    async def looked_up() -> list[tuple[ResponseScored, ResponseScored]]:
        found = await _look_up(js, [subject for subject, _ in part])
        both = [(one, _decoded(data)) for one, (_, data) in zip(found, part, strict=True)]
        part.clear()
        return [(one, other) for one, other in both if one is not None and other is not None]

    async for message in read_stream(
        js,
        topology.OUTCOMES,
        subjects=(topology.run_subjects("outcome", right),),
        start_sequence=first,
        last_sequence=last,
    ):
        if (address := topology.parse_subject(message.subject)) is not None:
            part.append((topology.subject_of("outcome", left, address.protocol, address.key), message.data))
        if len(part) == AT_ONCE:
            for pair in await looked_up():
                yield pair
    for pair in await looked_up():
        yield pair


def judgement(outcome: ResponseScored) -> bytes:
    """The bytes that are equal when the same judges say the same.

    All of the outcome but the name of its run, the moment of scoring and what the judging took.
    """
    return ENCODER.encode(msgspec.structs.replace(outcome, run="", scored_at=0.0, usage=Usage()))


async def changed(
    js: JetStreamContext,
    source: str,
    run: str,
    *,
    first: int = 1,
    last: int | None = None,
    most: int | None = None,
) -> Changed:
    """Compare each outcome of a run with that of its source, where the same judges judged: all of them, or
    at `most` so many of the sequences `first` to `last`."""
    pairs = same = other = 0
    async for left, right in paired(js, source, run, first=first, last=last):
        if pairs == most:
            break
        pairs += 1
        if OutcomeKind.DECLINED in (left.outcome, right.outcome) or left.judges != right.judges:
            continue
        same += 1
        other += judgement(left) != judgement(right)
    return Changed(pairs=pairs, same_judges=same, changed=other, share=other / same if same else None)


async def _look_up(js: JetStreamContext, subjects: Iterable[str]) -> list[ResponseScored | None]:
    found = await asyncio.gather(*(last_message(js, topology.OUTCOMES, subject) for subject in subjects))
    return [_decoded(one.data) if one is not None else None for one in found]


def _decoded(data: bytes) -> ResponseScored | None:
    try:
        return _DECODER.decode(data)
    except UNDECODED:
        return None


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


async def faults(js: JetStreamContext, run: str) -> dict[str, int]:
    """The words of a run's faults with their numbers, the most frequent first; of the first 1,000 at most."""
    found: Counter[str] = Counter()
    waiting = (await _faulty(js, run))[:LOOKED_AT]
    for start in range(0, len(waiting), AT_ONCE):
        part = waiting[start : start + AT_ONCE]
        subjects = (topology.subject_of("outcome", run, one.protocol, one.key) for one in part)
        for outcome in await _look_up(js, subjects):
            if outcome is not None and outcome.reason in REPLACEABLE:
                found[(outcome.detail or outcome.reason)[:LONGEST]] += 1
    return dict(found.most_common())


async def retry(bus: Bus, settings: Settings, name: str) -> Retried:
    """Judge again what is unscored because of a fault, by the run's own judges.

    Raises `UsageError` when somebody works at the run, or the judges are others than those it was begun with.
    """
    runs = await Runs.open(bus.js)
    run = await runs.get(name)
    if run.status not in ("done", "paused", "cancelled") or run.workers(time.time()):
        raise UsageError(
            f"run '{name}' is {run.status}: what had faults is judged again when it is done, or after "
            f"groundwatch replay pause {name}"
        )
    waiting = await _faulty(bus.js, name)
    pipeline = Pipeline.of_run(run.spec, settings, bus)
    again = _Again(bus, run, pipeline)
    try:
        for start in range(0, len(waiting), AT_ONCE):
            await again.judge(waiting[start : start + AT_ONCE])
    finally:
        await pipeline.close()
        counted = await _counted(bus.js, name)
        await runs.change(name, lambda run: _recounted(run, counted, again.usage))
    became = {what: again.became[what] for what in ("scored", "unscored", "faulty", "gone")}
    return Retried(run=name, found=len(waiting), usage=again.usage, **became)


class _Again:
    def __init__(self, bus: Bus, run: Run, pipeline: Pipeline) -> None:
        self._bus = bus
        self._run = run
        self._pipeline = pipeline
        # Chosen they were already, by what the spec says of responses and samples.
        anything = Spec(run=run.name, source=run.spec.source, stage=run.spec.stage)
        self._choosing = Choosing(anything)
        self.became: Counter[str] = Counter()
        self.usage = Usage()

    async def judge(self, addresses: list[topology.Address]) -> None:
        """Judge these and put their outcomes in the place of the faults."""
        spec = self._run.spec
        recorded = spec.stage == Stage.EXTRACTION
        places = [one.key if recorded else f"{one.protocol}.{one.key}" for one in addresses]
        subjects = [spec.subjects.replace(">", place) for place in places]
        found = (last_message(self._bus.js, spec.stream, subject) for subject in subjects)
        messages = await asyncio.gather(*found)
        waiting: list[Pair] = []
        for address, message in zip(addresses, messages, strict=True):
            items = self._choosing.choose([message]).items if message is not None else []
            mine = [item for item in items if item.protocol == address.protocol and not item.broken]
            if not mine:
                self.became["faulty" if message is not None else "gone"] += 1
            waiting += mine
        stage = Stage(spec.stage)
        for name in {pair.protocol for pair in waiting}:
            judged_by(self._run, name, await self._pipeline.judges(name, stage))
        await self._pipeline.judge(stage, waiting)
        for pair in waiting:
            await self._put(pair.outcome)

    async def _put(self, outcome: ResponseScored) -> None:
        self.usage += outcome.usage
        if outcome.reason in REPLACEABLE:
            self.became["faulty"] += 1
        elif await replace_dead(self._bus, outgoing(outcome)) is Stored.NEW:
            self.became[outcome.outcome.value] += 1


async def _faulty(js: JetStreamContext, run: str) -> list[topology.Address]:
    """Where a run has an outcome that only stands for a fault."""
    found = []
    async for read in read_stream(
        js, topology.OUTCOMES, subjects=(topology.run_subjects("outcome", run),), headers_only=True
    ):
        address = topology.parse_subject(read.subject)
        if address is not None and read.headers.get(topology.HEADER_REASON) in REPLACEABLE:
            found.append(address)
    return found


async def _counted(js: JetStreamContext, run: str) -> Counter[str]:
    """Outcomes by kind, and by kind and reason, as the stream has them: right after a crash too."""
    found: Counter[str] = Counter()
    async for read in read_stream(
        js, topology.OUTCOMES, subjects=(topology.run_subjects("outcome", run),), headers_only=True
    ):
        kind, reason = read.headers.get(topology.HEADER_OUTCOME, ""), read.headers.get(topology.HEADER_REASON)
        found[kind] += 1
        if reason:
            found[f"{kind}: {reason}"] += 1
    return found


def _recounted(run: Run, counted: Counter[str], usage: Usage) -> Run:
    counts = msgspec.structs.replace(
        run.counts,
        scored=counted["scored"],
        unscored=counted["unscored"],
        declined=counted["declined"],
        reasons={name: number for name, number in counted.items() if ": " in name},
        usage=run.counts.usage + usage,
    )
    return msgspec.structs.replace(run, counts=counts)


KEPT = (HEADER_PROTOCOLS, HEADER_DIGEST)
"""Headers that belong to the event; the others are about its way into one stream."""

TOGETHER = 1_000


async def export(
    js: JetStreamContext, spec: Spec, path: Path, *, on_progress: Callable[[float], None] = lambda share: None
) -> Manifest:
    """Write what the spec is about to `path`, whole or not at all.

    Raises `UsageError` in one line, and then leaves no file.
    """
    spec.check()
    stretch = await find_stretch(js, spec)
    if spec.sample:
        _, spec = await plan(js, spec, stretch)
    try:
        with replacing(path) as out:
            manifest = await _export(js, spec, stretch, ExportWriter(out), on_progress)
            # Before the file is there: an erasure must find every file.
            await register(js, path)
    except TransientError as error:
        raise UsageError(f"the server went away while exporting ({error}): try again") from error
    return manifest


async def _export(
    js: JetStreamContext,
    spec: Spec,
    stretch: Stretch,
    writer: ExportWriter,
    on_progress: Callable[[float], None],
) -> Manifest:
    choosing = Choosing(spec)
    images: dict[str, None] = {}
    events = unreadable = missing = 0
    first, last = float("inf"), 0.0
    async for messages in read_batches(
        js, spec.stream, subjects=(spec.subjects,), start_sequence=stretch.first, last_sequence=stretch.last
    ):
        for message in messages:
            items = choosing.choose([message], with_chains=True).items
            if items and items[0].broken:
                unreadable += 1
            elif items:
                headers = {name: message.headers[name] for name in KEPT if name in message.headers}
                # gw.<kind>.<run>.<rest>
                writer.event(Record(message.subject.split(".", 3)[3], headers, message.data))
                events += 1
                item = items[0]
                steps = item.event.steps if isinstance(item.event, ChainAdvanced) else ()
                images |= dict.fromkeys((*item.response.images, *(one.image for one in steps if one.image)))
                recorded_at = item.response.recorded_at
                first, last = min(first, recorded_at), max(last, recorded_at)
        on_progress((messages[-1].sequence - stretch.first + 1) / (stretch.last - stretch.first + 1))
    store = ImageStore(js)
    for sha256 in images:
        try:
            data, _ = await store.load(sha256)
        except LookupError:
            missing += 1
            continue
        writer.image(sha256, data)
    manifest = Manifest(
        stage=spec.stage,
        source=spec.source,
        events=events,
        images=len(images) - missing,
        missing_images=missing,
        unreadable=unreadable,
        first=first if events else 0.0,
        last=last,
        created_at=time.time(),
        version=__version__,
    )
    writer.end(manifest)
    return manifest


async def begin_file(bus: Bus, settings: Settings, spec: Spec, path: Path) -> Run:
    """Check the file, bring its events and images into the run, and let it run.

    Going on with a run whose import broke off takes the same file. Raises `UsageError` in one line: a file
    that is damaged, cut off or none of ours names the byte, and then nothing was imported.
    """
    reader = ExportReader(path)
    manifest = verify(reader, settings)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:32]
    spec = msgspec.structs.replace(spec, stage=manifest.stage, file=path.name, digest=digest)
    spec.check()
    await Pipeline.of_run(spec, settings, bus).close()
    runs = await Runs.open(bus.js)
    run = await runs.find(spec.run)
    if run is None:
        await nothing_there(bus, spec.run)
        run = await runs.create(new_run(spec, first=1, last=0, status="importing"))
    elif run.status != "importing" or run.spec.digest != spec.digest:
        raise UsageError(
            f"run '{spec.run}' exists already ({run.status}): choose another name, or delete it "
            f"(groundwatch replay delete {spec.run})"
        )
    try:
        await _bring(bus, reader, spec, run.nonce, settings)
    except TransientError as error:
        raise UsageError(
            f"the import broke off ({error}): repeat the same command to go on; nothing is judged before"
        ) from error
    whole = await find_stretch(bus.js, msgspec.structs.replace(spec, since=0.0, until=0.0))
    ready = await run_over(bus.js, spec, whole)

    def how(now: Run) -> Run:
        if now.status != "importing":
            raise UsageError(f"run '{spec.run}' is {now.status} and takes no more events")
        return msgspec.structs.replace(ready, nonce=now.nonce, created_at=now.created_at)

    return await runs.change(spec.run, how)


def verify(reader: ExportReader, settings: Settings) -> Manifest:
    """Read the whole file; nothing is published. Raises `UsageError` naming the byte."""
    # The stage stands at the end, so that events are checked by what their subjects say.
    choosing: dict[str, Choosing] = {}
    bounds = limits(settings.gateway.intake)
    stages: set[str] = set()
    events = images = 0
    found: tuple[int, Manifest] | None = None
    for at, part in reader.parts():
        if isinstance(part, Manifest):
            found = at, part
        elif isinstance(part, tuple):
            images += 1
            try:
                check_image(part[1], settings.gateway.intake)
            except InputError as error:
                raise reader.wrong(at, f"has an image that is not let in: {error}") from error
        else:
            for record in part:
                events += 1
                # The rest of the subject is `<key>`, or `<stage>.<protocol>.<key>`.
                stage, dot, _ = record.subject.partition(".")
                stage = stage if dot else Stage.EXTRACTION.value
                stages.add(stage)
                if stage not in choosing:
                    if stage not in START:
                        raise reader.wrong(
                            at, f"has an event on '{record.subject}', which is nowhere of ours"
                        )
                    plain = Spec(run="check", stage=stage)
                    choosing[stage] = Choosing(plain)
                _check(reader, at, choosing[stage], stage, record, bounds)
    assert found is not None  # The reader ends no file without one.
    at, manifest = found
    if (manifest.events, manifest.images) != (events, images):
        raise reader.wrong(
            at, f"says {manifest.events} events and {manifest.images} images, and has {events} and {images}"
        )
    if manifest.stage not in START or stages - {manifest.stage}:
        raise reader.wrong(at, f"says that it begins at '{manifest.stage}', and its events do not")
    return manifest


def _check(
    reader: ExportReader, at: int, choosing: Choosing, stage: str, record: Record, bounds: Limits
) -> None:
    subject = _subject(stage, "check", record)
    address = parse_subject(subject)
    message = Read(subject=subject, data=record.data, headers=record.headers, sequence=1)
    chosen = choosing.choose([message], with_chains=True) if address is not None else None
    if address is None or chosen is None or not chosen.responses:
        raise reader.wrong(at, f"has an event on '{record.subject}', which is nowhere of ours")
    item = chosen.items[0] if chosen.items else None
    if item is None or item.broken:
        why = item.broken if item else "does not decode, or asks for no protocol"
        raise reader.wrong(at, f"has an event that is none: {why}")
    if refusal := check_recorded(item.response, bounds):
        raise reader.wrong(at, f"has a response that no gateway takes: {str(refusal)[:300]}")
    if item.response.key != address.key:
        raise reader.wrong(at, f"has an event of response '{item.response.id}' under another one's subject")
    if set(record.headers) - set(KEPT):
        raise reader.wrong(at, f"has an event with headers that no export has: {', '.join(record.headers)}")


def _subject(stage: str, run: str, record: Record) -> str:
    kind = {"extraction": "recorded", "scoring": "judged"}.get(stage, "extracted")
    return f"{PREFIX}.{kind}.{run}.{record.subject}"


async def _bring(bus: Bus, reader: ExportReader, spec: Spec, nonce: str, settings: Settings) -> None:
    """Images first: a judge looks at them as soon as the run runs. What is there already stays as it is."""
    store = ImageStore(bus.js)
    for _, part in reader.parts():
        if isinstance(part, tuple):
            await store.put(check_image(part[1], settings.gateway.intake))
    for _, part in reader.parts():
        if not isinstance(part, list):
            continue
        for start in range(0, len(part), TOGETHER):
            receipts = [
                await bus.start_create(
                    Outgoing(
                        subject=_subject(spec.stage, spec.run, record),
                        payload=record.data,
                        message_id=f"{nonce}-{record.subject}",
                        headers=record.headers,
                    )
                )
                for record in part[start : start + TOGETHER]
            ]
            await wait_acks(receipts)
            for receipt in receipts:
                receipt.result()
