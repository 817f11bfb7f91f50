"""What the panels have in common, so that a dashboard reads as a list of titles and queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from deploy.grafana.boards.promql import placed
from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.models import common as kinds
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE: Final = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
TAG: Final = "groundwatch"
PALETTE: Final = "palette-classic-by-name"
"""A series keeps its colour on every panel, whatever stands beside it."""


def _property(name: str, value: object) -> model.DynamicConfigValue:
    return model.DynamicConfigValue(id_val=name, value=value)


THIN: Final = [
    _property("custom.lineWidth", 1),
    _property("custom.lineStyle", {"fill": "dash", "dash": [3, 4]}),
    _property("custom.hideFrom", {"legend": True, "tooltip": False, "viz": False}),
]
"""The ends of an interval, which stand in no legend."""


class Query(NamedTuple):
    """An expression and how its series are called."""

    expr: str
    legend: str = ""


class Column(NamedTuple):
    """A table's column: its heading, the query that fills it, its unit and decimals."""

    title: str
    expr: str
    unit: str = "short"
    decimals: int = 0
    gauge: bool = False


def _target(query: Query, ref: str, *, instant: bool = False, as_table: bool = False) -> prometheus.Dataquery:
    made = prometheus.Dataquery().expr(placed(query.expr)).ref_id(ref).datasource(SOURCE)
    made = made.instant() if instant else made.range()
    if query.legend:
        made.legend_format(query.legend)
    return made.format(PromQueryFormat.TABLE if as_table else PromQueryFormat.TIME_SERIES)


def _refs() -> Sequence[str]:
    return "ABCDEFGHIJKLMN"


def link(title: str, url: str) -> dashboard.DashboardLink:
    """A link from a value or a panel, opened beside the dashboard."""
    return dashboard.DashboardLink(title).type(model.DashboardLinkType.LINK).url(url).target_blank(True)


def lines(
    title: str,
    about: str,
    queries: Sequence[Query],
    *,
    unit: str = "short",
    width: int = 12,
    height: int = 8,
    stacked: bool = False,
    top: float | None = None,
    decimals: int | None = None,
    log: bool = False,
) -> timeseries.Panel:
    """Series over time. `about` is the panel's description: what it shows and when to worry."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(about)
        .datasource(SOURCE)
        .unit(unit)
        .min(0)
        .span(width)
        .height(height)
        .line_width(1.5)
        .fill_opacity(25 if stacked else 0)
        .show_points(kinds.VisibilityMode.NEVER)
        .color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId(PALETTE)))
        .legend(
            common.VizLegendOptions()
            .display_mode(kinds.LegendDisplayMode.LIST)
            .placement(kinds.LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .tooltip(
            common.VizTooltipOptions().mode(kinds.TooltipDisplayMode.MULTI).sort(kinds.SortOrder.DESCENDING)
        )
    )
    if stacked:
        panel.stacking(common.StackingConfig().mode(kinds.StackingMode.NORMAL))
    if top is not None:
        panel.axis_soft_max(top)
    if decimals is not None:
        panel.decimals(decimals)
    if log:
        panel.scale_distribution(common.ScaleDistributionConfig().type(kinds.ScaleDistribution.LOG).log(10))
    for ref, query in zip(_refs(), queries, strict=False):
        panel.with_target(_target(query, ref))
    return panel


def band(
    title: str, about: str, value: str, low: str, high: str, *, width: int, top: float
) -> timeseries.Panel:
    """One share over time within its interval, on an axis that reaches `top` at least."""
    panel = lines(
        title,
        about,
        [Query(low, "low"), Query(high, "high"), Query(value, "rate")],
        unit="percentunit",
        width=width,
        height=7,
        top=top,
    )
    edge = [
        _property("custom.lineWidth", 0),
        _property("custom.hideFrom", {"legend": True, "tooltip": False, "viz": False}),
    ]
    colour = _property("color", {"mode": "fixed", "fixedColor": "red"})
    panel.override_by_name("low", [*edge, colour])
    panel.override_by_name(
        "high",
        [*edge, colour, _property("custom.fillBelowTo", "low"), _property("custom.fillOpacity", 18)],
    )
    return panel.override_by_name("rate", [colour, _property("custom.lineWidth", 2)])


def figure(
    title: str,
    about: str,
    expr: str,
    *,
    unit: str = "short",
    legend: str = "",
    decimals: int | None = None,
    red_from: float | None = None,
    width: int = 4,
    height: int = 4,
) -> stat.Panel:
    """One number now, or one for each series; red from `red_from` on."""
    steps = [model.Threshold(value=None, color="text")]
    if red_from is not None:
        steps = [model.Threshold(value=None, color="green"), model.Threshold(value=red_from, color="red")]
    panel = (
        stat.Panel()
        .title(title)
        .description(about)
        .datasource(SOURCE)
        .unit(unit)
        .span(width)
        .height(height)
        .color_mode(kinds.BigValueColorMode.VALUE)
        .graph_mode(kinds.BigValueGraphMode.NONE)
        .color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.THRESHOLDS))
        .thresholds(dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps))
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .with_target(_target(Query(expr, legend), "A", instant=True))
    )
    if decimals is not None:
        panel.decimals(decimals)
    return panel


def bars(
    title: str, about: str, query: Query, *, unit: str, width: int = 12, height: int = 8
) -> bargauge.Panel:
    """The latest value of each series as a bar."""
    return (
        bargauge.Panel()
        .title(title)
        .description(about)
        .datasource(SOURCE)
        .unit(unit)
        .min(0)
        .span(width)
        .height(height)
        .orientation(kinds.VizOrientation.HORIZONTAL)
        .display_mode(kinds.BarGaugeDisplayMode.BASIC)
        .color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId(PALETTE)))
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .with_target(_target(query, "A", instant=True))
    )


def rows(
    title: str,
    about: str,
    labels: Mapping[str, str],
    columns: Sequence[Column],
    *,
    width: int = 24,
    height: int = 8,
    links: Sequence[dashboard.DashboardLink] = (),
    sort: str = "",
) -> table.Panel:
    """A table with a row for each set of `labels` (label: heading) and the queries' latest values beside it.

    `links` hang on the first label's cells; `sort` is the heading by which rows are sorted, highest first.
    """
    panel = (
        table.Panel()
        .title(title)
        .description(about)
        .datasource(SOURCE)
        .span(width)
        .height(height)
        .filterable(True)
    )
    renamed = dict(labels)
    for ref, column in zip(_refs(), columns, strict=False):
        panel.with_target(_target(Query(column.expr), ref, instant=True, as_table=True))
        renamed[f"Value #{ref}"] = column.title
        properties = [_property("unit", column.unit), _property("decimals", column.decimals)]
        if column.gauge:
            properties += [
                _property("custom.cellOptions", {"type": "gauge", "mode": "basic"}),
                _property("min", 0),
                _property("max", 1),
                _property("color", {"mode": "continuous-GrYlRd"}),
            ]
        panel.override_by_name(column.title, properties)
    first = next(iter(labels.values()))
    if links:
        panel.override_by_name(first, [_property("links", [one.build().to_json() for one in links])])
    order = {name: at for at, name in enumerate(renamed)}
    panel.with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
    panel.with_transformation(
        model.DataTransformerConfig(
            id_val="organize",
            options={"excludeByName": {"Time": True}, "indexByName": order, "renameByName": renamed},
        )
    )
    if sort:
        panel.sort_by([common.TableSortByFieldState().display_name(sort).desc(True)])
    return panel
