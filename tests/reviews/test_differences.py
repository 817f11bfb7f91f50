"""Differences of corrected rates: of two versions, and before and after a turn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import msgspec
from tests.reviews.test_corrected import framed, judged_answers, truth_about, version_of

from groundwatch.events import AlarmRaised, Judge, OpinionGiven, ResponseScored
from groundwatch.reporting.alarms import Raised
from groundwatch.reporting.corrected import VersionDifference, tell_corrected
from groundwatch.reporting.sums import fingerprint
from groundwatch.reviews.corrected import QueueSamples, correct_alarm, correct_alarms, version_differences
from groundwatch.reviews.queues import Frame, QueueSpec

Answers = Sequence[tuple[ResponseScored, list[bool]]]

A = judged_answers(1_500, 1, "a")
B = judged_answers(1_500, 2, "b", rate=0.2)
JUDGES = fingerprint(A[0][0].judges)


def samples(
    answers: Answers, opinions: Iterable[OpinionGiven], frame: Frame | None = None, **spec: Any
) -> QueueSamples:
    made = QueueSpec(**{"name": "q", "protocol": "faithscore"} | spec)
    return QueueSamples(made, frame or framed(answers), opinions, version_of)


def differences(*queues: QueueSamples) -> tuple[VersionDifference, ...]:
    return version_differences(queues, "lvlm", "faithscore", JUDGES, "a", "b")


def true_rate(answers: Answers, category: str = "all") -> float:
    facts = [
        one
        for event, wrong in answers
        for claim, one in zip(event.claims, wrong, strict=True)
        if category in ("all", claim.category)
    ]
    return sum(facts) / len(facts)


def test_the_corrected_difference_of_two_versions_holds_the_truth() -> None:
    random = Random(5)
    frame = framed([*A, *B])
    true = {name: true_rate(B, name) - true_rate(A, name) for name in ("all", "color", "entity")}
    held, draws = dict.fromkeys(true, 0), 60
    for _ in range(draws):
        drawn = [one for one in [*A, *B] if random.random() < 0.1]
        rows = differences(samples((), [truth_about(*one) for one in drawn], frame))
        assert [row.category for row in rows] == list(true)
        for row in rows:
            held[row.category] += row.difference.low <= true[row.category] <= row.difference.high
    # Of 60 draws 57 are expected, and 52 or fewer come about once in 50.
    assert min(held.values()) >= 52, held


def test_it_stands_beside_what_the_judges_say_and_is_narrower_than_opinions_alone() -> None:
    opinions = [truth_about(*one) for one in [*A[::10], *B[::10]]]
    whole, *categories = differences(samples([*A, *B], opinions))
    assert (whole.by, whole.queues, whole.opinions, whole.reason) == ("people", ("q", "q"), (150, 150), "")
    alone = whole.labels_alone.high - whole.labels_alone.low
    assert whole.difference.high - whole.difference.low < 0.9 * alone
    assert whole.judged[0].low > true_rate(A) and whole.corrected[0].low < true_rate(A)
    assert whole.judged_difference.value == whole.judged[1].value - whole.judged[0].value
    assert whole.difference.value == whole.corrected[1].value - whole.corrected[0].value
    assert [row.category for row in categories] == ["color", "entity"]


def test_each_version_is_told_by_the_queue_with_the_most_opinions_about_it() -> None:
    of_all = samples([*A, *B], [truth_about(*one) for one in [*A[::10], *B[::100]]])
    only_b = samples(B, [truth_about(*one) for one in B[::10]], name="only-b", version="b")
    narrowed = samples(B, [truth_about(*one) for one in B], name="shop", tenant="shop")
    (whole, *_) = differences(of_all, narrowed, only_b)
    assert (whole.queues, whole.opinions) == (("q", "only-b"), (150, 150))


def test_without_opinions_of_one_version_it_says_so() -> None:
    assert differences()[0].reason == (
        "no second opinion about a and b: make a queue of its answers and review it"
    )
    (only,) = differences(samples([*A, *B], [truth_about(*one) for one in A[::10]]))
    assert only.reason.startswith("no second opinion about b: make a queue")
    assert only.difference is None and only.corrected[0] is not None and only.corrected[1] is None
    (few, *_) = differences(samples([*A, *B], [truth_about(*one) for one in [*A[::10], *B[:5]]]))
    assert few.reason.startswith("fewer than 10 opinions") and few.difference is not None


def test_people_and_models_are_not_held_against_each_other() -> None:
    model = Judge(engine="llm", model="better")
    by_people = [truth_about(*one) for one in A[::10]]
    by_model = [
        msgspec.structs.replace(truth_about(*one), reviewer=f"judge:{model.fingerprint}", judge=model)
        for one in [*A[::20], *B[::20]]
    ]
    (whole, *_) = differences(samples([*A, *B], [*by_people, *by_model]))
    assert (whole.by, whole.opinions) == ("model", (75, 75))


SINCE = 10_000.0
ALARM = AlarmRaised(
    model="lvlm", protocol="faithscore", category="all", base=0.2, after=0.4, fingerprint=JUDGES, since=SINCE
)


def at(answers: Answers, begin: float, end: float) -> list[tuple[ResponseScored, list[bool]]]:
    """The same, recorded between these times."""
    step = (end - begin) / len(answers)
    return [
        (msgspec.structs.replace(event, recorded_at=begin + number * step), wrong)
        for number, (event, wrong) in enumerate(answers)
    ]


GOOD = at(A[:1_000], 1_000.0, SINCE)
WORSE = at(judged_answers(1_000, 3, rate=0.35), SINCE, 20_000.0)
SAME = at(judged_answers(1_000, 4), SINCE, 20_000.0)


def test_an_alarm_says_whether_the_corrected_rate_rose_too() -> None:
    for after, state in ((WORSE, "rose"), (SAME, "not_shown")):
        opinions = [truth_about(*one) for one in [*GOOD[::10], *after[::10]]]
        found = correct_alarm([samples([*GOOD, *after], opinions)], ALARM)
        assert (found.state, found.by, found.opinions) == (state, "people", (100, 100))
        true = true_rate(after) - true_rate(GOOD)
        assert found.difference.low <= true <= found.difference.high
        said = "rose too: " if state == "rose" else "is not shown to have risen: "
        assert tell_corrected(found).startswith(f"the corrected rate {said}")


def test_with_few_opinions_it_says_how_many() -> None:
    opinions = [truth_about(*one) for one in [*GOOD[::10], *WORSE[:9]]]
    found = correct_alarm([samples([*GOOD, *WORSE], opinions)], ALARM)
    assert (found.state, found.opinions) == ("too_few", (100, 9))
    nothing = correct_alarm([], ALARM)
    assert (nothing.state, nothing.opinions, nothing.difference) == ("too_few", (0, 0), None)
    assert tell_corrected(nothing).endswith("(0 opinions before, 0 since)")


def test_a_queue_of_one_side_alone_uses_what_the_judges_say_of_all() -> None:
    standing = samples([*GOOD, *WORSE], [truth_about(*one) for one in [*GOOD[::10], *WORSE[::10]]])
    by_standing = correct_alarm([standing], ALARM)
    own = [truth_about(*one) for one in WORSE[::9]]
    of_alarm = samples(WORSE, own, name="own", rule="alarm", since=SINCE, alarm=ALARM.key)
    found = correct_alarm([standing, of_alarm], ALARM)
    assert (found.queues, found.state) == (("q", "own"), "rose")
    assert found.after.high - found.after.low < by_standing.after.high - by_standing.after.low
    past = samples(GOOD, [truth_about(*one) for one in GOOD[::9]], name="past", until=SINCE - 1, size=112)
    both = correct_alarm([standing, of_alarm, past], ALARM)
    assert both.queues == ("past", "own")
    assert both.before.high - both.before.low < found.before.high - found.before.low


def test_what_is_over_counts_no_more_and_the_alarm_before_it_does_not_either() -> None:
    again = at(A[1_000:], 20_001.0, 30_000.0)
    answers = [*GOOD, *WORSE, *again]
    queue = samples(answers, [truth_about(*one) for one in answers[::10]])
    first = Raised(alarm=msgspec.structs.replace(ALARM, recovered_at=20_000.0))
    second = Raised(alarm=msgspec.structs.replace(ALARM, since=25_000.0))
    found = correct_alarms([queue], [first, second], [first, second])
    assert [one.state for one in found] == ["rose", "not_shown"]
    assert found[0].opinions == (100, 100)
    # Answers from the first alarm's end to the second one's beginning.
    assert found[1].opinions == (25, 25)


def test_of_a_category_the_answers_with_decided_facts_of_it_count() -> None:
    alarm = msgspec.structs.replace(ALARM, category="color")
    opinions = [truth_about(*one) for one in [*GOOD[::10], *WORSE[::10]]]
    queue = samples([*GOOD, *WORSE], opinions)
    found = correct_alarm([queue], alarm)
    has_color = sum("color" in event.claims[-1].category or len(event.claims) > 1 for event, _ in GOOD[::10])
    assert found.opinions[0] == has_color < 100
    others = correct_alarm([queue], msgspec.structs.replace(alarm, fingerprint="other"))
    assert others.opinions == (0, 0)
