"""The first page: every model and version side by side, each number with a way to the answers behind it."""

import contextlib

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from groundwatch.errors import GroundwatchError
from groundwatch.events import LIVE
from groundwatch.gateway.auth import Need
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.http.requests import Route, is_json, json
from groundwatch.gateway.pages.first_steps import FEW as FEW_ANSWERS
from groundwatch.gateway.pages.first_steps import first_steps
from groundwatch.gateway.pages.rendering import Pages, scale_top
from groundwatch.keys import digest
from groundwatch.reporting.alarms import Raised
from groundwatch.reporting.answers import AnswerQuery
from groundwatch.reporting.render import beside_rate
from groundwatch.reporting.report import ModelReport
from groundwatch.reporting.trends import Point, VersionReport, merged_trend
from groundwatch.reviews.corrected import RateTable
from groundwatch.statistics.intervals import Interval

FEW = 25
"""Models that are shown at first; alarmed ones always are."""

CATEGORIES = 8
"""Categories with a column of their own: those with the most facts."""

RECENT = 600
"""Outcomes behind the present among which the page's script looks for wrong sentences."""

RECENT_SECONDS = 600.0
"""The same with several partitions, where a position is a time."""

HEATS = (0.03, 0.08, 0.15, 0.25)
"""Rates from which on a cell of the table of categories is darker."""


class ModelRow(msgspec.Struct, frozen=True, kw_only=True):
    report: ModelReport
    judges: str
    corrected: Interval | None
    points: list[Point]
    alarms: list[Raised]
    versions: list[tuple[VersionReport, Interval | None]]
    categories: dict[str, Interval | None]
    beside: str


class Overview:
    def __init__(self, core: GatewayCore, pages: Pages) -> None:
        self._core = core
        self._pages = pages

    def routes(self) -> list[Route]:
        return [
            self._pages.route("/", self.page, Need("viewer", "the page", page=True)),
            Route("/v1/report", self.page, Need("viewer", "the report")),
        ]

    async def page(self, request: Request) -> Response:
        """The page; nothing while it is as `seen`."""
        if is_json(request):
            return json(await self._core.report(), headers={"Cache-Control": "no-store"})
        query = request.query_params
        live = self._core.live
        report = await live.report()
        raised = [one for one in live.raised if one.recovered_at is None]
        problem = self._core.bus.away or live.problem
        archived = {} if report["models"] or not report["complete"] else await self._archived()
        judged = {row["model"] for row in report["models"]}
        steps = first_steps(self._core, f"{request.url.scheme}://{request.url.netloc}", judged)
        parts = (
            report["sequence"],
            len(live.raised),
            len(raised),
            report["complete"],
            problem,
            steps.left,
            archived,
        )
        state = digest(*map(str, parts))[:16]
        if query.get("seen") == state:
            return Response(status_code=204)
        rows = await self._rows(report["models"], raised)
        everything = query.get("all") == "1"
        shown = rows if everything else rows[: max(FEW, sum(bool(row.alarms) for row in rows))]
        names = _categories(shown)
        top = scale_top(
            [one for row in shown for one in (row.report.hallucination_rate, row.corrected)]
            + [version.hallucination_rate for row in shown for version, _ in row.versions]
        )
        trend_top = scale_top([point.rate for row in shown for point in row.points])
        since = live.position - RECENT
        if self._core.bus.partitions > 1:
            since = int(live.position - 1e6 * RECENT_SECONDS)
        return self._pages.render(
            request,
            "overview.html",
            state=state,
            complete=report["complete"],
            folded=report["folded"],
            answers=sum(row.report.responses for row in rows),
            models=len({row.report.model for row in rows}),
            rows=shown,
            total=len(rows),
            everything=everything,
            protocols=list(dict.fromkeys(row.report.protocol for row in shown)),
            categories=names,
            heat=_heat,
            top=top,
            trend_top=trend_top,
            faults=_faults(raised),
            any_corrected=any(
                one is not None
                for row in shown
                for one in (row.corrected, *(rate for _, rate in row.versions))
            ),
            problem=problem,
            steps=steps,
            archived=archived,
            few=FEW_ANSWERS,
            since=max(0, since),
        )

    async def _archived(self) -> dict[str, int]:
        """Answers that the archive has by model: all there is where the streams hold none any more."""
        with contextlib.suppress(GroundwatchError):
            if (found := await self._core.answers.count(AnswerQuery(run=LIVE))) is not None:
                return found.names["model"]
        return {}

    async def _rows(self, reports: list[dict[str, object]], raised: list[Raised]) -> list[ModelRow]:
        """Alarmed models first; then by protocol, and of many the busiest first."""
        corrected = RateTable(await self._core.live.corrected())
        versions: dict[tuple[str, str, str], list[VersionReport]] = {}
        for version in await self._core.live.versions():
            versions.setdefault((version.model, version.protocol, version.fingerprint), []).append(version)
        rows = []
        for report in msgspec.convert(reports, list[ModelReport]):
            key = (report.model, report.protocol, report.fingerprint)
            of_model = versions.get(key, [])
            named = [one.version for one in of_model]
            alarms = [
                one for one in raised if (one.alarm.model, one.alarm.protocol, one.alarm.fingerprint) == key
            ]
            rows.append(
                ModelRow(
                    report=report,
                    judges=_judges(report.judges),
                    corrected=corrected.rate(*key)
                    or (corrected.rate(*key, version=of_model[0].version) if len(of_model) == 1 else None),
                    points=merged_trend(one.trend for one in of_model).points(),
                    alarms=alarms,
                    versions=[
                        (one, corrected.rate(*key, version=one.version)) for one in of_model if any(named)
                    ],
                    categories={one.name: one.hallucination_rate for one in report.categories},
                    beside=". ".join(beside_rate(report)),
                )
            )
        many = len(rows) > FEW
        rows.sort(
            key=lambda row: (
                not row.alarms,
                row.report.protocol,
                row.report.model == "other",
                -row.report.responses if many else 0,
                row.report.model,
            )
        )
        return rows


def _faults(raised: list[Raised]) -> list[tuple[Raised, list[Raised]]]:
    """One fault raises an alarm in several categories: it is told once, by the one over all facts where there
    is one, with the others; the latest first."""
    faults: dict[tuple[str, str, str], list[Raised]] = {}
    for one in raised:
        alarm = one.alarm
        faults.setdefault((alarm.model, alarm.protocol, alarm.fingerprint), []).append(one)
    found = []
    for several in faults.values():
        several.sort(
            key=lambda one: (one.alarm.category != "all", (one.alarm.before or 0.0) - one.alarm.after)
        )
        found.append((several[0], several[1:]))
    return sorted(found, key=lambda one: -one[0].alarm.raised_at)


def _judges(judges: dict[str, dict[str, str]]) -> str:
    names = (one.get("model") or one.get("engine", "") for one in judges.values())
    return " + ".join(dict.fromkeys(filter(None, names)))


def _categories(rows: list[ModelRow]) -> list[str]:
    """Those with the most decided facts, by name."""
    facts: dict[str, int] = {}
    for row in rows:
        for name, rate in row.categories.items():
            facts[name] = facts.get(name, 0) + (rate.n if rate is not None else 0)
    most = sorted(facts, key=lambda name: (-facts[name], name))[:CATEGORIES]
    return sorted(most)


def _heat(rate: Interval | None) -> int:
    return sum(rate.value >= one for one in HEATS) if rate is not None else 0
