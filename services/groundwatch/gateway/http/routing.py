"""What every route has: what its callers must be, who calls, and how replies and errors are written."""

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from starlette import routing
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from groundwatch.gateway.auth import Access, Caller, Need
from groundwatch.gateway.refusals import Refused, one_line, refusal_of
from groundwatch.runtime.delivery.bus import ENCODER
from groundwatch.runtime.telemetry.logs import logger

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


class AuthMiddleware:
    """Says to the application who calls, or why nobody knows: each route has what it needs."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            state = scope.setdefault("state", {})
            state["in_session"] = False
            try:
                state["caller"] = self._caller(scope)
            except Refused as error:
                state["caller"] = error
        await self._app(scope, receive, send)

    def _caller(self, scope: Scope) -> Caller:
        client = scope.get("client")
        host = client[0] if client else ""
        if not self._access.asks:
            return self._access.unasked(host)
        said = Headers(scope=scope).get("authorization")
        if said is None and (caller := self._access.in_session(HTTPConnection(scope).cookies)) is not None:
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
    return msgspec.structs.replace(caller, peer=f"{client.host}:{client.port}" if client else "")


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

    def __init__(self, app: ASGIApp, closing: Callable[[], bool]) -> None:
        self._app = app
        self._closing = closing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                if self._closing():
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


class Route(routing.Route):
    """Serves who meets `need`; what answers GET answers HEAD."""

    def __init__(self, path: str, endpoint: Any, need: Need, methods: Sequence[str] = ("GET",)) -> None:
        super().__init__(path, endpoint, methods=list(methods))
        self.need = need

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.methods and scope["method"] in self.methods:
            check_caller(scope, self.need)
        elif self.need.role != "anybody":
            check_caller(scope, None)
        await super().handle(scope, receive, send)


def check_caller(scope: Scope, need: Need | None) -> None:
    """Raises `Refused` where the caller may not; with None whoever is known may."""
    scope["state"]["need"] = need
    if need is not None and need.role == "anybody":
        return
    caller: Caller | Refused = scope["state"]["caller"]
    if isinstance(caller, Refused):
        raise caller
    if need is not None:
        caller.check(need)


def known_alone(app: ASGIApp) -> ASGIApp:
    """What answers for addresses at which nothing is: only who is known is told so."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        check_caller(scope, None)
        await app(scope, receive, send)

    return guarded
