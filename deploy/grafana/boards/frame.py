"""What every dashboard has around its panels: variables, links to the others, alarms as annotations."""

from __future__ import annotations

from typing import Final

from deploy.grafana.boards.panels import SOURCE, TAG, link
from deploy.grafana.boards.promql import placed
from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as model

GATEWAY: Final = "http://localhost:8787"
"""Where people's browsers reach the gateway, until somebody types another address into the variable."""

WINDOWS: Final = "5m,15m,1h,6h,1d,7d"
WINDOW: Final = "1h"
ALL: Final = ".*"
PLACES: Final = ("cluster", "namespace")
"""Which installation, where targets have such labels; without them the variables stay empty."""


class Alarms(model.AnnotationQuery):
    """An annotation from Prometheus with a title and tags, which the SDK's own type leaves out."""

    def to_json(self) -> dict[str, object]:
        """As Grafana's Prometheus source reads it; `step` is how fine it looks."""
        return super().to_json() | {
            "titleFormat": "{{model}}: more that is not in the image",
            "textFormat": "{{protocol}}, {{category}}",
            "tagKeys": "model,category",
            "step": "15s",
        }


class AlarmsBuilder(dashboard.AnnotationQuery):
    """Builds `Alarms`."""

    def __init__(self) -> None:
        self._internal = Alarms()


def frame(
    title: str, uid: str, about: str, *, refresh: str = "30s", since: str = "now-6h"
) -> dashboard.Dashboard:
    """An empty dashboard with the choice of the data source and links to the others and to the gateway."""
    others = (
        dashboard.DashboardLink("groundwatch")
        .type(model.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .as_dropdown(True)
        .keep_time(True)
        .include_vars(True)
    )
    return (
        dashboard.Dashboard(title)
        .uid(uid)
        .description(about)
        .tags([TAG])
        .timezone("browser")
        .refresh(refresh)
        .time(since, "now")
        .readonly()
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .link(others)
        .link(link("Live answers", "${gateway}/"))
        .link(link("Alarms", "${gateway}/v1/alarms"))
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .with_variable(choice("cluster", "cluster", "label_values(groundwatch_consumer_up, cluster)"))
        .with_variable(
            choice(
                "namespace",
                "namespace",
                'label_values(groundwatch_consumer_up{cluster=~"$cluster"}, namespace)',
            )
        )
    )


def gateway() -> dashboard.TextBoxVariable:
    """Where links to answers lead."""
    return (
        dashboard.TextBoxVariable("gateway")
        .label("gateway")
        .default_value(GATEWAY)
        .current(model.VariableOption(text=GATEWAY, value=GATEWAY))
    )


def choice(name: str, label: str, values_of: str) -> dashboard.QueryVariable:
    """Any number of a label's values, all at first."""
    return (
        one(name, label, values_of)
        .multi(True)
        .include_all(True)
        .all_value(ALL)
        .current(model.VariableOption(selected=True, text="All", value="$__all"))
    )


def one(name: str, label: str, values_of: str) -> dashboard.QueryVariable:
    """One of a label's values."""
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query(values_of if name in PLACES else placed(values_of))
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_ASC)
    )


def window() -> dashboard.IntervalVariable:
    """Over how much traffic shares are computed."""
    return (
        dashboard.IntervalVariable("window")
        .label("over")
        .values(WINDOWS)
        .current(model.VariableOption(selected=True, text=WINDOW, value=WINDOW))
    )


def alarms() -> AlarmsBuilder:
    """Marks the time while an alarm is raised."""
    raised = 'groundwatch_alarm_raised{model=~"$model",protocol="$protocol"}'
    expr = f"max by (model, protocol, category) ({raised}) > 0"
    return AlarmsBuilder().name("alarms").datasource(SOURCE).enable(True).icon_color("red").expr(placed(expr))
