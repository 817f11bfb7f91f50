"""Each protocol's claims are judged by the engine that is set for it, under that one's name."""

from __future__ import annotations

import pytest

from groundwatch.errors import SettingsError
from groundwatch.events import Claim, ClaimsExtracted, Decision, Judge, Reference, ResponseRecorded
from groundwatch.models.settings import ChatSettings
from groundwatch.protocols.base import EvaluationProtocol
from groundwatch.protocols.faithscore.protocol import FaithScore
from groundwatch.protocols.pope.protocol import Pope
from groundwatch.protocols.trihe.protocol import TriHe
from groundwatch.runtime.settings import StageSettings
from groundwatch.runtime.settings.judges import EngineSettings
from groundwatch.verification.engines import build
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
    assert engine.judge(TriHe()).engine == "similarity"
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
    assert judges[2].engine == "similarity" and len({one.fingerprint for one in judges}) == 3
    assert (engine.batch, engine.at_once, engine.judges) == (1, 6, 4), "AMBER's relations by the truth"
    shared = made(engine="llm", llm=CHAT)
    assert shared.of(FaithScore()) is shared.of(Pope()) is shared.of(TriHe())
    assert (shared.batch, shared.at_once, shared.judges) == (1, 3, 2), "DASH-B is asked of no LLM"
    prompts = {shared.judge(one).prompt for one in (FaithScore(), Pope(), TriHe())}
    assert len(prompts) == 3, "each is asked in its own words"


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


def test_an_engine_that_nobody_knows() -> None:
    with pytest.raises(SettingsError, match=r"'verification.engine': no engine 'eyes'; known are embedded"):
        made(engine="eyes")
