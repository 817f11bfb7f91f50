"""From the stream into a file that is a stream of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from groundwatch import __version__
from groundwatch.errors import TransientError, UsageError
from groundwatch.events import ChainAdvanced
from groundwatch.replay.files import ExportWriter, Manifest, Record
from groundwatch.replay.planning import find_stretch, plan
from groundwatch.replay.spec import Selection, Spec
from groundwatch.replay.writing import Choosing, Item
from groundwatch.runtime.delivery.streams import Read, read_batches
from groundwatch.runtime.stores.exports import register
from groundwatch.runtime.stores.images import ImageStore
from groundwatch.topology import HEADER_DIGEST, HEADER_PROTOCOLS

if TYPE_CHECKING:
    from nats.js import JetStreamContext

KEPT = (HEADER_PROTOCOLS, HEADER_DIGEST)
"""Headers that belong to the event; the others are about its way into one stream."""

Progress = Callable[[float], None]


async def export(
    js: JetStreamContext,
    spec: Spec,
    path: Path,
    *,
    allow_gap: bool = False,
    on_progress: Progress | None = None,
) -> Manifest:
    """Write what the spec is about to `path`, whole or not at all.

    Raises `UsageError` in one line, and then leaves no file.
    """
    spec.check()
    stretch = await find_stretch(js, spec, allow_gap=allow_gap)
    if spec.sample:
        _, spec = await plan(js, spec, stretch)
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        with unfinished.open("wb") as out:
            exporting = _Exporting(js, spec, ExportWriter(out))
            manifest = await exporting.run(stretch.first, stretch.last, on_progress or (lambda _: None))
        # Before the file is there: an erasure must find every file.
        await register(js, path)
        unfinished.replace(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror or error})") from error
    except TransientError as error:
        raise UsageError(f"the server went away while exporting ({error}): try again") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return manifest


class _Exporting:
    def __init__(self, js: JetStreamContext, spec: Spec, writer: ExportWriter) -> None:
        self._js = js
        self._spec = spec
        self._writer = writer
        self._choosing = Choosing(spec, Selection(spec))
        self._images: dict[str, None] = {}
        self._events = self._unreadable = 0
        self._first, self._last = float("inf"), 0.0

    async def run(self, first: int, last: int, tell: Progress) -> Manifest:
        if first <= last:
            async for messages in read_batches(
                self._js,
                self._spec.stream,
                subjects=(self._spec.subjects,),
                start_sequence=first,
                last_sequence=last,
            ):
                for message in messages:
                    self._add(message)
                tell((messages[-1].sequence - first + 1) / (last - first + 1))
        missing = 0
        store = ImageStore(self._js)
        for sha256 in self._images:
            try:
                data, _ = await store.load(sha256)
            except LookupError:
                missing += 1
                continue
            self._writer.image(sha256, data)
        manifest = Manifest(
            stage=self._spec.stage,
            source=self._spec.source,
            events=self._events,
            images=len(self._images) - missing,
            missing_images=missing,
            unreadable=self._unreadable,
            first=self._first if self._events else 0.0,
            last=self._last,
            created_at=time.time(),
            version=__version__,
        )
        self._writer.end(manifest)
        return manifest

    def _add(self, message: Read) -> None:
        items = self._choosing.choose([message], with_chains=True).items
        if not items:
            return
        if items[0].broken:
            self._unreadable += 1
            return
        headers = {name: message.headers[name] for name in KEPT if name in message.headers}
        # gw.<kind>.<run>.<rest>
        self._writer.event(Record(message.subject.split(".", 3)[3], headers, message.data))
        self._events += 1
        self._images.update(dict.fromkeys(images_of(items[0])))
        recorded_at = items[0].response.recorded_at
        self._first, self._last = min(self._first, recorded_at), max(self._last, recorded_at)


def images_of(item: Item) -> tuple[str, ...]:
    """Every image that an event names."""
    made = (
        [step.image for step in item.event.steps if step.image]
        if isinstance(item.event, ChainAdvanced)
        else []
    )
    return (*item.response.images, *made)
