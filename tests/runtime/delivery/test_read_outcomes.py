"""What a report cannot read is told, not dropped in silence."""

from __future__ import annotations

import pytest

from groundwatch.events import LIVE, OutcomeKind, ResponseScored
from groundwatch.runtime.delivery.bus import Bus, Outgoing
from groundwatch.runtime.delivery.outcomes import outgoing, read_outcomes
from groundwatch.runtime.telemetry import logs
from groundwatch.topology import subject_of


async def test_an_unreadable_outcome_is_told_and_the_others_are_read(
    bus: Bus, clean_streams: None, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure(level="warning", style="json")
    subject = subject_of("outcome", LIVE, "faithscore", "0" * 32)
    await bus.create(Outgoing(subject=subject, payload=b'{"id": 7}'))
    good = ResponseScored(id="a", model="m", protocol="faithscore", outcome=OutcomeKind.DECLINED)
    await bus.create(outgoing(good))
    assert [outcome.id async for outcome in read_outcomes(bus, LIVE, follow=False)] == ["a"]
    told = capsys.readouterr().err
    assert "outcome.unreadable" in told and subject in told
