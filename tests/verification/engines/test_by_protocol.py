"""Each protocol's claims are judged by the engine that is set for it, under that one's name."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from groundwatch.errors import GroundwatchError, SettingsError
from groundwatch.events import Claim, ClaimsExtracted, Decision, Judge, Reference, ResponseRecorded, Usage
from groundwatch.models.engines import LlmEngine
from groundwatch.models.openai import ChatModel
from groundwatch.models.settings import ChatSettings
from groundwatch.protocols.base import EvaluationProtocol
from groundwatch.protocols.faithscore.protocol import FaithScore
from groundwatch.protocols.pope.protocol import Pope
from groundwatch.protocols.trihe.protocol import TriHe
from groundwatch.runtime.settings import StageSettings
from groundwatch.runtime.settings.judges import EngineSettings
from groundwatch.verification.engines import build
from groundwatch.verification.engines.base import LOOPS, GatheringEngine, NoopVerificationEngine, Verification
from groundwatch.verification.engines.by_protocol import EngineByProtocol
from groundwatch.verification.engines.similarity import SimilarityEngine

CHAT = ChatSettings(base_url="http://judge/v1", model="m", concurrency=3)


async def no_image(name: str) -> tuple[bytes, str]:
    raise LookupError(name)


def made(**settings: object) -> EngineByProtocol:
    return build(StageSettings(**settings), load_image=no_image)


async def test_without_a_setting_each_protocol_has_its_own() -> None:
    engine = made()
    assert (engine.judges, engine.batch) == (2, 64)
    assert engine.judge(TriHe()).engine == "calibrated"
    assert isinstance(engine.of(TriHe()), SimilarityEngine)
    assert engine.judge(FaithScore()) == made(engine="reference").judge(FaithScore())
    claim = Claim(text="There is a cat.", category="entity")
    response = ResponseRecorded(id="1", model="m", answer="x", reference=Reference(objects=("cat",)))
    judge = Judge(engine="t")
    event = ClaimsExtracted(response=response, protocol="faithscore", judge=judge, claims=(claim,))
    (found,) = await engine.verify([event], FaithScore())
    assert found.verdicts[0].decision is Decision.SUPPORTED
    await engine.close()


def test_what_waits_for_a_server_is_asked_one_by_one() -> None:
    own = {"pope": EngineSettings(engine="visual", llm=CHAT.model_copy(update={"model": "other"}))}
    engine = made(engine="visual", llm=CHAT, protocols=own)
    judges = [engine.judge(one) for one in (FaithScore(), Pope(), TriHe())]
    assert [(one.engine, one.model) for one in judges[:2]] == [("visual", "m"), ("visual", "other")]
    assert judges[2].engine == "calibrated" and len({one.fingerprint for one in judges}) == 3
    assert (engine.batch, engine.at_once, engine.judges) == (1, 6 + LOOPS, 4), (
        "AMBER's relations by the truth"
    )
    shared = made(engine="llm", llm=CHAT)
    assert shared.of(FaithScore()) is shared.of(TriHe()) is not shared.of(Pope())
    assert (shared.batch, shared.at_once, shared.judges) == (1, 3 + LOOPS, 2), "DASH-B is asked of no LLM"
    prompts = {shared.judge(one).prompt for one in (FaithScore(), TriHe())}
    assert len(prompts) == 2, "each is asked in its own words"


class Own(EvaluationProtocol):
    name = "own"
    route = FaithScore.route
    verifiers = (f"{__name__}:OwnEngine",)


class OwnEngine(SimilarityEngine):
    def judge(self, protocol: EvaluationProtocol) -> Judge:
        return Judge(engine="own")


@pytest.mark.parametrize("engine", ["", "reference", "similarity"])
def test_a_protocol_brings_an_engine_of_its_own(engine: str) -> None:
    assert made(engine=engine).judge(Own()) == Judge(engine="own")
    assert Own().why_not("reference") == f"reference cannot judge own: use {__name__}:OwnEngine"


class Computing(NoopVerificationEngine):
    """Computes for a moment; an answer of "bad" breaks its batch."""

    batch = 8

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    async def verify(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Verification | GroundwatchError]:
        self.batches.append([event.response.id for event in extracted])
        await asyncio.sleep(0.01)
        if any(event.response.answer == "bad" for event in extracted):
            raise ValueError("bad")
        return [Verification(usage=Usage(input_tokens=int(event.response.id))) for event in extracted]


def asked_of(number: int, answer: str = "x") -> list[ClaimsExtracted]:
    response = ResponseRecorded(id=str(number), model="m", answer=answer)
    return [ClaimsExtracted(response=response, protocol="faithscore", judge=Judge(engine="t"))]


async def test_beside_one_that_waits_an_engine_that_computes_keeps_its_batches() -> None:
    computing = Computing()
    waiting = LlmEngine(ChatModel(CHAT))
    engines = {"llm": waiting, "": computing}
    settings = StageSettings(engine="noop", protocols={"pope": EngineSettings(engine="llm", llm=CHAT)})
    engine = EngineByProtocol(settings, lambda section, needed: engines.get(section.engine, computing))
    assert (engine.batch, engine.of(Pope()), engine.of(FaithScore())) == (1, waiting, computing)
    found = await asyncio.gather(*(engine.verify(asked_of(one), FaithScore()) for one in range(20)))
    assert [one.usage.input_tokens for (one,) in found] == list(range(20))
    assert list(map(len, computing.batches)) == [8, 8, 4]
    await engine.close()


async def test_of_a_batch_that_breaks_each_has_its_own_error() -> None:
    engine = GatheringEngine(Computing())
    calls = (engine.verify(asked_of(one, "bad" if one == 5 else "x"), FaithScore()) for one in range(8))
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(one, ValueError) for one in found] == [one == 5 for one in range(8)]


async def test_a_call_that_is_given_up_holds_up_no_other() -> None:
    engine = GatheringEngine(computing := Computing())
    calls = [asyncio.ensure_future(engine.verify(asked_of(one), FaithScore())) for one in range(12)]
    await asyncio.sleep(0.005)
    for given_up in (0, 3, 9):
        calls[given_up].cancel()
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert [number for number, one in enumerate(found) if isinstance(one, BaseException)] == [0, 3, 9]
    assert computing.batches[0] == [str(one) for one in range(8)]


def test_an_engine_that_nobody_knows() -> None:
    with pytest.raises(SettingsError, match=r"'verification.engine': no engine 'eyes'; known are embedded"):
        made(engine="eyes")


@pytest.mark.parametrize("named", ["no.such.module:Engine", "math:pi", "collections:Counter"])
def test_an_engine_of_ones_own_that_is_none_is_told_with_its_setting(named: str) -> None:
    with pytest.raises(SettingsError, match=rf"^setting 'verification.engine': '{named}' "):
        made(engine=named)
