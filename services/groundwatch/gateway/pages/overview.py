"""The first page: every model side by side, the worst first; and each model on a page of its own."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from groundwatch.errors import GroundwatchError
from groundwatch.events import LIVE
from groundwatch.gateway.auth import Need
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.http.requests import Route, is_json, json
from groundwatch.gateway.live.alarms import Acknowledgement, Acknowledgements
from groundwatch.gateway.pages.first_steps import FEW as FEW_ANSWERS
from groundwatch.gateway.pages.first_steps import first_steps
from groundwatch.gateway.pages.rendering import Pages, address, origin_of, scale_top
from groundwatch.gateway.refusals import Refused
from groundwatch.keys import digest
from groundwatch.reporting.alarms import Raised, faults
from groundwatch.reporting.answers import AnswerQuery
from groundwatch.reporting.render import beside_rate
from groundwatch.reporting.report import ModelReport
from groundwatch.reporting.sums import OTHER, Sums
from groundwatch.reporting.trends import RANGES, Point, Trend, VersionReport, Window, began, merged_trend
from groundwatch.reviews.corrected import RateTable
from groundwatch.runtime.delivery.streams import FAULTS
from groundwatch.statistics.intervals import Interval
from groundwatch.statistics.sampling import weighted_rate

SHOWN = 60
"""Models that are shown at first; alarmed ones always are."""

ALARM_LINES = 4

CATEGORIES = 8
"""Categories with a column of their own: those with the most facts."""

RECENT = 600
"""Outcomes behind the present among which the page's script looks for wrong sentences."""

RECENT_SECONDS = 600.0
"""The same with several partitions, where a position is a time."""

APART = 3.5
"""Stretches of a chart that are so many lengths apart are not joined."""

WALL_ROWS, WALL_ALARMS = 12, 3
"""Models and alarms that a wall shows at once."""

WALL_SECONDS = 10.0
"""After which a wall shows the next alarms."""

HEATS = (0.03, 0.08, 0.15, 0.25)
"""Rates from which on a cell of the table of categories is darker."""


@dataclass(frozen=True, kw_only=True)
class ModelRow:
    """A model with its `report` of all time. What stands beside it is of the range that is asked for, and
    then of scored answers alone."""

    report: ModelReport
    first: float
    judges: str
    corrected: Interval | None
    rate: Interval | None
    coverage: float | None
    answers: int
    cost: float
    trend: Trend
    alarms: list[Raised]
    versions: list[VersionReport]
    beside: str

    @property
    def faults(self) -> list[list[Raised]]:
        return faults(self.alarms)

    @cached_property
    def points(self) -> list[Point]:
        return self.trend.points()

    @property
    def span(self) -> tuple[float, float]:
        """From when to when a chart goes."""
        last = self.points[-1].start + self.points[-1].seconds
        return (self.first, max(last, time.time())) if self.first else (self.points[0].start, last)

    def drawn(self, top: float, width: int = 240, height: int = 52) -> tuple[str, str, int]:
        """The intervals and the line of a chart up to `top`, as SVG paths, and how wide a stretch is; those
        far from each other are not joined."""
        points, seconds, (first, last) = self.points, self.points[0].seconds, self.span
        across, up, band, line, before = width / (last - first), (height - 4) / top, "", "", 0.0
        for point in points:
            x = int(across * (point.start + seconds / 2 - first))
            rate = point.rate
            low, value, high = (
                int(height - 2 - up * min(top, one)) for one in (rate.low, rate.value, rate.high)
            )
            band += f"M{x} {low}V{high}"
            joined = point.start - before < APART * seconds
            line += f"L{x} {value}" if joined else f"M{x} {value}h0"
            before = point.start
        return band, line, max(3, int(across * seconds))

    @property
    def gain(self) -> float | None:
        """How much more is wrong of the newest version than of the one before."""
        rates = [one.hallucination_rate for one in self.versions[:2]]
        return rates[0].value - rates[1].value if len(rates) == 2 and rates[0] and rates[1] else None

    @property
    def categories(self) -> dict[str, Interval | None]:
        return {one.name: one.hallucination_rate for one in self.report.categories}


SORTS: dict[str, Callable[[ModelRow], float | None]] = {
    "low": lambda row: row.rate.low if row.rate else None,
    "rate": lambda row: row.rate.value if row.rate else None,
    "corrected": lambda row: row.corrected.value if row.corrected else None,
    "versions": lambda row: row.versions[0].first if row.versions else None,
    "coverage": lambda row: None if row.coverage is None else -row.coverage,
    "answers": lambda row: row.answers,
    "cost": lambda row: row.cost,
    "name": lambda row: 0.0,
}
"""What columns are sorted by, the highest first, and equals by name; with `-` before it the other way."""

ASKED = ("protocol", "range", "q", "sort", "view", "all")
"""What is in the address."""


class Overview:
    def __init__(self, core: GatewayCore, pages: Pages) -> None:
        self._core = core
        self._pages = pages

    def routes(self) -> list[Route]:
        return [
            self._pages.route("/", self.page, Need("viewer", "the page", page=True)),
            Route("/v1/report", self.page, Need("viewer", "the report")),
            self._pages.route("/models/{name:path}", self.model, Need("viewer", "a model's page", page=True)),
            self._pages.route("/wall", self.wall, Need("viewer", "the wall", page=True)),
        ]

    async def page(self, request: Request) -> Response:
        """The page; nothing while it is as `seen`."""
        if is_json(request):
            return json(await self._core.report(), headers={"Cache-Control": "no-store"})
        query, now = request.query_params, time.time()
        asked = {name: query.get(name, "") for name in ASKED}
        within = asked["range"] = asked["range"] if asked["range"] in RANGES else ""
        live = self._core.live
        report = await live.report()
        archived = {} if report["models"] or not report["complete"] else await self._archived()
        judged = {row["model"] for row in report["models"]}
        steps = first_steps(self._core, origin_of(request, self._core.settings.login), judged)
        state = self._state(report, now // 60, steps.left, archived, asked)
        if query.get("seen") == state:
            return Response(status_code=204)
        every = await self._rows(report["models"], within)
        tabs, protocol = _by_protocol(every, asked["protocol"])
        words = asked["q"].lower().split()
        named = [
            row for row in tabs.get(protocol, ()) if all(word in row.report.model.lower() for word in words)
        ]
        rows = _sorted([row for row in named if row.answers], asked["sort"])
        shown = rows if asked["all"] else rows[:SHOWN] + [row for row in rows[SHOWN:] if row.alarms]
        every_fault = faults(self._raised)
        since = live.position - RECENT
        if self._core.bus.partitions > 1:
            since = int(live.position - 1e6 * RECENT_SECONDS)
        return self._pages.render(
            request,
            "overview.html",
            state=state,
            complete=report["complete"],
            folded=report["folded"],
            answers=sum(row.answers for row in named),
            asked=asked,
            link=lambda **new: address("/", **{**asked, **new}),
            page_of=lambda row: model_address(row.report, within),
            range_start=int(began(within, now)) if within else "",
            now=now,
            any_models=bool(every),
            tabs={name: sum(bool(row.alarms) for row in tabs[name]) for name in sorted(tabs)},
            protocol=protocol,
            rows=shown,
            total=len(rows),
            silent=len(named) - len(rows),
            several_judges=Counter(row.report.model for row in rows)
            - Counter({row.report.model for row in rows}),
            limit=self._core.live.rule.objective,
            categories=_categories(shown),
            heat=_heat,
            top=scale_top([one for row in shown for one in (row.rate, row.corrected)]),
            trend_top=scale_top([point.rate for row in shown for point in row.points]),
            faults=await self._with_notes(every_fault[:ALARM_LINES]),
            total_faults=len(every_fault),
            any_corrected=any(row.corrected is not None for row in shown),
            problem=self._problem,
            steps=steps,
            archived=archived,
            few=sum(row.report.responses for row in every) <= FEW_ANSWERS,
            since=max(0, since),
        )

    async def model(self, request: Request) -> Response:
        """One model under one protocol and set of judges, the one with the most answers unless told."""
        query, name, live = request.query_params, request.path_params["name"], self._core.live
        within = query.get("range", "") if query.get("range", "") in RANGES else ""
        report, now = await live.report(), time.time()
        state = self._state(report, now // 60)
        if query.get("seen") == state:
            return Response(status_code=204)
        rows = await self._rows([one for one in report["models"] if one["model"] == name], within)
        if not rows and not report["complete"]:
            raise Refused("unavailable", "The history is being read, and no answer of this model came yet")
        if not rows:
            raise Refused(
                "not_found", "No answer of a model of this name was judged, or it is told as “other”."
            )
        asked = (query.get("protocol", ""), query.get("judges", ""))
        row = max(
            rows,
            key=lambda one: (
                one.report.protocol == asked[0],
                one.report.fingerprint == asked[1],
                one.report.responses,
            ),
        )
        key = (name, row.report.protocol, row.report.fingerprint)
        corrected = RateTable(await live.corrected())
        return self._pages.render(
            request,
            "model.html",
            here="/",
            state=state,
            row=row,
            rows=rows,
            faults=await self._with_notes(row.faults),
            within=within,
            link=lambda other, range=within: model_address(other.report, range),
            range_start=int(row.first) or "",
            now=now,
            limit=live.rule.objective,
            alarms=[
                one
                for one in live.raised
                if (one.alarm.model, one.alarm.protocol, one.alarm.fingerprint) == key
            ],
            corrected={one.version: corrected.rate(*key, version=one.version) for one in row.versions},
            top=scale_top([row.rate, row.corrected, *(one.hallucination_rate for one in row.versions)]),
            trend_top=scale_top([point.rate for point in row.points]),
            categories_top=scale_top(list(row.categories.values())),
            heat=_heat,
        )

    async def wall(self, request: Request) -> Response:
        """What a screen on a wall shows of the last 24 hours; nothing while it is as `seen`."""
        live, now, within = self._core.live, time.time(), "24h"
        report, every = await live.report(), faults(self._raised)
        pages, turn = max(1, -(-len(every) // WALL_ALARMS)), int(now // WALL_SECONDS)
        state, at = self._state(report, turn), turn % pages
        if request.query_params.get("seen") == state:
            return Response(status_code=204)
        newest = None
        with contextlib.suppress(*FAULTS, GroundwatchError):
            found = await self._core.answers.search(AnswerQuery(verdict="refuted", run=LIVE), most=1)
            newest = next(iter(found.hits), None)
        judged = [row for row in await self._rows(report["models"], within) if row.answers]
        tabs, protocol = _by_protocol(judged, request.query_params.get("protocol", ""))
        rows = _sorted(tabs.get(protocol, []), "")
        shown = rows[:WALL_ROWS]
        return self._pages.render(
            request,
            "wall.html",
            state=state,
            complete=report["complete"],
            problem=self._problem,
            total_faults=len(every),
            faults=await self._with_notes(every[WALL_ALARMS * at :][:WALL_ALARMS]),
            at=at,
            pages=pages,
            protocol=protocol,
            rows=shown,
            total=len(rows),
            answers=sum(row.answers for row in rows),
            latest=max((one.last for row in rows for one in row.versions), default=0.0),
            page_of=lambda row: model_address(row.report, within),
            newest=newest,
            now=now,
            limit=live.rule.objective,
            trend_top=scale_top([point.rate for row in shown for point in row.points]),
        )

    async def _archived(self) -> dict[str, int]:
        """Answers that the archive has by model: all there is where the streams hold none any more."""
        with contextlib.suppress(GroundwatchError):
            if (found := await self._core.answers.count(AnswerQuery(run=LIVE))) is not None:
                return found.names["model"]
        return {}

    async def _with_notes(
        self, shown: list[list[Raised]]
    ) -> list[tuple[list[Raised], list[Acknowledgement]]]:
        """Each fault with who has seen it; nobody, where that cannot be read now."""
        notes: list[list[Acknowledgement]] = [[] for _ in shown]
        if shown and not self._problem:
            with contextlib.suppress(*FAULTS, GroundwatchError):
                notes = await asyncio.gather(*map(Acknowledgements(self._core.bus).of_fault, shown))
        return list(zip(shown, notes, strict=True))

    @property
    def _raised(self) -> list[Raised]:
        return [one for one in self._core.live.raised if one.recovered_at is None]

    @property
    def _problem(self) -> str:
        """Why nothing new can be read now."""
        return self._core.bus.away or self._core.live.problem

    def _state(self, report: dict[str, Any], *more: object) -> str:
        """Another one when a page shows something else."""
        alarms = len(self._core.live.raised), len(self._raised)
        parts = (report["sequence"], report["complete"], self._problem, *alarms, *more)
        return digest(*map(str, parts))[:16]

    async def _rows(self, reports: list[dict[str, object]], within: str) -> list[ModelRow]:
        corrected, raised = RateTable(() if within else await self._core.live.corrected()), self._raised
        versions: dict[tuple[str, str, str], list[VersionReport]] = {}
        for version in await self._core.live.versions(within):
            versions.setdefault((version.model, version.protocol, version.fingerprint), []).append(version)
        rows = []
        for report in msgspec.convert(reports, list[ModelReport]):
            key = (report.model, report.protocol, report.fingerprint)
            of_model = versions.get(key, [])
            trend = merged_trend([one.trend for one in of_model])
            # A range in which nothing was recorded has no numbers, and not those of all time.
            sums = trend.since(0.0)[1] if isinstance(trend, Window) else Sums() if within else None
            rows.append(
                ModelRow(
                    report=report,
                    first=began(within, time.time()) if within else 0.0,
                    judges=_judges(report.judges),
                    corrected=corrected.rate(*key)
                    or (corrected.rate(*key, version=of_model[0].version) if len(of_model) == 1 else None),
                    rate=weighted_rate(sums.facts) if sums else report.hallucination_rate,
                    coverage=sums.coverage if sums else report.coverage,
                    answers=sums.scored if sums else report.responses,
                    cost=sums.cost if sums else report.cost,
                    trend=trend,
                    alarms=[
                        one
                        for one in raised
                        if (one.alarm.model, one.alarm.protocol, one.alarm.fingerprint) == key
                    ],
                    versions=of_model,
                    beside=". ".join(beside_rate(report)),
                )
            )
        return rows


def _by_protocol(rows: list[ModelRow], asked: str) -> tuple[dict[str, list[ModelRow]], str]:
    """The rows by protocol, and which one is shown: the one asked for, or the one with the most answers."""
    tabs: dict[str, list[ModelRow]] = {}
    for row in rows:
        tabs.setdefault(row.report.protocol, []).append(row)
    busiest = max(tabs, key=lambda name: sum(row.report.responses for row in tabs[name]), default="")
    return tabs, asked if asked in tabs else busiest


def model_address(report: ModelReport, within: str = "") -> str:
    """Of the page of a model."""
    path = f"/models/{quote(report.model, safe='')}"
    return address(path, protocol=report.protocol, judges=report.fingerprint, range=within)


def _sorted(rows: list[ModelRow], sort: str) -> list[ModelRow]:
    """By a column of `SORTS`; without a value last, and behind them what is not told apart."""
    value, sign = SORTS.get(sort.lstrip("-"), SORTS["low"]), 1 if sort.startswith("-") else -1
    rows = sorted(rows, key=lambda row: row.report.model, reverse=sort == "-name")
    return sorted(
        rows,
        key=lambda row: (row.report.model == OTHER, (found := value(row)) is None, sign * (found or 0.0)),
    )


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
