"""Takes whatever an emitter posts and keeps it: OTLP as its JSON, other bodies as text."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

SIGNALS = {
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/logs": ExportLogsServiceRequest,
    "/v1/metrics": ExportMetricsServiceRequest,
}
IDS = ("traceId", "spanId", "parentSpanId")


@dataclasses.dataclass(frozen=True)
class Request:
    """What came: `body` is OTLP's JSON, or text."""

    path: str
    headers: dict[str, str]
    body: Any


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._send()

    def do_POST(self) -> None:
        raw = self._read()
        if self.headers.get("Content-Encoding") == "gzip":
            raw = gzip.decompress(raw)
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = decoded(self.path, headers.get("content-type", ""), raw)
        self.server.requests.append(Request(self.path, headers, body))  # type: ignore[attr-defined]
        self._send()

    def _read(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        chunks = b""
        while length := int(self.rfile.readline(), 16):
            chunks += self.rfile.read(length)
            self.rfile.readline()
        self.rfile.readline()
        return chunks

    def _send(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b"{}")


def decoded(path: str, content_type: str, raw: bytes) -> Any:
    """A body as one reads it."""
    kind = next((kind for end, kind in SIGNALS.items() if path.endswith(end)), None)
    if kind is None:
        return raw.decode()
    if "json" in content_type:
        return json.loads(raw)
    return _hex_ids(json_format.MessageToDict(kind.FromString(raw)))


def _hex_ids(value: Any) -> Any:
    """OTLP's JSON has ids in hexadecimal, against protobuf's rule."""
    if isinstance(value, list):
        return [_hex_ids(item) for item in value]
    if isinstance(value, dict):
        return {
            name: base64.b64decode(item).hex() if name in IDS and isinstance(item, str) else _hex_ids(item)
            for name, item in value.items()
        }
    return value


class Sink:
    """The server, in a thread: `with Sink() as sink: sink.url`, then `sink.requests`."""

    def __enter__(self) -> Sink:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self.requests: list[Request] = []
        self._server.requests = self.requests  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"
