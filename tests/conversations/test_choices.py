"""Several answers to one question: each choice is an answer of its own, in whatever form they are logged."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.conversations.made import SPAN, TRACE, genai, text, user

from groundwatch.conversations.conversation import Conversation, choices_of
from groundwatch.conversations.litellm import read_call
from groundwatch.conversations.openai import read_exchange
from groundwatch.conversations.spans import joined, read_log, read_span

ASKED = [{"role": "user", "content": "What is it?"}]
WHOLE = {
    "model": "m",
    "choices": [
        {"index": at, "finish_reason": "stop", "message": {"role": "assistant", "content": answer}}
        for at, answer in enumerate(("A dog.", "A cat.", "A dog."))
    ],
}
STREAM = [
    {"model": "m", "choices": [{"index": at, "delta": {"content": piece}, "finish_reason": None}]}
    for piece, at in [("A d", 0), ("A ca", 1), ("A do", 2), ("t.", 1), ("og.", 0), ("g.", 2)]
]
TEXTS = {"model": "m", "choices": [{**one, "text": one["message"]["content"]} for one in WHOLE["choices"]]}
for one in TEXTS["choices"]:
    del one["message"]
GEMINI = {
    "modelVersion": "m",
    "candidates": [
        {"content": {"role": "model", "parts": [{"text": answer}]}, "finishReason": "STOP", "index": at}
        for at, answer in enumerate(("A dog.", "A cat.", "A dog."))
    ],
}
LANGCHAIN = {
    "generations": [
        [
            {"text": answer, "generation_info": {"finish_reason": "stop"}}
            for answer in ("A dog.", "A cat.", "A dog.")
        ]
    ]
}
PARTS = [
    {"role": "assistant", "parts": [text(answer)], "finish_reason": "stop"}
    for answer in ("A dog.", "A cat.", "A dog.")
]


def exchange(response: Any) -> Any:
    return read_exchange({"model": "m", "messages": ASKED}, response, id="call")


def litellm(response: Any) -> Any:
    return read_call({"id": "call", "model": "m", "messages": ASKED, "response": response})


def span(**attributes: Any) -> Any:
    given = genai(user(text("What is it?"))) | attributes
    return read_span("chat", given, trace_id=TRACE, span_id=SPAN, at=1.0)


def langfuse(output: Any) -> Any:
    attributes = {
        "langfuse.observation.type": "generation",
        "langfuse.observation.model.name": "m",
        "langfuse.observation.input": json.dumps(ASKED),
        "langfuse.observation.output": json.dumps(output),
    }
    return read_span("chat", attributes, trace_id=TRACE, span_id=SPAN, at=1.0)


def logs() -> Any:
    at = {"trace_id": TRACE, "span_id": SPAN, "at": 1.0}
    parts = [read_log("gen_ai.choice", {}, one, **at) for one in reversed(WHOLE["choices"])]
    asked = read_log("gen_ai.user.message", {}, {"content": "What is it?"}, **at)
    return joined(Conversation(id="call", model="m"), [asked, *parts])  # type: ignore[list-item]


CHOICES: dict[str, Any] = {
    "a chat completion": exchange(WHOLE),
    "a stream": exchange(STREAM),
    "a text completion": exchange(TEXTS),
    "LiteLLM": litellm(WHOLE),
    "Langfuse": langfuse(WHOLE),
    "Gemini": langfuse(GEMINI),
    "LangChain": langfuse(LANGCHAIN),
    "the GenAI conventions": span(**{"gen_ai.output.messages": json.dumps(PARTS)}),
    "log records": logs(),
}


@pytest.mark.parametrize("name", CHOICES)
def test_each_choice_is_an_answer(name: str) -> None:
    call = CHOICES[name]
    assert isinstance(call, Conversation), call
    assert (call.answer, call.others) == ("A dog.", ("A cat.", "A dog."))
    others = choices_of(call, "x" * 256)
    assert [(one.answer, one.others, one.prompt) for one in others] == [
        ("A cat.", (), "What is it?"),
        ("A dog.", (), "What is it?"),
    ]
    assert len({one.id for one in others}) == 2 and all(len(one.id) <= 256 for one in others)


MESSAGES = [
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": answer}]}
    for answer in ("It is", "a dog.")
]
ONE: dict[str, Any] = {
    "one choice": exchange(WHOLE | {"choices": WHOLE["choices"][:1]}),
    "items of the responses API": exchange({"object": "response", "model": "m", "output": MESSAGES}),
    "the same in a span": langfuse({"output": MESSAGES}),
    "an end of all": langfuse({"finish_reason": "COMPLETE", "message": {"content": [text("A dog.")]}}),
}


@pytest.mark.parametrize("name", ONE)
def test_one_answer_is_one(name: str) -> None:
    call = ONE[name]
    assert isinstance(call, Conversation), call
    assert call.answer and call.others == ()
