"""Routes that are served to whoever may: none without its line in the table of roles."""

import hmac
from collections.abc import Iterable, Sequence
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from groundwatch.gateway.access.roles import ROUTES, Need, needs_of
from groundwatch.gateway.callers import Caller, NotAllowed
from groundwatch.gateway.http.bodies import MAX_FORM, TooLarge, body_of
from groundwatch.gateway.http.middleware import FORM, READING
from groundwatch.gateway.http.replies import media_type


def may_call(scope: Scope, need: Need | None) -> None:
    """Raises `NotAllowed` where the caller may not; with None whoever is known may."""
    scope["state"]["need"] = need
    if need is not None and need.role == "anybody":
        return
    found: Caller | NotAllowed = scope["state"]["caller"]
    if isinstance(found, NotAllowed):
        raise found
    if need is not None:
        found.check(need)


async def from_own_page(scope: Scope, receive: Receive) -> Receive:
    """Raises `NotAllowed` for a change that a session asks for without its CSRF token.

    A form has it in a field: what was read of it is given to the application again.
    """
    wanted = scope["state"].get("csrf_token", "")
    if not wanted or scope["method"] in READING:
        return receive
    request = Request(scope, receive)
    given = request.headers.get("x-csrf-token", "")
    if not given and media_type(request) == FORM:
        body = await body_of(request, MAX_FORM)
        if not isinstance(body, TooLarge):
            given = parse_qs(body.decode("utf-8", "replace")).get("csrf_token", [""])[0]
            receive = _again(body, receive)
    if not hmac.compare_digest(wanted.encode(), given.encode("utf-8", "replace")):
        raise NotAllowed("csrf", "send the session's CSRF token as X-CSRF-Token, or load the page again")
    return receive


def _again(body: bytes, receive: Receive) -> Receive:
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return messages.pop() if messages else await receive()

    return replayed


class AllowedRoute(BaseRoute):
    """A route behind what each of its methods needs."""

    def __init__(self, route: Route, needs: dict[str, Need]) -> None:
        self._route = route
        self.path = route.path
        self.needs = needs
        self._open = all(need.role == "anybody" for need in needs.values())

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return self._route.matches(scope)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        need = self.needs.get("GET" if scope["method"] == "HEAD" else scope["method"])
        if not (need is None and self._open):
            may_call(scope, need)
        if need is not None and need.role != "anybody":
            receive = await from_own_page(scope, receive)
        await self._route.handle(scope, receive, send)


def allowed(routes: Iterable[BaseRoute]) -> Sequence[AllowedRoute]:
    """The routes, each behind what it needs. Raises `LookupError` for one that is not in the table."""
    found = []
    for route in routes:
        if not isinstance(route, Route):
            raise LookupError(f"{route!r} is no route with a path and methods of its own")
        methods = (route.methods or {"GET"}) - {"HEAD"}
        needs = needs_of(ROUTES, [(method, route.path) for method in sorted(methods)])
        found.append(AllowedRoute(route, {method: need for (method, _), need in needs.items()}))
    return found


def known_alone(app: ASGIApp) -> ASGIApp:
    """What answers for addresses at which nothing is: only who is known is told so."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        may_call(scope, None)
        await app(scope, receive, send)

    return guarded
