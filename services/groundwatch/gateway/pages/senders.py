"""Who has sent in the last minutes, and which setting mends what was missing in it."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from groundwatch.gateway.auth import VIEW
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.http.requests import Route, caller_of, is_json, json
from groundwatch.gateway.intake.senders import STRETCH
from groundwatch.gateway.pages.rendering import Pages


class SendersPage:
    """What this gateway knows; others know of what came to them."""

    def __init__(self, core: GatewayCore, pages: Pages) -> None:
        self._core = core
        self._pages = pages

    def routes(self) -> list[Route]:
        return self._pages.both("/connect", self.list_senders, VIEW)

    async def list_senders(self, request: Request) -> Response:
        tenant = caller_of(request).tenant(request.query_params.get("tenant", ""))
        senders = self._core.intake.senders.rows(tenant)
        if is_json(request):
            rows = [msgspec.structs.asdict(one) | {"problems": one.problems} for one in senders]
            return json({"seconds": STRETCH, "senders": rows})
        part = "senders_table.html" if request.query_params.get("part") == "senders" else "senders.html"
        return self._pages.render(request, part, senders=senders, seconds=STRETCH, here="/health")
