"""A stand-in for a model's server: OpenAI's chat completions and responses, in one piece and streamed, and
what `vendors` has."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.emitters import vendors

CREATED = 1_790_000_000


def answer_to(messages: list[dict[str, Any]]) -> str:
    return vendors.answer_to(json.dumps(messages))


def chat(body: dict[str, Any]) -> dict[str, Any]:
    message = {"role": "assistant", "content": answer_to(body["messages"]), "refusal": None}
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": CREATED,
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 40, "completion_tokens": 8, "total_tokens": 48},
    }


def chat_chunks(body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    whole = {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion.chunk",
        "created": CREATED,
        "model": body["model"],
    }
    words = answer_to(body["messages"]).split(" ")
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": word if not number else f" {word}"} for number, word in enumerate(words)]
    for delta in deltas:
        yield "", whole | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield "", whole | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    if (body.get("stream_options") or {}).get("include_usage"):
        usage = {"prompt_tokens": 40, "completion_tokens": 8, "total_tokens": 48}
        yield "", whole | {"choices": [], "usage": usage}


def response(body: dict[str, Any]) -> dict[str, Any]:
    given = body["input"]
    messages = [{"role": "user", "content": given}] if isinstance(given, str) else given
    text = {"type": "output_text", "text": answer_to(messages), "annotations": []}
    message = {
        "id": f"msg_{uuid.uuid4().hex}",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [text],
    }
    return {
        "id": f"resp_{uuid.uuid4().hex}",
        "object": "response",
        "created_at": CREATED,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": body["model"],
        "output": [message],
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": {
            "input_tokens": 40,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 8,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 48,
        },
    }


def response_events(body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    done = response(body)
    message = done["output"][0]
    text = message["content"][0]["text"]
    begun = done | {"status": "in_progress", "output": [], "usage": None}
    place = {"item_id": message["id"], "output_index": 0, "content_index": 0}
    empty = {"type": "output_text", "text": "", "annotations": []}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": message | {"status": "in_progress", "content": []},
        },
        {"type": "response.content_part.added", **place, "part": empty},
    ]
    for number, word in enumerate(text.split(" ")):
        delta = word if not number else f" {word}"
        events.append({"type": "response.output_text.delta", **place, "delta": delta, "logprobs": []})
    events += [
        {"type": "response.output_text.done", **place, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **place, "part": message["content"][0]},
        {"type": "response.output_item.done", "output_index": 0, "item": message},
        {"type": "response.completed", "response": done},
    ]
    for number, event in enumerate(events):
        yield event["type"], event | {"sequence_number": number}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._send(json.dumps({"object": "list", "data": []}).encode(), "application/json")

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        body = json.loads(raw)
        if others := vendors.reply(self.path, body):
            self._send(*others)
            return
        is_chat = self.path.rstrip("/").endswith("/chat/completions")
        if body.get("stream"):
            events = chat_chunks(body) if is_chat else response_events(body)
            lines = [
                (f"event: {name}\n" if name else "") + f"data: {json.dumps(event)}\n\n"
                for name, event in events
            ]
            if is_chat:
                lines.append("data: [DONE]\n\n")
            reply, kind = "".join(lines).encode(), "text/event-stream"
        else:
            reply = json.dumps(chat(body) if is_chat else response(body)).encode()
            kind = "application/json"
        self.server.exchanges.append((self.path, raw, reply))  # type: ignore[attr-defined]
        self._send(reply, kind)

    def _send(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class StandIn:
    """The server, in a thread: `with StandIn() as model: model.url`."""

    def __enter__(self) -> StandIn:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self.exchanges: list[tuple[str, bytes, bytes]] = []
        self._server.exchanges = self.exchanges  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"
