"""What was sent, what was answered, and what must have become of it."""

from __future__ import annotations

import random
from typing import Any

import msgspec
from tests.faults.bending import CANNOT_BEAR, REFUSES, WILL_NOT_HAVE, trouble
from tests.faults.campaign.judge import SPOILT

from groundwatch.events import OutcomeKind, ResponseScored
from groundwatch.keys import response_key

TENANTS = ("acme", "brook", "brief")
BRIEF = "brief"
"""The tenant of whom retention keeps nothing for long."""

COLD_SECONDS = 45.0

MODELS = ("heron-7b", "osprey-13b", "ibis-2b")
WORDS = ("dog", "cup", "table", "bird", "tree", "lamp", "chair", "boat", "horse", "window", "kite")
TROUBLES = {"bug": CANNOT_BEAR, "bad input": WILL_NOT_HAVE, "refused": REFUSES}
TROUBLED_SHARE = 0.03
SPOILT_SHARE = 0.04


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome that a response must have: a score with its counts, or a reason."""

    reason: str = ""
    score: float = 0.0
    facts: int = 0
    refuted: int = 0


class Sent(msgspec.Struct, kw_only=True):
    """A response that a client has sent, perhaps more than once.

    `uncertain`: some attempt ended without an answer. `refused`: some attempt was told that it is not
    recorded. `conflicting`: another body of this id is recorded. `gone`: an erasure of it was begun;
    `erased`: one was told to be complete. `acknowledged_at`, `erased_at` and `outcome_at` are seconds of the
    campaign.
    """

    body: dict[str, Any]
    acknowledged_at: float | None = None
    outcome_at: float | None = None
    erased_at: float | None = None
    uncertain: bool = False
    refused: bool = False
    corrected: bool = False
    conflicting: bool = False
    gone: bool = False
    erased: bool = False

    @property
    def waits(self) -> bool:
        """Whether its client goes on sending it."""
        return self.acknowledged_at is None and not (self.gone or self.conflicting)

    @property
    def name(self) -> tuple[str, str]:
        """Tenant and id."""
        return self.body["tenant"], self.body["id"]

    def is_old(self, now: float) -> bool:
        """Whether it was scored so long ago that its events have mostly left the streams."""
        return self.outcome_at is not None and now - self.outcome_at > COLD_SECONDS

    @property
    def key(self) -> str:
        """Its name in subjects."""
        return response_key(*self.name)


class Truth:
    """Everything that was sent, by key; and what was answered that never may be."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(f"truth {seed}")
        self._made = 0
        self.sent: dict[str, Sent] = {}
        self.violations: list[tuple[str, str]] = []

    def violation(self, kind: str, what: str) -> None:
        """Note something that was forbidden."""
        self.violations.append((kind, what))

    def make(self) -> Sent:
        """A response that was never sent before."""
        chance = self._random
        self._made += 1
        words = chance.sample(WORDS, chance.randint(2, 5))
        known = [word for word in WORDS if chance.random() < 0.7]
        thrown = chance.random()
        if thrown < SPOILT_SHARE:
            words.append(chance.choice(tuple(SPOILT)))
        answer = f"{' '.join(words)} {self._made}"
        if SPOILT_SHARE < thrown < SPOILT_SHARE + TROUBLED_SHARE:
            wanted, number = chance.choice(tuple(TROUBLES.values())), self._made
            while trouble(answer) != wanted:
                number += 1_000_000
                answer = f"{' '.join(words)} {number}"
        sent = Sent(
            body={
                "id": f"r{self._made}",
                "tenant": chance.choices(TENANTS, (10, 6, 1))[0],
                "model": chance.choice(MODELS),
                "answer": answer,
                "reference": {"objects": known or ["nothing"], "complete": True},
            }
        )
        self.sent[sent.key] = sent
        return sent

    def correct(self, sent: Sent) -> None:
        """Another body under the same id, as a client may send after it was told "not recorded"."""
        sent.body = {**sent.body, "answer": f"{sent.body['answer']} {self._made}"}
        sent.corrected = True

    def acknowledged(self) -> list[Sent]:
        """Those that were acknowledged, and that nobody has begun to erase."""
        return [one for one in self.sent.values() if one.acknowledged_at is not None and not one.gone]


def expected(body: dict[str, Any], *, cured: bool = True) -> Expected:
    """What must become of a response once every dead letter was retried with success."""
    thrown = trouble(body["answer"])
    if thrown == REFUSES:
        return Expected(reason="refused")
    if not cured and thrown in (CANNOT_BEAR, WILL_NOT_HAVE):
        return Expected(reason="dead_letter")
    words = body["answer"].split()
    for word in words:
        if word in SPOILT:
            return Expected(reason=SPOILT[word][1])
    refuted = sum(word.isalpha() and word not in body["reference"]["objects"] for word in words)
    return Expected(score=1 - refuted / len(words), facts=len(words), refuted=refuted)


def difference(body: dict[str, Any], found: ResponseScored) -> str:
    """How an outcome differs from what it must be; "" when it does not."""
    wanted = expected(body)
    if found.id != body["id"] or found.tenant != body["tenant"] or found.model != body["model"]:
        return f"it is of {found.tenant}/{found.id} by {found.model}"
    if found.outcome is not OutcomeKind.SCORED:
        return "" if found.reason == wanted.reason else f"{found.reason!r} in place of {wanted}"
    if wanted.reason:
        return f"scored {found.score} in place of {wanted.reason!r}"
    told = found.score, found.values.get("facts"), found.values.get("refuted")
    if found.score is None or abs(found.score - wanted.score) > 1e-9:
        return f"{told} in place of {wanted}"
    if told[1:] != (wanted.facts, wanted.refuted) or found.decided != wanted.facts:
        return f"{told} in place of {wanted}"
    return ""
