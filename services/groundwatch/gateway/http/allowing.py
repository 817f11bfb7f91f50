"""Routes that are served to whoever may: none without its line in the table of roles."""

from collections.abc import Iterable, Sequence

from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from groundwatch.gateway.access.roles import ROUTES, Need, needs_of
from groundwatch.gateway.callers import Caller
from groundwatch.gateway.refusals import Refused


def may_call(scope: Scope, need: Need | None) -> None:
    """Raises `Refused` where the caller may not; with None whoever is known may."""
    scope["state"]["need"] = need
    if need is not None and need.role == "anybody":
        return
    found: Caller | Refused = scope["state"]["caller"]
    if isinstance(found, Refused):
        raise found
    if need is not None:
        found.check(need)


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
