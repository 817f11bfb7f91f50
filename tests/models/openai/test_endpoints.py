"""One fact is one request on vLLM, SGLang, Ollama and OpenAI, whether their models think or not."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.support.endpoints import EndpointServer
from tests.support.llm_server import picture

from groundwatch.errors import Unscorable
from groundwatch.models.openai import YesNo, YesNoModel
from groundwatch.models.settings import ChatSettings

IMAGE = (picture("red ball on grass"), "image/png")
FACTS = ("There is a ball.", "The ball is red.", "There is a dog.", "There is grass.")
WORDS = [True, True, False, True]
OFF = {"chat_template_kwargs": {"enable_thinking": False}}
NONE = {"reasoning_effort": "none"}


def model(server: EndpointServer, **changes: Any) -> YesNoModel:
    top = changes.pop("top_logprobs", 10)
    settings = ChatSettings(base_url=server.base_url, model="any", first_wait=0.01, retries=0, **changes)
    return YesNoModel(settings, top_logprobs=top)


def fenced(fact: str) -> str:
    return f"<<<statement 0123456789abcdef\n{fact}\n0123456789abcdef statement>>>"


async def ask(asked: YesNoModel) -> list[YesNo]:
    return await asyncio.gather(*(asked.ask("Yes or no?", fenced(fact), [IMAGE]) for fact in FACTS))


@pytest.mark.parametrize(
    ("server", "body", "learnt", "told"),
    [
        (EndpointServer("vllm"), {}, 0, True),
        (EndpointServer("vllm", thinks=True), {}, 1, True),
        (EndpointServer("vllm", thinks=True, parser=False), {}, 1, True),
        (EndpointServer("vllm", thinks=True), OFF, 0, True),
        (EndpointServer("vllm", logprobs=False), {}, 0, False),
        (EndpointServer("sglang"), {}, 0, True),
        (EndpointServer("sglang", thinks=True), {}, 1, True),
        (EndpointServer("sglang", thinks=True), OFF, 0, True),
        (EndpointServer("ollama"), {}, 0, True),
        (EndpointServer("ollama", thinks=True), {}, 1, True),
        (EndpointServer("ollama", thinks=True), NONE, 0, True),
        (EndpointServer("ollama", logprobs=False), {}, 0, False),
        (EndpointServer("ollama", logprobs=False, thinks=True), {}, 1, False),
        (EndpointServer("openai"), {}, 0, True),
        # The name of the limit and the number of alternatives.
        (EndpointServer("openai", thinks=True), NONE, 2, True),
        # The name of the limit, temperature, and log-probabilities, of which there are none.
        (EndpointServer("openai", thinks=True), {}, 3, False),
    ],
    ids=lambda one: f"{one.kind}{'-thinks' * one.thinks}" if isinstance(one, EndpointServer) else None,
)
async def test_a_fact_is_one_request(
    server: EndpointServer, body: dict[str, Any], learnt: int, told: bool
) -> None:
    with server:
        asked = model(server, extra_body=body)
        first = await ask(asked)
        assert [one.yes for one in first] == WORDS
        assert [one.probability for one in first] == [
            pytest.approx(0.9 if word else 0.1) if told else None for word in WORDS
        ]
        assert len(server.requests) == len(FACTS) + learnt
        # What the first had to learn, it used.
        assert sum(one.usage.calls for one in first) == len(FACTS) + (
            learnt if server.kind != "openai" else 0
        )
        again = await ask(asked)
        await asked.close()
        assert again[1:] == first[1:]
        assert len(server.requests) == 2 * len(FACTS) + learnt
        limits = {
            request.get("max_tokens", request.get("max_completion_tokens"))
            for request in server.requests[-4:]
        }
        thinks = server.thinks and not body
        assert limits == {4096 if thinks or (server.kind == "openai" and not told) else 8}


async def test_the_first_fact_goes_alone_and_the_others_with_what_it_learnt() -> None:
    with EndpointServer("vllm", thinks=True) as server:
        asked = model(server)
        await ask(asked)
        await asked.close()
        assert [request["max_tokens"] for request in server.requests] == [8, 4096, 4096, 4096, 4096]


async def test_more_alternatives_than_a_server_tells_are_not_asked_for_again() -> None:
    with EndpointServer("vllm") as server:
        asked = model(server, top_logprobs=21)
        assert [one.probability for one in await ask(asked)] == pytest.approx([0.9, 0.9, 0.1, 0.9])
        await asked.close()
        assert [request["top_logprobs"] for request in server.requests] == [21, 5, 5, 5, 5]


@pytest.mark.parametrize("thinks", [False, True])
@pytest.mark.parametrize("kind", ["vllm", "sglang", "ollama", "openai"])
async def test_all_facts_in_one_request(kind: Any, thinks: bool) -> None:
    question = "\n".join(f"{at}: {json.dumps(fact)}" for at, fact in enumerate(FACTS, 1))
    fence = f"<<<statements 0123456789abcdef\n{question}\n0123456789abcdef statements>>>"
    with EndpointServer(kind, thinks=thinks) as server:
        asked = model(server)
        for _ in range(2):
            found, usage = await asked.ask_all("Yes or no?", fence, [IMAGE], len(FACTS))
            assert [one.yes for one in found if isinstance(one, YesNo)] == WORDS
            likely = [one.probability for one in found if isinstance(one, YesNo)]
            told = kind != "openai" or not thinks
            assert likely == [pytest.approx(0.9 if word else 0.1) if told else None for word in WORDS]
        assert usage.calls == 1
        short, _ = await asked.ask_all("Yes or no?", fence, [IMAGE], len(FACTS) + 1)
        assert isinstance(short[-1], Unscorable) and short[-1].reason == "unparsable_reply"
        await asked.close()
        # What OpenAI's reasoning models refuse is learnt once; the schema holds for all.
        assert len(server.requests) == 3 + (3 if kind == "openai" and thinks else 0)
        assert all("response_format" in request for request in server.requests)


async def test_a_model_that_does_not_see_says_so() -> None:
    with EndpointServer("ollama", sees=False) as server:
        asked = model(server)
        with pytest.raises(Unscorable, match="does not support image input"):
            await asked.ask("Yes or no?", fenced(FACTS[0]), [IMAGE])
        await asked.close()
        assert len(server.requests) == 1
