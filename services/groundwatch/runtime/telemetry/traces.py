"""OpenTelemetry spans: what is done for one response, from the gateway to who is told of it, is one trace.

The context travels as the header `traceparent` (W3C Trace Context) of each message. A stage's span is a child
of the one that published its message, and what the stage publishes carries the stage's own. FastStream's
middleware begins a new trace for every batch, and the stages fetch batches: so it is done here, message by
message. Which responses are traced the key of a response decides, so that every service decides alike; of
the others no span is made and no header is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING

import msgspec

from groundwatch.addresses import below
from groundwatch.models.asking import CALL_HEADERS, TRACING, CallKind
from groundwatch.topology import HEADER_TRACE, parse_subject

if TYPE_CHECKING:
    from opentelemetry.trace import Span

EXPORT_SECONDS = 3
"""How long the collector may take for one batch of spans: a process that ends waits for the last ones."""

MAX_LINKS = 64
"""Spans that one call of a model for a whole batch is linked with."""


class Request(msgspec.Struct, frozen=True):
    """A caller's request for one response: its `traceparent`, and when it came (ns since the epoch)."""

    traceparent: str
    began: int


REQUEST: ContextVar[Request | None] = ContextVar("request", default=None)
"""The request that is worked at; None where one brings many responses."""


class Traces:
    """Spans of one process, sent in the background to a collector (OTLP over HTTP): they say stage and
    subject, and nothing of an answer."""

    def __init__(self, service: str, url: str, share: float = 1.0) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_NAMESPACE, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        names = {SERVICE_NAME: service, SERVICE_NAMESPACE: "groundwatch"}
        # Which are traced is decided here; a caller that samples less leaves its flag in the header.
        self._provider = TracerProvider(resource=Resource.create(names), sampler=ALWAYS_ON)
        exporter = OTLPSpanExporter(below(url, "/v1/traces"), timeout=EXPORT_SECONDS)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("groundwatch")
        self._propagator = TraceContextTextMapPropagator()
        self._below = share * 2**32

    def wanted(self, subject: str) -> bool:
        """Whether the response that the subject is about is traced."""
        address = parse_subject(subject)
        try:
            return address is not None and int(address.key[:8], 16) < self._below
        except ValueError:
            return False

    def begin(self, name: str, subject: str, headers: Mapping[str, str]) -> Span | None:
        """Work at a message, in the trace that its headers name, or in a new one; the caller ends it.

        None where its response is not traced.
        """
        from opentelemetry.trace import SpanKind

        if HEADER_TRACE not in headers and not self.wanted(subject):
            return None
        return self._tracer.start_span(
            name,
            self._propagator.extract(headers),
            kind=SpanKind.CONSUMER,
            attributes={"messaging.system": "nats", "messaging.destination.name": subject},
        )

    def headers(self, span: Span) -> dict[str, str]:
        """What a message that comes of this work carries."""
        from opentelemetry.trace import set_span_in_context

        found: dict[str, str] = {}
        self._propagator.inject(found, set_span_in_context(span))
        return found

    def root(self, name: str, subject: str) -> Span | None:
        """The work that ends with the first message of a response; the caller ends it.

        It began with the request that brings the response, and is a child of the caller's span.
        """
        from opentelemetry.trace import SpanKind

        if not self.wanted(subject):
            return None
        request = REQUEST.get() or Request("", time.time_ns())
        return self._tracer.start_span(
            name,
            self._propagator.extract({HEADER_TRACE: request.traceparent}),
            kind=SpanKind.SERVER,
            attributes={"messaging.system": "nats", "messaging.destination.name": subject},
            start_time=request.began,
        )

    def received(self, traceparent: str) -> None:
        """The request at hand, with this header of its caller, brings one response."""
        REQUEST.set(Request(traceparent, time.time_ns()))

    def fail(self, span: Span, error: Exception) -> None:
        """Say what kind of error the work ended with; its words may quote an answer."""
        from opentelemetry.trace import StatusCode

        span.set_status(StatusCode.ERROR, type(error).__name__)

    def working_at(self, spans: Sequence[Span | None]) -> None:
        """Requests to models and receivers from here on are part of these spans."""
        found = [span for span in spans if span is not None]
        TRACING.set(_Calls(self, found) if found else None)

    async def close(self) -> None:
        await asyncio.to_thread(self._provider.shutdown)


class _Calls:
    """Requests that work at these spans makes: a child of the first, linked with the others of a batch."""

    def __init__(self, traces: Traces, spans: Sequence[Span]) -> None:
        self._traces = traces
        self._spans = spans

    @contextlib.contextmanager
    def call(self, whom: str, attribute: str) -> Iterator[list[CallKind]]:
        from opentelemetry.trace import Link, SpanKind, StatusCode, set_span_in_context

        first, *others = self._spans
        span = self._traces._tracer.start_span(
            f"call {whom}",
            set_span_in_context(first),
            kind=SpanKind.CLIENT,
            attributes={attribute: whom},
            links=[Link(other.get_span_context()) for other in others[:MAX_LINKS]],
        )
        given = CALL_HEADERS.set(self._traces.headers(span))
        ended: list[CallKind] = []
        try:
            yield ended
        finally:
            CALL_HEADERS.reset(given)
            for kind in ended:
                span.set_attribute("error.type", kind.value)
                span.set_status(StatusCode.ERROR)
            span.end()
