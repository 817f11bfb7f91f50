"""Dead letters: whole, with their reason, and sent again without touching anything else."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from tests.runtime.conftest import eventually, record, response
from tests.support.cooling import cool
from tests.support.registering import registered

from groundwatch.archive.cold import cold_events
from groundwatch.archive.events import Message
from groundwatch.archive.outcomes import row_of
from groundwatch.errors import GroundwatchError, InputError, TransientError
from groundwatch.events import (
    REPLACEABLE,
    ClaimsExtracted,
    OutcomeKind,
    ResponseRecorded,
    ResponseScored,
    Usage,
)
from groundwatch.extraction.engines.base import Extraction, NoopExtractionEngine
from groundwatch.extraction.service import ExtractionService
from groundwatch.ledger.ledger import audit
from groundwatch.protocols import registry
from groundwatch.runtime.delivery import outcomes
from groundwatch.runtime.delivery.bus import Bus, Outgoing, Stored
from groundwatch.runtime.delivery.dead_letters import DeadLetter, dead_letters, send_again
from groundwatch.runtime.delivery.outcomes import replace_dead, without_score
from groundwatch.runtime.settings import ArchiveSettings, RetrySettings, Settings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.scoring.service import ScoringService
from groundwatch.topology import (
    DEAD,
    HEADER_ORIGIN,
    HEADER_PROTOCOLS,
    HEADER_REASON,
    HEADER_REPLACED,
    OUTCOMES,
    RESPONSES,
    RETRY,
    subject_of,
)
from groundwatch.verification.engines.base import NoopVerificationEngine, Verification
from groundwatch.verification.service import VerificationService

FAST = Settings(retry=RetrySettings(attempts=2, first_delay=0.02, max_delay=0.05))


class MendableEngine(NoopExtractionEngine):
    """Fails on the protocols that it is told to until it is mended."""

    def __init__(self) -> None:
        self.broken: set[str] = set()
        self.asked: list[tuple[str, str]] = []

    async def extract(
        self, responses: Sequence[ResponseRecorded], protocol: Any
    ) -> Sequence[Extraction | GroundwatchError]:
        self.asked += [(one.id, protocol.name) for one in responses]
        if protocol.name in self.broken:
            return [InputError("cannot read this") for _ in responses]
        return await super().extract(responses, protocol)


class HesitantEngine(NoopVerificationEngine):
    """Fails as often as it is told to, in a way that passes."""

    def __init__(self) -> None:
        self.failing = 0

    async def verify(
        self, extracted: Sequence[ClaimsExtracted], protocol: Any
    ) -> Sequence[Verification | GroundwatchError]:
        if self.failing:
            self.failing -= 1
            return [TransientError("not now") for _ in extracted]
        return await super().verify(extracted, protocol)


class Line:
    """Extraction, verification and scoring in this process."""

    def __init__(self, bus: Bus, engine: MendableEngine) -> None:
        self.bus = bus
        self.engine = engine
        self.verifier = HesitantEngine()
        self.metrics = Metrics()

    async def idle(self) -> bool:
        ledger = await audit(self.bus.js)
        return not ledger.in_flight and not (await self.bus.js.stream_info(RETRY)).state.messages

    async def letters(self) -> list[DeadLetter]:
        return [letter async for letter in dead_letters(self.bus)]

    async def outcome(self, event: ResponseRecorded, protocol: str = "faithscore") -> ResponseScored:
        found = await self.bus.js.get_last_msg(OUTCOMES, subject_of("outcome", "live", protocol, event.key))
        return msgspec.json.decode(found.data or b"", type=ResponseScored)


@pytest.fixture
def other_protocol():
    """A second protocol, so that a response can fail for one and not for the other."""
    original = registry.get("faithscore")

    class Other(type(original)):
        name = "other"

    with registered(Other()):
        yield "other"


@pytest.fixture
async def line(bus: Bus, clean_streams: None):
    engine = MendableEngine()
    made = Line(bus, engine)
    services = [
        ExtractionService(FAST, bus, made.metrics, engine),
        VerificationService(FAST, bus, made.metrics, made.verifier),
        ScoringService(FAST, bus, made.metrics),
    ]
    for service in services:
        await service.start()
    yield made
    for service in services:
        await service.drain(0.05)


async def test_sent_again_it_replaces_just_the_outcome_that_stood_for_it(line: Line) -> None:
    line.engine.broken.add("faithscore")
    dead = response("dead")
    await record(line.bus, dead)
    await eventually(line.idle)
    line.engine.broken.clear()
    alive = response("alive")
    await record(line.bus, alive)
    await eventually(line.idle)
    untouched = await line.outcome(alive)
    assert (await line.outcome(dead)).reason == "dead_letter"
    assert "extraction: cannot read this" in (await line.outcome(dead)).detail

    (letter,) = await line.letters()
    assert (letter.stage, letter.reason, letter.retries) == ("extraction", "bad_input: cannot read this", 0)
    assert msgspec.json.decode(letter.payload, type=ResponseRecorded) == dead
    await send_again(line.bus, letter)
    await eventually(line.idle)
    assert (await line.outcome(dead)).outcome is OutcomeKind.SCORED
    assert await line.outcome(alive) == untouched
    assert await line.letters() == []
    ledger = await audit(line.bus.js)
    assert (ledger.recorded, ledger.scored, ledger.dead_letters) == (2, 2, 0)
    assert ledger.balanced


async def test_what_follows_from_a_letter_is_judged_however_often_it_is_delivered(line: Line) -> None:
    """The outcome that stands for the letter says nothing of the stages after the one that buried it."""
    line.engine.broken.add("faithscore")
    dead = response("dead")
    await record(line.bus, dead)
    await eventually(line.idle)
    line.engine.broken.clear()
    line.verifier.failing = 1
    (letter,) = await line.letters()
    await send_again(line.bus, letter)

    async def scored() -> bool:
        return (await line.outcome(dead)).outcome is OutcomeKind.SCORED

    await eventually(scored)
    assert line.verifier.failing == 0


async def test_fails_again_and_is_kept_again(line: Line) -> None:
    line.engine.broken.add("faithscore")
    await record(line.bus, response("dead"))
    await eventually(line.idle)
    for retries in range(3):
        (letter,) = await line.letters()
        assert letter.retries == retries
        await send_again(line.bus, letter)

        async def buried_again() -> bool:
            return bool(await line.letters()) and await line.idle()

        await eventually(buried_again)
    assert (await audit(line.bus.js)).balanced


async def test_sent_twice_it_is_done_once(line: Line) -> None:
    line.engine.broken.add("faithscore")
    dead = response("dead")
    await record(line.bus, dead)
    await eventually(line.idle)
    line.engine.broken.clear()
    line.engine.asked.clear()
    (letter,) = await line.letters()
    await send_again(line.bus, letter)
    with pytest.raises(Exception, match=r"no message found|NotFound"):
        await send_again(line.bus, letter)
    await eventually(line.idle)
    assert line.engine.asked == [("dead", "faithscore")]


async def test_of_several_protocols_only_the_failed_is_judged_again(line: Line, other_protocol: str) -> None:
    line.engine.broken.add(other_protocol)
    event = response("both", protocols=("faithscore", other_protocol))
    await record(line.bus, event)
    await eventually(line.idle)
    assert (await line.outcome(event)).outcome is OutcomeKind.SCORED
    assert (await line.outcome(event, other_protocol)).reason == "dead_letter"
    (letter,) = await line.letters()
    assert letter.protocols == (other_protocol,)
    line.engine.broken.clear()
    line.engine.asked.clear()
    await send_again(line.bus, letter)
    await eventually(line.idle)
    assert line.engine.asked == [("both", other_protocol)]
    assert (await line.outcome(event, other_protocol)).outcome is OutcomeKind.SCORED
    assert (await audit(line.bus.js)).balanced


async def test_an_unknown_protocol_has_its_outcome(line: Line) -> None:
    event = response("odd", protocols=("faithscore", "nonesuch"))
    await record(line.bus, event)
    await eventually(line.idle)
    assert (await line.outcome(event)).outcome is OutcomeKind.SCORED
    found = await line.outcome(event, "nonesuch")
    assert (found.outcome, found.reason) == (OutcomeKind.UNSCORED, "dead_letter")
    assert (await audit(line.bus.js)).balanced


async def test_a_letter_nobody_could_read_is_judged_in_full_once_it_reads(line: Line) -> None:
    event = response("unread", protocols=("faithscore",), declined={})
    await record(line.bus, event, payload=b"not yet")
    await eventually(line.idle)
    (letter,) = await line.letters()
    mended = msgspec.structs.replace(letter, payload=msgspec.json.encode(event), protocols=())
    await send_again(line.bus, mended)
    await eventually(line.idle)
    assert (await line.outcome(event)).outcome is OutcomeKind.SCORED


async def test_a_declined_protocol_of_an_unreadable_letter_is_declined_in_the_end(line: Line) -> None:
    event = response("declined", declined={"faithscore": "sampled_out"})
    await record(line.bus, event, payload=b"not yet")
    await eventually(line.idle)
    (letter,) = await line.letters()
    await send_again(line.bus, msgspec.structs.replace(letter, payload=msgspec.json.encode(event)))
    await eventually(line.idle)
    found = await line.outcome(event)
    assert (found.outcome, found.reason) == (OutcomeKind.DECLINED, "sampled_out")


async def buried(line: Line, number: int) -> bool:
    return len(await line.letters()) == number


async def test_lists_oldest_first_with_what_people_need(line: Line) -> None:
    for number in range(3):
        await record(line.bus, response(f"bad-{number}"), payload=b"{%d" % number)
        # Several loops take them, so that two at once may change places.
        await eventually(functools.partial(buried, line, number + 1))
    letters = await line.letters()
    assert [letter.payload for letter in letters] == [b"{0", b"{1", b"{2"]
    assert letters == sorted(letters, key=lambda letter: letter.sequence)
    assert {letter.stage for letter in letters} == {"extraction"}
    assert all(letter.subject.startswith("gw.recorded.live.") and letter.time > 0 for letter in letters)
    assert (await line.bus.js.stream_info(DEAD)).state.messages == 3


@pytest.fixture
def outcome() -> Callable[..., Any]:
    """An outcome's message, by its reason; without one it is a score."""

    def make(reason: str = "", detail: str = "") -> Any:
        kind = OutcomeKind.UNSCORED if reason else OutcomeKind.SCORED
        scored = without_score(response("r"), "faithscore", kind, reason, detail=detail, usage=Usage())
        return outcomes.outgoing(scored)

    return make


@pytest.mark.parametrize("reason", REPLACEABLE)
async def test_a_score_replaces_what_stood_for_a_dead_letter(
    bus: Bus, clean_streams: None, outcome: Callable[..., Any], reason: str
) -> None:
    assert await bus.create(outcome(reason)) is Stored.NEW
    score = outcome()
    assert await bus.create(score) is Stored.EXISTED
    assert await replace_dead(bus, score) is Stored.NEW
    state = (await bus.js.stream_info(OUTCOMES)).state
    assert state.messages == 1
    # And once there, nothing takes its place.
    for message in (outcome(reason), outcome("refused"), score):
        assert await replace_dead(bus, message) is Stored.EXISTED
    found = await bus.js.get_last_msg(OUTCOMES, score.subject)
    assert HEADER_REASON not in (found.headers or {})


async def test_a_real_outcome_is_never_replaced(
    bus: Bus, clean_streams: None, outcome: Callable[..., Any]
) -> None:
    real = outcome("nothing_to_verify")
    assert await bus.create(real) is Stored.NEW
    assert await replace_dead(bus, outcome()) is Stored.EXISTED
    found = await bus.js.get_last_msg(OUTCOMES, real.subject)
    assert (found.headers or {})[HEADER_REASON] == "nothing_to_verify"


async def test_nothing_there_to_replace(bus: Bus, clean_streams: None, outcome: Callable[..., Any]) -> None:
    assert await replace_dead(bus, outcome()) is Stored.EXISTED


async def test_cannot_look_while_the_connection_is_gone(bus_factory, outcome: Callable[..., Any]) -> None:
    lost = await bus_factory("lost")
    await lost.client.close()
    with pytest.raises(TransientError):
        await replace_dead(lost, outcome())


async def test_a_letter_whose_outcome_only_the_archive_has_replaces_it_all_the_same(
    line: Line, tmp_path
) -> None:
    line.engine.broken.add("faithscore")
    dead = response("dead")
    await record(line.bus, dead)
    await eventually(line.idle)
    url = str(tmp_path / "archive")
    for stream in (RESPONSES, OUTCOMES):
        assert await cool(line.bus, url, stream) == 1
    line.bus.cold = cold_events(ArchiveSettings(url=url))

    async def letter() -> DeadLetter | None:
        return next(iter(await line.letters()), None)

    found = await letter()
    assert found is not None
    await send_again(line.bus, found)
    # It fails once more: the outcome that stands for it is in the archive, and no second one comes.
    await eventually(letter, within=60)
    assert (await line.bus.js.stream_info(OUTCOMES)).state.messages == 0

    line.engine.broken.clear()
    found = await letter()
    assert found is not None and found.retries == 1
    await send_again(line.bus, found)

    async def scored() -> bool:
        return bool((await line.bus.js.stream_info(OUTCOMES)).state.messages)

    await eventually(scored, within=60)
    [told] = [read async for read in line.bus.history.read(OUTCOMES)]
    assert (told.sequence, told.headers[HEADER_REPLACED]) == (2, "dead_letter")
    assert row_of(told, 1).supersedes == Message(stream=OUTCOMES, created=1, read=told).supersedes == 1
    assert (await line.outcome(dead)).outcome is OutcomeKind.SCORED

    # A letter that is left of a crash has nothing to be done for any more, however old its outcome is.
    await cool(line.bus, url, OUTCOMES)
    await line.bus.create(
        msgspec.structs.replace(
            Outgoing(subject=found.subject.replace("recorded", "dead.extraction"), payload=found.payload),
            headers={HEADER_ORIGIN: found.subject, HEADER_PROTOCOLS: "faithscore", HEADER_REASON: "bug: x"},
        )
    )
    found = await letter()
    assert found is not None
    await send_again(line.bus, found)
    assert await letter() is None
    assert (await line.bus.js.stream_info(RETRY)).state.messages == 0
