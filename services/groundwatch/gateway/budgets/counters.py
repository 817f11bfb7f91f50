"""One limit of one budget in one gateway: responses leased from the counter that all gateways share.

A lease is taken by compare-and-set, so what all gateways hold and have used never sums to more than the
limit, whoever dies: a lease that is not given back is lost until its window ends, and no more than that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec
import nats.js.errors

from groundwatch.errors import TransientError
from groundwatch.gateway.budgets.rules import Count
from groundwatch.runtime.delivery.streams import FAULTS
from groundwatch.statistics.sampling import pace

if TYPE_CHECKING:
    from nats.js.kv import KeyValue

LEASES = 50
"""A lease is about so small a part of the limit."""

MAX_LEASE = 1_000
RACES = 50


class Limit(msgspec.Struct, frozen=True):
    """How many responses may be leased of each stratum in all, and how many to reckon with in the end.

    The two differ where what a response costs is not known yet: then few are let through at first.
    """

    most: dict[str, int]
    aim: dict[str, float]

    def left(self, count: Count, stratum: str) -> int:
        """How many more may be leased; also after a change of strata no more than the whole limit."""
        return min(
            self.most.get(stratum, 0) - count.leased.get(stratum, 0),
            sum(self.most.values()) - sum(count.leased.values()),
        )


class LeasedCounter:
    """Takes leases, paces what is judged, and counts what comes. `period` in seconds."""

    def __init__(self, key: str, period: int, store: KeyValue, limit: Callable[[], Limit]) -> None:
        self.key = key
        self._period = period
        self._store = store
        self._limit = limit
        self._shared = Count()
        self._revision = 0
        self._window = 0
        self._held: dict[str, int] = {}
        self._fresh: dict[str, int] = {}
        self._late: dict[str, int] = {}
        self._changing = asyncio.Lock()

    def learn(self, data: bytes, revision: int) -> None:
        """Take in what stands in the bucket."""
        if revision > self._revision:
            self._shared = msgspec.json.decode(data, type=Count) if data else Count()
            self._revision = revision

    def turn(self, now: float) -> int:
        """The window of this moment. What was leased for an earlier one is worth nothing any more."""
        window = int(now // self._period)
        if window > self._window:
            self._late = self._fresh if window == self._window + 1 else {}
            self._window, self._held, self._fresh = window, {}, {}
        return self._window

    def used(self, now: float) -> int:
        """Responses that all gateways have leased in this window, less what this one still holds."""
        self.turn(now)
        return sum(self._now().leased.values()) - sum(self._held.values())

    def dry(self, now: float) -> bool:
        """Whether some stratum has nothing left here while there is more to be leased."""
        self.turn(now)
        count, limit = self._now(), self._limit()
        return count.window == self._window and any(
            self._held.get(stratum, 0) <= 0 and limit.left(count, stratum) > 0 for stratum in limit.most
        )

    def probability(self, stratum: str, now: float) -> float:
        """With which probability the next response is judged: 0 where nothing is left here."""
        window = self.turn(now)
        held = self._held.get(stratum, 0)
        if held <= 0:
            return 0.0
        count, aim = self._now(), self._limit().aim.get(stratum, 0.0)
        if aim <= 0:
            return 0.0
        return pace(
            max(1.0, aim - count.leased.get(stratum, 0) + held),
            count.before.get(stratum, 0.0),
            count.seen.get(stratum, 0) + self._fresh.get(stratum, 0),
            now / self._period - window,
        )

    def count(self, stratum: str, now: float, *, taken: bool) -> int:
        """Count a response, and with `taken` use one of what is held; the window that it counts in."""
        window = self.turn(now)
        self._fresh[stratum] = self._fresh.get(stratum, 0) + 1
        if taken:
            self._held[stratum] -= 1
        return window

    def undo(self, stratum: str, window: int, *, taken: bool) -> None:
        """The response had been there before: it neither came nor used anything."""
        if window != self._window:
            return
        if self._fresh.get(stratum, 0) > 0:
            self._fresh[stratum] -= 1
        if taken:
            self._held[stratum] = self._held.get(stratum, 0) + 1

    async def lease(self, now: float) -> None:
        """Fill up every stratum that is empty here. Raises `TransientError` when nobody answers."""
        self.turn(now)

        def grown(count: Count, limit: Limit) -> dict[str, int]:
            wanted: dict[str, int] = {}
            for stratum, most in limit.most.items():
                so_far = msgspec.structs.replace(count, leased=_sum(count.leased, wanted))
                left = limit.left(so_far, stratum)
                if self._held.get(stratum, 0) <= 0 and left > 0:
                    wanted[stratum] = min(left, max(1, min(most // LEASES, MAX_LEASE)))
            return wanted

        window, granted = await self._change(grown)
        if window == self._window:
            self._held = _sum(self._held, granted)

    async def publish(self) -> None:
        if any(self._fresh.values()) or any(self._late.values()):
            await self._change(lambda count, limit: {})

    def give_back(self) -> Coroutine[Any, Any, None]:
        """Hold nothing from now on. Awaited, others can use what was held; when that fails it is lost."""
        held, self._held = self._held, {}
        return self._return(self._window, held)

    async def _return(self, window: int, held: dict[str, int]) -> None:
        if window == self._window and any(held.values()):
            await self._change(lambda count, limit: {name: -number for name, number in held.items()})

    def _now(self) -> Count:
        """The shared count as of this window: the beginning of one that nobody has written about yet.

        One that is ahead of this gateway's clock comes as it is, and nothing can be leased of it.
        """
        shared = self._shared
        if shared.window >= self._window:
            return shared
        # After a pause it is likelier to go on as it was than to have ended.
        fade = 0.5 ** min(self._window - shared.window - 1, 50)
        before = {
            stratum: fade * max(shared.seen.get(stratum, 0), 0.5 * shared.before.get(stratum, 0.0))
            for stratum in {*shared.seen, *shared.before}
        }
        return Count(window=self._window, before=before)

    async def _change(self, wanted: Callable[[Count, Limit], dict[str, int]]) -> tuple[int, dict[str, int]]:
        """Add to what is leased, and tell what was seen: the window that it was for, and what was granted."""
        async with self._changing:
            for _ in range(RACES):
                window, count = self._window, self._now()
                if count.window != window:
                    return window, {}
                grant = wanted(count, self._limit())
                fresh, late = dict(self._fresh), dict(self._late)
                if not any((*grant.values(), *fresh.values(), *late.values())):
                    return window, {}
                new = Count(
                    window=window,
                    leased=_sum(count.leased, grant),
                    seen=_sum(count.seen, fresh),
                    before={
                        name: count.before.get(name, 0.0) + late.get(name, 0)
                        for name in {**count.before, **late}
                    },
                )
                if not await self._put(new):
                    continue
                if window == self._window:
                    self._fresh = _sum(self._fresh, {name: -seen for name, seen in fresh.items()})
                    self._late = _sum(self._late, {name: -seen for name, seen in late.items()})
                return window, grant
        raise TransientError(f"too many gateways count in {self.key} at once")

    async def _put(self, new: Count) -> bool:
        """Write if nobody has written since; what was written is then known, by whomever."""
        try:
            revision = await self._store.update(self.key, msgspec.json.encode(new), self._revision)
        except nats.js.errors.KeyWrongLastSequenceError:
            await self._look()
            return False
        except FAULTS as error:
            # Whether it was written is not known. Nothing is held of it, so at worst it is lost.
            raise TransientError(f"cannot count in {self.key}: {error!r}") from error
        if revision > self._revision:
            self._shared, self._revision = new, revision
        return True

    async def _look(self) -> None:
        try:
            entry = await self._store.get(self.key)
        except nats.js.errors.KeyNotFoundError as error:
            # Removed: what stands there is the mark of the removal, with its revision.
            gone = error.entry
            self._shared, self._revision = Count(), (gone.revision if gone is not None else 0) or 0
            return
        except FAULTS as error:
            raise TransientError(f"cannot read {self.key}: {error!r}") from error
        self._shared = msgspec.json.decode(entry.value or b"{}", type=Count)
        self._revision = entry.revision or 0


def _sum(first: dict[str, int], second: dict[str, int]) -> dict[str, int]:
    return {
        name: total for name in {**first, **second} if (total := first.get(name, 0) + second.get(name, 0))
    }
