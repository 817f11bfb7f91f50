from __future__ import annotations

from collections.abc import AsyncGenerator

import nats.errors
import pytest
from nats.js import JetStreamContext
from nats.js.api import StreamConfig

from groundwatch.runtime.delivery import direct
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.direct import last_of_each_subject, read_by_sequence
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.settings import NatsSettings

STREAM = "TEST"


@pytest.fixture
async def js(own_server: NatsServer) -> AsyncGenerator[JetStreamContext]:
    bus = Bus(NatsSettings(url=own_server.url, publish_timeout=2.0), name="test")
    await bus.connect()
    await bus.js.add_stream(StreamConfig(name=STREAM, subjects=["test.>"], allow_direct=True))
    yield bus.js
    await bus.close()


async def sequences(js: JetStreamContext, last: int) -> list[int]:
    return [one.sequence async for several in read_by_sequence(js, STREAM, 1, last) for one in several]


async def test_what_was_not_given_out_at_first_is_asked_for_again(
    js: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server says "not found" also of a message that it cannot read at that moment."""
    for number in (1, 2):
        await js.publish(f"test.{number}", b"said")
    ask = direct._next_of_leader

    async def late(js: JetStreamContext, stream: str, sequence: int) -> int:
        """Of the third, which was not there when it was asked for."""
        if sequence == 3:
            await js.publish("test.3", b"said")
        return await ask(js, stream, sequence)

    monkeypatch.setattr(direct, "_next_of_leader", late)
    assert await sequences(js, 3) == [1, 2, 3]


@pytest.mark.parametrize("status", ("404", "204", "413", "²"))
async def test_a_header_of_a_message_is_no_word_of_the_server(js: JetStreamContext, status: str) -> None:
    for number in (1, 2):
        await js.publish(f"test.{number}", b"said", headers={"Status": status, "Nats-Num-Pending": "²"})
    assert await sequences(js, 2) == [1, 2]
    found = await last_of_each_subject(js, STREAM, ["test.>"], 2)
    assert found is not None and [one.sequence for one in found] == [1, 2]


async def test_single_holes_and_stretches_are_passed_over(js: JetStreamContext) -> None:
    for number in range(1, 41):
        await js.publish(f"test.{number}", b"said")
    gone = {3, 7, *range(11, 19), 40}
    for sequence in gone:
        await js.delete_msg(STREAM, sequence)
    assert await sequences(js, 40) == [one for one in range(1, 41) if one not in gone]


async def test_what_is_there_and_never_given_out_is_told(
    js: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    await js.publish("test.1", b"said")

    async def there(js: JetStreamContext, stream: str, sequence: int) -> int:
        return sequence

    monkeypatch.setattr(direct, "_next_of_leader", there)
    with pytest.raises(nats.errors.Error, match="message 2 of TEST is there, and is not given out"):
        await sequences(js, 2)
