"""The annotation service killed −9 while it draws a queue of what the archive alone has: each draw is one."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from tests.annotation.conftest import outcome, several
from tests.faults.processes import Child
from tests.faults.test_archive import PATIENCE, Writer
from tests.faults.test_cooling import until_left
from tests.runtime.conftest import eventually

from groundwatch.annotation.drawing import SequentialPoisson, measure, position
from groundwatch.events import ResponseScored
from groundwatch.reporting.sums import facts_of
from groundwatch.reviews.queues import Frames, Items, Queues, QueueSpec, Rule
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.outcomes import outgoing
from groundwatch.runtime.delivery.streams import position_of
from groundwatch.statistics.alarm import ALL
from groundwatch.topology import OUTCOMES

ANSWERS, SIZE = 400, 60

SLOWLY = """
import asyncio
from groundwatch.annotation import drawing
from groundwatch.reviews import queues
drawing.AT_ONCE = 1
create, between = queues.Items.create, drawing.outcomes_between

async def create_slowly(self, item):
    await asyncio.sleep(0.05)
    return await create(self, item)

async def read_slowly(*named):
    async for events in between(*named):
        await asyncio.sleep(1)
        yield events

queues.Items.create, drawing.outcomes_between = create_slowly, read_slowly
"""
"""So that a kill comes in the middle of reading, or of writing items."""


def service(url: str, folder: Path, before: str = "") -> Child:
    """`groundwatch serve annotation`, which reads the same archive."""
    code = f"{before}\nfrom groundwatch.cli import main; main()"
    environment = {
        "GROUNDWATCH_NATS__URL": url,
        "GROUNDWATCH_ARCHIVE__URL": str(folder / "archive"),
        "GROUNDWATCH_TELEMETRY__PORT": "0",
    }
    command = (sys.executable, "-c", code, "serve", "annotation")
    return Child("annotation", command, os.environ | environment, folder / "annotation.log")


async def cool(url: str, folder: Path, bus: Bus) -> None:
    """Everything that is in the stream of outcomes goes to the archive, and leaves the stream."""
    writer = Writer(url, folder, hot_days="1e-9")
    try:
        await until_left(bus, OUTCOMES, ANSWERS)
    finally:
        writer.end(signal.SIGTERM)
    at = await position_of(bus.js, OUTCOMES)
    assert at.first > at.last == ANSWERS


@pytest.mark.slow
@pytest.mark.usefixtures("clean_streams")
@pytest.mark.parametrize("rule", ["random", "uncertain"])
async def test_a_queue_of_what_is_cold_is_drawn_once_by_a_service_that_is_killed(
    nats_server, bus: Bus, tmp_path: Path, rule: Rule
) -> None:
    events = several(ANSWERS)
    for event in events:
        await bus.create(outgoing(event))
    await cool(nats_server.url, tmp_path, bus)
    await Queues(bus).create(QueueSpec(name="q", protocol="faithscore", rule=rule, size=SIZE))

    async def began() -> bool:
        return bool((await Frames(bus).load("q"))[0].sequences)

    async def wrote_some() -> bool:
        return len(await Items(bus).all("q")) > 5

    slow = service(nats_server.url, tmp_path, SLOWLY)
    for middle in (began, wrote_some):
        slow.start()
        try:
            await eventually(middle, within=PATIENCE)
        finally:
            slow.end(signal.SIGKILL)
        frame, _ = await Frames(bus).load("q")
        assert not frame.complete
        assert len(await Items(bus).all("q")) < SIZE
    # What comes meanwhile is not what the queue was begun with.
    await bus.create(outgoing(outcome("later")))

    again = service(nats_server.url, tmp_path)
    again.start()
    try:

        async def complete() -> bool:
            return (await Frames(bus).load("q"))[0].complete

        await eventually(complete, within=PATIENCE)
    finally:
        again.end(signal.SIGTERM)
    await check_drawn_once(bus, events)


async def check_drawn_once(bus: Bus, events: list[ResponseScored]) -> None:
    """As an undisturbed service draws: the same items with the same probabilities, and every answer is
    counted once."""
    spec = await Queues(bus).find("q")
    poisson: SequentialPoisson[str] = SequentialPoisson(SIZE)
    for event in events:
        poisson.add(event.key, measure(spec, event), position(spec, event.key), event.key)
    items = await Items(bus).all("q")
    assert len(items) == SIZE
    assert {one.key: one.probability for one in items} == pytest.approx(dict(poisson.drawn()))
    if spec.rule == "random":
        assert {one.probability for one in items} == {SIZE / ANSWERS}
    frame, _ = await Frames(bus).load("q")
    assert (frame.size, frame.drawn) == (ANSWERS, SIZE)
    (sums,) = [one for key, one in frame.sums.items() if key[4] == ALL]
    refuted, decided = (sum(facts_of(event)[ALL][at] for event in events) for at in (0, 1))
    assert (sums.plain.numerator, sums.plain.denominator) == (refuted, decided)
