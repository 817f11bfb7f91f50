"""Answers, as a page and as JSON: a search whose every filter stands in the address."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from groundwatch.events import DEFAULT_TENANT, LIVE
from groundwatch.gateway.answers import AnswerPage
from groundwatch.gateway.auth import VIEW, Caller
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.http.routing import Route, caller_of, is_json, json
from groundwatch.gateway.pages.answer import marked_sentence
from groundwatch.gateway.pages.rendering import Pages, address, answer_address
from groundwatch.gateway.refusals import Refused
from groundwatch.reporting.answers import (
    MOST,
    ORDERS,
    VERDICTS,
    AnswerQuery,
    Hit,
    TooSlow,
    WrongFilter,
    read_cursor,
    read_query,
)

SHOWN = 25
"""Answers of a page."""

FILTERS = {
    "q": "words",
    "model": "model",
    "version": "version",
    "protocol": "protocol",
    "category": "category",
    "verdict": "verdict",
    "tag": "tag",
    "since": "since",
    "until": "until",
    "run": "run",
    "tenant": "tenant",
    "id": "id",
}
"""Filters as the address has them, and what they are called."""

FIRST = ("q", "model", "verdict", "category")
"""Filters that are shown at once."""

OWN = ("badness", "doubt", "moment", "stream", "sequence")
"""What only this gateway can make something of."""

ORDER_NAMES = {"newest": "Newest", "worst": "Worst", "uncertain": "Least certain"}


class Chip(msgspec.Struct, frozen=True):
    """A filter that is in force, and the address without it."""

    name: str
    value: str
    without: str


class AnswersRoutes:
    def __init__(self, core: GatewayCore, pages: Pages) -> None:
        self._core = core
        self._pages = pages

    def routes(self) -> list[Route]:
        return self._pages.both("/answers", self.list_answers, VIEW)

    async def list_answers(self, request: Request) -> Response:
        caller = caller_of(request)
        query, found, wrong = AnswerQuery(), AnswerPage(hits=[]), None
        try:
            query = query_of(request, caller)
            after = read_cursor(request.query_params.get("cursor", ""), query.order)
            found = await self._core.answers.search(query, after, MOST if is_json(request) else SHOWN)
        except TooSlow as error:
            wrong = Refused("too_slow", str(error))
        except WrongFilter as error:
            wrong = Refused("invalid", str(error), field=error.field)
        if not is_json(request):
            return self._page(request, caller, query, found, wrong)
        if wrong is not None:
            raise wrong.but()
        page = {
            "answers": [_plain(hit, caller) for hit in found.hits],
            "cursor": found.cursor,
            "searched_to": found.searched_to,
            "reading": found.reading,
        }
        return json(page, headers={"Cache-Control": "no-store"})

    def _page(
        self,
        request: Request,
        caller: Caller,
        query: AnswerQuery,
        found: AnswerPage,
        wrong: Refused | None,
    ) -> Response:
        told = {name: request.query_params.get(name, "").strip() for name in FILTERS}
        if caller.only is not None:
            told["tenant"] = ""
        order = request.query_params.get("order", "")
        own = dict(told, order=order if order in ORDERS and order != "newest" else "")
        return self._pages.render(
            request,
            "answers.html",
            status=wrong.status.http if wrong is not None else 200,
            told=told,
            names=FILTERS,
            first=FIRST,
            more=[name for name in FILTERS if name not in FIRST and not (name == "tenant" and caller.only)],
            open_more=any(told[name] for name in FILTERS if name not in FIRST),
            verdicts=VERDICTS,
            orders={
                name: address("/answers", **dict(own, order="" if name == "newest" else name))
                for name in ORDERS
            },
            order_names=ORDER_NAMES,
            order=query.order,
            chips=[
                Chip(FILTERS[name], value, address("/answers", **dict(own, **{name: ""})))
                for name, value in told.items()
                if value
            ],
            problem=wrong.message if wrong is not None else "",
            rows=[Row.of(hit, caller) for hit in found.hits],
            next=address("/answers", **own, cursor=found.cursor) if found.cursor else "",
            again=address("/answers", **own, cursor=request.query_params.get("cursor", "")),
            later=bool(request.query_params.get("cursor")),
            begin=address("/answers", **own),
            searched_to=found.searched_to,
            reading=found.reading,
        )


def query_of(request: Request, caller: Caller) -> AnswerQuery:
    """What a request asks for, as far as its caller may. Raises `WrongFilter`, `Refused`."""
    query = read_query(request.query_params, time.time())
    return msgspec.structs.replace(query, tenant=caller.tenant(query.tenant), run=caller.full_run(query.run))


def _plain(hit: Any, caller: Caller) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(hit)
    for name in OWN:
        del told[name]
    return told | {
        "run": caller.in_words(hit.run),
        "recorded_at": hit.recorded_at,
        "uncertainty": hit.doubtful,
    }


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """An answer in the list."""

    hit: Hit
    link: str
    sentence: object
    run: str
    tenant: str

    @classmethod
    def of(cls, hit: Hit, caller: Caller) -> Row:
        facts = [fact.text for fact in hit.facts if fact.unit == hit.facts[0].unit]
        run = caller.in_words(hit.run)
        tenant = "" if caller.only else hit.tenant
        return cls(
            hit=hit,
            link=answer_address(hit.id, tenant, run, hit.protocol),
            sentence=marked_sentence(hit.sentence, facts) if hit.sentence else "",
            run="" if run == LIVE else run,
            tenant="" if tenant == DEFAULT_TENANT else tenant,
        )
