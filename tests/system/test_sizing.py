"""What a load needs: the arithmetic's rules, sizes as people write them, and the command that tells it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from groundwatch.cli import app
from groundwatch.errors import UsageError
from groundwatch.runtime.settings import ArchiveSettings, NatsSettings, Settings
from groundwatch.system.sizing import Load, Needs, load_of, most_days, needs, parse_bytes, refusal, shown

LOADS = st.builds(
    Load,
    rate=st.floats(0.001, 1e5),
    days=st.floats(0.01, 1_000),
    servers=st.just(3),
    copies=st.integers(1, 3),
    image_bytes=st.floats(0, 1e7),
    cache_bytes=st.floats(0, 1e9),
)
SIZES = st.floats(1e6, 1e16)


def _each(found: Needs) -> list[int]:
    return [value for name, value in msgspec.structs.asdict(found).items() if name != "archive_memory"]


@given(LOADS, st.floats(1, 10))
def test_more_responses_never_need_less(load: Load, times: float) -> None:
    for name in ("rate", "days"):
        more = msgspec.structs.replace(load, **{name: getattr(load, name) * times})
        assert all(b >= a for a, b in zip(_each(needs(load)), _each(needs(more)), strict=True))


@given(LOADS)
def test_what_a_server_is_given_suffices_after_a_kill(load: Load) -> None:
    found = needs(load)
    assert found.nats_resident < found.nats_peak < found.nats_memory
    assert found.disk_of_all >= found.nats_disk
    assert not refusal(load, memory=found.nats_memory, disk=found.nats_disk)
    assert "of memory on each" in refusal(load, memory=found.nats_memory - 1)
    assert "of disk on each" in refusal(load, disk=found.nats_disk - 1)


@given(LOADS, SIZES, SIZES)
def test_the_days_that_fit_do_fit_and_no_more(load: Load, memory: float, disk: float) -> None:
    days = most_days(load, memory=memory, disk=disk)
    if days > 0:
        at_most = msgspec.structs.replace(load, days=days * (1 - 1e-6))
        assert needs(at_most).nats_memory <= memory + 1 and needs(at_most).nats_disk <= disk + 1
    beyond = msgspec.structs.replace(load, days=days * 1.001 + 0.01)
    assert needs(beyond).nats_memory > memory or needs(beyond).nats_disk > disk


def test_more_copies_than_servers_are_refused() -> None:
    assert refusal(Load(rate=1, days=1, copies=3)) == (
        "nats.replicas 3 need as many NATS servers, not 1: add servers"
    )


@pytest.mark.parametrize(
    ("text", "size"), [("8GiB", 8 * 2**30), ("8Gi", 8 * 2**30), ("200 GB", 2e11), ("1.5M", 1.5e6), ("7", 7.0)]
)
def test_sizes_are_read_as_kubernetes_and_people_write_them(text: str, size: float) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "8 gigs", "-1Gi", "0", "1e3", "8gib"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match="is no size: write such as 8GiB or 200GB"):
        parse_bytes(text)


@given(st.floats(1, 1e18))
def test_a_shown_size_suffices(size: float) -> None:
    assert parse_bytes(shown(size)) >= size * (1 - 1e-9)


def run(*arguments: str) -> tuple[int, str, str]:
    found = CliRunner().invoke(app, ["admin", "config", "check", *arguments])
    return found.exit_code, found.stdout, found.stderr


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GROUNDWATCH_CONFIG", raising=False)


def test_the_command_tells_what_a_rate_needs() -> None:
    code, told, _ = run("--rate", "12", "--days", "3")
    load = load_of(Settings(), 12, 3, None, 0)
    assert code == 0
    assert "12 responses a second for 3 days: 3,110,400 in the streams\n" in told
    assert f"each of 1 NATS servers: {shown(needs(load).nats_memory)} of memory" in told
    assert "auditor: " in told and "each gateway: " in told and "archive service: " in told
    assert "each of 1 NATS" not in run()[1]


def test_the_command_refuses_what_does_not_fit_in_one_line() -> None:
    options = ("--rate", "12", "--nats-memory", "8GiB", "--nats-disk", "10TB")
    code, _, told = run(*options)
    load = load_of(Settings(), 12, None, None, 0)
    days = math.floor(most_days(load, memory=8 * 2**30) * 10) / 10
    need = shown(needs(load).nats_memory)
    assert (code, told) == (
        1,
        f"groundwatch: 12 responses a second for 30 days need {need} of memory on each NATS server, which "
        f"has 8 GiB: set archive.url, and archive.hot_days to {days:g} at most, or give each {need} "
        "of memory\n",
    )
    code, text, _ = run(*options, "--json")
    found = json.loads(text)
    assert (code, found["ok"], found["problems"]) == (1, False, [])
    assert found["sizing"]["needs"]["nats_memory"] == needs(load).nats_memory
    assert found["sizing"]["refusal"] == told.removeprefix("groundwatch: ").rstrip()
    assert run(*options, "--days", f"{days:g}")[0] == 0


def test_where_there_is_an_archive_the_index_of_ids_takes_room_too() -> None:
    without = needs(load_of(Settings(), 12, 3, None, 0))
    archive = ArchiveSettings(url="/archive", repeat_days=10)
    found = needs(load_of(Settings(archive=archive), 12, 3, None, 0))
    assert (without.gateway_disk, found.gateway_disk) == (0, 12 * 86_400 * 10 * 16)
    assert found.nats_disk == pytest.approx(without.nats_disk + found.gateway_disk / 0.85, abs=1)


def test_with_an_archive_the_window_is_what_is_hot() -> None:
    archived = Settings(archive=ArchiveSettings(url="s3://bucket/groundwatch", hot_days=2.5))
    assert load_of(archived, 12, None, None, 0).days == 2.5
    assert load_of(archived, 12, 7, None, 0).days == 7
    told = refusal(load_of(archived, 100, None, None, 0), memory=8 * 2**30)
    assert "100 responses a second for 2.5 days need" in told
    assert "has 8 GiB: set archive.hot_days to 0.4 at most, or give each" in told
    assert load_of(Settings(archive=ArchiveSettings(url="/archive")), 12, None, None, 0).days == 3
    off = Settings(archive=ArchiveSettings(url="off", hot_days=2.5))
    assert load_of(off, 12, None, None, 0).days == load_of(Settings(), 12, None, None, 0).days == 30


def test_an_auditor_that_reads_an_archive_needs_memory_for_that() -> None:
    without = needs(load_of(Settings(), 12, 3, None, 0)).auditor_memory
    archived = needs(load_of(Settings(archive=ArchiveSettings(url="/archive")), 12, 3, None, 0))
    # Measured: 330 MB for 200,000 responses of which most were cold.
    assert without < 330e6 < archived.auditor_memory
    off = needs(load_of(Settings(archive=ArchiveSettings(url="off")), 12, 3, None, 0))
    assert off.auditor_memory == without


@given(LOADS, st.integers(1, 64), st.integers(1, 192))
def test_partitions_take_what_servers_they_have_and_no_response_is_forgotten(
    load: Load, partitions: int, servers: int
) -> None:
    several = msgspec.structs.replace(load, partitions=partitions, servers=max(servers, load.copies))
    # All copies of all partitions have a place.
    assert several.hosted * several.servers >= partitions * load.copies
    assert load.copies / several.servers <= several.share + 1e-9 and several.share <= 1
    more = msgspec.structs.replace(several, servers=several.servers * 2)
    assert needs(more).nats_memory <= needs(several).nats_memory
    on_all = msgspec.structs.replace(several, servers=load.copies)
    assert on_all.share == 1
    assert needs(on_all).nats_memory >= needs(load).nats_memory


def test_the_command_tells_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUNDWATCH_NATS__PARTITIONS", "8")
    monkeypatch.setenv("GROUNDWATCH_NATS__REPLICAS", "3")
    code, told, _ = run("--rate", "1000", "--days", "3", "--servers", "24")
    assert code == 0 and "of 8 partitions each server has 1, where JetStream places them evenly\n" in told
    load = load_of(Settings(nats=NatsSettings(partitions=8, replicas=3)), 1_000, 3, 24, 0)
    assert f"each of 24 NATS servers: {shown(needs(load).nats_memory)} of memory" in told


def test_the_page_has_what_is_computed() -> None:
    page = (Path(__file__).parents[2] / "docs" / "sizing.md").read_text("utf-8")
    for rate in (12, 100, 1_000, 10_000):
        found = needs(load_of(Settings(), rate, 3, None, 0))
        in_use, most = shown(found.nats_resident), shown(found.nats_peak)
        memory = f"{in_use} in use, {most} at the most: {shown(found.nats_memory)}"
        row = f"| {rate:,} | {found.responses:,} | {memory} | {shown(found.nats_disk)} |"
        assert row in page
    for rate, partitions, servers in ((1_000, 4, 6), (1_000, 8, 24), (10_000, 16, 48), (10_000, 64, 192)):
        nats = NatsSettings(partitions=partitions, replicas=3)
        found = needs(load_of(Settings(nats=nats), rate, 3, servers, 0))
        row = (
            f"| {rate:,} | {partitions} | {servers} | {shown(found.nats_memory)} | {shown(found.nats_disk)} |"
        )
        assert row in page
    for size, rate in (("8GiB", 15), ("64GiB", 128), ("256GiB", 514)):
        assert f"{rate}" in page.partition("**Where one server ends.**")[2].partition("\n")[0]
        for one, fits in ((rate, True), (rate + 1, False)):
            load = load_of(Settings(), one, 3, None, 0)
            assert (not refusal(load, memory=parse_bytes(size))) is fits


def test_a_size_without_a_rate_is_refused() -> None:
    found = CliRunner().invoke(app, ["admin", "config", "check", "--nats-memory", "8GiB"])
    assert "name it too" in str(found.exception)
