"""Whatever is sent: never an exception, always a value that can be stored."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import tracemalloc

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.conversations.made import RESPONSE, SPAN, TRACE, genai, text, user

from groundwatch.conversations.conversation import NAMES, REASONS, Conversation, Unreadable, repeat_key
from groundwatch.conversations.litellm import read_call
from groundwatch.conversations.messages import MOST, read_messages, with_messages
from groundwatch.conversations.openai import assembled, read_exchange
from groundwatch.conversations.spans import LogPart, joined, read_log, read_span

# With halves of characters, which Python's texts may hold and UTF-8 may not.
TEXTS = st.text(st.characters(), max_size=20) | st.sampled_from(
    [
        "",
        "user",
        "assistant",
        "image",
        "text",
        "data:image/png;base64,",
        "data:,",
        "__REDACTED__",
        "[",
        '{"a"',
        "\ud800",
        "tool_call",
    ]
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.just(10**400)
    | st.floats()
    | st.binary(max_size=20)
    | TEXTS
)
KEYS = st.sampled_from(
    sorted(
        {
            *(
                "role",
                "parts",
                "content",
                "type",
                "text",
                "messages",
                "message",
                "choices",
                "output",
                "input",
                "delta",
                "index",
            ),
            *(
                "tool_calls",
                "refusal",
                "images",
                "error",
                "response",
                "item",
                "id",
                "model",
                "status",
                "finish_reason",
            ),
            *(
                *NAMES.parts.wrappers,
                *NAMES.parts.texts,
                "kwargs",
                "thought",
                "0",
                "toolResult",
                "reasoningContent",
            ),
            *(
                key
                for path in (*NAMES.parts.payload, *NAMES.parts.media, *NAMES.parts.file)
                for key in path.split(".")
            ),
        }
    )
)
TYPES = st.sampled_from(
    sorted(
        NAMES.parts.text
        | NAMES.parts.image
        | NAMES.parts.tool_call
        | NAMES.parts.tool_result
        | NAMES.parts.silent
        | {
            "human",
            "AIMessageChunk",
            "Buffer",
            "message",
            "response.created",
            "response.completed",
            "response.output_text.delta",
            "response.output_item.done",
        }
    )
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(KEYS | TEXTS, inner, max_size=5)
        | st.builds(
            lambda kind, rest: {**rest, "type": kind}, TYPES, st.dictionaries(KEYS, inner, max_size=3)
        )
    ),
    max_leaves=20,
)


def written(value):
    """As a library writes it into an attribute, where it can."""
    try:
        return json.dumps(value, default=str)
    except ValueError:
        return "["


ANY = VALUES | VALUES.map(written) | VALUES.map(lambda value: written(value).encode("utf-8", "replace"))
ATTRIBUTES = st.dictionaries(
    st.sampled_from(
        sorted(
            {
                *(
                    key
                    for one in NAMES.dialect.values()
                    for keys in (
                        one.kind,
                        one.model,
                        one.id,
                        one.marks,
                        one.input,
                        one.output,
                        one.text,
                        one.input_reference,
                    )
                    for key in keys
                ),
                *NAMES.tags,
                *NAMES.events.bodies,
                *NAMES.events.fields,
                "error.type",
            }
        )
    )
    | st.builds(
        "{}.{}.{}".format,
        st.sampled_from(["llm.input_messages", "llm.output_messages", "gen_ai.prompt", "gen_ai.completion"]),
        st.sampled_from(["0", "1", "007", "-1", "999999999", "1000000000", "9" * 400, "x", "", "²", "0.0"]),
        st.sampled_from(
            [
                "role",
                "content",
                "message.role",
                "message.content",
                "message.contents.0.message_content.type",
                "message.contents.1.message_content.text",
                "message.contents.-1.message_content.type",
                "message.contents.5.message_content.image.image.url",
                "message.contents.5.message_content.type",
                "message.tool_calls.0.x",
                "message.contents",
                "message.contents.",
            ]
        ),
    ),
    ANY | st.sampled_from(["chat", "LLM", "generation"]),
    max_size=12,
)
IDS = st.sampled_from([TRACE, SPAN, "", "0" * 32, "\ud800", "x" * 500])
AT = st.floats() | st.integers()
EVENTS = st.tuples(
    st.sampled_from([*NAMES.events.inputs, *NAMES.events.outputs, *NAMES.events.details, ""]), ATTRIBUTES
)

loud = settings(deadline=None, suppress_health_check=list(HealthCheck))


def sound(read):
    """Everything of it can be stored, and every label is one of few."""
    if isinstance(read, Unreadable):
        assert read.reason in (
            "failed",
            "tool_call",
            "no_answer",
            "no_span",
            "no_ids",
            "no_model",
            "unreadable",
        )
        assert len(read.message) < 400
        msgspec.json.encode(read)
    elif isinstance(read, Conversation):
        assert set(read.left_out) <= REASONS.keys()
        assert len(read.id) <= 256
        assert all(len(tag) + len(value) < 600 for tag, value in read.tags.items())
        assert set(read.references) <= {"input", "output"}
        assert 0 <= read.at < float("inf")
        msgspec.json.encode(read)
        repeat_key(read)
    else:
        assert read is None or isinstance(read, LogPart)


@loud
@given(ATTRIBUTES, IDS, IDS, AT, st.lists(EVENTS, max_size=3), st.sampled_from(["", "litellm", "vllm", "x"]))
def test_spans_and_what_joins_them(attributes, trace, span, at, events, scope):
    read = read_span("chat", attributes, trace_id=trace, span_id=span, at=at, events=events, scope=scope)
    sound(read)
    parts = [read_log(name, one, None, trace_id=trace, span_id=span, at=at) for name, one in events]
    if isinstance(read, Conversation) or read is None:
        sound(joined(read, [part for part in parts if isinstance(part, LogPart)]))


@loud
@given(st.sampled_from([*NAMES.events.inputs, *NAMES.events.outputs]), ATTRIBUTES, ANY, IDS, IDS, AT)
def test_logs(name, attributes, body, trace, span, at):
    read = read_log(name, attributes, body, trace_id=trace, span_id=span, at=at)
    sound(read)
    if isinstance(read, LogPart):
        sound(joined(Conversation(model="m"), [read, read]))


@loud
@given(
    st.dictionaries(
        st.sampled_from(
            [
                "id",
                "litellm_call_id",
                "call_type",
                "status",
                "model",
                "messages",
                "response",
                "request_tags",
                "metadata",
                "endTime",
                "end_user",
                "error_str",
                "custom_llm_provider",
            ]
        ),
        ANY,
    )
    | ANY
)
def test_litellm(record):
    sound(read_call(record))


BODIES = (
    ANY
    | st.dictionaries(KEYS, ANY, max_size=6)
    | st.lists(st.dictionaries(KEYS, ANY, max_size=5), max_size=4)
)


@loud
@given(
    BODIES,
    BODIES | st.lists(VALUES).map(lambda events: "".join(f"data: {written(one)}\n\n" for one in events)),
)
def test_exchanges(request_body, response):
    sound(read_exchange(request_body, response))
    sound(read_exchange({"model": "m", "messages": "What?"}, response, at=float("nan")))


@loud
@given(st.lists(VALUES, max_size=6))
def test_chunks(chunks):
    assert isinstance(assembled(chunks), dict)


@loud
@given(
    st.sampled_from(["messages", "choices", "contents", "candidates", "generations"]),
    st.lists(st.dictionaries(KEYS | TEXTS, VALUES, min_size=1, max_size=4), min_size=1, max_size=3),
    st.sampled_from(["user", "assistant"]),
)
def test_json_of_messages_is_never_itself_what_was_said(key, held, role):
    given = written({key: held})
    assert all(one.text != given for one in read_messages(given, role, plain=True).messages)


@loud
@given(ANY, st.sampled_from(["input", "output"]))
def test_fetched_messages(messages, side):
    sound(with_messages(Conversation(model="m", references={"input": "gs://x"}), side, messages))


def deep(levels):
    return "[" * levels + "]" * levels


def nested(levels):
    value = {"role": "user", "content": "x"}
    for _ in range(levels):
        value = {"messages": [value], "type": "tool_result", "content": [value]}
    return value


@pytest.mark.parametrize(
    "messages",
    [
        deep(200_000),
        '[{"a":' * 100_000,
        "9" * 100_000,
        f"[{'9' * 100_000}]",
        nested(50),
        [[[[]]]],
        '["\\ud800"]',
        "[NaN]",
        b"\x00" * 100,
    ],
)
def test_messages_without_end(messages):
    for key in ("gen_ai.input.messages", "gen_ai.output.messages", "langfuse.observation.input"):
        sound(read_span("x", genai(user(text("x"))) | {key: messages}, trace_id=TRACE, span_id=SPAN, at=1.0))


def test_a_half_of_a_character_costs_that_character_only():
    attributes = genai([]) | {
        "gen_ai.input.messages": '[{"role": "user", "parts": [{"type": "text", "content": "a\\ud800b"}]}]'
    }
    assert read_span("x", attributes, trace_id=TRACE, span_id=SPAN, at=1.0).prompt == "a?b"


def test_memory_is_that_of_what_came():
    """10,000 attributes with indexes without end, and an image of 20 MB: no copy but the image's own."""
    picture = "A" * 20_000_000
    attributes = genai(user(text("x"), {"type": "blob", "modality": "image", "content": picture}))
    for number in range(10_000):
        attributes[
            f"llm.input_messages.{number * 90_001}.message.contents.{number * 90_001}.message_content.text"
        ] = "x"
    tracemalloc.start()
    read = read_span("x", attributes, trace_id=TRACE, span_id=SPAN, at=1.0)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(read.images[0].base64) == len(picture)
    assert read.id == RESPONSE
    assert held < 1.5 * len(picture)
    assert peak < 3 * len(picture)


@pytest.mark.parametrize(
    "messages",
    [
        user(*[{"type": "image", "url": "https://x/y"}] * 100_000),
        user({"type": "image", "url": "https://x/y"}) * 100_000,
        user({"type": "tool_result", "content": [{"type": "image", "url": "https://x/y"}] * 1_000}) * 1_000,
    ],
)
def test_parts_without_end_are_a_reason(messages):
    read = read_span("x", genai(messages), trace_id=TRACE, span_id=SPAN, at=1.0)
    assert len(read.images) <= MOST
    assert "too_many_parts" in read.left_out


def test_a_stream_without_end_is_unreadable():
    assert read_exchange({"model": "m", "messages": "x"}, b"data: {}\n\n" * 600_000).reason == "unreadable"


def test_exchanges_need_msgspec_only():
    """The client library reads exchanges, and brings nothing else (typing_extensions is msgspec's)."""
    code = """
import sys
import time
before = set(sys.modules)
import groundwatch.conversations.openai
known = {*sys.stdlib_module_names, "msgspec", "typing_extensions", "groundwatch"}
print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before} - known))
ours = {name.split(".")[1] for name in sys.modules if name.startswith("groundwatch.")}
print(*sorted(ours - {"conversations", "counting", "errors"}))
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == []


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        *(("", piece) for piece in ("[img: ", "![", "<img ", "![](data:image/png;base64,", "<image> ", ". ")),
        *((start, "A") for start in ("![](data:image/png;base64,", '<img src="data:image/png;base64,')),
    ],
)
def test_marks_and_images_without_end_cost_no_more_than_a_text(start, piece):
    def seconds(prompt):
        began = time.process_time()
        read_exchange({"model": "m", "messages": [{"role": "user", "content": prompt}]}, {"response": "x"})
        return time.process_time() - began

    length = 1_000_000
    hostile = start + piece * (length // len(piece))
    assert seconds(hostile + " data:image/") < 10 * seconds("data:image/" + "x" * length) + 0.5
