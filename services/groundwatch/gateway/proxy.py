"""Calls passed on to the API of a model, as they are, and recorded on their way."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Iterable
from typing import Literal

import httpx
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from groundwatch.conversations.openai import read_exchange
from groundwatch.errors import GroundwatchError
from groundwatch.gateway.auth import SEND, Caller
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.http.requests import Held, Route, Share, Streamed, caller_of, problem
from groundwatch.gateway.refusals import Refused, refusal_of
from groundwatch.runtime.telemetry.logs import logger

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")

READ = ("/chat/completions", "/completions", "/responses", "/messages")
"""How the addresses end at which a model answers; what goes to others, or to threads, passes alone."""

OWN = "x-groundwatch-"
"""With which headers begin that are for the gateway."""

OF_A_CONNECTION = frozenset(
    {
        "connection",
        "date",
        "expect",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "server",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that are between two neighbours alone, and two that every server says of itself."""

COOKIES = frozenset({"cookie", "set-cookie"})
"""A session of the gateway's pages is no business of the other API, nor is one there of the gateway's."""

DECODED = (b"gzip", b"deflate")
"""Encodings of an answer that can be read on its way: no other is asked for."""

CONNECT_SECONDS = 10.0
KEPT_OPEN = 100
PATIENCE = 60.0
"""Seconds over which a call that cannot be recorded now is tried again."""

MOST_WAITING = 1_000
"""Calls that have ended and are not recorded yet."""

Side = Literal["request", "response"]


class Exchange:
    """A copy of what passes, unless that is more than may be held: then `refused` says why there is none."""

    def __init__(self, held: Held, most: int) -> None:
        self._share = Share(held)
        self._most = most
        self._size = 0
        self._sides: dict[Side, list[bytes]] = {"request": [], "response": []}
        self.refused: Refused | None = None

    def add(self, side: Side, chunk: bytes) -> None:
        if self.refused is not None:
            return
        self._size += len(chunk)
        try:
            if self._size > self._most:
                raise Refused("too_large", f"the call has more than {self._most} bytes")
            self._share.hold(self._size)
        except Refused as error:
            self.refused = error
            self.release()
        else:
            self._sides[side].append(chunk)

    def body(self, side: Side) -> bytes:
        return b"".join(self._sides[side])

    def release(self) -> None:
        self._share.hold(0)
        for held in self._sides.values():
            held.clear()


class Proxy:
    """`/NAME/…` for every upstream that is named. Whatever becomes of recording, the call passes."""

    def __init__(self, core: GatewayCore) -> None:
        self._core = core
        self._settings = core.settings.proxy
        # Apart from what others hold: a model may take minutes to answer.
        self._held = Held(core.settings.http.max_receiving)
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(self._settings.timeout, connect=CONNECT_SECONDS),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=KEPT_OPEN),
        )
        self._recording: set[asyncio.Task[None]] = set()

    def routes(self) -> list[Route]:
        return [
            Route(f"/{name}/{{path:path}}", self.pass_on, SEND, methods=METHODS)
            for name in self._settings.upstreams
        ]

    async def drain(self, timeout: float) -> None:
        """Record what has passed, for `timeout` seconds."""
        if self._recording:
            await asyncio.wait(self._recording, timeout=timeout)
        if lost := len(self._recording):
            logger.warning("gateway.proxy_lost", calls=lost, reason="the gateway ended")
            self._core.metrics.lost_before_intake.labels("exit").inc(lost)
        for task in self._recording:
            task.cancel()
        await self._client.aclose()

    async def pass_on(self, request: Request) -> Response:
        name, _, path = request.scope["path"].lstrip("/").partition("/")
        if ".." in path.split("/"):
            raise Refused("invalid", "leads elsewhere: leave out '..'", field="path")
        exchange = None
        if request.method == "POST" and path.endswith(READ) and "threads/" not in path:
            exchange = Exchange(self._held, self._core.settings.max_whole)

        async def body() -> AsyncIterator[bytes]:
            async for chunk in request.stream():
                if exchange is not None:
                    exchange.add("request", chunk)
                yield chunk

        sent = httpx.Request(
            request.method,
            self._address(name, request),
            headers=_asked(request.headers.raw),
            content=body() if {"content-length", "transfer-encoding"} & set(request.headers) else None,
        )
        try:
            answer = await self._client.send(sent, stream=True)
        except httpx.HTTPError as error:
            if exchange is not None:
                exchange.release()
            logger.warning("gateway.proxy", upstream=name, error=repr(error))
            status = 504 if isinstance(error, httpx.TimeoutException) else 502
            why = f"({type(error).__name__}): gateway.proxy.upstreams says where it is"
            return problem(status, f"the upstream '{name}' does not answer {why}")
        except BaseException:
            if exchange is not None:
                exchange.release()
            raise
        caller = caller_of(request)

        async def passed() -> AsyncIterator[bytes]:
            try:
                async for chunk in answer.aiter_raw():
                    if exchange is not None:
                        exchange.add("response", chunk)
                    yield chunk
            except httpx.HTTPError as error:
                # The caller sees an answer that is cut off, as without us.
                logger.warning("gateway.proxy", upstream=name, error=repr(error))
                raise ClientDisconnect from error

        def over() -> None:
            task = asyncio.create_task(self._finish(answer, exchange, caller), name="proxy-record")
            self._recording.add(task)
            task.add_done_callback(self._recording.discard)

        response = Streamed(over, passed(), status_code=answer.status_code)
        response.raw_headers = [(key.lower(), value) for key, value in answer.headers.raw if _passes(key)]
        return response

    def _address(self, name: str, request: Request) -> httpx.URL:
        raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
        target = raw.lstrip(b"/").partition(b"/")[2]
        base = httpx.URL(self._settings.upstreams[name].rstrip("/") + "/")
        query = request.scope["query_string"]
        return base.copy_with(raw_path=base.raw_path + target + (b"?" + query if query else b""))

    async def _finish(self, answer: httpx.Response, exchange: Exchange | None, caller: Caller) -> None:
        """Record a call that is over. Nobody waits for it, so that a failure is counted and logged."""
        await answer.aclose()
        if exchange is None:
            return
        try:
            if not answer.is_success:
                self._core.logged.count("proxy", "ignored")
            elif exchange.refused is not None:
                await self._lose(caller, exchange.refused)
            elif len(self._recording) > MOST_WAITING:
                await self._lose(caller, Refused("unavailable", f"{MOST_WAITING} calls wait to be recorded"))
            else:
                await self._record(answer, exchange, caller)
        except Exception as error:
            logger.error("gateway.proxy", error=repr(error), exc_info=error)
            await self._lose(caller, Refused("unavailable", "the gateway failed; its log says why"))
        finally:
            exchange.release()

    async def _record(self, answer: httpx.Response, exchange: Exchange, caller: Caller) -> None:
        deadline = time.monotonic() + PATIENCE
        # Of what names itself by nothing, so that it is in the ledger, as declined.
        name = secrets.token_hex(16)
        while True:
            try:
                call = await self._core.threads.run(
                    caller.sender, read_exchange, exchange.body("request"), _decoded(answer, exchange)
                )
                ended = await self._core.logged.record_or_decline(call, caller, "proxy", name=name)
            except GroundwatchError as error:
                ended = refusal_of(error)
            if not isinstance(ended, Refused) or not ended.passing:
                return
            if time.monotonic() + ended.retry_after > deadline:
                await self._lose(caller, ended)
                return
            await asyncio.sleep(ended.retry_after)

    async def _lose(self, caller: Caller, refused: Refused) -> None:
        reason = "too_large" if refused.reason == "too_large" else "gave_up"
        logger.warning("gateway.proxy_lost", tenant=caller.only, reason=refused.message)
        self._core.logged.count("proxy", "refused")
        await self._core.lose(caller.tenant(""), "proxy", reason)


def _asked(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers of a request as they are passed on."""
    asked = []
    for key, value in headers:
        if key.lower() == b"accept-encoding":
            value = b", ".join(one for one in DECODED if one in value.lower()) or b"identity"
        if _passes(key):
            asked.append((key, value))
    return asked


def _passes(key: bytes) -> bool:
    name = key.decode("latin-1").lower()
    return name not in OF_A_CONNECTION and name not in COOKIES and not name.startswith(OWN)


def _decoded(answer: httpx.Response, exchange: Exchange) -> bytes:
    encoding = {"content-encoding": answer.headers.get("content-encoding", "identity")}
    try:
        return httpx.Response(200, headers=encoding, content=exchange.body("response")).content
    except httpx.DecodingError:
        # Not what its header says. Of one that was cut off there is what came.
        return b""
