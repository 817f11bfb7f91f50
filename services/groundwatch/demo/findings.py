"""What a demo found: the monitor's numbers and, of the live one, whose world is known, the truth."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import msgspec

from groundwatch.demo.application import Sent
from groundwatch.events import AlarmRaised, Decision, JudgedClaim, OutcomeKind, ResponseScored
from groundwatch.ledger.ledger import Ledger
from groundwatch.miniature.language import corner, enumerated, phrase, truth
from groundwatch.reporting.alarms import Raised
from groundwatch.reporting.report import Report
from groundwatch.statistics.alarm import ALL
from groundwatch.statistics.intervals import Interval

VERSION = "version"
"""The tag by which the application tells versions of one product apart."""

SHOWN = 3
SETTLING = 50
"""Tenths of a second until the gateway must have seen all outcomes."""


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """A new version of a model: `response` is the number, from 1, of the first of its answers by it."""

    model: str
    version: str
    time: float
    response: int


class Worst(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence with the fact in it that is least likely to hold; `shown` is what the image shows."""

    id: str
    model: str
    version: str
    sentence: str
    fact: str
    probability: float
    shown: str


class Denial(msgspec.Struct, frozen=True, kw_only=True):
    """An answer in Markdown that denies something: what was left out of it, and what became of the denial."""

    id: str
    model: str
    answer: str
    left_out: tuple[str, ...]
    fact: str
    decision: Decision
    shown: str


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One version's rate of facts that are not in the image: as the verifier says, and as it is."""

    model: str
    version: str
    responses: int
    estimated: Interval | None
    true: float | None


class Watched:
    def __init__(self) -> None:
        self.report = Report()
        self.by_version = Report(by=VERSION)
        self.refuted: list[tuple[float, ResponseScored, JudgedClaim]] = []
        self.denied: list[tuple[ResponseScored, JudgedClaim]] = []
        self.with_facts = 0

    def add(self, outcome: ResponseScored) -> None:
        """Count one outcome, and keep the fact in it that is least likely to hold."""
        self.report.add(outcome)
        self.by_version.add(outcome)
        self.with_facts += outcome.outcome is OutcomeKind.SCORED and outcome.decided > 0
        self.denied += [(outcome, claim) for claim in outcome.claims if claim.text.startswith("There is no ")]
        wrong = [
            (claim.probability, claim)
            for claim in outcome.claims
            if claim.decision is Decision.REFUTED and claim.probability is not None
        ]
        if wrong:
            probability, claim = min(wrong, key=lambda one: one[0])
            self.refuted.append((probability, outcome, claim))


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """What a demo found. `seconds` are those in all; of the live one also until all was up and of traffic."""

    watched: Watched
    ledger: Ledger
    metrics: list[str]
    alarms: Sequence[Raised]
    seconds: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        return {
            "mode": "recorded",
            "audit": self.ledger,
            "models": self.by_model(),
            "alarms": [msgspec.to_builtins(one) for one in self.alarms],
        }

    def by_model(self) -> dict[str, dict[str, Any]]:
        """Each model's numbers under its name."""
        found: dict[str, dict[str, Any]] = {}
        for model in self.watched.report.models():
            rate = model.hallucination_rate
            told = {
                "rate": rate.value if rate else None,
                "interval": [rate.low, rate.high] if rate else None,
                "score": msgspec.to_builtins(model.score),
                "responses": model.responses,
                "scored": model.scored,
                "unscored": model.unscored,
                "coverage": model.coverage,
                "answer_words": model.answer_words,
            }
            # Rows of other judges have fewer answers and come later.
            found.setdefault(model.model, told)
        return found


class LiveFindings(Findings, frozen=True, kw_only=True):
    """What the live demo found."""

    sent: dict[str, Sent]
    rollout: Rollout
    other_judge: str = ""
    """A manifest with the model that turned bad, served as a verifier."""

    def worst(self) -> list[Worst]:
        """The sentences that are furthest from their image, one for each answer."""
        refuted = sorted(self.watched.refuted, key=lambda one: one[0])
        return [
            Worst(
                id=outcome.id,
                model=outcome.model,
                version=outcome.tags.get(VERSION, ""),
                sentence=outcome.units[claim.unit].text.strip() if claim.unit < len(outcome.units) else "",
                fact=claim.text,
                probability=probability,
                shown=self._shown(outcome.id),
            )
            for probability, outcome, claim in refuted[:SHOWN]
        ]

    def _shown(self, id_: str) -> str:
        return enumerated([f"{phrase(thing)} {corner(thing)}" for thing in self.sent[id_].shown.things])

    def denial(self) -> Denial | None:
        """The first answer in Markdown whose denial was judged."""
        for outcome, claim in self.watched.denied:
            sent = self.sent[outcome.id]
            if sent.listed and claim.decision is not Decision.UNDECIDED:
                return Denial(
                    id=outcome.id,
                    model=outcome.model,
                    answer=sent.answer,
                    left_out=tuple(
                        f"{part.kind.value}: {sent.answer[part.start : part.end]}"
                        for part in outcome.left_out
                    ),
                    fact=claim.text,
                    decision=claim.decision,
                    shown=self._shown(outcome.id),
                )
        return None

    def compared(self) -> Iterator[Compared]:
        """Each version's estimated rate beside its true one."""
        seen: set[tuple[str, str]] = set()
        for model in self.watched.by_version.models():
            if (model.model, model.group) in seen:
                continue
            seen.add((model.model, model.group))
            yield Compared(
                model=model.model,
                version=model.group,
                responses=model.responses,
                estimated=model.hallucination_rate,
                true=self.true_rate(model.model, model.group),
            )

    def true_rate(self, product: str = "", version: str = "") -> float | None:
        """The share of facts that are not in the image, as it is in this world; of all when none is named."""
        found = [
            truth(one.said or one.answer, one.shown)
            for one in self.sent.values()
            if product in ("", one.product) and version in ("", one.version)
        ]
        facts = sum(one.facts for one in found)
        return sum(one.false_facts for one in found) / facts if facts else None

    def to_dict(self) -> dict[str, Any]:
        models = self.by_model()
        for name, told in models.items():
            told["true_rate"] = self.true_rate(name)
            told["versions"] = {}
        for one in self.compared():
            models[one.model]["versions"][one.version] = {
                "responses": one.responses,
                "rate": one.estimated.value if one.estimated else None,
                "interval": [one.estimated.low, one.estimated.high] if one.estimated else None,
                "true_rate": one.true,
            }
        return super().to_dict() | {
            "mode": "live",
            "answers": len(self.sent),
            "models": models,
            "rollout": self.rollout,
            "alarms": [one.alarm for one in self.alarms],
            "worst": self.worst(),
            "denial": self.denial(),
            "seconds": {name: round(seconds, 1) for name, seconds in self.seconds.items()},
        }


async def alarms_of(gateway: str, watched: Watched) -> list[Raised]:
    """What the gateway's GET /v1/alarms tells, once it has seen as many answers as we have."""
    async with httpx.AsyncClient(base_url=gateway, timeout=30) as http:
        for _ in range(SETTLING):
            told = (await http.get("/v1/alarms")).json()
            seen = sum(one["responses"] for one in told["watched"] if one["category"] == ALL)
            if seen >= watched.with_facts:
                break
            await asyncio.sleep(0.1)
    return [Raised(alarm=msgspec.convert(row, AlarmRaised)) for row in told["alarms"]]
