"""Search among all outcomes, from archive and stream alike."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec

from groundwatch.errors import GroundwatchError, TransientError
from groundwatch.events import ResponseScored
from groundwatch.gateway.answers.recent import RecentAnswers
from groundwatch.reporting.answers import MOST, AnswerQuery, Archived, Found, Hit, Rank, write_cursor
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.services.tasks import SupervisedTask
from groundwatch.runtime.stores.tombstones import Erased
from groundwatch.runtime.telemetry.logs import logger

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
