"""Replays with their progress, and two runs or two versions side by side."""

import time
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from groundwatch.errors import TransientError, UsageError
from groundwatch.events import LIVE
from groundwatch.gateway.comparing import compare
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.pages.charts import scale_top
from groundwatch.gateway.pages.rendering import NoPage, Pages
from groundwatch.gateway.replays import Replay, Replays
from groundwatch.reporting.compare.versions import VersionComparison, notes

LIMIT = 50_000
"""Outcomes of each run that a comparison holds: it is made while somebody waits."""

CHANGED = 20

LISTED = 200

MAY = {
    "pause": ("running",),
    "resume": ("paused", "running"),
    "cancel": ("running", "paused", "importing"),
}
"""What can be done to a run in which state."""


class RunPages:
    def __init__(self, core: GatewayCore, pages: Pages) -> None:
        self._core = core
        self._pages = pages

    def routes(self) -> list[Route]:
        route = self._pages.route
        return [
            route("/runs", self.list_runs),
            route("/runs/{name}", self.one_run),
            route("/runs/{name}/{action}", self.change, methods=["POST"]),
            route("/compare", self.compare),
        ]

    @property
    def _replays(self) -> Replays:
        if self._core.replays is None:
            raise UsageError("this gateway has nobody who keeps replays")
        return self._core.replays

    async def list_runs(self, request: Request) -> Response:
        runs, problem = await self._runs()
        names = dict.fromkeys([LIVE, *(run.run for run in runs)])
        part = request.query_params.get("part") == "runs"
        return self._pages.render(
            request,
            "runs_table.html" if part else "runs.html",
            runs=runs[:LISTED],
            total=len(runs),
            names=list(names),
            problem=problem,
            may=MAY,
            now=time.time(),
        )

    async def one_run(self, request: Request) -> Response:
        name = request.path_params["name"]
        run = await self._replays.find(name)
        if run is None:
            raise NoPage("There is no replay of this name. It may have been deleted.")
        part = request.query_params.get("part") == "runs"
        return self._pages.render(request, "run_state.html" if part else "run.html", run=run, may=MAY)

    async def change(self, request: Request) -> Response:
        name, action = request.path_params["name"], request.path_params["action"]
        match action:
            case "pause":
                await self._replays.pause(name)
            case "resume":
                await self._replays.resume(name)
            case "cancel":
                await self._replays.cancel(name)
            case _:
                raise NoPage("A run is paused, resumed or cancelled.")
        return RedirectResponse(f"/runs/{quote(name, safe='')}", 303)

    async def compare(self, request: Request) -> Response:
        """Two runs; with `by=version` two versions of a model."""
        query = request.query_params
        told = {
            name: query.get(name, "") for name in ("first", "second", "model", "protocol", "tenant", "by")
        }
        runs, problem = await self._runs()
        names = list(dict.fromkeys([LIVE, *(run.run for run in runs)]))
        versions = [one for one in await self._core.live.versions() if one.version]
        found, refused = None, ""
        pairs: tuple[VersionComparison, ...] = ()
        if told["by"] == "version":
            names_of = (told["model"], told["first"], told["second"])
            pairs = await self._core.corrections.versions(versions, *names_of)
            if told["first"] and told["second"] and not pairs:
                refused = "No judge has judged both versions of this model."
        elif told["first"] and told["second"]:
            try:
                found = await compare(
                    self._core.bus,
                    told["first"],
                    told["second"],
                    model=told["model"],
                    tenant=told["tenant"],
                    protocol=told["protocol"],
                    top=CHANGED,
                    limit=LIMIT,
                )
            except UsageError as error:
                refused = str(error)
        return self._pages.render(
            request,
            "compare.html",
            here="/runs",
            told=told,
            names=names,
            versions=versions,
            found=found,
            pairs=[(one, _top(one), list(notes(one))) for one in pairs],
            refused=refused,
            problem=problem,
        )

    async def _runs(self) -> tuple[list[Replay], str]:
        """Every run, the newest first, or why they cannot be listed."""
        try:
            return list(await self._replays.list()), ""
        except (TransientError, UsageError) as error:
            return [], str(error)


def _top(pair: VersionComparison) -> float:
    """The end of the scale on which its rates are drawn."""
    rates = [pair.first.hallucination_rate, pair.second.hallucination_rate]
    return scale_top([*rates, *(rate for row in pair.corrected for rate in (*row.judged, *row.corrected))])
