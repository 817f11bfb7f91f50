"""Whether judges drift from people: later answers against earlier ones that were drawn alike."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
from tests.annotation.conftest import outcome
from tests.reviews.test_agreement import known
from tests.reviews.test_corrected import truth_about

from groundwatch.events import OpinionGiven, ResponseScored
from groundwatch.reviews.agreement import JudgeDrift, agreement_metrics, agreement_of
from groundwatch.reviews.queues import QueueSpec
from groundwatch.runtime.telemetry.metrics import Metrics

Answers = list[tuple[ResponseScored, OpinionGiven]]


def answers(
    number: int, *, missed: float, since: float = 0.0, queue: str = "q", share: float = 0.2, **changes: Any
) -> Answers:
    """Answers of five facts, of which `share` are wrong and the judge misses some of these; one a second."""
    random, found = Random(number), []
    for at in range(number):
        wrong = [random.random() < share for _ in range(5)]
        doubts = [0.2 if one and random.random() >= missed else 0.9 for one in wrong]
        event = outcome(f"{queue}-{since}-{at}", doubts, recorded_at=since + at)
        opinion = msgspec.structs.replace(truth_about(event, wrong), queue=queue, **changes)
        found.append((event, opinion))
    return found


def drifts(made: Answers, *specs: QueueSpec) -> tuple[JudgeDrift, ...]:
    # Opinions come in the random order of the queue.
    opinions = Random(1).sample([opinion for _, opinion in made], len(made))
    return agreement_of(opinions, known(*(event for event, _ in made)), 0.0, specs).drift


def spec(name: str = "q", **changes: Any) -> QueueSpec:
    return QueueSpec(name=name, protocol="faithscore", **changes)


def test_the_answers_recorded_last_are_held_against_those_before() -> None:
    made = answers(300, missed=0.1) + answers(200, missed=0.7, since=1_000)
    (found,) = drifts(made, spec())
    assert (found.protocol, found.queue) == ("faithscore", "q")
    assert found.before is not None and found.latest is not None
    assert (found.before.n, found.latest.n) == (300, 200)
    assert found.before.low > 0.85 and found.latest.high < 0.6

    (same,) = drifts(answers(500, missed=0.1), spec())
    assert same.before is not None and same.latest is not None
    assert same.latest.high > same.before.low


def test_of_few_the_later_half_is_the_latest() -> None:
    (found,) = drifts(answers(101, missed=0.1), spec())
    assert found.before is not None and found.latest is not None
    assert (found.before.n, found.latest.n) == (51, 50)


def test_queues_are_one_where_they_are_drawn_alike() -> None:
    made = answers(100, missed=0.1) + answers(100, missed=0.1, since=1_000, queue="next")
    (found,) = drifts(made, spec(size=100), spec("next", rule="all", created_at=5.0))
    assert found.queue == "next"
    assert found.before is not None and found.before.n == 100
    # The judge is wrong more often where it is unsure: that is no drift.
    for other in (spec("next", rule="uncertain"), spec("next", verdict="refuted"), spec("next", model="m")):
        assert [one.queue for one in drifts(made, spec(), other)] == ["next", "q"]


def test_what_says_nothing_of_the_judge_counts_nowhere() -> None:
    assert drifts(answers(100, missed=0.1, probability=0.0), spec()) == ()
    assert drifts(answers(100, missed=0.1), spec("another")) == ()
    assert drifts(answers(100, missed=0.1), spec(rule="alarm")) == ()
    made = answers(100, missed=0.1)
    last = max(opinion.given_at for _, opinion in made)
    assert drifts(made, spec(created_at=last + 1)) == (), "of a queue of its name that was deleted"


def test_where_hardly_anything_is_wrong_one_miss_is_no_drift() -> None:
    made = answers(200, missed=0.0, share=0.1) + answers(200, missed=1.0, share=0.002, since=1_000)
    (found,) = drifts(made, spec())
    assert found.before is not None and found.latest is None
    metrics = Metrics()
    agreement_metrics(metrics, agreement_of([], {}))
    told = agreement_of([one for _, one in made], known(*(event for event, _ in made)), 0.0, [spec()])
    agreement_metrics(metrics, told)
    labels = {"protocol": "faithscore", "judges": found.fingerprint, "queue": "q", "number": "low"}
    value = metrics.registry.get_sample_value
    assert value("groundwatch_judge_drift", labels | {"answers": "before"}) == found.before.low
    assert value("groundwatch_judge_drift", labels | {"answers": "latest"}) is None
