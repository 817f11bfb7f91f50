"""Receivers of outcomes and alarms: real servers that keep what they are told, and misbehave on demand."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
)
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from groundwatch.runtime.telemetry.server import HttpServer


class HttpTarget:
    """A server that keeps what it is told. `answers` are given in turn, the last of them for ever."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.answers: list[Any] = [200]
        self.url = ""

    async def post(self, request: Request) -> Response:
        body = await request.body()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if callable(answer):
            answer = answer(body)
        if answer == "hang":
            await asyncio.sleep(60)
        if isinstance(answer, Response):
            found = answer
        else:
            found = Response(f"status {answer}", status_code=int(answer))
        if found.status_code < 300:
            self.bodies.append(body)
            self.headers.append(dict(request.headers))
            self.paths.append(request.url.path)
        return found

    @property
    def told(self) -> list[Any]:
        """The bodies as JSON."""
        return [json.loads(body) for body in self.bodies]

    @property
    def records(self) -> list[LogRecord]:
        """The log records of a collector."""
        return [
            record
            for body, headers in zip(self.bodies, self.headers, strict=True)
            for record in records_of(
                ExportLogsServiceRequest.FromString(
                    gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body
                )
            )
        ]


def records_of(request: ExportLogsServiceRequest) -> list[LogRecord]:
    return [
        record
        for resource in request.resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
    ]


def attributes_of(record: LogRecord) -> dict[str, Any]:
    return {one.key: getattr(one.value, str(one.value.WhichOneof("value"))) for one in record.attributes}


@contextlib.asynccontextmanager
async def listening(target: HttpTarget, port: int = 0) -> AsyncIterator[None]:
    server = HttpServer(
        Starlette(routes=[Route("/{path:path}", target.post, methods=["POST"])]), host="127.0.0.1", port=port
    )
    await server.start()
    target.url = f"http://127.0.0.1:{server.port}"
    try:
        yield
    finally:
        await server.stop(0)
