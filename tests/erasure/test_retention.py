"""Retention over a real server: what is too old goes, what is still to do stays, and the books balance."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from nats.js import JetStreamContext
from pydantic import ValidationError
from tests.support.cooling import cool
from tests.support.secured import Secured, secured

from groundwatch.archive.cold import cold_events
from groundwatch.archive.events import Events
from groundwatch.erasure import retention
from groundwatch.erasure.erasing import Eraser
from groundwatch.erasure.finding import Stores, subject
from groundwatch.erasure.retention import RetentionService, enforce
from groundwatch.events import DEAD_LETTER, LIVE, OutcomeKind, ResponseRecorded, ResponseScored, tenant_of
from groundwatch.ledger.ledger import audit
from groundwatch.runtime.delivery import outcomes
from groundwatch.runtime.delivery.bus import Bus, Stored
from groundwatch.runtime.delivery.outcomes import recorded
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.delivery.streams import read_stream
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.settings import Ages, ArchiveSettings, NatsSettings, RetentionSettings, Settings
from groundwatch.runtime.stores import images
from groundwatch.runtime.stores.images import Image, ImageStore
from groundwatch.section import in_words
from groundwatch.topology import ERASE, GATEWAY, OUTCOMES, RESPONSES

INSTANT = 1e-9
"""Days after which what was just written is too old."""


def response(name: str, tenant: str) -> ResponseRecorded:
    return ResponseRecorded(
        id=name, tenant=tenant, model="heron", answer="A cat.", protocols=("faithscore",), recorded_at=1.0
    )


def scored(one: ResponseRecorded) -> ResponseScored:
    return ResponseScored(
        id=one.id,
        tenant=one.tenant,
        model=one.model,
        protocol="faithscore",
        outcome=OutcomeKind.SCORED,
        score=1.0,
        recorded_at=one.recorded_at,
    )


async def live(bus: Bus, *tenants: str) -> None:
    """A response of each, judged, and one more that nobody has been given yet."""
    for tenant in tenants:
        await bus.create(recorded(response("judged", tenant)))
        await bus.create(outcomes.outgoing(scored(response("judged", tenant))))
    reading = await bus.js.pull_subscribe_bind("extraction", stream=RESPONSES)
    for message in await reading.fetch(len(tenants), timeout=2):
        await message.ack_sync()
    await bus.create(recorded(response("waiting", tenants[0])))
    await asyncio.sleep(0.01)


async def held(bus: Bus, stream: str) -> list[tuple[str, str]]:
    found = []
    async for read in read_stream(bus.js, stream):
        event = msgspec.json.decode(read.data)
        found.append((event.get("tenant", "default"), event["id"]))
    return found


async def test_a_tenant_has_ages_of_its_own(bus: Bus, clean_streams: None):
    await live(bus, "short", "long")
    settings = RetentionSettings(responses=30, tenants={"short": Ages(responses=INSTANT)})
    assert (await enforce(bus.js, settings, Stores(), dry_run=True)).expired == {RESPONSES: 1}
    assert len(await held(bus, RESPONSES)) == 3
    assert (await enforce(bus.js, settings, Stores())).expired == {RESPONSES: 1}
    # What extraction has yet to do stays, however old.
    assert await held(bus, RESPONSES) == [("long", "judged"), ("short", "waiting")]
    assert len(await held(bus, OUTCOMES)) == 2
    ledger = await audit(bus.js)
    assert ledger.balanced
    assert (ledger.expired, ledger.orphans, ledger.scored, ledger.in_flight) == (1, 0, 1, 1)


async def test_a_round_that_breaks_off_leaves_no_orphans(
    bus: Bus, clean_streams: None, monkeypatch: pytest.MonkeyPatch
):
    await live(bus, "long", "short")

    async def overwrite(js: JetStreamContext, stream: str, old: Sequence[int]) -> int:
        removed = await whole(js, stream, old)
        if removed:
            raise TimeoutError
        return removed

    whole = retention.overwrite
    monkeypatch.setattr(retention, "overwrite", overwrite)
    ages = Ages(responses=INSTANT, outcomes=INSTANT)
    with pytest.raises(TimeoutError):
        await enforce(bus.js, RetentionSettings(responses=30, tenants={"short": ages}), Stores())
    assert len(await held(bus, OUTCOMES)) == 2
    ledger = await audit(bus.js)
    assert (ledger.balanced, ledger.expired, ledger.orphans) == (True, 1, 0)


async def test_without_its_mark_a_lone_outcome_is_an_orphan(bus: Bus, clean_streams: None):
    """The audit believes a tenant's retention alone, not any deletion."""
    await live(bus, "long", "short")
    await bus.js.delete_msg(RESPONSES, 2)
    ledger = await audit(bus.js)
    assert (ledger.balanced, ledger.orphans) == (False, 1)


async def test_a_stream_has_an_age_for_all(bus: Bus, clean_streams: None):
    await live(bus, "one", "two")
    settings = RetentionSettings(
        responses=INSTANT, outcomes=INSTANT, tenants={"two": Ages(responses=20, outcomes=20)}
    )
    assert (await enforce(bus.js, settings, Stores())).expired == {RESPONSES: 1, OUTCOMES: 1}
    assert await held(bus, OUTCOMES) == [("two", "judged")]
    assert (await audit(bus.js)).balanced


async def test_images_that_nobody_names_go(bus: Bus, clean_streams: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(images, "GRACE_SECONDS", 0.0)
    store = ImageStore(bus.js)
    named, unnamed = "a" * 64, "b" * 64
    for sha256 in (named, unnamed):
        await store.put(Image(sha256=sha256, media_type="image/png", width=1, height=1, data=b"x" * 500))
    await bus.create(recorded(msgspec.structs.replace(response("r", "t"), images=(named,))))
    assert (await enforce(bus.js, RetentionSettings(images=30), Stores())).expired == {}
    kept = await enforce(bus.js, RetentionSettings(images=INSTANT), Stores())
    assert kept.expired == {"images": 1}
    assert (await ImageStore(bus.js).has(named), await ImageStore(bus.js).has(unnamed)) == (True, False)


def picture(data: bytes) -> Image:
    digest = hashlib.sha256(data).hexdigest()
    return Image(sha256=digest, media_type="image/png", width=1, height=1, data=data)


async def test_an_image_that_is_used_while_retention_looks_stays(
    bus: Bus, clean_streams: None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(images, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr(images, "FRESH_SECONDS", 0.1)
    used, named, unused = picture(b"used"), picture(b"named"), picture(b"unused")
    for one in (used, named, unused):
        await ImageStore(bus.js).put(one)
    await asyncio.sleep(0.15)
    look = retention.still_named

    async def look_and_then(*arguments):
        """Somebody sends one again, and a response comes that names another, when all events were read."""
        found = await look(*arguments)
        assert not await ImageStore(bus.js).put(used)
        assert await ImageStore(bus.js).has(named.sha256)
        return found

    monkeypatch.setattr(retention, "still_named", look_and_then)
    assert (await enforce(bus.js, RetentionSettings(images=INSTANT), Stores())).expired == {"images": 1}
    for one in (used, named):
        assert (await ImageStore(bus.js).load(one.sha256))[0] == one.data
    assert not await ImageStore(bus.js).has(unused.sha256)
    assert (await bus.js.stream_info(images.IMAGES_STREAM)).state.messages == 4


async def test_no_image_that_was_just_used_goes(bus: Bus, clean_streams: None):
    await ImageStore(bus.js).put(picture(b"x"))
    assert (await enforce(bus.js, RetentionSettings(images=INSTANT), Stores())).expired == {}


async def test_pieces_that_no_image_needs_go(bus: Bus, clean_streams: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(images, "GRACE_SECONDS", 0.0)
    await bus.js.publish("$O.gw-images.C.left", b"by a process that died")
    await ImageStore(bus.js).put(picture(b"x"))
    await bus.create(recorded(msgspec.structs.replace(response("r", "t"), images=(picture(b"x").sha256,))))
    assert (await enforce(bus.js, RetentionSettings(images=INSTANT), Stores())).expired == {}
    assert (await bus.js.stream_info(images.IMAGES_STREAM)).state.messages == 2


async def test_up_does_rounds_by_itself(bus: Bus, clean_streams: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(retention, "FIRST_SECONDS", 0.01)
    monkeypatch.setattr(retention, "EVERY_SECONDS", 0.05)
    await live(bus, "short", "long")
    settings = Settings(retention=RetentionSettings(tenants={"short": Ages(responses=INSTANT)}))
    service = RetentionService(settings, bus)
    await service.start()
    while len(await held(bus, RESPONSES)) > 2:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    # The next rounds find what has become old meanwhile: the waiting one is taken and acknowledged.
    reading = await bus.js.pull_subscribe_bind("extraction", stream=RESPONSES)
    for message in await reading.fetch(1, timeout=2):
        await message.ack_sync()
    while len(await held(bus, RESPONSES)) > 1:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    await service.drain(5.0)
    assert await held(bus, RESPONSES) == [("long", "judged")]
    assert service.problems() == []


@pytest.mark.parametrize("tenant", [None, "acme"])
async def test_what_comes_after_an_erasure_goes(
    bus: Bus, clean_streams: None, tenant: str | None, tmp_path: Path
):
    one, other = response("r", "acme"), response("r", "other")
    for each in (one, other):
        await bus.create(recorded(each))
    wanted = subject(None, "acme", None) if tenant else subject("r", "acme", None)
    await Eraser(bus.js, wanted, Stores(), wait=0).erase()
    for each in (one, other):
        await bus.create(outcomes.outgoing(scored(each)))
    kept = await enforce(bus.js, RetentionSettings(), Stores())
    assert kept.resurrected == {OUTCOMES: 1}
    assert await held(bus, OUTCOMES) == [("other", "r")]
    ledger = await audit(bus.js, LIVE)
    assert ledger.orphans == 0


async def test_what_a_killed_server_brings_back_goes(own_server: NatsServer):
    """nats-server remembers across kill -9 that a message was deleted, and not that it was replaced before:
    the one that it replaced is back."""
    bus = Bus(NatsSettings(url=own_server.url), name="test")
    await bus.connect()
    await provision(bus.js)
    one, others = response("r", "acme"), [response(f"other-{number}", "acme") for number in range(9)]
    await bus.create(recorded(one))
    for other in others[:3]:
        await bus.create(outcomes.outgoing(scored(other)))
    dead = outcomes.without_score(one, "faithscore", OutcomeKind.UNSCORED, DEAD_LETTER)
    await bus.create(outcomes.outgoing(dead))
    for other in others[3:6]:
        await bus.create(outcomes.outgoing(scored(other)))
    assert await outcomes.replace_dead(bus, outcomes.outgoing(scored(one))) is Stored.NEW
    for other in others[6:]:
        await bus.create(outcomes.outgoing(scored(other)))
    await Eraser(bus.js, subject("r", "acme", None), Stores(), wait=0).erase()
    own_server.kill()
    await own_server.wait()
    await own_server.restart()
    await bus.until_connected(10)
    assert ("acme", "r") in await held(bus, OUTCOMES)
    kept = await enforce(bus.js, RetentionSettings(), Stores())
    assert kept.resurrected == {OUTCOMES: 1}
    assert await held(bus, OUTCOMES) == [("acme", other.id) for other in others]
    await bus.close()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"outcomes": 7}, "outcomes"),
        ({"responses": -1}, "responses"),
        ({"tenants": {"a": {"outcomes": 7, "responses": 8}}}, "tenants.a.outcomes"),
    ],
)
def test_ages_that_cannot_be(settings: dict[str, object], says: str):
    with pytest.raises(ValidationError) as caught:
        RetentionSettings.model_validate(settings)
    assert in_words(caught.value).startswith(says)


@pytest.fixture(scope="module")
def server():
    with (
        tempfile.TemporaryDirectory(prefix="groundwatch-secured-", ignore_cleanup_errors=True) as folder,
        secured(Path(folder)) as started,
    ):
        yield started


async def test_the_rights_of_who_uses_and_who_removes_images_are_enough(
    server: Secured, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(images, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr(images, "RECENT_SECONDS", 0.01)
    gateway, erase = Bus(server.settings(GATEWAY), name=GATEWAY), Bus(server.settings(ERASE), name=ERASE)
    for bus in (gateway, erase):
        await bus.connect()
    store, used, unused = ImageStore(gateway.js), picture(b"used"), picture(b"unused")
    assert await store.put(used)
    assert await store.put(unused)
    monkeypatch.setattr(images, "FRESH_SECONDS", 0.05)
    await asyncio.sleep(0.06)
    assert not await ImageStore(gateway.js).put(used)
    async with erase.unless_refused():
        kept = await enforce(erase.js, RetentionSettings(images=INSTANT), Stores())
    assert kept.expired == {"images": 2}
    assert not await store.has(used.sha256)
    for bus in (gateway, erase):
        assert bus.problems() == []
        await bus.close()


async def test_what_the_archive_keeps_of_a_stream_has_its_age(
    bus: Bus, clean_streams: None, tmp_path: Path
) -> None:
    url = str(tmp_path)
    await live(bus, "short", "long")
    for stream in (RESPONSES, OUTCOMES):
        await cool(bus, url, stream, 2)
    bus.cold = cold_events(ArchiveSettings(url=url))
    settings = RetentionSettings(responses=30, tenants={"short": Ages(responses=INSTANT)})
    stores = Stores(events=Events(url))
    assert (await enforce(bus.js, settings, stores, dry_run=True)).expired == {"archived events": 1}
    assert len([read async for read in bus.history.read(RESPONSES)]) == 3
    assert (await enforce(bus.js, settings, stores)).expired == {"archived events": 1}
    # A reader believes what it knows of the table for a moment: this is another one.
    bus.cold = cold_events(ArchiveSettings(url=url))
    left = [tenant_of(read.data) async for read in bus.history.read(RESPONSES)]
    assert left == ["long", "short"]
    assert len([read async for read in bus.history.read(OUTCOMES)]) == 2
    everything = RetentionSettings(responses=INSTANT, outcomes=INSTANT)
    assert (await enforce(bus.js, everything, stores)).expired == {"archived events": 3}
