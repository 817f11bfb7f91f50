"""Who answers under a served model's name right now: a judgement must carry the checkpoint, not the name.

A server can load another checkpoint under the same name at any moment. So who answers is asked again every
`FRESH_SECONDS`, and what is in hand when it turns out to have changed is handed back, to be judged under the
new name.
"""

import asyncio
import time
from collections.abc import Iterable

from groundwatch.errors import TransientError, Unavailable
from groundwatch.models.triton.client import TritonModels

FRESH_SECONDS = 30.0


class Served:
    """The models on Triton that one engine uses, and who they are."""

    def __init__(self, models: TritonModels, names: Iterable[str]) -> None:
        self.models = models
        self._names = tuple(dict.fromkeys(names))
        self._labels: dict[str, str] = {}
        self._stale_at: dict[str, float] = {}
        self._lock = asyncio.Lock()

    def label(self, name: str) -> str:
        """Who answers under `name`, as far as is known; the name itself until `confirm` has found out."""
        return self._labels.get(name, name)

    async def confirm(self, *names: str) -> None:
        """Make sure that `label` says who answers.

        Raises `Unavailable` when it said something else until now, so that what is in hand is begun anew with
        who answers now, or when Triton does not tell.
        """
        before = [self.label(name) for name in names]
        for name in names:
            if time.monotonic() >= self._stale_at.get(name, 0.0):
                await self._ask(name)
        now = [self.label(name) for name in names]
        if before != now:
            why = f"on Triton {' and '.join(now)} answer now, not {' and '.join(before)}"
            raise Unavailable(why, retry_after=0.0)

    async def warm_up(self) -> None:
        """Begin to watch the models, and ask who they are; one that does not say is a problem for later."""
        await self.models.watch(*self._names)
        for name in self._names:
            try:
                await self._ask(name)
            except TransientError:
                continue

    def problems(self) -> list[str]:
        return self.models.problems()

    async def close(self) -> None:
        await self.models.close()

    async def _ask(self, name: str) -> None:
        async with self._lock:
            if time.monotonic() < self._stale_at.get(name, 0.0):
                return
            self.models.forget(name)
            self._labels[name] = (await self.models.identity(name)).label
            self._stale_at[name] = time.monotonic() + FRESH_SECONDS
