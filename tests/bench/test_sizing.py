"""What a load needs: the arithmetic's rules, and what the page has of it."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sizing
from groundwatch.runtime.settings import ArchiveSettings, NatsSettings, Settings
from sizing import Load, Needs, load_of, most_days, needs, refusal, shown

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


@given(st.floats(1, 1e18))
def test_a_shown_size_suffices(size: float) -> None:
    number, unit = shown(size).split()
    assert float(number) * ({"KiB": 1024} | sizing._UNITS)[unit] >= size * (1 - 1e-9)


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GROUNDWATCH_CONFIG", raising=False)


async def test_the_benchmark_tells_what_a_rate_needs_and_refuses_what_does_not_fit() -> None:
    load = load_of(Settings(), 12, None, None, 0)
    days = math.floor(most_days(load, memory=8 * 2**30) * 10) / 10
    need = shown(needs(load).nats_memory)
    found = await sizing.measure(rate=12, memory=8, disk=10_000)
    assert found["needs"] == msgspec.structs.asdict(needs(load))
    assert (found["ok"], found["refusal"]) == (
        False,
        f"12 responses a second for 30 days need {need} of memory on each NATS server, which has 8 GiB: "
        f"set archive.url, and archive.hot_days to {days:g} at most, or give each {need} of memory",
    )
    assert (await sizing.measure(rate=12, days=3, memory=8, disk=10_000))["ok"]


def test_where_there_is_an_archive_ids_take_room_in_the_gateway() -> None:
    without = needs(load_of(Settings(), 12, 3, None, 0))
    archive = ArchiveSettings(url="/archive", repeat_days=10)
    found = needs(load_of(Settings(archive=archive), 12, 3, None, 0))
    assert (without.gateway_disk, found.gateway_disk) == (0, 12 * 86_400 * 10 * 16)
    assert found.nats_disk == without.nats_disk


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
    for size, rate in ((8, 15), (64, 128), (256, 514)):
        assert f"{rate}" in page.partition("**Where one server ends.**")[2].partition("\n")[0]
        for one, fits in ((rate, True), (rate + 1, False)):
            load = load_of(Settings(), one, 3, None, 0)
            assert (not refusal(load, memory=size * 2**30)) is fits
