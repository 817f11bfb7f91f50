"""Judges in a row: who is asked about what, whose word stands, and under which name."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.errors import GroundwatchError, InputError, MissingExtraError, Unavailable, Unscorable
from groundwatch.events import (
    OWN_PROMPTS,
    Claim,
    ClaimsExtracted,
    Decision,
    Judge,
    KnownFact,
    Reference,
    ResponseRecorded,
    Usage,
    Verdict,
    own_prompts,
)
from groundwatch.protocols.base import EvaluationProtocol
from groundwatch.protocols.faithscore.protocol import FaithScore
from groundwatch.runtime.settings.judges import CascadeStep
from groundwatch.verification.engines.base import LOOPS, NOT_JUDGED, Verification, VerificationEngine
from groundwatch.verification.engines.cascade import CascadeEngine, Step
from groundwatch.verification.engines.reference import ReferenceEngine

YES, NO, OPEN = Decision.SUPPORTED, Decision.REFUTED, Decision.UNDECIDED


class Known(VerificationEngine):
    """Says of each claim what is known of it, and remembers what it was asked."""

    def __init__(self, says: dict[str, Verdict] | Exception, *, name: str = "known", batch: int = 8) -> None:
        self.says, self.batch, self.name = says, batch, name
        self.asked: list[list[str]] = []

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        return Judge(engine=self.name)

    async def verify(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Verification | GroundwatchError]:
        self.asked += [[claim.text for claim in event.claims] for event in extracted]
        if isinstance(self.says, GroundwatchError) and not isinstance(self.says, MissingExtraError):
            return [self.says] * len(extracted)
        if isinstance(self.says, Exception):
            raise self.says
        return [
            Verification(
                verdicts=tuple(self.says[claim.text] for claim in event.claims if claim.text in self.says),
                usage=Usage(calls=1, cost=0.25),
            )
            for event in extracted
        ]


def event(*claims: str, **response: object) -> ClaimsExtracted:
    recorded = ResponseRecorded(**{"id": "1", "model": "m", "answer": "x"} | response)
    found = tuple(Claim(text=text, category="entity") for text in claims)
    return ClaimsExtracted(response=recorded, protocol="faithscore", judge=Judge(engine="t"), claims=found)


def cascade(
    *engines: VerificationEngine, low: float | None = None, high: float | None = None
) -> CascadeEngine:
    """All but the last believed outside of the same bounds."""
    first = CascadeStep(engine="known", refuted_below=low, supported_above=high)
    steps = [Step(first, one) for one in engines[:-1]]
    return CascadeEngine([*steps, Step(CascadeStep(engine="known"), engines[-1])])


def verify(engine: VerificationEngine, *events: ClaimsExtracted) -> list[Verification | GroundwatchError]:
    return list(asyncio.run(engine.verify(events, FaithScore())))


PROBABILITIES = st.none() | st.floats(0, 1)
VERDICTS = st.builds(Verdict, decision=st.sampled_from(Decision), probability=PROBABILITIES)
CLAIMS = ("a", "b", "c", "d", "e")


@given(
    said=st.lists(st.fixed_dictionaries(dict.fromkeys(CLAIMS, VERDICTS)), min_size=2, max_size=4),
    bounds=st.none() | st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted),
    several=st.lists(st.lists(st.sampled_from(CLAIMS), max_size=7), min_size=1, max_size=3),
)
def test_each_claim_is_judged_by_the_first_that_is_believed(
    said: list[dict[str, Verdict]], bounds: list[float] | None, several: list[list[str]]
) -> None:
    def stands(verdict: Verdict) -> bool:
        if bounds is None or verdict.probability is None or verdict.decision is OPEN:
            return verdict.decision is not OPEN
        return verdict.probability < bounds[0] if verdict.decision is NO else verdict.probability > bounds[1]

    judges = [Known(one) for one in said]
    low, high = bounds or (None, None)
    results = verify(cascade(*judges, low=low, high=high), *(event(*claims) for claims in several))
    asked: list[list[list[str]]] = [[] for _ in judges]
    for claims, result in zip(several, results, strict=True):
        by = {
            text: next((at for at, one in enumerate(said[:-1]) if stands(one[text])), len(said) - 1)
            for text in claims
        }
        assert isinstance(result, Verification)
        assert [(one.decision, one.probability) for one in result.verdicts] == [
            (said[by[text]][text].decision, said[by[text]][text].probability) for text in claims
        ]
        marks = [f"(judge {by[text] + 1} of {len(said)}: known)" for text in claims]
        assert [one.evidence for one in result.verdicts] == marks
        requests = [[text for text in claims if by[text] >= at] for at in range(len(said))]
        for at, request in enumerate(requests):
            asked[at] += [request] if request else []
        assert result.usage == sum((Usage(calls=1, cost=0.25) for one in requests if one), Usage())
    assert [judge.asked for judge in judges] == asked, "one request for each response, of what is left"


SURE = {"a": Verdict(decision=YES, probability=0.99), "b": Verdict(decision=NO, probability=0.5)}
ALL = {text: Verdict(decision=YES, evidence="seen") for text in CLAIMS}


@pytest.mark.parametrize("reason", ["missing_image", "no_reference", "nothing_to_look_at"])
def test_who_cannot_judge_a_response_passes_it_on(reason: str) -> None:
    last = Known(ALL)
    (result,) = verify(cascade(Known(Unscorable(reason)), last), event("a", "b"))
    assert isinstance(result, Verification) and last.asked == [["a", "b"]]
    assert result.verdicts[0] == Verdict(decision=YES, evidence="seen (judge 2 of 2: known)")


def test_what_the_last_cannot_judge_is_undecided_and_the_rest_stands() -> None:
    (result,) = verify(
        cascade(Known(SURE), Known(Unscorable("missing_image")), low=0.1, high=0.9), event("a", "b")
    )
    assert isinstance(result, Verification) and not result.whole
    assert [one.decision for one in result.verdicts] == [YES, OPEN]
    assert result.verdicts[1].evidence == f"{NOT_JUDGED}: missing_image"
    nobody = cascade(Known(Unscorable("no_reference")), Known(Unscorable("missing_image")))
    (result,) = verify(nobody, event("a", "b"))
    assert isinstance(result, Unscorable) and result.reason == "missing_image"


@pytest.mark.parametrize("away", [Unavailable("away", judge="m"), MissingExtraError("torch", "embedded")])
def test_who_is_away_is_waited_for_and_never_left_out(away: Exception) -> None:
    last = Known(ALL)
    (result,) = verify(cascade(Known(away), last), event("a"))
    assert isinstance(result, Unavailable) and not last.asked
    first, second = verify(cascade(Known(SURE), Known(away), low=0.1, high=0.9), event("a"), event("a", "b"))
    assert isinstance(first, Verification), "of this one nothing was left to ask"
    assert isinstance(second, Unavailable)


def test_a_judge_with_too_few_verdicts_gives_none() -> None:
    (result,) = verify(cascade(Known({"a": SURE["a"]}), Known(ALL)), event("a", "b"))
    assert isinstance(result, InputError) and "1 verdicts for 2 claims" in str(result)


def test_who_answers_may_change_on_the_way() -> None:
    class Changing(Known):
        def judge(self, protocol: EvaluationProtocol) -> Judge:
            return Judge(engine="known", model=f"checkpoint-{len(self.asked)}")

    (result,) = verify(cascade(Changing(SURE), Known(ALL)), event("a"))
    assert isinstance(result, Unavailable) and "checkpoint-1" in str(result)


def test_prompts_of_the_users_own_are_told_of_each_judge() -> None:
    class Asked(Known):
        def judge(self, protocol: EvaluationProtocol) -> Judge:
            return Judge(engine="known", prompt=f"0123456789abcdef{OWN_PROMPTS}{self.name}/verify")

    several = cascade(Asked(ALL, name="a"), Known(ALL), Asked(ALL, name="b"))
    assert own_prompts(several.judge(FaithScore()).prompt) == ["a/verify", "b/verify"]
    assert cascade(Known(ALL), Known(ALL)).judge(FaithScore()).prompt == ""


def test_two_that_could_differ_have_different_names() -> None:
    a, b, c = (Known(ALL, name=name) for name in "abc")
    several = [
        cascade(a, b),
        cascade(b, a),
        cascade(a, b, c),
        cascade(a, b, low=0.1),
        cascade(a, b, high=0.1),
        cascade(a, b, low=0.1, high=0.9),
        cascade(a, b, low=0.1, high=0.90000001),
    ]
    judges = [one.judge(FaithScore()) for one in several]
    assert len({judge.fingerprint for judge in judges}) == len(several)
    assert judges[5].model == "a (<0.1, >0.9) > b" and judges[5].engine == "cascade"


def test_the_reference_first_and_the_rest_by_the_next() -> None:
    """Rules have no probability: what they decide stands, and what a reference leaves open does not."""
    last = Known({"There is a bird.": Verdict(decision=NO, probability=0.4)})
    known = Reference(facts=(KnownFact(text="There is a cat.", holds=True),))
    claims = ("There is a bird.", "There is a cat.")
    (result,) = verify(cascade(ReferenceEngine(), last, low=0.1, high=0.9), event(*claims, reference=known))
    assert isinstance(result, Verification) and last.asked == [["There is a bird."]]
    assert [one.decision for one in result.verdicts] == [NO, YES]
    assert result.verdicts[1].evidence.endswith("(judge 1 of 2: known)")


def test_as_many_at_once_as_its_judges_take() -> None:
    several = cascade(ReferenceEngine(), Known(ALL, batch=1), Known(ALL, batch=1))
    assert (several.batch, several.at_once, several.judges) == (1, 2 + LOOPS, 2)
    here = cascade(ReferenceEngine(), Known(ALL))
    assert (here.batch, here.at_once, here.judges) == (64, 0, 1)
