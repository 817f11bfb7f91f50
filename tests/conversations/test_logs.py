"""Log records of messages, and their span."""

from __future__ import annotations

import json

import pytest
from tests.conversations.made import BASE64, DATA_URL, RESPONSE, SPAN, TRACE, genai, text, user

from groundwatch.conversations.conversation import Conversation, ImageText, Unreadable
from groundwatch.conversations.spans import LogPart, joined, read_log, read_span

IDS = {"trace_id": TRACE, "span_id": SPAN}
SPAN_ATTRIBUTES = {
    "gen_ai.operation.name": "chat",
    "gen_ai.response.model": "lvlm-7b",
    "gen_ai.response.id": RESPONSE,
}
CONTENT = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": DATA_URL}}]


def log(name, body, attributes=None, at=1.0, **more):
    return read_log(name, attributes or {}, body, **{**IDS, "at": at, **more})


def choice(answer, index=0):
    return log(
        "gen_ai.choice",
        {"index": index, "finish_reason": "stop", "message": {"role": "assistant", "content": answer}},
    )


def span(**more):
    return read_span(
        "chat lvlm",
        {**SPAN_ATTRIBUTES, **more},
        **IDS,
        at=2.0,
        scope="opentelemetry.instrumentation.openai_v2",
    )


def test_a_span_and_its_messages_are_one_call():
    parts = [
        choice("A dog."),
        log("gen_ai.system.message", {"content": "Be short."}),
        log("gen_ai.user.message", {"content": CONTENT}),
    ]
    assert joined(span(), parts) == Conversation(
        id=RESPONSE,
        model="lvlm-7b",
        prompt="What is it?",
        answer="A dog.",
        images=(ImageText(BASE64),),
        library="opentelemetry-openai-v2",
        at=2.0,
        response_id=RESPONSE,
        scope="opentelemetry.instrumentation.openai_v2",
        **IDS,
    )


@pytest.mark.parametrize(
    ("records", "why"),
    [
        ([log("gen_ai.user.message", {"content": [{"hologram": 1}]}), choice("A dog.")], "input"),
        (
            [
                log("gen_ai.user.message", {"content": CONTENT}),
                log("gen_ai.choice", {"message": {"hologram": 1}}),
            ],
            "output",
        ),
    ],
)
def test_a_record_in_an_unknown_form_is_why_its_call_is_not_read(records, why):
    call = joined(span(), records)
    assert isinstance(call, Unreadable)
    assert (call.reason, call.id, call.model) == ("unreadable", RESPONSE, "lvlm-7b")
    assert f"its {why} is in a form that is not read, with the keys hologram" in call.message
    told = [*records, log("gen_ai.user.message", {"content": CONTENT}), choice("A dog.")]
    assert isinstance(joined(span(), told), Conversation)


def test_messages_are_in_the_order_of_their_times_and_choices_of_their_numbers():
    parts = [
        log("gen_ai.user.message", {"content": "second"}, at=2.0),
        log("gen_ai.assistant.message", {"content": "no answer"}, at=1.5),
        log("gen_ai.user.message", {"content": "first"}, at=1.0),
        choice("B", 1),
        choice("A", 0),
    ]
    conversation = joined(span(), parts)
    assert (conversation.prompt, conversation.answer) == ("second", "A")


def test_the_details_of_a_call_are_whole_without_their_span():
    part = log("gen_ai.client.inference.operation.details", None, genai(user(text("What is it?"))))
    conversation = joined(None, [part])
    assert (conversation.id, conversation.model, conversation.answer) == (RESPONSE, "lvlm-7b", "A dog.")


def test_a_span_with_its_own_content_keeps_it():
    whole = read_span("chat", genai(user(text("What is it?"))), **IDS, at=1.0)
    assert joined(whole, [log("gen_ai.user.message", {"content": "another"}), choice("else")]) == whole


def test_records_bring_the_image_that_the_span_lacks():
    bare = read_span("chat", genai(user(text("What is it?"), {"type": "image"})), **IDS, at=1.0)
    conversation = joined(bare, [log("gen_ai.user.message", {"content": CONTENT})])
    assert (conversation.images, conversation.left_out) == ((ImageText(BASE64),), ())


def test_an_event_of_a_span_is_read_as_a_record():
    events = [
        ("gen_ai.content.prompt", {"gen_ai.prompt": json.dumps([{"role": "user", "content": CONTENT}])}),
        (
            "gen_ai.choice",
            {"gen_ai.event.content": json.dumps({"index": 0, "message": {"content": "A dog."}})},
        ),
    ]
    conversation = read_span("chat", SPAN_ATTRIBUTES, **IDS, at=1.0, events=events)
    assert (conversation.prompt, conversation.answer, len(conversation.images)) == (
        "What is it?",
        "A dog.",
        1,
    )


def test_a_name_in_the_attributes_counts_where_the_record_has_none():
    assert (
        log("", {"content": "What is it?"}, {"event.name": "gen_ai.user.message"}).inputs[0].text
        == "What is it?"
    )


@pytest.mark.parametrize("name", ["", "http.request", "gen_ai.evaluation.result"])
def test_other_records_are_none(name):
    assert log(name, "text") is None


@pytest.mark.parametrize("ids", [{"trace_id": "0" * 32}, {"span_id": ""}, {"span_id": "0" * 16}])
def test_a_record_without_a_span_is_told(ids):
    assert log("gen_ai.user.message", {"content": "x"}, **ids).reason == "no_ids"


def test_records_whose_span_did_not_come():
    assert joined(None, [log("gen_ai.user.message", {"content": "x"}), choice("y")]).reason == "no_span"
    assert joined(None, []).reason == "no_span"


@pytest.mark.parametrize(
    ("scope", "reason"),
    [
        ("opentelemetry.instrumentation.openai_v2", "openai_v2_no_content"),
        ("opentelemetry.instrumentation.genai.openai", "genai_no_content"),
        ("opentelemetry.instrumentation.openai.v1", "openllmetry_no_content"),
        ("litellm", "litellm_no_content"),
        ("vllm.llm_engine", "vllm_no_content"),
        ("", "no_content"),
    ],
)
def test_a_span_to_which_no_records_came_has_a_reason(scope, reason):
    bare = read_span("chat", SPAN_ATTRIBUTES, **IDS, at=1.0, scope=scope)
    assert bare.left_out == ()
    assert joined(bare, []).left_out == (reason,)


def test_vllm_has_tokens_and_latency_only():
    attributes = {
        "gen_ai.response.model": "lvlm-7b",
        "gen_ai.request.id": "chatcmpl-1",
        "gen_ai.usage.prompt_tokens": 600,
        "gen_ai.usage.completion_tokens": 5,
        "gen_ai.latency.time_in_queue": 0.001,
        "gen_ai.latency.e2e": 0.4,
    }
    conversation = joined(read_span("llm_request", attributes, **IDS, at=1.0), [])
    assert (conversation.library, conversation.left_out) == ("vllm", ("vllm_no_content",))


def test_an_answer_that_did_not_come():
    assert joined(span(), [log("gen_ai.user.message", {"content": "x"})]).reason == "no_answer"
    tool = log("gen_ai.choice", {"message": {"tool_calls": [{"id": "1"}]}})
    assert joined(span(), [log("gen_ai.user.message", {"content": "x"}), tool]).reason == "tool_call"


def test_parts_are_values():
    assert isinstance(choice("x"), LogPart)
    assert isinstance(joined(None, [choice("x")]), Unreadable)
