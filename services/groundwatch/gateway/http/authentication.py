"""Who may call the HTTP API: before anything is read of a request, its token."""

import base64
import binascii

import msgspec
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from groundwatch.gateway.auth.callers import EVERYBODY, Caller, NotAllowed, Tokens
from groundwatch.gateway.http.replies import problem

OPEN = frozenset({"/healthz", "/readyz"})
"""What a kubelet asks, which has no token."""

FOR_ALL = {
    "/": "the page",
    "/metrics": "what is measured",
    "/v1/report": "the report",
    "/v1/alarms": "the list of alarms",
}
"""What shows all tenants beside each other."""

READING = frozenset({"GET", "HEAD"})
STATUS = {"unauthenticated": 401, "other_tenant": 403, "all_tenants": 403}
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
        if said is not None and scope["method"] in READING:
            kind, _, rest = said.partition(" ")
            if kind.lower() == "basic":
                return self._tokens.caller(_password(rest))
        return self._tokens.bearer(said)


def not_allowed(error: NotAllowed, headers: dict[str, str] | None = None) -> Response:
    """The refusal in the terms of HTTP."""
    return problem(
        STATUS[error.reason], error.message, headers=headers, reason=error.reason, field=error.field
    )


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
