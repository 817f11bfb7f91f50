"""Answers, as pages and as JSON: one with everything that is known of it, and a search whose every filter
stands in the address."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from groundwatch.errors import TransientError
from groundwatch.events import (
    DEFAULT_TENANT,
    LIVE,
    Box,
    ChainAdvanced,
    ClaimsMatched,
    Decision,
    JudgedClaim,
    LeftOut,
    LeftOutKind,
    Match,
    OpinionGiven,
    OutcomeKind,
    Reference,
    version_of,
)
from groundwatch.gateway.answers import Answer, AnswerPage, find_answer
from groundwatch.gateway.auth import REVIEW, VIEW, VIEW_PAGE, Caller
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.http.requests import Route, caller_of, form_of, is_json, json
from groundwatch.gateway.pages.markdown import as_markdown
from groundwatch.gateway.pages.painting import (
    LEFT_OUT,
    WORD,
    marked,
    marked_sentence,
    said_in,
    stem,
    stretches_of,
)
from groundwatch.gateway.pages.rendering import MOST as MOST_CHARACTERS
from groundwatch.gateway.pages.rendering import Pages, address, answer_address, isolated, origin_of, visible
from groundwatch.gateway.pages.review import may_see, reviewer_name
from groundwatch.gateway.refusals import Refused, bounded
from groundwatch.protocols.base import Stage
from groundwatch.protocols.triplets import SceneGraph, blamed, triplet_of
from groundwatch.reporting.answers import (
    MOST,
    OUTCOMES,
    VERDICTS,
    AnswerQuery,
    Facets,
    Hit,
    TooSlow,
    WrongFilter,
    read_cursor,
    read_query,
)
from groundwatch.reporting.reasons import explain
from groundwatch.reviews.opinions import Opinions
from groundwatch.reviews.queues import Item, Queues, QueueSpec, item_of
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.times import moment_of


def unread_shares(answer: str, left_out: Sequence[LeftOut]) -> dict[str, float]:
    """By language, what share of an answer's letters was not read since they are in it."""
    letters: Counter[str] = Counter()
    for part in left_out:
        if part.kind is LeftOutKind.LANGUAGE:
            letters[part.detail] += sum(map(str.isalpha, answer[part.start : part.end]))
    whole = sum(map(str.isalpha, answer))
    return {language: number / whole for language, number in letters.most_common() if number}


MANY = 200
"""Facts, rounds and names that are shown of an answer."""


TripletRow = tuple[tuple[str, str, str], Decision, str, str]
"""A triplet with its verdict, the part of it that is wrong, and what the scene graph makes of it."""


def triplet_rows(claims: Sequence[JudgedClaim], reference: Reference | None) -> list[TripletRow]:
    """Tri-HE's triplets, nothing where a claim is none."""
    graph = SceneGraph(reference.triplets, reference.objects) if reference and reference.triplets else None
    rows: list[TripletRow] = []
    for claim in claims:
        if (parts := triplet_of(claim)) is None:
            return []
        by_graph = graph.judge(parts).value if graph is not None else ""
        rows.append((parts, claim.decision, blamed(claim) or "", by_graph))
    return rows


def match_rows(
    judged: ClaimsMatched, reference: Reference | None
) -> tuple[list[tuple[str, Match | None]], list[str]]:
    """What each generated feature was matched with, and objects of the reference that nothing was."""
    by_claim = {match.claim: match for match in judged.matches}
    rows = [(claim.text, by_claim.get(at)) for at, claim in enumerate(judged.extracted.claims[:MANY])]
    covered = {match.reference.casefold() for match in judged.matches}
    named = reference.objects if reference is not None else ()
    return rows, [name for name in named if name.casefold() not in covered][:MANY]


SIGNS = {Decision.REFUTED: "✗", Decision.SUPPORTED: "✓", Decision.UNDECIDED: "?"}


class PlacedBox(msgspec.Struct, frozen=True):
    """A place in an image where a judge saw something; `bad`: one of its facts does not hold."""

    number: int
    box: Box
    facts: tuple[int, ...]
    bad: bool


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """An image of the answer with its boxes, those of refuted facts on top."""

    sha256: str
    boxes: list[PlacedBox]


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """A claim as the page shows it; `boxes` are the numbers of its boxes, `opinions` who says what of it."""

    number: int
    claim: JudgedClaim
    sign: str
    boxes: tuple[int, ...]
    opinions: tuple[tuple[OpinionGiven, Decision], ...]


class AnswerPages:
    def __init__(self, core: GatewayCore, pages: Pages) -> None:
        self._core = core
        self._pages = pages
        self._opinions = Opinions(core.bus)
        self._queues = Queues(core.bus)

    def routes(self) -> list[Route]:
        one = "/answers/{id:path}"
        return [
            self._pages.route(one, self.page, VIEW_PAGE),
            self._pages.route(one, self.write, REVIEW, ["POST"]),
        ]

    async def page(self, request: Request) -> Response:
        found, caller = await self._found(request), caller_of(request)
        given, queues = await asyncio.gather(self._given(found), self._with(found, caller))
        return self._render(request, caller, found, given, queues)

    async def _with(self, found: Answer, caller: Caller) -> list[tuple[QueueSpec, Item | None]]:
        """The open queues of people that the answer may stand in, with its item, for who may review."""
        if not caller.meets(REVIEW) or found.run != LIVE:
            return []
        try:
            specs = [
                spec
                for spec in await self._queues.list()
                if spec.protocol in found.outcomes and spec.tenant in ("", found.tenant)
                if not spec.closed and not spec.for_judge and may_see(caller, spec)
            ]
            items = await asyncio.gather(*(self._queues.items.look_up(one.name, found.key) for one in specs))
        except TransientError as error:
            logger.warning("gateway.page_without_queues", error=str(error))
            return []
        return list(zip(specs, items, strict=True))

    async def write(self, request: Request) -> Response:
        """Somebody says of one fact that its judge is wrong, or takes that back: `3 supported`, `3 back`. Or
        they put the answer into a queue."""
        found, written, caller = await self._found(request), await form_of(request), caller_of(request)
        protocol = request.query_params.get("protocol", "")
        number, said, who = [*written.get("fact", "").split(" ", 2), "", ""][:3]
        outcome = found.outcomes.get(protocol)
        tenant, run = "" if caller.only else found.tenant, caller.in_words(found.run)
        link = answer_address(found.id, tenant, run, protocol)
        if name := written.get("queue"):
            async with bounded():
                spec = next((one for one, _ in await self._with(found, caller) if one.name == name), None)
                if spec is None or outcome is None or not outcome.claims or spec.protocol != protocol:
                    why = f"the answer cannot stand in queue '{name[:64]}'"
                    raise Refused("invalid", why, field="queue")
                version = version_of(outcome.tags, self._core.answers.version_tags)
                await self._queues.items.create(item_of(spec, outcome, version, 0.0))
            return RedirectResponse(link, 303)
        if outcome is None or not number.isdecimal() or len(number) > 9 or said not in {*Decision, "back"}:
            raise Refused("invalid", "there is no such fact, or nothing that can be said of it", field="fact")
        decision = Decision(said) if said != "back" else None
        reviewer = reviewer_name(caller, who or written.get("reviewer", ""))
        async with bounded():
            await self._opinions.object_to(outcome, int(number), decision, reviewer)
        return RedirectResponse(f"{link}#fact-{number}", 303)

    async def _found(self, request: Request) -> Answer:
        """The answer that a request names. Raises `Refused`."""
        caller, query, name = caller_of(request), request.query_params, request.path_params["id"]
        tenant = caller.tenant(query.get("tenant", "")) or DEFAULT_TENANT
        run = caller.full_run(query.get("run", ""))
        found = await find_answer(self._core.bus, self._core.answers, tenant, name, run)
        if found is None:
            raise Refused("not_found", self._missing(name, tenant, caller.in_words(run)))
        return found

    def _missing(self, name: str, tenant: str, run: str) -> str:
        where = f" in run {run}" if run else ""
        told = f"No answer '{name[:200]}' of tenant '{tenant[:200]}' is recorded{where}."
        if not self._core.answers.complete:
            told += " The archive is still being read: look again in a moment."
        return told

    async def _given(self, found: Answer) -> list[OpinionGiven]:
        try:
            given = await self._opinions.of(found.key)
        except TransientError as error:
            logger.warning("gateway.page_without_opinions", error=str(error))
            return []
        return [one for one in given if one.run == found.run]

    def _render(
        self,
        request: Request,
        caller: Caller,
        found: Answer,
        given: Sequence[OpinionGiven],
        queues: Sequence[tuple[QueueSpec, Item | None]],
    ) -> Response:
        names = [*found.outcomes, *found.waiting]
        wanted = request.query_params.get("protocol", "")
        protocol = wanted if wanted in names else next(iter(names), "")
        outcome = found.outcomes.get(protocol)
        response = found.response
        images = response.images if response is not None else outcome.images if outcome is not None else ()
        about = response if response is not None else outcome
        assert about is not None
        own = [one for one in given if one.protocol == protocol]
        claims = outcome.claims[:MANY] if outcome is not None else ()
        pictures = placed(images, claims)
        judged = found.judged.get(protocol)
        tenant = "" if caller.only else found.tenant
        version_tags = self._core.answers.version_tags
        reference = response.reference if response is not None else None
        values = outcome.values if outcome is not None else {}
        judges = outcome.judges if outcome is not None else {}
        steps = judged.steps[:MANY] if isinstance(judged, ChainAdvanced) else ()
        triplets = triplet_rows(claims, reference)
        run = caller.in_words(found.run)
        answer = response.answer if response is not None else None
        units, left_out = (outcome.units, outcome.left_out) if outcome is not None else ((), ())
        as_written = request.query_params.get("text") == "written"
        stretches = stretches_of(answer or "", units, said_in(claims), left_out)
        markdown = as_markdown(answer, stretches) if answer else None
        return self._pages.render(
            request,
            "answer.html",
            here="/answers",
            found=found,
            about=about,
            version=version_of(about.tags, version_tags),
            tenant="" if tenant == DEFAULT_TENANT else tenant,
            run=run,
            protocol=protocol,
            outcome=outcome,
            why=explain(outcome.reason, declined=outcome.outcome is OutcomeKind.DECLINED) if outcome else "",
            text=None if markdown and not as_written else marked(answer, units, claims, left_out=left_out),
            markdown=markdown,
            as_written=as_written,
            unread=unread_shares(response.answer, outcome.left_out) if response and outcome else {},
            pictures=pictures,
            groups=by_object(facts_of(claims, pictures, own)),
            more_facts=len(outcome.claims) - len(claims) if outcome is not None else 0,
            names=names,
            queues=[one for one in queues if one[0].protocol == protocol],
            origin=origin_of(request, self._core.settings.login),
            of_run={hit.run: hit for hit in found.hits if hit.protocol == protocol},
            in_words=caller.in_words,
            shown_tenant=tenant,
            left_out_words=LEFT_OUT,
            triplets=triplets,
            graph=reference.triplets[:MANY] if reference is not None and triplets else (),
            matches=match_rows(judged, reference) if isinstance(judged, ClaimsMatched) else None,
            steps=[(step, values.get(f"gc{at}")) for at, step in enumerate(steps, 1)],
            opinions=own,
            judges=judges,
            judge=judges.get(Stage.VERIFICATION) or judges.get(Stage.MATCHING),
            events=[(one, _formatted(one.data)) for one in found.events],
            link=answer_address(found.id, tenant, run, protocol),
        )


def placed(images: Sequence[str], claims: Sequence[JudgedClaim]) -> list[Picture]:
    """Each image with the boxes in it, each place once, numbered through."""
    by_place: dict[tuple[int, float, float, float, float], tuple[Box, list[int]]] = {}
    for number, claim in enumerate(claims):
        for box in claim.boxes:
            place = (box.image, box.x0, box.y0, box.x1, box.y1)
            by_place.setdefault(place, (box, []))[1].append(number)
    made: dict[int, list[PlacedBox]] = {}
    for number, (box, facts) in enumerate(list(by_place.values())[:MANY], 1):
        bad = any(claims[fact].decision is Decision.REFUTED for fact in facts)
        placed_box = PlacedBox(number, box, tuple(dict.fromkeys(facts)), bad)
        made.setdefault(box.image, []).append(placed_box)
    return [
        Picture(sha256=sha256, boxes=sorted(made.get(at, ()), key=lambda one: one.bad))
        for at, sha256 in enumerate(images)
    ]


def facts_of(
    claims: Sequence[JudgedClaim], pictures: Iterable[Picture], given: Iterable[OpinionGiven]
) -> list[Fact]:
    """Claims, refuted ones first and then those that nobody decided."""
    boxes: dict[int, list[int]] = {}
    for picture in pictures:
        for box in picture.boxes:
            for fact in box.facts:
                boxes.setdefault(fact, []).append(box.number)
    opinions: dict[int, list[tuple[OpinionGiven, Decision]]] = {}
    for opinion in given:
        for said in opinion.facts:
            if said.claim is not None and not said.removed:
                opinions.setdefault(said.claim, []).append((opinion, said.decision))
    order = (Decision.REFUTED, Decision.UNDECIDED, Decision.SUPPORTED)
    found = [
        Fact(
            number=number,
            claim=claim,
            sign=SIGNS[claim.decision],
            boxes=tuple(sorted(boxes.get(number, ()))),
            opinions=tuple(opinions.get(number, ())),
        )
        for number, claim in enumerate(claims)
    ]
    return sorted(found, key=lambda fact: order.index(fact.claim.decision))


_EXISTS = re.compile(r"There (?:is|are) (?:[^.]*?\W)??(\w+)(?: (?:of|with|in|on|at) [^.]*)?\.?$")


def by_object(facts: Sequence[Fact]) -> list[tuple[str, list[Fact]]]:
    """Facts under the object that each names first, of those that a fact of its own says to be there; under
    no name the others. In the order of facts."""
    names = {stem(found[1]): found[1] for one in facts if (found := _EXISTS.match(one.claim.text[:200]))}
    groups: dict[str, list[Fact]] = {}
    for one in facts:
        stems = map(stem, WORD.findall(one.claim.text[:1_000]))
        subject = one.claim.parts[0] if len(one.claim.parts) == 3 else ""
        name = subject or next((names[word] for word in stems if word in names), "")
        groups.setdefault(name, []).append(one)
    return list(groups.items()) if len(groups) > 1 and len(facts) > 3 else [("", list(facts))]


def _formatted(data: bytes) -> str:
    """An event as JSON that people read."""
    try:
        text = msgspec.json.format(data, indent=2).decode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = data[:MOST_CHARACTERS].decode("utf-8", "replace")
    if (left := len(text) - MOST_CHARACTERS) > 0:
        text = f"{text[:MOST_CHARACTERS]}\n… {left:,} more characters"
    return visible(text)


LISTED = 25
"""Answers of a page."""

FILTERS = {
    "q": "words",
    "model": "model",
    "version": "version",
    "protocol": "protocol",
    "category": "category",
    "verdict": "verdict",
    "outcome": "outcome",
    "reason": "reason",
    "tag": "tag",
    "since": "since",
    "until": "until",
    "run": "run",
    "tenant": "tenant",
    "id": "id",
}
"""Filters as the address has them, and what they are called."""

FIRST = ("q", "model", "outcome", "verdict", "category")
"""Filters that are shown at once."""

OWN = ("badness", "doubt", "moment", "stream", "sequence")
"""What only this gateway can make something of."""


class AnswersRoutes:
    def __init__(self, core: GatewayCore, pages: Pages) -> None:
        self._core = core
        self._pages = pages

    def routes(self) -> list[Route]:
        return self._pages.both("/answers", self.list_answers, VIEW)

    async def list_answers(self, request: Request) -> Response:
        caller, given = caller_of(request), request.query_params
        if "" in given.values() and not is_json(request):
            return RedirectResponse(address("/answers", **given), 303)
        query, found, facets, wrong = AnswerQuery(), AnswerPage(hits=[]), None, None
        try:
            query = query_of(request, caller)
            before = given.get("before", "")
            after = read_cursor(before or given.get("cursor", ""), query.order)
            most = MOST if is_json(request) else LISTED
            searching = self._core.answers.search(query, after, most, bool(before))
            if is_json(request):
                found = await searching
            else:
                found, facets = await asyncio.gather(searching, self._core.answers.count(query))
        except TooSlow as error:
            wrong = Refused("too_slow", str(error))
        except WrongFilter as error:
            wrong = Refused("invalid", str(error), field=error.field)
        if not is_json(request):
            return self._page(request, caller, query, found, facets, wrong)
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
        facets: Facets | None,
        wrong: Refused | None,
    ) -> Response:
        told = {name: request.query_params.get(name, "").strip() for name in FILTERS}
        if caller.only is not None:
            told["tenant"] = ""
        place = request.query_params.get("from", "")
        times = {"since": query.since, "until": query.until}
        return self._pages.render(
            request,
            "answers.html",
            status=wrong.status.http if wrong is not None else 200,
            told=told,
            names=FILTERS,
            first=FIRST,
            more=[name for name in FILTERS if name not in FIRST and not (name == "tenant" and caller.only)],
            open_more=any(told[name] for name in FILTERS if name not in FIRST),
            options={"verdict": VERDICTS, "outcome": OUTCOMES},
            own=dict(told, order="" if query.order == "newest" else query.order),
            order=query.order,
            problem=wrong.message if wrong is not None else "",
            rows=[Row.of(hit, caller, query.words) for hit in found.hits],
            start=int(place) if found.before and place.isdecimal() and len(place) < 10 else 1,
            fixed={name: f"{moment_of(at):%Y-%m-%dT%H:%M:%SZ}" for name, at in times.items() if at},
            size=LISTED,
            cursor=request.query_params.get("cursor", ""),
            found=found,
            facets=facets,
            explain=explain,
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


_TAG = re.compile(r"(<[^>]*>)")


def with_words(content: Markup, words: Sequence[str]) -> Markup:
    """With the words marked that somebody looks for."""
    if not words:
        return content
    wanted = re.compile(f"&#?\\w+;|({'|'.join(re.escape(escape(word)) for word in words)})", re.IGNORECASE)
    pieces = [
        piece if piece.startswith("<") else wanted.sub(_looked_for, piece) for piece in _TAG.split(content)
    ]
    return Markup("".join(pieces))


def _looked_for(found: re.Match[str]) -> str:
    return f'<b class="looked-for">{found[0]}</b>' if found[1] else found[0]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """An answer in the list."""

    hit: Hit
    link: str
    sentence: object
    facts: list[Markup]
    run: str
    tenant: str

    @classmethod
    def of(cls, hit: Hit, caller: Caller, words: Sequence[str]) -> Row:
        facts = [fact.text for fact in hit.facts if fact.unit == hit.facts[0].unit]
        run = caller.in_words(hit.run)
        tenant = "" if caller.only else hit.tenant
        return cls(
            hit=hit,
            link=answer_address(hit.id, tenant, run, hit.protocol),
            sentence=with_words(marked_sentence(hit.sentence, facts), words) if hit.sentence else "",
            facts=[with_words(isolated(fact.text, 120), words) for fact in hit.facts],
            run="" if run == LIVE else run,
            tenant="" if tenant == DEFAULT_TENANT else tenant,
        )
