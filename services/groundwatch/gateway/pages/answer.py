"""The page of one answer: its image, what is wrong in it and where, and everything that led to that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from groundwatch.errors import TransientError
from groundwatch.events import (
    DEFAULT_TENANT,
    Box,
    ChainAdvanced,
    ClaimsMatched,
    Decision,
    Judge,
    JudgedClaim,
    OpinionGiven,
    OutcomeKind,
    ResponseScored,
    version_of,
)
from groundwatch.gateway.access.roles import VIEW_PAGE
from groundwatch.gateway.answers.answer import Answer, ErasedAnswer, RawEvent, find_answer
from groundwatch.gateway.callers import Caller
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.http.middleware import caller_of
from groundwatch.gateway.http.routing import Route
from groundwatch.gateway.pages.judgements import MANY, curve, match_rows, step_rows, triplet_rows
from groundwatch.gateway.pages.marking import marked
from groundwatch.gateway.pages.rendering import Pages, answer_address
from groundwatch.gateway.pages.showing import MOST, visible
from groundwatch.gateway.refusals import Refused
from groundwatch.protocols.base import Stage
from groundwatch.protocols.triplets import triplet_of
from groundwatch.reporting.reasons import explain
from groundwatch.reviews.opinions import Opinions
from groundwatch.runtime.telemetry.logs import logger

SIGNS = {Decision.REFUTED: "✗", Decision.SUPPORTED: "✓", Decision.UNDECIDED: "?"}


class PlacedBox(msgspec.Struct, frozen=True, kw_only=True):
    """A place in an image where a judge saw something, in percent of its width and height."""

    number: int
    x: str
    y: str
    width: str
    height: str
    facts: tuple[int, ...]
    bad: bool
    label: str
    score: float
    below: bool


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """An image of the answer with its boxes, those of refuted facts on top."""

    sha256: str
    label: str
    boxes: tuple[PlacedBox, ...]


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """A claim as the page shows it; `boxes` are the numbers of its boxes, `opinions` what people say."""

    number: int
    claim: JudgedClaim
    sign: str
    boxes: tuple[int, ...]
    opinions: tuple[tuple[str, Decision], ...]


class Tab(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    link: str
    current: bool
    told: str


class AnswerPages:
    def __init__(self, core: GatewayCore, pages: Pages) -> None:
        self._core = core
        self._pages = pages
        self._opinions = Opinions(core.bus)

    def routes(self) -> list[Route]:
        return [self._pages.route("/answers/{id:path}", self.page, VIEW_PAGE)]

    async def page(self, request: Request) -> Response:
        caller = caller_of(request)
        query = request.query_params
        name = request.path_params["id"]
        tenant = caller.tenant(query.get("tenant", "")) or DEFAULT_TENANT
        run = caller.full_run(query.get("run", ""))
        found = await find_answer(self._core.bus, self._core.answers, tenant, name, run)
        if isinstance(found, ErasedAnswer):
            message = "Somebody asked that it be removed, and nothing of it is left here."
            raise Refused("erased", message)
        if found is None:
            raise Refused("not_found", self._missing(name, tenant, caller.in_words(run)))
        return self._render(request, caller, found, await self._given(found))

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
        self, request: Request, caller: Caller, found: Answer, given: Sequence[OpinionGiven]
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
        pictures = placed(images, claims, found.id)
        judged = found.judged.get(protocol)
        tenant = "" if caller.only else found.tenant
        version_tags = self._core.answers.version_tags
        reference = response.reference if response is not None else None
        triplets = triplet_rows(claims, reference) if all(map(triplet_of, claims)) else []
        run = caller.in_words(found.run)
        tabs = [
            Tab(
                name=one,
                link=answer_address(found.id, tenant, run, one),
                current=one == protocol,
                told=_told(found.outcomes.get(one)),
            )
            for one in names
        ]
        runs = [
            Tab(
                name=caller.in_words(one),
                link=answer_address(found.id, tenant, caller.in_words(one), protocol),
                current=one == found.run,
                told=_in_run(found, one, protocol),
            )
            for one in found.runs
        ]
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
            kinds=OutcomeKind,
            why=_why(outcome),
            text=marked(
                response.answer if response is not None else None,
                outcome.units if outcome is not None else (),
                claims,
                left_out=outcome.left_out if outcome is not None else (),
            ),
            left_out=bool(outcome is not None and outcome.left_out),
            units=_grey(outcome),
            pictures=pictures,
            facts=facts_of(claims, pictures, own),
            more_facts=max(0, len(outcome.claims) - MANY) if outcome is not None else 0,
            tabs=tabs,
            runs=runs,
            prompt=response.prompt if response is not None else "",
            unanswered=response.unanswered if response is not None else None,
            reference=reference,
            triplets=triplets,
            graph=reference.triplets[:MANY] if reference is not None and triplets else (),
            matches=match_rows(judged, reference) if isinstance(judged, ClaimsMatched) else None,
            steps=step_rows(judged, outcome) if isinstance(judged, ChainAdvanced) else [],
            curve=curve(step_rows(judged, outcome)) if isinstance(judged, ChainAdvanced) else "",
            opinions=own,
            judges=outcome.judges if outcome is not None else {},
            judge=_judge(outcome),
            events=[_formatted(one) for one in found.events],
            link=answer_address(found.id, tenant, run, protocol),
        )


def placed(images: Sequence[str], claims: Sequence[JudgedClaim], name: str) -> list[Picture]:
    """Each image with the boxes in it, each place once, numbered through."""
    by_place: dict[tuple[int, float, float, float, float], tuple[Box, list[int]]] = {}
    for number, claim in enumerate(claims):
        for box in claim.boxes:
            place = (box.image, box.x0, box.y0, box.x1, box.y1)
            by_place.setdefault(place, (box, []))[1].append(number)
    made: dict[int, list[PlacedBox]] = {}
    for number, (box, facts) in enumerate(list(by_place.values())[:MANY], 1):
        bad = any(claims[fact].decision is Decision.REFUTED for fact in facts)
        made.setdefault(box.image, []).append(
            PlacedBox(
                number=number,
                x=_percent(box.x0),
                y=_percent(box.y0),
                width=_percent(box.x1 - box.x0),
                height=_percent(box.y1 - box.y0),
                facts=tuple(dict.fromkeys(facts)),
                bad=bad,
                label=box.label,
                score=box.score,
                below=box.y0 < 0.06,
            )
        )
    return [
        Picture(
            sha256=sha256,
            label=f"Image {at + 1} of {len(images)} of answer {name[:100]}",
            boxes=tuple(sorted(made.get(at, ()), key=lambda box: box.bad)),
        )
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
    opinions: dict[int, list[tuple[str, Decision]]] = {}
    for opinion in given:
        for said in opinion.facts:
            if said.claim is not None and not said.removed:
                opinions.setdefault(said.claim, []).append((opinion.reviewer, said.decision))
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


def _told(outcome: ResponseScored | None) -> str:
    if outcome is None:
        return "waiting"
    return f"{outcome.score:.2f}" if outcome.score is not None else outcome.outcome.value


def _why(outcome: ResponseScored | None) -> str:
    if outcome is None:
        return ""
    return explain(outcome.reason, declined=outcome.outcome is OutcomeKind.DECLINED)


def _in_run(found: Answer, run: str, protocol: str) -> str:
    hit = next((hit for hit in found.hits if hit.run == run and hit.protocol == protocol), None)
    if hit is None:
        return ""
    return f"{hit.score:.2f}" if hit.score is not None else hit.outcome


def _grey(outcome: ResponseScored | None) -> int:
    return sum(unit.label == "analytical" for unit in outcome.units) if outcome is not None else 0


def _judge(outcome: ResponseScored | None) -> Judge | None:
    """Who decided on the facts."""
    judges = outcome.judges if outcome is not None else {}
    return judges.get(Stage.VERIFICATION) or judges.get(Stage.MATCHING)


def _percent(share: float) -> str:
    return f"{100 * share:.3f}%"


class Formatted(msgspec.Struct, frozen=True):
    subject: str
    size: int
    text: str


def _formatted(raw: RawEvent) -> Formatted:
    try:
        text = msgspec.json.format(raw.data[:MOST] if len(raw.data) <= MOST else raw.data, indent=2).decode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = raw.data[:MOST].decode("utf-8", "replace")
    cut = f"{text[:MOST]}\n… {len(text) - MOST:,} more characters" if len(text) > MOST else text
    return Formatted(raw.subject, len(raw.data), visible(cut))
