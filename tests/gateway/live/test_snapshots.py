"""A gateway that starts goes on from the snapshot of another one's report, and counts nothing twice."""

from __future__ import annotations

import asyncio
import contextlib
import time
import zlib
from typing import Any

import msgspec
import nats.errors
import pytest
from tests.runtime.conftest import eventually
from tests.support.cooling import cool

from groundwatch.events import OutcomeKind, Usage
from groundwatch.gateway import budgets
from groundwatch.gateway.budgets import Budget
from groundwatch.gateway.live import board, live
from groundwatch.gateway.live.board import Snapshots
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.delivery.streams import Batch, read_stream
from groundwatch.runtime.settings import AlarmSettings, ArchiveSettings
from groundwatch.runtime.stores import tombstones
from groundwatch.topology import OUTCOMES, REPORT_BUCKET

BUCKET = f"KV_{REPORT_BUCKET}"


async def report(gateway, responses: int) -> dict[str, Any]:
    """The report once it is complete with so many responses."""
    told: dict[str, Any] = {}

    async def there() -> bool:
        told.update((await gateway.http.get("/v1/report")).json())
        return bool(told["complete"]) and sum(row["responses"] for row in told["models"]) == responses

    await eventually(there, within=60)
    return told


async def stop(gateway) -> None:
    await gateway.service.drain(5.0)


async def only_from(bus, sequence: int) -> None:
    """Remove older outcomes, as retention and cooling do: who reads the stream alone finds them no more."""
    await bus.js.purge_stream(OUTCOMES, seq=sequence)


async def test_a_gateway_goes_on_from_where_another_one_was(gateway_factory, publish, bus):
    alarm = AlarmSettings(responses=1_000, objective=0.05)
    first = await gateway_factory(alarm=alarm)
    for number in range(30):
        await publish(f"o{number}", refuted=3, supported=1, tenant="acme")
    before = await report(first, 30)
    await eventually(lambda: not first.service.core.live._alarms.waiting)
    await stop(first)
    await only_from(bus, 25)
    second = await gateway_factory(alarm=alarm)
    after = await report(second, 30)
    assert after == before
    assert [one["tenant"] for one in after["alarms"]] == ["acme"] * len(after["alarms"]) != []
    labels = {"model": "heron-7b", "protocol": "faithscore", "category": "all"}
    assert second.count("groundwatch_alarms_total", **labels) == 0
    for number in range(30, 35):
        await publish(f"o{number}")
    await report(second, 35)
    shown = (await second.http.get("/metrics")).text
    assert 'groundwatch_alarm_raised{category="all",model="heron-7b",protocol="faithscore"} 1.0' in shown


async def test_without_a_stop_it_is_written_now_and_then(gateway_factory, publish, bus):
    await gateway_factory(snapshot_every=0.1)
    for number in range(5):
        await publish(f"o{number}")
    last = (await bus.js.stream_info(OUTCOMES)).state.last_seq

    async def written() -> bool:
        try:
            entry = await (await bus.js.key_value(REPORT_BUCKET)).get("live")
        except Exception:
            return False
        return bool(msgspec.json.decode(entry.value)["sequence"] == last)

    await eventually(written, within=60)
    await only_from(bus, last + 1)
    await report(await gateway_factory(), 5)


async def test_a_retried_dead_letter_from_before_the_snapshot_counts_once(gateway_factory, publish, bus):
    dead = {"outcome": OutcomeKind.UNSCORED, "score": None, "reason": "dead_letter", "claims": ()}
    first = await gateway_factory()
    await publish("a", **dead, tenant="acme")
    await publish("b")
    await report(first, 2)
    await stop(first)
    second = await gateway_factory()
    await report(second, 2)
    await publish("a", refuted=1, replace=True, tenant="acme")
    await publish("c")
    [row] = (await report(second, 3))["models"]
    assert (row["scored"], row["unscored"]) == (3, {})
    await stop(second)
    # Its replacement is in the snapshot too.
    [row] = (await report(await gateway_factory(), 3))["models"]
    assert (row["scored"], row["unscored"]) == (3, {})


async def test_what_it_holds_names_nobody(gateway_factory, publish, bus):
    dead = {"outcome": OutcomeKind.UNSCORED, "score": None, "reason": "dead_letter", "claims": ()}
    said = {"tenant": "secret-tenant", "tags": {"image_id": "secret-image"}, "detail": "secret"}
    first = await gateway_factory(alarm=AlarmSettings(responses=1_000, objective=0.05))
    for number in range(20):
        await publish(f"secret-{number}", refuted=3, protocol="pope", values={"yes": 1.0}, **said)
    await publish("secret-dead", **dead | said)
    await report(first, 21)
    await eventually(lambda: not first.service.core.live._alarms.waiting)
    await stop(first)
    parts = [read.data async for read in read_stream(bus.js, BUCKET) if ".part." in read.subject]
    data = zlib.decompress(b"".join(parts))
    assert len(data) > 1_000
    assert b"secret" not in data and b"A dog sits" not in data


async def test_other_rules_of_alarms_read_the_stream_anew(gateway_factory, publish, bus):
    first = await gateway_factory()
    for number in range(5):
        await publish(f"o{number}")
    await report(first, 5)
    await stop(first)
    await only_from(bus, 4)
    await report(await gateway_factory(alarm=AlarmSettings(responses=777)), 2)


async def test_a_stream_made_anew_has_no_snapshot(gateway_factory, publish, bus):
    first = await gateway_factory()
    for number in range(3):
        await publish(f"o{number}")
    await report(first, 3)
    await stop(first)
    await bus.js.delete_stream(OUTCOMES)
    await provision(bus.js)
    for number in range(4):
        await publish(f"n{number}")
    await report(await gateway_factory(), 4)


async def test_what_was_erased_is_counted_no_more_after_the_next_start(
    gateway_factory, publish, bus, monkeypatch
):
    monkeypatch.setattr(live, "SKEW_SECONDS", 0.0)
    first = await gateway_factory()
    for number in range(4):
        await publish(f"o{number}")
    await report(first, 4)
    await stop(first)
    await bus.js.delete_msg(OUTCOMES, 2)
    stone = tombstones.begun("response", tombstones.tombstone_name("response", "some"), "test")
    await tombstones.write(bus.js, stone)
    second = await gateway_factory()
    await report(second, 3)
    await publish("later")
    await report(second, 4)
    await stop(second)
    # What was read again was begun after the erasure: it is not read once more.
    await only_from(bus, 4)
    await report(await gateway_factory(), 4)


async def test_a_report_that_is_further_takes_nothing_from_those_who_watch(
    gateway_factory, publish, bus, monkeypatch
):
    """The report of another gateway may have come further."""
    first = await gateway_factory()
    await publish("o1")
    await report(first, 1)
    await stop(first)
    follow = live.Live._follow
    caught_up, held, published, goes_on = (asyncio.Event() for _ in range(4))
    gateways: list[live.Live] = []

    async def held_up(self, behind):
        """The second gateway's counting comes to the end, and is held up behind the next outcome."""
        gateways.append(self)
        hold = self is gateways[0] and bool(behind) and not held.is_set()
        if self is gateways[0] and not hold:
            await published.wait()
        async with contextlib.aclosing(follow(self, behind)) as following:
            async for partition, batch in following:
                if not hold or held.is_set():
                    yield partition, batch
                    continue
                if not batch.messages:
                    caught_up.set()
                    yield partition, batch
                    continue
                yield partition, Batch(batch.messages[:1], 1)
                held.set()
                await goes_on.wait()
                raise nats.errors.ConnectionReconnectingError

    monkeypatch.setattr(live.Live, "_follow", held_up)
    second = await gateway_factory()
    await asyncio.wait_for(caught_up.wait(), 30)
    async with second.http.stream("GET", "/v1/scores", params={"since": "1"}) as reply:
        for number in range(2, 7):
            await publish(f"o{number}")
        published.set()
        await asyncio.wait_for(held.wait(), 30)
        third = await gateway_factory()
        await report(third, 6)
        assert await third.service.core.live.write_snapshot()
        goes_on.set()
        told = []
        async with asyncio.timeout(30):
            async for line in reply.aiter_lines():
                told += [line] if line.startswith("id: ") else []
                if len(told) == 5:
                    break
    assert told == [f"id: {number}" for number in range(2, 7)]
    await report(second, 6)


async def test_it_is_kept_in_parts(gateway_factory, publish, bus, monkeypatch):
    monkeypatch.setattr(board, "PART", 100)
    first = await gateway_factory()
    for number in range(3):
        await publish(f"o{number}")
    await report(first, 3)
    await stop(first)
    parts = [read async for read in read_stream(bus.js, BUCKET) if ".part." in read.subject]
    assert len(parts) > 3
    await only_from(bus, 4)
    await report(await gateway_factory(), 3)


async def test_what_has_left_the_stream_is_counted_and_shown(gateway_factory, publish, bus, tmp_path):
    url = str(tmp_path / "archive")
    for number in range(6):
        await publish(f"o{number}")
    await cool(bus, url, OUTCOMES, 4)
    gateway = await gateway_factory(archive=ArchiveSettings(url=url))
    await report(gateway, 6)
    async with gateway.http.stream("GET", "/v1/scores", params={"since": "1"}) as reply:
        told = []
        async for line in reply.aiter_lines():
            told += [line] if line.startswith("id: ") else []
            if len(told) == 5:
                break
    assert told == [f"id: {number}" for number in range(2, 7)]


async def test_what_was_erased_is_counted_no_more_when_all_is_cold(
    gateway_factory, publish, bus, monkeypatch, tmp_path
):
    monkeypatch.setattr(live, "SKEW_SECONDS", 0.0)
    url = str(tmp_path / "archive")
    first = await gateway_factory(archive=ArchiveSettings(url=url))
    for number in range(4):
        await publish(f"o{number}")
    await report(first, 4)
    await stop(first)
    await bus.js.delete_msg(OUTCOMES, 2)
    await cool(bus, url, OUTCOMES)
    stone = tombstones.begun("response", tombstones.tombstone_name("response", "some"), "test")
    await tombstones.write(bus.js, stone)
    await report(await gateway_factory(archive=ArchiveSettings(url=url)), 3)


async def test_an_archive_that_is_away_is_told_and_what_comes_is_shown(
    gateway_factory, publish, bus, tmp_path
):
    url = str(tmp_path / "archive")
    await publish("cold")
    await cool(bus, url, OUTCOMES)
    gateway = await gateway_factory(archive=ArchiveSettings(url=str(tmp_path / "elsewhere" / "archive")))
    await eventually(lambda: "no archive at" in gateway.service.core.live.problem, within=60)
    await publish("comes")
    await eventually(lambda: gateway.service.core.live.position == 2, within=60)
    assert not (await gateway.http.get("/v1/report")).json()["complete"]


@pytest.mark.parametrize("spoilt", ["part", "manifest", "lost"])
async def test_one_that_cannot_be_read_is_left_alone(gateway_factory, publish, bus, spoilt):
    first = await gateway_factory()
    for number in range(3):
        await publish(f"o{number}")
    await report(first, 3)
    await stop(first)
    bucket = await bus.js.key_value(REPORT_BUCKET)
    [part] = [key for key in await bucket.keys() if key.startswith("part.")]
    if spoilt == "part":
        await bucket.put(part, b"\xff" * 50)
    elif spoilt == "lost":
        await bucket.delete(part)
    else:
        await bucket.put("live", b"{")
    second = await gateway_factory()
    await report(second, 3)
    # It writes another one in its place.
    await publish("more")
    await report(second, 4)
    await stop(second)
    await only_from(bus, 5)
    await report(await gateway_factory(), 4)


async def test_of_two_who_write_one_wins_and_the_one_behind_does_not(gateway_factory, publish, bus):
    one, other = await gateway_factory(), await gateway_factory()
    for number in range(3):
        await publish(f"o{number}")
    await report(one, 3)
    await report(other, 3)
    written = await asyncio.gather(*(each.service.core.live.write_snapshot() for each in (one, other)))
    assert any(written)
    assert not await one.service.core.live.write_snapshot()
    asking = Snapshots(bus, one.service.core.live._snapshots._counting)
    assert not await asking.wanted(2, 0.0) and not await asking.wanted(4, 3600.0)
    assert await asking.wanted(4, 0.0)


async def test_without_the_bucket_it_counts_and_says_so(gateway_factory, publish, bus):
    await bus.js.delete_stream(BUCKET)
    gateway = await gateway_factory(snapshot_every=0.1)
    await publish("a")
    await report(gateway, 1)

    async def noted() -> bool:
        ready = (await gateway.http.get("/readyz")).json()
        return bool(ready["ready"]) and any("admin provision" in note for note in ready.get("notes", []))

    await eventually(noted, within=60)


async def test_budgets_are_charged_once_over_a_snapshot(gateway_factory, publish, bus):
    await budgets.put(bus.js, "all", Budget(tokens_per_day=10_000))
    first = await gateway_factory()
    now = time.time()
    await publish("a", usage=Usage(input_tokens=70), scored_at=now)
    await report(first, 1)
    await stop(first)
    second = await gateway_factory()
    await publish("b", usage=Usage(input_tokens=7), scored_at=now)
    await report(second, 2)
    assert second.service.core.budgets.state("default", "heron-7b", "faithscore").spent.tokens == 77
