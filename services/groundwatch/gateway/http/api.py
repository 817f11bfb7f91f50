"""The gateway's HTTP API: thin translations between requests and what `Intake` and `Live` do."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from functools import partial
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp

from groundwatch.errors import GroundwatchError
from groundwatch.events import DEFAULT_TENANT
from groundwatch.gateway.auth import ANYBODY, SEND, VIEW, Caller, Filter, Need
from groundwatch.gateway.core import GatewayCore, confirm, look_up
from groundwatch.gateway.http.requests import (
    Entrance,
    Guard,
    Route,
    Streamed,
    body_of,
    caller_of,
    check_encoding,
    json,
    known_alone,
    media_type,
    share_of,
    some_of,
    when_http,
    when_refused,
)
from groundwatch.gateway.intake.admission import IMAGES
from groundwatch.gateway.intake.submissions import DIGEST, Submission, read_question, read_submission
from groundwatch.gateway.intake.window import Bulk
from groundwatch.gateway.login import LoginRoutes
from groundwatch.gateway.pages.alarms import AlarmPages
from groundwatch.gateway.pages.answers import AnswerPages, AnswersRoutes
from groundwatch.gateway.pages.health import HealthPage
from groundwatch.gateway.pages.overview import Overview
from groundwatch.gateway.pages.rendering import Pages, Standing
from groundwatch.gateway.pages.review import ReviewRoutes
from groundwatch.gateway.pages.runs import RunRoutes
from groundwatch.gateway.receivers.litellm import LiteLlmRoutes
from groundwatch.gateway.receivers.otlp import OtlpRoutes, Receiver
from groundwatch.gateway.refusals import Refused, bounded
from groundwatch.gateway.thumbnails import SIDES
from groundwatch.records import Limits
from groundwatch.reporting.alarms import faults
from groundwatch.runtime.security.same_origin import SameOrigin
from groundwatch.runtime.stores.losses import MAX_REPORT, read_report
from groundwatch.runtime.telemetry.server import telemetry_routes
from groundwatch.topology import HEADER_TRACE

PAGES = (Overview, AnswersRoutes, AnswerPages, AlarmPages, RunRoutes, HealthPage, ReviewRoutes)
"""Made of the core and what all pages share; each has `routes()`, some also the same as JSON."""

NDJSON = frozenset(
    {"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"}
)
METRICS = Need("viewer", "what is measured")
PIECE = 64 * 1024
FORM_SLACK = 64 * 1024
"""Bytes that a multipart form may have around its image."""


class _Application(Starlette):
    """Without the layer that answers for exceptions in plain text: the guard does."""

    def build_middleware_stack(self) -> ASGIApp:
        return ExceptionMiddleware(self.router, self.exception_handlers)


class HttpApi:
    def __init__(self, core: GatewayCore, receiver: Receiver, more: Sequence[Route] = ()) -> None:
        """`more` are routes of others."""
        self._core = core
        self._receiver = receiver
        self._more = more
        self._bounds = core.bounds
        self._watching = 0
        self._pages = Pages(self._standing)
        self._login = LoginRoutes(core.access, core.settings.login, self._pages, self.is_page)
        self.routes = self._routes()

    def is_page(self, path: str) -> bool:
        """Whether a page is at this path: what people open in a browser, and links lead to."""
        pages = (route for route in self.routes if route.need.page and "GET" in (route.methods or ()))
        return any(page.path_regex.match(path) for page in pages)

    def _standing(self) -> Standing:
        live = self._core.live
        alarmed = faults(one for one in live.raised if one.recovered_at is None)
        away = self._core.bus.away or live.problem
        return Standing(len(alarmed), "NATS cannot be read" if away else "")

    def app(self) -> Guard:
        app = _Application(
            routes=self.routes,
            exception_handlers={
                HTTPException: self._when_http,
                Refused: self._login.when_refused,
                GroundwatchError: when_refused,
            },
        )
        app.router.redirect_slashes = False
        app.router.default = known_alone(app.router.default)
        settings = self._core.settings
        hosts = [*settings.hosts, settings.host]
        if own := urlsplit(settings.login.url).hostname:
            hosts.append(own)
        access = self._core.access
        served: ASGIApp = Entrance(app, access, self._core.held, settings.http, settings.proxy.upstreams)
        if access.asks:
            served = access.sessions(served)
        guarded = SameOrigin(served, hosts, setting="gateway.hosts", pages=self.is_page)
        return Guard(guarded)

    async def _when_http(self, request: Request, error: Exception) -> Response:
        """People are told on a page that there is no other; programs as ever."""
        assert isinstance(error, HTTPException)
        path, status = request.url.path, error.status_code
        asked = request.method == "GET" and "text/html" in request.headers.get("accept", "")
        if asked and not path.startswith("/v1/") and status in (404, 405):
            return self._pages.problem(request, status, f"There is no page at {path}.")
        return await when_http(request, error)

    def _routes(self) -> list[Route]:
        return [
            *(route for page in PAGES for route in page(self._core, self._pages).routes()),
            *self._pages.routes(),
            *self._login.routes(),
            Route("/v1/responses", self.post_responses, SEND, methods=["POST"]),
            Route("/v1/responses/{id:path}", self.get_response, VIEW),
            Route("/v1/questions", self.post_question, SEND, methods=["POST"]),
            Route("/v1/images", self.post_image, SEND, methods=["POST"]),
            Route("/v1/images/{sha256}", self.get_image, VIEW),
            Route("/v1/losses", self.post_losses, SEND, methods=["POST"]),
            *LiteLlmRoutes(self._core).routes(),
            *OtlpRoutes(self._core, self._receiver).routes(),
            *self._more,
            Route("/v1/scores", self.scores, VIEW),
            *(
                Route(route.path, route.endpoint, METRICS if route.path == "/metrics" else ANYBODY)
                for route in telemetry_routes(
                    self._core.metrics,
                    self._core.problems,
                    lambda: self._core.bus.lost,
                    self._core.notes,
                )
            ),
        ]

    async def post_responses(self, request: Request) -> Response:
        check_encoding(request)
        kind = media_type(request)
        if kind in NDJSON:
            bulk = Bulk(self._core, caller_of(request), share_of(request).hold)
            summary = await bulk.read(request.stream())
            return json(summary, headers={"Retry-After": str(bulk.retry_after)} if bulk.retry_after else None)
        if kind != "application/json":
            message = "send application/json for one response, application/x-ndjson for one on each line"
            raise Refused("media_type", message)
        return await self._record(request, read_submission)

    async def post_question(self, request: Request) -> Response:
        """A question for a model under test; its answer is recorded and judged under the same id."""
        if media_type(request) != "application/json":
            raise Refused("media_type", "send application/json")
        return await self._record(request, read_question)

    async def _record(
        self, request: Request, read: Callable[[bytes, Limits, Caller], Submission]
    ) -> Response:
        if (traces := self._core.bus.traces) is not None:
            traces.received(request.headers.get(HEADER_TRACE, ""))
        try:
            body = await body_of(request, self._bounds.line)
        except Refused as error:
            self._core.intake.count(error)
            raise
        ended = await self._core.record(partial(read, body, self._bounds, caller_of(request)))
        return json(ended, 202 if ended.status == "recorded" else 200)

    async def get_response(self, request: Request) -> Response:
        name = request.path_params["id"]
        tenant = caller_of(request).tenant(request.query_params.get("tenant", "")) or "default"
        found = await look_up(self._core.bus, tenant, name)
        if found is None:
            raise Refused("not_found", f"no response '{name}' of tenant '{tenant}' is recorded")
        return json(found)

    async def post_image(self, request: Request) -> Response:
        """Store an image, sent as it is or in a multipart form."""
        kind, limit = media_type(request), self._core.settings.intake.max_image_bytes
        try:
            if kind == "multipart/form-data":
                data = await self._form_image(request, limit)
            elif kind.startswith("image/") or kind == "application/octet-stream":
                data = await body_of(request, limit)
            else:
                message = "send the bytes of the image as image/*, or a multipart form with one file"
                raise Refused("media_type", message)
        except Refused as error:
            if error.reason != "too_large":
                raise
            self._core.metrics.images.labels("refused").inc()
            raise Refused("too_large", f"image is larger than {limit} bytes") from error
        caller = caller_of(request)
        with self._core.intake.counting():
            self._core.admission.admit(caller.only or DEFAULT_TENANT, IMAGES)
        async with bounded():
            image = await self._core.intake.attachments.store(data, caller.sender)
        # Not 201 for a new one: whether anybody has sent this image before is nobody's business.
        return json(some_of(image, "sha256", "media_type", "width", "height"))

    async def get_image(self, request: Request) -> Response:
        """A stored image, or a small picture of it. Its name is its content, so it may be kept for ever."""
        digest, width = request.path_params["sha256"], request.query_params.get("width", "")
        if width not in ("", *map(str, SIDES)):
            raise Refused("invalid", f"write one of {', '.join(map(str, SIDES))}", field="width")
        named = digest if DIGEST.match(digest) else "none"
        try:
            async with bounded():
                core = self._core
                data, media_type = await (
                    core.thumbnails.load(named, int(width)) if width else core.store.load(named)
                )
        except LookupError:
            raise Refused("not_found", f"no image '{digest}' is stored") from None
        share_of(request).hold(len(data))
        headers = {
            # Not `public`: what is between us and a caller with a token must not keep it for others.
            "Cache-Control": "private, max-age=31536000, immutable",
            "Content-Security-Policy": "default-src 'none'; sandbox",
        }
        return StreamingResponse(
            _pieces(data), 200, headers | {"Content-Length": str(len(data))}, media_type=media_type
        )

    async def post_losses(self, request: Request) -> Response:
        """How many responses a sender has lost before they came here: counts, told as often as one likes."""
        report = read_report(await body_of(request, MAX_REPORT))
        if isinstance(report, str):
            raise Refused("invalid", report)
        caller = caller_of(request)
        async with bounded():
            lost, recorded = await confirm(self._core, caller, report)
            new = await self._core.count_losses(caller.tenant(""), lost)
        return json({"counted": sum(new.values()), "recorded": recorded})

    async def scores(self, request: Request) -> Response:
        query = request.query_params
        tenant = caller_of(request).tenant(query.get("tenant", ""))
        # A browser that reconnects asks the same address again: the header knows better than `since`.
        since = request.headers.get("last-event-id") or query.get("since") or ""
        if since and not (since.isascii() and since.isdigit() and len(since) < 19):
            raise Refused("invalid", "is not the sequence of an event", field="since")
        most = self._core.settings.http.watchers
        if self._watching >= most:
            raise Refused("watchers", f"{most} others watch already")
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        if request.method == "HEAD":
            # Its answer has no body, and ends: else the connection would wait for the end of the stream.
            return Response(headers=headers, media_type="text/event-stream")
        wanted = Filter(model=query.get("model", ""), tenant=tenant, protocol=query.get("protocol", ""))
        self._watching += 1
        frames = self._core.live.frames(wanted, int(since) if since else None)
        return Streamed(self._watched, frames, headers=headers, media_type="text/event-stream")

    def _watched(self) -> None:
        self._watching -= 1

    async def _form_image(self, request: Request, limit: int) -> bytes:
        body = await body_of(request, limit + FORM_SLACK)

        async def parts() -> AsyncGenerator[bytes, None]:
            yield body

        try:
            form = await MultiPartParser(request.headers, parts(), max_files=1, max_fields=8).parse()
        except (MultiPartException, LookupError, ValueError) as error:
            # The last two: a character set that there is not, or text that is none in it.
            raise Refused("invalid", f"not a form with one image: {error}") from error
        try:
            files = [item for item in form.values() if isinstance(item, UploadFile)]
            if len(files) != 1:
                raise Refused("invalid", "the form has no file", field="image")
            data = await files[0].read(limit + 1)
        finally:
            await form.close()
        if len(data) > limit:
            raise Refused("too_large", "")
        return data


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    """So that a slow reader leaves no copy of it in the connection's buffer."""
    for start in range(0, len(data), PIECE):
        yield data[start : start + PIECE]
