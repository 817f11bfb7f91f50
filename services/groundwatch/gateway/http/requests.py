"""Requests and replies: what a route's callers must be and who calls, bodies on their way in (how much is
held, how slow a sender may be, where a line ends), and how replies and errors are written."""

import asyncio
import base64
import binascii
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, Self, TypeVar
from urllib.parse import parse_qs

import msgspec
from starlette import routing
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from groundwatch.errors import UNDECODED, InputError, TransientError
from groundwatch.gateway.auth import KNOWN, KNOWN_PAGE, Access, Caller, Need
from groundwatch.gateway.refusals import ANSWER_SECONDS, Refused, one_line, refusal_of
from groundwatch.runtime.delivery.bus import ENCODER
from groundwatch.runtime.settings.gateway import HttpSettings
from groundwatch.runtime.stores.image_checks import Turns
from groundwatch.runtime.telemetry.logs import logger

P = ParamSpec("P")
T = TypeVar("T")

AT_ONCE = 2
"""Bodies that are taken apart at once: what becomes of each is bounded, and so of all together."""

SWITCH_SECONDS = 0.001
"""After which a thread gives way to the event loop, which waits so long for each step of each request."""

LONGEST_AGENT = 120

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
        if size > self._held and self._all.held + size - self._held > self._all.limit:
            self.expect(size - self._held)
        self._all.held += size - self._held
        self._held = size

    def expect(self, size: int) -> None:
        """Raises `Refused` when there would be no room for so many more bytes now."""
        held, limit = self._all.held, self._all.limit
        if held + size > limit:
            message = f"requests hold {held:,} bytes already, of at most {limit:,} together"
            raise Refused("unavailable", message)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """It holds nothing any more."""
        self._all.held -= self._held
        self._held = 0


def share_of(request: Request) -> Share:
    share: Share = request.state.share
    return share


async def body_of(request: Request, limit: int) -> bytes:
    """The whole body of a request, held as its share. Raises `Refused`."""
    length, share = request.headers.get("content-length", ""), request.state.share
    if length.isascii() and length.isdigit():
        if int(length) > limit:
            raise _too_large(limit)
        share.expect(int(length))
    held: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            # As soon as it is known.
            raise _too_large(limit)
        if chunk:
            share.hold(size)
            held.append(chunk)
    return b"".join(held)


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


READING = frozenset({"GET", "HEAD"})
BEARER = 'Bearer realm="groundwatch"'
BASIC = 'Basic realm="groundwatch", charset="UTF-8"'


def media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def is_json(request: Request) -> bool:
    """Whether the same is asked for as JSON that a page shows."""
    return request.url.path.startswith("/v1/")


def check_encoding(request: Request) -> None:
    """Raises `Refused` for a body that is compressed."""
    if encoding := request.headers.get("content-encoding", "").lower().replace("identity", ""):
        message = f"Content-Encoding {encoding} is not read; send it uncompressed"
        raise Refused("media_type", message)


def json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(ENCODER.encode(content), status, headers, "application/json")


def some_of(value: object, *names: str) -> dict[str, Any]:
    """These of its fields."""
    return {name: getattr(value, name) for name in names}


def problem(status: int, message: str, headers: dict[str, str] | None = None, **more: Any) -> Response:
    return json({"error": one_line(message), **more}, status, headers)


async def when_refused(request: Request, error: Exception) -> Response:
    refused = refusal_of(error)
    headers = {}
    if refused.passing:
        headers["Retry-After"] = str(refused.retry_after)
    if refused.reason == "slow":
        # What still comes from a slow sender belongs to no request.
        headers["Connection"] = "close"
    if refused.reason == "unauthenticated":
        # A browser then asks its user, but not for what a page of ours loads; whoever writes must say who
        # they are by themselves.
        mode = request.headers.get("sec-fetch-mode", "navigate")
        ways = (BASIC, BEARER) if request.method in READING and mode == "navigate" else (BEARER,)
        headers["WWW-Authenticate"] = ", ".join(ways)
    return json(refused.told() | refused.details, refused.status.http, headers)


async def when_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code == 404:
        return problem(404, f"nothing is at {request.url.path}", headers)
    if error.status_code == 405:
        allowed = headers.get("Allow", "another method")
        return problem(405, f"{request.method} is not for {request.url.path}: use {allowed}", headers)
    return problem(error.status_code, str(error.detail), headers)


LANGFUSE = "/api/public/"
"""Where Langfuse's SDK sends: with a key as name and a token as password. No browser sends that by itself."""

WITH_PASSWORD = (LANGFUSE, "/v1/cloudevents")
"""The same of those who can only set an address, and put the token there."""

FORM = "application/x-www-form-urlencoded"


PROXY_TOKEN = "x-groundwatch-token"
"""Of a call that is passed on: `Authorization` is for where it goes."""


class Entrance:
    """Says to the application who calls, or why nobody knows: each route has what it needs. Gives every
    request its share of what is `held`, and cuts those whose sender is too slow.

    Below `proxied` callers say who they are in a header of their own.
    """

    def __init__(
        self, app: ASGIApp, access: Access, held: Held, limits: HttpSettings, proxied: Iterable[str] = ()
    ) -> None:
        """Over `body_timeout` seconds of waiting for a body, `min_rate` bytes a second must come."""
        self._app = app
        self._access = access
        self._held = held
        self._timeout = limits.body_timeout
        self._least = max(1.0, limits.min_rate * limits.body_timeout)
        self._proxied = tuple(f"/{name}/" for name in proxied)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        state["in_session"] = False
        try:
            state["caller"] = self._caller(scope)
        except Refused as error:
            state["caller"] = error
        with Share(self._held) as share:
            state["share"] = share
            await self._app(scope, self._timed(receive), send)

    def _timed(self, receive: Receive) -> Receive:
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

        return timed

    def _caller(self, scope: Scope) -> Caller:
        client = scope.get("client")
        host = client[0] if client else ""
        if not self._access.asks:
            return self._access.unasked(host)
        if scope["path"].startswith(self._proxied):
            if token := Headers(scope=scope).get(PROXY_TOKEN):
                return self._access.tokens.caller(token.strip())
            message = f"send a token as '{PROXY_TOKEN}: TOKEN': 'authorization' is for the API behind this"
            raise Refused("unauthenticated", message)
        said = Headers(scope=scope).get("authorization")
        if said is None and (caller := self._access.in_session(scope["session"])) is not None:
            scope["state"]["in_session"] = True
            return caller
        if said is not None and (scope["method"] in READING or scope["path"].startswith(WITH_PASSWORD)):
            kind, _, rest = said.partition(" ")
            if kind.lower() == "basic":
                return self._access.tokens.caller(_password(rest))
        return self._access.bearer(said, host)


def caller_of(request: Request) -> Caller:
    """Who calls. Raises `Refused` where nobody knows, which only happens at what is open to anybody."""
    caller: Caller | Refused = request.state.caller
    if isinstance(caller, Refused):
        raise caller
    client = request.client
    peer = f"{client.host}:{client.port}" if client else ""
    agent = one_line(request.headers.get("user-agent", "")[:LONGEST_AGENT])
    return msgspec.structs.replace(caller, peer=peer, agent=agent)


def known_caller(request: Request) -> Caller | None:
    """Who calls, or None where nobody knows."""
    return None if isinstance(request.state.caller, Refused) else caller_of(request)


def _password(encoded: str) -> str:
    """The password of a browser's user; the name is theirs to choose."""
    try:
        return base64.b64decode(encoded.strip(), validate=True).decode("utf-8").partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""


class Guard:
    """Answers for exceptions; a caller who went away is no error.

    While `closing`, every answer is its connection's last: whoever keeps one open would otherwise send on it
    at the moment in which it ends.
    """

    closing = False

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                if self.closing:
                    MutableHeaders(scope=message)["Connection"] = "close"
            try:
                await send(message)
            except RuntimeError as error:
                # uvloop's word for a connection that was cut before uvicorn heard of it.
                if "handler is closed" not in str(error):
                    raise
                raise ClientDisconnect from error

        try:
            await self._app(scope, receive, watched)
        except ClientDisconnect:
            return
        except Exception as error:
            logger.error("gateway.request", path=scope.get("path"), error=repr(error), exc_info=error)
            if not started:
                await problem(500, "the gateway failed; its log says why")(scope, receive, send)


class Streamed(StreamingResponse):
    """Says when it is over, however that comes."""

    def __init__(self, over: Callable[[], None], content: AsyncIterator[bytes], **options: Any) -> None:
        super().__init__(content, **options)
        self._over = over

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._over()


class Route(routing.Route):
    """Serves who meets `need`; what answers GET answers HEAD."""

    def __init__(self, path: str, endpoint: Any, need: Need, methods: Sequence[str] = ("GET",)) -> None:
        super().__init__(path, endpoint, methods=list(methods))
        self.need = need

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        served = self.methods and scope["method"] in self.methods
        check_caller(scope, self.need if served or self.need.role == "anybody" else KNOWN)
        await super().handle(scope, receive, send)


def check_caller(scope: Scope, need: Need) -> None:
    """Raises `Refused` where the caller may not."""
    scope["state"]["need"] = need
    caller: Caller | Refused = scope["state"]["caller"]
    if need.role != "anybody":
        if isinstance(caller, Refused):
            raise caller
        caller.check(need)


def known_alone(app: ASGIApp) -> ASGIApp:
    """What answers for addresses at which nothing is: only who is known is told so."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        check_caller(scope, KNOWN_PAGE)
        await app(scope, receive, send)

    return guarded
