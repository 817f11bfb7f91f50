"""OTLP over gRPC: `Export` of traces and logs."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces

from groundwatch.gateway.access.access import Access
from groundwatch.gateway.access.roles import SEND
from groundwatch.gateway.callers import Caller
from groundwatch.gateway.grpc.messages import Context, caller_of
from groundwatch.gateway.grpc.monitor import ended
from groundwatch.gateway.otlp import decoding
from groundwatch.gateway.otlp.receiver import Receiver

R = TypeVar("R", bound=Message)
A = TypeVar("A", bound=Message)

TRACES = traces.DESCRIPTOR.services_by_name["TraceService"].full_name
LOGS = logs.DESCRIPTOR.services_by_name["LogsService"].full_name
SERVICES = (TRACES, LOGS)
NEEDS = {"Export": SEND}

CALLS = 4
"""Requests under way at once: each may have `gateway.logged_calls.max_batch` bytes."""


def add_to_server(receiver: Receiver, access: Access, server: grpc.aio.Server) -> None:
    for service, form, export in (
        (TRACES, traces.ExportTraceServiceRequest, _export(receiver.traces, access)),
        (LOGS, logs.ExportLogsServiceRequest, _export(receiver.logs, access)),
    ):
        handler: Any = grpc.unary_unary_rpc_method_handler(export, form.FromString, _serialized)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Export": handler}),))


def weigh(data: bytes, form: Descriptor) -> int:
    """How many bytes a request will take. Raises `InputError`, `TooLong`."""
    return decoding.weigh(data, decoding.PROTOBUF, form)


def _serialized(answer: Message) -> bytes:
    return answer.SerializeToString()


def _export(
    record: Callable[[R, Caller], Awaitable[A]], access: Access
) -> Callable[[R, Context], Awaitable[A]]:
    async def export(request: R, context: Context) -> A:
        async with ended(context):
            return await record(request, caller_of(access, context))
        raise AssertionError

    return export
