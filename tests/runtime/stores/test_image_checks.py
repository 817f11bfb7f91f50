"""Images checked in processes that can be ended."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import signal
import sys
import time
from typing import Any

import pytest
import uvloop
from PIL import Image as Pillow

from groundwatch.errors import InputError, TransientError
from groundwatch.runtime.settings.gateway import IntakeSettings
from groundwatch.runtime.stores.image_checks import ImageChecks, Turns


def encoded(kind: str = "PNG", size: tuple[int, int] = (64, 48), mode: str = "RGB", **options: Any) -> bytes:
    out = io.BytesIO()
    Pillow.effect_noise(size, 80).convert(mode).save(out, kind, **options)
    return out.getvalue()


@pytest.fixture
async def make() -> Any:
    made: list[ImageChecks] = []

    def make(**limits: Any) -> ImageChecks:
        wait = limits.pop("wait", 10.0)
        made.append(ImageChecks(IntakeSettings().model_copy(update=limits), wait=wait))
        return made[-1]

    yield make
    for one in made:
        await one.close()


async def test_an_image_is_checked_in_a_process_that_is_started_when_it_is_needed(make):
    checks = make()
    assert checks._idle == []
    data = encoded("JPEG")
    image = await checks.check(data, "a")
    assert (image.media_type, image.width, image.height, image.data) == ("image/jpeg", 64, 48, data)
    (worker,) = checks._idle
    for wrong, word in ((b"", "empty"), (b"BM", "not a JPEG"), (data[:200], "cut off")):
        with pytest.raises(InputError, match=word):
            await checks.check(wrong, "a")
    assert checks._idle == [worker]
    await checks.close()
    assert worker.returncode == 0


async def test_an_image_that_takes_too_long_is_ended_and_refused(make):
    data = encoded("JPEG", (2_500, 2_500), progressive=True)
    checks = make(max_image_seconds=0.05)
    with pytest.raises(InputError, match=r"takes more than 0\.05 s to decode"):
        await checks.check(data, "a")
    assert checks._idle == []
    # The next image has a process of its own, and as long again.
    assert (await checks.check(encoded(), "a")).width == 64


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGSEGV, InputError), (signal.SIGKILL, TransientError)]
)
async def test_a_process_that_dies_is_told_and_replaced(make, number, error):
    checks = make()
    await checks.check(encoded(), "a")
    (worker,) = checks._idle
    os.kill(worker.pid, signal.SIGSTOP)
    checking = asyncio.create_task(checks.check(encoded(size=(500, 500)), "a"))
    while checks._idle:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    os.kill(worker.pid, number)
    with contextlib.suppress(ProcessLookupError):
        os.kill(worker.pid, signal.SIGCONT)
    with pytest.raises(error):
        await checking
    assert worker.returncode == -number
    assert (await checks.check(encoded(), "a")).width == 64


async def test_an_idle_process_whose_pipe_is_closed_is_not_asked(make):
    checks = make()
    await checks.check(encoded(), "a")
    (worker,) = checks._idle
    worker.stdin.close()
    assert worker.returncode is None
    assert (await checks.check(encoded(), "a")).width == 64


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_process_that_dies_while_it_starts_is_told(monkeypatch, loop):
    start = asyncio.create_subprocess_exec

    async def dead(*_, **pipes):
        process = await start(sys.executable, "-c", "", **pipes)
        await process.wait()
        while not process.stdin.is_closing():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return process

    async def check():
        checks = ImageChecks(IntakeSettings())
        with pytest.raises(TransientError, match="ended with status 0; send it again"):
            await checks.check(encoded(), "a")
        await checks.close()

    monkeypatch.setattr(asyncio, "create_subprocess_exec", dead)
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(check())


async def test_who_goes_away_leaves_no_process_in_the_middle(make):
    checks = make()
    await checks.check(encoded(), "a")
    (worker,) = checks._idle
    gone = asyncio.create_task(checks.check(encoded(size=(500, 500)), "a"))
    await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert (await checks.check(encoded(), "a")).width == 64
    assert checks._idle == [worker]


async def test_what_waits_too_long_is_told_to_come_again(make):
    checks = make(wait=0.05)
    places = [checks._turns.turn(f"sender {number}", 1.0) for number in range(checks._turns._free)]
    for one in places:
        await one.__aenter__()
    with pytest.raises(TransientError, match="too many images"):
        await checks.check(encoded(), "e")
    for one in places:
        await one.__aexit__(None, None, None)
    assert (await checks.check(encoded(), "e")).width == 64
    assert checks._turns._waiting == {}


async def test_a_sender_never_has_all_places_and_senders_take_turns():
    turns = Turns(3)
    order: list[str] = []
    release = asyncio.Event()

    async def take(name: str) -> None:
        async with turns.turn(name[0], 5.0):
            order.append(name)
            await release.wait()

    tasks = [asyncio.create_task(take(f"a{number}")) for number in range(5)]
    await asyncio.sleep(0)
    assert order == ["a0", "a1"]
    tasks += [asyncio.create_task(take(name)) for name in ("b0", "b1", "c0")]
    await asyncio.sleep(0)
    assert order == ["a0", "a1", "b0"]
    release.set()
    await asyncio.gather(*tasks)
    assert order.index("c0") < order.index("a3")
    assert (turns._free, turns._held, turns._waiting) == (3, {}, {})


async def test_a_place_given_to_one_who_has_just_gone_is_free_again():
    turns = Turns(2)
    async with turns.turn("a", 1.0):
        waiting = asyncio.create_task(turns.turn("a", 1.0).__aenter__())
        await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert turns._free == 2
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        async with turns.turn("a", 1.0), turns.turn("a", 0.01):
            raise AssertionError
    assert time.monotonic() - began < 1.0
    assert (turns._free, turns._waiting) == (2, {})


async def test_a_process_that_does_not_answer_is_killed_and_the_sender_comes_again(make, monkeypatch):
    monkeypatch.setattr("groundwatch.runtime.stores.image_checks.SLOWER", 0.0)
    monkeypatch.setattr("groundwatch.runtime.stores.image_checks.STOP_SECONDS", 0.3)
    checks = make()
    worker = await checks._worker()
    checks._idle.append(worker)
    os.kill(worker.pid, signal.SIGSTOP)
    with pytest.raises(TransientError, match="too busy"):
        await checks.check(encoded(), "a")
    assert worker.returncode == -signal.SIGKILL
