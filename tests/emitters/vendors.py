"""What Anthropic's, Google's and Amazon's servers answer, in one piece and streamed: `reply(path, body)`."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from typing import Any

from tests.emitters.calls import CALLS

Reply = tuple[bytes, str]
"""A body, and its content type."""


def answer_to(asked: str) -> str:
    """The answer of the call whose prompt is in the request."""
    return next((call.answer for call in CALLS.values() if call.prompt in asked), f"No idea: {asked[:200]}")


def pieces(text: str) -> Iterator[str]:
    for number, word in enumerate(text.split(" ")):
        yield f" {word}" if number else word


def _json(body: Any) -> Reply:
    return json.dumps(body).encode(), "application/json"


def _events(events: list[dict[str, Any]], *, named: bool) -> Reply:
    lines = (
        (f"event: {event['type']}\n" if named else "") + f"data: {json.dumps(event)}\n\n" for event in events
    )
    return "".join(lines).encode(), "text/event-stream"


def anthropic(body: dict[str, Any], answer: str) -> Reply:
    """`POST /v1/messages`."""
    whole = {
        "id": "msg_01" + f"{zlib.crc32(answer.encode()):022d}",
        "type": "message",
        "role": "assistant",
        "model": body.get("model", ""),
        "content": [{"type": "text", "text": answer}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 40, "output_tokens": 8},
    }
    if not body.get("stream"):
        return _json(whole)
    begun = whole | {"content": [], "stop_reason": None, "usage": {"input_tokens": 40, "output_tokens": 1}}
    text = [{"type": "text_delta", "text": piece} for piece in pieces(answer)]
    events = [
        {"type": "message_start", "message": begun},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in text),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 8},
        },
        {"type": "message_stop"},
    ]
    return _events(events, named=True)


def gemini(path: str, answer: str) -> Reply:
    """`POST /v1beta/models/MODEL:generateContent`, and `:streamGenerateContent?alt=sse`."""
    model = path.rpartition("/models/")[2].partition(":")[0]

    def chunk(text: str, last: bool) -> dict[str, Any]:
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": [{"text": text}]}, "index": 0}
        usage = {"promptTokenCount": 40, "candidatesTokenCount": 8, "totalTokenCount": 48}
        return {
            "candidates": [candidate | ({"finishReason": "STOP"} if last else {})],
            "usageMetadata": usage,
            "modelVersion": model,
            "responseId": f"r{zlib.crc32(answer.encode())}",
        }

    if ":stream" not in path:
        return _json(chunk(answer, last=True))
    words = list(pieces(answer))
    chunks = [chunk(word, last=number == len(words)) for number, word in enumerate(words, start=1)]
    return _events(chunks, named=False)


USAGE = {"inputTokens": 40, "outputTokens": 8, "totalTokens": 48}


def converse(answer: str) -> Reply:
    """`POST /model/MODEL/converse`."""
    message = {"role": "assistant", "content": [{"text": answer}]}
    return _json(
        {
            "output": {"message": message},
            "stopReason": "end_turn",
            "usage": USAGE,
            "metrics": {"latencyMs": 7},
        }
    )


def converse_stream(answer: str) -> Reply:
    """`POST /model/MODEL/converse-stream`."""
    deltas = [{"contentBlockIndex": 0, "delta": {"text": piece}} for piece in pieces(answer)]
    events: list[tuple[str, dict[str, Any]]] = [
        ("messageStart", {"role": "assistant"}),
        *(("contentBlockDelta", delta) for delta in deltas),
        ("contentBlockStop", {"contentBlockIndex": 0}),
        ("messageStop", {"stopReason": "end_turn"}),
        ("metadata", {"usage": USAGE, "metrics": {"latencyMs": 7}}),
    ]
    frames = b"".join(_frame(kind, json.dumps(event).encode()) for kind, event in events)
    return frames, "application/vnd.amazon.eventstream"


def _frame(kind: str, payload: bytes) -> bytes:
    """A message of Amazon's event stream: lengths, headers and payload, each part with its CRC."""
    headers = b""
    named = ((":event-type", kind), (":content-type", "application/json"), (":message-type", "event"))
    for name, value in named:
        headers += struct.pack(">B", len(name)) + name.encode()
        headers += struct.pack(">BH", 7, len(value)) + value.encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + payload
    return message + struct.pack(">I", zlib.crc32(message))


def reply(path: str, body: dict[str, Any]) -> Reply | None:
    """None of a path that none of them has."""
    answer = answer_to(json.dumps(body))
    if path.endswith("/v1/messages"):
        return anthropic(body, answer)
    if "enerateContent" in path:
        return gemini(path, answer)
    if path.endswith("/converse"):
        return converse(answer)
    if path.endswith("/converse-stream"):
        return converse_stream(answer)
    if path.endswith("/invoke"):
        return anthropic(body | {"model": path.split("/")[-2]}, answer)
    return None
