"""Creating is exactly once, and every way it can fail is told apart."""

from __future__ import annotations

import asyncio
import time

import pytest
from nats.js.api import DiscardPolicy, StreamConfig
from tests.support.frozen import frozen

from groundwatch.errors import InputError, TransientError, UsageError
from groundwatch.runtime.delivery import publisher
from groundwatch.runtime.delivery.bus import Bus, Outgoing, Stored, wait_acks
from groundwatch.runtime.delivery.publisher import HEADROOM, MAX_PENDING
from groundwatch.runtime.local.servers import NatsServer, free_port
from groundwatch.runtime.settings import NatsSettings
from groundwatch.topology import OUTCOMES


@pytest.fixture
async def stream(bus: Bus):
    """A small stream of this test's own with a duplicate window that is soon over."""
    await bus.js.add_stream(
        StreamConfig(
            name="TEST",
            subjects=["test.>"],
            duplicate_window=0.1,
            max_bytes=20_000,
            discard=DiscardPolicy.NEW,
        )
    )
    yield "TEST"
    await bus.js.delete_stream("TEST")


async def test_a_subject_takes_one_event(bus: Bus, stream: str) -> None:
    assert await bus.create(Outgoing(subject="test.a", payload=b"1", message_id="x")) is Stored.NEW
    assert await bus.create(Outgoing(subject="test.a", payload=b"2", message_id="x")) is Stored.EXISTED
    assert await bus.create(Outgoing(subject="test.a", payload=b"2", message_id="y")) is Stored.EXISTED
    assert await bus.create(Outgoing(subject="test.a", payload=b"2")) is Stored.EXISTED
    assert (await bus.js.get_last_msg(stream, "test.a")).data == b"1"


async def test_a_subject_takes_one_event_however_late_the_second_comes(bus: Bus, stream: str) -> None:
    assert await bus.create(Outgoing(subject="test.a", payload=b"1", message_id="x")) is Stored.NEW
    await asyncio.sleep(0.4)
    assert await bus.create(Outgoing(subject="test.a", payload=b"2", message_id="x")) is Stored.EXISTED
    assert (await bus.js.stream_info(stream)).state.messages == 1


async def test_of_many_at_once_one_wins(bus: Bus, stream: str) -> None:
    receipts = [
        await bus.start_create(Outgoing(subject="test.a", payload=b"%d" % number)) for number in range(50)
    ]
    await wait_acks(receipts)
    assert [receipt.result() for receipt in receipts].count(Stored.NEW) == 1


async def test_a_full_stream_says_so_in_the_servers_words(bus: Bus, stream: str) -> None:
    with pytest.raises(TransientError, match="maximum bytes exceeded"):
        for number in range(100):
            await bus.create(Outgoing(subject=f"test.{number}", payload=b"x" * 1_000))
    assert (await bus.js.stream_info(stream)).state.messages < 100
    assert await bus.holds(stream, "test.0")


async def test_a_subject_that_no_stream_takes(bus: Bus) -> None:
    with pytest.raises(TransientError, match="no stream takes this subject"):
        await bus.create(Outgoing(subject="nobody.listens", payload=b"x"))


async def test_too_large_is_the_events_own_fault(bus: Bus, stream: str) -> None:
    limit = bus.client.max_payload
    with pytest.raises(InputError, match=f"max_payload of {limit}"):
        await bus.create(Outgoing(subject="test.a", payload=b"x" * (limit + 1)))


async def test_headers_count_towards_the_limit_and_never_cut_the_connection(bus: Bus, stream: str) -> None:
    limit = bus.client.max_payload
    large = Outgoing(subject="test.a", payload=b"x" * limit, headers={"Gw-Reason": "y" * 100})
    for whole in (False, True):
        with pytest.raises(InputError):
            await bus.create(
                Outgoing(subject=large.subject, payload=large.payload, whole=whole, headers=large.headers)
            )
    with pytest.raises(InputError):
        await bus.create(Outgoing(subject="test.a", payload=b"x" * (limit - HEADROOM + 1)))
    with pytest.raises(TransientError, match="maximum bytes exceeded"):
        await bus.create(Outgoing(subject="test.a", payload=b"x" * (limit - HEADROOM)))
    with pytest.raises(TransientError, match="maximum bytes exceeded"):
        fits = limit - 200
        await bus.create(
            Outgoing(subject="test.a", payload=b"x" * fits, headers={"Gw-Reason": "y"}, whole=True)
        )
    assert bus.reconnects == 0
    assert bus.connected


async def test_silence_is_a_fault_that_passes(own_server: NatsServer) -> None:
    bus = Bus(NatsSettings(url=own_server.url, publish_timeout=0.3), name="test")
    await bus.connect()
    await bus.js.add_stream(StreamConfig(name="TEST", subjects=["test.>"]))
    with frozen(own_server.pid):
        began = time.monotonic()
        with pytest.raises(TransientError, match=r"no acknowledgement for test.a within 0.3 s"):
            await bus.create(Outgoing(subject="test.a", payload=b"x"))
        assert time.monotonic() - began < 3
        with pytest.raises(TransientError):
            await bus.holds("TEST", "test.a")
    # It had arrived after all: the second try finds it.
    for _ in range(20):
        try:
            assert await bus.create(Outgoing(subject="test.a", payload=b"x")) is Stored.EXISTED
            break
        except TransientError:
            continue
    else:
        pytest.fail("the server never answered")
    await bus.close()


async def test_unacknowledged_events_hold_their_place_only_so_long(
    own_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher, "MAX_PENDING", 5)
    monkeypatch.setattr(publisher, "SWEEP_SECONDS", 2.0)
    bus = Bus(NatsSettings(url=own_server.url, publish_timeout=0.3), name="test")
    await bus.connect()
    await bus.js.add_stream(StreamConfig(name="TEST", subjects=["test.>"]))
    with frozen(own_server.pid):
        receipts = [
            await bus.start_create(Outgoing(subject=f"test.{number}", payload=b"x")) for number in range(5)
        ]
        with pytest.raises(TransientError, match="wait for acknowledgement"):
            await bus.create(Outgoing(subject="test.more", payload=b"x"))
        await wait_acks(receipts)
        for receipt in receipts:
            with pytest.raises(TransientError):
                receipt.result()
        # The room of the forgotten is free again.
        for _ in range(40):
            try:
                await bus.start_create(Outgoing(subject="test.later", payload=b"x"))
                break
            except TransientError:
                continue
        else:
            pytest.fail("there was never room again")
    await bus.close()


async def test_more_in_the_air_than_there_is_room_for(bus: Bus, clean_streams: None) -> None:
    count = MAX_PENDING + 500
    receipts = [
        await bus.start_create(Outgoing(subject=f"gw.outcome.live.test.{number}", payload=b"{}"))
        for number in range(count)
    ]
    await wait_acks(receipts)
    assert all(receipt.result() is Stored.NEW for receipt in receipts)
    assert (await bus.js.stream_info(OUTCOMES)).state.messages == count


async def test_not_connected_yet() -> None:
    bus = Bus(NatsSettings(url="nats://127.0.0.1:1"), name="test")
    assert not bus.connected
    with pytest.raises(TransientError, match="not connected"):
        await bus.create(Outgoing(subject="test.a", payload=b"x"))


async def test_no_server_names_the_address_and_the_setting() -> None:
    address = f"nats://127.0.0.1:{free_port()}"
    with pytest.raises(UsageError, match=rf"{address}.*nats\.url") as caught:
        await Bus(NatsSettings(url=address), name="test").connect(timeout=0.5)
    assert "\n" not in str(caught.value)


async def test_a_missing_certificate_names_the_key() -> None:
    with pytest.raises(UsageError, match=r"nats\.tls_ca"):
        Bus(NatsSettings(url="nats://127.0.0.1:1", tls_ca="/nowhere.pem"), name="test")


async def test_publishes_again_after_the_server_restarted(own_server: NatsServer) -> None:
    bus = Bus(NatsSettings(url=own_server.url, publish_timeout=5.0), name="test")
    await bus.connect()
    await bus.js.add_stream(StreamConfig(name="TEST", subjects=["test.>"]))
    assert await bus.create(Outgoing(subject="test.a", payload=b"x")) is Stored.NEW
    await own_server.stop()
    await own_server.start()
    for _ in range(20):
        try:
            found = await bus.create(Outgoing(subject="test.a", payload=b"x"))
            break
        except TransientError:
            await asyncio.sleep(0.2)
    assert found is Stored.EXISTED
    assert await bus.create(Outgoing(subject="test.b", payload=b"x")) is Stored.NEW
    assert bus.reconnects >= 1
    await bus.close()


@pytest.mark.parametrize("stopped", [False, True])
async def test_who_gives_up_connecting_is_not_held(stopped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an attempt is refused in the moment in which it is cancelled, nats-py goes on with the next."""
    swallowed = 0

    async def connect() -> None:
        nonlocal swallowed
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            swallowed += 1
        await asyncio.sleep(60)

    bus = Bus(NatsSettings(url=f"nats://127.0.0.1:{free_port()}"), name="test")
    monkeypatch.setattr(bus.broker, "connect", connect)
    connecting = asyncio.create_task(bus.connect(timeout=60 if stopped else 0.1))
    await asyncio.sleep(0.2)
    if stopped:
        connecting.cancel()
    done, _ = await asyncio.wait({connecting}, timeout=20)
    assert done, "it is held"
    assert swallowed == 1
    if stopped:
        assert connecting.cancelled()
    else:
        assert isinstance(connecting.exception(), UsageError)
    await bus.close()
