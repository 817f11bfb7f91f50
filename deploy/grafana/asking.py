"""Reads committed dashboards and asks Prometheus what they ask, variables filled in as by Grafana.

For the test that runs every query.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx

POINTS: Final = 240
"""Points of a series on a panel, at most."""

_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::\w+)?\}|(\w+))")
_LABEL_VALUES = re.compile(r"label_values\((?:(.+),\s*)?(\w+)\)$")


class Series(NamedTuple):
    """One series: its labels and its points (time, value), without those that are no number."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]


class Question(NamedTuple):
    """A query of a panel, an annotation or a variable. `repeat` is the variable that the panel repeats by."""

    where: str
    expr: str
    instant: bool = False
    legend: str = ""
    ref: str = ""
    repeat: str = ""


class Clock(NamedTuple):
    """The range of the dashboard, in seconds since the epoch, and how often Prometheus scrapes."""

    start: float
    end: float
    scrape: float

    @property
    def step(self) -> float:
        """Grafana's `$__interval`: the range over the points, and no finer than the scrapes."""
        return max(self.scrape, math.ceil((self.end - self.start) / POINTS))

    def builtins(self) -> dict[str, str]:
        """The variables that Grafana itself fills in."""
        return {
            "__interval": f"{self.step:g}s",
            "__rate_interval": f"{max(self.step + self.scrape, 4 * self.scrape):g}s",
            "__range": f"{math.ceil(self.end - self.start)}s",
            "__range_s": f"{math.ceil(self.end - self.start)}",
        }


class Prometheus:
    """A Prometheus server's HTTP API. Raises `ValueError` with its message when it refuses a query."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=30)

    def instant(self, expr: str, at: float) -> list[Series]:
        """The values at one time."""
        found = self._ask("/api/v1/query", {"query": expr, "time": f"{at:.3f}"})
        rows = (
            found["result"] if found["resultType"] == "vector" else [{"metric": {}, "value": found["result"]}]
        )
        return [_series(row["metric"], [row["value"]]) for row in rows]

    def range(self, expr: str, clock: Clock) -> list[Series]:
        """The values over the range of the dashboard."""
        asked = {
            "query": expr,
            "start": f"{clock.start:.3f}",
            "end": f"{clock.end:.3f}",
            "step": f"{clock.step:g}",
        }
        found = self._ask("/api/v1/query_range", asked)
        return [_series(row["metric"], row["values"]) for row in found["result"]]

    def label_values(self, query: str, clock: Clock) -> list[str]:
        """What Grafana's `label_values(selector, label)` gives."""
        found = _LABEL_VALUES.match(query)
        if found is None:
            raise ValueError(f"not a query of a variable: {query}")
        asked = {"match[]": found[1] or "up", "start": f"{clock.start:.3f}", "end": f"{clock.end:.3f}"}
        values: list[str] = self._ask(f"/api/v1/label/{found[2]}/values", asked, get=True)
        return values

    def _ask(self, path: str, asked: Mapping[str, str], *, get: bool = False) -> Any:
        reply = self._http.get(path, params=asked) if get else self._http.post(path, data=asked)
        told = reply.json()
        if told["status"] != "success":
            raise ValueError(f"{told['errorType']}: {told['error']}")
        return told["data"]


class Board:
    """A dashboard, with its variables' values as they are when somebody opens it."""

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        self.json: dict[str, Any] = json.loads(path.read_bytes())
        self.values: dict[str, str] = {}
        self.choices: dict[str, list[str]] = {}

    def variables(self) -> list[Question]:
        """The queries that fill the variables, in the order in which one needs the other."""
        return [
            Question(f"{self.name}: variable {one['name']}", one["query"])
            for one in self.json["templating"]["list"]
            if one["type"] == "query"
        ]

    def open(self, prometheus: Prometheus, clock: Clock) -> None:
        """Give every variable the value that Grafana gives it first. Raises `ValueError` when it has none."""
        self.values = clock.builtins() | {"datasource": "prometheus"}
        for one in self.json["templating"]["list"]:
            name, current = one["name"], one.get("current", {}).get("value")
            if one["type"] == "query":
                found = prometheus.label_values(self.filled(one["query"]), clock)
                if not found:
                    raise ValueError(f"{self.name}: variable {name} has no values")
                self.choices[name] = found
                self.values[name] = one["allValue"] if current == "$__all" else found[0]
            elif one["type"] != "datasource":
                self.values[name] = str(current)

    def filled(self, text: str, **more: str) -> str:
        """The text with its variables' values. Raises `KeyError` for a variable that there is not."""
        values = self.values | more
        return _VARIABLE.sub(lambda found: values[found[1] or found[2]], text)

    def panels(self) -> Iterator[dict[str, Any]]:
        """Every panel and row, from top to bottom."""
        for panel in self.json["panels"]:
            yield panel
            yield from panel.get("panels", ())

    def questions(self) -> Iterator[Question]:
        """Every query of every panel and annotation, with variables in it."""
        for panel in self.panels():
            yield from self.of(panel)
        for one in self.json.get("annotations", {}).get("list", ()):
            if "expr" in one:
                yield Question(f"{self.name}: annotation {one['name']}", one["expr"])

    def of(self, panel: Mapping[str, Any]) -> Iterator[Question]:
        """The queries of one panel."""
        for target in panel.get("targets", ()):
            yield Question(
                f"{self.name}: {panel['title']} ({target['refId']})",
                target["expr"],
                bool(target.get("instant")),
                target.get("legendFormat", ""),
                target["refId"],
                panel.get("repeat") or "",
            )

    def answers(self, question: Question, prometheus: Prometheus, clock: Clock, **more: str) -> list[Series]:
        """What Prometheus says; series without any number are left out."""
        expr = self.filled(question.expr, **more)
        found = prometheus.instant(expr, clock.end) if question.instant else prometheus.range(expr, clock)
        return [series for series in found if series.points]


def told(legend: str, labels: Mapping[str, str]) -> str:
    """A series' name: the legend with the labels filled in."""
    if not legend:
        return ", ".join(f"{name}={value}" for name, value in labels.items())
    return " ".join(re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda found: labels.get(found[1], ""), legend).split())


def escaped(value: str) -> str:
    """A chosen value inside a regular expression, as Grafana's Prometheus source writes it."""
    return re.sub(r"[$^*{}\[\]'+?.()|]", lambda found: "\\\\" + found[0], value.replace("\\", "\\" * 4))


def _series(labels: Mapping[str, str], points: list[list[Any]]) -> Series:
    pairs = ((float(at), float(value)) for at, value in points)
    return Series(labels, tuple((at, value) for at, value in pairs if math.isfinite(value)))
