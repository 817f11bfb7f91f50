"""One fact is one request on vLLM, SGLang, Ollama and OpenAI, whether their models think or not."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.support.endpoints import EndpointServer
from tests.support.llm_server import _json, picture

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


def said(server: EndpointServer, *texts: str) -> EndpointServer:
    """One that says these in order, and the last from then on."""
    server._answered = lambda *_: texts[min(len(server.requests), len(texts)) - 1]  # type: ignore[method-assign]
    return server


@pytest.mark.parametrize(
    ("sentence", "learnt"),
    [("The statement is true.", 0), ("The statement is true, since the image shows it.", 1)],
    ids=["short", "cut_off"],
)
@pytest.mark.parametrize("odd", ["", "dog"], ids=["all", "one"])
async def test_a_sentence_is_asked_for_as_json_and_for_itself_alone(
    odd: str, sentence: str, learnt: int
) -> None:
    with EndpointServer("vllm") as server:
        answered = server._answered

        def reply(question: str, images: list[bytes], request: dict[str, Any]) -> str:
            word = answered(question, images, request)
            return word if "response_format" in request or odd not in question else sentence

        server._answered = reply  # type: ignore[method-assign]
        asked = model(server)
        for times in (1, 2):
            found = await ask(asked)
            assert [one.yes for one in found] == WORDS
            told = [one.probability is not None for one in found]
            assert told == [odd not in fact for fact in FACTS]
            # That it does not end with a word is learnt once, and the limit is raised.
            calls = len(FACTS) + told.count(False)
            assert sum(one.usage.calls for one in found) == calls + learnt * (times == 1)
            assert len(server.requests) == times * calls + learnt
        await asked.close()


@pytest.mark.parametrize(
    "thought",
    [
        "Okay, the image shows a ball, so it is there.",
        "用户现在需要判断,这个说法,是否正确,看看图,有球",
        "No wait, the statement says that the ball is there, and so it is.",
    ],
)
async def test_thoughts_whose_mark_stands_in_the_prompt_are_no_answer(thought: str) -> None:
    with said(EndpointServer("vllm"), f"{thought}\n</think>\n\nYes") as server:
        asked = model(server)
        assert [one.probability for one in await ask(asked)] == pytest.approx([0.9] * 4)
        await asked.close()
        assert [request["max_tokens"] for request in server.requests] == [8, 4096, 4096, 4096, 4096]


@pytest.mark.parametrize("text", ["Yes.", "**Yes**\n\n", "yes yes yes yes yes yes"])
async def test_a_word_alone_counts_though_more_was_to_come(text: str) -> None:
    with said(EndpointServer("vllm"), text + " \n" * 9) as server:
        asked = model(server, max_tokens=len(text.split()) * 2)
        found = await asked.ask("Yes or no?", fenced(FACTS[0]), [IMAGE])
        await asked.close()
        assert found.probability == pytest.approx(0.9) and len(server.requests) == 1


LISTED = [{"index": at, "answer": "yes" if word else "no"} for at, word in enumerate(WORDS, 1)]
LIKELY = [pytest.approx(0.9 if word else 0.1) for word in WORDS]


async def ask_all(server: EndpointServer, **changes: Any) -> tuple[list[YesNo | Unscorable], int]:
    asked = model(server, **changes)
    found, usage = await asked.ask_all("Yes or no?", "x", [IMAGE], len(FACTS))
    await asked.close()
    assert usage.calls == len(server.requests)
    return found, usage.calls


async def test_json_that_cannot_be_read_goes_back_once() -> None:
    with said(EndpointServer("vllm"), '{"answer": "perhaps"}', '{"answer": "yes"}') as server:
        asked = model(server, top_logprobs=0)
        found = await asked.ask("Yes or no?", fenced(FACTS[0]), [IMAGE])
        await asked.close()
        assert found.yes and found.usage.calls == len(server.requests) == 2
        assert "This reply cannot be used" in server.requests[1]["messages"][-1]["content"]
    for bad in ("They are all true.", json.dumps({"answers": [{"index": 1, "answer": "unsure"}]})):
        with said(EndpointServer("vllm"), bad, json.dumps({"answers": LISTED})) as server:
            found_all, calls = await ask_all(server)
            assert [one.probability for one in found_all if isinstance(one, YesNo)] == LIKELY and calls == 2
        with said(EndpointServer("vllm"), bad) as server:
            with pytest.raises(Unscorable, match="unparsable_reply"):
                await ask_all(server)
            assert len(server.requests) == 2


async def test_one_statement_that_is_not_judged_leaves_the_others() -> None:
    unsure = [*LISTED[:2], {"index": 3, "answer": "unsure"}, LISTED[3]]
    with said(EndpointServer("vllm"), json.dumps({"answers": unsure})) as server:
        found, calls = await ask_all(server)
        assert [isinstance(one, YesNo) for one in found] == [True, True, False, True] and calls == 1
    # Two items of eight tokens each behind the three that begin the list.
    with said(EndpointServer("vllm"), json.dumps({"answers": LISTED})) as server:
        found, calls = await ask_all(server, max_tokens=22)
        assert [one.probability for one in found if isinstance(one, YesNo)] == LIKELY[:2] and calls == 1
        assert [one.reason for one in found if isinstance(one, Unscorable)] == ["cut_off"] * 2


async def test_drafts_in_thoughts_that_were_cut_off_are_no_answers() -> None:
    thoughts = f"<think>Perhaps {json.dumps({'answers': LISTED})}, but let me look again and again"
    with said(EndpointServer("vllm", parser=False), thoughts) as server:
        with pytest.raises(Unscorable, match="cut_off"):
            await ask_all(server, max_tokens=45)
        assert len(server.requests) == 2


@pytest.mark.parametrize("indent", [None, 4, 16])
async def test_probabilities_are_those_of_the_json_that_counts(indent: int | None) -> None:
    draft = '<think>{"index": 1, "answer": "no"}</think>'
    whole = draft + json.dumps({"answers": LISTED}, indent=indent)
    with said(EndpointServer("vllm", parser=False), whole) as server:
        found, _ = await ask_all(server)
        assert [one.probability for one in found if isinstance(one, YesNo)] == LIKELY
    turned = [dict(reversed(one.items())) for one in LISTED]
    for told in (draft + json.dumps({"answers": turned}), json.dumps({"answers": turned})):
        with said(EndpointServer("vllm", parser=False), told) as server:
            found, _ = await ask_all(server)
            assert [one.yes for one in found if isinstance(one, YesNo)] == WORDS


@pytest.mark.parametrize(
    "body",
    [
        {"error": "logprobs are not supported"},
        {"detail": "logprobs are not supported"},
        {"detail": [{"loc": ["body", "top_logprobs"], "msg": "Extra inputs are not permitted"}]},
        {"message": "logprobs are not supported"},
        {"error": {"message": "logprobs are not supported"}},
    ],
)
async def test_a_refusal_is_read_in_whatever_form(body: dict[str, Any]) -> None:
    with EndpointServer("vllm") as server:
        server._refused = lambda request, *_: _json(400, body) if request.get("logprobs") else None  # type: ignore[method-assign]
        asked = model(server)
        found = await ask(asked)
        await asked.close()
        assert [one.yes for one in found] == WORDS and len(server.requests) == len(FACTS) + 1


async def test_what_a_server_does_not_take_is_told_once() -> None:
    with EndpointServer("openai", thinks=True) as server, capture_logs() as logs:
        asked = model(server)
        for _ in range(2):
            await ask(asked)
        await asked.close()
    told = [(one["event"], one["model"], one["parameter"]) for one in logs]
    assert told == [("judge.parameter_left_out", "any", name) for name in ("max_tokens", "temperature")]
