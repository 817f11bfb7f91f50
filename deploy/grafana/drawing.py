"""A dashboard as a picture: every panel where Grafana puts it, drawn with matplotlib."""

from __future__ import annotations

import io
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import matplotlib

matplotlib.use("agg")

from deploy.grafana.asking import Board, Clock, Prometheus, Question, Series, escaped, told
from deploy.grafana.units import written
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator
from PIL import Image

WIDTH: Final = 1280
UNIT: Final = 34
"""Pixels of one unit of Grafana's grid, downwards."""
HEAD: Final = 54
DPI: Final = 100
STEPS: Final = (60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400)
INK, SOFT, LINE, GROUND = "#1f2430", "#697182", "#dfe3e9", "#f3f4f7"
COLOURS: Final = (
    "#3274d9",
    "#e0752d",
    "#299c46",
    "#a352cc",
    "#d44a3a",
    "#c4a000",
    "#0a8f8f",
    "#b0437c",
    "#6b7a99",
    "#7a5c3e",
)


class Drawing:
    """One dashboard as a figure."""

    def __init__(self, board: Board, prometheus: Prometheus, clock: Clock) -> None:
        self._board, self._prometheus, self._clock = board, prometheus, clock
        self._panels = [placed for panel in board.panels() for placed in self._repeated(panel)]
        rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel, _ in self._panels)
        self._height = HEAD + rows * UNIT + 8
        self._figure = Figure(figsize=(WIDTH / DPI, self._height / DPI), dpi=DPI, facecolor=GROUND)
        self._alarms = self._raised()
        self._colours: dict[str, str] = {}

    def draw(self) -> bytes:
        """The picture as a PNG with few colours, which is small."""
        self._text(12, 20, self._board.json["title"].replace("/", "›"), 13, weight="bold")
        chosen = [one for one in self._board.json["templating"]["list"] if one["type"] != "datasource"]
        shown = {one.get("label") or one["name"]: self._board.values[one["name"]] for one in chosen}
        line = "   ".join(f"{name}: {'All' if value == '.*' else value}" for name, value in shown.items())
        self._text(12, 42, line, 8, color=SOFT)
        for panel, more in self._panels:
            self._panel(panel, more)
        raw = io.BytesIO()
        self._figure.savefig(raw, format="png", dpi=DPI, facecolor=GROUND)
        small = io.BytesIO()
        Image.open(raw).convert("RGB").quantize(
            96, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE
        ).save(small, "PNG", optimize=True)
        return small.getvalue()

    def _repeated(self, panel: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, str]]]:
        """The panel once for each value of the variable that it repeats by, side by side."""
        name = panel.get("repeat")
        if not name:
            return [(panel, {})]
        values = self._board.choices[name][: int(panel.get("maxPerRow", 3))]
        place, width = panel["gridPos"], 24 // len(values)
        return [
            ({**panel, "gridPos": {**place, "x": at * width, "w": width}}, {name: escaped(value)})
            for at, value in enumerate(values)
        ]

    def _raised(self) -> list[tuple[float, float]]:
        """When an annotation of the dashboard holds."""
        questions = [one for one in self._board.questions() if ": annotation " in one.where]
        times = sorted(
            {
                at
                for one in questions
                for series in self._board.answers(one, self._prometheus, self._clock)
                for at, _ in series.points
            }
        )
        spans: list[tuple[float, float]] = []
        for at in times:
            if spans and at - spans[-1][1] <= 1.5 * self._clock.step:
                spans[-1] = (spans[-1][0], at)
            else:
                spans.append((at, at))
        return spans

    def _text(self, x: float, y: float, text: str, size: float, **more: Any) -> None:
        more = {"color": INK, "va": "center"} | more
        self._figure.text(x / WIDTH, 1 - y / self._height, text, fontsize=size, **more)

    def _axes(self, x: float, y: float, width: float, height: float) -> Axes:
        place = (x / WIDTH, 1 - (y + height) / self._height, width / WIDTH, height / self._height)
        return self._figure.add_axes(place)

    def _panel(self, panel: Mapping[str, Any], more: Mapping[str, str]) -> None:
        place, cell = panel["gridPos"], (WIDTH - 8) / 24
        x, y = 4 + place["x"] * cell + 3, HEAD + place["y"] * UNIT + 3
        width, height = place["w"] * cell - 6, place["h"] * UNIT - 6
        if panel["type"] == "row":
            self._text(x + 4, y + height / 2, f"▾ {panel['title']}", 9, weight="bold")
            return
        box = (x / WIDTH, 1 - (y + height) / self._height)
        self._figure.patches.append(
            Rectangle(
                box,
                width / WIDTH,
                height / self._height,
                transform=self._figure.transFigure,
                facecolor="white",
                edgecolor=LINE,
                linewidth=0.8,
                zorder=-1,
            )
        )
        title = self._board.filled(panel["title"], **more).replace("\\", "")
        self._text(x + 8, y + 13, title, 8.5, weight="bold")
        answers = [
            (one, self._board.answers(one, self._prometheus, self._clock, **more))
            for one in self._board.of(panel)
        ]
        inside = (x, y + 24, width, height - 26)
        match panel["type"]:
            case "timeseries":
                self._lines(panel, answers, *inside)
            case "stat":
                self._stat(panel, answers, *inside)
            case "table":
                self._table(panel, answers, *inside)
            case "bargauge":
                self._bars(panel, answers, *inside)

    def _lines(
        self,
        panel: Mapping[str, Any],
        answers: Sequence[tuple[Question, list[Series]]],
        x: float,
        y: float,
        width: float,
        height: float,
    ) -> None:
        defaults = panel["fieldConfig"]["defaults"]
        custom, unit = defaults.get("custom", {}), defaults.get("unit", "short")
        hidden = _unlegended(panel)
        named = [(one, told(one.legend, series.labels), series) for one, found in answers for series in found]
        shown = [name for one, name, _ in named if not hidden & {one.ref, name}]
        legend = (
            16 * min(3, 1 + sum(len(name) * 6 + 24 for name in shown) // int(width)) if len(shown) > 0 else 0
        )
        axes = self._axes(x + 46, y + 4, width - 58, height - legend - 28)
        stacked = custom.get("stacking", {}).get("mode") == "normal"
        band = {name: series for _, name, series in named if name in ("low", "high")}
        if len(band) == 2:
            _between(axes, band["low"], band["high"])
            named = [one for one in named if one[1] not in band]
        if stacked:
            self._stack(axes, named)
        else:
            for one, name, series in named:
                thin = bool(hidden & {one.ref, name})
                base = name.removesuffix(" low").removesuffix(" high") if thin else name
                axes.plot(
                    [_date(at) for at, _ in series.points],
                    [value for _, value in series.points],
                    color="#d44a3a" if band else self._colour(base),
                    linewidth=0.7 if thin else 1.4,
                    linestyle=(0, (3, 3)) if thin else "-",
                )
        top = custom.get("axisSoftMax")
        if custom.get("scaleDistribution", {}).get("type") == "log":
            axes.set_yscale("log")
            axes.minorticks_off()
        else:
            everything = [*(series for _, _, series in named), *band.values()]
            high = max((value for series in everything for _, value in series.points), default=0.0)
            if stacked:
                high = axes.get_ylim()[1] / 1.05
            axes.set_ylim(0, max(high * 1.08, top or 0.0) or 1.0)
            axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: written(value, unit)))
        axes.set_xlim(_date(self._clock.start), _date(self._clock.end))
        axes.set_xticks(*self._times(width))
        axes.tick_params(labelsize=7, colors=SOFT, length=0)
        axes.grid(color=LINE, linewidth=0.6)
        axes.set_axisbelow(True)
        for side in axes.spines.values():
            side.set_visible(False)
        for start, end in self._alarms:
            axes.axvspan(_date(start), _date(end), color="#d44a3a", alpha=0.06, linewidth=0)
            axes.axvline(_date(start), color="#d44a3a", linewidth=0.8, linestyle=(0, (4, 2)))
        self._legend(sorted(set(shown)), x + 12, y + height - legend + 2, width - 20, red=bool(band))

    def _colour(self, name: str) -> str:
        """The same for a name on every panel; ten in turn."""
        return self._colours.setdefault(name, COLOURS[len(self._colours) % len(COLOURS)])

    def _times(self, width: float) -> tuple[list[float], list[str]]:
        """Round times, UTC, as many as there is room for."""
        span, most = self._clock.end - self._clock.start, width / 70
        step = next((one for one in STEPS if span / one < most), STEPS[-1])
        ticks = range(int(self._clock.start // step + 1) * step, int(self._clock.end) + 1, step)
        form = "%H:%M" if step < 43_200 else "%m-%d"
        return [_date(at) for at in ticks], [time.strftime(form, time.gmtime(at)) for at in ticks]

    def _stack(self, axes: Axes, named: Sequence[tuple[Question, str, Series]]) -> None:
        times = sorted({at for _, _, series in named for at, _ in series.points})
        if not times:
            return
        values = [[dict(series.points).get(at, 0.0) for at in times] for _, _, series in named]
        colours = [self._colour(name) for _, name, _ in named]
        axes.stackplot([_date(at) for at in times], values, colors=colours, alpha=0.65, linewidth=0)

    def _legend(self, names: Sequence[str], x: float, y: float, width: float, *, red: bool) -> None:
        left, down = x, y + 6
        for name in names:
            need = len(name) * 5.4 + 24
            if left + need > x + width and left > x:
                left, down = x, down + 15
                if down > y + 40:
                    self._text(left, down - 3, "…", 7, color=SOFT)
                    return
            self._text(left, down, "━", 8, color="#d44a3a" if red else self._colour(name))
            self._text(left + 13, down, name, 7, color=SOFT)
            left += need

    def _stat(
        self,
        panel: Mapping[str, Any],
        answers: Sequence[tuple[Question, list[Series]]],
        x: float,
        y: float,
        width: float,
        height: float,
    ) -> None:
        defaults = panel["fieldConfig"]["defaults"]
        steps = defaults["thresholds"]["steps"]
        found = [
            (told(one.legend, series.labels), series.points[-1][1])
            for one, rows in answers
            for series in rows
        ]
        each = width / max(1, len(found))
        for at, (name, value) in enumerate(found):
            colour = INK
            for step in steps:
                if step["value"] is None or value >= step["value"]:
                    colour = {"green": "#299c46", "red": "#d44a3a"}.get(step["color"], INK)
            several = len(found) > 1
            middle = x + each * (at + 0.5)
            text = written(value, defaults.get("unit", "short"), defaults.get("decimals"))
            self._text(middle, y + height * (0.4 if several else 0.46), text, 17, color=colour, ha="center")
            if several:
                self._text(middle, y + height * 0.78, name, 8, color=SOFT, ha="center")

    def _table(
        self,
        panel: Mapping[str, Any],
        answers: Sequence[tuple[Question, list[Series]]],
        x: float,
        y: float,
        width: float,
        height: float,
    ) -> None:
        options = panel["transformations"][1]["options"]
        renamed: dict[str, str] = options["renameByName"]
        labels = sorted((one for one in renamed if "#" not in one), key=options["indexByName"].__getitem__)
        units = _units(panel)
        rows: dict[tuple[str, ...], dict[str, float]] = {}
        for one, found in answers:
            for series in found:
                who = tuple(series.labels.get(label, "") for label in labels)
                rows.setdefault(who, {})[renamed[f"Value #{one.ref}"]] = series.points[-1][1]
        titles = [renamed[f"Value #{one.ref}"] for one, _ in answers]
        order = next((one["displayName"] for one in panel.get("options", {}).get("sortBy") or ()), "")
        ranked = sorted(rows.items(), key=lambda row: (-row[1].get(order, -1.0) if order else 0.0, row[0]))
        heads = [renamed[label] for label in labels] + titles
        widths = [max(1.0, len(head) / 9) for head in heads]
        scale = (width - 24) / sum(widths)
        lefts = [x + 12 + scale * sum(widths[:at]) for at in range(len(heads))]
        for left, head in zip(lefts, heads, strict=True):
            self._text(left, y + 8, head, 7.5, color=SOFT, weight="bold")
        fitting = int((height - 22) / 21)
        for at, (who, values) in enumerate(ranked[:fitting]):
            down = y + 29 + 21 * at
            cells = [*who, *(_cell(values.get(title), *units[title]) for title in titles)]
            for left, cell in zip(lefts, cells, strict=True):
                self._text(left, down, cell, 8)
        if len(ranked) > fitting:
            self._text(
                x + width - 12,
                y + height - 6,
                f"{len(ranked) - fitting} more rows",
                7,
                color=SOFT,
                ha="right",
            )

    def _bars(
        self,
        panel: Mapping[str, Any],
        answers: Sequence[tuple[Question, list[Series]]],
        x: float,
        y: float,
        width: float,
        height: float,
    ) -> None:
        unit = panel["fieldConfig"]["defaults"].get("unit", "short")
        found = [
            (told(one.legend, series.labels), series.points[-1][1])
            for one, rows in answers
            for series in rows
        ]
        top = max((value for _, value in found), default=0.0) or 1.0
        for at, (name, value) in enumerate(sorted(found, key=lambda pair: -pair[1])[: int(height / 40)]):
            down = y + 14 + 40 * at
            self._text(x + 12, down, name, 8, color=SOFT)
            self._text(x + width - 12, down, written(value, unit), 8, ha="right")
            axes = self._axes(x + 12, down + 9, width - 24, 9)
            axes.barh([0], [value / top], color=self._colour(name))
            axes.set_xlim(0, 1)
            axes.set_axis_off()


def _unlegended(panel: Mapping[str, Any]) -> set[str]:
    """Names and references of the series that the legend leaves out."""
    return {
        one["matcher"]["options"]
        for one in panel["fieldConfig"].get("overrides", ())
        if any(prop["id"] == "custom.hideFrom" for prop in one["properties"])
    }


def _units(panel: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
    found = {}
    for one in panel["fieldConfig"]["overrides"]:
        values = {prop["id"]: prop["value"] for prop in one["properties"]}
        if "unit" in values:
            found[one["matcher"]["options"]] = (values["unit"], values["decimals"])
    return found


def _cell(value: float | None, unit: str, decimals: int) -> str:
    return "" if value is None else written(value, unit, decimals)


def _between(axes: Axes, low: Series, high: Series) -> None:
    ends = dict(high.points)
    both = [(_date(at), value, ends[at]) for at, value in low.points if at in ends]
    axes.fill_between(
        [at for at, _, _ in both],
        [one for _, one, _ in both],
        [one for _, _, one in both],
        color="#d44a3a",
        alpha=0.18,
        linewidth=0,
    )


def _date(at: float) -> float:
    """Days since the epoch, as matplotlib counts."""
    return at / 86_400
