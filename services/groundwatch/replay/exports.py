"""A stretch of the stream as a file, and a run from such a file.

An export is a stream of its own; all of an import is checked before its first event is sent.
"""

import hashlib
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from groundwatch import __version__
from groundwatch.errors import InputError, TransientError, UsageError
from groundwatch.events import ChainAdvanced
from groundwatch.keys import home_of, in_partition, partition_of
from groundwatch.protocols.base import Stage
from groundwatch.records import Limits
from groundwatch.replay.files import ExportReader, ExportWriter, Manifest, Record, replacing
from groundwatch.replay.pipeline import Choosing, Pipeline
from groundwatch.replay.planning import Stretch, find_stretch, plan
from groundwatch.replay.running import nothing_there, run_over
from groundwatch.replay.runs import Run, Runs, new_run
from groundwatch.replay.spec import START, Spec
from groundwatch.runtime.delivery.bus import ENCODER, Bus, Outgoing, wait_acks
from groundwatch.runtime.delivery.history import History
from groundwatch.runtime.delivery.outcomes import check_recorded, limits
from groundwatch.runtime.delivery.streams import Read
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.stores.exports import register
from groundwatch.runtime.stores.images import ColdImages, ImageStore, check_image
from groundwatch.topology import HEADER_DIGEST, HEADER_PROTOCOLS, parse_subject, prefix_of

KEPT = (HEADER_PROTOCOLS, HEADER_DIGEST)
"""Headers that belong to the event; the others are about its way into one stream."""

TOGETHER = 1_000


async def export(
    history: History,
    spec: Spec,
    path: Path,
    *,
    cold_images: ColdImages | None = None,
    on_progress: Callable[[float], None] = lambda share: None,
) -> Manifest:
    """Write what the spec is about to `path`, whole or not at all, with `cold_images` where they lie.

    Raises `UsageError` in one line, and then leaves no file.
    """
    spec.check()
    stretch = await find_stretch(history, spec)
    if spec.sample:
        _, spec = await plan(history, spec, stretch)
    try:
        with replacing(path) as out:
            images = ImageStore(history.js, cold_images)
            manifest = await _export(history, images, spec, stretch, ExportWriter(out), on_progress)
            # Before the file is there: an erasure must find every file.
            await register(history.js, path)
    except TransientError as error:
        raise UsageError(f"the server went away while exporting ({error}): try again") from error
    return manifest


async def _export(
    history: History,
    store: ImageStore,
    spec: Spec,
    stretch: Stretch,
    writer: ExportWriter,
    on_progress: Callable[[float], None],
) -> Manifest:
    choosing = Choosing(spec)
    images: dict[str, None] = {}
    events = unreadable = missing = 0
    first, last = float("inf"), 0.0
    async for messages in stretch.of(history).batches(
        spec.stream, subjects=(spec.subjects,), start_sequence=stretch.first, last_sequence=stretch.last
    ):
        for message in messages:
            items = choosing.choose([message], with_chains=True).items
            if items and items[0].broken:
                unreadable += 1
            elif items:
                headers = {name: message.headers[name] for name in KEPT if name in message.headers}
                # gw.<kind>.<run>.<rest>
                writer.event(_placed(Record(message.subject.split(".", 3)[3], headers, message.data), 0))
                events += 1
                item = items[0]
                steps = item.event.steps if isinstance(item.event, ChainAdvanced) else ()
                shown = item.response.every_image
                images |= dict.fromkeys((*shown, *(one.image for one in steps if one.image)))
                recorded_at = item.response.recorded_at
                first, last = min(first, recorded_at), max(last, recorded_at)
        on_progress((messages[-1].sequence - stretch.first + 1) / (stretch.last - stretch.first + 1))
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


def _placed(record: Record, partition: int) -> Record:
    """The event as it is in a partition. A file has all as in the first: its reader may have no other."""
    *before, key = record.subject.split(".")
    subject = ".".join([*before, in_partition(key, partition)])
    if subject == record.subject:
        return record
    event = whole = msgspec.json.decode(record.data)
    while inner := event.get("extracted") or event.get("response"):
        event = inner
    event.pop("partition", None)
    if partition:
        event["partition"] = partition
    return Record(subject, record.headers, ENCODER.encode(whole))


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
    whole = await find_stretch(bus.history, msgspec.structs.replace(spec, since=0.0, until=0.0))
    ready = await run_over(bus.history, spec, whole)

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
    prefix = prefix_of(partition_of(record.subject.rpartition(".")[2]))
    return f"{prefix}.{kind}.{run}.{record.subject}"


async def _bring(bus: Bus, reader: ExportReader, spec: Spec, nonce: str, settings: Settings) -> None:
    """Images first: a judge looks at them as soon as the run runs. What is there already stays as it is."""
    store = ImageStore(bus.js, bus.cold_images)
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
                for one in part[start : start + TOGETHER]
                for record in [_placed(one, home_of(one.subject.rpartition(".")[2], bus.partitions))]
            ]
            await wait_acks(receipts)
            for receipt in receipts:
                receipt.result()
