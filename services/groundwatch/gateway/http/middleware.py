"""The layers around the gateway's HTTP API that answer by themselves: who calls, and what failed."""

import base64
import binascii
from collections.abc import Callable

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from groundwatch.gateway.access.access import Access
from groundwatch.gateway.callers import Caller
from groundwatch.gateway.http.replies import READING, problem
from groundwatch.gateway.refusals import Refused
from groundwatch.runtime.telemetry.logs import logger

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
