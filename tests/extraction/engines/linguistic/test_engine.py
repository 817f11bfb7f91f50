from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("sentence_transformers")
pytest.importorskip("textblob")

from groundwatch.errors import InputError, MissingExtraError, Unscorable
from groundwatch.events import Label, ResponseRecorded
from groundwatch.extraction.engines.base import Extraction
from groundwatch.extraction.engines.linguistic import engine as module
from groundwatch.extraction.engines.linguistic.engine import LinguisticEngine
from groundwatch.protocols import registry

FAITHSCORE = registry.get("faithscore")
ODD = [
    "",
    "...",
    "😀",
    "\ud800 \udfff",
    "\x00\x07\x1b",
    "שלום עולם، כלב",
    "一只狗。",
    "word " * 20_000,
    ",a" * 3_000,
]


@pytest.fixture(scope="module")
def engine() -> LinguisticEngine:
    return LinguisticEngine()


def responses(*answers: str) -> list[ResponseRecorded]:
    return [ResponseRecorded(id=str(index), model="m", answer=answer) for index, answer in enumerate(answers)]


async def test_finds_labelled_units_and_their_facts(engine: LinguisticEngine) -> None:
    answer = "A man is holding a red kite, which suggests that he might be enjoying his day."
    (found,) = await engine.extract(responses(answer), FAITHSCORE)
    assert isinstance(found, Extraction)
    assert [unit.label for unit in found.units] == [Label.DESCRIPTIVE, Label.ANALYTICAL]
    for unit in found.units:
        assert answer[unit.start : unit.end] == unit.text
        assert unit.confidence is not None
        assert 0.5 <= unit.confidence <= 1.0
    assert "The man is holding a kite." in [claim.text for claim in found.claims]
    assert {claim.unit for claim in found.claims} == {0}


async def test_a_batch_gives_what_each_answer_gives_alone(engine: LinguisticEngine) -> None:
    batch = responses("There are two cats on a sofa.", *ODD, "The bus is parked near a tree.")
    together = await engine.extract(batch, FAITHSCORE)
    assert len(together) == len(batch)
    for response, found in zip(batch, together, strict=True):
        (alone,) = await engine.extract([response], FAITHSCORE)
        assert isinstance(found, Extraction)
        assert isinstance(alone, Extraction)
        assert found.claims == alone.claims
        assert [unit.text for unit in found.units] == [unit.text for unit in alone.units]


async def test_no_responses_give_no_results(engine: LinguisticEngine) -> None:
    assert list(await engine.extract([], FAITHSCORE)) == []


async def test_an_endless_answer_is_unscorable_and_leaves_the_others_alone(engine: LinguisticEngine) -> None:
    endless, fine = await engine.extract(responses("a, " * 6_000, "A dog runs."), FAITHSCORE)
    assert isinstance(endless, Unscorable)
    assert endless.reason == "answer_too_long"
    assert isinstance(fine, Extraction)


async def test_a_protocol_without_rules_is_an_input_error(engine: LinguisticEngine) -> None:
    results = await engine.extract(responses("A dog."), registry.get("genception"))
    assert [type(result) for result in results] == [InputError]


async def test_the_event_loop_stays_free(engine: LinguisticEngine) -> None:
    ticks = 0
    task = asyncio.ensure_future(
        engine.extract(responses(*(f"A bird sits on {n} wires." for n in range(64))), FAITHSCORE)
    )
    while not task.done():
        await asyncio.sleep(0.001)
        ticks += 1
    assert ticks > 1
    await engine.close()


def test_the_judge_names_rules_model_and_coefficients(engine: LinguisticEngine) -> None:
    judge = engine.judge(FAITHSCORE)
    assert (judge.engine, judge.model) == ("linguistic", "all-MiniLM-L6-v2")
    assert judge.version.startswith(module.VERSION + "+")


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"groundwatch\[embedded\]"):
        LinguisticEngine()
