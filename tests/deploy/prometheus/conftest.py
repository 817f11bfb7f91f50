"""Cases for `promtool test rules`: recorded series in, the alerts that fire out."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

RULES = Path(__file__).parents[3] / "deploy" / "prometheus" / "groundwatch.rules.yaml"

Series = dict[str, str]
"""Values in promtool's notation by the name of the series."""

Alert = dict[str, str]
"""Labels, `alertname` among them."""


def need(program: str) -> str:
    """Where a program of Debian's packages prometheus and prometheus-alertmanager is."""
    found = shutil.which(program)
    if found is None:
        if os.environ.get("CI"):
            pytest.fail(f"{program} must be installed where CI is set")
        pytest.skip(f"needs {program}: apt-get install prometheus prometheus-alertmanager")
    return found


CLUSTERS: list[Alert] = [
    {},
    {"cluster": "east", "namespace": "watch"},
    {"cluster": "east", "namespace": "trial"},
    {"cluster": "west", "namespace": "watch"},
]


def alert(name: str, severity: str, **labels: str) -> Alert:
    """An alert about the system, as it fires."""
    return {"alertname": f"Groundwatch{name}", "severity": severity} | labels


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """Series from time 0 on, a value each minute, and every alert that fires at minute `at`."""

    series: Series
    at: int
    fires: list[Alert] = []

    def document(self, rules: Path, *, expected: bool = True) -> dict[str, Any]:
        """As promtool reads it. Without `expected` it expects that nothing fires, and prints what does."""
        watched = {
            'groundwatch_consumer_up{consumer="scoring"}': f"1x{self.at + 5}",
            'groundwatch_audit_seconds{run="live"}': f"60x{self.at + 5}",
        }
        series = watched | self.series
        fires = self.fires
        if expected:
            # Several installations under one Prometheus: each has its own alerts.
            series = {_within(one, name): values for one in CLUSTERS for name, values in series.items()}
            fires = [alert | one for one in CLUSTERS for alert in fires]
        # Seldom over long times: what is looked at is minutes long at least, and promtool takes its time.
        every = 1 if self.at <= 120 else 5 if self.at <= 720 else 10
        return {
            "rule_files": [str(rules)],
            "evaluation_interval": f"{every}m",
            "group_eval_order": re.findall(r"^  - name: (\S+)$", rules.read_text(), re.MULTILINE),
            "tests": [self._test(series, fires, expected=expected)],
        }

    def _test(self, series: Series, fires: Sequence[Alert], *, expected: bool) -> dict[str, Any]:
        test: dict[str, Any] = {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
        }
        if expected:
            test["promql_expr_test"] = [
                {
                    "expr": 'ALERTS{alertstate="firing"}',
                    "eval_time": f"{self.at}m",
                    "exp_samples": [
                        {"labels": _selector({"alertstate": "firing"} | alert), "value": 1} for alert in fires
                    ],
                }
            ]
        else:
            names = {alert["alertname"] for alert in self.fires}
            test["alert_rule_test"] = [
                {"eval_time": f"{self.at}m", "alertname": name, "exp_alerts": []} for name in sorted(names)
            ]
        return test


def _within(labels: Alert, name: str) -> str:
    """A series of one of the clusters; what users record themselves is for all of them."""
    if ":" in name.partition("{")[0]:
        return name
    metric, _, others = name.partition("{")
    told = ", ".join(f"{label}={json.dumps(value)}" for label, value in labels.items())
    if not (told or others):
        return name
    return f"{metric}{{{', '.join(filter(None, (told, others.removesuffix('}'))))}}}"


def _selector(labels: Alert) -> str:
    told = ", ".join(f"{name}={json.dumps(value)}" for name, value in labels.items())
    return f"ALERTS{{{told}}}"


Check = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def promtool(tmp_path: Path) -> Check:
    """Runs a case: `promtool(case)`; its result has what was said."""
    program = need("promtool")

    def check(case: Case, *, expected: bool = True, rules: Path = RULES) -> subprocess.CompletedProcess[str]:
        file = tmp_path / "case.yaml"
        # JSON is YAML.
        file.write_text(json.dumps(case.document(rules, expected=expected)))
        return subprocess.run(
            [program, "test", "rules", str(file)],
            capture_output=True,
            text=True,
            # It lives for a second: looking for garbage less often takes a fifth of its time away.
            env=os.environ | {"GOGC": "400"},
        )

    return check


def steady(per_minute: float, minutes: int, *, start: float = 0) -> str:
    """A counter that rises evenly."""
    return f"{start:g}+{per_minute:g}x{minutes}"


def phases(*parts: tuple[float, int]) -> str:
    """A counter that rises by so much in each minute, for so many minutes, part after part."""
    values, value = ["0"], 0.0
    for per_minute, minutes in parts:
        if minutes:
            value += per_minute
            values.append(f"{value:g}+{per_minute:g}x{minutes - 1}")
            value += per_minute * (minutes - 1)
    return " ".join(values)


def answers(
    *parts: tuple[float, float, int],
    model: str = "heron",
    version: str = "",
    protocol: str = "faithscore",
    facts: int = 5,
) -> Series:
    """The moments of answers with so many `facts` each, at most one of them refuted.

    Each part is (answers a minute, share of facts refuted, minutes).
    """
    labels = f'model="{model}", version="{version}", protocol="{protocol}"'
    found: dict[str, list[tuple[float, int]]] = {}
    for rate, share, minutes in parts:
        wrong = rate * share * facts
        for moment, value in (
            ("responses", rate),
            ("facts", rate * facts),
            ("refuted", wrong),
            ("facts_squared", rate * facts**2),
            ("refuted_squared", wrong),
            ("product", wrong * facts),
        ):
            found.setdefault(moment, []).append((value, minutes))
    return {
        f'groundwatch_fact_moments_total{{{labels}, moment="{moment}"}}': phases(*values)
        for moment, values in found.items()
    }


def names_of(said: str) -> set[str]:
    """The alerts that promtool printed."""
    return set(re.findall(r'alertname="(\w+)"', said))
