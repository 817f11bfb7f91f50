"""Spans in the dialects that libraries speak, in the forms that their sources write."""

from __future__ import annotations

import json

import pytest
from tests.conversations.made import BASE64, DATA_URL, PNG, RESPONSE, SPAN, TRACE, URL, genai, text, user

from groundwatch.conversations.conversation import (
    Conversation,
    ImageText,
    ImageUrl,
    Unreadable,
    repeat_key,
)
from groundwatch.conversations.spans import dialect_of, read_span


def read(attributes, name="chat lvlm", **more):
    return read_span(name, attributes, **{"trace_id": TRACE, "span_id": SPAN, "at": 12.5, **more})


BLOB = {"type": "blob", "mime_type": "image/png", "modality": "image", "content": BASE64}


def test_genai_parts_as_text():
    conversation = read(
        genai([{"role": "system", "parts": [text("Be short.")]}, *user(text("What is it?"), BLOB)])
    )
    assert conversation == Conversation(
        id=RESPONSE,
        model="lvlm-7b",
        prompt="What is it?",
        answer="A dog.",
        images=(ImageText(BASE64),),
        at=12.5,
        response_id=RESPONSE,
        trace_id=TRACE,
        span_id=SPAN,
    )


def test_genai_parts_structured_with_raw_bytes():
    attributes = genai([]) | {
        "gen_ai.input.messages": user(
            text("What is it?"), BLOB | {"content": PNG}, {"type": "uri", "modality": "image", "uri": URL}
        ),
        "gen_ai.output.messages": [{"role": "assistant", "parts": [text("A dog.")]}],
    }
    conversation = read(attributes)
    assert conversation.images == (PNG, ImageUrl(URL))
    assert (conversation.prompt, conversation.answer, conversation.left_out) == ("What is it?", "A dog.", ())


def test_openai_content_inside_genai_messages():
    content = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": DATA_URL}}]
    for message in ({"role": "user", "parts": content}, {"role": "user", "content": content}):
        attributes = genai(
            [message], **{"gen_ai.output.messages": json.dumps([{"role": "assistant", "content": "A dog."}])}
        )
        conversation = read(attributes, scope="litellm")
        assert conversation.images == (ImageText(BASE64),)
        assert (conversation.prompt, conversation.answer, conversation.library) == (
            "What is it?",
            "A dog.",
            "litellm",
        )


OPENINFERENCE = {
    "openinference.span.kind": "LLM",
    "llm.system": "openai",
    "llm.model_name": "lvlm-7b",
    "input.value": "{}",
    "output.value": json.dumps({"id": RESPONSE, "choices": []}),
    "llm.input_messages.0.message.role": "system",
    "llm.input_messages.0.message.content": "Be short.",
    "llm.input_messages.1.message.role": "user",
    "llm.input_messages.1.message.contents.1.message_content.type": "image",
    "llm.input_messages.1.message.contents.1.message_content.image.image.url": DATA_URL,
    "llm.input_messages.1.message.contents.0.message_content.type": "text",
    "llm.input_messages.1.message.contents.0.message_content.text": "What is it?",
    "llm.output_messages.0.message.role": "assistant",
    "llm.output_messages.0.message.content": "A dog.",
}
IMAGE = "llm.input_messages.1.message.contents.1.message_content.image.image.url"


@pytest.mark.parametrize(
    ("ended", "tag"),
    [
        ({"gen_ai.response.finish_reasons": ["length"]}, "length"),
        ({"gen_ai.response.finish_reasons": '["content_filter", "stop"]'}, "content_filter"),
        ({"llm.finish_reason": "max_tokens"}, "max_tokens"),
        ({"ai.response.finishReason": "stop"}, None),
        ({"llm.finish_reason": "STOP"}, None),
        ({"llm.finish_reason": ["x" * 500]}, "x" * 64),
        ({"llm.finish_reason": {"a": 1}}, None),
    ],
)
def test_how_the_answer_ended_is_a_tag_where_it_says_something(ended, tag):
    assert read(OPENINFERENCE | ended).tags.get("finish_reason") == tag


@pytest.mark.parametrize(
    ("attributes", "dialect"),
    [
        (OPENINFERENCE, "openinference"),
        (genai([]), "gen_ai"),
        ({"ai.operationId": "ai.generateText.doGenerate"}, "ai_sdk"),
        ({"mlflow.spanType": '"CHAT_MODEL"'}, "mlflow"),
        ({"openinference.span.kind": "TOOL"}, ""),
    ],
)
def test_which_dialect_says_that_it_is_a_call(attributes, dialect):
    assert dialect_of(attributes) == dialect


def test_openinference():
    conversation = read(OPENINFERENCE)
    assert (conversation.prompt, conversation.answer) == ("What is it?", "A dog.")
    assert conversation.images == (ImageText(BASE64),)
    assert (conversation.id, conversation.model, conversation.library) == (
        RESPONSE,
        "lvlm-7b",
        "openinference",
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [({IMAGE: "__REDACTED__"}, "openinference_redacted"), ({IMAGE: None}, "openinference_hidden")],
)
def test_openinference_without_image(change, reason):
    conversation = read(OPENINFERENCE | change)
    assert (conversation.images, conversation.left_out) == ((), (reason,))


def test_a_text_that_openinference_hid_is_no_question():
    conversation = read(
        {
            "openinference.span.kind": "LLM",
            "llm.model_name": "m",
            "llm.input_messages.0.message.role": "user",
            "llm.input_messages.0.message.content": "__REDACTED__",
            "llm.output_messages.0.message.content": "A dog.",
        }
    )
    assert (conversation.prompt, conversation.left_out) == ("", ("openinference_hidden",))


def test_messages_of_openinference_are_in_the_order_of_their_numbers():
    attributes = {
        "openinference.span.kind": "LLM",
        "llm.model_name": "m",
        "llm.output_messages.0.message.content": "x",
    }
    for number in (10, 9, 999999999, 2):
        attributes[f"llm.input_messages.{number}.message.role"] = "user"
        attributes[f"llm.input_messages.{number}.message.content"] = f"question {number}"
    attributes |= {
        "llm.input_messages.-1.message.content": "no",
        "llm.input_messages.1000000000.message.content": "no",
        "llm.input_messages.x.message.content": "no",
        "llm.input_messages.٣.message.content": "no",
    }
    assert read(attributes).prompt == "question 999999999"


def test_what_openllmetry_wrote_before_genai_messages():
    conversation = read(
        {
            "gen_ai.system": "OpenAI",
            "llm.request.type": "chat",
            "gen_ai.request.model": "lvlm",
            "gen_ai.prompt.0.role": "user",
            "gen_ai.prompt.0.content": json.dumps(
                [
                    {"type": "text", "text": "What is it?"},
                    {"type": "image_url", "image_url": {"url": DATA_URL}},
                ]
            ),
            "gen_ai.completion.0.role": "assistant",
            "gen_ai.completion.0.content": "A dog.",
            "gen_ai.completion.0.finish_reason": "stop",
        }
    )
    assert (conversation.prompt, conversation.answer) == ("What is it?", "A dog.")
    assert conversation.images == (ImageText(BASE64),)
    assert conversation.id == f"{TRACE}:{SPAN}"


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.operation.name": "embeddings", "gen_ai.request.model": "m"},
        genai(user(text("x"))) | {"gen_ai.operation.name": "invoke_agent"},
        genai(user(text("x"))) | {"gen_ai.operation.name": "execute_tool"},
        OPENINFERENCE | {"openinference.span.kind": "CHAIN"},
        {"langfuse.observation.type": "span", "langfuse.observation.input": "x"},
        {"traceloop.span.kind": "workflow", "traceloop.entity.input": "x"},
        {
            "braintrust.span_attributes": '{"type": "task", "name": "describe"}',
            "braintrust.input_json": '{"question": "What is it?"}',
            "braintrust.output_json": '"A dog."',
        },
        {"http.request.method": "POST"},
        {"llm.openai.messages": "[]", "llm.openai.id": RESPONSE},
        {},
    ],
)
def test_what_is_no_call_of_a_model(attributes):
    assert read(attributes) is None


def test_a_call_of_a_tool_is_no_answer():
    part = {"type": "tool_call", "name": "zoom", "id": "1", "arguments": {}}
    answer = json.dumps([{"role": "assistant", "parts": [part], "finish_reason": "tool_call"}])
    assert read(genai(user(text("x")), **{"gen_ai.output.messages": answer})).reason == "tool_call"
    content = [{"toolRequest": {"name": "zoom", "ref": "1", "input": {}}}]
    genkit = {
        "genkit:metadata:subtype": "model",
        "genkit:name": "m",
        "genkit:input": json.dumps({"messages": [{"role": "user", "content": [{"text": "x"}]}]}),
        "genkit:output": json.dumps({"message": {"role": "model", "content": content}}),
    }
    assert read(genkit).reason == "tool_call"


def test_a_call_that_failed():
    attributes = genai(user(text("x"))) | {
        "gen_ai.output.messages": None,
        "error.type": "openai.RateLimitError",
    }
    found = read(attributes)
    assert isinstance(found, Unreadable)
    assert (found.reason, found.message) == ("failed", "the call failed: openai.RateLimitError")


def test_a_call_without_content_waits_for_its_logs():
    conversation = read(
        {"gen_ai.operation.name": "chat", "gen_ai.request.model": "lvlm", "gen_ai.response.id": RESPONSE}
    )
    assert (conversation.answer, conversation.left_out, conversation.id) == ("", (), RESPONSE)


def test_references_are_kept():
    attributes = genai([]) | {
        "gen_ai.input.messages": None,
        "gen_ai.output.messages": None,
        "gen_ai.input.messages_ref": "gs://b/in.json",
        "gen_ai.output.messages_ref": "gs://b/out.json",
    }
    assert read(attributes).references == {"input": "gs://b/in.json", "output": "gs://b/out.json"}


def test_a_message_without_parts_had_an_image():
    assert read(genai(user())).left_out == ("genai_empty_parts",)


def test_a_cut_attribute_is_a_reason():
    attributes = genai(user(text("x"), BLOB))
    attributes["gen_ai.input.messages"] = attributes["gen_ai.input.messages"][:60]
    assert read(attributes).left_out == ("cut_attribute",)


@pytest.mark.parametrize(
    ("scope", "reason"),
    [
        ("opentelemetry.instrumentation.openai.v1", "openllmetry_no_input"),
        ("langfuse-sdk", "langfuse_no_input"),
        ("", "no_input"),
    ],
)
def test_an_answer_without_a_question(scope, reason):
    assert read(genai([]) | {"gen_ai.input.messages": None}, scope=scope).left_out == (reason,)


def test_a_text_only_call_lacks_nothing():
    conversation = read(genai(user(text("How are you?"))))
    assert (conversation.images, conversation.left_out, conversation.prompt) == ((), (), "How are you?")


def test_ids_are_stable_and_do_not_meet():
    """Ollama numbers its responses from 0 to 998."""
    short = genai(user(text("x"))) | {"gen_ai.response.id": "chatcmpl-7"}
    assert read(short).id == f"{TRACE}:chatcmpl-7"
    assert (
        read(short, trace_id="0" * 32).id
        != read(genai(user(text("y"))) | short | {"gen_ai.input.messages": "[]"}, trace_id="").id
    )
    nameless = genai(user(text("x"))) | {"gen_ai.response.id": None}
    assert read(nameless).id == f"{TRACE}:{SPAN}"
    assert read(nameless, trace_id="0" * 32, span_id="0" * 16).id == ""


def test_the_same_call_in_two_dialects_is_known_as_one():
    one = read(genai(user(text("What is it?"), BLOB)))
    nameless = {key: value for key, value in OPENINFERENCE.items() if key != "output.value"}
    other = read(nameless, span_id="1" * 16)
    assert one.id != other.id
    assert repeat_key(one) == repeat_key(other) != ""
    # As raw bytes it is the same image; another image, or one that is left out, is another call.
    raw = genai([]) | {"gen_ai.input.messages": user(text("What is it?"), BLOB | {"content": PNG})}
    assert repeat_key(read(raw)) == repeat_key(one)
    assert repeat_key(read(OPENINFERENCE | {IMAGE: URL})) != repeat_key(one)
    assert repeat_key(read(OPENINFERENCE | {IMAGE: "__REDACTED__"})) == ""


def test_an_answer_of_the_ai_sdk_that_is_a_call_of_a_tool_has_nothing_to_judge():
    attributes = {
        "ai.operationId": "ai.generateText.doGenerate",
        "ai.model.id": "m",
        "ai.prompt.messages": '[{"role": "user", "content": [{"type": "text", "text": "What?"}]}]',
        "ai.response.toolCalls": '[{"toolName": "zoom"}]',
    }
    call = read_span("x", attributes, trace_id=TRACE, span_id=SPAN, at=1.0)
    assert isinstance(call, Unreadable) and call.reason == "tool_call"
    call = read_span("x", attributes | {"ai.response.text": "A dog."}, trace_id=TRACE, span_id=SPAN, at=1.0)
    assert isinstance(call, Conversation) and call.answer == "A dog."
    none = read_span("x", attributes | {"ai.response.toolCalls": "[]"}, trace_id=TRACE, span_id=SPAN, at=1.0)
    assert isinstance(none, Conversation)
