"""Which part of a stream a replay reads, over a real server."""

from __future__ import annotations

import pytest
from tests.replay.conftest import record, response

from groundwatch.errors import UsageError
from groundwatch.replay.planning import find_stretch
from groundwatch.replay.spec import Spec
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.topology import RESPONSES


@pytest.fixture
async def recorded(bus: Bus, clean_streams) -> list:
    several = [response(f"r{number}", answer=f"A dog with {number} balls.") for number in range(12)]
    await record(bus, *several)
    return several


async def test_what_left_the_stream_is_told_and_a_first_message_that_never_came_is_not(
    bus: Bus, recorded: list
) -> None:
    spec = Spec(run="new", source="live", stage="extraction", since=1.0)
    # As a stream is whose disk was full at its first message.
    await bus.js.delete_msg(RESPONSES, 1)
    assert (await find_stretch(bus.history, spec)).first == 2
    await bus.js.delete_msg(RESPONSES, 2)
    with pytest.raises(UsageError, match="the oldest event that is left"):
        await find_stretch(bus.history, spec)
