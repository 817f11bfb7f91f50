"""Small bodies that become large: each is legal for its size, and must cost nobody else their answer."""

from __future__ import annotations

import gzip
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import msgspec
import psutil

JSON = {"content-type": "application/json"}
LINES = {"content-type": "application/x-ndjson"}
PROTOBUF = {"content-type": "application/x-protobuf"}
GZIP = {"content-encoding": "gzip"}
EXPORT = "/opentelemetry.proto.collector.{0}.v1.{1}Service/Export"
TRACES, LOGS = EXPORT.format("trace", "Trace"), EXPORT.format("logs", "Logs")
MONITOR = "/groundwatch.v1.MonitorService/"
ANSWER_SECONDS = 90.0


class Flood(msgspec.Struct, frozen=True):
    """What is posted to a path, or with `grpc` sent as the one message of a call."""

    path: str
    content: bytes
    headers: dict[str, str] = {}
    grpc: str = ""


def field(number: int, content: bytes) -> bytes:
    """A field of protobuf with this content."""
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def _many(item: bytes, count: int, between: bytes = b",") -> bytes:
    return (item + between) * (count - 1) + item


def _items(count: int) -> bytes:
    """A request of OTLP with so many empty spans, or records."""
    return field(1, field(2, b"\x12\x00" * count))


def _traced(value: bytes, key: bytes = b"gen_ai.input.messages") -> bytes:
    """A request with one span, one attribute of which has this value."""
    attributes = field(9, field(1, key) + field(2, value)) + field(
        9, field(1, b"gen_ai.request.model") + field(2, field(1, b"m"))
    )
    span = field(1, b"\x01" * 16) + field(2, b"\x02" * 8) + field(5, b"chat") + attributes
    return field(1, field(2, field(2, span)))


def _compressed(path: str, body: bytes) -> Flood:
    return Flood(path, gzip.compress(body, 1), PROTOBUF | GZIP)


def _spans(chance: random.Random) -> Flood:
    return _compressed("/v1/traces", _items(chance.randrange(15_000_000, 30_000_000)))


def _records(chance: random.Random) -> Flood:
    return _compressed("/v1/logs", _items(chance.randrange(15_000_000, 30_000_000)))


def _spans_of_gigabytes(chance: random.Random) -> Flood:
    return _compressed("/v1/traces", bytes(chance.randrange(2**28, 2**29)))


def _messages_in_a_span(chance: random.Random) -> Flood:
    text = b"[" + _many(b"{}", chance.randrange(9_000_000, 11_000_000)) + b"]"
    return _compressed("/v1/traces", _traced(field(1, text)))


def _values_in_a_span(chance: random.Random) -> Flood:
    return _compressed("/v1/traces", _traced(field(5, b"\x0a\x00" * chance.randrange(4_000_000, 16_000_000))))


def _spans_in_json(chance: random.Random) -> Flood:
    spans = _many(b"{}", chance.randrange(900_000, 1_100_000))
    body = b'{"resourceSpans":[{"scopeSpans":[{"spans":[' + spans + b"]}]}]}"
    return Flood("/v1/traces", body, JSON)


def _attributes_in_json(chance: random.Random) -> Flood:
    attributes = _many(b'{"key":"a","value":{"intValue":"1"}}', chance.randrange(45_000, 55_000))
    body = b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"attributes":[' + attributes + b"]}]}]}]}"
    return Flood("/v1/traces", body, JSON)


def _members(chance: random.Random) -> Flood:
    body = gzip.compress(b"", 1) * chance.randrange(90_000, 110_000)
    return Flood("/v1/traces", body, PROTOBUF | GZIP)


def _ids(chance: random.Random) -> Flood:
    """Spans whose ids are a mebibyte each, which a gateway may not remember."""
    number = chance.randrange(10**9)
    spans = b"".join(_named(f"{number + at}") for at in range(40))
    return _compressed("/v1/traces", field(1, field(2, spans)))


def _named(name: str) -> bytes:
    given = {
        "gen_ai.request.model": "m",
        "gen_ai.response.id": name * (2**20 // len(name)),
        "gen_ai.input.messages": '[{"role":"user","parts":[{"type":"text","content":"What is it?"}]}]',
        "gen_ai.output.messages": '[{"role":"assistant","parts":[{"type":"text","content":"A dog."}]}]',
    }
    span = field(1, name.encode().ljust(16)[:16]) + field(2, name.encode().ljust(8)[:8]) + field(5, b"chat")
    for key, text in given.items():
        span += field(9, field(1, key.encode()) + field(2, field(1, text.encode())))
    return field(2, span)


def _logged_array(chance: random.Random) -> Flood:
    body = b"[" + _many(b"1", chance.randrange(1_900_000, 2_100_000)) + b"]"
    return Flood("/v1/litellm", body, JSON)


def _logged_lines(chance: random.Random) -> Flood:
    return Flood("/v1/litellm", b"1\n" * chance.randrange(900_000, 1_100_000), JSON)


def _logged_messages(chance: random.Random) -> Flood:
    messages = b"[" + _many(b"{}", chance.randrange(6_000_000, 8_000_000)) + b"]"
    return Flood("/v1/litellm", b'{"id":"a","model":"m","response":{},"messages":' + messages + b"}", JSON)


def _lines(chance: random.Random) -> Flood:
    return Flood("/v1/responses", b"1\n" * chance.randrange(80_000, 120_000), LINES)


def _keys(chance: random.Random) -> Flood:
    keys = b",".join(b'"prom%d":1' % at for at in range(chance.randrange(900_000, 1_100_000)))
    return Flood("/v1/responses", b"{" + keys + b"}", JSON)


def _fewer_keys(chance: random.Random) -> Flood:
    keys = b",".join(b'"prom%d":1' % at for at in range(chance.randrange(90_000, 99_000)))
    return Flood("/v1/responses", b'{"id":"a","model":"m","answer":"x",' + keys + b"}", JSON)


def _facts(chance: random.Random) -> Flood:
    fact = b'{"text":"a","holds":true}'
    facts = _many(fact, chance.randrange(600_000, 750_000))
    body = b'{"id":"a","model":"m","answer":"x","reference":{"facts":[' + facts + b"]}}"
    return Flood("/v1/responses", body, JSON)


def _questions(chance: random.Random) -> Flood:
    body = b'{"id":"a","model":"m","prompt":"x","images":["'
    return Flood(
        "/v1/questions", body + _many(b'","', chance.randrange(2_000_000, 4_000_000), b"") + b'"]}', JSON
    )


def _events(chance: random.Random) -> Flood:
    kind = {"content-type": "application/cloudevents-batch+json"}
    body = b"[" + _many(b"1", chance.randrange(7_000_000, 9_000_000)) + b"]"
    return Flood("/v1/cloudevents", body, kind)


def _form(chance: random.Random) -> Flood:
    kind = {"content-type": "application/x-www-form-urlencoded"}
    return Flood("/alarms/a/acknowledge", b"a&" * chance.randrange(9_000_000, 11_000_000), kind)


def _parts(chance: random.Random) -> Flood:
    head = b"--b\r\nContent-Disposition: form-data; name=a; filename=a\r\n"
    body = head + b"a:b\r\n" * chance.randrange(1_500_000, 1_900_000) + b"\r\nx\r\n--b--\r\n"
    return Flood("/v1/images", body, {"content-type": "multipart/form-data; boundary=b"})


def _opinions(chance: random.Random) -> Flood:
    return Flood("/v1/opinions", b"{}\n" * chance.randrange(9_000_000, 10_000_000), LINES)


def _opinion(chance: random.Random) -> Flood:
    body = b"[" + _many(b"{}", chance.randrange(9_000_000, 10_000_000)) + b"]"
    return Flood("/v1/opinions", body, LINES)


def _streamed(chance: random.Random) -> Flood:
    content = field(1, b"")[:2] * chance.randrange(450_000, 550_000)
    return Flood("", content, grpc=f"{MONITOR}SubmitStream")


def _streamed_more(chance: random.Random) -> Flood:
    return Flood("", b"\x0a\x00" * chance.randrange(7_000_000, 9_000_000), grpc=f"{MONITOR}SubmitStream")


def _replayed(chance: random.Random) -> Flood:
    content = b'{"run":"r","ids":[' + _many(b'""', chance.randrange(100_000, 150_000)) + b"]}"
    return Flood("/v1/runs", content, JSON)


def _exported_spans(chance: random.Random) -> Flood:
    return Flood("", _items(chance.randrange(15_000_000, 30_000_000)), grpc=TRACES)


def _exported_records(chance: random.Random) -> Flood:
    return Flood("", _items(chance.randrange(15_000_000, 30_000_000)), grpc=LOGS)


FLOODS: dict[str, Callable[[random.Random], Flood]] = {
    made.__name__.strip("_").replace("_", "-"): made
    for made in (
        _spans,
        _records,
        _spans_of_gigabytes,
        _messages_in_a_span,
        _values_in_a_span,
        _spans_in_json,
        _attributes_in_json,
        _members,
        _ids,
        _logged_array,
        _logged_lines,
        _logged_messages,
        _lines,
        _keys,
        _fewer_keys,
        _facts,
        _questions,
        _events,
        _form,
        _parts,
        _opinions,
        _opinion,
        _streamed,
        _streamed_more,
        _replayed,
        _exported_spans,
        _exported_records,
    )
}
"""By their names."""


OVER_GRPC = ("streamed", "streamed-more", "exported-spans", "exported-records")


def one_of(chance: random.Random, over_grpc: bool) -> tuple[str, Flood]:
    """Any of one door, with its name."""
    name = chance.choice([name for name in FLOODS if (name in OVER_GRPC) is over_grpc])
    return name, FLOODS[name](chance)


async def pour(flood: Flood, http: Any, channel: Any, timeout: float) -> str:
    """Send it; how it was answered: a status of HTTP, or the name of one of gRPC."""
    import grpc

    if not flood.grpc:
        reply = await http.post(flood.path, content=flood.content, headers=flood.headers, timeout=timeout)
        return str(reply.status_code)
    try:
        if flood.grpc.endswith("SubmitStream"):
            call = channel.stream_stream(flood.grpc)(iter([flood.content]), timeout=timeout)
            async for _ in call:
                pass
        else:
            await channel.unary_unary(flood.grpc)(flood.content, timeout=timeout)
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "OK"


class Probe(threading.Thread):
    """Asks for /healthz again and again, and watches how much memory the process has."""

    def __init__(self, url: str, pid: int) -> None:
        super().__init__(daemon=True)
        self._url = f"{url}/healthz"
        self._process = psutil.Process(pid)
        self._over = threading.Event()
        self.worst = 0.0
        self.peak = 0
        self.failed = ""

    def run(self) -> None:
        """Until it is over."""
        with httpx.Client(trust_env=False, timeout=ANSWER_SECONDS) as http:
            while not self._over.wait(0.02):
                began = time.monotonic()
                try:
                    http.get(self._url).raise_for_status()
                except httpx.HTTPError as error:
                    self.failed = repr(error)
                self.worst = max(self.worst, time.monotonic() - began)
                self.peak = max(self.peak, self._process.memory_info().rss)

    def __enter__(self) -> Probe:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()
