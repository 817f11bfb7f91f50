"""Corrected rates of queues: from frames and opinions, written down by the service."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from random import Random
from types import SimpleNamespace

import msgspec
import pytest
from tests.annotation.conftest import Publish, outcome
from tests.annotation.test_service import running
from tests.conftest import BusFactory
from tests.runtime.conftest import eventually
from tests.support.second_opinions import opinion_about

from groundwatch.events import Decision, Judge, OpinionGiven, ResponseScored
from groundwatch.reporting.corrected import EVERY_VERSION, corrected_table
from groundwatch.reporting.sums import fingerprint
from groundwatch.reviews.corrected import (
    QueueSamples,
    corrected_metrics,
    read_corrected,
    read_samples,
    rows_of,
)
from groundwatch.reviews.opinions import Opinions
from groundwatch.reviews.queues import Frame, Items, Queues, QueueSpec
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.statistics.alarm import ALL
from groundwatch.statistics.sampling import weighted_rate

SPEC = QueueSpec(name="q", protocol="faithscore")


def version_of(tags: Mapping[str, str]) -> str:
    return tags.get("version", "")


def judged_answers(
    number: int, seed: int, version: str = "", rate: float = 0.12
) -> list[tuple[ResponseScored, list[bool]]]:
    """Outcomes of a judge that raises many false alarms, and which facts are wrong in truth."""
    random, found = Random(seed), []
    for at in range(number):
        wrong = [random.random() < rate for _ in range(random.randint(1, 5))]
        doubts = [0.3 if random.random() < (0.95 if one else 0.1) else 0.9 for one in wrong]
        tags = {"version": version} if version else {}
        found.append((outcome(f"{seed}-{at}", doubts, tags=tags), wrong))
    return found


def truth_about(
    event: ResponseScored, wrong: Sequence[bool], reviewer: str = "ann", probability: float = 0.1
) -> OpinionGiven:
    return opinion_about(event, wrong, reviewer=reviewer, probability=probability)


def framed(answers: Sequence[tuple[ResponseScored, list[bool]]]) -> Frame:
    frame = Frame(queue="q")
    for event, _ in answers:
        frame.add(event, version_of(event.tags))
    return frame


def test_opinions_correct_what_the_judge_gets_wrong() -> None:
    answers = judged_answers(3_000, 1)
    opinions = [truth_about(*one) for one in answers[:300]]
    rows = rows_of(QueueSamples(SPEC, framed(answers), opinions, version_of))
    assert [(row.version, row.category) for row in rows] == [
        (version, category) for version in ("", "*") for category in ("all", "color", "entity")
    ]
    whole = rows[0]
    true = sum(sum(wrong) for _, wrong in answers) / sum(len(wrong) for _, wrong in answers)
    assert whole.judged.low > true + 0.05
    assert whole.corrected.low <= true <= whole.corrected.high
    assert whole.corrected.high - whole.corrected.low < 0.9 * (
        whole.labels_alone.high - whole.labels_alone.low
    )
    assert (whole.by, whole.opinions, whole.reason, whole.whole) == ("people", 300, "", True)
    assert whole.for_half > 300


def test_versions_stand_apart_and_together() -> None:
    answers = judged_answers(400, 1, "a") + judged_answers(400, 2, "b")
    opinions = [truth_about(*one) for one in answers[::10]]
    rows = rows_of(QueueSamples(SPEC, framed(answers), opinions, version_of))
    found = {row.version: row.opinions for row in rows if row.category == "all"}
    assert found == {"*": 80, "a": 40, "b": 40}


def test_people_and_models_stand_apart_and_several_people_count_as_one() -> None:
    answers = judged_answers(400, 1)
    opinions = [truth_about(*one) for one in answers[:40]]
    opinions += [truth_about(event, [not one for one in wrong], "ben") for event, wrong in answers[:40]]
    model = Judge(engine="llm", model="better")
    opinions += [
        msgspec.structs.replace(truth_about(event, wrong), reviewer=f"judge:{model.fingerprint}", judge=model)
        for event, wrong in answers[:20]
    ]
    rows = {
        row.by: row
        for row in rows_of(QueueSamples(SPEC, framed(answers), opinions, version_of))
        if row.category == "all"
    }
    assert (rows["people"].opinions, rows["model"].opinions) == (40, 20)
    assert rows["people"].labels_alone.value == pytest.approx(0.5)


def test_what_no_rule_drew_counts_nowhere_and_there_is_a_reason_for_no_number() -> None:
    answers = judged_answers(100, 1)
    undrawn = [truth_about(*one, probability=0.0) for one in answers]
    (whole, *_) = rows_of(QueueSamples(SPEC, framed(answers), undrawn, version_of))
    assert (whole.corrected, whole.opinions, whole.reason) == (None, 0, "no opinion")
    assert whole.judged is not None
    (whole, *_) = rows_of(
        QueueSamples(SPEC, framed(answers), [truth_about(*one) for one in answers[:5]], version_of)
    )
    assert "fewer than 10" in whole.reason and whole.corrected == whole.labels_alone


def test_undecided_and_removed_facts_count_nowhere() -> None:
    answers = judged_answers(200, 1)
    opinions = []
    for event, wrong in answers[:50]:
        opinion = truth_about(event, wrong)
        first, *others = opinion.facts
        spoiled = (
            msgspec.structs.replace(first, removed=True, decision=Decision.REFUTED),
            *(msgspec.structs.replace(one, decision=Decision.UNDECIDED) for one in others),
        )
        opinions.append(msgspec.structs.replace(opinion, facts=spoiled))
    (whole, *_) = rows_of(QueueSamples(SPEC, framed(answers), opinions, version_of))
    assert (whole.corrected, whole.reason) == (None, "no opinion decides a fact")


def test_metrics_and_the_table_have_what_has_a_number() -> None:
    answers = judged_answers(400, 1)
    rows = rows_of(
        QueueSamples(SPEC, framed(answers), [truth_about(*one) for one in answers[:40]], version_of)
    )
    metrics = Metrics()
    corrected_metrics(metrics, rows)
    labels = {"queue": "q", "model": "lvlm", "version": "", "protocol": "faithscore", "category": "all"}
    labels |= {"judges": rows[0].fingerprint, "by": "people"}
    assert metrics.registry.get_sample_value("groundwatch_corrected_rate", labels) == rows[0].corrected.value
    assert metrics.registry.get_sample_value("groundwatch_corrected_rate_opinions", labels) == 40
    judged = metrics.registry.get_sample_value("groundwatch_corrected_rate_judged", labels)
    assert judged == rows[0].judged.value
    corrected_metrics(metrics, ())
    assert metrics.registry.get_sample_value("groundwatch_corrected_rate", labels) is None
    assert len(corrected_table(rows).rows) == 1


@pytest.mark.usefixtures("clean_streams")
async def test_the_service_writes_them_down_after_an_opinion(
    bus: Bus, bus_factory: BusFactory, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of other draws one in twenty has an interval without the true rate.
    monkeypatch.setattr(
        "groundwatch.reviews.queues.secrets", SimpleNamespace(token_hex=lambda size: "5a" * size)
    )
    answers = judged_answers(120, 1)
    await publish([event for event, _ in answers])
    by_key = {event.key: (event, wrong) for event, wrong in answers}
    await Queues(bus).create(QueueSpec(name="q", protocol="faithscore", size=40, until=time.time()))
    reviewer = await bus_factory("gateway")
    async with running(bus):

        async def drawn() -> bool:
            return len(await Items(reviewer).all("q")) == 40

        await eventually(drawn, within=20)
        for item in await Items(reviewer).all("q"):
            opinion = truth_about(*by_key[item.key], probability=item.probability)
            await Opinions(reviewer).give(opinion)

        async def computed() -> bool:
            return any(row.opinions == 40 for row in (await read_corrected(reviewer)).rows)

        await eventually(computed, within=60)
    (whole, *_) = (await read_corrected(reviewer)).rows
    assert whole.fingerprint and whole.judged == weighted_rate(next(iter(framed(answers).sums.values())))
    assert whole.corrected.low <= 0.12 <= whole.corrected.high


@pytest.mark.usefixtures("clean_streams")
async def test_opinions_of_a_queue_that_was_deleted_are_none_of_the_next_one_of_its_name(bus: Bus) -> None:
    queues = Queues(bus)
    await queues.create(SPEC)
    ((event, wrong),) = judged_answers(1, 1)
    await Opinions(bus).give(truth_about(event, wrong))

    async def answers() -> int:
        (samples,) = await read_samples(bus, version_of)
        group = ("lvlm", EVERY_VERSION, "faithscore", fingerprint(event.judges), ALL)
        return len(samples.labelled("people", group, lambda one: True))

    assert await answers() == 1
    await queues.delete("q")
    await queues.create(SPEC)
    assert await answers() == 0
    await Opinions(bus).give(truth_about(event, wrong, probability=0.2))
    assert await answers() == 1
