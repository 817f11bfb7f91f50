"""`GET /v1/answers`: what the page of answers shows, for programs."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from groundwatch.gateway.access.roles import VIEW
from groundwatch.gateway.answers.search import AnswerPage
from groundwatch.gateway.callers import Caller
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.http.middleware import caller_of
from groundwatch.gateway.http.replies import json
from groundwatch.gateway.http.routing import Route
from groundwatch.gateway.refusals import Refused
from groundwatch.reporting.answers import MOST, AnswerQuery, TooSlow, WrongFilter, read_cursor, read_query

OWN = ("badness", "doubt", "moment", "stream", "sequence")
"""What only this gateway can make something of."""


class AnswerRoutes:
    def __init__(self, core: GatewayCore) -> None:
        self._core = core

    def routes(self) -> list[Route]:
        return [Route("/v1/answers", self.answers, VIEW)]

    async def answers(self, request: Request) -> Response:
        caller = caller_of(request)
        try:
            query = query_of(request, caller)
            page = await search(self._core, query, request)
        except TooSlow as error:
            raise Refused("too_slow", str(error)) from error
        except WrongFilter as error:
            raise Refused("invalid", str(error), field=error.field) from error
        told = {
            "answers": [_plain(hit, caller) for hit in page.hits],
            "cursor": page.cursor,
            "searched_to": page.searched_to,
            "reading": page.reading,
        }
        return json(told, headers={"Cache-Control": "no-store"})


def query_of(request: Request, caller: Caller) -> AnswerQuery:
    """What a request asks for, as far as its caller may. Raises `WrongFilter`, `Refused`."""
    query = read_query(request.query_params, time.time())
    return msgspec.structs.replace(query, tenant=caller.tenant(query.tenant), run=caller.full_run(query.run))


async def search(core: GatewayCore, query: AnswerQuery, request: Request, most: int = MOST) -> AnswerPage:
    """Raises what `AnswerSearch.search` raises, and `WrongFilter` for a cursor that is none."""
    after = read_cursor(request.query_params.get("cursor", ""), query.order)
    return await core.answers.search(query, after, most)


def _plain(hit: Any, caller: Caller) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(hit)
    for name in OWN:
        del told[name]
    return told | {
        "run": caller.in_words(hit.run),
        "recorded_at": hit.recorded_at,
        "uncertainty": hit.doubtful,
    }
