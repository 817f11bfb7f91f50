"""Exchanges with OpenAI's API: whole, as a stream, and as a stream that was cut."""

from __future__ import annotations

import json

import pytest
from tests.conversations.made import BASE64, DATA_URL, RESPONSE

from groundwatch.conversations.conversation import Conversation, ImageText
from groundwatch.conversations.openai import assembled, of_stream, read_exchange

REQUEST = {
    "model": "lvlm",
    "messages": [
        {"role": "system", "content": "Be short."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is it?"},
                {"type": "image_url", "image_url": {"url": DATA_URL}},
            ],
        },
    ],
}
ANSWER = {"role": "assistant", "content": "A dog.", "refusal": None}
COMPLETION = {
    "id": RESPONSE,
    "object": "chat.completion",
    "created": 1763900000,
    "model": "lvlm-7b",
    "choices": [{"index": 0, "message": ANSWER, "finish_reason": "stop"}],
}
CALL = Conversation(
    id=RESPONSE,
    model="lvlm-7b",
    prompt="What is it?",
    answer="A dog.",
    images=(ImageText(BASE64),),
    library="openai",
    at=1763900000.0,
    response_id=RESPONSE,
)


def chunk(content=None, index=0, finish=None, **delta):
    choice = {"index": index, "delta": {"content": content, **delta}, "finish_reason": finish}
    return {"id": RESPONSE, "created": 1763900000, "model": "lvlm-7b", "choices": [choice]}


CHUNKS = [
    chunk("", role="assistant"),
    chunk("A "),
    chunk("dog."),
    chunk(finish="stop"),
    {"id": RESPONSE, "choices": [], "usage": {"total_tokens": 9}},
]

RESPONSE_OBJECT = {
    "id": "resp_0123456789abcdef0123",
    "object": "response",
    "created_at": 1763900000,
    "status": "completed",
    "error": None,
    "model": "lvlm-7b",
    "text": {"format": {"type": "text"}},
    "output": [
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A dog."}]},
    ],
}
RESPONSE_REQUEST = {
    "model": "lvlm",
    "instructions": "Be short.",
    "input": [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "What is it?"},
                {"type": "input_image", "image_url": DATA_URL},
            ],
        }
    ],
}


def delta(text, kind="response.output_text.delta", output=0, content=0):
    return {"type": kind, "output_index": output, "content_index": content, "delta": text}


EVENTS = [
    {"type": "response.created", "response": RESPONSE_OBJECT | {"status": "in_progress", "output": []}},
    delta("A "),
    delta("dog."),
    {"type": "response.completed", "response": RESPONSE_OBJECT},
]


def sse(events, end="\n\n", done=True):
    lines = [
        f"event: {one['type']}\ndata: {json.dumps(one)}" if "type" in one else f"data: {json.dumps(one)}"
        for one in events
    ]
    return end.join([": ping", *lines, *(["data: [DONE]"] if done else []), ""])


@pytest.mark.parametrize(
    "response",
    [
        COMPLETION,
        json.dumps(COMPLETION),
        b"\xef\xbb\xbf" + json.dumps(COMPLETION).encode(),
        CHUNKS,
        sse(CHUNKS),
        sse(CHUNKS, end="\r\n\r\n").replace("data: ", "data:"),
        sse(CHUNKS, done=False).encode(),
    ],
)
def test_chat_completions(response):
    assert read_exchange(REQUEST, response) == CALL
    assert read_exchange(json.dumps(REQUEST), response) == CALL


@pytest.mark.parametrize("response", [RESPONSE_OBJECT, EVENTS, sse(EVENTS), [*EVENTS[:1], EVENTS[-1]]])
def test_responses(response):
    conversation = read_exchange(RESPONSE_REQUEST, response)
    assert (conversation.prompt, conversation.answer) == ("What is it?", "A dog.")
    assert (conversation.images, conversation.id) == ((ImageText(BASE64),), RESPONSE_OBJECT["id"])
    assert (conversation.at, conversation.model, conversation.tags) == (1763900000.0, "lvlm-7b", {})


def test_a_text_as_input():
    assert (
        read_exchange({"model": "m", "input": "[1] What is it?"}, RESPONSE_OBJECT).prompt == "[1] What is it?"
    )
    legacy = {
        "id": "cmpl-1",
        "model": "m",
        "choices": [{"index": 0, "text": "A dog.", "finish_reason": "stop"}],
    }
    assert read_exchange({"model": "m", "prompt": "It is"}, legacy).answer == "A dog."
    assert read_exchange({"model": "m", "prompt": "It is"}, [legacy, legacy]).answer == "A dog.A dog."


@pytest.mark.parametrize(
    ("request_body", "response"),
    [
        (REQUEST, sse(CHUNKS[:3], done=False)),
        (REQUEST, sse(CHUNKS)[:-130]),
        (RESPONSE_REQUEST, sse(EVENTS[:3], done=False)),
    ],
)
def test_a_stream_that_was_cut_keeps_what_came_and_says_so(request_body, response):
    conversation = read_exchange(request_body, response)
    assert (conversation.answer, conversation.tags) == ("A dog.", {"finish_reason": "incomplete"})


def test_an_answer_that_met_its_limit_says_so():
    cut = COMPLETION | {"choices": [{"index": 0, "message": ANSWER, "finish_reason": "length"}]}
    assert read_exchange(REQUEST, cut).tags == {"finish_reason": "length"}


@pytest.mark.parametrize(
    ("told", "tags"),
    [
        (
            {"content": [{"token": "A", "logprob": -0.5}, {"token": " dog", "logprob": -1.5}]},
            {"logprob": "-1.0000"},
        ),
        *((odd, {}) for odd in (None, [], {}, {"content": None}, {"content": [1, {}, {"logprob": "x"}]})),
        ({"content": [{"logprob": float("nan")}, {"logprob": float("-inf")}, {"logprob": 3}]}, {}),
    ],
)
def test_how_likely_the_words_were_is_a_tag(told, tags):
    choice = {"index": 0, "message": ANSWER, "finish_reason": "stop", "logprobs": told}
    assert read_exchange(REQUEST, COMPLETION | {"choices": [choice]}).tags == tags


def test_events_that_hold_more_than_any_answer_are_not_decoded():
    large = "data: " + json.dumps({"candidates": [[]] * 60_000}) + "\n\n"
    assert of_stream(large * 2) == {"object": "chat.completion", "choices": []}
    assert of_stream(large * 12) == large * 12


def test_a_refusal_is_an_answer():
    refusal = {"role": "assistant", "content": None, "refusal": "I cannot."}
    choices = [{"index": 0, "message": refusal, "finish_reason": "stop"}]
    assert read_exchange(REQUEST, COMPLETION | {"choices": choices}).answer == "I cannot."
    assert read_exchange(REQUEST, [chunk(refusal="I can"), chunk(refusal="not.")]).answer == "I cannot."


def test_the_callers_id_and_time_come_first():
    conversation = read_exchange(REQUEST, COMPLETION, id="mine", at=5.0)
    assert (conversation.id, conversation.at, conversation.response_id) == ("mine", 5.0, RESPONSE)


def test_a_short_id_does_not_meet_another():
    one = read_exchange(REQUEST, COMPLETION | {"id": "chatcmpl-7"})
    other = read_exchange(
        REQUEST | {"messages": [{"role": "user", "content": "Else?"}]}, COMPLETION | {"id": "chatcmpl-7"}
    )
    assert one.id != other.id
    assert one.id == read_exchange(REQUEST, COMPLETION | {"id": "chatcmpl-7"}).id
    assert read_exchange(REQUEST, COMPLETION | {"id": None}).id == ""


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ({"error": {"message": "no such model", "type": "x"}}, "failed"),
        ({"object": "error", "message": "no such model"}, "failed"),
        (RESPONSE_OBJECT | {"status": "failed", "error": {"code": "server_error", "message": "x"}}, "failed"),
        ([CHUNKS[1], {"error": {"message": "broke"}}], "failed"),
        (
            [chunk(tool_calls=[{"index": 0, "id": "1", "function": {"name": "zoom", "arguments": "{"}}])],
            "tool_call",
        ),
        (
            COMPLETION | {"choices": [{"index": 0, "message": {"role": "assistant", "content": ""}}]},
            "no_answer",
        ),
        (COMPLETION | {"choices": []}, "unreadable"),
        ({"object": "list", "data": [{"embedding": [0.1]}]}, "unreadable"),
        (b"<html>", "unreadable"),
        (b"", "unreadable"),
        (None, "unreadable"),
        ("data: x\n\n", "unreadable"),
    ],
)
def test_what_is_no_conversation(response, reason):
    assert read_exchange(REQUEST, response).reason == reason


def test_a_call_without_a_model():
    assert read_exchange({"messages": "x"}, COMPLETION | {"model": 3}).reason == "no_model"


def test_chunks_make_what_comes_whole():
    whole = assembled(CHUNKS)
    assert whole == COMPLETION | {"usage": {"total_tokens": 9}}
    assert assembled(EVENTS) == RESPONSE_OBJECT
    calls = [
        chunk(
            tool_calls=[
                {"index": 0, "id": "1", "type": "function", "function": {"name": "zoom", "arguments": ""}}
            ]
        ),
        chunk(tool_calls=[{"index": 0, "function": {"arguments": '{"x"'}}]),
        chunk(tool_calls=[{"index": 0, "function": {"arguments": ": 1}"}}], finish="tool_calls"),
    ]
    # What it was called with is read by nobody.
    assert assembled(calls)["choices"][0]["message"]["calls_tool"] is True


def test_chunks_of_the_client_itself_are_read():
    openai = pytest.importorskip("openai.types.chat")
    chunks = [
        openai.ChatCompletionChunk.model_validate({"object": "chat.completion.chunk", **one})
        for one in CHUNKS[:4]
    ]
    assert read_exchange(REQUEST, assembled(chunks)) == CALL
