"""One round of a chain: what the service makes of its engine's images and vectors, good and bad."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.runtime.conftest import FAST, eventually, record
from tests.support.chains import chain_response, seed_picture, similarities, store
from tests.support.fakes import StandInCaptioningEngine, StandInGenerationEngine, describe

from groundwatch.captioning.service import CaptioningService
from groundwatch.errors import InputError, TransientError
from groundwatch.events import ChainAdvanced, ChainStep, OutcomeKind, ResponseScored
from groundwatch.extraction.engines.base import NoopExtractionEngine
from groundwatch.extraction.service import ExtractionService
from groundwatch.generation.service import GenerationService
from groundwatch.ledger.ledger import audit
from groundwatch.models.replies import Generated
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import read_stream
from groundwatch.runtime.delivery.work import Result, Work
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.scoring.service import ScoringService
from groundwatch.topology import OUTCOMES


class Engine(StandInGenerationEngine):
    """A stand-in that gives `images` and `vectors` instead, where they are given."""

    def __init__(self, image: Any = None, vector: Any = None) -> None:
        self._image = image
        self._vector = vector
        self.encoded = 0
        self.asked = 0

    async def generate(self, prompts: Sequence[str]) -> Sequence[Any]:
        self.asked += len(prompts)
        made = await super().generate(prompts)
        return made if self._image is None else [self._image for _ in prompts]

    async def encode(self, images: Sequence[bytes]) -> Sequence[Any]:
        self.encoded += len(images)
        seen = await super().encode(images)
        return seen if self._vector is None else [self._vector for _ in images]


Start = Callable[[Any], Awaitable[None]]


@pytest.fixture
async def start(bus_factory: Any, clean_streams: None) -> AsyncIterator[Start]:
    """Starts a whole line with this generation engine."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(engine: Any) -> None:
            settings, bus, metrics = Settings(retry=FAST), await bus_factory("services"), Metrics()
            for service in (
                ExtractionService(settings, bus, metrics, NoopExtractionEngine()),
                CaptioningService(settings, bus, metrics, StandInCaptioningEngine()),
                GenerationService(settings, bus, metrics, engine),
                ScoringService(settings, bus, metrics),
            ):
                await service.start()
                stack.push_async_callback(service.drain, 0.05)

        yield make


async def outcome(bus: Bus) -> ResponseScored:
    """The one outcome, with a ledger that balances."""

    async def there() -> bool:
        return (await audit(bus.js)).recorded == 1 and not (await audit(bus.js)).in_flight

    await eventually(there)
    ledger = await audit(bus.js)
    assert ledger.balanced and not ledger.lost, ledger
    (found,) = [
        msgspec.json.decode(read.data, type=ResponseScored) async for read in read_stream(bus.js, OUTCOMES)
    ]
    return found


@pytest.mark.parametrize(
    ("engine", "reason"),
    [
        (Engine(image=Generated(image=b"<html>")), "unreadable_image"),
        (Engine(image=Generated(image=b"")), "unreadable_image"),
        (Engine(vector=(0.0, 0.0)), "no_similarity"),
        (Engine(vector=(float("nan"), 1.0)), "no_similarity"),
        (Engine(image=InputError("the prompt is too long")), "dead_letter"),
        (Engine(image=TransientError("out of memory")), "dead_letter"),
        (Engine(vector=TransientError("out of memory")), "dead_letter"),
        (None, "not_configured"),
    ],
)
async def test_a_bad_image_or_vector_is_never_a_score(
    bus: Bus, start: Start, engine: Engine | None, reason: str
) -> None:
    await start(engine)
    await record(bus, chain_response("c", await store(bus, seed_picture(1))))
    found = await outcome(bus)
    assert (found.outcome, found.reason, found.score) == (OutcomeKind.UNSCORED, reason, None)


async def test_the_seed_is_encoded_once(bus: Bus, start: Start) -> None:
    engine = Engine()
    await start(engine)
    await record(bus, chain_response("c", await store(bus, seed_picture(1)), tags={"t": "5"}))
    assert (await outcome(bus)).outcome is OutcomeKind.SCORED
    assert (engine.asked, engine.encoded) == (5, 6)


def chain(image: str, *descriptions: str, length: int = 3) -> ChainAdvanced:
    return ChainAdvanced(
        response=chain_response("c", image),
        protocol="genception",
        length=length,
        steps=tuple(ChainStep(description=text) for text in descriptions),
    )


async def test_a_delivery_that_was_done_is_not_done_again(bus: Bus, clean_streams: None) -> None:
    seed = seed_picture(2)
    engine = Engine()
    service = GenerationService(Settings(), bus, Metrics(), engine)
    event = chain(await store(bus, seed), describe(seed))
    arrived: Any = SimpleNamespace(first=True, delivered=1, headers={})
    (first,) = await service.handle([Work(event, arrived)])
    assert isinstance(first, Result)
    (publication,) = first.publications
    advanced = publication.payload
    assert isinstance(advanced, ChainAdvanced)
    assert advanced.steps[0].similarity == pytest.approx(similarities(seed, 1)[0])
    arrived.first, arrived.delivered = False, 2
    await service.handle([Work(event, arrived)])
    assert engine.asked == 2
    await bus.create(publication)
    assert await service.handle([Work(event, arrived)]) == [Result()]
    assert engine.asked == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": ()}, "no description"),
        ({"protocol": "faithscore"}, "no protocol of chains"),
        ({"protocol": "nonsense"}, "no protocol 'nonsense'"),
    ],
)
async def test_what_is_no_chain_goes_to_the_dead_letters(
    bus: Bus, clean_streams: None, changes: dict[str, Any], message: str
) -> None:
    service = GenerationService(Settings(), bus, Metrics(), Engine())
    event = msgspec.structs.replace(chain("a" * 64, "d"), **changes)
    arrived: Any = SimpleNamespace(delivered=1, headers={})
    (result,) = await service.handle([Work(event, arrived)])
    assert isinstance(result, InputError) and message in str(result)
