"""Which images an answer is about: those of the user's last turn, else those of the turns before."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.conversations.made import BASE64, DATA_URL, text

from groundwatch.conversations.conversation import Conversation, ImageText, ImageUrl
from groundwatch.conversations.openai import read_exchange

ANSWER = {"model": "m", "choices": [{"index": 0, "message": {"role": "assistant", "content": "A dog."}}]}


def shown(name: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"https://h/{name}"}}


def said(role: str, text: str, *parts: Any) -> dict[str, Any]:
    return {"role": role, "content": [*([{"type": "text", "text": text}] if text else []), *parts]}


LOST = {"type": "input_image", "file_id": "file-1"}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "zoom"}}]}
USE = {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "zoom", "input": {}}]}
FIRST = [said("user", "What is it?", shown("a")), said("assistant", "A cat.")]


def result(name: str) -> dict[str, Any]:
    content = [{"type": "image", "source": {"type": "url", "url": f"https://h/{name}"}}]
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": content}]}


TURNS: dict[str, tuple[list[Any], str, str, list[str], list[str]]] = {
    "one turn": ([said("user", "What is it?", shown("a"))], "", "a", [], []),
    "a new image": ([*FIRST, said("user", "And this?", shown("b"))], "a", "b", [], []),
    "of what was shown": ([*FIRST, said("user", "What colour?")], "", "a", [], []),
    "of all that was shown": (
        [*FIRST, said("user", "", shown("b")), said("assistant", "A dog."), said("user", "Which is older?")],
        "",
        "ab",
        [],
        [],
    ),
    "an image, then the question": (
        [said("system", "Be short."), said("user", "", shown("a")), said("user", "What is it?")],
        "",
        "a",
        [],
        [],
    ),
    "the same in a later turn": (
        [*FIRST, said("user", "", shown("b"), shown("c")), said("user", "And these?")],
        "a",
        "bc",
        [],
        [],
    ),
    "examples, then the question": (
        [*FIRST, said("user", "", shown("b")), said("assistant", "A dog."), said("user", "", shown("c"))],
        "ab",
        "c",
        [],
        [],
    ),
    "a tool shows something": (
        [
            said("user", "Look at it.", shown("a")),
            CALL,
            said("tool", "", shown("b")),
        ],
        "",
        "ab",
        [],
        [],
    ),
    "a tool shows something in the user's name": (
        [*FIRST, said("user", "Look at this.", shown("b")), USE, result("c")],
        "a",
        "bc",
        [],
        [],
    ),
    "this turn lacks its image": ([*FIRST, said("user", "And this?", LOST)], "a", "", ["file_id"], []),
    "an earlier turn lacks its image": (
        [said("user", "", LOST), said("assistant", "A cat."), said("user", "And this?", shown("b"))],
        "",
        "b",
        [],
        ["file_id"],
    ),
    "what is asked about lacks its image": (
        [said("user", "", LOST), said("assistant", "A cat."), said("user", "What colour?")],
        "",
        "",
        ["file_id"],
        [],
    ),
}
"""Messages; by their letters the images of earlier turns and those that are judged; reasons of both."""


@pytest.mark.parametrize("name", TURNS)
def test_the_images_of_the_last_turn_are_judged(name: str) -> None:
    messages, earlier, judged, left_out, earlier_left_out = TURNS[name]
    call = read_exchange({"model": "m", "messages": messages}, ANSWER)
    assert isinstance(call, Conversation)
    assert call.images == tuple(ImageUrl(f"https://h/{letter}") for letter in earlier + judged)
    assert call.earlier_images == len(earlier)
    assert (list(call.left_out), list(call.earlier_left_out)) == (left_out, earlier_left_out)


INLINE = {"mimeType": "image/png", "data": BASE64}
TOOLS: dict[str, list[Any]] = {
    "OpenAI's responses": [
        said("user", "Look at it."),
        {"type": "function_call", "call_id": "1", "name": "zoom", "arguments": "{}"},
        {
            "type": "function_call_output",
            "call_id": "1",
            "output": [{"type": "input_image", "image_url": DATA_URL}],
        },
    ],
    "a computer's screen": [
        said("user", "Look at it."),
        {"type": "computer_call", "call_id": "1", "action": {"type": "screenshot"}},
        {
            "type": "computer_call_output",
            "call_id": "1",
            "output": {"type": "computer_screenshot", "image_url": DATA_URL},
        },
    ],
    "the GenAI conventions": [
        {"role": "user", "parts": [text("Look at it.")]},
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "1", "name": "zoom"}]},
        {
            "role": "tool",
            "parts": [
                {
                    "type": "tool_call_response",
                    "id": "1",
                    "response": [{"type": "blob", "mime_type": "image/png", "content": BASE64}],
                }
            ],
        },
    ],
    "Anthropic": [
        said("user", "Look at it."),
        USE,
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "1",
                    "content": [
                        {"type": "text", "text": "Here it is."},
                        {
                            "type": "image",
                            "source": {"type": "base64", "media_type": "image/png", "data": BASE64},
                        },
                    ],
                }
            ],
        },
    ],
    "Bedrock": [
        {"role": "user", "content": [{"text": "Look at it."}]},
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "1", "name": "zoom", "input": {}}}]},
        {
            "role": "user",
            "content": [
                {
                    "toolResult": {
                        "toolUseId": "1",
                        "content": [{"image": {"format": "png", "source": {"bytes": BASE64}}}],
                    }
                }
            ],
        },
    ],
    "Gemini": [
        {"role": "user", "parts": [{"text": "Look at it."}]},
        {"role": "model", "parts": [{"functionCall": {"name": "zoom", "args": {}}}]},
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "name": "zoom",
                        "response": {"ok": True},
                        "parts": [{"inlineData": INLINE}],
                    }
                }
            ],
        },
    ],
    "JSON in a text": [
        said("user", "Look at it."),
        CALL,
        {"role": "tool", "tool_call_id": "1", "content": json.dumps([{"type": "image", "data": DATA_URL}])},
    ],
    "a link in a text": [
        said("user", "Look at it."),
        CALL,
        {"role": "tool", "tool_call_id": "1", "content": f"[Screenshot]({DATA_URL})"},
    ],
    "Markdown in JSON": [
        said("user", "Look at it."),
        CALL,
        {"role": "tool", "tool_call_id": "1", "content": json.dumps({"text": f"![a]({DATA_URL})"})},
    ],
    "JSON behind a line": [
        said("user", "Look at it."),
        CALL,
        {"role": "tool", "tool_call_id": "1", "content": "\n" + json.dumps({"shot": DATA_URL})},
    ],
    "JSON deep inside": [
        said("user", "Look at it."),
        CALL,
        {
            "role": "tool",
            "tool_call_id": "1",
            "content": json.dumps({"a": {"b": {"c": [{"d": {"e": DATA_URL}}]}}}),
        },
    ],
    "an image beside a text": [
        said("user", "Look at it."),
        CALL,
        {"role": "tool", "content": "Done.", "parts": [{"type": "image", "data": BASE64}]},
    ],
    "JSON in a result": [
        said("user", "Look at it."),
        {
            "role": "user",
            "parts": [{"type": "tool_call_response", "response": json.dumps({"shot": DATA_URL})}],
        },
    ],
    "the AI SDK": [
        said("user", "Look at it."),
        {"role": "assistant", "content": [{"type": "tool-call", "toolCallId": "1", "toolName": "zoom"}]},
        {
            "role": "tool",
            "content": [
                {
                    "type": "tool-result",
                    "toolCallId": "1",
                    "output": {
                        "type": "content",
                        "value": [{"type": "media", "data": BASE64, "mediaType": "image/png"}],
                    },
                }
            ],
        },
    ],
}


@pytest.mark.parametrize("name", TOOLS)
def test_what_a_tool_shows_is_what_the_answer_after_it_is_about(name: str) -> None:
    for messages, earlier in ((TOOLS[name], 0), ([*FIRST, *TOOLS[name]], 1)):
        call = read_exchange({"model": "m", "messages": messages}, ANSWER)
        assert isinstance(call, Conversation)
        assert (call.prompt, call.answer) == ("Look at it.", "A dog.")
        assert (call.images[earlier:], call.earlier_images) == ((ImageText(BASE64),), earlier)
        assert (call.left_out, call.earlier_left_out) == ((), ())


def test_what_was_said_before_stays_as_context_by_its_end() -> None:
    call = read_exchange({"model": "m", "messages": [said("system", "Be short."), *FIRST, FIRST[0]]}, ANSWER)
    assert isinstance(call, Conversation)
    assert call.earlier == "user: What is it?\nassistant: A cat."
    long = [said("user", "x" * 9_000), said("assistant", "y"), said("user", "z")]
    call = read_exchange({"model": "m", "messages": long}, ANSWER)
    assert isinstance(call, Conversation)
    assert (len(call.earlier), call.earlier[-14:]) == (4_000, "x\nassistant: y")


MARKS = {
    "<image>": "image_mark",
    "</image/>": "image_mark",
    "<image_2>": "image_mark",
    "<image_placeholder>": "image_mark",
    "<ImageHere>": "image_mark",
    "<|image_pad|>": "image_mark",
    "<|begin_of_image|>": "image_mark",
    "<start_of_image>": "image_mark",
    "</vision_start/>": "image_mark",
    "<img><IMG_CONTEXT></img>": "image_mark",
    "[Image #1]": "image_mark",
    "[img]": "image_mark",
    "[Image: dog.png]": "image_mark",
    "[image attached]": "image_mark",
    "<video>": "video",
    "[Video #1]": "video",
    "<video>\nLook.": "video",
    "Here: <image> please.": "image_mark",
    "What is in <image>?": "image_mark",
    "See [image 2].": "image_mark",
    "[img: a dog]\n": "image_mark",
    "How does the <video> tag work?": "",
    "Explain </image> in RSS.": "",
    "Why is <img> no block?": "",
    "[img: bug] x": "",
    "<images>": "",
    '<img src="a.png">': "",
    "[imagine]": "",
}
"""What stands in a prompt for what did not come with it, by the reason."""


@pytest.mark.parametrize("mark", MARKS)
def test_a_mark_stands_for_what_is_not_there(mark: str) -> None:
    call = read_exchange({"model": "m", "messages": [said("user", f"{mark} Is it?")]}, ANSWER)
    assert isinstance(call, Conversation)
    assert call.left_out == ((MARKS[mark],) if MARKS[mark] else ())
    call = read_exchange({"model": "m", "messages": [said("user", f"{mark} Is it?", shown("a"))]}, ANSWER)
    assert isinstance(call, Conversation)
    assert call.left_out == ()


def test_numbered_marks_tell_how_many_there_should_be() -> None:
    for images, left_out in ((1, ("image_mark",)), (2, ())):
        parts = [shown(letter) for letter in "ab"[:images]]
        asked = said("user", "What differs in [Image #1] and [Image #2], or in [Image #1]?", *parts)
        call = read_exchange({"model": "m", "messages": [asked]}, ANSWER)
        assert isinstance(call, Conversation)
        assert call.left_out == left_out


def test_what_was_lost_in_an_earlier_turn_is_told_once() -> None:
    turns = [said("user", "What is it?", LOST), said("assistant", "A cat.")]
    for image, earlier in ((), ("file_id",)), ((shown("b"),), ("file_id",)):
        asked = said("user", "What differs in [Image #1] and [Image #2]?", *image, shown("a"))
        call = read_exchange({"model": "m", "messages": [*turns, asked]}, ANSWER)
        assert isinstance(call, Conversation)
        assert (call.left_out, call.earlier_left_out) == ((), earlier)


def test_what_a_tool_shows_is_read_within_the_budget_once() -> None:
    content = "".join(f"![a]({DATA_URL})" for _ in range(6_000))
    asked = [said("user", "Look."), CALL, {"role": "tool", "content": content}]
    call = read_exchange({"model": "m", "messages": asked}, ANSWER)
    assert isinstance(call, Conversation)
    assert (len(call.images), call.left_out) == (6_000, ())
