"""Traces as a collector gets them, from services over a real server."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span, Status
from tests.runtime.conftest import done, eventually, record, response
from tests.support.llm_server import LlmServer
from tests.support.receivers import HttpTarget, listening

from groundwatch.errors import InputError
from groundwatch.events import LIVE
from groundwatch.models.settings import ChatSettings
from groundwatch.runtime.delivery.bus import Bus, Outgoing
from groundwatch.runtime.delivery.dead_letters import dead_letters, send_again
from groundwatch.runtime.delivery.outcomes import read_outcomes
from groundwatch.runtime.delivery.streams import last_message, read_stream
from groundwatch.runtime.settings import ExtractionSettings, Settings, StageSettings, TelemetrySettings
from groundwatch.runtime.settings.gateway import GatewaySettings
from groundwatch.runtime.settings.outflow import OutflowSettings, ReceiverSettings
from groundwatch.runtime.telemetry.traces import Traces
from groundwatch.system.up import whole_system
from groundwatch.topology import HEADER_TRACE, OUTCOMES, RETRY, subject_of


class Collector(HttpTarget):
    """An OpenTelemetry collector that keeps what it is sent."""

    @property
    def resources(self) -> list[ResourceSpans]:
        bodies = (body for path, body in zip(self.paths, self.bodies, strict=True) if path == "/v1/traces")
        return [
            resource
            for body in bodies
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        ]

    @property
    def spans(self) -> list[Span]:
        return [span for resource in self.resources for scope in resource.scope_spans for span in scope.spans]

    @property
    def services(self) -> set[str]:
        attributes = (one for resource in self.resources for one in resource.resource.attributes)
        return {one.value.string_value for one in attributes if one.key == "service.name"}


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    """One that listens."""
    collector = Collector()
    async with listening(collector):
        yield collector


@contextlib.asynccontextmanager
async def traced(bus: Bus, collector: Collector) -> AsyncIterator[Bus]:
    """A bus whose stages make spans inside the block; after it the collector has them."""
    bus.traces = Traces("test", collector.url)
    try:
        yield bus
    finally:
        await bus.traces.close()


async def test_one_response_is_one_trace(tmp_path: Path, collector: Collector) -> None:
    noop = StageSettings(engine="noop")
    settings = Settings(
        gateway=GatewaySettings(port=0, protocols=("faithscore",)),
        extraction=ExtractionSettings(engine="noop"),
        verification=noop,
        telemetry=TelemetrySettings(traces=collector.url),
    )
    async with whole_system(settings, tmp_path) as system:
        async with httpx.AsyncClient(base_url=system.gateway_url, timeout=30) as http:
            for name in ("one", "two"):
                body = {"id": name, "model": "m", "answer": "There is a dog."}
                assert (await http.post("/v1/responses", json=body)).status_code in (200, 202)

        async def outcomes() -> int:
            return len([one async for one in read_outcomes(system.bus, LIVE, follow=False)])

        async def both() -> bool:
            return await outcomes() == 2

        await eventually(both, within=60)
    assert collector.services == {"groundwatch"}
    traces: dict[bytes, list[Span]] = {}
    for span in sorted(collector.spans, key=lambda span: span.start_time_unix_nano):
        traces.setdefault(span.trace_id, []).append(span)
    assert len(traces) == 2
    for spans in traces.values():
        assert [span.name for span in spans] == [
            "gateway record",
            "extraction process",
            "verification process",
            "scoring process",
        ]
        assert [span.parent_span_id for span in spans] == [b"", *(span.span_id for span in spans[:-1])]
    assert not any("a dog" in str(span) for span in collector.spans)


TRACE, SPAN = "5b8efff798038103d269b633813fc60c", "eee19b7ec3c1b174"


async def test_one_trace_from_the_caller_to_models_and_receivers(
    tmp_path: Path, collector: Collector
) -> None:
    told = HttpTarget()
    with LlmServer() as server:
        async with listening(told):
            llm = StageSettings(engine="llm", llm=ChatSettings(base_url=server.base_url, model="500,ok"))
            receiver = ReceiverSettings(kind="otlp-http", url=told.url)
            settings = Settings(
                gateway=GatewaySettings(port=0, protocols=("faithscore",)),
                extraction=ExtractionSettings(**dict(llm)),
                verification=StageSettings(engine="reference"),
                telemetry=TelemetrySettings(traces=collector.url),
                outflow=OutflowSettings(receivers={"it": receiver}),
            )
            async with whole_system(settings, tmp_path) as system:
                async with httpx.AsyncClient(base_url=system.gateway_url, timeout=30) as http:
                    body = {
                        "id": "one",
                        "model": "m",
                        "answer": "There is a dog.",
                        "reference": {"objects": ["dog"], "complete": True},
                    }
                    headers = {"traceparent": f"00-{TRACE}-{SPAN}-00"}
                    answer = await http.post("/v1/responses", json=body, headers=headers)
                    assert answer.status_code == 202
                await eventually(lambda: told.records, within=60)
    assert {span.trace_id.hex() for span in collector.spans} == {TRACE}
    names = {bytes.fromhex(SPAN): SPAN} | {span.span_id: span.name for span in collector.spans}
    parents = sorted(
        (span.name, names[span.parent_span_id])
        for span in collector.spans
        if span.kind != Span.SPAN_KIND_CLIENT
    )
    assert parents == [
        ("extraction process", "gateway record"),
        ("gateway record", SPAN),
        ("outflow process", "scoring process"),
        ("scoring process", "verification process"),
        ("verification process", "extraction process"),
    ]
    (recording,) = (span for span in collector.spans if span.name == "gateway record")
    assert recording.end_time_unix_nano > recording.start_time_unix_nano
    calls = [span for span in collector.spans if span.kind == Span.SPAN_KIND_CLIENT]
    assert {(span.name, names[span.parent_span_id]) for span in calls} == {
        ("call 500,ok", "extraction process"),
        ("call it", "outflow process"),
    }
    failed = [span for span in calls if span.status.code == Status.STATUS_CODE_ERROR]
    assert [one.key for one in failed[0].attributes] == ["gen_ai.request.model", "error.type"]
    carried = {headers["traceparent"].split("-")[2] for headers in server.headers}
    assert carried == {span.span_id.hex() for span in calls if span.name != "call it"}
    assert not any("dog" in str(span) for span in collector.spans)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
async def test_the_key_decides_which_responses_are_traced(
    stage_factory, bus_factory, collector: Collector, share: float
) -> None:
    """Alike in the gateway and in every stage, whatever either was told."""

    async def handle(works: Any) -> list[Any]:
        return [done(work) for work in works]

    names = [f"r{at}" for at in range(40)]
    bus = await bus_factory("stage")
    bus.traces = Traces("test", collector.url, share)
    try:
        stage = await stage_factory(handle, bus=bus)
        wanted = set()
        for name in names:
            subject = subject_of("recorded", LIVE, response(name).key)
            if bus.traces.wanted(subject):
                wanted.add(subject)
            assert (bus.begin_trace(Outgoing(subject=subject, payload=b""), "x")[1] is not None) == (
                subject in wanted
            )
            await record(bus, response(name))
        await eventually(stage.settled)
        await stage.stage.drain(10)
    finally:
        await bus.traces.close()
    found = {
        one.value.string_value
        for span in collector.spans
        if span.name == "extraction process"
        for one in span.attributes
        if one.key == "messaging.destination.name"
    }
    assert found == wanted
    assert {0.0: len(wanted) == 0, 0.5: 8 < len(wanted) < 32, 1.0: len(wanted) == 40}[share]


async def test_a_dead_letter_keeps_its_trace(stage_factory, bus_factory, collector: Collector) -> None:
    async def refuse(works: Any) -> list[InputError]:
        return [InputError("the answer is a dog") for _ in works]

    async with traced(await bus_factory("stage"), collector) as bus:
        stage = await stage_factory(refuse, bus=bus)
        await record(bus, response("r"))
        await eventually(stage.settled)
        (letter,) = [letter async for letter in dead_letters(bus)]
        await send_again(bus, letter)
        again = await last_message(bus.js, RETRY, "gw.retry.>")
        (outcome,) = [message async for message in read_stream(bus.js, OUTCOMES, headers_only=True)]
        await stage.stage.drain(1)
    (span,) = collector.spans
    assert span.status.code == Status.STATUS_CODE_ERROR and span.status.message == "InputError"
    assert "a dog" not in str(span)
    for message in (again, outcome):
        assert message is not None
        assert message.headers[HEADER_TRACE].split("-")[1:3] == [span.trace_id.hex(), span.span_id.hex()]


async def test_without_a_collector_nothing_is_carried(stage_factory) -> None:
    async def handle(works: Any) -> list[Any]:
        return [done(work) for work in works]

    stage = await stage_factory(handle)
    await record(stage.bus, response("r"))
    await eventually(stage.settled)
    (outcome,) = [message async for message in read_stream(stage.bus.js, OUTCOMES, headers_only=True)]
    assert HEADER_TRACE not in outcome.headers


async def test_a_collector_that_is_away_holds_up_nothing(stage_factory, bus_factory, collector) -> None:
    async def handle(works: Any) -> list[Any]:
        return [done(work) for work in works]

    collector.url = "http://127.0.0.1:9"
    async with traced(await bus_factory("stage"), collector) as bus:
        stage = await stage_factory(handle, bus=bus)
        await record(bus, response("r"))
        await eventually(stage.settled)
        await stage.stage.drain(1)
    assert not collector.spans


def test_the_port_of_otlp_over_grpc_is_refused() -> None:
    with pytest.raises(ValueError, match="name the one for HTTP, usually 4318"):
        TelemetrySettings(traces="http://collector:4317")
