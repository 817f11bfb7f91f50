"""The arithmetic of FaithScore, example by example and as properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.errors import InputError, Unscorable
from groundwatch.events import (
    Claim,
    ClaimsExtracted,
    ClaimsVerified,
    Decision,
    Judge,
    Label,
    ResponseRecorded,
    SubSentence,
    Verdict,
)
from groundwatch.protocols.faithscore.protocol import (
    CATEGORIES,
    EQUAL_WEIGHTS,
    Fact,
    score_facts,
    score_verified,
)
from groundwatch.reviews.agreement import likert

YES, NO, OPEN = Decision.SUPPORTED, Decision.REFUTED, Decision.UNDECIDED
UNITS = 6

facts = st.lists(
    st.builds(Fact, st.sampled_from(CATEGORIES), st.integers(0, UNITS - 1), st.sampled_from(Decision)),
    max_size=30,
)
decided_facts = facts.filter(lambda found: any(fact.decision is not OPEN for fact in found))
weights = st.dictionaries(st.sampled_from(CATEGORIES), st.floats(0, 5))


def verified(
    claims: list[tuple[str, str, int, Decision]], labels: str = "d", answer: str = "A cat sits."
) -> ClaimsVerified:
    units = tuple(
        SubSentence(start=0, end=1, text="A", label=Label.DESCRIPTIVE if label == "d" else Label.ANALYTICAL)
        for label in labels
    )
    judge = Judge(engine="test")
    return ClaimsVerified(
        extracted=ClaimsExtracted(
            response=ResponseRecorded(id="1", model="m", answer=answer),
            protocol="faithscore",
            judge=judge,
            units=units,
            claims=tuple(
                Claim(text=text, category=category, unit=unit) for text, category, unit, _ in claims
            ),
        ),
        judge=judge,
        verdicts=tuple(Verdict(decision=decision) for *_, decision in claims),
    )


def f_hat(found: list[Fact], weights: dict[str, float] | None = None) -> float | None:
    """Equation 1 with every sub-sentence descriptive; None where it has no value."""
    try:
        return score_facts(found, range(UNITS), weights or EQUAL_WEIGHTS).score
    except Unscorable:
        return None


def sentence_level(found: list[Fact], descriptive: list[int]) -> float | None:
    try:
        return score_facts(found, descriptive).values.get("sentence_level")
    except Unscorable:
        return None


def test_equation_1_as_printed():
    found = [Fact("entity", 0, YES), Fact("entity", 0, NO), Fact("color", 0, YES), Fact("count", 1, YES)]
    assert f_hat(found) == 0.75
    assert f_hat(found, {"color": 2.0}) == 1.0
    assert f_hat(found, {"color": 4.0}) == 1.5
    assert f_hat(found, {"entity": 0.0}) == 0.5


def test_undecided_facts_are_in_neither_part():
    assert f_hat([Fact("entity", 0, YES), Fact("entity", 0, OPEN)]) == 1.0
    assert f_hat([Fact("entity", 0, OPEN)]) is None
    assert f_hat([]) is None


def test_sentence_level_is_the_share_of_descriptive_sub_sentences_without_hallucination():
    found = [Fact("entity", 0, YES), Fact("color", 0, NO), Fact("color", 0, NO), Fact("entity", 1, YES)]
    assert sentence_level(found, [0, 1]) == 0.5
    assert sentence_level(found, [0, 1, 2]) == pytest.approx(2 / 3)


def test_a_sub_sentence_that_nobody_could_judge_is_not_called_faithful():
    found = [Fact("entity", 0, NO), Fact("entity", 1, OPEN)]
    assert sentence_level(found, [0, 1]) == 0.0
    assert sentence_level([Fact("entity", 0, OPEN)], [0]) is None


def test_every_value_of_a_response():
    score = score_verified(
        verified(
            [
                ("There is a cat.", "entity", 0, YES),
                ("there is  a cat.", "entity", 2, YES),
                ("There is a dog.", "entity", 2, NO),
                ("The cat is red.", "color", 0, OPEN),
                ("There are two dogs.", "count", 2, NO),
                ("It is pleasant.", "mood", 0, YES),
                ("It is late.", "other", 1, NO),
            ],
            labels="dadd",
            answer="A cat  sits,\nbeside two dogs. ",
        )
    )
    assert score.score == score.values["faithscore"] == pytest.approx(3 / 5)
    assert score.values == {
        "faithscore": pytest.approx(3 / 5),
        "sentence_level": pytest.approx(2 / 3),
        "descriptive": 3.0,
        "facts": 6.0,
        "decided": 5.0,
        "refuted": 2.0,
        "coverage": pytest.approx(5 / 6),
        "entities": 2.0,
        "answer_words": 6.0,
        "facts.entity": 3.0,
        "decided.entity": 3.0,
        "refuted.entity": 1.0,
        "faithscore.entity": pytest.approx(2 / 3),
        "sentence_level.entity": 0.5,
        "facts.relation": 0.0,
        "decided.relation": 0.0,
        "refuted.relation": 0.0,
        "facts.color": 1.0,
        "decided.color": 0.0,
        "refuted.color": 0.0,
        "facts.count": 1.0,
        "decided.count": 1.0,
        "refuted.count": 1.0,
        "faithscore.count": 0.0,
        "sentence_level.count": 0.0,
        "facts.other": 1.0,
        "decided.other": 1.0,
        "refuted.other": 0.0,
        "faithscore.other": 1.0,
        "sentence_level.other": 1.0,
    }


@pytest.mark.parametrize(
    ("judged", "reason"),
    [
        (verified([], labels=""), "nothing_to_verify"),
        (verified([], labels="a"), "nothing_to_verify"),
        (verified([], labels="d"), "nothing_to_verify"),
        (verified([("It is late.", "other", 0, NO)], labels="ad"), "nothing_to_verify"),
        (verified([("There is a cat.", "entity", 0, OPEN)]), "nothing_decided"),
    ],
)
def test_what_cannot_be_scored_has_a_reason_and_no_number(judged: ClaimsVerified, reason: str):
    with pytest.raises(Unscorable) as caught:
        score_verified(judged)
    assert caught.value.reason == reason


def test_events_that_contradict_themselves_are_refused():
    with pytest.raises(InputError, match="sub-sentence 3 of 1"):
        score_verified(verified([("There is a cat.", "entity", 3, YES)]))
    judged = verified([("There is a cat.", "entity", 0, YES)])
    with pytest.raises(InputError, match="0 verdicts for 1 claims"):
        score_verified(ClaimsVerified(extracted=judged.extracted, judge=judged.judge))


@pytest.mark.parametrize(
    ("hallucinated", "number", "expected"),
    [(0, 1, 5), (1, 1, 1), (1, 2, 3), (2, 3, 2), (1, 3, 3), (1, 4, 4), (2, 4, 3), (3, 4, 2), (9, 9, 1)],
)
def test_likert_of_appendix_a(hallucinated: int, number: int, expected: int):
    assert likert(hallucinated, number) == expected


@pytest.mark.parametrize(("hallucinated", "number"), [(0, 0), (2, 1), (-1, 3)])
def test_likert_of_nothing_is_an_error(hallucinated: int, number: int):
    with pytest.raises(ValueError, match="facts"):
        likert(hallucinated, number)


@given(decided_facts)
def test_scores_lie_between_0_and_1(found: list[Fact]):
    score = score_facts(found, range(UNITS))
    assert 0 <= score.score <= 1
    assert 0 < score.values["coverage"] <= 1
    for name, value in score.values.items():
        if name.startswith(("faithscore", "sentence_level")):
            assert 0 <= value <= 1


@given(decided_facts, weights)
def test_a_weighted_score_is_bounded_by_the_largest_weight(found: list[Fact], given: dict[str, float]):
    complete = {**EQUAL_WEIGHTS, **given}
    score = f_hat(found, complete)
    assert score is not None
    assert 0 <= score <= max(complete.values()) + 1e-9
    counted = [fact for fact in found if fact.decision is not OPEN]
    literal = sum(complete[fact.category] for fact in counted if fact.decision is YES) / len(counted)
    assert score == pytest.approx(literal)


@given(decided_facts, st.randoms(use_true_random=False))
def test_order_says_nothing(found: list[Fact], random):
    shuffled = list(found)
    random.shuffle(shuffled)
    assert score_facts(shuffled, range(UNITS)) == score_facts(found, range(UNITS))


@given(decided_facts, st.integers(2, 4))
def test_saying_everything_again_changes_no_score(found: list[Fact], times: int):
    once = score_facts(found, range(UNITS)).values
    again = score_facts(found * times, range(UNITS)).values
    for name, value in once.items():
        counted = name.split(".")[0] in ("facts", "decided", "refuted")
        assert again[name] == pytest.approx(value * times if counted else value)


@given(decided_facts)
def test_categories_add_up(found: list[Fact]):
    values = score_facts(found, range(UNITS)).values
    for name in ("facts", "decided", "refuted"):
        assert values[name] == sum(values[f"{name}.{category}"] for category in CATEGORIES)
    pooled = sum(values.get(f"faithscore.{c}", 0) * values[f"decided.{c}"] for c in CATEGORIES)
    assert values["faithscore"] == pytest.approx(pooled / values["decided"])


@given(decided_facts)
def test_one_more_hallucination_never_helps(found: list[Fact]):
    before = score_facts(found, range(UNITS)).values
    after = score_facts([*found, Fact("entity", 0, NO)], range(UNITS)).values
    assert after["faithscore"] <= before["faithscore"]


@given(facts)
def test_what_is_not_scored_is_never_a_number(found: list[Fact]):
    undecided = [Fact(fact.category, fact.unit, OPEN) for fact in found]
    with pytest.raises(Unscorable):
        score_facts(undecided, range(UNITS))


def plainly(found: list[Fact], weighed: dict[str, float]) -> dict[str, float]:
    """The values of `score_facts` in their order, each from the definition printed beside its name."""

    def counts(part: list[Fact], suffix: str) -> dict[str, float]:
        decided = [fact for fact in part if fact.decision is not OPEN]
        refuted = [fact for fact in part if fact.decision is NO]
        numbers = {"facts": part, "decided": decided, "refuted": refuted}
        return {f"{name}{suffix}": float(len(some)) for name, some in numbers.items()}

    def share(part: list[Fact], weights: dict[str, float]) -> float | None:
        decided = [fact for fact in part if fact.decision is not OPEN]
        supported = [weights.get(fact.category, 1.0) for fact in decided if fact.decision is YES]
        return sum(supported) / len(decided) if decided else None

    def sentences(part: list[Fact], units: set[int]) -> float | None:
        verdicts = {unit: {fact.decision for fact in part if fact.unit == unit} for unit in units}
        judged = [seen for seen in verdicts.values() if seen != {OPEN}]
        return 1.0 - sum(NO in seen for seen in judged) / len(judged) if judged else None

    values: dict[str, float | None] = {"faithscore": share(found, weighed), "descriptive": float(UNITS)}
    values |= counts(found, "") | {"sentence_level": sentences(found, set(range(UNITS)))}
    for category in CATEGORIES:
        part = [fact for fact in found if fact.category == category]
        values |= counts(part, f".{category}")
        values[f"faithscore.{category}"] = share(part, {})
        values[f"sentence_level.{category}"] = sentences(part, {fact.unit for fact in part})
    values["coverage"] = counts(found, "")["decided"] / len(found)
    return {name: value for name, value in values.items() if value is not None}


@given(decided_facts, st.dictionaries(st.sampled_from(CATEGORIES), st.integers(0, 5)))
def test_values_are_those_of_their_definitions_in_their_order(found, given_weights):
    score = score_facts(found, range(UNITS), given_weights)
    assert list(score.values.items()) == list(plainly(found, given_weights).items())
