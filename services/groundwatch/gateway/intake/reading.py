"""Reading what a request brought, beside the event loop: nobody else waits while one body is taken apart."""

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

AT_ONCE = 2
"""Bodies that are taken apart at once: what becomes of each is bounded, and so of all together."""

SWITCH_SECONDS = 0.001
"""After which a thread gives way to the event loop, which waits so long for each step of each request."""


class Reading:
    """Threads for it; who comes later waits for a turn."""

    def __init__(self) -> None:
        sys.setswitchinterval(SWITCH_SECONDS)
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="reading")

    async def run(self, work: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """What `work` returns or raises. It must not touch what belongs to the event loop."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(work, *args, **options))
