"""A small server of OpenAI's API: it says what it saw, whole or as a stream."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ANSWER = "A brown dog sits on a mat – 犬."
_NUMBERS = itertools.count(1)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        name = f"{next(_NUMBERS):08}-of-the-test-server"
        if asked["model"] == "broken":
            self._whole({"error": {"message": "no"}}, 400)
        elif self.path.endswith("/chat/completions"):
            self._chat(asked, f"chatcmpl-{name}")
        else:
            self._response(asked, f"resp_{name}")

    def _chat(self, asked: dict[str, Any], name: str) -> None:
        about = {"id": name, "created": 1_700_000_000, "model": asked["model"]}
        if not asked.get("stream"):
            message = {"role": "assistant", "content": ANSWER}
            if asked["model"] == "caller":
                function = {"name": "f", "arguments": "{}"}
                call = {"id": "c", "type": "function", "function": function}
                message = {"role": "assistant", "content": None, "tool_calls": [call]}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            self._whole({**about, "object": "chat.completion", "choices": [choice]})
            return
        events = [
            {
                **about,
                "object": "chat.completion.chunk",
                "choices": [{"index": 0, "delta": {"role": "assistant", "content": word}}],
            }
            for word in words()
        ]
        last = {"index": 0, "delta": {}, "finish_reason": "stop"}
        events.append({**about, "object": "chat.completion.chunk", "choices": [last]})
        # What somebody wants to leave must not be over before.
        pause = 0.2 if asked["model"] == "left" else 0.0
        self._stream([("", event) for event in events], done=True, pause=pause)

    def _response(self, asked: dict[str, Any], name: str) -> None:
        part = {"type": "output_text", "text": ANSWER, "annotations": []}
        item = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
        begun = {
            "id": name,
            "object": "response",
            "created_at": 1_700_000_000,
            "model": asked["model"],
            "status": "in_progress",
            "output": [],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }
        whole = {**begun, "status": "completed", "output": [item]}
        if not asked.get("stream"):
            self._whole(whole)
            return
        where = {"item_id": "m", "output_index": 0, "content_index": 0}
        events: list[dict[str, Any]] = [
            {"type": "response.created", "response": begun},
            {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
            {"type": "response.content_part.added", **where, "part": {**part, "text": ""}},
            *(
                {"type": "response.output_text.delta", **where, "delta": word, "logprobs": []}
                for word in words()
            ),
            {"type": "response.output_text.done", **where, "text": ANSWER, "logprobs": []},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": whole},
        ]
        numbered = [{**event, "sequence_number": number} for number, event in enumerate(events)]
        self._stream([(event["type"], event) for event in numbered], done=False)

    def _whole(self, body: Any, status: int = 200) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, events: list[tuple[str, Any]], *, done: bool, pause: float = 0.0) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for kind, event in events:
                self._chunk((f"event: {kind}\n" if kind else "") + f"data: {json.dumps(event)}\n\n")
                time.sleep(pause)
            if done:
                self._chunk("data: [DONE]\n\n")
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            return

    def _chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


def words() -> list[str]:
    return [word if number == 0 else f" {word}" for number, word in enumerate(ANSWER.split(" "))]


@contextmanager
def openai_server() -> Iterator[str]:
    """The base URL of one."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
