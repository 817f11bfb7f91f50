"""What a dry run tells of the judgement cache, over a real server."""

from __future__ import annotations

import pytest
from tests.replay.conftest import record, response

from groundwatch.errors import UsageError
from groundwatch.events import Judge
from groundwatch.replay import planning
from groundwatch.replay.planning import find_stretch
from groundwatch.replay.running import dry_run
from groundwatch.replay.spec import Spec
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.stores.cache import cache_key
from groundwatch.topology import CACHE_BUCKET, RESPONSES

JUDGE = Judge(engine="llm", model="judge")


async def keep(bus: Bus, *several, shared: bool = False) -> None:
    """Put something into the cache for these responses."""
    bucket = await bus.js.key_value(CACHE_BUCKET)
    for one in several:
        key = cache_key(
            one, stage="extraction", protocol="faithscore", judge=JUDGE, settings="x", shared=shared
        )
        await bucket.put(key, b"{}")


@pytest.fixture
async def recorded(bus: Bus, clean_streams) -> list:
    several = [response(f"r{number}", answer=f"A dog with {number} balls.") for number in range(12)]
    await record(bus, *several)
    return several


async def told(bus: Bus, **options) -> tuple[int, int]:
    plan = await dry_run(bus, Spec(run="new", source="live", stage="extraction", **options))
    return plan.looked_up, plan.cached


async def test_a_dry_run_says_of_how_many_the_cache_holds_something(bus, recorded):
    assert await told(bus) == (12, 0)
    await keep(bus, *recorded[:3])
    await keep(bus, recorded[5], shared=True)
    # Of another tenant, with the same content: never served to this one.
    await keep(bus, response("theirs", answer=recorded[7].answer, tenant="other"))
    assert await told(bus) == (12, 4)
    assert await told(bus, ids=("r1", "r2", "r9")) == (3, 2)


async def test_of_many_a_sample_is_looked_up(bus, recorded, monkeypatch):
    monkeypatch.setattr(planning, "LOOKED_UP", 5)
    await keep(bus, *recorded)
    assert await told(bus) == (5, 5)
    assert await told(bus, sample=3) == (3, 3)


async def test_without_a_cache_nothing_is_promised(bus, recorded):
    await bus.js.delete_stream(f"KV_{CACHE_BUCKET}")
    assert await told(bus) == (0, 0)


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
