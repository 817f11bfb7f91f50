"""The layers around the gateway's HTTP API that answer by themselves: who may come in, and what failed."""

import base64
import binascii
from collections.abc import Callable

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from groundwatch.gateway.callers import EVERYBODY, Caller, NotAllowed, Tokens
from groundwatch.gateway.http.replies import not_allowed, problem
from groundwatch.runtime.telemetry.logs import logger

OPEN = frozenset({"/healthz", "/readyz"})
"""What a kubelet asks, which has no token."""

FOR_ALL = {
    "/": "the page",
    "/metrics": "what is measured",
    "/v1/report": "the report",
    "/v1/alarms": "the list of alarms",
}
LANGFUSE = "/api/public/"
"""Where Langfuse's SDK sends: with a key as name and a token as password. No browser sends that by itself."""

WITH_PASSWORD = (LANGFUSE, "/v1/cloudevents")
"""The same of those who can only set an address, and put the token there."""

READING = frozenset({"GET", "HEAD"})
BEARER = 'Bearer realm="groundwatch"'
BASIC = 'Basic realm="groundwatch", charset="UTF-8"'


class AuthMiddleware:
    """Lets nobody in whose token is not known, and says to the application who it is."""

    def __init__(self, app: ASGIApp, tokens: Tokens) -> None:
        self._app = app
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if scope["type"] == "http" and self._tokens.wanted and path not in OPEN:
            try:
                caller = self._caller(scope)
                if path in FOR_ALL:
                    caller.for_all(FOR_ALL[path])
            except NotAllowed as error:
                headers = None
                if error.reason == "unauthenticated":
                    # A browser then asks its user; whoever writes must say who they are by themselves.
                    ways = (BASIC, BEARER) if scope["method"] in READING else (BEARER,)
                    headers = {"WWW-Authenticate": ", ".join(ways)}
                await not_allowed(error, headers)(scope, receive, send)
                return
            scope.setdefault("state", {})["caller"] = caller
        await self._app(scope, receive, send)

    def _caller(self, scope: Scope) -> Caller:
        said = Headers(scope=scope).get("authorization")
        if said is not None and (scope["method"] in READING or scope["path"].startswith(WITH_PASSWORD)):
            kind, _, rest = said.partition(" ")
            if kind.lower() == "basic":
                return self._tokens.caller(_password(rest))
        return self._tokens.bearer(said)


def caller_of(request: Request) -> Caller:
    caller: Caller = getattr(request.state, "caller", EVERYBODY)
    client = request.client
    return msgspec.structs.replace(caller, peer=f"{client.host}:{client.port}" if client else "")


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
