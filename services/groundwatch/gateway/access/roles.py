"""Which role each address and each call needs: the one table of it, for HTTP and gRPC.

A viewer reads, a reviewer also gives opinions, an operator may do everything, and a sender sends and nothing
else. Nothing is served that is not in the table.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Literal

import msgspec

from groundwatch.runtime.settings.login import Role

MAY: dict[Role, frozenset[Role]] = {
    "viewer": frozenset({"viewer"}),
    "reviewer": frozenset({"viewer", "reviewer"}),
    "operator": frozenset({"viewer", "reviewer", "operator", "sender"}),
    "sender": frozenset({"sender"}),
}
"""What each role may do: the needs that it meets."""


class Need(msgspec.Struct, frozen=True):
    """What somebody must be: of a role that meets `role`, or nobody in particular.

    `all_tenants` says what it shows of all tenants, which is not for one of them. A `page` is what a link may
    lead to; who has not logged in is sent to the login.
    """

    role: Role | Literal["anybody"]
    all_tenants: str = ""
    page: bool = False


ANYBODY = Need("anybody")
SEND = Need("sender")
VIEW = Need("viewer")
REVIEW = Need("reviewer")
OPERATE = Need("operator")
LOGIN = Need("anybody", page=True)
PAGE = Need("viewer", page=True)
REVIEW_PAGE = Need("reviewer", page=True)

ROUTES: dict[tuple[str, str], Need] = {
    ("GET", "/healthz"): ANYBODY,
    ("GET", "/readyz"): ANYBODY,
    ("GET", "/metrics"): Need("viewer", "what is measured"),
    # What is sent.
    ("POST", "/v1/responses"): SEND,
    ("POST", "/v1/questions"): SEND,
    ("POST", "/v1/images"): SEND,
    ("POST", "/v1/losses"): SEND,
    ("POST", "/v1/litellm"): SEND,
    ("POST", "/v1/cloudevents"): SEND,
    ("POST", "/v1/traces"): SEND,
    ("POST", "/v1/logs"): SEND,
    ("POST", "/api/public/otel/v1/traces"): SEND,
    ("POST", "/api/public/media"): SEND,
    # What is read.
    ("GET", "/v1/responses/{id:path}"): VIEW,
    ("GET", "/v1/images/{sha256}"): VIEW,
    ("GET", "/v1/scores"): VIEW,
    ("GET", "/v1/answers"): VIEW,
    ("GET", "/v1/report"): Need("viewer", "the report"),
    ("GET", "/v1/alarms"): Need("viewer", "the list of alarms"),
    ("GET", "/v1/runs"): VIEW,
    ("POST", "/v1/runs"): OPERATE,
    ("GET", "/v1/runs/{name}"): VIEW,
    ("POST", "/v1/runs/{name}/{action}"): OPERATE,
    ("GET", "/v1/compare"): VIEW,
    # What people review.
    ("GET", "/v1/queues"): VIEW,
    ("POST", "/v1/queues"): OPERATE,
    ("GET", "/v1/queues/{name}"): VIEW,
    ("POST", "/v1/queues/{name}/close"): OPERATE,
    ("POST", "/v1/queues/{name}/next"): REVIEW,
    ("GET", "/v1/queues/{name}/items/{key}"): REVIEW,
    ("PUT", "/v1/queues/{name}/items/{key}/draft"): REVIEW,
    ("POST", "/v1/queues/{name}/items/{key}/opinion"): REVIEW,
    ("POST", "/v1/queues/{name}/items/{key}/release"): REVIEW,
    ("GET", "/v1/opinions"): VIEW,
    ("GET", "/v1/agreement"): Need("viewer", "the agreement of judges and people"),
    ("POST", "/v1/opinions"): OPERATE,
    # Pages, and what they load.
    ("GET", "/"): Need("viewer", "the page", page=True),
    ("GET", "/answers"): PAGE,
    ("GET", "/answers/{id:path}"): PAGE,
    ("GET", "/alarms"): Need("viewer", "the list of alarms", page=True),
    ("GET", "/alarms/{key}"): Need("viewer", "an alarm", page=True),
    ("POST", "/alarms/{key}/acknowledge"): Need("reviewer", "an alarm"),
    ("GET", "/runs"): Need("viewer", "the list of replays", page=True),
    ("GET", "/runs/{name}"): Need("viewer", "a replay", page=True),
    ("POST", "/runs/{name}/{action}"): Need("operator", "a replay"),
    ("GET", "/health"): Need("viewer", "the state of everything", page=True),
    ("POST", "/health/dead/{number}/retry"): Need("operator", "the dead letters"),
    ("GET", "/compare"): Need("viewer", "a comparison", page=True),
    ("GET", "/queues"): PAGE,
    ("POST", "/queues"): OPERATE,
    ("GET", "/queues/{name}"): PAGE,
    ("POST", "/queues/{name}/close"): OPERATE,
    ("GET", "/review/{name}"): REVIEW_PAGE,
    ("GET", "/static/{name}"): ANYBODY,
    ("GET", "/static/{version}/{name}"): ANYBODY,
    ("GET", "/favicon.ico"): ANYBODY,
    ("GET", "/login"): LOGIN,
    ("POST", "/login"): LOGIN,
    ("GET", "/login/oidc"): LOGIN,
    ("GET", "/login/oidc/callback"): LOGIN,
    ("POST", "/logout"): PAGE,
}
"""By method and path, as the route has it; what answers GET answers HEAD."""

_SERVICE = "/groundwatch.v1.MonitorService/"
_OTLP = "/opentelemetry.proto.collector"

CALLS: dict[str, Need] = {
    _SERVICE + "Submit": SEND,
    _SERVICE + "SubmitStream": SEND,
    _SERVICE + "WatchScores": VIEW,
    _SERVICE + "GetResponse": VIEW,
    _SERVICE + "GetReport": Need("viewer", "the report"),
    _OTLP + ".trace.v1.TraceService/Export": SEND,
    _OTLP + ".logs.v1.LogsService/Export": SEND,
    "/grpc.health.v1.Health/Check": ANYBODY,
    "/grpc.health.v1.Health/Watch": ANYBODY,
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": ANYBODY,
}
"""By the full name of the call."""


def needs_of(table: Mapping[Any, Need], wanted: Iterable[Any]) -> dict[Any, Need]:
    """The needs of what is to be served. Raises `LookupError` for what nobody has said who may call it."""
    wanted = tuple(wanted)
    if missing := [one for one in wanted if one not in table]:
        raise LookupError(f"say in gateway/access/roles.py who may call {', '.join(map(str, missing))}")
    return {one: table[one] for one in wanted}


@cache
def _pages() -> tuple[re.Pattern[str], ...]:
    # Here, since the command line knows roles and needs no web server.
    from starlette.routing import compile_path

    paths = (path for (method, path), need in ROUTES.items() if need.page and method == "GET")
    return tuple(compile_path(path)[0] for path in paths)


def is_page(path: str) -> bool:
    """Whether a page is at this path: what people open in a browser, and links lead to."""
    return any(page.match(path) for page in _pages())
