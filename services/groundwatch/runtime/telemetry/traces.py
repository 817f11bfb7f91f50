"""OpenTelemetry spans: what is done for one response, from the gateway to its outcome, is one trace.

The context travels as the header `traceparent` (W3C Trace Context) of each message. A stage's span is a child
of the one that published its message, and what the stage publishes carries the stage's own. FastStream's
middleware begins a new trace for every batch, and the stages fetch batches: so it is done here, message by
message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.trace import Span

EXPORT_SECONDS = 3
"""How long the collector may take for one batch of spans: a process that ends waits for the last ones."""


class Traces:
    """Spans of one process, sent in the background: they say stage and subject, and nothing of an answer."""

    def __init__(self, service: str, url: str) -> None:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_NAMESPACE, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        names = {SERVICE_NAME: service, SERVICE_NAMESPACE: "groundwatch"}
        self._provider = TracerProvider(resource=Resource.create(names))
        exporter = OTLPSpanExporter(url, timeout=EXPORT_SECONDS)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("groundwatch")
        self._propagator = TraceContextTextMapPropagator()

    def begin(self, name: str, subject: str, headers: Mapping[str, str]) -> Span:
        """Work at a message, in the trace that its headers name, or in a new one; the caller ends it."""
        return self._tracer.start_span(
            name,
            self._propagator.extract(headers),
            attributes={"messaging.system": "nats", "messaging.destination.name": subject},
        )

    def headers(self, span: Span) -> dict[str, str]:
        """What a message that comes of this work carries."""
        from opentelemetry.trace import set_span_in_context

        found: dict[str, str] = {}
        self._propagator.inject(found, set_span_in_context(span))
        return found

    def root(self, name: str, subject: str) -> dict[str, str]:
        """The headers of the message that a trace begins with."""
        span = self.begin(name, subject, {})
        span.end()
        return self.headers(span)

    def fail(self, span: Span, error: Exception) -> None:
        """Say what kind of error the work ended with; its words may quote an answer."""
        from opentelemetry.trace import StatusCode

        span.set_status(StatusCode.ERROR, type(error).__name__)

    async def close(self) -> None:
        await asyncio.to_thread(self._provider.shutdown)
