"""What goes out over a connection, and when: now or not at all."""

from __future__ import annotations

import asyncio
import json
import os
import signal

import nats.errors
import pytest
import uvloop
from nats.js.api import StreamConfig
from tests.runtime.conftest import eventually
from tests.support.frozen import frozen
from tests.support.nats_relay import nats_relay

import groundwatch.runtime.delivery.bus as bus_module
from groundwatch.errors import ConnectionLost, InvalidName, TransientError
from groundwatch.runtime.delivery.bus import CLOSE_SECONDS, Bus, Outgoing
from groundwatch.runtime.delivery.connection import MAX_SUBJECTS
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.services.tasks import SupervisedTask
from groundwatch.runtime.settings import NatsSettings
from groundwatch.runtime.telemetry import logs


async def opened(server: NatsServer, **settings: float) -> Bus:
    bus = Bus(NatsSettings(url=server.url, **({"publish_timeout": 1.0} | settings)), name="test")
    await bus.connect()
    await bus.js.add_stream(StreamConfig(name="TEST", subjects=["test.>"]))
    return bus


@pytest.mark.parametrize("length", [MAX_SUBJECTS + 1, 4_096, 100_000])
async def test_a_subject_that_the_server_would_hang_up_on_is_not_sent(bus: Bus, length: int) -> None:
    long = "x" * length
    for sending in (
        bus.client.publish(long, b""),
        bus.client.publish("test.a", b"", reply=long),
        bus.client.request(long, b""),
        bus.client.subscribe(long),
        bus.js.get_last_msg("GW_OUTCOMES", long, direct=True),
        bus.create(Outgoing(subject=long, payload=b"")),
    ):
        with pytest.raises(InvalidName, match="use shorter names"):
            await sending
    await bus.client.flush()
    assert bus.problems() == []
    assert bus.lost == ""


async def test_the_longest_subject_that_is_sent_is_taken(bus: Bus) -> None:
    reply = bus.client.new_inbox()
    await bus.client.publish("x" * (MAX_SUBJECTS - len(reply)), b"y" * 100_000, reply, {"a": "b" * 10_000})
    await bus.client.subscribe("x" * MAX_SUBJECTS)
    await bus.client.flush()
    assert bus.lost == ""


async def test_what_was_not_sent_before_an_outage_is_not_sent_after_it(own_server: NatsServer) -> None:
    bus = await opened(own_server)
    with frozen(own_server.pid) as process:
        # More than the sockets between them hold: the rest waits in the client.
        sent = [
            await bus.start_create(Outgoing(subject=f"test.{n}", payload=b"x" * 500_000)) for n in range(40)
        ]
        await asyncio.sleep(0.1)
        sent += [await bus.start_create(Outgoing(subject=f"test.more.{n}", payload=b"x")) for n in range(5)]
        assert bus.client.pending_data_size > 0
        process.kill()
    await own_server.wait()
    await eventually(lambda: not bus.connected)
    with pytest.raises(TransientError):
        await bus.create(Outgoing(subject="test.away", payload=b"x"))
    with pytest.raises(nats.errors.Error):
        await bus.js.publish("test.away.too", b"x")
    await own_server.restart()
    await eventually(lambda: bus.connected)
    # What a later connection sends arrives behind everything that it would send before.
    await bus.create(Outgoing(subject="test.later", payload=b"x"))
    state = (await bus.js.stream_info("TEST", subjects_filter=">")).state
    assert set(state.subjects or ()) == {"test.later"}
    for receipt in sent:
        with pytest.raises(TransientError):
            receipt.result()
    await bus.close()


async def test_requests_while_the_server_is_away_leave_nothing_behind(own_server: NatsServer) -> None:
    bus = await opened(own_server)
    assert own_server.pid
    os.kill(own_server.pid, signal.SIGKILL)
    await own_server.wait()
    await eventually(lambda: not bus.connected)
    for _ in range(50):
        with pytest.raises(nats.errors.ConnectionReconnectingError):
            await bus.js.stream_info("TEST")
    assert bus.client._resp_map == {}
    assert bus.client.pending_data_size == 0
    await bus.close()


async def test_a_subscription_made_while_the_server_is_away_is_opened_later(own_server: NatsServer) -> None:
    bus = await opened(own_server)
    own_server.kill()
    await own_server.wait()
    await eventually(lambda: not bus.connected)
    subscription = await bus.client.subscribe("later")
    await own_server.restart()
    await eventually(lambda: bus.connected)
    await bus.client.publish("later", b"x")
    assert (await subscription.next_msg(5)).data == b"x"
    await bus.close()


async def test_a_connection_that_is_closed_for_good_says_so(own_server: NatsServer) -> None:
    with nats_relay(own_server.url) as relay:
        bus = Bus(NatsSettings(url=relay.url, publish_timeout=1.0), name="test")
        await bus.connect()
        losing = asyncio.create_task(bus.until_lost())
        await asyncio.sleep(0)
        relay.say(b"-ERR 'maximum control line exceeded'\r\n")
        with pytest.raises(ConnectionLost, match=r"closed for good .*maximum control line exceeded"):
            await asyncio.wait_for(losing, 10)
        assert bus.problems() == [bus.lost]
        with pytest.raises(TransientError):
            await bus.create(Outgoing(subject="test.a", payload=b"x"))
        await bus.close()
        assert bus.lost == ""


async def test_one_that_only_broke_off_is_not_lost(own_server: NatsServer) -> None:
    with nats_relay(own_server.url) as relay:
        bus = Bus(NatsSettings(url=relay.url, publish_timeout=1.0), name="test")
        await bus.connect()
        relay.say(b"-ERR 'Stale Connection'\r\n")
        await eventually(lambda: bus.reconnects == 1)
        assert bus.lost == ""
        assert bus.problems() == []
        await bus.close()


async def test_who_is_hung_up_on_while_it_connects_is_not_closed_for_good(nats_server: NatsServer) -> None:
    """As by a load balancer without a server behind it."""
    with nats_relay(nats_server.url, hang_up=2) as relay:
        bus = Bus(NatsSettings(url=relay.url), name="test")
        await bus.connect()
        assert relay.hang_up == 0
        assert (bus.lost, bus.connected) == ("", True)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(bus.until_lost(), 0.2)
        await bus.close()


async def test_a_restart_of_the_server_is_one_line(own_server: NatsServer, capsys) -> None:
    """What else comes of it is told while it lasts by /readyz, and afterwards where it stays."""
    logs.configure(style="json")
    bus = await opened(own_server)
    capsys.readouterr()

    async def work() -> None:
        await bus.js.stream_info("NONE")
        await asyncio.sleep(60)

    task = SupervisedTask("asking", work)
    os.kill(own_server.pid, signal.SIGKILL)
    await own_server.wait()
    await eventually(lambda: not bus.connected)
    task.start()
    await eventually(lambda: task.problem)
    logs.logger.warning("gateway.live", problem="cannot read GW_OUTCOMES: connection reconnecting")
    logs.logger.warning("triton.died", why="killed")
    await own_server.restart()
    await eventually(lambda: bus.connected and bus.reconnects)
    told = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [one["event"] for one in told if one["event"] != "nats.started"] == [
        "triton.died",
        "nats.reconnected",
    ]
    assert told[-1]["seconds"] > 0 and told[-1]["error"]
    logs.outage.end(0.0)
    await eventually(lambda: "task.failed" in capsys.readouterr().err)
    await task.stop()
    await bus.close()


async def test_why_a_server_that_is_back_will_not_have_us_is_told_once(
    own_server: NatsServer, capsys, monkeypatch
) -> None:
    """After it was restarted with other users: each attempt meets it, the end of the connection did not."""
    monkeypatch.setattr(bus_module, "TELL_SECONDS", 0.05)
    logs.configure(style="json")
    bus = await opened(own_server)
    await own_server.stop()
    ours, own_server._token = own_server._token, "another"
    await own_server.start()
    told: list[str] = []

    def refused() -> bool:
        lines = map(json.loads, capsys.readouterr().err.splitlines())
        told.extend(one["error"] for one in lines if one["event"] == "nats.disconnected")
        return any("Authorization Violation" in one for one in told)

    await eventually(refused)
    await asyncio.sleep(0.3)
    refused()
    assert len(told) == len(set(told)) and len(told) <= 3
    own_server._token = ours
    await own_server.stop()
    await own_server.start()
    await eventually(lambda: bus.connected)
    await bus.close()


async def test_a_server_that_is_none_of_ours_hides_nothing_of_ours(own_server: NatsServer) -> None:
    bus = await opened(own_server)
    bus.outage = logs.Outage()
    await bus._on_disconnected()
    assert bus.outage.lasts and not logs.outage.lasts
    await bus.close()


async def test_a_close_that_cannot_end_leaves_no_task_behind(own_server: NatsServer) -> None:
    before = asyncio.all_tasks()
    bus = await opened(own_server)
    with frozen(own_server.pid):
        async with asyncio.timeout(CLOSE_SECONDS + 5):
            await bus.close()
        await asyncio.sleep(0.1)
        assert asyncio.all_tasks() - before == set()


async def test_an_attempt_that_another_has_ended_already_ends_without_an_error(
    own_server: NatsServer,
) -> None:
    """Two attempts of nats-py that overlap share what says that one is over; seen in a campaign of faults."""
    bus = await opened(own_server)
    connection = bus.client
    with frozen(own_server.pid):
        await connection._process_op_err(OSError("broken"))
        await eventually(lambda: connection._reconnection_task_future)
        connection._reconnection_task_future.set_result(True)
        attempt = connection._reconnection_task
        connection._status = connection.CONNECTED
        await connection._process_op_err(OSError("broken again"))
        await attempt
    await eventually(lambda: bus.connected)
    await bus.close()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_transport_that_was_closed_under_a_connection_is_a_lost_connection(tmp_path, loop) -> None:
    async def close_and_publish() -> None:
        server = NatsServer(tmp_path / "nats")
        await server.start()
        bus = await opened(server)
        try:
            client = bus.client
            # As when the other side is gone and the reader, busy elsewhere, has not seen it yet.
            client._reading_task.cancel()
            client._transport._io_writer.transport.abort()
            problems = 0
            for number in range(200):
                try:
                    await bus.create(Outgoing(subject=f"test.{number}", payload=b"x"))
                    break
                except (nats.errors.Error, ConnectionLost, TransientError):
                    problems += 1
                    await asyncio.sleep(0.05)
            else:
                raise AssertionError("never connected again")
            assert problems
        finally:
            await bus.close()
            await server.stop()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(close_and_publish())
