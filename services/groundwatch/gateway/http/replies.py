"""Replies of the gateway's HTTP API: JSON, and errors as one line of it."""

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from groundwatch.gateway.refusals import Refused, one_line, refusal_of
from groundwatch.runtime.delivery.bus import ENCODER

READING = frozenset({"GET", "HEAD"})
BEARER = 'Bearer realm="groundwatch"'
BASIC = 'Basic realm="groundwatch", charset="UTF-8"'


def media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def is_json(request: Request) -> bool:
    """Whether the same is asked for as JSON that a page shows."""
    return request.url.path.startswith("/v1/")


def check_encoding(request: Request) -> None:
    """Raises `Refused` for a body that is compressed."""
    if encoding := request.headers.get("content-encoding", "").lower().replace("identity", ""):
        message = f"Content-Encoding {encoding} is not read; send it uncompressed"
        raise Refused("media_type", message)


def json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(ENCODER.encode(content), status, headers, "application/json")


def problem(status: int, message: str, headers: dict[str, str] | None = None, **more: Any) -> Response:
    return json({"error": one_line(message), **more}, status, headers)


async def when_refused(request: Request, error: Exception) -> Response:
    refused = refusal_of(error)
    headers = {}
    if refused.passing:
        headers["Retry-After"] = str(refused.retry_after)
    if refused.reason == "slow":
        # What still comes from a slow sender belongs to no request.
        headers["Connection"] = "close"
    if refused.reason == "unauthenticated":
        # A browser then asks its user, but not for what a page of ours loads; whoever writes must say who
        # they are by themselves.
        mode = request.headers.get("sec-fetch-mode", "navigate")
        ways = (BASIC, BEARER) if request.method in READING and mode == "navigate" else (BEARER,)
        headers["WWW-Authenticate"] = ", ".join(ways)
    told = {name: value for name in ("reason", "field", "id") if (value := getattr(refused, name))}
    return problem(refused.status.http, refused.message, headers, **told, **refused.details)


async def when_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code == 404:
        return problem(404, f"nothing is at {request.url.path}", headers)
    if error.status_code == 405:
        allowed = headers.get("Allow", "another method")
        return problem(405, f"{request.method} is not for {request.url.path}: use {allowed}", headers)
    return problem(error.status_code, str(error.detail), headers)
