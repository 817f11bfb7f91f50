"""Who holds an item: many reviewers over several connections, and none gets another's."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest
from tests.annotation.conftest import outcome
from tests.conftest import BusFactory

from groundwatch.errors import HeldByOthers, InputError, UnknownName
from groundwatch.events import OpinionGiven
from groundwatch.reviews.opinions import Opinions
from groundwatch.reviews.queues import LEASE_SECONDS, Item, Items
from groundwatch.runtime.delivery.bus import Bus, Stored
from groundwatch.statistics.sampling import uniform

pytestmark = pytest.mark.usefixtures("clean_streams")


def item(number: int, **changes: object) -> Item:
    one = outcome(f"r{number}")
    names = {"id": one.id, "tenant": one.tenant, "model": one.model, "protocol": one.protocol}
    return Item(
        **{"queue": "q", "key": one.key, "order": uniform("order", one.key)} | names | changes  # type: ignore[arg-type]
    )


def opinion(of: Item, reviewer: str, mark: int = 3) -> OpinionGiven:
    return OpinionGiven(
        id=of.id,
        model=of.model,
        protocol=of.protocol,
        tenant=of.tenant,
        reviewer=reviewer,
        queue=of.queue,
        probability=of.probability,
        mark=mark,
        given_at=time.time(),
    )


async def test_an_item_is_added_once(bus: Bus) -> None:
    items = Items(bus)
    assert await items.create(item(1))
    assert not await items.create(item(1))
    assert [one.id for one in await items.list("q")] == ["r1"]


@pytest.mark.parametrize("wanted", [1, 2])
async def test_no_two_reviewers_hold_one_item_beyond_what_it_wants(
    bus_factory: BusFactory, wanted: int
) -> None:
    several = [Items(await bus_factory("gateway")) for _ in range(2)]
    for number in range(12):
        await several[0].create(item(number, wanted=wanted))
    names = [f"reviewer {number}" for number in range(16)]

    async def review(number: int) -> list[tuple[str, str]]:
        mine = []
        items = several[number % 2]
        while (found := await items.next("q", names[number])) is not None:
            # Whatever is held at this moment was given to no more than may hold it.
            now = await items.find("q", found.key)
            assert len(now.held_by) + len(now.done_by) <= wanted
            assert names[number] in now.held_by
            await asyncio.sleep(0.002)
            await items.complete("q", found.key, opinion(found, names[number]))
            mine.append((names[number], found.key))
        return mine

    done = [pair for pairs in await asyncio.gather(*map(review, range(16))) for pair in pairs]
    assert len(done) == len(set(done)) == 12 * wanted
    assert set(Counter(key for _, key in done).values()) == {wanted}
    assert len(await Opinions(several[0]._opinions._bus).latest()) == 12 * wanted


async def test_a_lease_ends_and_a_draft_renews_it(bus: Bus) -> None:
    now = 1_000.0
    items = Items(bus, clock=lambda: now)
    await items.create(item(1))
    held = await items.next("q", "ann")
    assert held is not None and await items.next("q", "bob") is None
    now += LEASE_SECONDS - 1
    await items.save_draft("q", held.key, "ann", {"mark": 2})
    now += LEASE_SECONDS - 1
    assert await items.next("q", "bob") is None
    with pytest.raises(HeldByOthers):
        await items.save_draft("q", held.key, "bob", {})
    now += 2
    assert (got := await items.next("q", "bob")) is not None and got.key == held.key
    with pytest.raises(HeldByOthers):
        await items.complete("q", held.key, opinion(held, "ann"))
    assert await items.load_draft("q", held.key, "ann") == {"mark": 2}
    await items.release("q", held.key, "bob")
    assert await items.next("q", "ann") is not None


async def test_who_comes_back_gets_the_item_that_is_held_and_the_draft(bus_factory: BusFactory) -> None:
    first = Items(await bus_factory("gateway"))
    for number in range(5):
        await first.create(item(number))
    held = await first.next("q", "ann")
    assert held is not None
    await first.save_draft("q", held.key, "ann", {"facts": ["false"]})
    again = Items(await bus_factory("gateway"))
    assert (await again.next("q", "ann")).key == held.key  # type: ignore[union-attr]
    assert await again.load_draft("q", held.key, "ann") == {"facts": ["false"]}


@pytest.mark.parametrize("by_hand", [{}, {"order": 0.0, "probability": 0.0}])
async def test_next_goes_on_behind_an_item_and_round(bus: Bus, by_hand: dict[str, float]) -> None:
    items = Items(bus)
    for number in range(3):
        await items.create(item(number, **by_hand))
    order = [one.key for one in await items.list("q")]
    assert [one.key for one in await items.list("q", after=order[0], limit=1)] == [order[1]]
    seen, after = [], ""
    for _ in range(4):
        found = await items.next("q", "ann", after)
        assert found is not None
        seen.append(found.key)
        after = found.key
    assert seen == [*order, order[0]]


async def test_an_opinion_is_there_once_and_a_revision_replaces_it(bus: Bus) -> None:
    items, opinions = Items(bus), Opinions(bus)
    await items.create(item(1))
    held = await items.next("q", "ann")
    assert held is not None
    first = opinion(held, "ann")
    assert await items.complete("q", held.key, first) is Stored.NEW
    assert await items.complete("q", held.key, opinion(held, "ann")) is Stored.EXISTED
    assert await items.complete("q", held.key, opinion(held, "ann", mark=5)) is Stored.NEW
    (last,) = await opinions.latest()
    assert (last.mark, last.revision) == (5, 2)
    assert [one.opinion.revision async for one in opinions.read()] == [1, 2]
    assert (await opinions.of(held.key, "faithscore")) == [last]
    assert await items.next("q", "ann") is None
    assert (await items.find("q", held.key)).state == "done"


async def test_many_who_give_the_same_at_once_give_it_once(bus_factory: BusFactory) -> None:
    several = [Opinions(await bus_factory("gateway")) for _ in range(2)]
    stored = await asyncio.gather(
        *(several[number % 2].give(opinion(item(1), "ann", mark=4)) for number in range(10))
    )
    assert sorted(stored, key=str).count(Stored.NEW) == 1
    assert len([one async for one in several[0].read()]) == 1


async def test_what_is_replaced_or_removed_leaves_no_version(bus: Bus) -> None:
    items = Items(bus)
    await items.create(item(1))
    held = await items.next("q", "ann")
    assert held is not None
    for mark in range(4):
        await items.save_draft("q", held.key, "ann", {"mark": mark})
    info = await bus.js.stream_info("KV_gw-queues", subjects_filter="$KV.gw-queues.>")
    assert set((info.state.subjects or {}).values()) == {1}
    assert await items.delete_all("q") == 1
    assert await items.list("q") == []
    assert await items.create(item(1))


async def test_what_cannot_be(bus: Bus) -> None:
    items = Items(bus)
    await items.create(item(1))
    with pytest.raises(UnknownName):
        await items.find("q", "no.such")
    with pytest.raises(UnknownName):
        await items.hold("other", item(1).key, "ann")
    with pytest.raises(InputError):
        await items.save_draft("q", item(1).key, "ann", {"text": "x" * 300_000})
