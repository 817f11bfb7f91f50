"""Matching by an LLM over real HTTP, with scripted replies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.llm_server import LlmServer, running

from groundwatch.errors import GroundwatchError, InputError, SettingsError, Unscorable
from groundwatch.events import Claim, ClaimsExtracted, Judge, Match, Reference, ResponseRecorded, Usage
from groundwatch.matching.engines import LlmMatchingEngine, Matching, build
from groundwatch.models.openai import ChatModel, Completion
from groundwatch.models.settings import ChatSettings
from groundwatch.protocols import registry
from groundwatch.protocols.base import EvaluationProtocol, Stage
from groundwatch.runtime.settings import StageSettings

OBJECTS = registry.get("valor-object-existence")

GOOD = {"matches": [{"described": 0, "annotated": 1, "kind": "matched"}]}
EVENT = ClaimsExtracted(
    response=ResponseRecorded(id="1", model="m", answer="", reference=Reference(objects=("lamp", "sofa"))),
    protocol="valor-object-existence",
    judge=Judge(engine="test"),
    claims=(Claim(text="couch", category="object"),),
)


@pytest.fixture
def server() -> Iterator[LlmServer]:
    with running() as started:
        yield started


async def match(
    server: LlmServer,
    script: str,
    objects: tuple[str, ...] = ("lamp", "sofa"),
    claims: tuple[str, ...] = ("couch",),
    protocol: EvaluationProtocol | None = None,
) -> Matching | GroundwatchError:
    chat = ChatModel(
        ChatSettings(base_url=server.base_url, model=script, first_wait=0.01, patience=0.5, retries=0)
    )
    engine = LlmMatchingEngine(chat)
    event = ClaimsExtracted(
        response=ResponseRecorded(id="1", model="m", answer="", reference=Reference(objects=objects)),
        protocol="valor-object-existence",
        judge=Judge(engine="test"),
        claims=tuple(Claim(text=text, category="object") for text in claims),
    )
    try:
        (result,) = await engine.match([event], protocol or OBJECTS)
    finally:
        await engine.close()
    return result


class Scripted(ChatModel):
    """Replies what it was made with, once the question's own check lets it through."""

    variant = ""

    def __init__(self, reply: object) -> None:
        self.reply = reply

    @property
    def model(self) -> str:
        return "scripted"

    async def complete(self, step, images=(), *, check=None) -> Completion:
        assert "sofa" in step.user and "couch" in step.user
        assert check is not None
        check(self.reply)
        return Completion(reply=self.reply, usage=Usage(calls=1))

    async def close(self) -> None:
        return None


async def test_a_reply_becomes_matches() -> None:
    engine = LlmMatchingEngine(Scripted(GOOD))
    (result,) = await engine.match([EVENT], OBJECTS)
    assert isinstance(result, Matching)
    assert result.matches == (Match(claim=0, reference="sofa"),) and result.usage.calls == 1
    assert engine.judge(OBJECTS).prompt == OBJECTS.prompt_digest(Stage.MATCHING)


async def test_a_reply_of_another_form_is_no_judgement(server: LlmServer) -> None:
    result = await match(server, "wrongschema")
    assert isinstance(result, Unscorable) and result.reason == "unparsable_reply"


async def test_what_needs_no_call_makes_none(server: LlmServer) -> None:
    assert await match(server, "500", claims=()) == Matching()
    bare = await match(server, "500", objects=())
    assert isinstance(bare, Unscorable) and bare.reason == "no_reference"
    other = await match(server, "500", protocol=registry.get("faithscore"))
    assert isinstance(other, InputError)


def test_the_engine_needs_its_settings() -> None:
    with pytest.raises(SettingsError, match=r"matching\.llm"):
        build(StageSettings().model_copy(update={"engine": "llm"}))
