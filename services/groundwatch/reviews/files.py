"""Opinions as files: whole, one a line, or as `validate verdicts` and `validate annotators` read them.

A verdict is a person's word on one claim; as an annotator's line its item is protocol, claim, tenant and id,
by slashes. Either is of the outcome's own claims alone: what a reviewer added or removed stands only in a
whole opinion.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeVar
from urllib.parse import quote, unquote

import msgspec

from groundwatch.counting import MOST_VALUES, has_more_values
from groundwatch.errors import UNDECODED, InputError, UnknownName
from groundwatch.events import (
    LIVE,
    Decision,
    FactOpinion,
    Label,
    OpinionGiven,
    ResponseRecorded,
    ResponseScored,
)
from groundwatch.keys import home_key, response_key
from groundwatch.reviews.opinions import check_opinion, opinion_on
from groundwatch.reviews.queues import JUDGE, Items, Queues, QueueSpec, check_reviewer
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import decoded
from groundwatch.topology import OUTCOMES, RESPONSES, is_token, subject_of

T = TypeVar("T")

Format = Literal["opinions", "verdicts", "annotators", "labels", "faithscore"]

MAX_LINES = 100_000
"""Lines of one file."""

AT_ONCE = 16

MAX_SECONDS = 1e6


_OUTCOME = msgspec.json.Decoder(ResponseScored)


class _Annotation(msgspec.Struct):
    item: str
    annotator: str
    label: str


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What one reviewer says of single claims of one answer."""

    id: str
    tenant: str
    protocol: str
    reviewer: str
    holds: dict[int | str, Decision]


PEOPLE = (Decision.SUPPORTED.value, Decision.REFUTED.value)


class PersonsVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What one person says of one claim: a line of the file."""

    id: str
    tenant: str = "default"
    protocol: str
    claim: str | int
    holds: bool


FAITHSCORE: Format = "faithscore"


async def lines_of(
    bus: Bus,
    opinions: Iterable[OpinionGiven],
    form: Format,
    on_left_out: Callable[[str], None] = lambda why: None,
) -> AsyncIterator[dict[str, Any] | OpinionGiven]:
    """What a file of this form has of these opinions, line by line. Raises `TransientError`.

    `on_left_out` is told of each opinion that has no line there, and why.
    """
    for one in opinions:
        if form == FAITHSCORE:
            if why := _no_annotation(one):
                on_left_out(why)
            elif (line := await _annotation(bus, one)) is not None:
                yield line
            else:
                on_left_out("about answers that are kept no longer")
            continue
        for told in _lines(one, form):
            yield told


def _lines(one: OpinionGiven, form: Format) -> Iterator[dict[str, Any] | OpinionGiven]:
    if form == "opinions":
        yield one
    elif one.objection:
        # Who reads these compares judges with people.
        return
    elif form == "labels":
        for at, label in enumerate(one.labels):
            if label is not None:
                yield _annotated(one, f"unit-{at}", label.value)
    else:
        for fact in one.facts:
            if fact.claim is None or fact.removed:
                continue
            if form == "annotators":
                yield _annotated(one, str(fact.claim), fact.decision.value)
            elif fact.decision is not Decision.UNDECIDED:
                yield {
                    "id": one.id,
                    "tenant": one.tenant,
                    "protocol": one.protocol,
                    "claim": fact.claim,
                    "holds": fact.decision is Decision.SUPPORTED,
                }


def _annotated(one: OpinionGiven, what: str, label: str) -> dict[str, Any]:
    item = "/".join(quote(part, safe="") for part in (one.protocol, what, one.tenant, one.id))
    return {"item": item, "annotator": one.reviewer, "label": label}


def read_lines(
    lines: Iterable[tuple[int, bytes]], reviewer: str
) -> Iterator[tuple[int, OpinionGiven | Said]]:
    """What the numbered lines of a file of any form say, whose verdicts are `reviewer`'s; those of one
    reviewer about one answer together, with the first of their lines. Raises `InputError` naming the line."""
    said: dict[tuple[str, str, str, str], Said] = {}
    first: dict[tuple[str, str, str, str], int] = {}
    for number, line in lines:
        if number > MAX_LINES:
            raise InputError(f"more than {MAX_LINES} lines")
        try:
            read = _read(line, reviewer)
        except (ValueError, InputError, *UNDECODED) as error:
            raise InputError(f"line {number}: {error}") from error
        if isinstance(read, OpinionGiven):
            yield number, read
            continue
        key = (read.tenant, read.id, read.protocol, read.reviewer)
        known = said.setdefault(key, read)
        first.setdefault(key, number)
        if known is not read and known.holds.keys() & read.holds.keys():
            raise InputError(f"line {number}: says another time what is said of this claim in a line before")
        known.holds.update(read.holds)
    for key, one in said.items():
        yield first[key], one


def _read(line: bytes, reviewer: str) -> OpinionGiven | Said:
    if has_more_values(line):
        raise InputError(f"has more than {MOST_VALUES:,} values")
    found: Any = msgspec.json.decode(line)
    if not isinstance(found, dict):
        raise InputError("is no JSON object")
    if "holds" in found:
        verdict = msgspec.convert(found, PersonsVerdict)
        decision = Decision(PEOPLE[0] if verdict.holds else PEOPLE[1])
        return Said(
            id=verdict.id,
            tenant=verdict.tenant,
            protocol=verdict.protocol,
            reviewer=reviewer,
            holds={verdict.claim: decision},
        )
    if "annotator" in found:
        annotation = msgspec.convert(found, _Annotation)
        parts = [unquote(part) for part in annotation.item.split("/")]
        if len(parts) != 4 or not parts[1].isdecimal():
            raise InputError("key 'item': write protocol/claim/tenant/id")
        protocol, claim, tenant, name = parts
        return Said(
            id=name,
            tenant=tenant,
            protocol=protocol,
            reviewer=annotation.annotator,
            holds={int(claim): Decision(annotation.label)},
        )
    return msgspec.convert(found, OpinionGiven)


def opinion_of(said: Said, outcome: ResponseScored, given_at: float) -> OpinionGiven:
    """The opinion, about the claims that the file names. Raises `InputError` for one that there is not."""
    by_text = {claim.text: at for at, claim in reversed(list(enumerate(outcome.claims)))}
    facts = []
    for claim, decision in said.holds.items():
        at = claim if isinstance(claim, int) else by_text.get(claim, -1)
        if not 0 <= at < len(outcome.claims):
            raise InputError(f"response '{said.id}' has no claim {claim!r} for {said.protocol}")
        mine = outcome.claims[at]
        facts.append(
            FactOpinion(text=mine.text, category=mine.category, unit=mine.unit, decision=decision, claim=at)
        )
    return opinion_on(outcome, reviewer=said.reviewer, facts=tuple(facts), given_at=given_at)


def _read_all(content: bytes, reviewer: str) -> list[tuple[int, OpinionGiven | Said]]:
    if content.count(b"\n") > MAX_LINES:
        raise InputError(f"more than {MAX_LINES} lines")
    numbered = ((at, line) for at, line in enumerate(content.split(b"\n"), 1) if line.strip())
    return list(read_lines(numbered, reviewer))


async def opinions_in(
    bus: Bus,
    content: bytes,
    reviewer: str,
    allowed: Callable[[str, str], object] = lambda tenant, reviewer: None,
) -> list[OpinionGiven]:
    """The opinions that a file has about live traffic; whose it does not say are `reviewer`'s.

    What a line says of the answer itself is not taken from it: that is the outcome's, as are the queue and
    the probability the item's, into which the answer was drawn. `allowed` raises what it likes for a tenant
    or a reviewer that is not to be touched. Raises `InputError` naming the line, `TransientError`.
    """
    read = await asyncio.to_thread(_read_all, content, reviewer)
    queues = {spec.name: spec for spec in await Queues(bus).list()}
    given: list[OpinionGiven] = []
    for start in range(0, len(read), AT_ONCE):
        some = read[start : start + AT_ONCE]
        for _, said in some:
            allowed(said.tenant, said.reviewer)
        given += await asyncio.gather(*(_opinion(bus, queues, line, said) for line, said in some))
    return given


async def _opinion(
    bus: Bus, queues: Mapping[str, QueueSpec], line: int, said: OpinionGiven | Said
) -> OpinionGiven:
    try:
        if not is_token(said.protocol):
            raise InputError(f"no protocol is named '{said.protocol[:64]}'")
        if isinstance(said, OpinionGiven) and said.run != LIVE:
            raise InputError("opinions are about live traffic, not about a run")
        check_reviewer(said.reviewer)
        judge = said.judge if isinstance(said, OpinionGiven) else None
        if said.reviewer.startswith(JUDGE) != (judge is not None):
            raise InputError(f"'{JUDGE}' begins the names of judges, and of nobody else")
        key = home_key(response_key(said.tenant, said.id), bus.partitions)
        found = await bus.last_event(OUTCOMES, subject_of("outcome", LIVE, said.protocol, key))
        outcome = decoded(_OUTCOME, found) if found is not None else None
        if outcome is None:
            raise InputError(f"response '{said.id[:256]}' of '{said.tenant[:64]}' has no outcome")
        if isinstance(said, Said):
            opinion = opinion_of(said, outcome, time.time())
        else:
            opinion = opinion_on(
                outcome,
                reviewer=said.reviewer,
                facts=said.facts,
                given_at=min(said.given_at, time.time()),
                judge=said.judge,
                labels=said.labels,
                mark=said.mark,
                seconds=min(max(0.0, said.seconds), MAX_SECONDS),
                objection=said.objection,
            )
            if not said.objection:
                opinion = await _drawn(bus, queues.get(said.queue), opinion)
        check_opinion(outcome, opinion.facts, opinion.labels)
    except InputError as error:
        raise InputError(f"line {line}: {error}") from error
    return opinion


async def _drawn(bus: Bus, spec: QueueSpec | None, opinion: OpinionGiven) -> OpinionGiven:
    """The opinion as one for this queue, if its answer was drawn into it and its reviewer may review it."""
    if spec is None or (spec.assigned and opinion.reviewer not in spec.assigned):
        return opinion
    try:
        item = await Items(bus).find(spec.name, opinion.key)
    except UnknownName:
        return opinion
    return msgspec.structs.replace(opinion, queue=spec.name, probability=item.probability)


def _no_annotation(one: OpinionGiven) -> str:
    """Why an opinion is none that FaithScore's annotators could have; empty where it is one.

    What another protocol calls a claim is no atomic fact: "man is riding horse".
    """
    if one.objection:
        return "objections"
    if not (one.facts or one.labels or one.mark):
        return "that were taken back"
    if one.protocol != FAITHSCORE:
        return "about other protocols' claims"
    if one.judge is not None:
        return "of judges"
    return "" if one.run == LIVE else "about runs"


async def _annotation(bus: Bus, one: OpinionGiven) -> dict[str, Any] | None:
    """What a person says of a live answer as FaithScore's annotation; `id` is the image's tag or digest.

    A sub-sentence without a label, and a fact that is undecided or removed, is in it nowhere. None where
    neither a stream nor the archive has the answer.
    """
    recorded = await _last(bus, RESPONSES, subject_of("recorded", LIVE, one.key), ResponseRecorded)
    subject = subject_of("outcome", LIVE, one.protocol, one.key)
    outcome = await _last(bus, OUTCOMES, subject, ResponseScored)
    if recorded is None or outcome is None:
        return None
    labelled = zip(outcome.units, one.labels, strict=False)
    named = recorded.tags.get("image_id") or recorded.tags.get("image")
    return {
        "id": named or next(iter(recorded.images), one.id),
        "answer": recorded.answer,
        "stage 1": {unit.text.strip(): int(label is Label.DESCRIPTIVE) for unit, label in labelled if label},
        "stage 2": {
            fact.text: int(fact.decision is Decision.SUPPORTED)
            for fact in one.facts
            if not fact.removed and fact.decision is not Decision.UNDECIDED
        },
        "reviewer": one.reviewer,
        "mark": one.mark,
    }


async def _last(bus: Bus, stream: str, subject: str, kind: type[T]) -> T | None:
    found = await bus.last_event(stream, subject)
    return decoded(msgspec.json.Decoder(kind), found) if found is not None else None
