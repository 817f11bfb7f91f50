"""An exported file is enough to replay elsewhere; one that is damaged brings nothing in."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from PIL import Image
from tests.replay.conftest import Replays, outcomes, record, response, settings_of
from tests.support.provisioning import provision_again

from groundwatch.errors import UsageError
from groundwatch.events import NoAnswer, ResponseRecorded
from groundwatch.ledger.ledger import audit
from groundwatch.replay.exports import begin_file, export, verify
from groundwatch.replay.files import HEADER, MAGIC, ExportReader, ExportWriter, Manifest, Record, replacing
from groundwatch.replay.runs import Runs, judgement
from groundwatch.replay.spec import Spec
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.settings.gateway import IntakeSettings
from groundwatch.runtime.stores.images import ImageStore, check_image
from groundwatch.topology import BUCKETS, STREAMS


def png(shade: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (8, 8), (shade, 0, 0)).save(out, "PNG")
    return out.getvalue()


def names(folder: Path) -> list[str]:
    return [one.name for one in folder.iterdir()]


async def anew(bus: Bus) -> None:
    """Another system: nothing of the old one is left."""
    for name in (*(spec.name for spec in STREAMS), *(bucket.stream for bucket in BUCKETS)):
        await bus.js.delete_stream(name)
    await provision_again(bus.js)


async def test_a_file_is_enough_elsewhere(replays: Replays, bus: Bus, tmp_path: Path) -> None:
    image = check_image(png(200), IntakeSettings())
    await ImageStore(bus.js).put(image)
    await record(
        bus,
        *(response(f"r{number}", images=(image.sha256,) if number % 2 else ()) for number in range(30)),
        response("lost", images=("0" * 64,)),
        response("other", model="osprey-13b"),
    )
    settings = settings_of(bus)
    await replays.done("here", models=("heron-7b",))
    here = await outcomes(bus, "here")
    path = tmp_path / "stretch.gwx"
    manifest = await export(bus.history, Spec(run="export", models=("heron-7b",)), path)
    assert (manifest.events, manifest.images, manifest.missing_images) == (31, 1, 1)
    assert names(tmp_path) == ["stretch.gwx"]

    await anew(bus)
    spec = Spec(run="there", source="there")
    run = await begin_file(bus, settings, spec, path)
    done = await (await replays.replayer(run)).work()
    assert done.status == "done" and done.counts.scored == 31
    there = await outcomes(bus, "there")
    assert {name: judgement(one) for name, one in here.items()} == {
        name: judgement(one) for name, one in there.items()
    }
    assert (await ImageStore(bus.js).load(image.sha256))[0] == image.data
    ledger = await audit(bus.js, "there")
    assert ledger.balanced and ledger.recorded == 31
    # Live traffic has not grown by it.
    assert (await audit(bus.js)).recorded == 0
    with pytest.raises(UsageError, match="exists already"):
        await begin_file(bus, settings, spec, path)


async def test_later_stages_go_by_file_too(replays: Replays, bus: Bus, tmp_path: Path) -> None:
    await record(bus, *(response(f"r{number}") for number in range(10)))
    await replays.done("here", keep=True)
    path = tmp_path / "claims.gwx"
    spec = Spec(run="export", source="here", stage="verification")
    assert (await export(bus.history, spec, path)).stage == "verification"
    await anew(bus)
    settings = settings_of(bus)
    wanted = Spec(run="there", source="there")
    run = await begin_file(bus, settings, wanted, path)
    assert run.spec.stage == "verification"
    assert (await (await replays.replayer(run)).work()).counts.scored == 10


async def test_an_import_that_broke_off_goes_on(replays: Replays, bus: Bus, tmp_path: Path) -> None:
    await record(bus, *(response(f"r{number}") for number in range(10)))
    path = tmp_path / "f"
    await export(bus.history, Spec(run="export"), path)
    settings = settings_of(bus)
    spec = Spec(run="broken", source="broken")
    run = await begin_file(bus, settings, spec, path)
    runs = await Runs.open(bus.js)
    await runs.change("broken", lambda run: msgspec.structs.replace(run, status="importing"))
    await bus.js.purge_stream("GW_RESPONSES", subject=f"gw.recorded.broken.{response('r3').key}")
    # The server remembers the message id of what was purged for minutes, as after a crash it does not.
    await runs.change("broken", lambda run: msgspec.structs.replace(run, nonce="other"))
    run = await begin_file(bus, settings, spec, path)
    assert run.status == "running"
    assert (await (await replays.replayer(run)).work()).counts.scored == 10


def written(path: Path, *, events: int = 3) -> bytes:
    """A small file, and what is in it."""
    with path.open("wb") as out:
        writer = ExportWriter(out)
        for number in range(events):
            one = response(f"r{number}")
            writer.event(Record(one.key, {"Gw-Protocols": "faithscore"}, msgspec.json.encode(one)))
        data = png(7)
        writer.image(hashlib.sha256(data).hexdigest(), data)
        writer.end(Manifest(stage="extraction", source="live", events=events, images=1))
    return path.read_bytes()


def refused(path: Path) -> str:
    """The one line."""
    with pytest.raises(UsageError) as caught:
        verify(ExportReader(path), Settings())
    told = str(caught.value)
    assert told.startswith(f"{path}: byte ") and "\n" not in told and "nothing was imported" in told
    return told


def test_whole_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "f"
    written(path)
    assert verify(ExportReader(path), Settings()).events == 3


def test_any_byte_that_changes_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "f"
    whole = written(path)
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes((whole[at] ^ 1,)) + whole[at + 1 :])
        refused(path)


def test_any_cut_is_noticed_at_its_byte(tmp_path: Path) -> None:
    path = tmp_path / "f"
    whole = written(path)
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        told = refused(path)
        if length > len(MAGIC):
            assert f"byte {length}:" in told
    path.write_bytes(whole + b"\0")
    assert f"byte {len(whole)}: goes on" in refused(path)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "byte 0: is no export"),
        (b"PAR1" + bytes(100), "byte 0: is no export"),
        (b"GWEX", "byte 4: is no export"),
        (MAGIC[:-1] + b"\x02", "byte 8: is an export of version 2"),
        (MAGIC + b"WHAT" + bytes(48), "byte 9: has a section of an unknown kind"),
        (MAGIC + HEADER.pack(b"EVTS", 1 << 40, 5, bytes(32)), "byte 13: has a section of"),
    ],
    ids=range(6),
)
def test_foreign_files(tmp_path: Path, data: bytes, told: str) -> None:
    path = tmp_path / "f"
    path.write_bytes(data)
    assert told in refused(path)


def section(tag: bytes, plain: bytes, *, size: int | None = None) -> bytes:
    """A section whose checksum is right, whatever else is wrong with it."""
    packed = zlib.compress(plain)
    head = HEADER.pack(tag, len(packed), len(plain) if size is None else size, bytes(32))[:20]
    return head + hashlib.sha256(head + packed).digest() + packed


def records(*events: tuple[str, ResponseRecorded | bytes]) -> bytes:
    return msgspec.msgpack.encode(
        [
            Record(subject, {}, event if isinstance(event, bytes) else msgspec.json.encode(event))
            for subject, event in events
        ]
    )


ONE = response("r")


@pytest.mark.parametrize(
    ("part", "told"),
    [
        (section(b"EVTS", b"\xff"), "cannot be read"),
        (section(b"EVTS", bytes(1_000_000), size=10), "does not unpack to its 10 bytes"),
        (section(b"IMGS", bytes(32) + b"x"), "not what its SHA-256"),
        (section(b"IMGS", hashlib.sha256(b"x").digest() + b"x"), "not let in"),
        (section(b"EVTS", records((ONE.key, b"{"))), "an event that is none"),
        (section(b"EVTS", records(("0" * 32, ONE))), "under another one's subject"),
        (section(b"EVTS", records(("what.ever." + ONE.key, ONE))), "nowhere of ours"),
        (section(b"EVTS", records((f"{ONE.key}.>", ONE))), "nowhere of ours"),
        (section(b"DONE", b'{"stage":"extraction","source":"live","events":5,"images":0}'), "says 5 events"),
        (section(b"DONE", b'{"stage":"fun","source":"live","events":0,"images":0}'), "begins at 'fun'"),
    ],
    ids=range(10),
)
def test_well_packed_nonsense(tmp_path: Path, part: bytes, told: str) -> None:
    path = tmp_path / "f"
    end = section(b"DONE", b'{"stage":"extraction","source":"live","events":1,"images":0}')
    path.write_bytes(MAGIC + part + (b"" if b"DONE" in part[:4] else end))
    assert told in refused(path)


# A few KB of a file each.
BOMBS: dict[str, Callable[[], bytes]] = {
    "records": lambda: b"\xdd" + (9_000_000).to_bytes(4, "big") + b"\x93\xa0\x80\xc4\x00" * 9_000_000,
    "headers": lambda: (
        b"\x91\x93\xa0\xdf"
        + (3_000_000).to_bytes(4, "big")
        + b"".join(b"\xa8%08d\xa0" % number for number in range(3_000_000))
        + b"\xc4\x00"
    ),
    "bytes": lambda: bytes(80_000_000),
}

READ = """
import resource, sys
from pathlib import Path
from groundwatch.errors import UsageError
from groundwatch.replay.files import ExportReader
began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    list(ExportReader(Path(sys.argv[1])).parts())
except UsageError as error:
    print(error, file=sys.stderr)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - began) // 1024)
"""


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_small_file_does_not_become_a_large_memory(tmp_path: Path, bomb: str) -> None:
    path = tmp_path / "f"
    path.write_bytes(MAGIC + section(b"EVTS", BOMBS[bomb]()))
    done = subprocess.run(
        [sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert "nothing was imported" in done.stderr
    assert int(done.stdout) < 150, "MiB"


async def test_nothing_is_half_imported(replays: Replays, bus: Bus, tmp_path: Path) -> None:
    path = tmp_path / "f"
    whole = written(path)
    path.write_bytes(whole[:-1] + bytes((whole[-1] ^ 1,)))
    settings = settings_of(bus)
    with pytest.raises(UsageError, match="nothing was imported"):
        await begin_file(bus, settings, Spec(run="half", source="half"), path)
    assert (await bus.js.stream_info("GW_RESPONSES")).state.messages == 0
    assert await (await Runs.open(bus.js)).find("half") is None
    with pytest.raises(UsageError, match="cannot be read"):
        await begin_file(bus, settings, Spec(run="half", source="half"), tmp_path / "absent")


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"recorded_at": 1e300}, "recorded_at"),
        ({"recorded_at": -1.0}, "recorded_at"),
        ({"model": "x" * 1_000_000}, "model"),
        ({"tenant": "x" * 300}, "tenant"),
        ({"id": "x" * 257}, "id"),
        ({"images": ("../../etc/passwd",)}, "images[0]"),
        ({"images": ("0" * 64,) * 17}, "images"),
        ({"tags": {"a": "b" * 2_000}}, "tags.a"),
        ({"answer": "x" * 200_001}, "answer"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_response_that_no_gateway_takes_is_not_imported(
    tmp_path: Path, changes: dict[str, object], word: str
) -> None:
    path = tmp_path / "f"
    one = response("r", **changes)
    with path.open("wb") as out:
        writer = ExportWriter(out)
        writer.event(Record(one.key, {"Gw-Protocols": "faithscore"}, msgspec.json.encode(one)))
        writer.end(Manifest(stage="extraction", source="live", events=1, images=0))
    told = refused(path)
    assert "has a response that no gateway takes" in told
    assert word in told
    assert len(told) < 600


def test_what_a_model_under_test_left_unanswered_is(tmp_path: Path) -> None:
    path = tmp_path / "f"
    one = response("r", answer="", unanswered=NoAnswer(reason="empty"))
    with path.open("wb") as out:
        writer = ExportWriter(out)
        writer.event(Record(one.key, {"Gw-Protocols": "faithscore"}, msgspec.json.encode(one)))
        writer.end(Manifest(stage="extraction", source="live", events=1, images=0))
    assert verify(ExportReader(path), Settings()).events == 1


def test_two_that_replace_one_file_leave_a_whole_one(tmp_path: Path) -> None:
    path = tmp_path / "out.bin"
    with replacing(path) as slow:
        slow.write(b"slow")
        with replacing(path) as quick:
            quick.write(b"quick")
        assert path.read_bytes() == b"quick"
    assert path.read_bytes() == b"slow"
    assert [*tmp_path.iterdir()] == [path]
