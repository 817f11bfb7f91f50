"""Routes with what their callers must be: none is served without."""

from collections.abc import Sequence
from typing import Any

from starlette import routing
from starlette.types import ASGIApp, Receive, Scope, Send

from groundwatch.gateway.access.roles import Need
from groundwatch.gateway.callers import Caller
from groundwatch.gateway.refusals import Refused


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
