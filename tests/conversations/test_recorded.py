"""What real emitters sent, read: `recorded` holds each as it came, by tests/emitters/record.py."""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from groundwatch.conversations import litellm, openai, spans
from groundwatch.conversations.conversation import Conversation, ImageText, ImageUrl, Unreadable, repeat_key
from groundwatch.conversations.messages import with_messages

RECORDED = Path(__file__).parent / "recorded"
MODEL = "gpt-4o-mini"

LEFT_OUT = {
    "openai-v2-no-content": "openai_v2_no_content",
    "openai-v2-experimental-span": "genai_empty_parts",
    "openai-v2-experimental-event": "genai_empty_parts",
    "genai-openai-no-content": "genai_no_content",
    "openinference-redacted": "openinference_redacted",
    "openinference-hide-images": "openinference_hidden",
    "openllmetry-default": "openllmetry_no_input",
    "langfuse-default": "langfuse_media",
    "litellm-otel-content-true": "litellm_no_content",
    "litellm-proxy-single": "litellm_truncated",
    "litellm-proxy-otel-v2": "litellm_truncated",
}
"""Why images that were given as a data URL are missing; those of recordings not named here are there."""

NAMES = sorted(path.stem for path in RECORDED.glob("*.json"))


def value_of(value: dict[str, Any] | None) -> Any:
    """An OTLP value as Python's own."""
    if not value:
        return None
    kind, held = next(iter(value.items()))
    if kind == "arrayValue":
        return [value_of(item) for item in held.get("values", ())]
    if kind == "kvlistValue":
        return attributes_of(held.get("values", ()))
    if kind == "bytesValue":
        return base64.b64decode(held)
    return int(held) if kind == "intValue" else held


def attributes_of(pairs: Any) -> dict[str, Any]:
    return {pair["key"]: value_of(pair.get("value")) for pair in pairs}


def from_otlp(bodies: list[dict[str, Any]]) -> list[Conversation | Unreadable]:
    """The calls of OTLP requests, joined by trace and span as a receiver does."""
    calls: list[Conversation | Unreadable] = []
    read_spans: dict[tuple[str, str], Conversation | Unreadable | None] = {}
    parts: dict[tuple[str, str], list[spans.LogPart]] = defaultdict(list)
    for body in bodies:
        for resource in body.get("resourceSpans", ()):
            for scope in resource["scopeSpans"]:
                for span in scope["spans"]:
                    key = span["traceId"], span["spanId"]
                    read_spans[key] = spans.read_span(
                        span["name"],
                        attributes_of(span.get("attributes", ())),
                        trace_id=key[0],
                        span_id=key[1],
                        at=int(span["endTimeUnixNano"]) / 1e9,
                        events=[
                            (event["name"], attributes_of(event.get("attributes", ())))
                            for event in span.get("events", ())
                        ],
                        scope=scope["scope"]["name"],
                    )
        for resource in body.get("resourceLogs", ()):
            for scope in resource["scopeLogs"]:
                for log in scope["logRecords"]:
                    attributes = attributes_of(log.get("attributes", ()))
                    key = log.get("traceId", ""), log.get("spanId", "")
                    part = spans.read_log(
                        log.get("eventName")
                        or attributes.get("event.name")
                        or attributes.get("event_name", ""),
                        attributes,
                        value_of(log.get("body")),
                        trace_id=key[0],
                        span_id=key[1],
                        at=int(log.get("timeUnixNano", log["observedTimeUnixNano"])) / 1e9,
                        scope=scope["scope"]["name"],
                    )
                    if isinstance(part, Unreadable):
                        calls.append(part)
                    elif part is not None:
                        parts[key].append(part)
    for key in read_spans.keys() | parts.keys():
        span = read_spans.get(key)
        if isinstance(span, Unreadable):
            calls.append(span)
        elif span is not None or parts[key]:
            calls.append(spans.joined(span, parts[key]))
    return calls


def from_litellm(bodies: list[str]) -> list[Conversation | Unreadable]:
    """The calls of posts of LiteLLM's generic_api logger, in each of its formats."""
    records: list[Any] = []
    for body in bodies:
        for line in [body] if body.startswith("[") else body.splitlines():
            held = json.loads(line)
            records += held if isinstance(held, list) else [held]
    read = [litellm.read_call(record) for record in records]
    return [call for call in read if call is not None]


def calls_of(recording: dict[str, Any]) -> list[Conversation | Unreadable]:
    requests = recording["requests"]
    if recording["emitter"] == "openai":
        return [
            openai.read_exchange(request["body"]["request"], request["body"]["response"])
            for request in requests
        ]
    if requests and requests[0]["path"] == "/v1/litellm":
        return from_litellm([request["body"] for request in requests])
    return from_otlp([request["body"] for request in requests if isinstance(request["body"], dict)])


def load(name: str) -> dict[str, Any]:
    recording: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text())
    return recording


@pytest.mark.parametrize("name", NAMES)
def test_each_recorded_call_is_read(name: str) -> None:
    recording = load(name)
    calls = calls_of(recording)
    reason = LEFT_OUT.get(name, "")
    if name == "openllmetry-events":
        # Of a stream it writes the answer without saying of which span, so that the span has none.
        assert [call.reason for call in calls if isinstance(call, Unreadable)] == ["no_ids", "no_answer"]
        calls = [call for call in calls if not isinstance(call, Unreadable) and call.answer]
        del recording["calls"]["stream"]
    if name == "logfire-default":
        # A stream is two spans: what was asked alone, and both.
        calls = [call for call in calls if isinstance(call, Conversation) and call.answer]
    for call in calls:
        assert isinstance(call, Conversation), call
        # What the application asks LiteLLM for begins with the provider's name.
        assert call.model == ("openai/" if recording["emitter"] == "openinference-litellm" else "") + MODEL
        assert (call.id and call.at) or recording["emitter"] == "openai"
    if reason.endswith("no_content"):
        assert {call.left_out for call in calls} == {(reason,)}
        assert len(calls) == len(recording["calls"])
        return
    if "uploads" in recording:
        calls = [uploaded(recording["uploads"], call) for call in calls if isinstance(call, Conversation)]
    by_answer = defaultdict(list)
    for call in calls:
        by_answer[call.answer].append(call)
    assert by_answer.keys() == {call["answer"] for call in recording["calls"].values()}
    for key, made in recording["calls"].items():
        told = by_answer[made["answer"]]
        assert len({repeat_key(call) for call in told} if len(told) > 1 else told) == 1, (key, told)
        for call in told:
            check(name, made, call, reason)


def uploaded(uploads: dict[str, str], call: Conversation) -> Conversation:
    """With the messages that the library put elsewhere, as a gateway fetches them."""
    assert call.references.keys() == {"input", "output"}
    for side in ("input", "output"):
        held = json.loads(uploads[Path(call.references[side]).name])
        call = with_messages(call, side, held)
    return call


def lost_in(made: dict[str, Any], reason: str) -> str:
    """Why this call's image is missing, in a setting in which `reason` is why images are."""
    if reason in ("genai_empty_parts", "openinference_hidden"):
        return reason if made["image"] else ""
    if reason == "openllmetry_no_input" and made["api"] == "responses":
        return ""  # Its wrapper of responses uploads nothing, and so loses nothing.
    return reason if made["image"].startswith("data:") else ""


def check(name: str, made: dict[str, Any], call: Conversation, reason: str) -> None:
    """One call against what the application asked."""
    lost = lost_in(made, reason)
    assert call.left_out == ((lost,) if lost else ()), (name, call)
    if lost not in ("genai_empty_parts", "openllmetry_no_input"):
        assert call.prompt == made["prompt"]
    if lost or not made["image"]:
        assert call.images == ()
    elif made["image"].startswith("data:"):
        (image,) = call.images
        held = image.base64 if isinstance(image, ImageText) else base64.b64encode(image).decode()  # type: ignore[arg-type]
        assert held == made["image"].partition(",")[2]
    else:
        assert call.images == (ImageUrl(made["image"]),)


def test_the_recordings_name_no_machine() -> None:
    for path in RECORDED.glob("*.json"):
        text = path.read_text()
        assert not any(word in text for word in ("/tmp/", "/root/", "/home/", "process.pid", "host.name")), (
            path
        )
