"""The OpenAPI document: of every route, and true of what a gateway answers to what is made of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis
import schemathesis
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.core.failures import FailureGroup

from groundwatch.reporting.answers import AnswerQuery
from tools import openapi

DOCUMENT = json.loads((Path(__file__).parents[3] / "docs" / "schema" / openapi.FILE).read_text())
ENDLESS = ["GET /v1/scores"]
EXAMPLES = 10
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@schemathesis.serializer(openapi.LINES, openapi.PROTOBUF, "image/png")
def as_it_is(_: Any, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


def test_every_route_is_described() -> None:
    declared = {
        f"{method} {route.path.replace(':path}', '}')}"
        for route in openapi.routes()
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert declared == openapi.API.keys()
    described = {f"{method.upper()} {path}" for path, one in DOCUMENT["paths"].items() for method in one}
    assert described == declared, "run python -m tools.schema"
    filters = {*AnswerQuery.__struct_fields__, "q", "cursor", "before"} - {"words"}
    assert openapi.API["GET /v1/answers"].query.keys() == filters


async def test_what_a_gateway_answers_is_as_the_document_says(gateway, publish, response) -> None:
    for number in range(3):
        await gateway.post(response(id=f"r{number}"))
        await publish(f"r{number}", refuted=1)
    assert (await gateway.http.post("/v1/queues", json={"name": "q", "protocol": "faithscore"})).is_success
    told, wrong = await asyncio.to_thread(_try, str(gateway.http.base_url))
    assert not wrong, "\n\n".join(f"{name}: {why}" for name, why in wrong.items())
    assert told.keys() | ENDLESS == openapi.API.keys()
    # Not refusals alone.
    assert {"POST /v1/responses", "POST /v1/losses", "GET /v1/answers"} <= {
        name for name, statuses in told.items() if min(statuses) < 300
    }


def _try(url: str) -> tuple[dict[str, set[int]], dict[str, str]]:
    """Statuses of what was answered, and what the document does not have, by route."""
    statuses: dict[str, set[int]] = {}
    wrong: dict[str, str] = {}
    for found in schemathesis.openapi.from_dict(DOCUMENT).get_all_operations():
        operation = found.ok()
        name = f"{operation.method.upper()} {operation.path}"
        if name not in ENDLESS:
            _ask(operation, url, statuses.setdefault(name, set()), partial(wrong.__setitem__, name))
    return statuses, wrong


def _ask(operation: Any, url: str, statuses: set[int], fail: Callable[[str], None]) -> None:
    @hypothesis.seed(34)
    @hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(operation.as_strategy())
    def ask(case: schemathesis.Case) -> None:
        reply = case.call(base_url=url)
        statuses.add(reply.status_code)
        try:
            case.validate_response(reply, checks=CHECKS)
        except FailureGroup as failed:
            fail("\n".join(str(one)[:300] for one in failed.exceptions))

    ask()
