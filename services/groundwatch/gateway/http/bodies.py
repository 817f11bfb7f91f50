"""Bodies of requests on their way in: how much is held, how slow a sender may be, where a line ends, and
threads in which they are taken apart."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar
from urllib.parse import parse_qs

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from groundwatch.errors import UNDECODED, InputError, TransientError
from groundwatch.gateway.refusals import ANSWER_SECONDS, Refused
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


MAX_FORM, MAX_JSON = 64 * 1024, 512 * 1024


async def read_body(chunks: AsyncIterator[bytes], limit: int, hold: Callable[[int], None]) -> bytes:
    """The whole body. Raises `Refused` for more than `limit` bytes, as soon as it is known. `hold` is told
    what is held."""
    held: list[bytes] = []
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        if chunk:
            hold(size)
            held.append(chunk)
    return b"".join(held)


class Lines:
    """Cuts a stream of chunks into lines, numbered from 1; blank ones are left out but counted.

    Of a line beyond the limit nothing is kept: it is told once and the rest of it skipped.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0
        self.number = 0

    @property
    def held(self) -> int:
        return self._size if self._size <= self._limit else 0

    def feed(self, chunk: bytes) -> Iterator[tuple[int, bytes | Refused]]:
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            yield from self._end(piece)
        self._hold(rest)

    def finish(self) -> Iterator[tuple[int, bytes | Refused]]:
        if self._size:
            yield from self._end(b"")

    def _hold(self, piece: bytes) -> None:
        self._size += len(piece)
        self._pieces.append(piece)
        if self._size > self._limit:
            self._pieces.clear()

    def _end(self, piece: bytes) -> Iterator[tuple[int, bytes | Refused]]:
        self._hold(piece)
        self.number += 1
        size, line = self._size, b"".join(self._pieces)
        self._size, self._pieces = 0, []
        if self.number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if size > self._limit:
            yield self.number, Refused("too_large", f"the line has more than {self._limit} bytes")
        elif line.strip():
            yield self.number, line


class Held:
    """The bytes that all requests together hold, over HTTP and gRPC: at most `limit`."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0


class Share:
    """What one request holds of them: what is being received or worked at."""

    def __init__(self, held: Held) -> None:
        self._all = held
        self._held = 0

    def hold(self, size: int) -> None:
        """Hold `size` bytes from now on, and no longer what was held. Raises `Refused`."""
        if size > self._held:
            self.expect(size - self._held)
        self._all.held += size - self._held
        self._held = size

    def expect(self, size: int) -> None:
        """Raises `Refused` when there would be no room for so many more bytes now."""
        held, limit = self._all.held, self._all.limit
        if held + size > limit:
            raise Refused(
                "unavailable", f"requests hold {held:,} bytes already, of at most {limit:,} together"
            )


@contextlib.contextmanager
def holding(held: Held) -> Iterator[Share]:
    """A share that holds nothing any more at the end of the block."""
    share = Share(held)
    try:
        yield share
    finally:
        share.hold(0)


class Receiving:
    """Gives every request its share of what is `held`, and cuts those whose sender is too slow."""

    def __init__(self, app: ASGIApp, held: Held, *, timeout: float, min_rate: int) -> None:
        """Over `timeout` seconds of waiting for a body, `min_rate` bytes a second must come."""
        self._app = app
        self._timeout = timeout
        self._least = max(1.0, min_rate * timeout)
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        clock = asyncio.get_running_loop().time
        more = True
        waited = 0.0
        got = 0

        async def timed() -> Message:
            nonlocal more, waited, got
            while more:
                began = clock()
                message = None
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._timeout - waited):
                        message = await receive()
                waited += clock() - began
                if message is not None:
                    got += len(message.get("body", b""))
                    more = bool(message.get("more_body", False))
                if message is None or waited >= self._timeout:
                    if got < self._least:
                        raise Refused("slow", f"the body came too slowly: {got} bytes in {self._timeout:g} s")
                    waited, got = 0.0, 0
                if message is not None:
                    return message
            return await receive()

        with holding(self._held) as share:
            scope.setdefault("state", {})["share"] = share
            await self._app(scope, timed, send)


def share_of(request: Request) -> Share:
    share: Share = request.state.share
    return share


async def body_of(request: Request, limit: int) -> bytes:
    """The whole body of a request, held as its share. Raises `Refused`."""
    length, share = request.headers.get("content-length", ""), share_of(request)
    if length.isascii() and length.isdigit():
        if int(length) > limit:
            raise _too_large(limit)
        share.expect(int(length))
    return await read_body(request.stream(), limit, share.hold)


async def json_of(request: Request, form: type[T], limit: int = MAX_JSON) -> T:
    """The body as this form, none as an empty one. Raises `Refused`."""
    try:
        return msgspec.json.decode(await body_of(request, limit) or b"{}", type=form)
    except UNDECODED as error:
        raise Refused("invalid", str(error)) from error


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form of ours. Raises `InputError` for one that is none."""
    body = await body_of(request, MAX_FORM)
    try:
        fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=100)
    except ValueError:
        raise InputError("a form has at most 100 fields") from None
    return {name: values[-1].strip() for name, values in fields.items()}


def _too_large(limit: int) -> Refused:
    return Refused("too_large", f"the body has more than {limit} bytes")
