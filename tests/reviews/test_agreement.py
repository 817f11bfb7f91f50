"""Agreement as opinions come in: judges against people, people against each other."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
from tests.annotation.conftest import Publish, outcome
from tests.annotation.test_service import running
from tests.conftest import BusFactory
from tests.reviews.test_corrected import judged_answers, truth_about
from tests.runtime.conftest import eventually

from groundwatch.events import Decision, Judge, OpinionGiven, ResponseScored
from groundwatch.reviews import agreement
from groundwatch.reviews.agreement import (
    AgreementReader,
    agreement_metrics,
    agreement_of,
    read_agreement,
    verdicts_of,
)
from groundwatch.reviews.opinions import Opinions
from groundwatch.reviews.queues import QueueSpec
from groundwatch.runtime.delivery.bus import Bus, Outgoing
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.statistics.agreement import cohen_kappa
from groundwatch.topology import subject_of


def known(*events: ResponseScored):
    return {(one.run, one.protocol, one.key): verdicts_of(one) for one in events}


def test_precision_and_recall_are_of_what_does_not_hold() -> None:
    # The judge refutes the last two facts, people the second and the last.
    event = outcome("a", (0.9, 0.8, 0.2, 0.1))
    opinion = truth_about(event, [False, True, False, True])
    (whole, *_) = agreement_of([opinion], known(event)).judges
    assert (whole.category, whole.answers, whole.facts) == ("all", 1, 4)
    assert (whole.precision.value, whole.recall.value, whole.f1.value) == (0.5, 0.5, 0.5)
    assert whole.kappa.value == pytest.approx(0)
    assert whole.fingerprint == opinion.fingerprint


def test_where_judges_lean_is_told_by_place_and_family_and_weighs_what_was_drawn() -> None:
    # Of three facts the judge refutes the last one wrongly, in an answer that stands for nine others.
    lean, right = outcome("a", (0.9, 0.9, 0.1)), outcome("b", (0.9, 0.9, 0.1))
    opinions = [
        msgspec.structs.replace(truth_about(lean, [False] * 3), probability=0.1, model="Qwen/Qwen3-VL-8B"),
        msgspec.structs.replace(truth_about(right, [False, False, True]), probability=1.0, model="qwen2"),
        msgspec.structs.replace(truth_about(right, [True] * 3), probability=0.0, reviewer="own accord"),
    ]
    found = {one.part: one for one in agreement_of(opinions, known(lean, right)).bias}
    assert list(found) == ["family qwen", "first third", "last third", "second third"]
    assert found["last third"].bias.value == pytest.approx(10 / 11) and found["last third"].facts == 2
    assert found["first third"].bias.value == 0.0
    assert found["family qwen"].bias.value == pytest.approx(10 / 33) and found["family qwen"].by == "people"
    assert found["family qwen"].bias.low <= 10 / 33 <= found["family qwen"].bias.high
    # What was chosen since the judge refuted it is often refuted wrongly, and stands for no others.
    chosen = [msgspec.structs.replace(one, queue="chosen", reviewer="ben") for one in opinions]
    by_verdict: list[dict[str, Any]] = [{"verdict": Decision.REFUTED}, {"rule": "alarm"}]
    for narrowed in by_verdict:
        specs = [QueueSpec(name="chosen", protocol="faithscore", **narrowed)]
        biases = agreement_of([*chosen, *opinions], known(lean, right), specs=specs).bias
        assert biases == tuple(found.values())
    # However many look at an answer, it stands for as many others.
    more = [msgspec.structs.replace(opinions[0], reviewer=name) for name in ("ben", "cy")]
    again = {one.part: one for one in agreement_of([*opinions, *more], known(lean, right)).bias}
    assert again["last third"].bias.value == pytest.approx(10 / 11) and again["last third"].facts == 4


@pytest.mark.usefixtures("clean_streams")
async def test_however_much_models_say_people_are_held_against_the_judges(
    bus: Bus, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agreement, "REMEMBERED", 4)
    answers = judged_answers(6, 5)
    await publish([event for event, _ in answers])
    reader, judge = AgreementReader(bus), Judge(engine="second")
    for event, wrong in answers[:4]:
        said = msgspec.structs.replace(truth_about(event, wrong), judge=judge, reviewer="judge:second")
        await Opinions(bus).give(said)
    assert {one.by for one in (await reader.compute(1.0)).bias} == {"model"}
    for event, wrong in answers[4:]:
        await Opinions(bus).give(truth_about(event, wrong))
    assert (await reader.compute(2.0)).judges[0].answers == 2


def test_kappa_is_that_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    found = cohen_kappa([(3, 1, 0, 4), (0, 2, 1, 6), (1, 0, 0, 9)])
    first = [1] * 7 + [0] * 20
    second = [1] * 4 + [0] * 3 + [1] + [0] * 19
    assert found.value == pytest.approx(metrics.cohen_kappa_score(first, second))
    assert found.low <= found.value <= found.high
    assert cohen_kappa([(0, 0, 0, 5)]) is None and cohen_kappa([]) is None


def test_what_has_no_verdict_to_be_held_against_counts_nowhere() -> None:
    event = outcome("a", (0.9, 0.2))
    opinion = truth_about(event, [False, True])
    first, second = opinion.facts

    def facts_of(*facts) -> int:
        told = agreement_of([msgspec.structs.replace(opinion, facts=facts)], known(event)).judges
        return told[0].facts if told else 0

    assert facts_of(first, second) == 2
    assert facts_of(msgspec.structs.replace(first, removed=True), second) == 1
    assert facts_of(msgspec.structs.replace(first, claim=None), second) == 1
    assert facts_of(msgspec.structs.replace(first, text="another"), second) == 1
    assert facts_of(msgspec.structs.replace(first, decision=Decision.UNDECIDED), second) == 1
    assert facts_of(msgspec.structs.replace(first, claim=7), second) == 1


def test_reviewers_among_each_other_and_metrics() -> None:
    answers = judged_answers(40, 3)
    opinions: list[OpinionGiven] = []
    for event, wrong in answers:
        opinions += [truth_about(event, wrong, name) for name in ("ann", "ben")]
    found = agreement_of(opinions, known(*(event for event, _ in answers)))
    whole = found.reviewers[0]
    assert (whole.category, whole.reviewers, whole.alpha.value) == ("all", 2, pytest.approx(1))
    assert whole.fleiss is None or whole.fleiss.value == pytest.approx(1)
    metrics = Metrics()
    agreement_metrics(metrics, found)
    labels = {"protocol": "faithscore", "category": "all", "number": "value"}
    judges = {"judges": found.judges[0].fingerprint, "measure": "kappa"}
    assert (
        metrics.registry.get_sample_value("groundwatch_agreement", labels | judges)
        == found.judges[0].kappa.value
    )
    alpha = metrics.registry.get_sample_value(
        "groundwatch_agreement", labels | {"judges": "", "measure": "alpha"}
    )
    assert alpha == whole.alpha.value


@pytest.mark.usefixtures("clean_streams")
async def test_the_service_tells_it_after_an_opinion(
    bus: Bus, bus_factory: BusFactory, publish: Publish
) -> None:
    answers = judged_answers(12, 5)
    await publish([event for event, _ in answers])
    reviewer = await bus_factory("gateway")
    for event, wrong in answers:
        await Opinions(reviewer).give(truth_about(event, wrong, probability=0.0))
    model = Judge(engine="llm")
    told = msgspec.structs.replace(truth_about(*answers[0]), reviewer="judge:x", judge=model)
    await Opinions(reviewer).give(told)
    async with running(bus):
        for _ in range(200):
            found = await read_agreement(reviewer)
            if found.judges:
                break
            await asyncio.sleep(0.1)
    assert found.judges[0].answers == 12
    assert found.judges[0].facts == sum(len(wrong) for _, wrong in answers)
    assert found.judges[0].recall.value > found.judges[0].precision.value


@pytest.mark.usefixtures("clean_streams")
async def test_what_is_no_opinion_is_skipped_and_told(
    bus: Bus, bus_factory: BusFactory, publish: Publish
) -> None:
    answers = judged_answers(4, 5)
    await publish([event for event, _ in answers])
    reviewer = await bus_factory("gateway")
    for event, wrong in answers:
        await Opinions(reviewer).give(truth_about(event, wrong, probability=0.0))
    whole = msgspec.to_builtins(truth_about(*answers[0], "eve"))
    fact = whole["facts"][0]
    spoiled = [
        whole | {"facts": [fact | {"claim": -100}]},
        whole | {"facts": [fact | {"claim": 10**40}]},
        whole | {"judged": {"all": [-5, 10**400]}},
        whole | {"probability": 1e300},
        whole | {"weight": -1.0},
        [],
    ]
    for number, one in enumerate(spoiled):
        place = subject_of("opinion", "live", "faithscore", "0" * 32, f"{number:032x}")
        await reviewer.create(Outgoing(subject=place, payload=json.dumps(one).encode()))
    async with running(bus) as service:

        async def told() -> bool:
            return bool((await read_agreement(reviewer)).judges and service.notes())

        await eventually(told, within=20)
        assert service.notes() == ["annotation: 6 messages of GW_OPINIONS are no opinions and count nowhere"]
        assert service.problems() == []
    assert (await read_agreement(reviewer)).judges[0].answers == 4


def test_marks_among_reviewers_and_against_the_judges_rates() -> None:
    """Ann marks as the judges would on their scale (nothing refuted: 5; all: 1), Ben lower where he can."""
    opinions = []
    for number, (holds, mark) in enumerate([((0.9, 0.9), 5), ((0.1, 0.1), 1), ((0.9, 0.1), 3)] * 4):
        event = outcome(f"m{number}", holds)
        opinion = truth_about(event, [False, False])
        for reviewer, said in (("ann", mark), ("ben", max(1, mark - 1)), ("cid", None)):
            opinions.append(msgspec.structs.replace(opinion, reviewer=reviewer, mark=said))
    found = agreement_of(opinions, {})
    (among,) = [one for one in found.reviewers if one.category == "mark"]
    assert (among.facts, among.reviewers) == (12, 2)
    assert among.fleiss is not None and -1 < among.fleiss.value < 0.5
    (against,) = [one for one in found.judges if one.category == "mark"]
    assert (against.answers, against.facts, against.precision) == (12, 24, None)
    assert against.kappa is not None and 0.3 < against.kappa.value < 1
    alone = agreement_of([one for one in opinions if one.reviewer == "ann"], {})
    (perfect,) = [one for one in alone.judges if one.category == "mark"]
    assert perfect.kappa is not None and perfect.kappa.value == pytest.approx(1)
    assert not [one for one in alone.reviewers if one.category == "mark"]
