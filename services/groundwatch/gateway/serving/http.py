"""`POST /v1/cloudevents`: where KServe's logger sends requests and responses."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from groundwatch.gateway.access.roles import SEND
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.http.bodies import body_of
from groundwatch.gateway.http.middleware import caller_of
from groundwatch.gateway.http.replies import check_encoding, json, media_type
from groundwatch.gateway.http.routing import Route
from groundwatch.gateway.joining import Joiner
from groundwatch.gateway.refusals import Refused, one_line
from groundwatch.gateway.serving.events import BATCH, read_events
from groundwatch.gateway.serving.exchanges import Ended, Exchanges


class CloudEventRoutes:
    def __init__(self, core: GatewayCore, joiner: Joiner) -> None:
        self._core = core
        self._exchanges = Exchanges(core, joiner)

    def routes(self) -> list[Route]:
        return [Route("/v1/cloudevents", self.post_events, SEND, methods=["POST"])]

    async def post_events(self, request: Request) -> Response:
        """Take one event, or a batch. 200 and not 202, which KServe's logger takes for an error."""
        check_encoding(request)
        kind = media_type(request)
        try:
            body = await body_of(request, self._core.settings.logged_calls.max_batch)
            events = read_events(kind, request.headers, body)
        except Refused as error:
            self._core.logged.count("kserve", "refused")
            self._core.intake.refuse(error)
            raise
        caller, tenant = caller_of(request), request.query_params.get("tenant", "")
        ended: list[Ended] = []
        for event in events:
            if isinstance(event, Refused):
                self._core.logged.count("kserve", "refused")
                ended.append(self._core.intake.refuse(event))
            else:
                ended.append(await self._exchanges.take(event, caller, tenant))
        if kind == BATCH:
            return json([_told(one) for one in ended])
        [one] = ended
        if isinstance(one, Refused):
            raise one
        return json(one)


def _told(ended: Ended) -> Any:
    if not isinstance(ended, Refused):
        return ended
    told = {"id": ended.id, "status": "refused", "reason": ended.reason, "field": ended.field}
    return {name: value for name, value in told.items() if value} | {"error": one_line(ended.message)}
