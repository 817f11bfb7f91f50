"""What goes wrong inside a request, and what of it is ours."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.responses import PlainTextResponse
from structlog.testing import capture_logs

from groundwatch.gateway.http.replies import Guard

SCOPE = {"type": "http", "method": "GET", "path": "/metrics", "headers": [], "query_string": b""}
CUT = "unable to perform operation on <TCPTransport closed=True reading=False 0x1>; the handler is closed"
"""What uvloop's transport raises for a connection that was reset while the answer was made."""


@pytest.mark.parametrize(("raised", "ours"), [(CUT, False), ("unexpected ASGI message", True)])
async def test_a_connection_that_was_cut_is_no_error_of_ours(raised, ours):
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)
        if len(sent) == 1:
            raise RuntimeError(raised)

    with capture_logs() as logs:
        await Guard(PlainTextResponse("all of it"))(SCOPE, receive, send)
    assert [entry["event"] for entry in logs] == (["gateway.request"] if ours else [])
