"""A batch of 256 MiB passes through a gateway in a process of its own, in 128 MiB of memory."""

from __future__ import annotations

import base64
import io
import random
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from PIL import Image
from tests.faults.campaign.hostile.floods import PROTOBUF, Probe, field
from tests.faults.harness import System
from tests.gateway.otlp.made import said, span

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

LARGE = 255 * 2**20
ROOM = 128 * 2**20
ANSWER_SECONDS = 400.0


def named(number: int, image: bytes) -> bytes:
    """A span of a call, of the same size whatever its number."""
    attributes = said(f"chatcmpl-of-a-batch-{number:06}", image=image, answer=f"A dog {number:06}.")
    made = span(attributes, trace_id=number.to_bytes(16, "big"), span_id=number.to_bytes(8, "big"))
    return field(2, made.SerializeToString())


def batch(image: bytes, spans: int) -> Iterator[bytes]:
    """A request with so many spans, which is held by nobody."""
    several = spans * len(named(1, image))
    scope = field(2, b"")[:1] + _length(several)
    yield field(1, b"")[:1] + _length(len(scope) + several) + scope
    for number in range(1, spans + 1):
        yield named(number, image)


def _length(size: int) -> bytes:
    found = bytearray()
    while size > 127:
        found.append(size & 127 | 128)
        size >>= 7
    return bytes([*found, size])


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    settings = {"GROUNDWATCH_GATEWAY__REPLAYS": "0"}
    made = System(tmp_path, services={"gateway": "gateway"}, wait=60, settings=settings)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def test_a_batch_of_256_mib_passes_in_128_mib(system: System) -> None:
    out = io.BytesIO()
    Image.frombytes("RGB", (260, 256), random.Random(1).randbytes(3 * 260 * 256)).save(out, "PNG")
    image = out.getvalue()
    spans = LARGE // len(named(1, image))
    assert len(base64.b64encode(image)) > 200_000 and spans > 500
    child = system.children["gateway"]
    url = f"http://127.0.0.1:{system.gateway_port}"
    with httpx.Client(base_url=url, trust_env=False, timeout=ANSWER_SECONDS) as http:
        # What is loaded at the first call is nothing of the batch's.
        assert http.post("/v1/traces", content=batch(image, 1), headers=PROTOBUF).status_code == 200
        before = psutil.Process(child.pid).memory_info().rss
        with Probe(url, child.pid) as probe:
            reply = http.post("/v1/traces", content=batch(image, spans), headers=PROTOBUF)
        assert reply.status_code == 200, system.tail("gateway")
        told = ExportTraceServiceResponse.FromString(reply.content).partial_success
        assert told.rejected_spans == 0, told.error_message
        metrics = http.get("/metrics").text
    assert f'groundwatch_responses_total{{model="heron-7b",tenant="default"}} {float(spans)}' in metrics
    assert probe.peak - before < ROOM, f"{(probe.peak - before) >> 20} MiB"
