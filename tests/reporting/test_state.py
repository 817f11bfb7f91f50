"""A report and alarms that go on from what was written down are those that had never stopped."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groundwatch.events import Decision, Drawn, Judge, JudgedClaim, OutcomeKind, ResponseScored
from groundwatch.protocols import registry
from groundwatch.reporting.alarms import Alarms, AlarmsState, named
from groundwatch.reporting.report import Report, ReportState
from groundwatch.statistics.alarm import Rule

NAMES = [name for name in registry.names() if name in ("faithscore", "pope", "tri-he", "vlm2", "dash-b")]
VALUES = sorted({value for name in NAMES for one in registry.get(name).headline for value in one.values})


@st.composite
def outcome(draw: Any) -> ResponseScored:
    kind = draw(st.sampled_from([OutcomeKind.SCORED] * 4 + [OutcomeKind.UNSCORED, OutcomeKind.DECLINED]))
    decisions = draw(st.lists(st.sampled_from(list(Decision)), min_size=1, max_size=5))
    scored = kind is OutcomeKind.SCORED
    claims = tuple(
        JudgedClaim(text="a secret", category=draw(st.sampled_from("ab")), unit=0, decision=one)
        for one in decisions
    )
    return ResponseScored(
        id=draw(st.sampled_from(["secret-1", "secret-2", "secret-3"])),
        tenant=draw(st.sampled_from(["secret-tenant", "secret-other"])),
        model=draw(st.sampled_from(["m", "n", "o", "p"])),
        protocol=draw(st.sampled_from(NAMES)),
        outcome=kind,
        reason="" if scored else "refused",
        score=draw(st.floats(0, 1)) if scored else None,
        values={name: draw(st.floats(0, 1)) for name in VALUES if draw(st.booleans())} if scored else {},
        judges={"verification": Judge(engine=draw(st.sampled_from(["x", "y"])))} if scored else {},
        claims=claims if scored else (),
        eligible=len(claims),
        decided=sum(one is not Decision.UNDECIDED for one in decisions) if scored else 0,
        answer_words=draw(st.integers(0, 400)),
        drawn=Drawn(probability=draw(st.sampled_from([1.0, 0.5])), lowest=draw(st.sampled_from([1.0, 0.25]))),
        tags={"image_id": draw(st.sampled_from(["secret-image", "secret-picture"])), "sequence": "secret-s"},
        recorded_at=float(draw(st.integers(1, 60))),
    )


def again(state: Any, form: type[Any]) -> tuple[Any, bytes]:
    data = msgspec.msgpack.encode(state)
    return msgspec.msgpack.decode(data, type=form), data


@settings(max_examples=150)
@given(st.lists(outcome(), max_size=40), st.integers(0, 40), st.sampled_from([None, 2]))
def test_a_report_goes_on_from_its_state(outcomes: list[ResponseScored], at: int, most: int | None) -> None:
    whole, first = Report(most=most), Report(most=most)
    for one in outcomes:
        whole.add(one)
    for one in outcomes[:at]:
        first.add(one)
    state, data = again(first.state(), ReportState)
    later = Report(most=most)
    later.restore(state)
    assert later.to_dict() == first.to_dict()
    for one in outcomes[at:]:
        later.add(one)
    assert later.to_dict() == whole.to_dict()
    for one in outcomes:
        if one.outcome is OutcomeKind.UNSCORED and not one.values:
            whole.remove(one)
            later.remove(one)
    assert later.to_dict() == whole.to_dict()
    assert b"secret" not in data


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), min_size=1, max_size=150),
    st.integers(0, 150),
    st.sampled_from([0.0, 0.3]),
)
def test_alarms_go_on_from_their_state(facts: list[tuple[str, int]], at: int, objective: float) -> None:
    rule = Rule(responses=20, learn=10, objective=objective)

    def event(number: int, category: str, refuted: int) -> ResponseScored:
        decisions = [Decision.REFUTED] * refuted + [Decision.SUPPORTED] * (3 - refuted)
        return ResponseScored(
            id=f"secret-{number}",
            tenant="secret-tenant",
            model="m",
            protocol="faithscore",
            outcome=OutcomeKind.SCORED,
            claims=tuple(JudgedClaim(text="x", category=category, unit=0, decision=one) for one in decisions),
            recorded_at=float(number),
            scored_at=float(number),
        )

    events = [event(number, *one) for number, one in enumerate(facts)]
    whole, first = Alarms(rule, 2), Alarms(rule, 2)
    turned = [[msgspec.to_builtins(turn) for turn in whole.add(one)] for one in events]
    for one in events[:at]:
        first.add(one)
    state, data = again(first.state(), AlarmsState)
    known = {named(one.alarm): one.alarm for one in first.raised}
    later = Alarms(rule, 2)
    later.restore(state, known)
    assert later.to_dict() == first.to_dict()
    after = [[msgspec.to_builtins(turn) for turn in later.add(one)] for one in events[at:]]
    assert (after, later.to_dict()) == (turned[at:], whole.to_dict())
    assert later.raised_now("m", "faithscore") == whole.raised_now("m", "faithscore")
    assert b"secret" not in data


def test_a_state_of_other_figures_is_refused() -> None:
    report = Report()
    report.add(ResponseScored(id="1", model="m", protocol="faithscore", outcome=OutcomeKind.UNSCORED))
    data = msgspec.msgpack.encode(report.state())
    with pytest.raises(msgspec.ValidationError, match="not the figures of faithscore"):
        msgspec.msgpack.decode(data.replace(b"sentence_level", b"sentence_other"), type=ReportState)
