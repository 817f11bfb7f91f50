"""Finding answers, and one answer with everything that is known of it, from archive and stream alike."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import sqlite3
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec

from groundwatch.errors import UNDECODED, GroundwatchError, TransientError
from groundwatch.events import (
    LIVE,
    ChainAdvanced,
    ClaimsMatched,
    ClaimsVerified,
    ResponseRecorded,
    ResponseScored,
)
from groundwatch.keys import in_partition, response_key
from groundwatch.protocols.base import Stage
from groundwatch.reporting.answers import (
    MOST,
    RANKS,
    AnswerQuery,
    Archived,
    Found,
    Hit,
    Rank,
    hit_of,
    pairs_of,
    tags_of,
    text_of,
    write_cursor,
)
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.homes import places_of
from groundwatch.runtime.delivery.partitioned import merged
from groundwatch.runtime.delivery.streams import FAULTS, Batch, Read, last_message, position_of
from groundwatch.runtime.delivery.superseding import superseded_by
from groundwatch.runtime.services.tasks import SupervisedTask
from groundwatch.runtime.stores.tombstones import Erased
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.topology import (
    EXTRACTED,
    JUDGED,
    OUTCOMES,
    RESPONSES,
    parse_subject,
    run_subjects,
    subject_of,
)
from groundwatch.topology.partitions import stream_in, stream_of, subjects_in

KEPT = 100_000
"""Outcomes at most, the latest."""

_COLUMNS = (
    *("moment", "stream", "sequence", "id", "run", "tenant", "model", "version", "protocol", "refuted"),
    *("badness", "doubt", "tags", "pairs", "text", "hit"),
)
_TABLE = f"""
CREATE TABLE answers ({", ".join(_COLUMNS)}, PRIMARY KEY (stream, sequence)) WITHOUT ROWID;
CREATE INDEX newest ON answers (moment, stream, sequence);
CREATE INDEX ids ON answers (id);
"""
_INSERT = f"INSERT OR REPLACE INTO answers VALUES ({', '.join('?' * len(_COLUMNS))})"

_SCORED = msgspec.json.Decoder(ResponseScored)
_HIT = msgspec.msgpack.Decoder(Hit)


class RecentAnswers:
    """Outcomes behind what `archived` says of the stream that was created then."""

    def __init__(
        self, bus: Bus, version_tags: Sequence[str], archived: Callable[[int], int], kept: int = KEPT
    ) -> None:
        self._bus = bus
        self._version_tags = version_tags
        self._archived = archived
        self._kept = kept
        self._lock = threading.Lock()
        self._database = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._database.executescript(_TABLE)
        self._task = SupervisedTask("gateway-answers", self._follow_all)
        self._superseded: set[tuple[int, int]] = set()
        self._unread = ""
        self._cuts: dict[int, tuple[int, float]] = {}

    def start(self) -> None:
        self._task.start()

    async def stop(self) -> None:
        await self._task.stop()
        await asyncio.to_thread(self._close)

    @property
    def problem(self) -> str:
        return self._unread or self._task.problem

    @property
    def cut_at(self) -> float | None:
        """Before when there may be others, in seconds since the epoch: neither here nor in the archive."""
        cuts = list(self._cuts.items())
        found = (moment for created, (sequence, moment) in cuts if self._archived(created) < sequence)
        return max(found, default=None)

    @property
    def superseded(self) -> set[tuple[int, int]]:
        """Places of outcomes, some of which the archive may have, that others took the place of."""
        return self._superseded

    def search(self, query: AnswerQuery, after: Rank | None, most: int) -> Found:
        """As `reporting.answers.Archived`."""
        conditions, values = query.conditions(after)
        if query.category or query.verdict:
            condition, more = query.pairs_condition()
            conditions.append(condition)
            values += more
        for name, value in query.same.items():
            conditions.append(f"{name} = ?")
            values.append(value)
        for word in query.words:
            conditions.append("instr(text, ?) > 0")
            values.append(word)
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        order = ", ".join(f"{column} DESC" for column in RANKS[query.order])
        sql = f"SELECT hit FROM answers {where} ORDER BY {order} LIMIT ?"
        with self._lock:
            rows = self._database.execute(sql, (*values, most)).fetchall()
        return Found([_HIT.decode(row) for (row,) in rows], self.cut_at)

    def forget(self, gone: Callable[[Hit], bool]) -> None:
        """Let go of those of which that holds."""
        with self._lock:
            rows = self._database.execute("SELECT hit FROM answers").fetchall()
        places = [hit.place for hit in (_HIT.decode(row) for (row,) in rows) if gone(hit)]
        self._remove(places)

    def trim(self) -> None:
        """Let go of what the archive has."""
        with self._lock:
            streams = [row[0] for row in self._database.execute("SELECT DISTINCT stream FROM answers")]
            for stream in streams:
                until = self._archived(stream)
                self._database.execute(
                    "DELETE FROM answers WHERE stream = ? AND sequence <= ?", (stream, until)
                )
            self._superseded = {one for one in self._superseded if one[1] > self._archived(one[0])}
            number = self._database.execute("SELECT count(*) FROM answers").fetchone()[0]
            if number > self._kept:
                last = self._database.execute(
                    "SELECT moment FROM answers ORDER BY moment DESC LIMIT 1 OFFSET ?", (self._kept,)
                ).fetchone()[0]
                gone = self._database.execute(
                    "DELETE FROM answers WHERE moment <= ? RETURNING stream, sequence", (last,)
                ).fetchall()
                for stream, sequence in gone:
                    self._cut(stream, sequence, last / 1e6)

    def _cut(self, created: int, sequence: int, moment: float) -> None:
        before, until = self._cuts.get(created, (0, 0.0))
        self._cuts[created] = (max(before, sequence), max(until, moment))

    def _remove(self, places: Iterable[tuple[int, int]]) -> None:
        with self._lock:
            self._database.executemany("DELETE FROM answers WHERE stream = ? AND sequence = ?", places)

    def _close(self) -> None:
        with self._lock:
            self._database.close()

    async def _follow_all(self) -> None:
        partitions = range(self._bus.partitions)
        while True:
            async with contextlib.aclosing(merged([self._follow(one) for one in partitions])) as following:
                async for created, batch in following:
                    if batch.messages:
                        await asyncio.to_thread(self._add, created, batch.messages)
            # One of the streams is another one: what is there is read anew, each once.

    async def _follow(self, partition: int) -> AsyncGenerator[tuple[int, Batch]]:
        stream = stream_in(OUTCOMES, partition)
        held = await position_of(self._bus.js, stream)
        start = max(self._archived(held.created), held.first - 1, held.last - self._kept) + 1
        if start > max(self._archived(held.created) + 1, held.first):
            # Those before it are not looked through.
            first = await self._bus.history.of_one_partition.next(stream, ">", start)
            self._cut(held.created, start - 1, first.time if first is not None else 0.0)
        following = self._bus.history.of_one_partition.follow(
            stream,
            subjects=subjects_in([run_subjects("outcome", None)], partition),
            start_sequence=start,
            on_fault=self._fault,
        )
        async with contextlib.aclosing(following):
            async for batch in following:
                yield held.created, batch

    def _add(self, created: int, messages: Sequence[Read]) -> None:
        rows, superseded = [], []
        for read in messages:
            try:
                event = _SCORED.decode(read.data)
            except UNDECODED as error:
                logger.warning("gateway.answer_unread", subject=read.subject, error=str(error))
                continue
            address = parse_subject(read.subject)
            if address is not None and address.run != event.run:
                event = msgspec.structs.replace(event, run=address.run)
            key = address.key if address is not None else event.key
            if before := superseded_by(read.subject, read.headers):
                superseded.append((created, before))
            rows.append(_row(event, hit_of(event, key, created, read.sequence, self._version_tags)))
        with self._lock:
            self._database.execute("BEGIN")
            self._database.executemany(_INSERT, rows)
            self._database.execute("COMMIT")
        self._remove(superseded)
        self._superseded = self._superseded | set(superseded)

    def _fault(self, problem: str) -> None:
        if problem and not self._unread:
            logger.warning("gateway.answers", problem=problem)
        self._unread = problem


def _row(event: ResponseScored, hit: Hit) -> tuple[Any, ...]:
    beside: Mapping[str, object] = {
        "tags": tags_of(event),
        "pairs": pairs_of(event),
        "text": text_of(event),
        "hit": msgspec.msgpack.encode(hit),
    }
    return tuple(beside[name] if name in beside else getattr(hit, name) for name in _COLUMNS)


REFRESH_SECONDS = 3.0
CHECK_SECONDS = 30.0

AT_ONCE = 2
"""Searches that run at the same time, and how many may wait."""
WAITING = 16

MOST_AT_ONCE = 5_000
"""Hits that are looked for at once behind those that were erased."""

T = TypeVar("T")


class AnswerPage(msgspec.Struct, frozen=True, kw_only=True):
    """Hits in order. `cursor` leads to what is behind them, empty where there is nothing.

    `searched_to` as in `Found`; `reading` says that what is archived is still being taken in.
    """

    hits: list[Hit]
    cursor: str = ""
    searched_to: float | None = None
    reading: bool = False


class AnswerSearch:
    """Finds answers. What it takes runs in threads of its own, few at once."""

    def __init__(
        self, bus: Bus, archived: Archived | None, erased: Erased, version_tags: Sequence[str]
    ) -> None:
        self.version_tags = version_tags
        self._archived = archived
        self._erased = erased
        self.recent = RecentAnswers(
            bus, version_tags, archived.position if archived is not None else lambda created: 0
        )
        self._refreshing = SupervisedTask("gateway-answers-archived", self._refresh)
        self._working = ThreadPoolExecutor(AT_ONCE, "answers")
        self._loading = ThreadPoolExecutor(1, "answers-archived")
        self._waiting = 0
        self._stones = 0
        self._following = False
        self._problem = ""
        self._damage = ""
        self._looked_at = -CHECK_SECONDS

    def start(self) -> None:
        self._refreshing.start()

    async def stop(self) -> None:
        if self._archived is not None:
            self._archived.close()
        await self._refreshing.stop()
        await self.recent.stop()
        self._working.shutdown(wait=False, cancel_futures=True)
        self._loading.shutdown(wait=False, cancel_futures=True)

    @property
    def problem(self) -> str:
        return self._damage or self._problem or self._refreshing.problem or self.recent.problem

    @property
    def complete(self) -> bool:
        """Whether what is archived can be found."""
        return self._archived is None or self._archived.complete

    async def search(self, query: AnswerQuery, after: Rank | None = None, most: int = MOST) -> AnswerPage:
        """Raises `TooSlow` for what takes too long, `TransientError` when it cannot be answered now."""
        found = await self._work(lambda: self._search(query, after, most + 1))
        hits = found.hits[:most]
        more = len(found.hits) > most
        return AnswerPage(
            hits=hits,
            cursor=write_cursor(query.order, hits[-1].rank(query.order)) if more else "",
            searched_to=None if more and query.order == "newest" else found.searched_to,
            reading=not self.complete,
        )

    async def archived_outcomes(self, hits: Sequence[Hit]) -> list[ResponseScored]:
        """Of these, what the archive has."""
        archived = self._archived
        if archived is None or not hits:
            return []
        return await self._work(lambda: archived.outcomes(hits))

    async def archived_messages(self, key: str, moment: float) -> list[tuple[str, str, bytes, float]]:
        archived = self._archived
        if archived is None:
            return []
        return await self._work(lambda: archived.messages(key, moment))

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

    def _search(self, query: AnswerQuery, after: Rank | None, most: int) -> Found:
        """Without what was erased: in its place comes what is behind."""
        hits: list[Hit] = []
        size = most
        while True:
            found = self._with_erased(query, after, size)
            hits += [hit for hit in found.hits if not self.is_erased(hit.key, hit.tenant)]
            if len(hits) >= most or len(found.hits) < size:
                return Found(hits[:most], found.searched_to)
            after, size = found.hits[-1].rank(query.order), min(2 * size, MOST_AT_ONCE)

    def _with_erased(self, query: AnswerQuery, after: Rank | None, most: int) -> Found:
        # First, since what goes from here is in the archive by then.
        recent = self.recent.search(query, after, most)
        hits, searched_to = recent.hits, recent.searched_to
        if self._archived is not None:
            superseded = self.recent.superseded
            archived = self._archived.search(query, after, most + min(len(superseded), most))
            known = {hit.place for hit in hits} | superseded
            others = [hit for hit in archived.hits if hit.place not in known]
            hits = list(heapq.merge(hits, others, key=lambda hit: hit.rank(query.order), reverse=True))
            searched_to = max(filter(None, (searched_to, archived.searched_to)), default=None)
        if query.order == "newest" and searched_to is not None:
            hits = [hit for hit in hits if hit.recorded_at >= searched_to]
        return Found(hits[:most], searched_to)

    async def _refresh(self) -> None:
        """Look how far the archive is, follow what comes behind that, and take in what is archived."""
        loop = asyncio.get_running_loop()
        if self._archived is not None:
            await self._try(self._archived.look)
        if not self._following:
            self._following = True
            self.recent.start()
        while True:
            if self._archived is not None:
                await self._try(self._archived.refresh)
                await self._check(self._archived)
            await loop.run_in_executor(self._loading, self._tidy)
            await asyncio.sleep(REFRESH_SECONDS)

    async def _check(self, archived: Archived) -> None:
        """What is archived is known from when it was read: damage of since then is looked for."""
        if time.monotonic() < self._looked_at + CHECK_SECONDS:
            return
        loop = asyncio.get_running_loop()
        damage = await loop.run_in_executor(self._loading, archived.problem)
        if damage and damage != self._damage:
            logger.error("gateway.archive_damaged", error=damage)
        self._damage, self._looked_at = damage, time.monotonic()

    async def _try(self, work: Callable[[], None]) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._loading, work)
        except GroundwatchError as error:
            if not self._problem:
                logger.warning("gateway.answers_archived", error=str(error))
            self._problem = f"answers that are archived cannot be found: {error}"
        else:
            self._problem = ""

    def _tidy(self) -> None:
        self.recent.trim()
        stones = self._erased.number
        if stones != self._stones:
            self._stones = stones
            self.recent.forget(lambda hit: self.is_erased(hit.key, hit.tenant))


OF_ONE = 200
"""Outcomes of one response at most, of all protocols and runs."""

_RECORDED = msgspec.json.Decoder(ResponseRecorded)
_JUDGED = msgspec.json.Decoder(ClaimsVerified | ClaimsMatched | ChainAdvanced)


class RawEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event as it lies in its stream, or did."""

    subject: str
    data: bytes


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


class ErasedAnswer(msgspec.Struct, frozen=True):
    """One that was erased."""


async def find_answer(
    bus: Bus, search: AnswerSearch, tenant: str, name: str, run: str = ""
) -> Answer | ErasedAnswer | None:
    """None where nothing of this id is recorded. Raises `TransientError` when it cannot be looked up now."""
    key = response_key(tenant, name)
    if search.is_erased(key, tenant):
        return ErasedAnswer()
    page, places = await asyncio.gather(
        search.search(AnswerQuery(id=name, tenant=tenant), most=OF_ONE), places_of(bus, key)
    )
    hits = page.hits
    runs = tuple(dict.fromkeys([*([LIVE] if any(hit.run == LIVE for hit in hits) else []), *_runs(hits)]))
    wanted = run or (runs[0] if runs else LIVE)
    keys = list(dict.fromkeys([*(hit.key for hit in hits), *(in_partition(key, one) for one in places)]))
    own = [hit for hit in hits if hit.run == wanted]
    events = await _hot(bus, wanted, keys, [hit.protocol for hit in own])
    response = _decoded(_RECORDED, events, RESPONSES)
    if response is None and hits:
        events = await _archived(search, hits, wanted) or events
        response = _decoded(_RECORDED, events, RESPONSES)
    if response is None and not own:
        return None
    outcomes = {
        event.protocol: event
        for _, raw in events
        if parse_kind(raw.subject) == "outcome" and (event := _decode(_SCORED, raw.data)) is not None
    }
    missing = [hit for hit in own if hit.protocol not in outcomes]
    for event in await search.archived_outcomes(missing):
        outcomes[event.protocol] = event
    protocols = dict.fromkeys([*(response.protocols if response else ()), *outcomes])
    judged = {}
    for _, raw in events:
        if parse_kind(raw.subject) == "judged" and (found := _decode(_JUDGED, raw.data)) is not None:
            address = parse_subject(raw.subject)
            judged[address.protocol if address else ""] = found
    return Answer(
        key=keys[0],
        id=name,
        tenant=tenant,
        run=wanted,
        response=response,
        runs=runs or (wanted,),
        outcomes={name: outcomes[name] for name in protocols if name in outcomes},
        waiting=tuple(name for name in protocols if name not in outcomes),
        hits=tuple(hits),
        events=tuple(raw for _, raw in events),
        judged=judged,
    )


def parse_kind(subject: str) -> str:
    address = parse_subject(subject)
    return address.kind if address is not None else ""


def _runs(hits: Sequence[Hit]) -> list[str]:
    return sorted({hit.run for hit in hits})


async def _hot(
    bus: Bus, run: str, keys: Sequence[str], protocols: Sequence[str]
) -> list[tuple[str, RawEvent]]:
    """Events of this run that streams hold, each with its stream's name in the first partition."""
    recorded = await _last(bus, [(RESPONSES, subject_of("recorded", run, key)) for key in keys])
    response = _decoded(_RECORDED, recorded, RESPONSES)
    if response is not None:
        keys = [response.key]
        protocols = list(dict.fromkeys([*response.protocols, *protocols]))
    wanted = []
    for key in keys:
        for protocol in protocols:
            wanted += [
                (EXTRACTED, subject_of("extracted", run, stage, protocol, key))
                for stage in (Stage.VERIFICATION, Stage.MATCHING, Stage.SCORING)
            ]
            wanted.append((JUDGED, subject_of("judged", run, Stage.SCORING, protocol, key)))
            wanted.append((OUTCOMES, subject_of("outcome", run, protocol, key)))
    return [*recorded, *await _last(bus, wanted)]


async def _last(bus: Bus, wanted: Sequence[tuple[str, str]]) -> list[tuple[str, RawEvent]]:
    try:
        found = await asyncio.gather(
            *(last_message(bus.js, stream_of(stream, subject), subject) for stream, subject in wanted)
        )
    except FAULTS as error:
        raise TransientError(f"cannot be read from NATS: {error!r}") from error
    return [
        (stream, RawEvent(subject=read.subject, data=read.data))
        for (stream, _), read in zip(wanted, found, strict=True)
        if read is not None
    ]


async def _archived(search: AnswerSearch, hits: Sequence[Hit], run: str) -> list[tuple[str, RawEvent]]:
    """Events of this run that have left their streams."""
    about = next((hit for hit in hits if hit.run == run), hits[0])
    found = await search.archived_messages(about.key, about.recorded_at)
    return [
        (stream, RawEvent(subject=subject, data=data))
        for stream, subject, data, _ in found
        if (address := parse_subject(subject)) is not None and address.run == run
    ]


def _decoded(
    decoder: msgspec.json.Decoder[T], events: Sequence[tuple[str, RawEvent]], stream: str
) -> T | None:
    return next(
        (event for name, raw in events if name == stream if (event := _decode(decoder, raw.data))), None
    )


def _decode(decoder: msgspec.json.Decoder[T], data: bytes) -> T | None:
    try:
        return decoder.decode(data)
    except UNDECODED:
        return None
