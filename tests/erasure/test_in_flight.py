"""Erasing what the real stages are judging at that moment, by a judge that costs and is slow: nothing comes
back, the cache forgets it, and the books balance."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.e2e.test_cache import ANSWERS, judged, record, response, services, settings_of, stored
from tests.support.llm_server import LlmServer
from tests.support.llm_server import running as llm_server

from groundwatch.erasure.erasing import Eraser
from groundwatch.erasure.finding import Stores, subject
from groundwatch.erasure.retention import enforce
from groundwatch.events import LIVE, ResponseRecorded
from groundwatch.ledger.ledger import audit
from groundwatch.replay.running import begin
from groundwatch.replay.runs import Runs
from groundwatch.replay.spec import Spec
from groundwatch.replay.worker import LiveTrafficThrottle, Replayer
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import read_stream
from groundwatch.runtime.settings import RetentionSettings
from groundwatch.runtime.stores.cache import keys_of, scope_of
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import CACHE_BUCKET

OURS, THEIRS = "erasable-tenant", "neighbour"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")


@pytest.fixture
async def slow_judge() -> AsyncIterator[LlmServer]:
    with llm_server() as server:
        yield server


async def cached(bus: Bus) -> list[str]:
    """Keys of what the cache holds."""
    return [
        read.subject.removeprefix(f"$KV.{CACHE_BUCKET}.")
        async for read in read_stream(bus.js, f"KV_{CACHE_BUCKET}")
        if not read.headers.get("KV-Operation")
    ]


async def asked(server: LlmServer, number: int) -> None:
    deadline = time.monotonic() + 60
    while len(server.requests) < number:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def several(image: str) -> list[ResponseRecorded]:
    return [
        response(f"r{at}", f"{ANSWERS[at % 3]} A purple box of {tenant} {'x' * at}.", image, tenant)
        for at in range(4)
        for tenant in (OURS, THEIRS)
    ]


@pytest.mark.parametrize("whole_tenant", [True, False])
@pytest.mark.slow
async def test_what_is_being_judged_is_gone_for_good(
    bus: Bus, clean_streams: None, slow_judge: LlmServer, whole_tenant: bool
) -> None:
    image = await stored(bus)
    responses = several(image)
    wanted = subject(None, OURS, None) if whole_tenant else subject("r2", OURS, None)
    gone = [one for one in responses if one.tenant == OURS and (whole_tenant or one.id == "r2")]
    stores = Stores()
    async with services(bus, settings_of(slow_judge, "ok:0.3"), Metrics()):
        await record(bus, *responses)
        # Some are in the hands of extraction, some at verification, some judged and in the cache.
        await asked(slow_judge, len(responses) + 2)
        done = await Eraser(bus.js, wanted, stores, wait=60).erase(verify=True)
        assert (done.waiting, done.proof is not None and done.proof.found) == (0, ())
        assert done.total >= len(gone)
        await judged(bus)
    # The stages have stopped: what they still had would have come by now.
    again = await Eraser(bus.js, wanted, stores, wait=0).erase(verify=True)
    assert (again.total, again.proof is not None and again.proof.found) == (0, ())
    ledger = await audit(bus.js)
    left = len(responses) - len(gone)
    assert (ledger.balanced, ledger.recorded, ledger.in_flight, ledger.lost) == (True, left, 0, 0)
    assert ledger.scored == left
    kept = await cached(bus)
    contents = {keys_of(one).split(".")[1] for one in gone}
    assert not [key for key in kept if key.split(".")[1] in contents]
    assert bool([key for key in kept if key.startswith(scope_of(OURS))]) is not whole_tenant
    assert len({key.split(".")[1] for key in kept if key.startswith(scope_of(THEIRS))}) == 4


async def test_what_is_being_replayed_goes_with_the_next_round(
    bus: Bus, clean_streams: None, slow_judge: LlmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay acknowledges nothing, so nobody can wait for it: retention removes what it publishes later."""
    image = await stored(bus)
    responses = several(image)
    await record(bus, *responses)
    reading = await bus.js.pull_subscribe_bind("extraction", stream="GW_RESPONSES")
    for message in await reading.fetch(len(responses), timeout=5):
        await message.ack_sync()
    settings = settings_of(slow_judge, "ok:0.2")
    run = await begin(bus, settings, Spec(run="again"))

    async def at_once(_: Any) -> None:
        return None

    monkeypatch.setattr(LiveTrafficThrottle, "wait", at_once)
    working = asyncio.create_task(Replayer(bus, await Runs.open(bus.js), settings, run).work())
    await asked(slow_judge, 2)
    wanted = subject("r2", OURS, None)
    await Eraser(bus.js, wanted, Stores(), wait=5).erase()
    assert (await working).status == "done"
    kept = await enforce(bus.js, RetentionSettings(), Stores())
    assert (kept.resurrected["GW_OUTCOMES"], kept.resurrected["cache"]) == (1, 2)
    content = keys_of(next(one for one in responses if (one.id, one.tenant) == ("r2", OURS))).split(".")[1]
    assert content not in {key.split(".")[1] for key in await cached(bus)}
    assert (await Eraser(bus.js, wanted, Stores(), wait=0).look()).total == 0
    ids = [
        msgspec.json.decode(read.data)["id"]
        async for read in read_stream(bus.js, "GW_OUTCOMES", subjects=("gw.outcome.again.>",))
    ]
    assert len(ids) == len(responses) - 1
    assert LIVE not in ids
