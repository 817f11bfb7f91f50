"""Images checked at the door.

A decoder holds a core for as long as an image wants it to. So it runs where it can be ended, and whoever
sends costly images waits behind themselves: each sender's images are checked in the order they came, senders
take turns, and no sender has all processes at once.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable

import msgspec

from groundwatch.errors import ImageError, TransientError
from groundwatch.runtime.services.tasks import cancelled
from groundwatch.runtime.settings.gateway import IntakeSettings
from groundwatch.runtime.stores.image_worker import LENGTH, REQUEST, Decoded, Rejected
from groundwatch.runtime.stores.images import Image, image_of
from groundwatch.runtime.telemetry.logs import logger

MOST_WORKERS = 4
WAIT_SECONDS = 10.0
"""How long an image waits for its turn before its sender is told to come again."""

SLOWER = 4.0
"""Times its seconds of the processor that an image may take by the clock, where others have the cores."""

STOP_SECONDS = 2.0
GOING_DOWN = "the gateway is going down; send it again"
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)


class Turns:
    """So many places, given to senders in turns; one sender has at most all but one of them."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._each = max(1, places - 1)
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @contextlib.asynccontextmanager
    async def turn(self, sender: str, timeout: float) -> AsyncIterator[None]:
        """Hold a place. Raises `TimeoutError` when it was not this sender's turn in time."""
        place = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(sender, deque()).append(place)
        self._give()
        try:
            async with asyncio.timeout(timeout):
                await place
        except BaseException:
            if place.done() and not place.cancelled():
                self._return(sender)
            elif place in (waiting := self._waiting.get(sender, deque())):
                waiting.remove(place)
                if not waiting:
                    del self._waiting[sender]
            raise
        try:
            yield
        finally:
            self._return(sender)

    def _return(self, sender: str) -> None:
        self._free += 1
        self._held[sender] -= 1
        if not self._held[sender]:
            del self._held[sender]
        self._give()

    def _give(self) -> None:
        while self._free:
            sender = next((one for one in self._waiting if self._held[one] < self._each), None)
            if sender is None:
                return
            # Behind all others: that is what makes it turns.
            waiting = self._waiting.pop(sender)
            place = waiting.popleft()
            if waiting:
                self._waiting[sender] = waiting
            if place.done():
                continue
            self._free -= 1
            self._held[sender] += 1
            place.set_result(None)


class ImageChecks:
    """Processes that check images, started when they are first needed."""

    def __init__(self, limits: IntakeSettings, *, wait: float = WAIT_SECONDS) -> None:
        self._limits = limits
        self._wait = wait
        self._turns = Turns(max(2, min(MOST_WORKERS, os.cpu_count() or 1)))
        self._workers: set[asyncio.subprocess.Process] = set()
        self._idle: list[asyncio.subprocess.Process] = []
        self._tasks: set[asyncio.Task[Image]] = set()
        self._closed = False

    async def check(self, data: bytes | Callable[[], bytes], sender: str) -> Image:
        """The checked image; `data` may be what decodes it, and is called in its turn.

        Raises `ImageError` that says what is wrong with it, `TransientError` when too much waits.
        """
        # What has begun ends, so that a sender who goes away leaves no process in the middle of an image.
        task = asyncio.create_task(self._check(data, sender))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise TransientError(GOING_DOWN) from None
            raise
        finally:
            # It has the exception, whose frames have the image, and this one.
            del task

    async def close(self) -> None:
        self._closed = True
        await cancelled(self._tasks)
        self._idle.clear()
        for worker in tuple(self._workers):
            await self._end(worker)

    async def _check(self, data: bytes | Callable[[], bytes], sender: str) -> Image:
        try:
            async with self._turns.turn(sender, self._wait):
                if not isinstance(data, bytes):
                    data = await asyncio.to_thread(data)
                found = await self._ask(data)
        except TimeoutError as error:
            raise TransientError(
                "too many images wait to be checked; send it again, or fewer at once"
            ) from error
        if isinstance(found, Rejected):
            raise ImageError(found.message, found.reason)
        return await asyncio.to_thread(image_of, data, found)

    async def _ask(self, data: bytes) -> Decoded | Rejected:
        limits = self._limits
        if len(data) > limits.max_image_bytes:
            raise ImageError(
                f"image of {len(data)} bytes is larger than {limits.max_image_bytes}", "image_too_large"
            )
        seconds = limits.max_image_seconds
        worker = await self._worker()
        try:
            async with asyncio.timeout(SLOWER * seconds + STOP_SECONDS):
                assert worker.stdin is not None
                assert worker.stdout is not None
                bounds = (limits.max_image_bytes, limits.max_image_pixels, seconds)
                worker.stdin.write(REQUEST.pack(len(data), *bounds))
                worker.stdin.write(data)
                await worker.stdin.drain()
                (length,) = LENGTH.unpack(await worker.stdout.readexactly(LENGTH.size))
                reply = await worker.stdout.readexactly(length)
                found: Decoded | Rejected = msgspec.json.decode(reply, type=Decoded | Rejected)
        except TimeoutError as error:
            with contextlib.suppress(ProcessLookupError):
                worker.kill()
            await self._end(worker)
            raise TransientError("the machine is too busy to check images; send it again") from error
        except (asyncio.IncompleteReadError, OSError, RuntimeError) as error:
            # uvloop has a RuntimeError for the pipe of a process that is no more.
            raise self._gone(await self._end(worker)) from error
        except BaseException:
            # Cancelled by `close`, which waits for it.
            with contextlib.suppress(ProcessLookupError):
                worker.kill()
            raise
        self._idle.append(worker)
        return found

    def _gone(self, status: int) -> Exception:
        if -status == signal.SIGPROF:
            return ImageError(
                f"image takes more than {self._limits.max_image_seconds:g} s to decode: send it smaller, or "
                "as a plain PNG or baseline JPEG",
                "image_too_large",
            )
        if -status in _CRASHES:
            return ImageError("image cannot be decoded: the decoder crashed")
        logger.warning("images.worker_ended", status=status)
        return TransientError(f"what checks images ended with status {status}; send it again")

    async def _worker(self) -> asyncio.subprocess.Process:
        while self._idle:
            worker = self._idle.pop()
            # One that has just died is known by its closed pipe first, its status comes a moment later.
            if worker.returncode is None and worker.stdin is not None and not worker.stdin.is_closing():
                return worker
            self._workers.discard(worker)
        if self._closed:
            raise TransientError(GOING_DOWN)
        try:
            worker = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "groundwatch.runtime.stores.image_worker"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise TransientError(f"no process to check images can be started ({error})") from error
        self._workers.add(worker)
        return worker

    async def _end(self, worker: asyncio.subprocess.Process) -> int:
        """Its status; it has a moment to say it, and is killed after that."""
        self._workers.discard(worker)
        assert worker.stdin is not None
        worker.stdin.close()
        try:
            await asyncio.wait_for(worker.wait(), STOP_SECONDS)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                worker.kill()
        return await worker.wait()
