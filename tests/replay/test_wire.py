"""Below nats-py's work for each message, and yet exact: what is published, what is read, what is refused."""

from __future__ import annotations

import asyncio

import pytest
from tests.conftest import BusFactory

from groundwatch.errors import TransientError
from groundwatch.replay import wire
from groundwatch.replay.reading import Broken, Message, read
from groundwatch.replay.wire import Publisher, Tap, headers_of
from groundwatch.runtime.delivery.bus import Bus, Outgoing, Stored
from groundwatch.topology import OUTCOMES, RESPONSES

pytestmark = pytest.mark.usefixtures("clean_streams")


def outcome(number: int, *, data: bytes = b"{}", reason: str = "why", message_id: str = "") -> Outgoing:
    return Outgoing(
        subject=f"gw.outcome.r.p.{number:032x}",
        payload=data,
        message_id=message_id or f"id-{number}",
        headers={"Gw-Outcome": "scored", "Gw-Reason": reason},
    )


async def everything(
    bus: Bus, stream: str, subjects: str, first: int = 1, last: int = 10**9
) -> list[Message]:
    return [message async for part in read(bus.js, stream, subjects, first, last) for message in part]


async def test_each_is_stored_once_in_order_and_acknowledged(bus: Bus) -> None:
    publisher = Publisher(bus.client, timeout=10)
    # More than goes to the socket at once.
    messages = [outcome(number, data=b"%d " % number * 400) for number in range(300)]
    assert sum(len(one.payload) for one in messages) > wire.PIECE
    assert await publisher.create(messages) == [Stored.NEW] * 300
    found = await everything(bus, OUTCOMES, "gw.outcome.r.>")
    assert [(one.subject, one.data) for one in found] == [(one.subject, one.payload) for one in messages]
    assert [one.sequence for one in found] == list(range(1, 301))
    stored = await bus.js.get_last_msg(OUTCOMES, messages[7].subject)
    assert found[7].headers == stored.headers
    assert found[7].headers == {
        "Gw-Outcome": "scored",
        "Gw-Reason": "why",
        "Nats-Msg-Id": "id-7",
        "Nats-Expected-Last-Subject-Sequence": "0",
    }


async def test_what_is_there_stays_and_is_told_from_what_is_new(bus: Bus) -> None:
    publisher = Publisher(bus.client, timeout=10)
    await publisher.create([outcome(1), outcome(3)])
    # One by its subject alone, one by its message id as well.
    again = [
        outcome(0),
        outcome(1, data=b"other", message_id="another"),
        outcome(2),
        outcome(3, data=b"other"),
    ]
    assert await publisher.create(again) == [Stored.NEW, Stored.EXISTED, Stored.NEW, Stored.EXISTED]
    found = {one.subject: one.data for one in await everything(bus, OUTCOMES, "gw.outcome.r.>")}
    assert found == {outcome(number).subject: b"{}" for number in range(4)}


async def test_many_batches_and_others_share_a_connection(bus: Bus) -> None:
    one, two = Publisher(bus.client, timeout=10), Publisher(bus.client, timeout=10)
    heard: list[bytes] = []
    subscription = await Tap.of(bus.client).subscribe("other.*", lambda subject, *_: heard.append(subject))
    results = await asyncio.gather(
        *((one, two)[part % 2].create([outcome(100 * part + k) for k in range(100)]) for part in range(10)),
        bus.create(Outgoing(subject="gw.recorded.r.k", payload=b"{}")),
        bus.client.publish("other.a", b""),
    )
    assert all(result == [Stored.NEW] * 100 for result in results[:10]) and results[10] is Stored.NEW
    await bus.client.flush()
    assert heard == [b"other.a"]
    await Tap.of(bus.client).unsubscribe(subscription)
    await bus.client.publish("other.b", b"")
    await bus.client.flush()
    assert heard == [b"other.a"]
    await one.close()
    assert await two.create([outcome(5_000)]) == [Stored.NEW]
    assert await one.create([outcome(5_001)]) == [Stored.NEW]


async def test_a_line_break_begins_no_header(bus: Bus) -> None:
    publisher = Publisher(bus.client, timeout=10)
    reason = "a\r\nNats-Expected-Last-Subject-Sequence: 9\r\n\r\nb: ü"
    assert await publisher.create([outcome(1, reason=reason)]) == [Stored.NEW]
    (found,) = await everything(bus, OUTCOMES, "gw.outcome.r.>")
    assert found.headers["Gw-Reason"] == "a  Nats-Expected-Last-Subject-Sequence: 9    b: ü"
    assert found.headers["Nats-Expected-Last-Subject-Sequence"] == "0" and found.data == b"{}"


async def test_a_subject_that_no_stream_takes_is_told(bus: Bus) -> None:
    publisher = Publisher(bus.client, timeout=10)
    stray = Outgoing(subject="nobody.has.this", payload=b"{}")
    stored, refused = await publisher.create([outcome(1), stray])
    assert stored is Stored.NEW and isinstance(refused, TransientError) and "no stream" in str(refused)


async def test_without_a_connection_nothing_is_pretended(bus_factory: BusFactory) -> None:
    bus = await bus_factory("leaving")
    publisher = Publisher(bus.client, timeout=10)
    client = bus.client
    await bus.close()
    assert not client.is_connected
    with pytest.raises(TransientError, match="not connected"):
        await publisher.create([outcome(1)])
    await publisher.close()


async def test_what_does_not_fit_is_known_before(bus: Bus) -> None:
    publisher = Publisher(bus.client, timeout=10)
    most = bus.client.max_payload - wire.HEADROOM
    assert publisher.fits(outcome(1, data=b"x" * most)) and not publisher.fits(
        outcome(1, data=b"x" * (most + 1))
    )
    assert await publisher.create([outcome(1, data=b"x" * most)]) == [Stored.NEW]


async def test_reading_keeps_to_its_stretch_and_subjects(bus: Bus) -> None:
    publisher = Publisher(bus.client, timeout=10)
    runs = ("live", "other", "live", "live")
    messages = [
        Outgoing(subject=f"gw.recorded.{runs[number % 4]}.{number}", payload=b"x" * (number % 50 + 1))
        for number in range(6_000)
    ]
    assert await publisher.create(messages) == [Stored.NEW] * 6_000
    found = await everything(bus, RESPONSES, "gw.recorded.live.>", 1_001, 5_000)
    assert [(one.subject, one.data, one.sequence) for one in found] == [
        (one.subject, one.payload, number)
        for number, one in enumerate(messages, start=1)
        if 1_001 <= number <= 5_000 and ".live." in one.subject
    ]
    assert await everything(bus, RESPONSES, "gw.recorded.nobody.>") == []
    assert await everything(bus, RESPONSES, "gw.recorded.live.>", 6_001) == []


async def test_a_stream_that_goes_away_breaks_the_reading_off(bus: Bus) -> None:
    publisher = Publisher(bus.client, timeout=10)
    recorded = [Outgoing(subject=f"gw.recorded.live.{number}", payload=b"{}") for number in range(5_000)]
    await publisher.create(recorded)
    seen = 0
    with pytest.raises(Broken):
        async for part in read(bus.js, RESPONSES, "gw.recorded.live.>", 1, 5_000):
            if not seen:
                await bus.js.delete_stream(RESPONSES)
            seen += len(part)
    assert 0 < seen < 5_000


def test_headers_are_read_as_they_were_written() -> None:
    assert headers_of(b"NATS/1.0\r\nA: b: c\r\nE:\r\nU: \xc3\xbc\r\n\r\n") == {"A": "b: c", "E": "", "U": "ü"}
    assert headers_of(b"NATS/1.0 404 No Messages\r\n\r\n") == headers_of(b"") == {}
