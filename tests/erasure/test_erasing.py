"""Erasing over a real server: what is left is looked for in the files of the server itself."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.archived import holding

from groundwatch.archive.events import Events, Message
from groundwatch.archive.outcomes import Archive, row_of
from groundwatch.erasure import erasing
from groundwatch.erasure.erasing import Eraser
from groundwatch.erasure.finding import Stores, subject
from groundwatch.events import (
    LIVE,
    AlarmRaised,
    ClaimsExtracted,
    Judge,
    OutcomeKind,
    ResponseRecorded,
    ResponseScored,
)
from groundwatch.ledger.ledger import audit
from groundwatch.replay.exports import export
from groundwatch.replay.files import ExportReader
from groundwatch.replay.spec import Spec
from groundwatch.runtime.delivery import outcomes
from groundwatch.runtime.delivery.bus import ENCODER, Bus, Outgoing
from groundwatch.runtime.delivery.outcomes import recorded
from groundwatch.runtime.delivery.streams import position_of, read_stream
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.stores import tombstones
from groundwatch.runtime.stores.cache import keys_of
from groundwatch.runtime.stores.images import Image, ImageStore
from groundwatch.topology import (
    ARCHIVED,
    CACHE_BUCKET,
    DEAD,
    EXTRACTED,
    HEADER_ORIGIN,
    HEADER_OUTCOME,
    HEADER_REASON,
    OUTCOMES,
    RESPONSES,
    subject_of,
)

JUDGE = Judge(engine="rules")


def response(name: str, **more: Any) -> ResponseRecorded:
    return ResponseRecorded(
        **{
            "id": name,
            "tenant": "acme",
            "model": "heron",
            "answer": f"The secret of {name} is a purple giraffe.",
            "protocols": ("faithscore",),
            "recorded_at": 1.0,
        }
        | more
    )


async def put(bus: Bus, subject_name: str, event: Any, **headers: str) -> None:
    data = event if isinstance(event, bytes) else ENCODER.encode(event)
    await bus.create(Outgoing(subject=subject_name, payload=data, headers=headers))


async def live(bus: Bus, one: ResponseRecorded, *, judged: bool = True) -> None:
    """A response with claims and its outcome, in two runs."""
    await bus.create(recorded(one))
    if not judged:
        return
    claims = ClaimsExtracted(response=one, protocol="faithscore", judge=JUDGE)
    await put(bus, subject_of("extracted", LIVE, "verification", "faithscore", one.key), claims)
    for run in (LIVE, "again"):
        scored = ResponseScored(
            id=one.id,
            tenant=one.tenant,
            model=one.model,
            run=run,
            protocol="faithscore",
            outcome=OutcomeKind.SCORED,
            score=1.0,
            recorded_at=1.0,
            detail=one.answer,
        )
        await bus.create(outcomes.outgoing(scored))


async def subjects(bus: Bus, stream: str) -> list[str]:
    return [read.subject async for read in read_stream(bus.js, stream)]


async def stones(bus: Bus) -> list[tombstones.Tombstone]:
    return [one async for one in tombstones.tombstones(bus.js)]


async def keep(bus: Bus, data: bytes) -> str:
    """Store an image."""
    sha256 = hashlib.sha256(data).hexdigest()
    image = Image(sha256=sha256, media_type="image/png", width=1, height=1, data=data)
    await ImageStore(bus.js).put(image)
    return sha256


async def taken(bus: Bus, stream: str, consumer: str) -> list[Any]:
    """What a stage is given, and does not acknowledge yet."""
    reading = await bus.js.pull_subscribe_bind(consumer, stream=stream)
    return list(await reading.fetch(10, timeout=2))


async def passed(bus: Bus, stream: str, consumer: str) -> None:
    for message in await taken(bus, stream, consumer):
        await message.ack_sync()


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    url = str(tmp_path / "archive")
    return Stores(archive=Archive(url), events=Events(url))


async def archived(bus: Bus, stores: Stores) -> None:
    assert stores.archive is not None and stores.events is not None
    for stream in ARCHIVED:
        at = await position_of(bus.js, stream)
        reads = [read async for read in read_stream(bus.js, stream)]
        if stream == OUTCOMES:
            rows = [row_of(read, at.created) for read in reads]
            stores.archive.add(rows, created=at.created, position=at.last)
        several = [Message(stream=stream, created=at.created, read=read) for read in reads]
        stores.events.add(several, created=at.created, position=at.last, stream=stream)


async def test_a_response_is_gone_from_everywhere(
    bus: Bus, clean_streams: None, stores: Stores, tmp_path: Path, nats_server: NatsServer
):
    own, common = b"\x89PNG own " + bytes(range(256)) * 900, b"\x89PNG common" + bytes(range(255, -1, -1)) * 9
    mine, shared = await keep(bus, own), await keep(bus, common)
    gone, stays = response("r-gone", images=(mine, shared)), response("r-stays", images=(shared,))
    for one in (gone, stays):
        await live(bus, one)
        origin = {HEADER_ORIGIN: subject_of("recorded", LIVE, one.key), HEADER_REASON: "bug: x"}
        await put(bus, subject_of("dead", "extraction", LIVE, f"f{one.id}"), one, **origin)
        alarm = AlarmRaised(
            model="heron", protocol="faithscore", category="all", base=0.1, after=0.5,
            response_id=one.id, tenant="acme",
        )  # fmt: skip
        await put(bus, subject_of("alarm", LIVE, "faithscore", alarm.key + one.id), alarm)
    await passed(bus, RESPONSES, "extraction")
    await passed(bus, EXTRACTED, "verification")
    await archived(bus, stores)
    file = tmp_path / "export.gwx"
    await export(bus.history, Spec(run="export"), file)

    done = await Eraser(bus.js, subject("r-gone", "acme", None), stores, wait=5).erase(verify=True)

    assert done.proof is not None and done.proof.found == () and done.proof.unseen == ()
    assert done.counts == {
        "GW_ALARMS": 1,
        "GW_DEAD": 1,
        "GW_EXTRACTED": 1,
        "GW_OUTCOMES": 2,
        "GW_RESPONSES": 1,
        "archive rows": 6,
        "export records": 2,
        "images": 1,
    }
    # Deleted one by one, the server overwrites the messages' bytes in its files.
    for path in (nats_server.data_dir, tmp_path):
        for one in (each for each in path.rglob("*") if each.is_file()):
            data = one.read_bytes()
            assert gone.key.encode() not in data or "manifests" in one.parts, one
            assert b"The secret of r-gone" not in data, one
            assert own[5_000:5_300] not in data, one
    # What another response names or says stays.
    assert (await ImageStore(bus.js).load(shared))[0] == common
    with pytest.raises(LookupError):
        await ImageStore(bus.js).load(mine)
    assert len(await subjects(bus, RESPONSES)) == len(await subjects(bus, DEAD)) == 1
    records = [part for _, part in ExportReader(file).parts()]
    assert [one.subject for one in records[0]] == [stays.key]
    assert [part[0] for part in records if isinstance(part, tuple)] == [shared]
    stone = (await stones(bus))[0]
    assert (stone.kind, stone.settled, stone.counts) == ("response", True, done.counts)
    assert b"r-gone" not in msgspec.json.encode(stone)


async def test_what_was_published_and_never_recorded_is_gone_too(
    bus: Bus, clean_streams: None, stores: Stores
):
    """It has no key in its subject; neither has its dead letter."""
    for number, name in enumerate(("r-gone", "r-stays")):
        body = {"id": name, "model": "m", "answer": f"The secret of {name}"}
        await bus.js.publish("gw.intake.acme", msgspec.json.encode(body), headers={HEADER_ORIGIN: "gw.x.y"})
        origin = {HEADER_ORIGIN: "gw.intake.acme", HEADER_REASON: "bad_input: x"}
        await bus.js.publish(
            subject_of("dead", "gateway", LIVE, f"d{number}"), msgspec.json.encode(body), headers=origin
        )
    done = await Eraser(bus.js, subject("r-gone", "acme", None), stores, wait=5).erase(verify=True)
    assert done.counts == {"GW_DEAD": 1, "GW_INTAKE": 1}
    assert done.proof is not None and done.proof.found == ()
    done = await Eraser(bus.js, subject(None, "other", None), stores, wait=5).erase()
    assert done.counts == {}
    done = await Eraser(bus.js, subject(None, "acme", None), stores, wait=5).erase()
    assert done.counts == {"GW_DEAD": 1, "GW_INTAKE": 1}


async def test_what_is_there_again_is_told_by_its_place(
    bus: Bus, clean_streams: None, stores: Stores, tmp_path: Path
):
    """No proof that cannot fail: it comes back to every store."""
    data = b"\x89PNG own " + bytes(range(256)) * 9
    one = response("r-back", images=(await keep(bus, data),))
    await live(bus, one)
    await put(bus, f"$KV.{CACHE_BUCKET}.shared.{keys_of(one).split('.')[1]}.abc", b"judged")
    await passed(bus, RESPONSES, "extraction")
    await passed(bus, EXTRACTED, "verification")
    await archived(bus, stores)
    file = tmp_path / "export.gwx"
    await export(bus.history, Spec(run="export"), file)
    messages = []
    for stream in (*ARCHIVED, f"KV_{CACHE_BUCKET}"):
        messages += [read async for read in read_stream(bus.js, stream)]
    exported = file.read_bytes()
    eraser = Eraser(bus.js, subject("r-back", "acme", None), stores, wait=5)
    done = await eraser.erase(verify=True)
    assert done.proof is not None and done.proof.holds

    await keep(bus, data)
    for read in messages:
        headers = {name: value for name, value in read.headers.items() if not name.startswith("Nats-")}
        await bus.js.publish(read.subject, read.data, headers=headers)
    assert stores.archive is not None
    again = Stores(archive=Archive(stores.archive.url), events=Events(stores.archive.url))
    await archived(bus, again)
    file.write_bytes(exported)
    proof = await eraser.prove()
    assert {place.store for place in proof.found} == {
        *(RESPONSES, EXTRACTED, OUTCOMES, f"KV_{CACHE_BUCKET}", "images", "archive", "export")
    }
    assert f"{file}: 2 records" in [place.where for place in proof.found]


class Died(Exception):
    pass


@pytest.mark.parametrize("died_in", ["_doomed", "remove_image"])
async def test_images_go_when_an_erasure_that_died_is_repeated(
    bus: Bus, clean_streams: None, monkeypatch: pytest.MonkeyPatch, died_in: str
):
    """Its events are gone by then, and nothing else says which they were."""
    mine = await keep(bus, b"\x89PNG own " + bytes(range(256)) * 9)
    await live(bus, response("r-gone", images=(mine,)))
    await passed(bus, RESPONSES, "extraction")
    await passed(bus, EXTRACTED, "verification")

    async def die(*_: Any) -> None:
        raise Died

    with monkeypatch.context() as killed:
        killed.setattr(Eraser if died_in == "_doomed" else erasing, died_in, die)
        with pytest.raises(Died):
            await Eraser(bus.js, subject("r-gone", "acme", None), Stores(), wait=5).erase()
    assert await subjects(bus, RESPONSES) == [] and await ImageStore(bus.js).has(mine)
    done = await Eraser(bus.js, subject("r-gone", "acme", None), Stores(), wait=5).erase(verify=True)
    assert done.counts == {"images": 1} and not await ImageStore(bus.js).has(mine)
    assert [(stone.images, stone.named) for stone in await stones(bus)] == [((mine,), ())]


async def test_what_a_stage_holds_does_not_come_back(bus: Bus, clean_streams: None, stores: Stores):
    one = response("r-held")
    await live(bus, one, judged=False)
    (message,) = await taken(bus, RESPONSES, "extraction")
    erasing = asyncio.create_task(
        Eraser(bus.js, subject("r-held", "acme", None), stores, wait=30).erase(verify=True)
    )
    while not await stones(bus):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)
    assert not erasing.done()
    claims = ClaimsExtracted(response=one, protocol="faithscore", judge=JUDGE)
    await put(bus, subject_of("extracted", LIVE, "verification", "faithscore", one.key), claims)
    await message.ack_sync()
    done = await erasing
    assert (done.counts, done.waiting) == ({"GW_EXTRACTED": 1, "GW_RESPONSES": 1}, 0)
    assert done.proof is not None and done.proof.holds
    ledger = await audit(bus.js)
    assert ledger.balanced
    assert (ledger.recorded, ledger.erased) == (0, 1)


async def test_a_stage_that_never_lets_go_is_told(bus: Bus, clean_streams: None, stores: Stores):
    await live(bus, response("r-stuck"), judged=False)
    held = await taken(bus, RESPONSES, "extraction")
    done = await Eraser(bus.js, subject("r-stuck", "acme", None), stores, wait=0).erase()
    assert len(held) == done.waiting == 1
    assert [stone.settled for stone in await stones(bus)] == [False]


async def test_a_tenant_goes_and_its_neighbour_stays(bus: Bus, clean_streams: None, stores: Stores):
    for name in ("one", "two"):
        await live(bus, response(name))
        await live(bus, response(name, tenant="other", answer=f"Nobody may touch {name} of the others."))
    await put(
        bus,
        subject_of("outcome", LIVE, "faithscore", "0" * 32),
        b"none of ours",
        **{HEADER_OUTCOME: "scored"},
    )
    await passed(bus, RESPONSES, "extraction")
    await passed(bus, EXTRACTED, "verification")
    assert stores.archive is not None
    done = await Eraser(bus.js, subject(None, "acme", None), stores, wait=5).erase(verify=True)
    assert done.counts == {"GW_EXTRACTED": 2, "GW_OUTCOMES": 4, "GW_RESPONSES": 2}
    assert done.proof is not None and done.proof.found == ()
    left = [msgspec.json.decode(read.data) async for read in read_stream(bus.js, RESPONSES)]
    assert [one["tenant"] for one in left] == ["other", "other"]
    assert len(await subjects(bus, OUTCOMES)) == 5


async def test_an_image_goes_and_who_named_it_stays(bus: Bus, clean_streams: None, stores: Stores):
    data = b"\x89PNG" + bytes(range(256)) * 1_000
    sha256 = await keep(bus, data)
    await live(bus, response("r", images=(sha256,)))
    assert (await Eraser(bus.js, subject(None, None, sha256), stores, wait=5).look()).counts == {"images": 1}
    done = await Eraser(bus.js, subject(None, None, sha256), stores, wait=5).erase(verify=True)
    assert done.counts == {"images": 1}
    assert done.proof is not None and (done.proof.searched, done.proof.found) == (("images",), ())
    assert len(await subjects(bus, RESPONSES)) == 1


async def test_nothing_to_erase_leaves_no_tombstone(bus: Bus, clean_streams: None, stores: Stores):
    done = await Eraser(bus.js, subject("nobody", None, None), stores, wait=5).erase()
    assert (done.total, done.known) == (0, False)
    assert await stones(bus) == []


async def test_a_dry_run_changes_nothing(bus: Bus, clean_streams: None, stores: Stores):
    await live(bus, response("r"))
    done = await Eraser(bus.js, subject("r", "acme", None), stores, wait=5).look()
    assert done.counts == {"GW_EXTRACTED": 1, "GW_OUTCOMES": 2, "GW_RESPONSES": 1}
    assert len(await subjects(bus, RESPONSES)) == 1
    assert await stones(bus) == []


async def test_what_only_the_archive_has_is_told_before_and_gone_after(
    bus: Bus, clean_streams: None, stores: Stores
):
    gone, stays = response("r-gone"), response("r-stays", tenant="other")
    for one in (gone, stays):
        await live(bus, one)
        token = keys_of(one).split(".")[1]
        await put(bus, f"$KV.{CACHE_BUCKET}.shared.{token}.abc", b"judged")
    await passed(bus, RESPONSES, "extraction")
    await passed(bus, EXTRACTED, "verification")
    await archived(bus, stores)
    for stream in ARCHIVED:
        await bus.js.purge_stream(stream)

    for name in (subject("r-gone", "acme", None), subject(None, "acme", None)):
        told = await Eraser(bus.js, name, stores, wait=5).look()
        # Four events, and the outcomes of two runs.
        assert told.counts == {"archive rows": 6}
    eraser = Eraser(bus.js, subject("r-gone", "acme", None), stores, wait=5)
    done = await eraser.erase(verify=True)

    assert done.counts == {"archive rows": 6, "cache": 1}
    assert done.proof is not None and done.proof.holds
    [stone] = await stones(bus)
    assert (stone.kind, stone.counts) == ("response", done.counts)
    assert stores.archive is not None and stores.events is not None
    assert holding(stores.archive.store, [gone.key.encode()]) == []
    assert holding(stores.archive.store, [stays.key.encode()]) != []
    [left] = [read.subject async for read in read_stream(bus.js, f"KV_{CACHE_BUCKET}")]
    assert keys_of(stays).split(".")[1] in left


@pytest.mark.parametrize("whole", [False, True])
async def test_a_dead_letter_of_what_was_sent_goes_with_its_image(
    bus: Bus, clean_streams: None, stores: Stores, whole: bool
):
    data, others = b"an image that only a dead letter brought" * 9, b"an image of somebody else" * 9
    sha256, other = await keep(bus, data), await keep(bus, others)
    for name, brought in (("r-dead", data), ("r-other", others)):
        sent = {
            "id": name,
            "tenant": "acme" if name == "r-dead" else "other",
            "images": [{"base64": base64.b64encode(brought).decode()}, "data:image/png;base64,eA=="],
        }
        await put(
            bus,
            subject_of("dead", "gateway", LIVE, response(name).key),
            msgspec.json.encode(sent),
            **{HEADER_ORIGIN: f"gw.intake.{sent['tenant']}"},
        )
    wanted = subject(None if whole else "r-dead", "acme", None)
    done = await Eraser(bus.js, wanted, stores, wait=5).erase(verify=True)
    assert (done.counts["images"], done.counts[DEAD]) == (1, 1)
    assert done.proof is not None and done.proof.holds
    assert await ImageStore(bus.js).stored(sha256) is None
    assert await ImageStore(bus.js).stored(other) is not None
