"""Answers over HTTP: JSON, errors on one line that name what is wrong."""

from typing import Any

from starlette.responses import Response

from groundwatch.gateway.intake.results import Reason, Refused
from groundwatch.runtime.delivery.bus import ENCODER

RETRY_AFTER = "5"

STATUS: dict[Reason, int] = {
    "malformed": 422,
    "invalid": 422,
    "too_large": 413,
    "unknown_protocol": 422,
    "image": 422,
    "image_missing": 422,
    "conflict": 409,
    "erased": 410,
    "other_tenant": 403,
    "backlog": 503,
    "unavailable": 503,
    "unconfirmed": 503,
}


def json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Anything that msgspec encodes."""
    return Response(ENCODER.encode(content), status, headers, "application/json")


def problem(status: int, message: str, *, headers: dict[str, str] | None = None, **more: Any) -> Response:
    """An error on one line, and what else is known of it."""
    told = {name: value for name, value in more.items() if value}
    return json({"error": one_line(message), **told}, status, headers)


def refused(refusal: Refused) -> Response:
    """A refusal in the terms of HTTP."""
    return problem(
        STATUS[refusal.reason],
        refusal.message,
        headers={"Retry-After": RETRY_AFTER} if refusal.passing else None,
        reason=refusal.reason,
        field=refusal.field,
        id=refusal.id,
    )


def one_line(message: str) -> str:
    """Without line breaks or other control characters, and not endless."""
    return " ".join("".join(c if c.isprintable() else " " for c in message).split())[:1000]
