"""Frames: of each queue the exact population from which it was drawn, in sums.

A corrected rate is what the first judge says of all, put right by what reviewers say of the drawn part. So
of all that could have been drawn, and nothing else, the sums are kept here, with the sequences up to which
they count: written together by compare-and-set, so that a restart goes on exactly there and two replicas
never count an outcome twice. They name nobody: of an answer that is erased they go on counting.
"""

from typing import TypeAlias

import msgspec

from groundwatch.errors import UNDECODED
from groundwatch.events import ResponseScored
from groundwatch.reporting.sums import CATEGORIES, OTHER, facts_of, fingerprint
from groundwatch.runtime.delivery.bus import ENCODER, Bus
from groundwatch.runtime.stores.buckets import Bucket
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.statistics.alarm import ALL
from groundwatch.statistics.sampling import WeightedSums, weight
from groundwatch.topology import QUEUES_BUCKET

GROUPS = 1_000
"""Models, versions and sets of judges that a frame tells apart; beyond, models go by the name `other`."""

FRAME = "frame."

Group: TypeAlias = tuple[str, str, str, str, str]
"""Model, version, protocol, fingerprint of the set of judges, category."""


class Answers(msgspec.Struct):
    """How many answers there are, whether or not a claim was decided, how many responses they stand for, and
    the sum of the squares of that."""

    number: int = 0
    weight: float = 0.0
    weight_squares: float = 0.0

    def add(self, weight: float) -> None:
        self.number += 1
        self.weight += weight
        self.weight_squares += weight * weight


class Frame(msgspec.Struct, kw_only=True):
    """What one queue was drawn from so far.

    `sums` has the first judges' refuted of decided claims, `answers` the answers of the same group, category
    `all`. `sequences` and `streams` are by partition: up to which outcome it counts, in the stream that was
    made then (µs since the epoch). `drawn` of them are items. A queue of a fixed size is `complete` when it
    was drawn.
    """

    queue: str = ""
    sums: dict[Group, WeightedSums] = {}
    answers: dict[Group, Answers] = {}
    sequences: dict[int, int] = {}
    streams: dict[int, int] = {}
    drawn: int = 0
    complete: bool = False

    @property
    def size(self) -> int:
        """How many answers it counts."""
        return sum(one.number for one in self.answers.values())

    def add(self, event: ResponseScored, version: str) -> None:
        """Count an outcome; one is drawn from those alone that are counted."""
        each = weight(event.drawn)
        judges = fingerprint(event.judges)
        group = (event.model, version, event.protocol, judges)
        if (*group, ALL) not in self.answers and len(self.answers) >= GROUPS:
            group = (OTHER, "", event.protocol, judges)
        self.answers.setdefault((*group, ALL), Answers()).add(each)
        for category, (refuted, decided) in facts_of(event).items():
            known = (*group, category) in self.sums or self._categories(group) < CATEGORIES
            named = category if known else OTHER
            self.sums.setdefault((*group, named), WeightedSums()).add(refuted, decided, each)

    def _categories(self, group: tuple[str, str, str, str]) -> int:
        return sum(one[:4] == group for one in self.sums)


class _Stored(msgspec.Struct, kw_only=True):
    """A frame as it is written: names of JSON objects are texts."""

    sums: list[tuple[Group, WeightedSums]]
    answers: list[tuple[Group, Answers]]
    sequences: dict[int, int]
    streams: dict[int, int]
    drawn: int
    complete: bool


_DECODER = msgspec.json.Decoder(_Stored)


class Frames:
    """The frames of all queues. Everything raises `Unavailable` when the server does not answer."""

    def __init__(self, bus: Bus) -> None:
        self._bucket = Bucket(bus, QUEUES_BUCKET)

    async def load(self, queue: str) -> tuple[Frame, int]:
        """The frame, and the revision that a newer one must name; an empty one where there is none."""
        found = await self._bucket.get(FRAME + queue)
        if found is None:
            return Frame(queue=queue), 0
        try:
            stored = _DECODER.decode(found.data)
        except UNDECODED as error:
            logger.warning("frame.unreadable", queue=queue, error=str(error))
            return Frame(queue=queue), found.revision
        frame = Frame(
            queue=queue,
            sums=dict(stored.sums),
            answers=dict(stored.answers),
            sequences=stored.sequences,
            streams=stored.streams,
            drawn=stored.drawn,
            complete=stored.complete,
        )
        return frame, found.revision

    async def save(self, frame: Frame, revision: int) -> int:
        """Write it over this revision; the new one, 0 where another replica has written meanwhile."""
        stored = _Stored(
            sums=list(frame.sums.items()),
            answers=list(frame.answers.items()),
            sequences=frame.sequences,
            streams=frame.streams,
            drawn=frame.drawn,
            complete=frame.complete,
        )
        return await self._bucket.put(FRAME + frame.queue, ENCODER.encode(stored), revision)
