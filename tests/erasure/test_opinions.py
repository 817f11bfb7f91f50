"""An erasure takes opinions, items of queues and drafts, in all of their revisions, wherever they are."""

from __future__ import annotations

import time

import msgspec
import pytest
from tests.annotation.conftest import outcome
from tests.erasure.test_erasing import stores

from groundwatch.archive.events import Message
from groundwatch.erasure.erasing import Eraser
from groundwatch.erasure.finding import Stores, subject
from groundwatch.erasure.retention import enforce
from groundwatch.events import Decision, FactOpinion
from groundwatch.reviews.opinions import Opinions, opinion_on
from groundwatch.reviews.queues import Item, Items, Queues, QueueSpec
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.outcomes import outgoing
from groundwatch.runtime.delivery.streams import position_of, read_stream
from groundwatch.runtime.settings import RetentionSettings
from groundwatch.topology import OPINIONS

__all__ = ["stores"]

pytestmark = pytest.mark.usefixtures("clean_streams")


async def reviewed(bus: Bus, name: str, tenant: str) -> Item:
    """An item with an opinion that was revised, and another reviewer's draft that was saved again."""
    scored = msgspec.structs.replace(outcome(name), tenant=tenant)
    await bus.create(outgoing(scored))
    items = Items(bus)
    item = Item(
        queue="q", key=scored.key, id=name, tenant=tenant, model="lvlm", protocol="faithscore", wanted=2
    )
    await items.create(item)
    for mark in (1, 2):
        fact = FactOpinion(
            text=f"The secret of {name} is a purple giraffe",
            category="entity",
            decision=Decision.REFUTED,
        )
        said = opinion_on(scored, reviewer="ann", facts=(fact,), given_at=time.time(), queue="q", mark=mark)
        await items.complete("q", item.key, said)
        await items.save_draft("q", item.key, "bob", {"text": f"A draft of {mark} about {name} and giraffes"})
    return item


async def keys_in(bus: Bus) -> list[str]:
    return [read.subject async for read in read_stream(bus.js, "KV_gw-queues")]


@pytest.mark.parametrize("tenant_alone", [False, True])
async def test_it_is_gone_from_everywhere(bus: Bus, stores: Stores, tenant_alone: bool) -> None:
    await Queues(bus).create(QueueSpec(name="q", protocol="faithscore"))
    await Queues(bus).create(QueueSpec(name="theirs", protocol="faithscore", tenant="acme"))
    gone, stays = await reviewed(bus, "r-gone", "acme"), await reviewed(bus, "r-stays", "other")
    at = await position_of(bus.js, OPINIONS)
    assert stores.events is not None
    several = [
        Message(stream=OPINIONS, created=at.created, read=read)
        async for read in read_stream(bus.js, OPINIONS)
    ]
    stores.events.add(several, created=at.created, position=at.last, stream=OPINIONS)
    wanted = subject(None, "acme", None) if tenant_alone else subject("r-gone", "acme", None)
    known = Items(bus)
    assert len(await known.all("q")) == 2

    done = await Eraser(bus.js, wanted, stores, wait=5).erase(verify=True)

    assert done.proof is not None and done.proof.found == ()
    # In the archive a revision takes the place of the one before.
    assert done.counts["GW_OPINIONS"] == 2 and done.counts["archive rows"] == 1
    assert not any(gone.key in key for key in await keys_in(bus))
    assert any("definition.theirs" in key for key in await keys_in(bus)) is not tenant_alone
    (left,) = await Opinions(bus).latest()
    assert left.id == "r-stays"
    # Whoever knew the items before knows that they are gone.
    assert [one.key for one in await known.all("q")] == [stays.key]


async def test_what_comes_of_it_afterwards_goes_with_the_next_round(bus: Bus, stores: Stores) -> None:
    await reviewed(bus, "r-gone", "acme")
    await Eraser(bus.js, subject("r-gone", "acme", None), stores, wait=5).erase()
    await reviewed(bus, "r-gone", "acme")
    kept = await enforce(bus.js, RetentionSettings(), stores)
    assert kept.resurrected["GW_OPINIONS"] == 2 and kept.resurrected["KV_gw-queues"] >= 2
    assert await Opinions(bus).latest() == []
    assert list(await Items(bus).all("q")) == []


async def test_opinions_have_an_age(bus: Bus, stores: Stores) -> None:
    await reviewed(bus, "r", "acme")
    day = RetentionSettings(opinions=1.0)
    assert (await enforce(bus.js, day, stores, dry_run=True)).expired == {}
    soon = RetentionSettings(opinions=1e-9)
    assert (await enforce(bus.js, soon, stores)).expired == {"GW_OPINIONS": 2}
    assert await Opinions(bus).latest() == []
