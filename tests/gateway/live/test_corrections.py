"""What second opinions say of alarms and versions, where they can be read and where they cannot."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.provisioning import provision_again

from groundwatch.errors import Unavailable
from groundwatch.events import AlarmRaised
from groundwatch.reviews import corrected as corrections
from groundwatch.reviews.corrected import NAMES, Corrections
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.topology import QUEUES_BUCKET


@pytest.fixture
def raised() -> Any:
    alarm = AlarmRaised(
        model="heron",
        protocol="faithscore",
        category="all",
        fingerprint="abc",
        since=100.0,
        raised_at=200.0,
        base=0.1,
        after=0.4,
    )
    return SimpleNamespace(alarm=alarm, recovered_at=None)


@pytest.mark.usefixtures("clean_streams")
async def test_opinions_that_cannot_be_read_are_none_and_not_too_few(
    bus: Bus, raised: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(corrections, "SECONDS", 0.0)
    monkeypatch.setattr(corrections, "REST", 0.0)
    found = Corrections(bus, lambda tags: "")
    row = {name: getattr(raised.alarm, name) for name in NAMES}
    await bus.js.delete_stream(f"KV_{QUEUES_BUCKET}")
    assert await found.alarms([raised], [raised]) == ()
    await found.add_to([row], [raised])
    assert row["corrected"] is None
    with pytest.raises(Unavailable, match="cannot be read at this moment"):
        await found.versions([], "heron", "1", "2")
    assert "gateway.opinions_not_read" in capsys.readouterr().out

    await provision_again(bus.js)
    (told,) = await found.alarms([raised], [raised])
    assert told.state == "too_few" and told.opinions == (0, 0)

    await bus.js.delete_stream(f"KV_{QUEUES_BUCKET}")
    assert await found.alarms([raised], [raised]) == (told,), "what was read last counts"
