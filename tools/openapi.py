"""The gateway's HTTP API as an OpenAPI document: the routes that it declares, and the structs they read and
write. `python -m tools.schema` writes it beside the others.

What a route takes and gives stands in its handler, so it is said here once more: tests hold this table to
the routes, and what a running gateway answers to the document.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest.mock import Mock

import msgspec

from groundwatch import __version__
from groundwatch.events import ResponseRecorded, ResponseScored
from groundwatch.gateway.http.api import HttpApi
from groundwatch.gateway.http.requests import Route
from groundwatch.gateway.intake.senders import Sender
from groundwatch.gateway.intake.submissions import Sent, SentQuestion
from groundwatch.gateway.intake.window import Summary
from groundwatch.gateway.pages import review
from groundwatch.gateway.pages.runs import MAY
from groundwatch.gateway.receivers.cloudevents import CloudEventRoutes
from groundwatch.gateway.refusals import Recorded
from groundwatch.gateway.replays import Replay, Wanted
from groundwatch.gateway.thumbnails import SIDES
from groundwatch.reporting.answers import ORDERS, OUTCOMES, VERDICTS
from groundwatch.reporting.compare.compare import Comparison
from groundwatch.reviews.agreement import Agreement
from groundwatch.reviews.queues import QueueSpec
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.stores.losses import LossReport

FILE = "openapi.json"
MACHINES = ("/v1/", "/api/", "/metrics", "/healthz", "/readyz")
"""Where paths begin that are no pages."""

JSON, LINES, PROTOBUF = "application/json", "application/x-ndjson", "application/x-protobuf"
Form = Any
"""A type of JSON, several of them, or schemas by media type."""

TEXT = {"type": "string"}
BYTES = {"type": "string", "format": "binary"}
OBJECT = dict[str, Any]


def _shape(name: str, about: str, **fields: Any) -> type[msgspec.Struct]:
    """What a handler writes as a plain object."""
    told = [
        (field, form[0], msgspec.UNSET) if isinstance(form, tuple) else (field, form)
        for field, form in fields.items()
    ]
    return msgspec.defstruct(name, told, namespace={"__doc__": about}, kw_only=True)


def _absent(form: Any) -> tuple[Any]:
    """The form of a field that may be absent."""
    return (form,)


def _texts(*names: str, **others: Any) -> dict[str, Any]:
    """Parameters of an address: texts, and others with a schema of their own."""
    return dict.fromkeys(names, TEXT) | others


class Told(NamedTuple):
    """What a route is for, takes and gives; `others` are further statuses of one that went well,
    and `refused` is what it tells of one that did not, where that has a form of its own."""

    about: str
    gives: Form = OBJECT
    takes: Form = None
    query: Mapping[str, Any] = MappingProxyType({})
    status: int = 200
    others: tuple[int, ...] = ()
    refused: Form = None


PROBLEM = _shape(
    "Problem",
    "Why a request is refused: in words, as one word, and which field and response it is about.",
    error=str,
    reason=_absent(str),
    field=_absent(str),
    id=_absent(str),
)
KNOWN = _shape(
    "KnownResponse",
    "A response, its outcomes by protocol, and the protocols whose outcome it waits for.",
    response=ResponseRecorded,
    outcomes=dict[str, ResponseScored],
    waiting=list[str],
)
ANSWERS = _shape(
    "Answers",
    "Answers that were found, and the cursor with which the next ones are.",
    answers=list[OBJECT],
    cursor=str,
    searched_to=float | None,
    reading=bool,
)
QUEUE = _shape(
    "Queue",
    "A queue and how far it is; `frame` and `complete` are told to those whose it is alone.",
    queue=QueueSpec,
    progress=OBJECT,
    frame=_absent(int),
    complete=_absent(bool),
)
BATCH = _shape(
    "Batch",
    "What became of logged calls.",
    **dict.fromkeys(("accepted", "duplicates", "refused", "ignored"), int),
    errors=list[dict[str, str]],
)
READINESS = _shape(
    "Readiness",
    "What keeps a service from working, and what somebody should know beside.",
    ready=bool,
    problems=list[str],
    notes=_absent(list[str]),
)
IMAGE = _shape("KnownImage", "An image that is stored.", sha256=str, media_type=str, width=int, height=int)
SENDERS = _shape("SenderList", "Who sent, in so many seconds.", seconds=float, senders=list[Sender])

WORDS = (
    "q",
    "model",
    "version",
    "category",
    "reason",
    "tag",
    "since",
    "until",
    "run",
    "tenant",
    "protocol",
    "id",
)
NAMED = {"order": ORDERS, "verdict": VERDICTS, "outcome": OUTCOMES}
FILTERS = _texts(*WORDS, "cursor", "before", **{name: {"enum": [*names]} for name, names in NAMED.items()})
EITHER = {JSON: {}, PROTOBUF: BYTES}
OTLP = Told(
    "OpenTelemetry, as its specification has it",
    EITHER,
    {JSON: {"type": "object"}, PROTOBUF: BYTES},
    refused=EITHER,
)
QUEUES, ITEM = "/v1/queues/{name}", "/v1/queues/{name}/items/{key}"

API: dict[str, Told] = {
    "POST /v1/responses": Told(
        "Record a response; or many, one on a line",
        (Recorded, Summary),
        {JSON: Sent, LINES: TEXT},
        others=(202,),
    ),
    "GET /v1/responses/{id}": Told("A response with its outcomes", KNOWN, query=_texts("tenant")),
    "POST /v1/questions": Told(
        "Ask a model under test; its answer is judged", Recorded, SentQuestion, others=(202,)
    ),
    "POST /v1/images": Told(
        "Store an image, as it is or in a form",
        IMAGE,
        {"image/png": BYTES, "multipart/form-data": {"type": "object"}},
    ),
    "GET /v1/images/{sha256}": Told(
        "A stored image, or a small picture of it",
        {"image/*": BYTES},
        query={"width": {"enum": [*SIDES]}},
    ),
    "POST /v1/losses": Told("Count what a sender has lost before it came here", OBJECT, LossReport),
    "POST /v1/litellm": Told("Calls, as LiteLLM logs them", BATCH, {JSON: {}}, refused=(PROBLEM, BATCH)),
    "POST /v1/cloudevents": Told(
        "CloudEvents, as KServe logs calls", OBJECT, {"application/cloudevents+json": {}}, _texts("tenant")
    ),
    "POST /v1/traces": OTLP,
    "POST /v1/logs": OTLP,
    "POST /v1/metrics": OTLP,
    "POST /api/public/otel/v1/traces": OTLP,
    "POST /api/public/media": Told("Refused: why Langfuse's SDK must send images inside", takes={JSON: {}}),
    "GET /v1/scores": Told(
        "Outcomes as they come, as server-sent events",
        {"text/event-stream": TEXT},
        query=_texts("tenant", "model", "protocol", since={"type": "string", "pattern": "^[0-9]{1,18}$"}),
    ),
    "GET /v1/report": Told("Rates of each model and version, with intervals, and alarms"),
    "GET /v1/answers": Told("Answers by words and filters", ANSWERS, query=FILTERS),
    "GET /v1/alarms": Told("Which model got worse, and what is watched"),
    "GET /v1/connect": Told(
        "Who sends to this gateway, and what is missing in it", SENDERS, query=_texts("tenant")
    ),
    "GET /v1/runs": Told("Replays, the newest first", dict[str, list[Replay]]),
    "POST /v1/runs": Told("Begin a replay", Replay, Wanted, status=201),
    "GET /v1/runs/{name}": Told("A replay and how far it is", Replay),
    "POST /v1/runs/{name}/{action}": Told("Pause, resume or cancel a replay", Replay),
    "GET /v1/compare": Told(
        "Two runs beside each other",
        Comparison,
        query=_texts("first", "second", "model", "tenant", "protocol"),
    ),
    "GET /v1/queues": Told("Queues of answers that people review", dict[str, list[QUEUE]]),  # type: ignore[valid-type]
    "POST /v1/queues": Told("A new queue", QUEUE, QueueSpec, status=201),
    f"GET {QUEUES}": Told("A queue", QUEUE),
    f"POST {QUEUES}/close": Told("Draw nothing more into it", QUEUE),
    f"POST {QUEUES}/open": Told("Draw into it again", QUEUE),
    f"POST {QUEUES}/next": Told(
        "A reviewer's next item; 204 when there is none", takes=review._Next, others=(204,)
    ),
    f"GET {ITEM}": Told("An item that a reviewer holds, or has done", query=_texts("reviewer")),
    f"PUT {ITEM}/draft": Told("Keep what is not given yet", OBJECT, review._Draft),
    f"POST {ITEM}/opinion": Told(
        "Give an opinion; the reply says what the judge said", takes=review._Opinion
    ),
    f"DELETE {ITEM}/opinion": Told("Take it back", None, review._Next, status=204),
    f"POST {ITEM}/release": Told("Leave it to others", None, review._Next, status=204),
    "GET /v1/agreement": Told("How far judges agree with people, and people with each other", Agreement),
    "GET /v1/opinions": Told(
        "The last opinion of each reviewer about each answer, one a line",
        {LINES: TEXT},
        query=_texts("tenant", "queue", "protocol", "reviewer", "format"),
    ),
    "POST /v1/opinions": Told(
        "Take a file of opinions: all of it, or nothing", OBJECT, {LINES: TEXT}, _texts("reviewer")
    ),
    "GET /metrics": Told("For Prometheus", {"text/plain": TEXT}),
    "GET /healthz": Told("503 where only a restart helps", {"text/plain": TEXT}, others=(503,)),
    "GET /readyz": Told("503 while it is not ready", READINESS, others=(503,)),
}
ENUMS = {"action": [*MAY]}
"""Parts of paths that are one of a few."""


def flowing(docstring: str) -> str:
    """A docstring without indentation, its lines joined but for paragraphs."""
    paragraphs = inspect.cleandoc(docstring).split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def routes() -> list[Route]:
    """What a gateway declares for machines."""
    core = Mock(settings=Settings().gateway)
    api = HttpApi(core, Mock(), CloudEventRoutes(core, Mock()).routes())
    return [route for route in api.routes if route.path.startswith(MACHINES)]


def document() -> dict[str, Any]:
    """The OpenAPI 3.1 document. A route that the table has not is in it by its path alone."""
    paths: dict[str, dict[str, Any]] = {}
    structs: dict[str, Any] = {}
    refused = {"description": "Refused", "content": _content(PROBLEM, structs)}
    for route in routes():
        path = route.path.replace(":path}", "}")
        for method in sorted((route.methods or set()) - {"HEAD"}):
            told = API.get(f"{method} {path}", Told(""))
            paths.setdefault(path, {})[method.lower()] = _operation(method, path, route, told, structs)
    for schema in structs.values():
        if "description" in schema:
            schema["description"] = flowing(schema["description"])
    return {
        "openapi": "3.1.0",
        "info": {"title": "groundwatch", "version": __version__, "license": {"name": "Apache-2.0"}},
        "servers": [
            {"url": "http://127.0.0.1:8787", "description": "A gateway, with pages at the same port"}
        ],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(structs.items())),
            "responses": {"Refused": refused},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(method: str, path: str, route: Route, told: Told, structs: dict[str, Any]) -> dict[str, Any]:
    parts = {name: {"enum": ENUMS[name]} if name in ENUMS else TEXT for name in re.findall(r"{(\w+)}", path)}
    refused: dict[str, Any] = {"$ref": "#/components/responses/Refused"}
    if told.refused is not None:
        refused = {"description": "Refused", "content": _content(told.refused, structs)}
    found: dict[str, Any] = {
        "operationId": re.sub(r"\W+", "_", f"{method} {path}").strip("_").lower(),
        "summary": told.about,
        "parameters": [
            {"name": name, "in": place, "required": place == "path", "schema": schema}
            for place, named in (("path", parts), ("query", told.query))
            for name, schema in named.items()
        ],
        "responses": {
            **{str(code): _reply(code, told.gives, structs) for code in (told.status, *told.others)},
            "4XX": refused,
            **({} if 503 in told.others else {"503": refused, "504": refused}),
        },
    }
    if told.takes is not None:
        found["requestBody"] = {"content": _content(told.takes, structs)}
    if route.need.role != "anybody":
        found |= {"security": [{"token": []}], "x-role": route.need.role}
    return found


def _reply(code: int, gives: Form, structs: dict[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {"description": HTTPStatus(code).phrase}
    return told if code == HTTPStatus.NO_CONTENT else told | {"content": _content(gives, structs)}


def _content(form: Form, structs: dict[str, Any]) -> dict[str, Any]:
    kinds = form if isinstance(form, dict) else {JSON: form}
    return {kind: {"schema": _schema(one, structs)} for kind, one in kinds.items()}


def _schema(form: Form, structs: dict[str, Any]) -> dict[str, Any]:
    if isinstance(form, dict):
        return form
    if isinstance(form, tuple):
        return {"anyOf": [_schema(one, structs) for one in form]}
    (schema,), found = msgspec.json.schema_components([form], ref_template="#/components/schemas/{name}")
    structs |= found
    return schema
