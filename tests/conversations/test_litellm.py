"""LiteLLM's StandardLoggingPayload."""

from __future__ import annotations

import json

import pytest
from tests.conversations.made import BASE64, DATA_URL, RESPONSE

from groundwatch.conversations.conversation import Conversation, ImageText, ImageUrl
from groundwatch.conversations.litellm import read_call

CONTENT = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": DATA_URL}}]
RECORD = {
    "id": RESPONSE,
    "litellm_call_id": "e81b4f3c-3bb4-4b3c-9a9f-0d0d7b8b9d9d",
    "trace_id": "t",
    "call_type": "acompletion",
    "status": "success",
    "model": "lvlm-7b",
    "model_group": "vision",
    "custom_llm_provider": "hosted_vllm",
    "endTime": 1763900000.5,
    "messages": [{"role": "user", "content": CONTENT}],
    "response": {
        "id": RESPONSE,
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "A dog."}}
        ],
    },
    "request_tags": ["a", "b"],
    "end_user": None,
    "metadata": {"user_api_key_alias": "team-key"},
}


def test_a_call():
    assert read_call(RECORD) == Conversation(
        id=RESPONSE,
        model="lvlm-7b",
        prompt="What is it?",
        answer="A dog.",
        images=(ImageText(BASE64),),
        tags={
            "model_group": "vision",
            "provider": "hosted_vllm",
            "api_key_alias": "team-key",
            "request_tags": "a,b",
        },
        library="litellm",
        at=1763900000.5,
        response_id=RESPONSE,
    )


@pytest.mark.parametrize(("ended", "tags"), [("length", {"finish_reason": "length"}), ("stop", {})])
def test_how_the_answer_ended_is_a_tag_where_it_says_something(ended, tags):
    response = {"choices": [{"finish_reason": ended, "message": {"role": "assistant", "content": "A dog."}}]}
    found = read_call(RECORD | {"response": response}).tags
    assert {name: value for name, value in found.items() if name == "finish_reason"} == tags


def test_a_cut_image_is_a_reason():
    cut = [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,[base64_data truncated: 1.2MB]"}}
    ]
    conversation = read_call(RECORD | {"messages": [{"role": "user", "content": [*CONTENT[:1], *cut]}]})
    assert (conversation.images, conversation.left_out) == ((), ("litellm_truncated",))


def test_redacted_messages_are_a_reason_and_no_text():
    hidden = "redacted-by-litellm"
    conversation = read_call(
        RECORD
        | {
            "messages": [{"role": "user", "content": hidden}],
            "response": {"choices": [{"message": {"role": "assistant", "content": hidden}}]},
        }
    )
    assert (conversation.prompt, conversation.answer, conversation.left_out) == (
        "",
        "",
        ("litellm_redacted",),
    )


def test_the_responses_api():
    parts = [{"type": "input_text", "text": "What is it?"}, {"type": "input_image", "image_url": DATA_URL}]
    conversation = read_call(
        RECORD
        | {
            "call_type": "aresponses",
            "messages": [{"role": "user", "content": parts}],
            "response": {
                "output": [
                    {"type": "reasoning", "id": "r", "summary": []},
                    {
                        "type": "message",
                        "role": "assistant",
                        "content": [{"type": "output_text", "text": "A dog."}],
                    },
                ]
            },
        }
    )
    assert (conversation.prompt, conversation.answer, conversation.images) == (
        "What is it?",
        "A dog.",
        (ImageText(BASE64),),
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"status": "failure", "error_str": "x"}, "failed"),
        ({"messages": None, "response": None}, "unreadable"),
        ({"model": None, "model_group": 7}, "no_model"),
        (
            {"response": {"choices": [{"message": {"content": None, "tool_calls": [{"id": "1"}]}}]}},
            "tool_call",
        ),
    ],
)
def test_what_is_no_conversation(change, reason):
    assert read_call(RECORD | change).reason == reason


def test_an_embedding_is_no_call():
    assert read_call(RECORD | {"call_type": "aembedding"}) is None


def test_a_short_id_stands_beside_the_call():
    assert read_call(RECORD | {"id": "chatcmpl-7"}).id == "e81b4f3c-3bb4-4b3c-9a9f-0d0d7b8b9d9d:chatcmpl-7"
    assert read_call(RECORD | {"id": None}).id == RECORD["litellm_call_id"]


ASKED = {"role": "user", "content": [{"type": "text", "text": "What?"}, {"type": "image", "data": BASE64}]}
PASSED = {
    "Anthropic's": json.dumps(
        {"type": "message", "model": "m", "content": [{"type": "text", "text": "A dog."}]}
    ),
    "a stream": 'data: {"model": "m", "choices": [{"delta": {"content": "A dog."}}]}\n\n',
}


@pytest.mark.parametrize("name", PASSED)
def test_what_its_proxy_passes_on_has_bodies_in_the_place_of_messages(name):
    asked = json.dumps({"messages": [ASKED]})
    record = RECORD | {"call_type": "pass_through_endpoint", "model": "unknown"}
    record |= {"messages": [{"role": "user", "content": asked}], "response": {"response": PASSED[name]}}
    call = read_call(record)
    assert (call.id, call.model, call.prompt, call.answer) == (RECORD["id"], "m", "What?", "A dog.")
    assert (call.images, call.library) == ((ImageText(BASE64),), "litellm")
    assert read_call(record | {"response": {"response": "{}"}}).reason == "unreadable"


def test_a_file_by_its_address_is_one_and_by_an_id_is_none():
    for named, images in (("https://h/a.png", (ImageUrl("https://h/a.png"),)), ("file-1", ())):
        part = {"type": "file", "file": {"file_id": named, "format": "image/png"}}
        call = read_call(RECORD | {"messages": [{"role": "user", "content": [part]}]})
        assert (call.images, call.left_out) == (images, () if images else ("file_id",))


def passed(response, **more):
    asked = {"role": "user", "content": json.dumps({"model": "m", "messages": [ASKED]})}
    record = RECORD | {"call_type": "pass_through_endpoint", "messages": [asked], "response": response}
    return read_call(record | more)


def test_what_is_passed_on_has_an_id_of_its_own():
    body = {"response": PASSED["Anthropic's"]}
    assert passed(body, id="chatcmpl-5").id == f"{RECORD['litellm_call_id']}:chatcmpl-5"
    assert len(passed(body, id="x" * 400).id) == 64
    refused = passed({"response": "{}"}, id="x" * 400)
    assert (refused.reason, len(refused.id), refused.model) == ("unreadable", 256, "m")


def test_what_is_passed_on_may_be_answered_by_a_text_or_by_nothing():
    for response in ("A dog.", {"response": "A dog."}):
        call = passed(response)
        assert (call.model, call.prompt, call.answer) == ("m", "What?", "A dog.")
    for response in (None, {"response": None}):
        call = passed(response)
        assert isinstance(call, Conversation) and (call.prompt, call.answer) == ("What?", "")


def test_a_stream_of_geminis_that_is_passed_on_is_read():
    chunks = [
        {"candidates": [{"content": {"parts": [{"text": text}], "role": "model"}}], "modelVersion": "m-1"}
        for text in ("A ", "dog")
    ]
    said = [{"text": "hm", "thought": True}, {"text": "."}]
    chunks.append({"candidates": [{"content": {"parts": said}, "finishReason": "MAX_TOKENS"}]})
    events = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
    for response in (chunks, json.dumps(chunks), events):
        call = passed({"response": response})
        assert (call.model, call.answer) == ("m-1", "A dog.")
        assert call.tags["finish_reason"] == "MAX_TOKENS"
