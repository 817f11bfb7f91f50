"""Replays with their progress, and two runs or two versions side by side."""

import contextlib
import time
from collections.abc import Iterator
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from groundwatch.errors import TransientError, UsageError
from groundwatch.events import LIVE
from groundwatch.gateway.auth import OPERATE, VIEW, Caller, Filter, Need
from groundwatch.gateway.comparing import LIMIT, compare
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.http.requests import Route, caller_of, is_json, json, json_of
from groundwatch.gateway.pages.rendering import Pages, scale_top
from groundwatch.gateway.refusals import Refused
from groundwatch.gateway.replays import Replay, Replays, Wanted
from groundwatch.reporting.compare.compare import Comparison
from groundwatch.reporting.compare.render import VersionComparison, notes
from groundwatch.topology import MAX_TOKEN, is_token

PAGE_LIMIT = 50_000
"""Outcomes of each run that a comparison on a page holds: it is made while somebody waits."""

CHANGED = 20

LISTED = 200

MAY = {
    "pause": ("running",),
    "resume": ("paused", "running"),
    "cancel": ("running", "paused", "importing"),
}
"""What can be done to a run in which state."""


class RunRoutes:
    """Pages, which show runs of all tenants, and the same as JSON, where a tenant has its own."""

    def __init__(self, core: GatewayCore, pages: Pages) -> None:
        self._core = core
        self._pages = pages
        self._comparing = 0

    def routes(self) -> list[Route]:
        page = self._pages.route
        return [
            page("/runs", self.list_runs, Need("viewer", "the list of replays", page=True)),
            page("/runs/{name}", self.one_run, Need("viewer", "a replay", page=True)),
            page("/runs/{name}/{action}", self.change, Need("operator", "a replay"), methods=["POST"]),
            page("/compare", self.compare_page, Need("viewer", "a comparison", page=True)),
            Route("/v1/runs", self.list_runs, VIEW),
            Route("/v1/runs", self.start, OPERATE, methods=["POST"]),
            Route("/v1/runs/{name}", self.one_run, VIEW),
            Route("/v1/runs/{name}/{action}", self.change, OPERATE, methods=["POST"]),
            Route("/v1/compare", self.compare, VIEW),
        ]

    @property
    def _replays(self) -> Replays:
        if self._core.replays is None:
            raise UsageError("this gateway has nobody who keeps replays")
        return self._core.replays

    async def list_runs(self, request: Request) -> Response:
        caller = caller_of(request)
        if is_json(request):
            runs = [run for run in await self._replays.list() if _is_of(run, caller)]
            return json({"runs": [caller.shown(run) for run in runs]})
        runs, problem = await self._runs()
        names = dict.fromkeys([LIVE, *(run.run for run in runs)])
        return self._pages.render(
            request,
            "runs.html",
            runs=runs[:LISTED],
            total=len(runs),
            names=list(names),
            problem=problem,
            may=MAY,
            now=time.time(),
        )

    async def start(self, request: Request) -> Response:
        """Judge a stretch of what was recorded again, into a run of its own."""
        caller, wanted = caller_of(request), await json_of(request, Wanted)
        if wrong := caller.check_run(wanted.run):
            raise Refused("invalid", wrong, field="run")
        if wanted.judge and caller.only is not None:
            message = (
                "a tenant's replay is judged by the judges in use: another needs a token for all tenants"
            )
            raise Refused("not_for_tenants", message, field="judge")
        tenants = caller.tenants(wanted.tenants)
        run, source = caller.full_run(wanted.run), caller.full_run(wanted.source) or LIVE
        if await self._replays.find(run) is not None:
            raise Refused("run_exists", f"run '{wanted.run}' exists already", field="run")
        own = msgspec.structs.replace(wanted, run=run, source=source, tenants=tenants)
        with _in_words(caller):
            return json(caller.shown(await self._replays.start(own)), 201)

    async def one_run(self, request: Request) -> Response:
        run = await self._found(request)
        if is_json(request):
            return json(run)
        return self._pages.render(request, "run.html", run=run, may=MAY)

    async def change(self, request: Request) -> Response:
        run, action = await self._found(request), request.path_params["action"]
        if action not in MAY:
            raise Refused("not_found", "A run is paused, resumed or cancelled.")
        if run.status not in MAY[action]:
            raise Refused("over", f"run '{run.run}' is {run.status}", field="run")
        caller, replays = caller_of(request), self._replays
        acts = {"pause": replays.pause, "resume": replays.resume, "cancel": replays.cancel}
        with _in_words(caller):
            run = caller.shown(await acts[action](caller.full_run(run.run)))
        return json(run) if is_json(request) else RedirectResponse(f"/runs/{quote(run.run, safe='')}", 303)

    async def _found(self, request: Request) -> Replay:
        """As its caller knows it. Raises `Refused`."""
        caller, name = caller_of(request), request.path_params["name"]
        run = await self._replays.find(caller.full_run(name))
        if run is None or not _is_of(run, caller):
            raise Refused("not_found", f"There is no replay '{name[:64]}'. It may have been deleted.")
        return caller.shown(run)

    async def compare(self, request: Request) -> Response:
        """Two runs beside each other, paired by response, as `groundwatch compare --json`."""
        query = request.query_params
        caller = caller_of(request)
        first, second = query.get("first", ""), query.get("second", "")
        for field, run in (("first", first), ("second", second)):
            if not is_token(run):
                message = f"name a run: letters, digits, - and _, at most {MAX_TOKEN}; live traffic is 'live'"
                raise Refused("invalid", message, field=field)
        filters = Filter(
            model=query.get("model", ""),
            tenant=caller.tenant(query.get("tenant", "")),
            protocol=query.get("protocol", ""),
        )
        with _in_words(caller):
            found = await self._compared(caller.full_run(first), caller.full_run(second), filters, caller)
        notes = tuple(map(caller.in_words, found.notes))
        return json(msgspec.structs.replace(found, first=first, second=second, notes=notes))

    async def _compared(
        self, first: str, second: str, filters: Filter, caller: Caller, limit: int = LIMIT
    ) -> Comparison:
        most = self._core.settings.http.comparisons
        if self._comparing >= most:
            raise Refused("comparisons", f"{most} comparisons are under way already")
        self._comparing += 1
        try:
            return await compare(
                self._core.bus,
                first,
                second,
                **msgspec.structs.asdict(filters),
                top=CHANGED,
                limit=limit,
                listed=caller.only is None,
            )
        finally:
            self._comparing -= 1

    async def compare_page(self, request: Request) -> Response:
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
                filters = Filter(model=told["model"], tenant=told["tenant"], protocol=told["protocol"])
                found = await self._compared(
                    told["first"], told["second"], filters, caller_of(request), PAGE_LIMIT
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


def _is_of(run: Replay, caller: Caller) -> bool:
    """Whether a caller may see it: of replays, a tenant has its own."""
    return caller.only is None or set(run.tenants) == {caller.only}


@contextlib.contextmanager
def _in_words(caller: Caller) -> Iterator[None]:
    """What goes wrong in the block is told with the names that the caller knows."""
    try:
        yield
    except UsageError as error:
        error.args = (caller.in_words(str(error)),)
        raise


def _top(pair: VersionComparison) -> float:
    """The end of the scale on which its rates are drawn."""
    rates = [pair.first.hallucination_rate, pair.second.hallucination_rate]
    return scale_top([*rates, *(rate for row in pair.corrected for rate in (*row.judged, *row.corrected))])
