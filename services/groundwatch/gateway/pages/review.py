"""Reviewing: queues as pages and as JSON, and the reviewers' items, opinions and agreement."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Annotated, Any, TypeVar, get_args
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from groundwatch.errors import InputError, UnknownName, UsageError
from groundwatch.events import Decision, FactOpinion, Label, OpinionGiven, ResponseRecorded, ResponseScored
from groundwatch.gateway.auth import OPERATE, REVIEW, REVIEW_PAGE, VIEW, Caller, Need
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.http.requests import (
    MAX_JSON,
    Route,
    body_of,
    caller_of,
    form_of,
    is_json,
    json,
    json_of,
    some_of,
)
from groundwatch.gateway.pages.rendering import Pages
from groundwatch.gateway.refusals import Refused, bounded, refusal_of
from groundwatch.protocols import registry
from groundwatch.reporting.corrected import EVERY_VERSION, CorrectedRow
from groundwatch.reviews.agreement import Agreement, read_agreement
from groundwatch.reviews.corrected import read_corrected
from groundwatch.reviews.files import Format, lines_of, opinions_in
from groundwatch.reviews.opinions import Opinions, check_opinion, opinion_on
from groundwatch.reviews.queues import (
    JUDGE,
    PAGE,
    Frame,
    Frames,
    Item,
    Items,
    Queues,
    QueueSpec,
    Rule,
    check_reviewer,
    holding,
    read_spec,
)
from groundwatch.runtime.delivery.bus import ENCODER, Stored
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.statistics.alarm import ALL
from groundwatch.times import read_moment
from groundwatch.topology import OUTCOMES, RESPONSES, subject_of

AGREEMENT = Need("viewer", "the agreement of judges and people")
MAX_FILE = 32 * 1024 * 1024
MAX_FACTS = 1_000
GONE = 20
"""So many items whose answer is there no more are passed over at once."""

REVIEWER = "reviewer"
"""Who reviews where nobody says who they are."""

E = TypeVar("E")

Reviewer = Annotated[str, msgspec.Meta(max_length=128)]


class _Next(msgspec.Struct, kw_only=True):
    reviewer: Reviewer = ""
    after: Annotated[str, msgspec.Meta(max_length=64)] = ""


class _Draft(msgspec.Struct, kw_only=True):
    draft: dict[str, Any]
    reviewer: Reviewer = ""


class _Opinion(msgspec.Struct, kw_only=True):
    labels: Annotated[tuple[Label | None, ...], msgspec.Meta(max_length=MAX_FACTS)] = ()
    facts: Annotated[tuple[FactOpinion, ...], msgspec.Meta(max_length=MAX_FACTS)] = ()
    mark: Annotated[int, msgspec.Meta(ge=1, le=5)] | None = None
    seconds: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 0.0
    reviewer: Reviewer = ""


class ReviewRoutes:
    """Queues as pages and as JSON, and what reviewers do with their items."""

    def __init__(self, core: GatewayCore, pages: Pages) -> None:
        self._core = core
        self._pages = pages
        self._items = Items(core.bus)
        self._queues = Queues(core.bus, self._items)
        self._frames = Frames(core.bus)
        self._opinions = Opinions(core.bus)

    def routes(self) -> list[Route]:
        both, answered = self._pages.both, bounded()
        queue, item = "/v1/queues/{name}", "/v1/queues/{name}/items/{key}"
        return [
            *both("/queues", self.list_queues, VIEW),
            # Who may not has their words back, beside why.
            self._pages.route("/queues", self.create, VIEW, ["POST"]),
            Route("/v1/queues", self.create, OPERATE, methods=["POST"]),
            *both("/queues/{name}", self.show, VIEW),
            *both("/queues/{name}/close", self.close, OPERATE, ["POST"]),
            *both("/queues/{name}/open", self.close, OPERATE, ["POST"]),
            self._pages.route("/review/{name}", self.review, REVIEW_PAGE),
            Route(f"{queue}/next", answered(self.next), REVIEW, methods=["POST"]),
            Route(item, answered(self.item), REVIEW),
            Route(f"{item}/draft", answered(self.draft), REVIEW, methods=["PUT"]),
            Route(f"{item}/opinion", answered(self.opinion), REVIEW, methods=["POST"]),
            Route(f"{item}/opinion", answered(self.undo), REVIEW, methods=["DELETE"]),
            Route(f"{item}/release", answered(self.release), REVIEW, methods=["POST"]),
            Route("/v1/agreement", answered(self.agreement), AGREEMENT),
            Route("/v1/opinions", answered(self.export), VIEW),
            Route("/v1/opinions", answered(self.take), OPERATE, methods=["POST"]),
        ]

    async def next(self, request: Request) -> Response:
        """The reviewer's next item, with what is to be seen; 204 when there is none."""
        asked = await json_of(request, _Next)
        spec, reviewer = await self._reviewed(request, asked.reviewer)
        after = asked.after
        for _ in range(GONE if not spec.closed else 0):
            item = await self._items.next(spec.name, reviewer, after, caller_of(request).only or "")
            if item is None:
                break
            try:
                return json(await self._shown(request, item, reviewer))
            except UnknownName:
                # Its answer was kept no longer.
                await self._items.release(spec.name, item.key, reviewer)
                after = item.key
        return Response(status_code=204)

    async def item(self, request: Request) -> Response:
        """The same of an item that the reviewer holds, or has done."""
        spec, reviewer = await self._reviewed(request, request.query_params.get("reviewer", ""))
        item = await self._found(request, spec)
        if reviewer not in item.done_by:
            item = await self._items.hold(spec.name, item.key, reviewer)
        return json(await self._shown(request, item, reviewer))

    async def draft(self, request: Request) -> Response:
        said = await json_of(request, _Draft)
        spec, reviewer = await self._reviewed(request, said.reviewer)
        item = await self._found(request, spec)
        held = await self._items.save_draft(spec.name, item.key, reviewer, said.draft)
        return json({"held_until": held.held_by.get(reviewer, 0.0)})

    async def release(self, request: Request) -> Response:
        said = await json_of(request, _Next)
        spec, reviewer = await self._reviewed(request, said.reviewer)
        item = await self._found(request, spec)
        await self._items.release(spec.name, item.key, reviewer)
        return Response(status_code=204)

    async def opinion(self, request: Request) -> Response:
        """Give it; the answer has what the judge said, and on how many facts it says the same."""
        said = await json_of(request, _Opinion)
        spec, reviewer = await self._reviewed(request, said.reviewer)
        item = await self._found(request, spec)
        outcome = await self._outcome(item)
        check_opinion(outcome, said.facts, said.labels)
        queue, likely = spec.name, item.probability
        if not likely:
            # It was put here by hand: what they said where it was drawn is revised, and counts there on.
            before = await self._opinions.last(item.run, item.protocol, reviewer, item.key)
            if before is not None and before.probability:
                queue, likely = before.queue, before.probability
        stored = await self._items.complete(
            spec.name,
            item.key,
            opinion_on(
                outcome,
                reviewer=reviewer,
                facts=said.facts,
                given_at=time.time(),
                queue=queue,
                probability=likely,
                labels=said.labels,
                mark=said.mark,
                seconds=said.seconds,
            ),
        )
        return json({"stored": stored is Stored.NEW, **_compared(said.facts, outcome)})

    async def undo(self, request: Request) -> Response:
        """Take it back: the item is the reviewer's again, with what they said as its draft."""
        said = await json_of(request, _Next)
        spec, reviewer = await self._reviewed(request, said.reviewer)
        item = await self._found(request, spec)
        await self._items.reopen(spec.name, item.key, reviewer)
        return Response(status_code=204)

    async def agreement(self, request: Request) -> Response:
        """How far judges agree with people, and people with each other, of all tenants."""
        return json(await read_agreement(self._core.bus), headers={"Cache-Control": "no-store"})

    async def export(self, request: Request) -> Response:
        """Opinions, the last of each reviewer about each answer, one a line."""
        query = request.query_params
        form = query.get("format", "opinions").replace("jsonl", "opinions")
        if form not in get_args(Format):
            raise Refused("invalid", f"is none of {', '.join(get_args(Format))}", field="format")
        caller = caller_of(request)
        tenant = caller.tenant(query.get("tenant", ""))
        own = {spec.name for spec in await self._queues.list() if caller.only in (None, spec.tenant)}
        opinions = [
            # How likely an answer was drawn from those of all tenants tells how many these have.
            one if one.queue in own or caller.only is None else msgspec.structs.replace(one, probability=0.0)
            for one in await self._opinions.latest()
            if tenant in ("", one.tenant)
            and query.get("queue", "") in ("", one.queue)
            and query.get("protocol", "") in ("", one.protocol)
            and query.get("reviewer", "") in ("", one.reviewer)
        ]

        async def lines() -> AsyncIterator[bytes]:
            left_out: Counter[str] = Counter()
            lines = lines_of(self._core.bus, opinions, form, lambda why: left_out.update([why]))  # type: ignore[arg-type]
            async for line in lines:
                yield ENCODER.encode(line) + b"\n"
            if left_out:
                logger.info("gateway.opinions_without_line", format=form, left_out=dict(left_out))

        return StreamingResponse(lines(), media_type="application/x-ndjson")

    async def take(self, request: Request) -> Response:
        """A file of opinions or verdicts: nothing of it is taken unless every line can be."""
        caller = caller_of(request)
        body = await body_of(request, MAX_FILE)
        reviewer = reviewer_name(caller, request.query_params.get("reviewer", ""))

        def allowed(tenant: str, by: str) -> None:
            caller.tenant(tenant)
            if caller.only is not None and by.startswith(JUDGE):
                raise Refused("role", "what judges say is taken from who may act for all tenants alone")

        given = await opinions_in(self._core.bus, body, reviewer, allowed)
        new = 0
        for one in given:
            new += await self._opinions.give(one) is Stored.NEW
        return json({"opinions": len(given), "new": new})

    async def _reviewed(self, request: Request, said: str) -> tuple[QueueSpec, str]:
        """The queue, and who reviews it. Raises `Refused` for who is not among those it is assigned to."""
        spec = await self._queue(request)
        reviewer = reviewer_name(caller_of(request), said)
        if spec.assigned and reviewer not in spec.assigned:
            raise Refused("role", f"queue '{spec.name}' is assigned to others")
        return spec, reviewer

    async def _found(self, request: Request, spec: QueueSpec) -> Item:
        item = await self._items.find(spec.name, request.path_params["key"])
        if caller_of(request).only not in (None, item.tenant):
            raise UnknownName(f"there is no item '{item.key}' in queue '{spec.name}'")
        return item

    async def _shown(self, request: Request, item: Item, reviewer: str) -> dict[str, Any]:
        """What a reviewer sees of an item: nothing that the judge decided. Raises `UnknownName` for an answer
        that is kept no longer."""
        outcome, response, draft, own, progress = await asyncio.gather(
            self._outcome(item),
            self._response(item),
            self._items.load_draft(item.queue, item.key, reviewer),
            self._own(item, reviewer),
            self._queues.progress(item.queue, caller_of(request).only or ""),
        )
        found: dict[str, Any] = {
            "item": {
                **some_of(item, "queue", "key", "id", "tenant", "protocol"),
                "done": reviewer in item.done_by,
                "held_until": item.held_by.get(reviewer, 0.0),
            },
            "response": some_of(response, "prompt", "answer", "images"),
            "units": [some_of(one, "start", "end", "text", "label") for one in outcome.units],
            "claims": [
                {"index": at, **some_of(one, "text", "category", "unit")}
                for at, one in enumerate(outcome.claims)
            ],
            "draft": draft,
            "done": progress.reviewers.get(reviewer, 0),
            "total": progress.items,
        }
        if own is not None and reviewer in item.done_by:
            # They know what the judge said: they may look at their own words again, and change them.
            found["draft"] = draft or some_of(own, "labels", "facts", "mark", "seconds")
            found |= _compared(own.facts, outcome)
        return found

    async def _own(self, item: Item, reviewer: str) -> OpinionGiven | None:
        if reviewer not in item.done_by:
            return None
        return await self._opinions.last(item.run, item.protocol, reviewer, item.key)

    async def _outcome(self, item: Item) -> ResponseScored:
        subject = subject_of("outcome", item.run, item.protocol, item.key)
        return await self._event(OUTCOMES, subject, item, ResponseScored)

    async def _response(self, item: Item) -> ResponseRecorded:
        subject = subject_of("recorded", item.run, item.key)
        return await self._event(RESPONSES, subject, item, ResponseRecorded)

    async def _event(self, stream: str, subject: str, item: Item, form: type[E]) -> E:
        found = await self._core.bus.last_event(stream, subject)
        if found is None:
            raise UnknownName(f"the answer of item '{item.key}' is kept no longer")
        return msgspec.json.decode(found.data, type=form)

    async def _queue(self, request: Request) -> QueueSpec:
        """The queue of an address. Raises `UnknownName`."""
        spec = await self._queues.find(request.path_params["name"])
        if not may_see(caller_of(request), spec):
            raise UnknownName(f"there is no queue '{spec.name}'")
        return spec

    async def list_queues(self, request: Request) -> Response:
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
            caller.check(OPERATE)
            spec = await self._create(_spec(written), caller)
        except (UsageError, InputError, Refused) as error:
            if isinstance(error, Refused) and "text/html" not in request.headers.get("accept", ""):
                raise
            return await self._list(request, written, str(error), refusal_of(error).status.http)
        return _to(spec.name)

    async def _create(self, spec: QueueSpec, caller: Caller) -> QueueSpec:
        tenant, by = caller.tenant(spec.tenant), caller.name or spec.created_by[:128]
        if caller.only is not None and spec.alarm:
            message = "alarms are about all tenants, and this token is good for one alone"
            raise Refused("all_tenants", message)
        return await self._queues.create(msgspec.structs.replace(spec, tenant=tenant, created_by=by))

    async def close(self, request: Request) -> Response:
        spec, caller = await self._queue(request), caller_of(request)
        if caller.only not in (None, spec.tenant):
            raise Refused("other_tenant", "this queue is about all tenants")
        spec = await self._queues.close(spec.name, not request.url.path.endswith("/open"))
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

    async def _list(
        self, request: Request, written: Mapping[str, str], wrong: str = "", status: int = 200
    ) -> Response:
        caller = caller_of(request)
        specs = await self._seen(caller)
        progress = await asyncio.gather(
            *(self._queues.progress(spec.name, caller.only or "") for spec in specs)
        )
        rows = await self._corrected(caller)
        return self._pages.render(
            request,
            "queues.html",
            status=status,
            queues=list(zip(specs, progress, strict=True)),
            corrected={spec.name: _headlines(rows, spec.name) for spec in specs},
            protocols=registry.names(),
            decisions=[one.value for one in Decision],
            alarms=[one.alarm for one in self._core.live.raised] if caller.only is None else [],
            written=written,
            wrong=wrong,
            open_form=bool(wrong or written.get("rule")),
        )

    async def show(self, request: Request) -> Response:
        caller = caller_of(request)
        spec = await self._queue(request)
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
            waits_for_drawing=not spec.closed and spec.size > 0 and not frame.complete,
        )

    async def review(self, request: Request) -> Response:
        spec = await self._queue(request)
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
            closed=spec.closed,
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
            bias=tuple(one for one in found.bias if one.protocol == spec.protocol),
        )


def may_see(caller: Caller, spec: QueueSpec) -> bool:
    """A tenant sees the queues of its own answers, and those of all tenants with its own answers in them."""
    return caller.only is None or spec.tenant in ("", caller.only)


def reviewer_name(caller: Caller, said: str) -> str:
    """Who reviews: who is logged in, or else who they say they are."""
    name = caller.name or said.strip() or REVIEWER
    check_reviewer(name)
    if not caller.name and name.startswith(JUDGE):
        raise InputError("reviewer: no name of a person")
    return name


def _compared(facts: Sequence[FactOpinion], outcome: ResponseScored) -> dict[str, Any]:
    """The judge's verdicts, and on how many facts that both decided they agree."""
    both = [
        fact.decision is outcome.claims[fact.claim].decision
        for fact in facts
        if fact.claim is not None
        and not fact.removed
        and Decision.UNDECIDED not in (fact.decision, outcome.claims[fact.claim].decision)
    ]
    judged = [
        {"claim": at, **some_of(claim, "decision", "probability", "evidence")}
        for at, claim in enumerate(outcome.claims)
    ]
    return {"judged": judged, "agreement": {"same": sum(both), "compared": len(both)}}


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
