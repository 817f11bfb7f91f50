"""Calls as libraries and providers write them, in `tests/data/calls`: all of one call, or why not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.conversations.made import BASE64, SPAN, TRACE

from groundwatch.conversations.conversation import Conversation, ImageText, ImageUrl, Unreadable
from groundwatch.conversations.litellm import read_call
from groundwatch.conversations.messages import read_messages
from groundwatch.conversations.openai import read_exchange
from groundwatch.conversations.spans import read_span

DATA = Path(__file__).parents[1] / "data" / "calls"


def lines(name: str) -> dict[str, dict[str, Any]]:
    text = (DATA / f"{name}.jsonl").read_text().replace("{png}", BASE64)
    return {line["name"]: line for line in map(json.loads, text.splitlines())}


BODIES, SPANS = lines("bodies"), lines("spans")


def check(call: Any, wanted: dict[str, Any]) -> None:
    assert isinstance(call, Conversation), call
    assert (call.prompt, call.answer, call.model) == (wanted.get("prompt", "What is it?"), "A dog.", "m")
    left_out = tuple(wanted.get("left_out", ()))
    assert call.left_out == left_out
    shown = (ImageUrl(wanted["url"]),) if "url" in wanted else (ImageText(BASE64),)
    assert call.images == shown * wanted.get("images", not left_out)
    assert call.response_id == wanted.get("response_id", "")


@pytest.mark.parametrize("name", SPANS)
def test_a_span_is_read_by_its_shape(name: str) -> None:
    given = SPANS[name]
    check(
        read_span("x", given["attributes"], trace_id=TRACE, span_id=SPAN, at=1.0, events=given["events"]),
        given,
    )


@pytest.mark.parametrize("name", BODIES)
def test_a_body_is_read_wherever_it_stands(name: str) -> None:
    given = BODIES[name]
    attributes = {
        "langfuse.observation.type": "generation",
        "langfuse.observation.model.name": "m",
        "langfuse.observation.input": json.dumps(given["input"]),
        "langfuse.observation.output": given["output"]
        if isinstance(given["output"], str)
        else json.dumps(given["output"]),
    }
    call = read_span("x", attributes, trace_id=TRACE, span_id=SPAN, at=1.0)
    assert isinstance(call, Conversation)
    check(call, {"response_id": call.response_id})
    record = {"id": "1", "model": "m", "messages": given["input"], "response": given["output"]}
    check(read_call(record), {"response_id": "1"})


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, one in BODIES.items()
        if isinstance(one["output"], dict) and isinstance(one["input"], dict)
    ],
)
def test_an_exchange_is_read_by_its_shape(name: str) -> None:
    given = BODIES[name]
    call = read_exchange({"model": "m", **given["input"]}, given["output"])
    assert isinstance(call, Conversation), call
    check(call, {"response_id": call.response_id})


UNKNOWN = [
    {"messages": [{"speaker": "a", "utterance": "What is it?"}]},
    {"candidates": [{"bubble": {"x": 1}}]},
    [{"role": "user", "content": [{"hologram": {"x": 1}}]}],
    {"output": {"message": {"role": "model", "content": [{"hologram": {"x": 1}}]}}},
]


@pytest.mark.parametrize("held", UNKNOWN)
@pytest.mark.parametrize("side", ["input", "output"])
def test_messages_in_an_unknown_form_are_unreadable_and_never_a_text(held: Any, side: str) -> None:
    """With their keys, so that somebody can say what it was."""
    attributes = {
        "langfuse.observation.type": "generation",
        "langfuse.observation.model.name": "m",
        "langfuse.observation.input": "What is it?",
        "langfuse.observation.output": "A dog.",
    } | {f"langfuse.observation.{side}": json.dumps(held)}
    call = read_span("x", attributes, trace_id=TRACE, span_id=SPAN, at=1.0)
    assert isinstance(call, Unreadable)
    assert call.reason == "unreadable"
    assert f"its {side} is in a form that is not read" in call.message
    assert any(key in call.message for key in ("speaker", "bubble", "hologram"))


@pytest.mark.parametrize("content", ["", [], None])
def test_an_empty_message_is_no_answer_in_json(content: Any) -> None:
    """As models leave it whose thinking met their limit."""
    message = {"role": "assistant", "content": content}
    for held in ({"message": message, "done": True}, {"output": {"message": message}}):
        assert not any(read_messages(json.dumps(held), "assistant", plain=True).messages)


@pytest.mark.parametrize(
    "answer",
    [
        {"role": "chef", "apron": "white"},
        {"type": "dog", "color": "brown"},
        {"message": "A dog.", "sure": True},
        {"predictions": [{"label": "dog", "box": [1, 2, 3, 4]}]},
        {"instances": [{"name": "dog"}, {"name": "ball"}]},
        {"image": "a dog", "objects": ["dog"]},
        [{"type": "dog"}, {"type": "cat"}],
    ],
)
def test_an_answer_in_json_with_such_words_stays_one(answer: Any) -> None:
    text = json.dumps(answer)
    assert [one.text for one in read_messages(text, "assistant", plain=True).messages] == [text]
