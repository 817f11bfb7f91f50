"""A protocol's own list matches for it; every other protocol is the engine's."""

from __future__ import annotations

import pytest

from groundwatch.errors import InputError, Unscorable
from groundwatch.events import ClaimsExtracted, Judge, Match, Reference, ResponseRecorded
from groundwatch.extraction.engines.base import Extraction, NoopExtractionEngine
from groundwatch.matching.engines import Matching, build
from groundwatch.protocols import registry
from groundwatch.protocols.chair.protocol import read
from groundwatch.runtime.settings import StageSettings

CHAIR = registry.get("chair")


def extracted(answer: str, *objects: str) -> ClaimsExtracted:
    response = ResponseRecorded(id="1", model="m", answer=answer, reference=Reference(objects=objects))
    return ClaimsExtracted(
        response=response, protocol="chair", judge=Judge(engine="test"), claims=read(answer)[1]
    )


@pytest.mark.parametrize("engine", ["lexical", "semantic"])
async def test_chair_is_matched_by_its_list_whichever_engine_is_named(engine: str) -> None:
    built = build(StageSettings(engine=engine))
    found = await built.match([extracted("An animal near a puppy.", "dog"), extracted("A cat.")], CHAIR)
    assert found[0] == Matching(matches=(Match(claim=0, reference="dog"),))
    assert isinstance(found[1], Unscorable) and found[1].reason == "no_reference"
    assert built.judge(CHAIR).engine == "chair"
    assert built.judge(registry.get("valor-object-existence")).engine == engine
    await built.close()


async def test_what_another_engine_extracted_for_chair_is_refused_in_one_line() -> None:
    answer = "There is a dog."
    response = ResponseRecorded(id="1", model="m", answer=answer, reference=Reference(objects=("dog",)))
    (found,) = await NoopExtractionEngine().extract([response], CHAIR)
    assert isinstance(found, Extraction)
    event = ClaimsExtracted(
        response=response, protocol="chair", judge=Judge(engine="noop"), claims=found.claims
    )
    built = build(StageSettings(engine="lexical"))
    refused, taken = await built.match([event, extracted("A puppy.", "dog")], CHAIR)
    assert isinstance(refused, InputError)
    assert str(refused) == "chair finds objects by its list of words: extract with engine reader"
    assert isinstance(taken, Matching)
    await built.close()
