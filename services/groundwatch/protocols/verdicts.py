"""What people say of claims that a judge has judged, and how far the judge agrees with them.

One JSON object a line: the response by `id` (and `tenant`), the `protocol`, the `claim` as its text or as its
number from 0 among the outcome's claims, and `holds`: whether it is in the image.
"""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import msgspec

from groundwatch.events import Decision, ResponseScored
from groundwatch.protocols.published import Place, json_lines
from groundwatch.statistics.intervals import Interval, RatioSums, cluster_rate

PEOPLE = (Decision.SUPPORTED.value, Decision.REFUTED.value)
JUDGE = tuple(decision.value for decision in Decision)


class PersonsVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What one person says of one claim; `place` is the line of the file that says it."""

    id: str
    tenant: str
    protocol: str
    claim: str | int
    holds: bool
    place: Place


class VerdictAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """What `groundwatch validate verdicts` prints for one protocol.

    `agreement` is over the claims that the judge decided, with whole responses as what is drawn; `kappa` is
    Cohen's (1960), None where one answer alone was given. `counts` has people's verdict, then the judge's.
    """

    agreement: Interval | None
    kappa: float | None
    verdicts: int
    undecided: int
    counts: dict[str, dict[str, int]]


def read_verdicts(path: Path) -> list[PersonsVerdict]:
    """Read the file. Raises `FileFormatError` naming file, line and key."""
    found = []
    for place, record in json_lines(path):
        claim: object = place.take(record, "claim", (str, int), "the claim's text, or its number from 0")
        found.append(
            PersonsVerdict(
                id=place.take(record, "id", str, "a text"),
                tenant=place.take(record, "tenant", str, "a text") if "tenant" in record else "default",
                protocol=place.take(record, "protocol", str, "a text"),
                claim=cast("str | int", claim),
                holds=place.take(record, "holds", bool, "true or false"),
                place=place,
            )
        )
    return found


def decision_on(verdict: PersonsVerdict, outcome: ResponseScored) -> Decision | None:
    """What the judge said of the same claim; None when the outcome has no such claim."""
    if isinstance(verdict.claim, int):
        inside = 0 <= verdict.claim < len(outcome.claims)
        return outcome.claims[verdict.claim].decision if inside else None
    return next((claim.decision for claim in outcome.claims if claim.text == verdict.claim), None)


def verdict_agreement(judged: Iterable[tuple[PersonsVerdict, Decision]]) -> dict[str, VerdictAgreement]:
    """How far the judges agree with people, by protocol."""
    counts: dict[str, Counter[tuple[str, str]]] = {}
    responses: dict[str, dict[tuple[str, str], list[bool]]] = {}
    for verdict, decision in judged:
        people = PEOPLE[0] if verdict.holds else PEOPLE[1]
        counts.setdefault(verdict.protocol, Counter())[people, decision.value] += 1
        if decision is not Decision.UNDECIDED:
            of_protocol = responses.setdefault(verdict.protocol, {})
            of_protocol.setdefault((verdict.tenant, verdict.id), []).append(people == decision.value)
    return {
        protocol: _agreement(counts[protocol], responses.get(protocol, {}).values())
        for protocol in sorted(counts)
    }


def _agreement(counts: Counter[tuple[str, str]], responses: Iterable[list[bool]]) -> VerdictAgreement:
    sums = RatioSums()
    for same in responses:
        sums.add(sum(same), len(same))
    return VerdictAgreement(
        agreement=cluster_rate(sums),
        kappa=_kappa(counts),
        verdicts=counts.total(),
        undecided=sum(counts[people, Decision.UNDECIDED.value] for people in PEOPLE),
        counts={people: {judge: counts[people, judge] for judge in JUDGE} for people in PEOPLE},
    )


def _kappa(counts: Counter[tuple[str, str]]) -> float | None:
    total = sum(counts[people, judge] for people in PEOPLE for judge in PEOPLE)
    if not total:
        return None
    by_people = {one: sum(counts[one, judge] for judge in PEOPLE) / total for one in PEOPLE}
    by_judge = {one: sum(counts[people, one] for people in PEOPLE) / total for one in PEOPLE}
    by_chance = sum(by_people[one] * by_judge[one] for one in PEOPLE)
    if by_chance == 1:
        return None
    return (sum(counts[one, one] for one in PEOPLE) / total - by_chance) / (1 - by_chance)
