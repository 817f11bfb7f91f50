"""The index of ids as a gateway has it: what was recorded and has left the streams since."""

import asyncio
import time

from groundwatch.errors import GroundwatchError, TransientError
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import FAULTS, position_of
from groundwatch.runtime.services.tasks import SupervisedTask, until_set
from groundwatch.runtime.stores import repeats
from groundwatch.runtime.stores.repeats import INDEXED, Part, PartName
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import REPEATS_BUCKET
from groundwatch.topology.partitions import kind_of, streams_of_kind

START_SECONDS = 5.0
"""How long a gateway's start waits until the index is read; then it refuses until it is."""

LOOK_SECONDS = 5.0

AGAIN_SECONDS = 0.5
"""After which a server that was away is asked, at the latest."""


class NotOfStream(TransientError):
    """The index is not that of the stream as it is now."""


class KnownIds:
    """All parts of the index, mapped into memory, followed as they come: asking costs no message.

    What has left the streams is known here, or there is a `problem`: while it says anything, nobody may
    record what might be a repeat.
    """

    def __init__(self, bus: Bus, metrics: Metrics) -> None:
        self._bus = bus
        self._metrics = metrics
        self._parts: dict[PartName, Part] = {}
        self._of: dict[str, list[Part]] = {stream: [] for stream in INDEXED}
        self._looked = 0.0
        self._reconnects = 0
        """How often we had been connected again when we looked: a server that was away may have lost what was
        recorded last."""
        self._fault = ""
        self._tried = asyncio.Event()
        self._task = SupervisedTask("known-ids", self._follow)

    async def start(self) -> None:
        """Read what there is, then follow. Waits for it only while the server answers."""
        self._task.start()
        await until_set(self._tried, START_SECONDS)

    async def stop(self) -> None:
        await self._task.stop()

    @property
    def problem(self) -> str:
        """Why it is not known what was recorded long ago; empty while it is."""
        late = time.monotonic() - self._looked > repeats.CURRENT_SECONDS
        if self._looked and not late and self._reconnects == self._bus.reconnects:
            return ""
        since = f" since {repeats.CURRENT_SECONDS:g} s or more" if self._looked and late else ""
        why = self._task.problem or self._fault or "it is being read"
        return f"the index of ids (bucket {REPEATS_BUCKET}) is not known{since}: {why}"

    def is_same(self, stream: str, key: str, digest: str) -> bool | None:
        """Whether what was recorded under this key is what has this digest; None where nothing was."""
        if not self._of[stream]:
            return None
        high, rest = repeats.entry_of(key, digest)
        found = [one for part in self._of[stream] for one in part.digests(high, rest)]
        return rest & repeats.DIGEST_BITS in found if found else None

    async def _follow(self) -> None:
        while True:
            began, reconnects = time.monotonic(), self._bus.reconnects
            try:
                if await self._look():
                    self._looked, self._reconnects, self._fault = began, reconnects, ""
                    self._tried.set()
            except (*FAULTS, GroundwatchError) as error:
                if isinstance(error, NotOfStream):
                    self._looked = 0.0
                if not self._fault:
                    logger.warning("gateway.ids_not_known", error=str(error) or repr(error))
                self._fault = str(error) or repr(error)
                self._tried.set()
            # Looked at again at once when we were away.
            while time.monotonic() < began + LOOK_SECONDS and self._bus.reconnects == reconnects:  # noqa: ASYNC110
                await asyncio.sleep(min(LOOK_SECONDS, AGAIN_SECONDS))

    async def _look(self) -> bool:
        """Have what the bucket has now; whether it had no change while it was read."""
        js = self._bus.js
        streams = [name for kind in INDEXED for name in streams_of_kind(kind, self._bus.partitions)]
        try:
            parts = await repeats.parts(js)
        except repeats.NoBucketError:
            if self._parts:
                raise
            # Nothing was ever indexed, so nothing has left.
            return True
        names: list[PartName] = []
        for stream in streams:
            # Asked for behind the parts: what they name is in the stream by now.
            at = await position_of(js, stream)
            of_name = [name for name in parts if name.stream == stream]
            # Of a stream that was made anew, nothing is a repeat.
            mine = [name for name in of_name if name.created == at.created]
            if of_name and not mine and at.last and not at.labelled:
                raise NotOfStream(
                    f"{stream} was restored or made anew, and the archive has yet to tell which"
                )
            if await repeats.not_of(js, stream, at, mine):
                raise NotOfStream(
                    f"it is ahead of {stream}, and the archive has yet to index anew what is there"
                )
            names += mine
        for name in names:
            if name not in self._parts:
                try:
                    self._parts[name] = await repeats.load(js, name)
                except LookupError:
                    # It was merged: what took its place is there by now.
                    return False
        self._parts = {name: self._parts[name] for name in names}
        for stream in INDEXED:
            self._of[stream] = [part for name, part in self._parts.items() if kind_of(name.stream) == stream]
            self._metrics.indexed_ids.labels(stream).set(sum(map(len, self._of[stream])))
        return True
