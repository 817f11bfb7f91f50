"""Live scores, the report, single responses: what became of what was recorded."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from tests.support.cooling import cool
from tests.support.nats_proxy import nats_proxy

from groundwatch.errors import TransientError
from groundwatch.events import OutcomeKind, ResponseScored
from groundwatch.gateway.answers import AnswerSearch
from groundwatch.gateway.auth import Filter
from groundwatch.gateway.live import live
from groundwatch.gateway.live.live import Missed, Shown, Watcher
from groundwatch.runtime.delivery import streams
from groundwatch.runtime.delivery.history import History
from groundwatch.runtime.settings import AlarmSettings, ArchiveSettings, TelemetrySettings
from groundwatch.topology import OUTCOMES, RESPONSES

EVENT = ResponseScored(id="a", model="m", protocol="faithscore", outcome=OutcomeKind.DECLINED)


class Events:
    """A reader of server-sent events."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines

    async def next(self) -> dict[str, Any]:
        """The next event: its fields, `data` decoded; comments under `comment`."""
        found: dict[str, Any] = {}
        async for line in self._lines:
            if not line:
                if set(found) - {"retry"}:
                    return found
                found = {}
                continue
            name, _, value = line.partition(": ")
            found[name or "comment"] = json.loads(value) if name == "data" else value
        return found

    async def outcomes(self, number: int) -> list[str]:
        """The ids of the next outcomes."""
        found: list[str] = []
        while len(found) < number:
            event = await asyncio.wait_for(self.next(), 10)
            if event.get("event") == "outcome":
                found.append(event["data"]["id"])
        return found


@contextlib.asynccontextmanager
async def watching(gateway, **options: Any) -> AsyncIterator[Events]:
    before = len(gateway.service.core.live.watchers)
    async with gateway.http.stream("GET", "/v1/scores", **options) as reply:
        assert reply.status_code == 200
        assert reply.headers["content-type"].startswith("text/event-stream")
        events = Events(reply.aiter_lines())
        await events.next()
        for _ in range(100):
            if len(gateway.service.core.live.watchers) > before or "since" in options.get("params", {}):
                break
            await asyncio.sleep(0.02)
        yield events


async def test_outcomes_come_as_they_happen_and_not_from_before(gateway, publish):
    await publish("before")
    await until(gateway, 1)
    async with watching(gateway) as events:
        await publish("one", refuted=1)
        event = await asyncio.wait_for(events.next(), 10)
        assert event["event"] == "outcome"
        assert event["id"] == "2"
        assert event["data"]["id"] == "one"
        assert event["data"]["claims"][0]["decision"] == "refuted"


async def test_resuming_leaves_nothing_out_and_repeats_nothing(gateway, publish):
    for number in range(20):
        await publish(f"o{number}")
    await until(gateway, 20)
    async with watching(gateway, params={"since": "5"}) as events:
        assert await events.outcomes(15) == [f"o{n}" for n in range(5, 20)]
        for number in range(20, 30):
            await publish(f"o{number}")
        assert await events.outcomes(10) == [f"o{n}" for n in range(20, 30)]
    headers = {"Last-Event-ID": "28"}
    async with watching(gateway, params={"since": "5"}, headers=headers) as events:
        assert await events.outcomes(2) == ["o28", "o29"]


async def test_resuming_while_outcomes_pour_in(gateway, publish):
    async def pour() -> None:
        for number in range(400):
            await publish(f"o{number}")

    pouring = asyncio.create_task(pour())
    await until(gateway, 50)
    async with watching(gateway, params={"since": "0"}) as events:
        assert await events.outcomes(400) == [f"o{n}" for n in range(400)]
    await pouring


async def test_a_stream_that_breaks_off_while_somebody_catches_up_is_read_on(gateway, publish, monkeypatch):
    for number in range(20):
        await publish(f"o{number}")
    await until(gateway, 20)
    breaks = [3, 0, 5]

    whole = History.read

    async def breaking(*args, **options):
        left = breaks.pop() if breaks else 100
        async for read in whole(*args, **options):
            if left == 0:
                raise TransientError("reading broke off: the connection is gone")
            left -= 1
            yield read

    monkeypatch.setattr(History, "read", breaking)
    async with watching(gateway, params={"since": "0"}) as events:
        assert await events.outcomes(20) == [f"o{n}" for n in range(20)]
    assert breaks == []


async def test_who_comes_back_before_the_stream_does_misses_nothing(gateway, publish):
    """A server that has just been made a stream's leader has not come as far as what the one before told."""
    for number in range(3):
        await publish(f"o{number}")
    await until(gateway, 3)
    gateway.service.core.live._shown[0] = 5
    async with watching(gateway, params={"since": "2"}) as events:
        # The stream is behind what was shown of it: what comes now was never read by who comes back.
        await asyncio.sleep(0.5)
        for number in range(3, 7):
            await publish(f"o{number}")
        assert await events.outcomes(5) == [f"o{n}" for n in range(2, 7)]


async def test_watchers_see_what_they_asked_for(gateway, publish):
    async with (
        watching(gateway, params={"model": "a"}) as model,
        watching(gateway, params={"tenant": "t"}) as tenant,
        watching(gateway, params={"protocol": "valor", "model": "b"}) as both,
    ):
        await publish("1", model="a")
        await publish("2", model="b", tenant="t")
        await publish("3", model="b", protocol="valor")
        await publish("4", model="a", tenant="t")
        assert await model.outcomes(2) == ["1", "4"]
        assert await tenant.outcomes(2) == ["2", "4"]
        assert await both.outcomes(1) == ["3"]


async def test_who_asks_for_the_head_of_the_scores_is_answered_to_the_end(gateway):
    limits = httpx.Limits(max_connections=1)
    async with httpx.AsyncClient(base_url=gateway.http.base_url, limits=limits, trust_env=False) as http:
        for _ in range(3):
            head = await http.head("/v1/scores")
            assert (head.status_code, head.headers["content-type"]) == (
                200,
                "text/event-stream; charset=utf-8",
            )
        # Over the same connection, which answers in turn.
        assert (await http.get("/healthz", timeout=5)).status_code == 200


@pytest.mark.parametrize("since", ["x", "-1", "1.5", "٣", "9" * 30])
async def test_a_wrong_since_is_422(gateway, since):
    reply = await gateway.http.get("/v1/scores", params={"since": since})
    assert (reply.status_code, reply.json()["field"]) == (422, "since")


async def test_since_beyond_the_end_is_from_now_on(gateway, publish):
    await publish("before")
    await until(gateway, 1)
    async with watching(gateway, params={"since": "1000"}) as events:
        await asyncio.sleep(0.2)
        await publish("after")
        assert await events.outcomes(1) == ["after"]


async def test_heartbeats(gateway_factory, monkeypatch):
    monkeypatch.setattr(live, "HEARTBEAT_SECONDS", 0.1)
    gateway = await gateway_factory()
    async with watching(gateway) as events:
        assert (await asyncio.wait_for(events.next(), 5))["comment"] == "heartbeat"


async def test_who_falls_behind_is_told_how_much_was_missed(monkeypatch):
    monkeypatch.setattr(live, "QUEUE", 3)
    watcher = Watcher(Filter(), 0)
    one, two, three, *_, nine = several = [Shown(number, EVENT, b"") for number in range(1, 10)]
    for shown in several[:8]:
        watcher.offer(shown)
    assert await watcher.next(1) == [one, two, three, Missed(5, 3)]
    watcher.offer(nine)
    assert await watcher.next(1) == [nine]
    assert await watcher.next(0.01) == []


async def test_a_slow_watcher_does_not_hold_up_the_others(gateway_factory, publish, monkeypatch):
    monkeypatch.setattr(live, "QUEUE", 50)
    gateway = await gateway_factory()
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.service.port, limit=1)
    writer.write(b"GET /v1/scores HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    await writer.drain()
    await reader.read(1)
    async with watching(gateway) as events:
        detail = "x" * 100_000
        for number in range(300):
            await publish(f"o{number}", detail=detail)
            assert await events.outcomes(1) == [f"o{number}"]
    text = b""
    while b"event: missed" not in text:
        text = text[-1_000:] + await asyncio.wait_for(reader.read(1 << 20), 10)
    writer.close()


async def test_watchers_that_leave_are_forgotten(gateway):
    async with watching(gateway):
        assert len(gateway.service.core.live.watchers) == 1
    for _ in range(100):
        if not len(gateway.service.core.live.watchers):
            break
        await asyncio.sleep(0.02)
    assert len(gateway.service.core.live.watchers) == 0


async def until(gateway, sequence: int) -> dict[str, Any]:
    """The report once it has read so far."""
    for _ in range(2_000):
        told: dict[str, Any] = (await gateway.http.get("/v1/report")).json()
        if told["sequence"] >= sequence and told["complete"]:
            return told
        await asyncio.sleep(0.03)
    raise AssertionError(f"the report does not come to {sequence}")


async def models(gateway, sequence: int, number: int) -> list[dict[str, Any]]:
    """The report's rows once they hold so many responses."""
    await until(gateway, sequence)
    for _ in range(2_000):
        rows: list[dict[str, Any]] = (await gateway.http.get("/v1/report")).json()["models"]
        if sum(row["responses"] for row in rows) == number:
            return rows
        await asyncio.sleep(0.05)
    raise AssertionError(rows)


async def test_the_report_holds_what_was_there_and_what_comes(gateway_factory, publish):
    await publish("before", refuted=1, supported=3)
    gateway = await gateway_factory()
    await publish("after", refuted=1, supported=1)
    await publish("none", outcome=OutcomeKind.UNSCORED, score=None, reason="nothing_to_verify", claims=())
    [row] = await models(gateway, 3, 3)
    assert (row["model"], row["scored"]) == ("heron-7b", 2)
    assert row["unscored"] == {"nothing_to_verify": 1}
    assert row["hallucination_rate"]["value"] == pytest.approx(2 / 6)
    assert row["score"]["value"] == pytest.approx((0.75 + 0.5) / 2)


async def test_an_outcome_that_replaces_a_dead_letter_is_counted_once(
    gateway_factory, publish, bus, monkeypatch
):
    gateway = await gateway_factory()
    await publish("a")
    await publish("b", outcome=OutcomeKind.UNSCORED, score=None, reason="dead_letter", claims=(), judges={})
    await models(gateway, 2, 2)
    await publish("b", replace=True)
    await until(gateway, 3)
    [row] = await models(gateway, 3, 2)
    assert (row["scored"], row["unscored"]) == (2, {})


DEAD = {"outcome": OutcomeKind.UNSCORED, "score": None, "reason": "dead_letter", "claims": (), "judges": {}}


async def test_retried_dead_letters_are_counted_once_and_nothing_is_read_again(
    gateway_factory, publish, nats_server
):
    """All of them at once, and no other outcome comes after them."""
    async with nats_proxy(nats_server.url) as proxy:
        gateway = await gateway_factory(nats={"url": proxy.url})
        await publish("a", refuted=1)
        for number in range(5):
            await publish(f"b{number}", **DEAD)
        before = await models(gateway, 6, 6)
        assert sum(row["unscored"].get("dead_letter", 0) for row in before) == 5
        # Whoever wanted to read from the beginning could not.
        proxy.silent.add("CONSUMER.CREATE.GW_OUTCOMES")
        async with watching(gateway) as events:
            for number in range(5):
                await publish(f"b{number}", replace=True)
            assert await events.outcomes(5) == [f"b{number}" for number in range(5)]
            told = await until(gateway, 11)
            [row] = told["models"]
            assert (row["responses"], row["scored"], row["unscored"]) == (6, 6, {})
            await publish("c", refuted=1)
            assert await events.outcomes(1) == ["c"]
        [row] = (await until(gateway, 12))["models"]
        assert (row["responses"], row["hallucination_rate"]["value"]) == (7, 2 / 23)
        assert proxy.dropped == 0


async def test_what_comes_is_shown_while_the_history_is_still_read(
    gateway_factory, publish, nats_server, monkeypatch
):
    monkeypatch.setattr(streams, "MOST", 1)
    monkeypatch.setattr(streams, "WAIT", 0.1)
    # What answers are found by reads the outcomes, too.
    monkeypatch.setattr(AnswerSearch, "start", lambda self: None)
    for name in "abc":
        await publish(name)
    fetched: list[str] = []
    held = True

    def drops(subject: str) -> bool:
        """Lets the first who reads have one outcome, and then no more."""
        if "CONSUMER.MSG.NEXT.GW_OUTCOMES" not in subject:
            return False
        fetched.append(subject)
        return held and len(fetched) > 1 and subject == fetched[0]

    async with nats_proxy(nats_server.url) as proxy:
        proxy.drops = drops
        gateway = await gateway_factory(nats={"url": proxy.url})
        async with watching(gateway) as events, watching(gateway, params={"since": 1}) as returned:
            await publish("new")
            assert await events.outcomes(1) == ["new"]
            assert await returned.outcomes(3) == ["b", "c", "new"]
            told = (await gateway.http.get("/v1/report")).json()
            assert (told["sequence"], told["complete"]) == (1, False)
            held = False
            [row] = await models(gateway, 4, 4)
            assert row["scored"] == 4
            await publish("last")
            assert await events.outcomes(1) == ["last"]
            assert await returned.outcomes(1) == ["last"]
            assert (await gateway.http.get("/readyz")).status_code == 200


async def test_invented_models_are_folded_and_the_alarmed_one_stays(gateway_factory, publish, bus):
    alarm = AlarmSettings(responses=1_000, objective=0.05)
    gateway = await gateway_factory(alarm=alarm, telemetry=TelemetrySettings(max_labels=8))
    for number in range(12):
        await publish(f"bad{number}", model="bad", refuted=3, supported=1)
    for number in range(60):
        await publish(f"i{number}", model=f"invented-{number % 30}", refuted=0)
    told = await until(gateway, 72)
    rows = {row["model"]: row["responses"] for row in told["models"]}
    assert (len(rows) <= 9, sum(rows.values()), rows["bad"]) == (True, 72, 12)
    assert told["folded"] >= 20
    assert {one["model"] for one in told["alarms"]} == {"bad"}
    watched = (await gateway.http.get("/v1/alarms")).json()
    assert "bad" in {one["model"] for one in watched["watched"]}
    assert (len({one["model"] for one in watched["watched"]}) <= 8, watched["folded"] >= 20) == (True, True)


async def test_counting_that_fails_is_told_and_begins_again(gateway, publish, monkeypatch):
    take, failed = gateway.service.core.live._alarms.take, []

    def fails_once(event):
        if event.id == "b" and not failed:
            failed.append(event)
            raise ValueError("a bug")
        take(event)

    monkeypatch.setattr(gateway.service.core.live._alarms, "take", fails_once)
    async with watching(gateway) as events:
        for name in "abc":
            await publish(name)
        assert await events.outcomes(3) == ["a", "b", "c"]
    [row] = await models(gateway, 3, 3)
    assert row["scored"] == 3
    ready = await gateway.http.get("/readyz")
    [note] = ready.json()["notes"]
    assert (ready.status_code, "gateway-live: failed: a bug (ValueError)" in note) == (200, True)


async def test_the_reader_survives_a_stream_made_anew(gateway, publish, bus):
    from groundwatch.runtime.delivery.provisioning import provision

    await publish("a")
    await publish("b")
    await until(gateway, 2)
    await bus.js.delete_stream("GW_OUTCOMES")
    await provision(bus.js)
    await publish("c")
    for _ in range(200):
        rows = (await gateway.http.get("/v1/report")).json()
        if rows["sequence"] == 1 and [row["responses"] for row in rows["models"]] == [1]:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(rows)


async def test_what_is_no_outcome_stops_nothing(gateway, publish, bus):
    await bus.js.publish("gw.outcome.live.faithscore.junk", b"\xff{")
    await publish("a")
    [row] = await models(gateway, 2, 1)
    assert row["responses"] == 1


async def test_a_response_with_what_became_of_it(gateway, response, publish):
    sent = response(id="one/two", tenant="acme", prompt="What?")
    await gateway.post(sent)
    address = "/v1/responses/one%2Ftwo?tenant=acme"
    told = (await gateway.http.get(address)).json()
    assert told["response"]["answer"] == sent["answer"]
    assert (told["outcomes"], told["waiting"]) == ({}, ["faithscore"])
    await publish("one/two", tenant="acme", refuted=1)
    told = (await gateway.http.get(address)).json()
    assert told["waiting"] == []
    assert told["outcomes"]["faithscore"]["score"] == 0.75


async def test_a_response_that_is_not_recorded_is_404(gateway, response):
    await gateway.post(response(id="a", tenant="t"))
    for address in ("/v1/responses/nobody", "/v1/responses/a"):
        reply = await gateway.http.get(address)
        assert reply.status_code == 404
        assert "\n" not in reply.json()["error"]


async def test_a_response_that_has_left_the_streams_is_found(
    gateway_factory, publish, response, bus, tmp_path
):
    url = str(tmp_path / "archive")
    gateway = await gateway_factory(archive=ArchiveSettings(url=url))
    sent = response()
    assert (await gateway.post(sent)).status_code == 202
    await publish(sent["id"])
    before = (await gateway.http.get(f"/v1/responses/{sent['id']}")).json()
    for stream in (RESPONSES, OUTCOMES):
        await cool(bus, url, stream)
    after = await gateway.http.get(f"/v1/responses/{sent['id']}")
    assert (after.status_code, after.json()) == (200, before)
    assert before["outcomes"]["faithscore"]["outcome"] == "scored" and before["waiting"] == []
