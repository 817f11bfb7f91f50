"""`/login` and `/logout`: who somebody is, by a token or by the provider, and which session that begins."""

import time
from collections import OrderedDict
from collections.abc import Callable
from urllib.parse import quote, urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from groundwatch.errors import TransientError
from groundwatch.gateway.auth import CALLBACK, KEPT, LOGIN, VIEW_PAGE, Access, LoginRefused, Session
from groundwatch.gateway.http.requests import (
    FORM,
    READING,
    Route,
    form_of,
    known_caller,
    media_type,
    when_refused,
)
from groundwatch.gateway.intake.admission import REMEMBERED, TokenBucket
from groundwatch.gateway.pages.rendering import Pages
from groundwatch.gateway.refusals import Refused
from groundwatch.runtime.settings.gateway import TenantRate
from groundwatch.runtime.settings.login import LoginSettings
from groundwatch.runtime.telemetry.logs import logger

ATTEMPTS = TenantRate(rate=1 / 6, burst=10)
"""Tokens that are not known, from one address: ten at once, then ten a minute."""

GOAL = "goal"
"""Where a session keeps the page to which somebody wants who was sent to the provider."""

TOO_LATE = "This page was open for too long, or in two windows. Log in again."


class LoginRoutes:
    def __init__(
        self, access: Access, settings: LoginSettings, pages: Pages, is_page: Callable[[str], bool]
    ) -> None:
        self._access = access
        self._settings = settings
        self._pages = pages
        self._is_page = is_page
        self._attempts: OrderedDict[str, TokenBucket] = OrderedDict()

    def routes(self) -> list[Route]:
        return [
            self._pages.route("/login", self.show, LOGIN),
            self._pages.route("/login", self.log_in, LOGIN, methods=["POST"]),
            self._pages.route("/login/oidc", self.begin, LOGIN),
            self._pages.route(CALLBACK, self.finish, LOGIN),
            self._pages.route("/logout", self.log_out, VIEW_PAGE, methods=["POST"]),
        ]

    async def show(self, request: Request) -> Response:
        goal = self._local_page(request.query_params.get("next", ""))
        if known_caller(request) is not None or not self._access.asks:
            return _to(goal)
        return self._page(request, goal)

    async def log_in(self, request: Request) -> Response:
        """Begin a session for the token in a form."""
        if media_type(request) != FORM:
            return self._page(request, "/", "Log in with the form on this page.", 400)
        form = await form_of(request)
        goal = self._local_page(form.get("next", ""))
        if self._settings.secure and request.headers.get("origin", "").lower().startswith("http:"):
            return self._page(request, goal, f"Log in at {self._settings.url}: here it is without TLS.")
        attempts = self._attempts_from(request.client.host if request.client else "")
        try:
            session = self._access.log_in(form.get("token", ""))
        except Refused as error:
            # One that is known comes in: behind a proxy all have one address, and who guesses there would
            # lock out everybody.
            if attempts.left < 1:
                return self._page(
                    request, goal, "Too many tokens that are not known: wait a few seconds.", 429
                )
            attempts.left -= 1
            return self._page(request, goal, f"{error.message[0].upper()}{error.message[1:]}.")
        return self._begun(request, session, goal)

    def _attempts_from(self, address: str) -> TokenBucket:
        now = time.monotonic()
        bucket = self._attempts.setdefault(address, TokenBucket(ATTEMPTS.most, now))
        bucket.fill(ATTEMPTS, now)
        self._attempts.move_to_end(address)
        if len(self._attempts) > REMEMBERED:
            self._attempts.popitem(last=False)
        return bucket

    async def begin(self, request: Request) -> Response:
        """Send a browser to the provider."""
        goal = self._local_page(request.query_params.get("next", ""))
        if self._access.provider is None:
            return _to(f"/login?next={quote(goal)}")
        try:
            address = await self._access.provider.address(request)
        except TransientError as error:
            return self._failed(request, goal, error)
        request.session[GOAL] = goal
        return _to(address)

    async def finish(self, request: Request) -> Response:
        """A browser comes back from the provider."""
        access = self._access
        if access.provider is None or GOAL not in request.session:
            return self._page(request, "/", TOO_LATE, 400)
        goal = request.session[GOAL]
        try:
            person = await access.provider.person(request)
            session = access.log_in_person(person.name, person.groups)
        except LoginRefused as error:
            return self._page(request, goal, f"You were not let in: {error}.")
        except TransientError as error:
            return self._failed(request, goal, error)
        return self._begun(request, session, goal)

    async def log_out(self, request: Request) -> Response:
        if self._access.asks:
            request.session.clear()
        return _to("/login")

    async def when_refused(self, request: Request, error: Exception) -> Response:
        """People are sent to the login, or told on a page why not; programs as ever."""
        assert isinstance(error, Refused)
        need = getattr(request.state, "need", None)
        if need is None or not need.page or "text/html" not in request.headers.get("accept", ""):
            return await when_refused(request, error)
        if error.reason != "unauthenticated":
            own = self._pages.navigation_of(known_caller(request))
            # The first page shows all tenants: who has one is led to what they may open.
            if request.url.path == "/" and own:
                return _to(own[0][0])
            return self._pages.refused(request, error)
        # As it was asked for: a decoded path may lead elsewhere.
        path, query = request.scope["raw_path"].decode("latin-1"), request.url.query
        goal = f"{path}?{query}" if query else path
        return _to(f"/login?next={quote(goal if request.method in READING else '/', safe='')}")

    def _local_page(self, address: str) -> str:
        """The address of a page of ours, or the first page in place of any other."""
        try:
            parts = urlsplit(address)
        except ValueError:
            return "/"
        plain = address.isascii() and address.isprintable() and "\\" not in address and address[:2] != "//"
        if not plain or parts.scheme or parts.netloc or parts.fragment:
            return "/"
        return address if self._is_page(parts.path) and not parts.path.startswith("/login") else "/"

    def _begun(self, request: Request, session: Session, goal: str) -> Response:
        caller = self._access.caller_in(session)
        if goal == "/" and caller is not None:
            # What shows all tenants is not for one of them.
            goal = next((path for path, _ in self._pages.navigation_of(caller)), goal)
        request.session.pop(GOAL, None)
        request.session[KEPT] = msgspec.to_builtins(session)
        logger.info("login.begun", name=session.name, group=session.group)
        return _to(goal)

    def _failed(self, request: Request, goal: str, error: TransientError) -> Response:
        logger.warning("login.provider", error=str(error))
        return self._page(request, goal, "The provider does not answer as it should; the log says why.", 503)

    def _page(self, request: Request, goal: str, problem: str = "", status: int = 403) -> Response:
        """The page on which one logs in; `problem` is why that did not succeed."""
        return self._pages.render(
            request,
            "login.html",
            status=status if problem else 200,
            goal=goal,
            problem=problem,
            by_token=self._access.tokens.wanted,
            by_provider=self._access.provider is not None,
        )


def _to(address: str) -> Response:
    return RedirectResponse(address, 303, {"Cache-Control": "no-store"})
