"""The addresses of all pages, and the files that they load."""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from groundwatch.gateway.access.roles import ANYBODY
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.http.routing import Route
from groundwatch.gateway.pages.alarms import AlarmPages
from groundwatch.gateway.pages.answer import AnswerPages
from groundwatch.gateway.pages.answers import AnswersRoutes
from groundwatch.gateway.pages.health import HealthPage
from groundwatch.gateway.pages.overview import Overview
from groundwatch.gateway.pages.queues import QueueRoutes
from groundwatch.gateway.pages.rendering import Pages
from groundwatch.gateway.pages.runs import RunRoutes


class PageRoutes:
    """Each page is a class of its own, made of the core and `Pages`, with `routes()`."""

    def __init__(self, core: GatewayCore, pages: Pages) -> None:
        self._core = core
        self._pages = pages

    def routes(self) -> list[Route]:
        return [
            *Overview(self._core, self._pages).routes(),
            *AnswersRoutes(self._core, self._pages).routes(),
            *AnswerPages(self._core, self._pages).routes(),
            *AlarmPages(self._core, self._pages).routes(),
            *RunRoutes(self._core, self._pages).routes(),
            *HealthPage(self._core, self._pages).routes(),
            Route("/static/{name}", self._static, ANYBODY),
            Route("/static/{version}/{name}", self._static, ANYBODY),
            Route("/favicon.ico", self._icon, ANYBODY),
            *QueueRoutes(self._core, self._pages).routes(),
        ]

    async def _static(self, request: Request) -> Response:
        names = request.path_params
        reply = self._pages.static.reply(names.get("version", ""), names["name"])
        if reply is None:
            raise HTTPException(404)
        return reply

    async def _icon(self, request: Request) -> Response:
        return RedirectResponse(self._pages.static.address("icon.svg"), 302)
