"""Provisioning: as often as one likes, beside running services, and never at the cost of an event."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from nats.js.api import DiscardPolicy
from tests.runtime.conftest import eventually, record, response

from groundwatch.errors import ProvisionRefused
from groundwatch.extraction.engines.base import NoopExtractionEngine
from groundwatch.extraction.service import ExtractionService
from groundwatch.ledger.ledger import audit
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.provisioning import FORMAT, KNOWN_FORMAT, missing, provision
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.settings import NatsSettings, Settings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.system.services import _check_provisioned
from groundwatch.topology import BUCKETS, CONSUMERS, DAY, EXTRACTED, OUTCOMES, RESPONSES, STREAMS, partitions


@pytest.fixture
async def fresh(own_server: NatsServer):
    """A bus on a server with nothing on it."""
    bus = Bus(NatsSettings(url=own_server.url), name="test")
    await bus.connect()
    yield bus
    await bus.close()


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch):
    """Declares a stream or consumer differently: `declared("GW_RESPONSES", max_age=5.0)`."""

    def change(name: str, **fields: Any) -> None:
        for kind in ("STREAMS", "CONSUMERS"):
            changed = tuple(
                msgspec.structs.replace(spec, **fields) if spec.name == name else spec
                for spec in getattr(partitions, kind)
            )
            monkeypatch.setattr(partitions, kind, changed)

    return change


async def everything(bus: Bus) -> dict[str, Any]:
    """The configuration of all streams and consumers."""
    found: dict[str, Any] = {}
    for stream in STREAMS:
        found[stream.name] = (await bus.js.stream_info(stream.name)).config.as_dict()
    for consumer in CONSUMERS:
        info = await bus.js.consumer_info(consumer.stream, consumer.name)
        found[consumer.name] = info.config.as_dict()
    return found


async def test_a_version_that_does_not_know_the_streams_format_refuses(fresh: Bus) -> None:
    await provision(fresh.js)
    config = (await fresh.js.stream_info(RESPONSES)).config
    newer = {**(config.metadata or {}), FORMAT: str(KNOWN_FORMAT + 1)}
    await fresh.js.update_stream(config.evolve(metadata=newer))
    before = await everything(fresh)
    with pytest.raises(ProvisionRefused, match=r"newer version .*format 2, and this one knows 1.*upgrade"):
        await provision(fresh.js)
    with pytest.raises(ProvisionRefused, match="newer version"):
        await _check_provisioned("gateway", fresh)
    assert await everything(fresh) == before


async def test_creates_everything_and_then_changes_nothing(fresh: Bus) -> None:
    assert set(await missing(fresh.js)) == {spec.name for spec in (*STREAMS, *CONSUMERS, *BUCKETS)}
    first = await provision(fresh.js)
    assert {one.change for one in first} == {"created"}
    declared = {spec.name for spec in (*STREAMS, *CONSUMERS)} | {bucket.name for bucket in BUCKETS}
    assert {one.name for one in first} == declared
    assert await missing(fresh.js) == []
    before = await everything(fresh)
    second = await provision(fresh.js)
    assert {one.change for one in second} == {"unchanged"}
    assert await everything(fresh) == before


async def test_the_server_holds_what_is_declared(fresh: Bus) -> None:
    await provision(fresh.js)
    config = (await fresh.js.stream_info(RESPONSES)).config
    assert config.max_age == 30 * DAY
    assert config.discard == "new"
    assert config.storage == "file"
    assert (await fresh.js.stream_info(OUTCOMES)).config.max_msgs_per_subject == 1
    for spec in CONSUMERS:
        found = (await fresh.js.consumer_info(spec.stream, spec.name)).config
        assert found.ack_wait == spec.ack_wait
        assert found.max_deliver in (None, -1)
        assert found.ack_policy == "explicit"
        assert found.max_ack_pending == spec.max_ack_pending


async def test_two_at_once_do_not_disturb_each_other(fresh: Bus) -> None:
    await asyncio.gather(*(provision(fresh.js) for _ in range(4)))
    assert await missing(fresh.js) == []
    assert {one.change for one in await provision(fresh.js)} == {"unchanged"}


async def test_beside_running_services(bus: Bus, clean_streams: None, declared) -> None:
    service = ExtractionService(Settings(), bus, Metrics(), NoopExtractionEngine())
    await service.start()

    async def traffic() -> None:
        for number in range(300):
            await record(bus, response(f"r{number}"))

    flowing = asyncio.create_task(traffic())
    try:
        for ack_wait in (20.0, 40.0, 30.0):
            declared("extraction", ack_wait=ack_wait)
            assert "updated" in {one.change for one in await provision(bus.js)}
        await flowing

        async def extracted() -> bool:
            return (await bus.js.stream_info(EXTRACTED)).state.messages == 300

        await eventually(extracted)
        assert (await audit(bus.js)).balanced
        assert service.problems() == []
    finally:
        await service.drain(1)


@pytest.mark.parametrize(
    ("name", "fields", "says"),
    (
        (RESPONSES, {"max_age": DAY}, "max_age would shrink from"),
        (RESPONSES, {"max_bytes": 1_000_000}, "max_bytes would shrink from no limit to 1000000"),
        (RESPONSES, {"max_per_subject": 1}, "max_msgs_per_subject would shrink"),
        (RESPONSES, {"subjects": ("gw.other.>",)}, r"would no longer keep gw\.recorded\.>"),
        (RESPONSES, {"work_queue": True}, "retention cannot change"),
        ("extraction", {"filters": ("gw.recorded.other.>",)}, "its filter would change"),
    ),
)
async def test_refuses_what_would_lose_events_and_changes_nothing(
    bus: Bus, clean_streams: None, declared, name: str, fields: dict[str, Any], says: str
) -> None:
    await record(bus, response("r"))
    before = await everything(bus)
    declared(name, **fields)
    # A harmless change beside it must not be made either.
    declared("scoring", ack_wait=77.0)
    declared(OUTCOMES, description="another")
    with pytest.raises(ProvisionRefused, match=says):
        await provision(bus.js)
    assert await everything(bus) == before
    assert (await bus.js.stream_info(RESPONSES)).state.messages == 1


async def test_grows_with_data_present(bus: Bus, clean_streams: None, declared) -> None:
    await record(bus, response("r"))
    declared(RESPONSES, max_age=90 * DAY, description="longer")
    changes = {one.name: one.change for one in await provision(bus.js)}
    assert changes[RESPONSES] == "updated"
    config = (await bus.js.stream_info(RESPONSES)).config
    assert (config.max_age, config.discard) == (90 * DAY, DiscardPolicy.NEW)
    assert (await bus.js.stream_info(RESPONSES)).state.messages == 1


async def test_shrinks_what_is_empty(bus: Bus, clean_streams: None, declared) -> None:
    declared(RESPONSES, max_age=DAY)
    assert {one.name: one.change for one in await provision(bus.js)}[RESPONSES] == "updated"
    assert (await bus.js.stream_info(RESPONSES)).config.max_age == DAY


async def test_what_somebody_else_changed_is_put_right(bus: Bus, clean_streams: None) -> None:
    config = (await bus.js.stream_info(RESPONSES)).config
    config.max_age = 0
    await bus.js.update_stream(config)
    with_limit_again = await provision(bus.js)
    assert {one.name: one.change for one in with_limit_again}[RESPONSES] == "updated"


async def test_what_a_stage_may_hold_is_changed_in_place(fresh: Bus) -> None:
    """Nothing is given out twice, skipped or dropped: what was held stays held, the rest follows."""
    await provision(fresh.js, held={"extraction": 3})
    for number in range(8):
        await record(fresh, response(str(number)))
    subscription = await fresh.js.pull_subscribe_bind(consumer="extraction", stream=RESPONSES)
    held = await subscription.fetch(8, timeout=0.5)
    assert len(held) == 3
    changed = await provision(fresh.js, held={"extraction": 6})
    assert {one.name for one in changed if one.change != "unchanged"} == {"extraction"}
    more = await subscription.fetch(8, timeout=0.5)
    assert [one.metadata.sequence.stream for one in more] == [4, 5, 6]
    await provision(fresh.js, held={"extraction": 2})
    for message in (*held, *more):
        await message.ack_sync()
    rest = await subscription.fetch(8, timeout=0.5)
    assert [one.metadata.sequence.stream for one in rest] == [7, 8]
    assert {one.metadata.num_delivered for one in rest} == {1}
