"""Images by content hash: checked at the door, stored once, fetched by whoever must look.

A decoder holds a core for as long as an image wants it to. So it runs where it can be ended, and whoever
sends costly images waits behind themselves: each sender's images are checked in the order they came, senders
take turns, and no sender has all processes at once.
"""

import asyncio
import base64
import contextlib
import hashlib
import os
import secrets
import signal
import sys
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from itertools import islice

import msgspec
import nats.js.errors
from nats.js import JetStreamContext
from nats.js.api import RawStreamMsg
from nats.js.object_store import ObjectStore

from groundwatch.errors import InputError, TransientError
from groundwatch.runtime.delivery.publisher import WRONG_LAST_SEQUENCE
from groundwatch.runtime.delivery.streams import FAULTS
from groundwatch.runtime.services.tasks import cancelled
from groundwatch.runtime.settings import IntakeSettings
from groundwatch.runtime.stores.image_worker import LENGTH, REQUEST, Decoded, decode
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.topology import HEADER_EXPECT_SEQUENCE, IMAGES_BUCKET

IMAGES_STREAM = f"OBJ_{IMAGES_BUCKET}"

FRESH_SECONDS = 3_600.0
"""An image that is used is marked so when it was last marked so long ago."""

RECENT_SECONDS = 300.0
RECENT_MOST = 50_000
"""For how long an image that was seen is believed to be there, and how many are remembered."""

GRACE_SECONDS = 2 * FRESH_SECONDS
"""Retention removes no image that was marked as used within this time."""

PIECE_BYTES = 128 * 1024


class Image(Decoded, frozen=True, kw_only=True):
    """A checked image."""

    sha256: str
    data: bytes


def check_image(data: bytes, limits: IntakeSettings) -> Image:
    """Check what the file says of itself, then decode it, here: what strangers send goes to `ImageChecks`.

    Raises `InputError` that says what is wrong with it.
    """
    return image_of(data, decode(data, max_bytes=limits.max_image_bytes, max_pixels=limits.max_image_pixels))


def image_of(data: bytes, found: Decoded) -> Image:
    return Image(sha256=hashlib.sha256(data).hexdigest(), data=data, **msgspec.structs.asdict(found))


class ImageStore:
    """Images in NATS's object store, named by SHA-256.

    Retention removes images that nobody names, in another process. So that an image is there when somebody is
    told so, one that is used is marked as used now, at least every `FRESH_SECONDS`, and retention removes
    none that was used within a longer time. What was looked up is believed for `RECENT_SECONDS` only.
    """

    def __init__(self, js: JetStreamContext) -> None:
        self._js = js
        self._store: ObjectStore | None = None
        self._recent: OrderedDict[str, float] = OrderedDict()

    def seen(self, sha256: str) -> bool:
        """Whether the image was there a moment ago: asks nobody, so False means nothing."""
        return time.monotonic() - self._recent.get(sha256, -RECENT_SECONDS) < RECENT_SECONDS

    def forget(self, sha256: str) -> None:
        """Believe no more that the image is stored: it was erased."""
        self._recent.pop(sha256, None)

    async def put(self, image: Image) -> bool:
        """Store it unless it is there; tells whether it was new."""
        if await self.has(image.sha256):
            return False
        piece = f"$O.{IMAGES_BUCKET}.C.{secrets.token_hex(16)}"
        try:
            for start in range(0, len(image.data), PIECE_BYTES):
                await self._js.publish(piece, image.data[start : start + PIECE_BYTES])
            # The object store's other clients leave a mark where they remove an object.
            before = await self._find(image.sha256)
            expected = before.seq or 0 if before is not None and _is_removed(before) else 0
            new = await self._write(image.sha256, _info(image, piece.rpartition(".")[2]), expected)
        except FAULTS as error:
            await self._drop(piece)
            raise TransientError(f"cannot store image {image.sha256}: {error!r}") from error
        if not new:
            # Somebody else was faster.
            await self._drop(piece)
        self._note(image.sha256)
        return new

    async def has(self, sha256: str) -> bool:
        """Whether the image is stored; it then stays, even if nobody names it yet."""
        if self.seen(sha256):
            return True
        try:
            while True:
                found = await self._find(sha256)
                if found is None or _is_removed(found):
                    return False
                stored = found.time.timestamp() if found.time is not None else 0.0
                if time.time() - stored < FRESH_SECONDS:
                    break
                # Written again as it is, it is new. Where that fails, it was removed or used meanwhile.
                if await self._write(sha256, found.data or b"", found.seq or 0):
                    break
        except FAULTS as error:
            raise TransientError(f"cannot look up image {sha256}: {error!r}") from error
        self._note(sha256)
        return True

    async def _find(self, sha256: str) -> RawStreamMsg | None:
        try:
            return await self._js.get_last_msg(IMAGES_STREAM, image_subject(sha256))
        except nats.js.errors.NotFoundError:
            await self._bucket()
            return None

    def _note(self, sha256: str) -> None:
        self._recent.pop(sha256, None)
        self._recent[sha256] = time.monotonic()
        for oldest in list(islice(self._recent, 2)):
            # At most one comes at a time, so two that go are enough.
            if len(self._recent) > RECENT_MOST or not self.seen(oldest):
                del self._recent[oldest]

    async def _write(self, sha256: str, info: bytes, expected: int) -> bool:
        """Say where the image's pieces are, unless somebody has said so after sequence `expected`."""
        headers = {HEADER_EXPECT_SEQUENCE: str(expected), "Nats-Rollup": "sub"}
        try:
            await self._js.publish(image_subject(sha256), info, headers=headers)
        except nats.js.errors.APIError as error:
            if error.err_code == WRONG_LAST_SEQUENCE:
                return False
            raise
        return True

    async def _drop(self, piece: str) -> None:
        """Remove pieces that no image needs; what stays, retention finds."""
        with contextlib.suppress(*FAULTS):
            await self._js.purge_stream(IMAGES_STREAM, subject=piece)

    async def load(self, sha256: str) -> tuple[bytes, str]:
        """The bytes and media type. Raises `LookupError` when no such image is stored."""
        store = await self._bucket()
        try:
            data = (await store.get(sha256)).data or b""
        except nats.js.errors.NotFoundError as error:
            raise LookupError(sha256) from error
        except FAULTS as error:
            raise TransientError(f"cannot load image {sha256}: {error!r}") from error
        return data, await asyncio.to_thread(_media_type, data)

    async def _bucket(self) -> ObjectStore:
        if self._store is None:
            try:
                self._store = await self._js.object_store(IMAGES_BUCKET)
            except FAULTS as error:
                raise TransientError(f"no image store: {error!r}") from error
        return self._store


def image_subject(sha256: str) -> str:
    """Where the object store keeps what it knows of an image."""
    return f"$O.{IMAGES_BUCKET}.M.{base64.urlsafe_b64encode(sha256.encode()).decode()}"


def _is_removed(found: RawStreamMsg) -> bool:
    return bool(msgspec.json.decode(found.data or b"{}").get("deleted"))


def _info(image: Image, nuid: str) -> bytes:
    """What NATS's object store keeps of an object: its clients read it."""
    return msgspec.json.encode(
        {
            "name": image.sha256,
            "bucket": IMAGES_BUCKET,
            "nuid": nuid,
            "size": len(image.data),
            "chunks": -(-len(image.data) // PIECE_BYTES),
            "digest": f"SHA-256={base64.urlsafe_b64encode(hashlib.sha256(image.data).digest()).decode()}",
            "mtime": datetime.now(UTC).isoformat(),
            "options": {"max_chunk_size": PIECE_BYTES},
        }
    )


def _media_type(data: bytes) -> str:
    if data[:3] == b"\xff\xd8\xff":
        return "image/jpeg"
    return "image/png" if data[:4] == b"\x89PNG" else "image/webp"


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

        Raises `InputError` that says what is wrong with it, `TransientError` when too much waits.
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
        if isinstance(found, str):
            raise InputError(found)
        return await asyncio.to_thread(image_of, data, found)

    async def _ask(self, data: bytes) -> Decoded | str:
        limits = self._limits
        if len(data) > limits.max_image_bytes:
            raise InputError(f"image of {len(data)} bytes is larger than {limits.max_image_bytes}")
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
                found: Decoded | str = msgspec.json.decode(reply, type=Decoded | str)
        except TimeoutError as error:
            with contextlib.suppress(ProcessLookupError):
                worker.kill()
            await self._end(worker)
            raise TransientError("the machine is too busy to check images; send it again") from error
        except (asyncio.IncompleteReadError, OSError) as error:
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
            return InputError(
                f"image takes more than {self._limits.max_image_seconds:g} s to decode: send it smaller, or "
                "as a plain PNG or baseline JPEG"
            )
        if -status in _CRASHES:
            return InputError("image cannot be decoded: the decoder crashed")
        logger.warning("images.worker_ended", status=status)
        return TransientError(f"what checks images ended with status {status}; send it again")

    async def _worker(self) -> asyncio.subprocess.Process:
        while self._idle:
            worker = self._idle.pop()
            if worker.returncode is None:
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
        try:
            await asyncio.wait_for(worker.communicate(b""), STOP_SECONDS)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                worker.kill()
        return await worker.wait()
