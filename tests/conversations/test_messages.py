"""Messages in what wraps them, and messages that were fetched."""

from __future__ import annotations

import json

import pytest
from tests.conversations.made import BASE64, DATA_URL, text, user

from groundwatch.conversations.conversation import Conversation, ImageText
from groundwatch.conversations.messages import answered, asked, read_messages, with_messages

CONTENT = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": DATA_URL}}]
BLOB = {"type": "blob", "modality": "image", "mime_type": "image/png", "content": BASE64}
CALL = Conversation(id="1", model="m", references={"input": "gs://b/in.json", "output": "gs://b/out.json"})

INPUTS = {
    "messages": [{"role": "user", "content": CONTENT}],
    "one message": {"role": "user", "content": CONTENT},
    "bare parts": CONTENT,
    "a request": {"model": "m", "messages": [{"role": "user", "content": CONTENT}]},
    "with tools": {"tools": [{"type": "function"}], "messages": [{"role": "user", "content": CONTENT}]},
    "a request for a response": {"input": [{"role": "user", "content": CONTENT}], "instructions": "x"},
    "Ollama": [{"role": "user", "content": "What is it?", "images": [BASE64]}],
    "Gemini": {
        "contents": [
            {
                "role": "user",
                "parts": [
                    {"text": "What is it?"},
                    {"inline_data": {"mime_type": "image/png", "data": BASE64}},
                ],
            }
        ]
    },
}


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("write", [lambda value: value, json.dumps, lambda value: json.dumps(value).encode()])
def test_what_was_asked_is_found_in_every_wrapper(name, write):
    read = read_messages(write(INPUTS[name]), "user")
    assert asked(read.messages) == "What is it?"
    assert [image for one in read.messages for image in one.images] == [ImageText(BASE64)]


OUTPUTS = {
    "choices": {"choices": [{"index": 0, "message": {"role": "assistant", "content": "A dog."}}]},
    "a message": {"role": "assistant", "content": "A dog."},
    "a list": [
        {"type": "reasoning", "summary": []},
        {"type": "message", "content": [{"type": "output_text", "text": "A dog."}]},
    ],
    "Anthropic": {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "A dog."}]},
    "parts": [{"role": "assistant", "parts": [{"type": "reasoning", "content": "Hm."}, text("A dog.")]}],
    "a text": "A dog.",
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_what_was_answered_is_found_in_every_wrapper(name):
    assert answered(read_messages(OUTPUTS[name], "assistant").messages) == "A dog."


@pytest.mark.parametrize(
    "answer", ['{"objects": ["dog"]}', "[1] is a dog", '{"objects": ["d', "[]", '["a", "b"]']
)
def test_an_answer_may_be_json_itself(answer):
    assert answered(read_messages(answer, "assistant", plain=True).messages) == answer


def test_the_last_message_of_the_user_is_the_prompt():
    messages = [
        *user(text("first")),
        {"role": "assistant", "parts": [text("ok")]},
        *user(text("second"), BLOB),
    ]
    read = read_messages([*messages, {"role": "tool", "content": "x"}], "user")
    assert asked(read.messages) == "second"
    assert asked(read_messages([{"role": "system", "content": "x"}], "user").messages) == ""


@pytest.mark.parametrize(
    "fetched",
    [
        user(text("What is it?"), BLOB),
        json.dumps(user(text("What is it?"), BLOB)),
        "\n".join(
            json.dumps(one | {"index": at})
            for at, one in enumerate(
                [{"role": "system", "parts": [text("x")]}, *user(text("What is it?"), BLOB)]
            )
        ),
        json.dumps(user(text("What is it?"), BLOB)).encode() + b"\n",
    ],
)
def test_messages_that_were_fetched(fetched):
    conversation = with_messages(CALL, "input", fetched)
    assert (conversation.prompt, conversation.images) == ("What is it?", (ImageText(BASE64),))
    assert conversation.references == {"output": "gs://b/out.json"}
    whole = with_messages(
        conversation, "output", json.dumps([{"role": "assistant", "parts": [text("A dog.")]}])
    )
    assert (whole.answer, whole.prompt, whole.references) == ("A dog.", "What is it?", {})


@pytest.mark.parametrize("fetched", [b"\xff", "", "{", b"<html>", "{}\n{"])
def test_fetched_messages_that_are_none_are_a_reason(fetched):
    assert with_messages(CALL, "input", fetched).left_out == ("reference_unreadable",)
