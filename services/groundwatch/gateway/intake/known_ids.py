"""The ids that a gateway knows: what was recorded and has left the streams since."""

import asyncio
import contextlib
import sys
import time

from groundwatch.errors import GroundwatchError, TransientError, words
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.history import Cold
from groundwatch.runtime.delivery.streams import FAULTS, Position, has_gone_back, position_of
from groundwatch.runtime.services.tasks import SupervisedTask, until_set
from groundwatch.runtime.stores import repeats
from groundwatch.runtime.stores.repeats import KINDS, Ids
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology.partitions import kind_of, streams_of_kind

START_SECONDS = 5.0
"""How long a gateway's start waits until the ids are read; then it refuses until they are."""

LOOK_SECONDS = 5.0

AGAIN_SECONDS = 0.5
"""After which a server that was away is asked, at the latest."""


class KnownIds:
    """All ids that the archive has of the last days, followed as they come: asking costs no message.

    What has left the streams is known here, or there is a `problem`: while it says anything, nobody may
    record what might be a repeat. Without an archive nothing is known.
    """

    def __init__(self, bus: Bus, metrics: Metrics) -> None:
        self._bus = bus
        self._metrics = metrics
        self._ids: dict[tuple[str, int], Ids] = {}
        """By file, and up to which sequence of it."""
        self._of: dict[str, list[Ids]] = {kind: [] for kind in KINDS}
        self._absent: set[tuple[str, int]] = set()
        self._at: dict[str, Position] = {}
        """Where each stream stood when we looked."""
        self._cut: dict[str, int] = {}
        """Up to which sequence each stream is what was archived of it."""
        self._looked = 0.0
        self._reconnects = -1
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
        why = self._task.problem or self._fault or "they are being read"
        return f"the ids of what has left the streams are not known{since}: {why}"

    def is_same(self, stream: str, key: str, digest: str) -> bool | None:
        """Whether what was recorded under this key is what has this digest; None where nothing was."""
        if not self._of[stream]:
            return None
        high, rest = repeats.entry_of(key, digest)
        found = [one for ids in self._of[stream] for one in ids.digests(high, rest)]
        return rest & repeats.DIGEST_BITS in found if found else None

    async def _follow(self) -> None:
        while True:
            began, reconnects = time.monotonic(), self._bus.reconnects
            try:
                if self._bus.cold is None or await self._look(self._bus.cold):
                    self._looked, self._reconnects, self._fault = began, reconnects, ""
                    self._tried.set()
            except (*FAULTS, GroundwatchError) as error:
                if not self._fault:
                    logger.warning("gateway.ids_not_known", error=words(error))
                self._fault = words(error)
                self._tried.set()
            # Looked at again at once when we were away.
            while time.monotonic() < began + LOOK_SECONDS and self._bus.reconnects == reconnects:  # noqa: ASYNC110
                await asyncio.sleep(min(LOOK_SECONDS, AGAIN_SECONDS))

    async def _look(self, cold: Cold) -> bool:
        """Have what the archive has now; whether it had no change while it was read."""
        js = self._bus.js
        names = [name for kind in KINDS for name in streams_of_kind(kind, self._bus.partitions)]
        # Asked for before the archive: what has left them by now is there.
        standing = {name: await position_of(js, name) for name in names}
        try:
            files = await cold.id_files(standing)
        except GroundwatchError:
            if self._looked and all(self._same(name, at) for name, at in standing.items()):
                # The archive is away, and nothing has left since we read it.
                return True
            raise
        if files is None:
            if not self._looked:
                why = "the archive cannot be read from here: what has left the streams is taken again"
                logger.warning("gateway.ids_elsewhere", meaning=why)
            return True
        for name, at in standing.items():
            if self._reconnects != self._bus.reconnects or self._cut.get(name, 0) < sys.maxsize:
                self._cut[name] = await self._known_to(cold, name, at)
        held: dict[tuple[str, int], Ids] = {}
        of: dict[str, list[Ids]] = {kind: [] for kind in KINDS}
        for name, several in files.items():
            for file in several:
                key = (file.path, min(file.last, self._cut[name]))
                if (ids := self._ids.get(key)) is None:
                    try:
                        ids = Ids(await cold.read_ids(name, standing[name].created, file, key[1]))
                    except FileNotFoundError as error:
                        if key not in self._absent:
                            # It was merged: what took its place is there by now.
                            self._absent.add(key)
                            return False
                        logger.error("gateway.ids_lost", file=file.path, error=str(error))
                        ids = Ids(b"")
                held[key] = self._ids[key] = ids
                of[kind_of(name)].append(ids)
        self._ids, self._of, self._at = held, of, standing
        for kind, known in of.items():
            self._metrics.indexed_ids.labels(kind).set(sum(map(len, known)))
        return True

    async def _known_to(self, cold: Cold, stream: str, at: Position) -> int:
        """Up to which sequence the archive's ids are those of the stream. What it has lost is to be taken
        again, and nothing leaves it before somebody has mended that."""
        with contextlib.suppress(TransientError):
            newest = await cold.newest(stream, at.created)
            if newest is not None and await has_gone_back(self._bus.js, stream, at, newest):
                return at.first - 1
        return sys.maxsize

    def _same(self, stream: str, at: Position) -> bool:
        before = self._at.get(stream)
        return before is not None and (before.created, before.first) == (at.created, at.first)
