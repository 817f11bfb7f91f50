"""The archive as a service: it writes every outcome with its claims into one table, and every message of the
streams that are archived into another; what is there and old leaves its stream."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from groundwatch.archive.cooling import Cooling, Settled
from groundwatch.archive.images import ImageCooling
from groundwatch.archive.place import SWITCHED_OFF, local_folder, place
from groundwatch.archive.writer import Continuity, Memory, Shared, Writer, reason_of
from groundwatch.errors import SettingsError, words
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import FAULTS, Position, Read, position_of
from groundwatch.runtime.services.tasks import SupervisedTask
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.stores.repeats import KINDS
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import ARCHIVE, COPIED, OUTCOMES
from groundwatch.topology.partitions import kind_of, streams_of_kind

if TYPE_CHECKING:
    from groundwatch.archive.events import Events, Message
    from groundwatch.archive.outcomes import Archive, Row

MAINTAIN_SECONDS = 60.0
COOL_SECONDS = 600.0
MONITOR_SECONDS = 5.0


class ArchiveService:
    """Writes outcomes and events to the archive, each once."""

    name = ARCHIVE

    def __init__(
        self, settings: Settings, bus: Bus, metrics: Metrics, *, in_one_process: bool = False
    ) -> None:
        """`in_one_process` says that who reads images is in this process: it reads a folder as we do."""
        if settings.archive.url in ("", SWITCHED_OFF):
            raise SettingsError("setting 'archive.url' is needed here: a folder, or such as s3://bucket/path")
        place(settings.archive.url, settings.archive.options)
        self._settings = settings
        self._bus = bus
        self._metrics = metrics
        self._outcomes: Archive | None = None
        self._events: Events | None = None
        self._damage: dict[str, str] = {}
        self._draining = asyncio.Event()
        self._turn = asyncio.Lock()
        self._images = ImageCooling(bus, settings.archive, metrics)
        self.keeps_images = in_one_process or local_folder(settings.archive.url) is None
        """Not where others may not have the folder: there images stay in the object store alone."""
        self._continuity = Continuity(bus, self._open_events)
        shared = Shared(
            bus=bus,
            settings=settings,
            metrics=metrics,
            memory=Memory(),
            turn=self._turn,
            draining=self._draining,
            known=self._continuity.position,
        )
        self._streams = [name for kind in COPIED for name in streams_of_kind(kind, bus.partitions)]
        self._writers: list[Writer[Row] | Writer[Message]] = [
            Writer(stream, shared, opened=self._open_outcomes, row_of=_outcome_of)
            for stream in streams_of_kind(OUTCOMES, bus.partitions)
        ]
        for stream in self._streams:
            row_of, before = partial(_message_of, stream), partial(self._before, stream)
            self._writers.append(
                Writer(stream, shared, opened=self._open_events, row_of=row_of, before=before)
            )
        self._settled = Settled()
        self._writing = [SupervisedTask("archive-writer", writer.run) for writer in self._writers]
        self._beside = [
            SupervisedTask("archive-monitor", self._watch),
            SupervisedTask("archive-maintenance", self._maintain),
            SupervisedTask("archive-cooling", Cooling(settings, bus, metrics, self._archived).run),
        ]
        if self.keeps_images:
            self._beside.append(SupervisedTask("archive-images", self._cool_images))

    @property
    def held(self) -> int:
        """Rows that were read and are not written yet."""
        return sum(writer.held for writer in self._writers)

    async def start(self) -> None:
        for task in (*self._writing, *self._beside):
            task.start()

    async def drain(self, timeout: float) -> None:
        """Write what was read, if `timeout` seconds are enough; else the next start reads it again."""
        finishing = asyncio.gather(*(task.finish(timeout) for task in self._writing))
        # First, so that it is known at once that the writers end because they were told to.
        await asyncio.sleep(0)
        self._draining.set()
        await finishing
        for task in self._beside:
            await task.stop()

    def problems(self) -> list[str]:
        found = self._bus.problems()
        found += [task.problem for task in (*self._writing, *self._beside) if task.problem]
        found += dict.fromkeys(writer.problem for writer in self._writers if writer.problem)
        return [f"{self.name}: {why}" for why in found]

    def notes(self) -> list[str]:
        """What of the archive is damaged: it goes on beside that."""
        return [f"{self.name}: {why}" for why in self._damage.values() if why]

    async def _before(self, stream: str, messages: Sequence[Message]) -> None:
        if messages:
            await self._continuity.go_on(stream, messages[-1].read)
        if self.keeps_images:
            await self._images.copy(message.read for message in messages)

    async def _cool_images(self) -> None:
        """Let old images leave the object store. A failure loses nothing and is tried again."""
        while True:
            try:
                cooled = await self._images.cool()
            except Exception as error:
                self._metrics.archive_failures.labels(reason_of(error)).inc()
                logger.warning("archive.images_not_cooled", error=words(error))
            else:
                if cooled.removed:
                    logger.info("archive.images_cooled", removed=cooled.removed, kept=cooled.kept)
            await asyncio.sleep(COOL_SECONDS)

    async def _maintain(self) -> None:
        """Merge and tidy. A failure here loses nothing and is tried again with the next time."""
        began = time.monotonic()
        while True:
            tables: tuple[Archive | Events | None, ...] = (self._outcomes, self._events)
            for table in tables:
                if table is None:
                    continue
                name = table.spec.name
                try:
                    async with self._turn:
                        self._damage[name] = await asyncio.to_thread(table.problem)
                        await asyncio.to_thread(table.maintain)
                        files = (await asyncio.to_thread(table.snapshot)).files()
                except Exception as error:
                    self._metrics.archive_failures.labels(reason_of(error)).inc()
                    logger.warning("archive.not_tidied", table=name, error=words(error))
                    continue
                self._metrics.archive_files.labels(name).set(len(files))
                self._metrics.archive_bytes.labels(name).set(sum(file.bytes for file in files))
            # The first time soon: how much there is, is to be known.
            await asyncio.sleep(MAINTAIN_SECONDS if time.monotonic() - began > MONITOR_SECONDS else 1.0)

    async def _watch(self) -> None:
        while True:
            for stream in self._streams:
                with contextlib.suppress(*FAULTS):
                    at = await position_of(self._bus.js, stream)
                    lag = 0
                    for writer in self._writers:
                        if writer.stream != stream:
                            continue
                        if writer.created and at.created != writer.created:
                            logger.warning(
                                "archive.another_stream", stream=stream, meaning="it was made anew"
                            )
                            writer.created = 0
                        lag = max(lag, at.last - writer.position)
                    self._metrics.archive_lag.labels(stream).set(lag)
            await asyncio.sleep(MONITOR_SECONDS)

    async def _archived(self, streams: Mapping[str, Position]) -> Mapping[str, int]:
        """How far each of these streams is in every table that it belongs to, and its ids in gateways."""
        streams = {stream: await self._continuity.check(stream) for stream in streams}
        events = await asyncio.to_thread(lambda: self._open_events().snapshot())
        outcomes = await asyncio.to_thread(lambda: self._open_outcomes().snapshot())
        found = {stream: events.position(at.created, stream) for stream, at in streams.items()}
        for stream, at in streams.items():
            if kind_of(stream) == OUTCOMES:
                found[stream] = min(found[stream], outcomes.position(at.created, stream))
            elif kind_of(stream) in KINDS:
                found[stream] = self._settled.up_to(stream, at.created, found[stream])
        return found

    def _open_outcomes(self) -> Archive:
        if self._outcomes is None:
            from groundwatch.archive.outcomes import Archive

            tags = self._settings.telemetry.version_tags
            self._outcomes = Archive(**self._place, version_tags=tags)
        return self._outcomes

    def _open_events(self) -> Events:
        if self._events is None:
            from groundwatch.archive.events import Events

            self._events = Events(**self._place)
        return self._events

    @property
    def _place(self) -> dict[str, Any]:
        section = self._settings.archive
        names = ("url", "options", "merge_files", "file_bytes")
        return {name: getattr(section, name) for name in names}


def _outcome_of(read: Read, created: int) -> Row:
    from groundwatch.archive.outcomes import row_of

    return row_of(read, created)


def _message_of(stream: str, read: Read, created: int) -> Message:
    from groundwatch.archive.events import Message

    return Message(stream=stream, created=created, read=read)
