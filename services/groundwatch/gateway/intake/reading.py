"""Reading what a request brought, beside the event loop: nobody else waits while one body is taken apart."""

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from groundwatch.errors import TransientError
from groundwatch.gateway.intake.results import ANSWER_SECONDS
from groundwatch.runtime.stores.image_checks import Turns

P = ParamSpec("P")
T = TypeVar("T")

AT_ONCE = 2
"""Bodies that are taken apart at once: what becomes of each is bounded, and so of all together."""

SWITCH_SECONDS = 0.001
"""After which a thread gives way to the event loop, which waits so long for each step of each request."""

SMALL = 16 * 1024
"""Bytes of a body that is taken apart sooner than a thread takes it."""


class Reading:
    """Threads for it, which senders have in turns; none of them has all."""

    def __init__(self) -> None:
        sys.setswitchinterval(SWITCH_SECONDS)
        self._turns = Turns(AT_ONCE)
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="reading")

    async def run(self, sender: str, work: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """What `work` returns or raises. It must not touch what belongs to the event loop.

        Raises `TransientError` where too much of this sender waits already.
        """
        loop = asyncio.get_running_loop()
        turned = False
        try:
            async with self._turns.turn(sender, ANSWER_SECONDS):
                turned = True
                return await loop.run_in_executor(self._threads, partial(work, *args, **options))
        except TimeoutError as error:
            if turned:
                raise
            raise TransientError("too much of this sender waits to be read; send it again") from error
