"""Protocols of one response are judged side by side: what one of them meets costs the others nothing."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest
from tests.runtime.conftest import FAST, eventually, record, response

from groundwatch.errors import GroundwatchError, InputError, TransientError, Unavailable, Unscorable
from groundwatch.events import Judge, ResponseRecorded
from groundwatch.extraction.engines.base import Extraction
from groundwatch.extraction.service import ExtractionService
from groundwatch.protocols.base import EvaluationProtocol
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.dead_letters import DeadLetter, dead_letters, send_again
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import EXTRACTED, HEADER_REASON, OUTCOMES, RESPONSES, subject_of

PROTOCOLS = ("faithscore", "chair", "tri-he")
Behaviour = Callable[[str, int], Extraction | Exception]


class Scripted:
    """An engine that does as `behave(protocol, times asked)` says; what is no result is raised."""

    batch = 1
    languages = None

    def __init__(self, behave: Behaviour) -> None:
        self.behave = behave
        self.asked: Counter[str] = Counter()

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        return Judge(engine="scripted")

    async def extract(
        self, responses: Sequence[ResponseRecorded], protocol: EvaluationProtocol
    ) -> Sequence[Extraction | GroundwatchError]:
        self.asked[protocol.name] += 1
        found = self.behave(protocol.name, self.asked[protocol.name])
        if isinstance(found, Exception) and not isinstance(found, GroundwatchError):
            raise found
        return [found for _ in responses]

    async def close(self) -> None:
        pass


Start = Callable[[Behaviour], Awaitable[Scripted]]


@pytest.fixture
async def start(bus: Bus, clean_streams: None) -> AsyncIterator[Start]:
    async with contextlib.AsyncExitStack() as stack:

        async def make(behave: Behaviour) -> Scripted:
            engine = Scripted(behave)
            service = ExtractionService(Settings(retry=FAST), bus, Metrics(), engine)
            await service.start()
            stack.push_async_callback(service.drain, 0.05)
            return engine

        yield make


async def settled(bus: Bus) -> bool:
    """Whether every response recorded and every letter sent again is done with.

    By position, not by what is pending: the server tells a consumer of a new message after it has
    acknowledged that message to its sender.
    """
    recorded = (await bus.js.stream_info(RESPONSES)).state.last_seq
    done = (await bus.js.consumer_info(RESPONSES, "extraction")).ack_floor.stream_seq
    return done >= recorded and not (await bus.js.stream_info("GW_RETRY")).state.messages


async def letters(bus: Bus) -> list[DeadLetter]:
    return [letter async for letter in dead_letters(bus)]


async def reason_of(bus: Bus, protocol: str) -> str:
    found = await bus.js.get_last_msg(OUTCOMES, subject_of("outcome", "live", protocol, response("r").key))
    return (found.headers or {}).get(HEADER_REASON, "")


def sometimes(trouble: Exception, times: int) -> Behaviour:
    """faithscore is refused, chair is done, and tri-he meets this trouble so often."""

    def behave(protocol: str, asked: int) -> Extraction | Exception:
        if protocol == "faithscore":
            return Unscorable("refused", "I would rather not")
        return trouble if protocol == "tri-he" and asked <= times else Extraction()

    return behave


@pytest.mark.parametrize(
    "trouble",
    [TransientError("not now"), Unavailable("nobody there", judge="j", retry_after=0.05), ValueError("boom")],
)
async def test_only_the_protocol_that_failed_is_asked_again(
    bus: Bus, start: Start, trouble: Exception
) -> None:
    engine = await start(sometimes(trouble, 2))
    await record(bus, response("r", protocols=PROTOCOLS))
    await eventually(lambda: settled(bus))
    assert engine.asked == {"faithscore": 1, "chair": 1, "tri-he": 3}
    assert await reason_of(bus, "faithscore") == "refused"
    assert (await bus.js.stream_info(EXTRACTED)).state.messages == 2
    assert await letters(bus) == []


async def test_a_protocol_that_is_given_up_is_not_asked_with_the_others_next_try(
    bus: Bus, start: Start
) -> None:
    def behave(protocol: str, asked: int) -> Extraction | Exception:
        match protocol:
            case "faithscore":
                return InputError("will not have it")
            case "chair":
                return TransientError("not now")
        return Extraction()

    engine = await start(behave)
    await record(bus, response("r", protocols=PROTOCOLS))
    await eventually(lambda: settled(bus))
    assert engine.asked == {"faithscore": 1, "chair": FAST.attempts, "tri-he": 1}
    # Each has a letter that can be sent again.
    found = {letter.protocols: letter for letter in await letters(bus)}
    assert set(found) == {("faithscore",), ("chair",)}
    engine.behave = lambda protocol, asked: Extraction()
    for letter in found.values():
        await send_again(bus, letter)
    await eventually(lambda: settled(bus))
    assert (await bus.js.stream_info(EXTRACTED)).state.messages == 3
    assert engine.asked == {"faithscore": 2, "chair": FAST.attempts + 1, "tri-he": 1}


async def test_a_dead_letter_that_is_sent_again_is_asked_until_it_is_done(bus: Bus, start: Start) -> None:
    engine = await start(lambda protocol, asked: InputError("will not have it"))
    await record(bus, response("r", protocols=("faithscore",)))
    await eventually(lambda: settled(bus))
    (letter,) = await letters(bus)
    # Its outcome is in the stream, as a dead letter; that is no reason not to judge it on any delivery.
    engine.behave = lambda protocol, asked: Extraction() if asked > 3 else TransientError("not now")
    await send_again(bus, letter)
    await eventually(lambda: settled(bus))
    assert engine.asked["faithscore"] == 4
    assert (await bus.js.stream_info(EXTRACTED)).state.messages == 1


async def test_the_first_delivery_looks_nothing_up(bus: Bus, start: Start, monkeypatch) -> None:
    looked = []
    monkeypatch.setattr(bus, "headers_of", lambda *place: looked.append(place))
    await start(lambda protocol, asked: Extraction())
    await record(bus, response("r", protocols=PROTOCOLS))
    await eventually(lambda: settled(bus))
    assert looked == []
