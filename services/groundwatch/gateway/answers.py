"""Finding answers, and one answer with everything that is known of it, from archive and stream alike."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, product
from typing import Protocol, TypeVar

import msgspec

from groundwatch.errors import UNDECODED, GroundwatchError, MissingExtraError, TransientError, words
from groundwatch.events import (
    LIVE,
    ChainAdvanced,
    ClaimsMatched,
    ClaimsVerified,
    ResponseRecorded,
    ResponseScored,
)
from groundwatch.gateway.refusals import Refused
from groundwatch.keys import home_key, response_key
from groundwatch.protocols.base import Stage
from groundwatch.reporting.answers import MOST, AnswerQuery, Facets, Found, Hit, Rank, TooSlow, write_cursor
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.history import merged
from groundwatch.runtime.delivery.streams import FAULTS, Batch, Read, position_of
from groundwatch.runtime.services.tasks import SupervisedTask
from groundwatch.runtime.stores.tombstones import Erased
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.topology import (
    EXTRACTED,
    JUDGED,
    OUTCOMES,
    RESPONSES,
    Address,
    parse_subject,
    run_subjects,
    subject_of,
)
from groundwatch.topology.partitions import stream_in, subjects_in

_SCORED = msgspec.json.Decoder(ResponseScored)


class Index(Protocol):
    """Outcomes that can be found: what the archive has, and what its stream has brought since.

    For any number of threads. Everything raises `TransientError` when the archive cannot be read, and
    `TooSlow` what takes too long.
    """

    @property
    def complete(self) -> bool:
        """Whether everything that is archived can be found."""
        ...

    def problem(self) -> str:
        """Which of the archive's files is lost or damaged, in a line; empty for none."""
        ...

    def look(self) -> None:
        """See how far the archive is, before it is taken in for the first time."""
        ...

    def refresh(self) -> None:
        """Take in what has come into the archive or left it since; let go of what is there twice or is too
        much."""
        ...

    def position(self, created: int) -> int:
        """The last sequence of the outcome stream created then that can be found, or will be when all is
        taken in; 0 for none."""
        ...

    def add(self, created: int, messages: Sequence[Read]) -> None:
        """What the stream created then holds behind its position, in order; not empty."""
        ...

    def skip(self, created: int, sequence: int, moment: float) -> None:
        """Up to here it is not looked through; it was recorded before then, in seconds since the epoch."""
        ...

    def forget(self, gone: Callable[[str, str], bool]) -> None:
        """Let go of what streams have brought of the responses, by key and tenant, of which that holds."""
        ...

    def search(self, query: AnswerQuery, after: Rank | None, most: int, back: bool = False) -> Found:
        """In order; when one goes `back`, from the rank to what stands before it."""
        ...

    def count(self, query: AnswerQuery) -> Facets: ...

    def outcomes(self, hits: Sequence[Hit]) -> list[ResponseScored]:
        """All of those that the archive has still."""
        ...

    def messages(self, key: str, moment: float) -> list[tuple[str, str, bytes, float]]:
        """Events of a response that was recorded about then: stream, subject, data, when it was stored."""
        ...

    def close(self) -> None: ...


KEPT = 100_000
"""Outcomes of a stream at most that are read when nobody has archived them, the latest."""

GATHER_SECONDS = 0.5
"""How long outcomes gather before they are taken in together: that takes 13 ms for one and for ten."""

REFRESH_SECONDS = 3.0
CHECK_SECONDS = 30.0

AT_ONCE = 2
"""Searches that run at the same time, and how many may wait."""
WAITING = 16

MOST_AT_ONCE = 5_000
"""Hits that are looked for at once behind those that were erased."""

T = TypeVar("T")


class AnswerPage(msgspec.Struct, frozen=True, kw_only=True):
    """Hits in order. `cursor` leads to what is behind them, `before` to what is before them; each is empty
    where there is nothing.

    `searched_to` as in `Found`; `reading` says that what is archived is still being taken in.
    """

    hits: list[Hit]
    cursor: str = ""
    before: str = ""
    searched_to: float | None = None
    reading: bool = False


class AnswerSearch:
    """Finds answers. What it takes runs in threads of its own, few at once.

    Without an index, whose packages may lack, there is nothing but the answers that one knows by their id.
    """

    def __init__(self, bus: Bus, index: Index | None, erased: Erased, version_tags: Sequence[str]) -> None:
        self.version_tags = version_tags
        self.index = index
        self._bus = bus
        self._erased = erased
        self._following = SupervisedTask("gateway-answers", self._follow_all)
        self._refreshing = SupervisedTask("gateway-answers-archived", self._refresh)
        self._working = ThreadPoolExecutor(AT_ONCE, "answers")
        self._waiting = 0
        self._stones = 0
        self._problem = ""
        self._unread = ""
        self._damage = ""
        self._looked_at = -CHECK_SECONDS

    def start(self) -> None:
        if self.index is not None:
            self._refreshing.start()

    async def stop(self) -> None:
        if self.index is not None:
            self.index.close()
        await self._refreshing.stop()
        await self._following.stop()
        self._working.shutdown(wait=False, cancel_futures=True)

    @property
    def problem(self) -> str:
        if self.index is None:
            return ""
        tasks = self._refreshing.problem or self._following.problem
        return self._damage or self._problem or self._unread or tasks

    @property
    def complete(self) -> bool:
        """Whether what is archived can be found."""
        return self.index is None or self.index.complete

    async def search(
        self, query: AnswerQuery, after: Rank | None = None, most: int = MOST, back: bool = False
    ) -> AnswerPage:
        """What is behind a rank, or `back` before it.

        Raises `TooSlow` for what takes too long, `TransientError` when it cannot be answered now.
        """
        if (index := self.index) is None:
            raise TransientError(str(MissingExtraError("what finds answers (duckdb, pyarrow)", "archive")))
        found = await self._work(lambda: self._search(index, query, after, most + 1, back))
        hits = found.hits[:most]
        more = len(found.hits) > most
        if back:
            hits.reverse()
        ends = [write_cursor(query.order, one.rank(query.order)) for one in (*hits[:1], *hits[-1:])]
        first, last = ends or ("", "")
        return AnswerPage(
            hits=hits,
            cursor=last if more or back else "",
            before=first if (more if back else after is not None) else "",
            searched_to=None if more and query.order == "newest" else found.searched_to,
            reading=not self.complete,
        )

    async def count(self, query: AnswerQuery) -> Facets | None:
        """None where it takes too long. Raises `TransientError`."""
        with contextlib.suppress(TooSlow):
            index = self.index
            return await self._work(lambda: index.count(query)) if index is not None else None
        return None

    async def archived_outcomes(self, hits: Sequence[Hit]) -> list[ResponseScored]:
        """Of these, what the archive has."""
        index = self.index
        return await self._work(lambda: index.outcomes(hits)) if index is not None and hits else []

    async def archived_messages(self, key: str, moment: float) -> list[tuple[str, str, bytes, float]]:
        index = self.index
        return await self._work(lambda: index.messages(key, moment)) if index is not None else []

    def is_erased(self, key: str, tenant: str) -> bool:
        return self._erased.names_response(key, tenant)

    async def _work(self, work: Callable[[], T]) -> T:
        if self._waiting >= AT_ONCE + WAITING:
            raise TransientError("too many search at once: try again in a moment")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._working, work)
        finally:
            self._waiting -= 1

    def _search(self, index: Index, query: AnswerQuery, after: Rank | None, most: int, back: bool) -> Found:
        """Without what was erased: in its place comes what is behind."""
        hits: list[Hit] = []
        size = most
        while True:
            found = index.search(query, after, size, back)
            hits += [hit for hit in found.hits if not self.is_erased(hit.key, hit.tenant)]
            if len(hits) >= most or len(found.hits) < size:
                return Found(hits[:most], found.searched_to)
            after, size = found.hits[-1].rank(query.order), min(2 * size, MOST_AT_ONCE)

    async def _follow_all(self) -> None:
        assert self.index is not None
        partitions = range(self._bus.partitions)
        while True:
            following = merged([self._follow(self.index, one) for one in partitions])
            async with contextlib.aclosing(following):
                async for created, batch in following:
                    if batch.messages:
                        await asyncio.to_thread(self.index.add, created, batch.messages)
                        await asyncio.sleep(0.0 if batch.pending else GATHER_SECONDS / len(partitions))
            # One of the streams is another one: what is there is read anew, each once.

    async def _follow(self, index: Index, partition: int) -> AsyncGenerator[tuple[int, Batch]]:
        stream = stream_in(OUTCOMES, partition)
        held = await position_of(self._bus.js, stream)
        first = max(index.position(held.created) + 1, held.first)
        start = max(first, held.last - KEPT + 1)
        if start > first:
            # Those before it are not looked through.
            after = await self._bus.history.of_one_partition.next(stream, ">", start)
            index.skip(held.created, start - 1, after.time if after is not None else 0.0)
        following = self._bus.history.of_one_partition.follow(
            stream,
            subjects=subjects_in([run_subjects("outcome", None)], partition),
            start_sequence=start,
            on_fault=self._fault,
        )
        async with contextlib.aclosing(following):
            async for batch in following:
                yield held.created, batch

    def _fault(self, problem: str) -> None:
        if problem and not self._unread:
            logger.warning("gateway.answers", problem=problem)
        self._unread = problem

    async def _refresh(self) -> None:
        """Look how far the archive is, follow what comes behind that, and take in what is archived."""
        index = self.index
        assert index is not None
        await self._try(index.look)
        self._following.start()
        while True:
            await self._try(index.refresh)
            await self._check(index)
            stones = self._erased.number
            if stones != self._stones:
                await self._try(lambda: index.forget(self.is_erased))
                self._stones = stones
            await asyncio.sleep(REFRESH_SECONDS)

    async def _check(self, index: Index) -> None:
        """What is archived is known from when it was read: damage of since then is looked for."""
        if time.monotonic() < self._looked_at + CHECK_SECONDS:
            return
        damage = await asyncio.to_thread(index.problem)
        if damage and damage != self._damage:
            logger.error("gateway.archive_damaged", error=damage)
        self._damage, self._looked_at = damage, time.monotonic()

    async def _try(self, work: Callable[[], None]) -> None:
        try:
            await asyncio.to_thread(work)
        except GroundwatchError as error:
            if not self._problem:
                logger.warning("gateway.answers_archived", error=str(error))
            self._problem = f"answers that are archived cannot be found: {error}"
        else:
            self._problem = ""


OF_ONE = 200
"""Outcomes of one response at most, of all protocols and runs."""

_RECORDED = msgspec.json.Decoder(ResponseRecorded)
_JUDGED = msgspec.json.Decoder(ClaimsVerified | ClaimsMatched | ChainAdvanced)


class RawEvent(msgspec.Struct, frozen=True):
    """An event as it lies in its stream, or did."""

    subject: str
    data: bytes

    @property
    def address(self) -> Address:
        return parse_subject(self.subject) or Address("", "", "")


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A response in one of its `runs`. `hits` are its outcomes in all, `outcomes` those of this run by
    protocol; on what is `waiting` nothing has been decided yet. `response` is None where only outcomes are
    left."""

    key: str
    id: str
    tenant: str
    run: str
    response: ResponseRecorded | None
    runs: tuple[str, ...]
    outcomes: dict[str, ResponseScored]
    waiting: tuple[str, ...]
    hits: tuple[Hit, ...]
    events: tuple[RawEvent, ...]
    judged: dict[str, ClaimsVerified | ClaimsMatched | ChainAdvanced]


async def find_answer(bus: Bus, search: AnswerSearch, tenant: str, name: str, run: str = "") -> Answer | None:
    """None where nothing of this id is recorded. Raises `Refused` for one that was erased, `TransientError`
    when it cannot be looked up now."""
    key = response_key(tenant, name)
    if search.is_erased(key, tenant):
        raise Refused("erased", "Somebody asked that it be removed, and nothing of it is left here.")
    hits = await _hits(search, AnswerQuery(id=name, tenant=tenant))
    runs = sorted({hit.run for hit in hits}, key=lambda name: (name != LIVE, name))
    wanted = run or (runs[0] if runs else LIVE)
    keys = list(dict.fromkeys([*(hit.key for hit in hits), home_key(key, bus.partitions)]))
    own = [hit for hit in hits if hit.run == wanted]
    events = await _hot(bus, wanted, keys, [hit.protocol for hit in own])
    response = _recorded(events)
    if response is None and hits:
        events = await _archived(search, hits, wanted) or events
        response = _recorded(events)
    if response is None and not own:
        return None
    outcomes = {event.protocol: event for _, event in _of_kind(events, "outcome", _SCORED)}
    missing = [hit for hit in own if hit.protocol not in outcomes]
    for event in await search.archived_outcomes(missing):
        outcomes[event.protocol] = event
    protocols = dict.fromkeys([*(response.protocols if response else ()), *outcomes])
    return Answer(
        key=keys[0],
        id=name,
        tenant=tenant,
        run=wanted,
        response=response,
        runs=tuple(runs) or (wanted,),
        outcomes={name: outcomes[name] for name in protocols if name in outcomes},
        waiting=tuple(name for name in protocols if name not in outcomes),
        hits=tuple(hits),
        events=tuple(events),
        judged={address.protocol: event for address, event in _of_kind(events, "judged", _JUDGED)},
    )


async def _hits(search: AnswerSearch, query: AnswerQuery) -> list[Hit]:
    return (await search.search(query, most=OF_ONE)).hits if search.index is not None else []


async def _hot(bus: Bus, run: str, keys: Sequence[str], protocols: Sequence[str]) -> list[RawEvent]:
    """Events of this run that streams hold."""
    recorded = await _last(bus, RESPONSES, [subject_of("recorded", run, key) for key in keys])
    response = _recorded(recorded)
    if response is not None:
        keys = [response.key]
        protocols = list(dict.fromkeys([*response.protocols, *protocols]))
    extracted, judged, outcomes = [], [], []
    for place in product(protocols, keys):
        for stage in (Stage.VERIFICATION, Stage.MATCHING, Stage.SCORING):
            extracted.append(subject_of("extracted", run, stage, *place))
        judged.append(subject_of("judged", run, Stage.SCORING, *place))
        outcomes.append(subject_of("outcome", run, *place))
    behind = await asyncio.gather(
        _last(bus, EXTRACTED, extracted), _last(bus, JUDGED, judged), _last(bus, OUTCOMES, outcomes)
    )
    return [*recorded, *chain.from_iterable(behind)]


async def _last(bus: Bus, stream: str, subjects: Sequence[str]) -> list[RawEvent]:
    try:
        found = await bus.history.hot.last_of_each(stream, subjects)
    except FAULTS as error:
        raise TransientError(f"cannot be read from NATS: {words(error)}") from error
    return [RawEvent(read.subject, read.data) for read in found if read is not None]


async def _archived(search: AnswerSearch, hits: Sequence[Hit], run: str) -> list[RawEvent]:
    """Events of this run that have left their streams."""
    about = next((hit for hit in hits if hit.run == run), hits[0])
    found = await search.archived_messages(about.key, about.recorded_at)
    events = [RawEvent(subject, data) for _, subject, data, _ in found]
    return [event for event in events if event.address.run == run]


def _recorded(events: Sequence[RawEvent]) -> ResponseRecorded | None:
    return next((event for _, event in _of_kind(events, "recorded", _RECORDED)), None)


def _of_kind(
    events: Sequence[RawEvent], kind: str, decoder: msgspec.json.Decoder[T]
) -> Iterator[tuple[Address, T]]:
    """Those that can be read."""
    for raw in events:
        if raw.address.kind == kind:
            with contextlib.suppress(*UNDECODED):
                yield raw.address, decoder.decode(raw.data)
