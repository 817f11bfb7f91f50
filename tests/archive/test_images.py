"""Images in the archive's place, against a real NATS server, a folder and a real S3 server."""

from __future__ import annotations

import asyncio
import hashlib
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from nats.js import JetStreamContext

from groundwatch.archive.images import ArchivedImages, ImageCooling, archived_images
from groundwatch.archive.service import ArchiveService
from groundwatch.erasure.erasing import Eraser
from groundwatch.erasure.finding import Stores, subject
from groundwatch.erasure.retention import enforce
from groundwatch.errors import TransientError
from groundwatch.events import ClaimsExtracted, Judge, ResponseRecorded
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.direct import overwrite
from groundwatch.runtime.delivery.outcomes import recorded
from groundwatch.runtime.delivery.streams import Read, position_of
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.settings import ArchiveSettings, RetentionSettings, Settings
from groundwatch.runtime.stores import images
from groundwatch.runtime.stores.images import Image, ImageStore, StoredImage
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import ARCHIVED, EXTRACTED, IMAGES_BUCKET, RESPONSES, subject_of

pytestmark = pytest.mark.usefixtures("clean_streams")

INSTANT = 1e-9


@pytest.fixture(autouse=True)
def _no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "GRACE_SECONDS", 0.0)


@pytest.fixture
def place(tmp_path: Path) -> ArchiveSettings:
    return ArchiveSettings(url=str(tmp_path / "archive"), hot_days=INSTANT, flush_seconds=0.1)


def picture(number: int, size: int = 300_000) -> Image:
    data = random.Random(number).randbytes(size)
    name = hashlib.sha256(data).hexdigest()
    return Image(sha256=name, media_type="image/png", width=1, height=1, data=data)


def response(name: str, *shown: Image, tenant: str = "acme") -> ResponseRecorded:
    return ResponseRecorded(
        id=name,
        tenant=tenant,
        model="heron",
        answer="A cat.",
        protocols=("faithscore",),
        images=tuple(one.sha256 for one in shown),
        recorded_at=1.0,
    )


def naming(*shown: Image) -> Read:
    event = msgspec.json.encode(response("r", *shown))
    return Read(subject="gw.recorded.live.0", data=event, headers={}, sequence=1)


def cooling(bus: Bus, place: ArchiveSettings) -> ImageCooling:
    return ImageCooling(bus, place, Metrics())


async def until_archived(bus: Bus, place: ArchiveSettings) -> None:
    """Until the archive has every event that the streams hold."""
    events = Stores.of(place).events
    assert events is not None
    ends = [(stream, await position_of(bus.js, stream)) for stream in ARCHIVED]
    async with asyncio.timeout(60):
        while True:
            state = events.snapshot()
            if all(state.position(at.created, stream) >= at.last for stream, at in ends):
                return
            await asyncio.sleep(0.05)


async def in_archive(
    bus: Bus, place: ArchiveSettings, *several: ResponseRecorded, together: bool = True
) -> None:
    """Record these and have them archived."""
    service = ArchiveService(Settings(archive=place), bus, Metrics(), in_one_process=together)
    for one in several:
        await bus.create(recorded(one))
    await service.start()
    await until_archived(bus, place)
    await service.drain(30)


async def acknowledge(bus: Bus, number: int) -> None:
    """What extraction does with so many responses."""
    subscription = await bus.js.pull_subscribe_bind("extraction", stream=RESPONSES)
    for _ in range(number):
        (message,) = await subscription.fetch(1, timeout=60)
        await message.ack_sync()


async def test_an_image_is_in_the_archive_before_its_event(bus: Bus, place: ArchiveSettings) -> None:
    image = picture(1)
    await ImageStore(bus.js).put(image)
    metrics = Metrics()
    service = ArchiveService(Settings(archive=place), bus, metrics, in_one_process=True)
    await bus.create(recorded(response("r", image)))
    await service.start()
    await until_archived(bus, place)
    assert ArchivedImages(place).get(image.sha256) == image.data
    await service.drain(30)
    assert metrics.archive_images.labels("copied")._value.get() == 1


async def test_an_event_waits_for_its_images(
    bus: Bus, place: ArchiveSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = picture(1)
    await ImageStore(bus.js).put(image)
    put, failures = ArchivedImages.put, [OSError(28, "no space left"), OSError(28, "no space left")]

    def fail(self: ArchivedImages, sha256: str, data: bytes) -> None:
        if failures:
            events = Stores.of(place).events
            assert events is not None and events.snapshot().table is None
            raise failures.pop()
        put(self, sha256, data)

    monkeypatch.setattr(ArchivedImages, "put", fail)
    await in_archive(bus, place, response("r", image))
    assert failures == []
    assert ArchivedImages(place).get(image.sha256) == image.data


async def test_an_image_that_is_gone_keeps_nothing_up(bus: Bus, place: ArchiveSettings) -> None:
    await in_archive(bus, place, response("r", picture(1)))
    assert ArchivedImages(place).get(picture(1).sha256) is None


async def test_what_is_old_leaves_the_object_store(
    bus: Bus, place: ArchiveSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groundwatch.archive.images.TOGETHER", 1)
    # The second one nobody has named, or before images were archived.
    named, unnamed = picture(1), picture(2)
    for one in (named, unnamed):
        await ImageStore(bus.js).put(one)
    work = cooling(bus, place)
    await work.copy([naming(named)])
    assert msgspec.structs.astuple(await work.cool()) == (2, 0)
    assert (await bus.js.stream_info(images.IMAGES_STREAM)).state.messages == 0
    # Whoever wants it has it from the archive.
    store = ImageStore(bus.js, archived_images(place))
    for one in (named, unnamed):
        assert await store.load_hot(one.sha256) is None
        assert (await store.load(one.sha256))[0] == one.data
    with pytest.raises(LookupError):
        await store.load("0" * 64)


async def test_what_is_in_work_keeps_its_images(bus: Bus, place: ArchiveSettings) -> None:
    """A stage that cannot reach the archive still gets them."""
    waiting, held, done = picture(1), picture(2), picture(3)
    for one in (waiting, held, done):
        await ImageStore(bus.js).put(one)
    extracted = ClaimsExtracted(
        response=response("held", held), protocol="faithscore", judge=Judge(engine="rules")
    )
    where = subject_of("extracted", "live", "verification", "faithscore", extracted.response.key)
    await bus.js.publish(where, msgspec.json.encode(extracted))
    for one in (response("done", done), response("waiting", waiting)):
        await bus.create(recorded(one))
    extraction = await bus.js.pull_subscribe_bind("extraction", stream=RESPONSES)
    verification = await bus.js.pull_subscribe_bind("verification", stream=EXTRACTED)
    (first,) = await extraction.fetch(1)
    await first.ack_sync()
    (second,) = await verification.fetch(1)

    async def left() -> list[bool]:
        return [await ImageStore(bus.js).stored(one.sha256) is None for one in (waiting, held, done)]

    work = cooling(bus, place)
    assert msgspec.structs.astuple(await work.cool()) == (1, 2)
    assert await left() == [False, False, True]
    await second.ack_sync()
    (third,) = await extraction.fetch(1)
    await third.ack_sync()
    assert msgspec.structs.astuple(await work.cool()) == (2, 0)
    assert await left() == [True, True, True]


async def test_what_is_hot_stays(bus: Bus, place: ArchiveSettings) -> None:
    image = picture(1)
    await ImageStore(bus.js).put(image)
    work = cooling(bus, place.model_copy(update={"hot_days": 3.0}))
    await work.copy([naming(image)])
    assert msgspec.structs.astuple(await work.cool()) == (0, 0)
    assert await ImageStore(bus.js).load_hot(image.sha256) == image.data


async def test_an_image_that_just_left_is_stored_again(bus: Bus, place: ArchiveSettings) -> None:
    image = picture(1)
    await ImageStore(bus.js).put(image)
    work = cooling(bus, place)
    await work.copy([naming(image)])
    assert (await work.cool()).removed == 1
    assert await ImageStore(bus.js, archived_images(place)).put(image)
    assert await ImageStore(bus.js).load_hot(image.sha256) == image.data
    assert (await work.cool()).removed == 1
    # Who names it by its digest has it put back.
    assert await ImageStore(bus.js, archived_images(place)).has(image.sha256)
    assert await ImageStore(bus.js).load_hot(image.sha256) == image.data
    assert not await ImageStore(bus.js, archived_images(place)).has("0" * 64)


async def test_an_image_that_is_used_while_it_is_cooled_stays(
    bus: Bus, place: ArchiveSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "FRESH_SECONDS", 0.0)
    image = picture(1)
    await ImageStore(bus.js).put(image)
    work = cooling(bus, place)
    await work.copy([naming(image)])

    async def use_and_remove(js: JetStreamContext, stream: str, sequences: Sequence[int]) -> int:
        assert await ImageStore(bus.js).has(image.sha256)
        return await overwrite(js, stream, sequences)

    monkeypatch.setattr("groundwatch.archive.images.overwrite", use_and_remove)
    assert (await work.cool()).removed == 0
    assert await ImageStore(bus.js).load_hot(image.sha256) == image.data


async def test_a_damaged_copy_is_made_anew(bus: Bus, place: ArchiveSettings) -> None:
    image = picture(1)
    await ImageStore(bus.js).put(image)
    work = cooling(bus, place)
    await work.copy([naming(image)])
    copy = Path(place.url) / "images" / image.sha256
    copy.write_bytes(b"half of it")
    with pytest.raises(TransientError, match="damaged"):
        await ArchivedImages(place).load(image.sha256)
    assert (await work.cool()).removed == 1
    assert copy.read_bytes() == image.data


async def test_an_image_whose_own_bytes_are_wrong_stays(bus: Bus, place: ArchiveSettings) -> None:
    wrong = Image(sha256="a" * 64, media_type="image/png", width=1, height=1, data=b"other bytes")
    await ImageStore(bus.js).put(wrong)
    work = cooling(bus, place)
    await work.copy([naming(wrong)])
    assert msgspec.structs.astuple(await work.cool()) == (0, 1)
    assert await ImageStore(bus.js).load_hot(wrong.sha256) == wrong.data
    assert not ArchivedImages(place).has(wrong.sha256)


async def test_an_image_whose_pieces_are_gone_keeps_nothing_up(
    bus: Bus, place: ArchiveSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a restore that was cut off."""
    broken, whole = picture(1), picture(2)
    for one in (broken, whole):
        await ImageStore(bus.js).put(one)
    stored = await ImageStore(bus.js).stored(broken.sha256)
    assert stored is not None
    await bus.js.purge_stream(images.IMAGES_STREAM, subject=f"$O.{IMAGES_BUCKET}.C.{stored.nuid}")
    work = cooling(bus, place)
    await work.copy([naming(whole)])
    monkeypatch.setattr(images, "LOAD_SECONDS", 0.5)
    await work.copy([naming(broken)])
    assert msgspec.structs.astuple(await work.cool()) == (1, 1)
    assert [ArchivedImages(place).has(one.sha256) for one in (broken, whole)] == [False, True]
    assert await ImageStore(bus.js).stored(broken.sha256) is not None


@pytest.mark.parametrize("name", ["put", "get"])
async def test_what_cannot_be_written_or_read_stays(
    bus: Bus, place: ArchiveSettings, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A full disk, or a store that is away."""
    several = [picture(number) for number in range(10)]
    for one in several:
        await ImageStore(bus.js).put(one)
    called = 0
    original = getattr(ArchivedImages, name)

    def fail_half(self: ArchivedImages, *args: object) -> object:
        nonlocal called
        called += 1
        if called > 5:
            raise OSError(28, "no space left on device")
        return original(self, *args)

    with monkeypatch.context() as context:
        context.setattr(ArchivedImages, name, fail_half)
        with pytest.raises(OSError, match="no space"):
            await cooling(bus, place).cool()
    store, kept = ImageStore(bus.js, archived_images(place)), ArchivedImages(place)
    for one in several:
        assert (await store.load(one.sha256))[0] == one.data
        assert await store.stored(one.sha256) is not None or kept.get(one.sha256) == one.data
    assert any([await store.stored(one.sha256) is not None for one in several])
    await cooling(bus, place).cool()
    assert [kept.get(one.sha256) for one in several] == [one.data for one in several]


async def test_an_image_that_leaves_while_it_is_copied_stays_copied(
    bus: Bus, place: ArchiveSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive was away for longer than the hot window, and two are at work, or both rounds of one."""
    image = picture(1)
    await ImageStore(bus.js).put(image)
    stored, lookups = ImageStore.stored, 0

    async def cool_before_the_last_look(self: ImageStore, sha256: str) -> StoredImage | None:
        nonlocal lookups
        lookups += 1
        if lookups == 2:
            assert (await cooling(bus, place).cool()).removed == 1
        return await stored(self, sha256)

    monkeypatch.setattr(ImageStore, "stored", cool_before_the_last_look)
    await cooling(bus, place).copy([naming(image)])
    assert await ImageStore(bus.js).load_hot(image.sha256) is None
    assert ArchivedImages(place).get(image.sha256) == image.data


@pytest.mark.parametrize("kind", ["response", "tenant", "image"])
async def test_an_erasure_while_it_is_copied_leaves_no_copy(
    bus: Bus, place: ArchiveSettings, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    image = picture(1)
    what = {
        "response": subject("r", "acme", None),
        "tenant": subject(None, "acme", None),
        "image": subject(None, None, image.sha256),
    }[kind]
    await ImageStore(bus.js).put(image)
    await bus.create(recorded(response("r", image)))
    load = ImageStore.load_hot

    async def load_and_erase(self: ImageStore, sha256: str) -> bytes | None:
        data = await load(self, sha256)
        monkeypatch.setattr(ImageStore, "load_hot", load)
        await Eraser(bus.js, what, Stores.of(place), wait=0).erase()
        return data

    monkeypatch.setattr(ImageStore, "load_hot", load_and_erase)
    await cooling(bus, place).copy([naming(image)])
    assert await ImageStore(bus.js).stored(image.sha256) is None
    assert not ArchivedImages(place).has(image.sha256)


def holding(folder: Path, data: bytes) -> list[Path]:
    """Files that have any part of it."""
    pieces = [data[at : at + 64] for at in range(0, len(data) - 64, 10_000)]
    files = [file for file in folder.rglob("*") if file.is_file()]
    return [file for file in files if any(piece in file.read_bytes() for piece in pieces)]


async def test_erasing_a_response_takes_its_images_along(
    bus: Bus, place: ArchiveSettings, nats_server: NatsServer
) -> None:
    mine, shared = picture(1), picture(2)
    for one in (mine, shared):
        await ImageStore(bus.js).put(one)
    await in_archive(bus, place, response("gone", mine, shared), response("stays", shared))
    await acknowledge(bus, 2)
    assert (await cooling(bus, place).cool()).removed == 2
    # Both lie in the archive alone, and so do the events.
    for stream in ARCHIVED:
        await bus.js.purge_stream(stream)
    done = await Eraser(bus.js, subject("gone", "acme", None), Stores.of(place), wait=0).erase(verify=True)
    assert done.counts["images"] == 1
    assert done.proof is not None and done.proof.holds
    assert [ArchivedImages(place).has(one.sha256) for one in (mine, shared)] == [False, True]
    assert [bool(holding(Path(place.url), one.data)) for one in (mine, shared)] == [False, True]
    assert holding(nats_server.data_dir, mine.data) == [], "it had left the object store with its bytes"
    done = await Eraser(bus.js, subject(None, None, shared.sha256), Stores.of(place), wait=0).erase()
    assert (done.counts, ArchivedImages(place).has(shared.sha256)) == ({"images": 1}, False)


async def test_erasing_a_tenant_takes_its_images_along(bus: Bus, place: ArchiveSettings) -> None:
    mine, shared = picture(1), picture(2)
    for one in (mine, shared):
        await ImageStore(bus.js).put(one)
    await in_archive(
        bus, place, response("a", mine, shared), response("b", mine), response("c", shared, tenant="other")
    )
    await acknowledge(bus, 3)
    await cooling(bus, place).cool()
    for stream in ARCHIVED:
        await bus.js.purge_stream(stream)
    done = await Eraser(bus.js, subject(None, "acme", None), Stores.of(place), wait=0).erase()
    assert done.counts["images"] == 1
    assert [ArchivedImages(place).has(one.sha256) for one in (mine, shared)] == [False, True]


async def test_retention_reaches_the_archive(bus: Bus, place: ArchiveSettings) -> None:
    named, unnamed, hot = picture(1), picture(2), picture(3)
    for one in (named, unnamed, hot):
        ArchivedImages(place).put(one.sha256, one.data)
    await ImageStore(bus.js).put(named)
    await in_archive(bus, place, response("r", named))
    await acknowledge(bus, 1)
    await cooling(bus, place).cool()
    await bus.js.purge_stream(RESPONSES)
    await ImageStore(bus.js).put(hot)
    await bus.create(recorded(response("s", hot)))
    settings, stores = RetentionSettings(images=INSTANT), Stores.of(place)
    assert (await enforce(bus.js, settings, stores, dry_run=True)).expired == {"archive images": 1}
    assert ArchivedImages(place).has(unnamed.sha256)
    assert (await enforce(bus.js, settings, stores)).expired == {"archive images": 1}
    found = [ArchivedImages(place).has(one.sha256) for one in (named, unnamed, hot)]
    assert found == [True, False, True]


async def test_without_the_packages_only_who_needs_it_is_told(
    bus: Bus, place: ArchiveSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = picture(1)
    await ImageStore(bus.js).put(image)
    await asyncio.to_thread(Path(place.url).mkdir)
    monkeypatch.setattr("groundwatch.archive.place.installed", lambda: False)
    store = ImageStore(bus.js, archived_images(place))
    assert (await store.load(image.sha256))[0] == image.data
    with pytest.raises(TransientError, match=r"not installed: run pip install 'groundwatch\[archive\]'"):
        await store.load("0" * 64)


def test_without_an_archive_there_are_none() -> None:
    assert archived_images(ArchiveSettings()) is None
    assert archived_images(ArchiveSettings(url="off")) is None


async def test_in_an_object_store(bus: Bus, s3: dict[str, object]) -> None:
    place = ArchiveSettings(url="s3://bucket/images-test", options=s3, hot_days=INSTANT, flush_seconds=0.1)
    named, shared, unnamed = (picture(number) for number in range(3))
    for one in (named, shared, unnamed):
        await ImageStore(bus.js).put(one)
    service = ArchiveService(Settings(archive=place), bus, Metrics())
    assert service.keeps_images, "everybody reads the same"
    await in_archive(bus, place, response("a", named, shared), response("b", shared))
    kept, store = ArchivedImages(place), ImageStore(bus.js, archived_images(place))
    await acknowledge(bus, 2)
    await cooling(bus, place).cool()
    for one in (named, shared, unnamed):
        assert await store.load_hot(one.sha256) is None
        assert (await store.load(one.sha256))[0] == one.data
    with pytest.raises(LookupError):
        await store.load("0" * 64)
    for stream in ARCHIVED:
        await bus.js.purge_stream(stream)
    done = await Eraser(bus.js, subject("a", "acme", None), Stores.of(place), wait=0).erase(verify=True)
    assert (done.counts["images"], done.proof is not None and done.proof.holds) == (1, True)
    assert (await enforce(bus.js, RetentionSettings(images=INSTANT), Stores.of(place))).expired == {
        "archive images": 1
    }
    found = [kept.has(one.sha256) for one in (named, shared, unnamed)]
    assert found == [False, True, False]
    # What is away may have it.
    away = place.model_copy(update={"options": {**s3, "endpoint_url": "http://127.0.0.1:1"}})
    with pytest.raises(TransientError, match="cannot load image"):
        await ImageStore(bus.js, archived_images(away)).load(named.sha256)


async def test_a_folder_that_others_may_not_have_takes_no_image_from_them(
    bus: Bus, place: ArchiveSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a cluster the archive's volume is its own pod's."""
    service = ArchiveService(Settings(archive=place), bus, Metrics())
    together = ArchiveService(Settings(archive=place), bus, Metrics(), in_one_process=True)
    assert (service.keeps_images, together.keeps_images) == (False, True)
    image = picture(1)
    await ImageStore(bus.js).put(image)
    await in_archive(bus, place, response("r", image), together=False)
    assert not ArchivedImages(place).has(image.sha256)
    assert await ImageStore(bus.js).load_hot(image.sha256) == image.data
    # Who does not have the folder is told at once that there is no such image, whatever is installed.
    monkeypatch.setattr("groundwatch.archive.place.installed", lambda: False)
    elsewhere = place.model_copy(update={"url": f"{place.url}-elsewhere"})
    store = ImageStore(bus.js, archived_images(elsewhere))
    with pytest.raises(LookupError):
        await store.load("0" * 64)
    assert not await store.has("0" * 64)


def test_what_broke_off_goes_with_its_image(place: ArchiveSettings) -> None:
    image, kept = picture(1), ArchivedImages(place)
    left = Path(place.url) / "images" / "unfinished" / f"{image.sha256}-0123"
    left.parent.mkdir(parents=True)
    left.write_bytes(image.data[:1000])
    assert (kept.get(image.sha256), kept.has(image.sha256), kept.stored_before(4e9)) == (None, False, [])
    kept.remove(image.sha256)
    assert not left.exists()


KILLED = """
import asyncio, os, signal, sys
from groundwatch.archive import images as archived
from groundwatch.archive.images import ArchivedImages
from groundwatch.archive.store import Store
from groundwatch.runtime.delivery import direct
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import Read
from groundwatch.runtime.settings import ArchiveSettings, NatsSettings
from groundwatch.runtime.stores import images
from groundwatch.runtime.telemetry.metrics import Metrics

images.GRACE_SECONDS = 0.0
archived.AT_ONCE = 1

def die(*args):
    os.kill(os.getpid(), signal.SIGKILL)

async def dies(*args):
    die()

def half(self, names, **options):
    (name,) = names
    path = self.folder / name
    path.write_bytes(path.read_bytes()[:1000])
    die()

def after(count):
    original = direct._delete
    async def overwrite(*args):
        nonlocal count
        if not count:
            die()
        count -= 1
        return await original(*args)
    return overwrite

async def main(nats, url, moment, *names):
    bus = Bus(NatsSettings(url=nats), name="archive")
    await bus.connect()
    work = archived.ImageCooling(bus, ArchiveSettings(url=url, hot_days=1e-9), Metrics())
    match moment:
        case "half written":
            Store.sync = half
        case "copied":
            ArchivedImages.get = die
        case "removed with its pieces":
            # One image's own message, two pieces, and the message of another.
            direct._delete = after(4)
        case "removed before its pieces":
            direct._delete = after(1)
        case "removed before one of its pieces":
            direct._delete = after(2)
    for name in names:
        event = b'{"images":["' + name.encode() + b'"]}'
        await work.copy([Read(subject="", data=event, headers={}, sequence=1)])
    await work.cool()

asyncio.run(main(*sys.argv[1:]))
"""

MOMENTS = (
    "half written",
    "copied",
    "removed before its pieces",
    "removed before one of its pieces",
    "removed with its pieces",
    "never",
)


@pytest.mark.slow
async def test_killed_at_any_moment_it_loses_nothing(
    bus: Bus, nats_server: NatsServer, place: ArchiveSettings
) -> None:
    several = [picture(number, 200_000) for number in range(6)]
    for one in several:
        await ImageStore(bus.js).put(one)
    names = [one.sha256 for one in several]
    for moment in MOMENTS:
        program = [sys.executable, "-c", KILLED, nats_server.url, place.url, moment, *names]
        child = await asyncio.create_subprocess_exec(*program)
        assert await child.wait() == (0 if moment == "never" else -9), moment
        store = ImageStore(bus.js, archived_images(place))
        for one in several:
            assert (await store.load(one.sha256))[0] == one.data, moment
    assert sorted(await asyncio.to_thread(ArchivedImages(place).stored_before, 4e9)) == sorted(names)
    assert (await bus.js.stream_info(images.IMAGES_STREAM)).state.messages == 0, "pieces of no image went too"
