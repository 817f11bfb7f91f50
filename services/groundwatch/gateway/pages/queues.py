"""Queues, as pages and as JSON: all there are, one with its items, and the page on which one reviews."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, get_args
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from groundwatch.errors import InputError, UsageError
from groundwatch.events import Decision
from groundwatch.gateway.access.roles import OPERATE, REVIEW_PAGE, VIEW, VIEW_PAGE
from groundwatch.gateway.callers import Caller
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.http.bodies import MAX_JSON, body_of, form_of
from groundwatch.gateway.http.middleware import caller_of
from groundwatch.gateway.http.replies import is_json, json
from groundwatch.gateway.http.review import find_queue, may_see
from groundwatch.gateway.http.routing import Route
from groundwatch.gateway.pages.rendering import Pages
from groundwatch.gateway.refusals import Refused
from groundwatch.protocols import registry
from groundwatch.reporting.corrected import EVERY_VERSION, CorrectedRow
from groundwatch.reviews.agreement import Agreement, read_agreement
from groundwatch.reviews.corrected import read_corrected
from groundwatch.reviews.frames import Frame, Frames
from groundwatch.reviews.items import PAGE, holding
from groundwatch.reviews.opinions import ALL
from groundwatch.reviews.queues import Queues, QueueSpec, Rule, read_spec
from groundwatch.times import read_moment

RULES: dict[Rule, str] = {
    "random": "every answer alike",
    "uncertain": "answers whose judge is unsure first",
    "disagreement": "answers of which judges disagree first",
    "alarm": "the answers behind an alarm",
    "all": "every answer that the filters leave",
}
"""What each rule draws, in words."""

PROBABILITIES: dict[Rule, str] = {
    "random": "Each answer has the same probability of being drawn.",
    "uncertain": "The less sure the judge is of an answer's facts, the likelier it is drawn, in proportion.",
    "disagreement": "An answer on which judges disagree is four times as likely to be drawn as another.",
    "alarm": "Each answer behind the alarm has the same probability of being drawn.",
    "all": "Each answer that the filters leave is drawn: its probability is 1.",
}


class QueueRoutes:
    def __init__(self, core: GatewayCore, pages: Pages) -> None:
        self._core = core
        self._pages = pages
        self._queues = Queues(core.bus)
        self._frames = Frames(core.bus)

    def routes(self) -> list[Route]:
        page = self._pages.route
        return [
            page("/queues", self.list, VIEW_PAGE),
            page("/queues", self.create, OPERATE, ["POST"]),
            page("/queues/{name}", self.show, VIEW_PAGE),
            page("/queues/{name}/close", self.close, OPERATE, ["POST"]),
            page("/review/{name}", self.review, REVIEW_PAGE),
            Route("/v1/queues", self.list, VIEW),
            Route("/v1/queues", self.create, OPERATE, ["POST"]),
            Route("/v1/queues/{name}", self.show, VIEW),
            Route("/v1/queues/{name}/close", self.close, OPERATE, ["POST"]),
        ]

    async def list(self, request: Request) -> Response:
        if is_json(request):
            caller = caller_of(request)
            return json(
                {"queues": [await self._described(spec, caller) for spec in await self._seen(caller)]}
            )
        return await self._list(request, dict(request.query_params))

    async def create(self, request: Request) -> Response:
        """A new queue; what is wrong with one from the form of the page is told beside what was written."""
        caller = caller_of(request)
        if is_json(request):
            spec = await self._create(read_spec(await body_of(request, MAX_JSON)), caller)
            return json(await self._described(spec, caller), 201)
        written = await form_of(request)
        try:
            spec = await self._create(_spec(written), caller)
        except (UsageError, InputError) as error:
            return await self._list(request, written, str(error))
        return _to(spec.name)

    async def _create(self, spec: QueueSpec, caller: Caller) -> QueueSpec:
        tenant, by = caller.tenant(spec.tenant), caller.name or spec.created_by[:128]
        if caller.only is not None and spec.alarm:
            message = "alarms are about all tenants, and this token is good for one alone"
            raise Refused("all_tenants", message)
        return await self._queues.create(msgspec.structs.replace(spec, tenant=tenant, created_by=by))

    async def close(self, request: Request) -> Response:
        spec, caller = await find_queue(self._queues, request), caller_of(request)
        if caller.only not in (None, spec.tenant):
            raise Refused("other_tenant", "this queue is about all tenants")
        spec = await self._queues.close(spec.name)
        return json(await self._described(spec, caller)) if is_json(request) else _to(spec.name)

    async def _seen(self, caller: Caller) -> Sequence[QueueSpec]:
        return [spec for spec in await self._queues.list() if may_see(caller, spec)]

    async def _described(self, spec: QueueSpec, caller: Caller) -> dict[str, Any]:
        progress = await self._queues.progress(spec.name, caller.only or "")
        mine = caller.only in (None, spec.tenant)
        # By the salt one knows what will be drawn, of others' answers too.
        shown = spec if mine else msgspec.structs.replace(spec, salt="", mean_uncertainty=0.0)
        told: dict[str, Any] = {"queue": shown, "progress": progress}
        if mine:
            frame, _ = await self._frames.load(spec.name)
            told |= {"frame": frame.size, "complete": frame.complete}
        return told

    async def _list(self, request: Request, written: Mapping[str, str], wrong: str = "") -> Response:
        caller = caller_of(request)
        specs = await self._seen(caller)
        progress = await asyncio.gather(
            *(self._queues.progress(spec.name, caller.only or "") for spec in specs)
        )
        rows = await self._corrected(caller)
        return self._pages.render(
            request,
            "queues.html",
            status=422 if wrong else 200,
            queues=list(zip(specs, progress, strict=True)),
            corrected={spec.name: _headlines(rows, spec.name) for spec in specs},
            rules=RULES,
            protocols=registry.names(),
            decisions=[one.value for one in Decision],
            alarms=[one.alarm for one in self._core.live.raised] if caller.only is None else [],
            written=written,
            wrong=wrong,
            open_form=bool(wrong or written.get("rule")),
        )

    async def show(self, request: Request) -> Response:
        caller = caller_of(request)
        spec = await find_queue(self._queues, request)
        if is_json(request):
            return json(await self._described(spec, caller))
        after = request.query_params.get("after", "")
        only = caller.only or ""
        progress, items, (frame, _) = await asyncio.gather(
            self._queues.progress(spec.name, only),
            self._queues.items.list(spec.name, tenant=only, after=after, limit=PAGE),
            self._frames.load(spec.name),
        )
        now = time.time()
        mine = caller.only in (None, spec.tenant)
        return self._pages.render(
            request,
            "queue.html",
            spec=spec,
            progress=progress,
            # From how many it is drawn, and how likely each was, tells how many answers all tenants have.
            frame=frame if mine else Frame(),
            mine=mine,
            corrected=[row for row in await self._corrected(caller) if row.queue == spec.name],
            agreement=await self._agreement(caller, spec),
            items=[(item, list(holding(item, now))) for item in items],
            more=items[-1].key if len(items) == PAGE else "",
            after=after,
            rule=RULES[spec.rule],
            probabilities=PROBABILITIES[spec.rule],
            waits_for_drawing=not spec.closed and spec.size > 0 and not frame.complete,
        )

    async def review(self, request: Request) -> Response:
        spec = await find_queue(self._queues, request)
        try:
            sees = registry.get(spec.protocol).sees
        except UsageError:
            sees = {}
        categories = {category for named in sees.values() for category in named}
        return self._pages.render(
            request,
            "review.html",
            here="/queues",
            queue=spec.name,
            categories=[*sorted(categories), "other"],
            # A link of another site takes no item: the reviewer does, by a button.
            asks=request.headers.get("sec-fetch-site", "none") in ("cross-site", "same-site"),
        )

    async def _corrected(self, caller: Caller) -> Sequence[CorrectedRow]:
        """They are of all tenants."""
        return () if caller.only is not None else (await read_corrected(self._core.bus)).rows

    async def _agreement(self, caller: Caller, spec: QueueSpec) -> Agreement:
        """That on answers of the queue's protocol, and drift in queues drawn as this one; of all tenants."""
        if caller.only is not None:
            return Agreement()
        found = await read_agreement(self._core.bus)
        return Agreement(
            at=found.at,
            judges=tuple(one for one in found.judges if one.protocol == spec.protocol),
            reviewers=tuple(one for one in found.reviewers if one.protocol == spec.protocol),
            drift=tuple(one for one in found.drift if one.queue == spec.name),
        )


def _headlines(rows: Sequence[CorrectedRow], queue: str) -> list[CorrectedRow]:
    """Of each model the rate of all facts and versions."""
    found: dict[tuple[str, str, str], CorrectedRow] = {}
    for row in rows:
        if row.queue == queue and row.category == ALL:
            model = (row.model, row.protocol, row.fingerprint)
            if model not in found or row.version == EVERY_VERSION:
                found[model] = row
    return list(found.values())


def _spec(written: Mapping[str, str]) -> QueueSpec:
    """The queue that a form describes. Raises `UsageError` naming the field."""
    now = time.time()
    by_size = written.get("amount", "size") == "size" and written.get("rule") != "all"
    fields: dict[str, Any] = {
        name: written.get(name, "") for name in ("protocol", "model", "version", "tag", "category", "alarm")
    }
    if written.get("rule") not in get_args(Rule):
        raise UsageError("choose how answers are drawn")
    described = {
        **fields,
        "name": written.get("name", ""),
        "rule": written["rule"],
        "tenant": written.get("tenant", ""),
        "verdict": written.get("verdict") or None,
        "size": _whole(written, "size", 200) if by_size else 0,
        "share": 1.0 if by_size or written["rule"] == "all" else _percent(written, "share"),
        "since": read_moment(written["since"], "since", now) if written.get("since") else 0.0,
        "until": read_moment(written["until"], "until", now) if written.get("until") else 0.0,
        "reviewers": _whole(written, "reviewers", 1),
        "assigned": [one.strip() for one in written.get("assigned", "").split(",") if one.strip()],
    }
    try:
        return msgspec.convert(described, QueueSpec)
    except msgspec.ValidationError as error:
        raise InputError(str(error)) from error


def _whole(written: Mapping[str, str], name: str, absent: int) -> int:
    text = written.get(name) or str(absent)
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise UsageError(f"{name}: '{text[:40]}' is no number")
    return int(text)


def _percent(written: Mapping[str, str], name: str) -> float:
    text = written.get(name) or "100"
    try:
        share = float(text.removesuffix("%").strip()) / 100
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise UsageError(f"{name}: '{text[:40]}' is no share between 0 and 100 %")
    return share


def _to(name: str) -> Response:
    return RedirectResponse(f"/queues/{quote(name)}", 303)
