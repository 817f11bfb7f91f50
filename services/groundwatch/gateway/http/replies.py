"""Replies of the gateway's HTTP API: JSON, and errors as one line of it."""

from typing import Any, Literal

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from groundwatch.gateway.callers import Denial, NotAllowed
from groundwatch.gateway.http.bodies import SlowSender
from groundwatch.gateway.intake.results import RETRY_AFTER, OverRate, Reason, Refused
from groundwatch.gateway.intake.window import CutShort
from groundwatch.runtime.delivery.bus import ENCODER

STATUS: dict[Reason | Denial | Literal["slow"], int] = {
    "unauthenticated": 401,
    "other_tenant": 403,
    "all_tenants": 403,
    "role": 403,
    "elsewhere": 403,
    "slow": 408,
    "malformed": 422,
    "invalid": 422,
    "too_large": 413,
    "unknown_protocol": 422,
    "image": 422,
    "image_missing": 422,
    "image_not_allowed": 422,
    "image_not_fetched": 422,
    "image_unavailable": 503,
    "conflict": 409,
    "erased": 410,
    "rate_limited": 429,
    "backlog": 503,
    "unavailable": 503,
    "unconfirmed": 503,
}


def media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(ENCODER.encode(content), status, headers, "application/json")


def problem(status: int, message: str, *, headers: dict[str, str] | None = None, **more: Any) -> Response:
    told = {name: value for name, value in more.items() if value}
    return json({"error": one_line(message), **told}, status, headers)


def refused(refusal: Refused) -> Response:
    return problem(
        STATUS[refusal.reason],
        refusal.message,
        headers={"Retry-After": str(refusal.retry_after)} if refusal.passing else None,
        reason=refusal.reason,
        field=refusal.field,
        id=refusal.id,
    )


def one_line(message: str) -> str:
    """Without line breaks or other control characters, and not endless."""
    return " ".join("".join(c if c.isprintable() else " " for c in message).split())[:1000]


def not_allowed(error: NotAllowed, headers: dict[str, str] | None = None) -> Response:
    return problem(
        STATUS[error.reason], error.message, headers=headers, reason=error.reason, field=error.field
    )


async def when_wrong(request: Request, error: Exception) -> Response:
    return problem(422, str(error))


async def when_not_now(request: Request, error: Exception) -> Response:
    """A request that is not served now, or not to its end: then with what became of its lines."""
    summary: dict[str, Any] = {}
    if isinstance(error, CutShort):
        summary, error = msgspec.structs.asdict(error.summary), error.why
    status, reason, headers = STATUS["unavailable"], "unavailable", {"Retry-After": str(RETRY_AFTER)}
    if isinstance(error, SlowSender):
        # What still comes from a slow sender belongs to no request.
        status, reason, headers = STATUS["slow"], "slow", {"Connection": "close"}
    elif isinstance(error, OverRate):
        reason, headers = "rate_limited", {"Retry-After": str(error.after)}
    return json({"error": one_line(str(error)), "reason": reason, **summary}, status, headers)


async def when_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code == 404:
        return problem(404, f"nothing is at {request.url.path}", headers=headers)
    if error.status_code == 405:
        allowed = headers.get("Allow", "another method")
        return problem(405, f"{request.method} is not for {request.url.path}: use {allowed}", headers=headers)
    return problem(error.status_code, str(error.detail), headers=headers)
