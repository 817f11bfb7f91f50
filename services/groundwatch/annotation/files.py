"""Opinions as files: whole, one a line, or as `validate verdicts` and `validate annotators` read them.

A verdict is a person's word on one claim; as an annotator's line its item is protocol, claim, tenant and id,
by slashes. Either is of the outcome's own claims alone: what a reviewer added or removed stands only in a
whole opinion.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Literal
from urllib.parse import quote, unquote

import msgspec

from groundwatch.annotation.opinions import opinion_on
from groundwatch.errors import UNDECODED, InputError
from groundwatch.events import Decision, FactOpinion, OpinionGiven, ResponseScored
from groundwatch.protocols.people import PEOPLE, PersonsVerdict

Format = Literal["opinions", "verdicts", "annotators", "labels"]

MAX_LINES = 100_000
"""Lines of one file."""


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


def lines_of(opinions: Iterable[OpinionGiven], form: Format) -> Iterator[dict[str, Any] | OpinionGiven]:
    """What a file of this form has of these opinions, line by line."""
    for one in opinions:
        if form == "opinions":
            yield one
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
