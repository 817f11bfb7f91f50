"""`close`: it uses its time, and what it says is lost is what is missing, told then or at the next start."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.faults.campaign.proxy import Proxy
from tests.support.frozen import frozen

from groundwatch.client import Recorder, transport
from groundwatch.client.worker import waiting
from groundwatch.runtime.stores.losses import losses_by_sender

LONG = 60


def recorded(url: str, number: int = 250) -> tuple[Recorder, set[str]]:
    recorder = Recorder(url, sender="shop")
    return recorder, {recorder.record(model="m", answer=f"{one}") for one in range(number)}


def told(gateway: Any) -> int:
    """How many are lost, by the newest report of each process."""
    newest = {report["process"]: report for report in gateway.losses}
    missing = [
        one for report in newest.values() for one in report["unconfirmed"] if one["id"] not in gateway.ids
    ]
    return sum(sum(report["lost"].values()) for report in newest.values()) + len(missing)


@pytest.mark.parametrize("script", [("away:1.5",), ("503:1", "503:1", "ok"), ("500", "ok"), ("close", "ok")])
def test_close_uses_its_time(script: tuple[str, ...], bad_gateway: Any) -> None:
    gateway = bad_gateway(*script)
    recorder, names = recorded(gateway.url)
    recorder.close(LONG)
    assert set(gateway.ids) == names
    assert recorder.lost == {} and gateway.losses == []


def test_what_was_not_answered_is_not_told_as_lost_if_it_is_there(bad_gateway: Any) -> None:
    gateway = bad_gateway("taken")
    recorder, names = recorded(gateway.url)
    while not gateway.requests:
        time.sleep(0.01)
    recorder.close(1.0)
    missing = len(names - set(gateway.ids))
    assert 0 < missing < len(names)
    assert sum(recorder.lost.values()) == missing == told(gateway)


def test_a_report_is_repeated_while_there_is_time(bad_gateway: Any) -> None:
    gateway = bad_gateway("close")
    gateway.losses_faults = 1
    recorder, names = recorded(gateway.url, 10)
    recorder.close(4.0)
    assert gateway.losses_faults == 0
    assert told(gateway) == len(names) == sum(recorder.lost.values())


@pytest.mark.parametrize("script", ["close", "taken", "hang", "drip", "503:30"])
def test_what_could_not_be_told_is_told_at_the_next_start(
    script: str, bad_gateway: Any, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = bad_gateway(script)
    gateway.losses_status = 503
    recorder, names = recorded(gateway.url)
    began = time.monotonic()
    recorder.close(1.0)
    assert time.monotonic() - began < 1.0 + LONG / 4
    assert len(list(state.glob("*.json"))) == 1
    assert str(state) in caplog.text
    gateway.losses_status = 200
    another = Recorder(gateway.url)
    deadline = time.monotonic() + LONG
    while waiting(gateway.url, ""):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    another.close()
    assert told(gateway) == len(names - set(gateway.ids))
    assert gateway.losses[-1]["sender"] == "shop"


KILLED = """
import os, sys, time
from groundwatch.client import Recorder
from groundwatch.client.worker import folder

recorder = Recorder(sys.argv[1], sender="shop")
for number in range(7):
    recorder.record(model="m", answer=f"{number}")
while not list(folder().glob("*.tally")):
    time.sleep(0.01)
if sys.argv[2] == "exit":
    os._exit(0)
if sys.argv[2] == "kill":
    os.kill(os.getpid(), 9)
if sys.argv[2] == "pool":
    import multiprocessing

    def work(number):
        recorder.record(model="m", answer="in a pool")
        while len(list(folder().glob("*.tally"))) < 2:
            time.sleep(0.01)
        return number

    with multiprocessing.get_context("fork").Pool(1) as pool:
        pool.map(work, range(1))
recorder.close(0.1)
"""


@pytest.mark.parametrize(("how", "lost"), [("exit", 7), ("kill", 7), ("pool", 8), ("close", 7)])
def test_who_is_killed_is_told_of_at_the_next_start(
    how: str, lost: int, bad_gateway: Any, state: Path
) -> None:
    gateway = bad_gateway("503:30")
    gateway.losses_status = 503
    subprocess.run([sys.executable, "-c", KILLED, gateway.url, how], timeout=LONG, check=False)
    gateway.losses_status = 200
    recorder = Recorder(gateway.url)
    deadline = time.monotonic() + LONG
    while waiting(gateway.url, ""):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    recorder.close(0.1)
    assert {report["sender"] for report in gateway.losses} == {"shop"}
    assert told(gateway) == lost
    assert list(state.iterdir()) == []


def test_who_ended_leaves_no_tally(bad_gateway: Any, state: Path) -> None:
    gateway = bad_gateway("ok")
    recorder, names = recorded(gateway.url, 5)
    while not list(state.glob("*.tally")):
        time.sleep(0.01)
    assert waiting(gateway.url, "") == [], "of a process that is there nothing is told"
    recorder.close(LONG)
    assert set(gateway.ids) == names and list(state.iterdir()) == []


def test_where_no_file_can_be_written_the_log_tells(
    bad_gateway: Any, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = bad_gateway("close")
    gateway.losses_status = 503
    state.parent.parent.mkdir(parents=True)
    state.parent.write_text("no folder")
    recorder, names = recorded(gateway.url, 3)
    recorder.close(0.5)
    assert "exit 3" in caplog.text and "no file can be written" in caplog.text
    assert sum(recorder.lost.values()) == len(names)


async def test_what_is_still_being_recorded_is_not_counted_as_lost(gateway: Any, nats_server: Any) -> None:
    """The report of it waits until it is known."""
    recorder, names = recorded(gateway.service.url, 150)
    with frozen(nats_server.pid):
        await recorder.aclose(1.0)
        assert sum(recorder.lost.values()) == len(names)
        deadline = time.monotonic() + LONG
        # Its thread may end a little later.
        while not waiting(gateway.service.url, ""):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        another = Recorder(gateway.service.url)
        await asyncio.sleep(0.3)
    while waiting(gateway.service.url, ""):
        assert time.monotonic() < deadline
        await another.aflush(0.1)
        await asyncio.sleep(0.1)
    await another.aclose()
    there = {event.id for event in await gateway.events()}
    lost = (await losses_by_sender(gateway.bus.js)).get("shop", {})
    assert there and len(there) + sum(lost.values()) == len(names)


async def trouble(proxy: Proxy, chance: random.Random) -> None:
    """One outage after the other: refused, swallowed, cut in the middle of a request or of its answer."""
    while True:
        what = chance.choice(("refuse", "hole", "slow", "cut", "pass"))
        if what == "cut":
            for _ in range(chance.randint(1, 8)):
                proxy.cut()
                await asyncio.sleep(chance.uniform(0.005, 0.05))
        else:
            proxy.set(what)  # type: ignore[arg-type]
            await asyncio.sleep(chance.uniform(0.05, 0.4))
            proxy.cut()
        proxy.set("pass")
        await asyncio.sleep(chance.uniform(0.0, 0.1))


@pytest.mark.parametrize("seed", range(3))
async def test_under_outages_nothing_is_lost_uncounted_nor_counted_and_there(
    seed: int, gateway: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "FIRST_PAUSE", 0.05)
    chance = random.Random(seed)
    proxy = Proxy([gateway.service.port], delay=0.02)
    await proxy.start()
    url = f"http://127.0.0.1:{proxy.port}"
    troubling = asyncio.create_task(trouble(proxy, chance))
    number, missing = 0, 0
    try:
        for _ in range(4):
            recorder = Recorder(url, sender="shop")
            for _ in range(chance.randint(1, 300)):
                recorder.record(model="m", answer=f"{number}", id=f"r{number}", tags={"x": "y" * 2_000})
                number += 1
            await asyncio.sleep(chance.uniform(0, 0.1))
            await recorder.aclose(chance.choice((0.1, 0.3, 1.0, 3.0)))
            missing += sum(recorder.lost.values())
    finally:
        troubling.cancel()
        await asyncio.gather(troubling, return_exceptions=True)
        proxy.set("pass")
    last = Recorder(url)
    for _ in range(6_000):
        if not waiting(url, ""):
            break
        await asyncio.sleep(0.01)
    await last.aclose()
    await proxy.stop()
    there = [event.id for event in await gateway.events()]
    assert len(set(there)) == len(there)
    lost = await losses_by_sender(gateway.bus.js)
    assert len(there) + sum(lost.get("shop", {}).values()) == number
    assert missing >= number - len(there)
