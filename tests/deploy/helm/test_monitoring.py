"""What the chart makes of the alerting rules: those about what is enabled, with the values' numbers."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.deploy.helm.charts import LLM, ROOT, STORED, Object, template
from tests.deploy.prometheus.conftest import RULES, need

pytestmark = pytest.mark.slow

AUDITED = {"GroundwatchAuditOutOfBalance", "GroundwatchAuditOverdue"}
ARCHIVED = {f"GroundwatchArchive{name}" for name in ("Behind", "CannotWrite")} | {
    "GroundwatchHotWindowNotCooled"
}
OF_SERVERS = {
    f"GroundwatchNats{name}"
    for name in (
        *("ServerAway", "StorageFull", "MemoryHigh", "JetStreamOff", "NoLeader", "ReplicasBehind"),
        "SlowConsumers",
    )
}


def spec(values: Object, *profiles: str) -> Object:
    """The PrometheusRule's, as it is rendered."""
    done = template(profiles, values)
    assert done.returncode == 0, done.stderr
    (found,) = (one for one in yaml.safe_load_all(done.stdout) if one and one["kind"] == "PrometheusRule")
    rules: Object = found["spec"]
    return rules


def watched(**prometheus_rule: Any) -> Object:
    return {**LLM, "monitoring": {"prometheusRule": {"enabled": True, **prometheus_rule}}}


def alerts(rules: Object) -> list[Object]:
    return [rule for group in rules["groups"] for rule in group["rules"] if "alert" in rule]


def names(rules: Object) -> set[str]:
    return {rule["alert"] for rule in alerts(rules)}


EVERY = set(re.findall(r"- alert: (\w+)", RULES.read_text()))


def test_no_alert_is_about_what_is_not_enabled() -> None:
    few = names(spec(watched()))
    assert EVERY - few == AUDITED | ARCHIVED | {"GroundwatchReceiverAway", "GroundwatchModelsNotReady"}
    stored = names(spec(STORED, "production"))
    assert EVERY - stored == {"GroundwatchReceiverAway", "GroundwatchModelsNotReady"}
    external = {
        "nats": {"enabled": False, "url": "nats://nats.example:4222"},
        "annotation": {"enabled": False},
    }
    assert few - names(spec(watched() | external)) == OF_SERVERS | {"GroundwatchJudgeDrifts"}
    asked = {"settings": {"nats": {"monitor_url": "http://nats.example:8222"}}}
    assert names(spec(watched() | external | asked)) >= OF_SERVERS


def test_what_is_left_are_the_rules_as_they_stand() -> None:
    whole = yaml.safe_load(RULES.read_text())
    rendered = spec(watched())
    left = names(rendered)
    for group in whole["groups"]:
        group["rules"] = [rule for rule in group["rules"] if rule.get("alert") in {None, *left}]
    assert rendered == whole


def test_thresholds_alerts_and_the_pages_address_are_the_values(tmp_path: Path) -> None:
    thresholds = {"NatsStorageFull.warning": 0.7, "BacklogGrowing.messages": 2_000_000}
    rules = spec(
        watched(runbookUrl="https://wiki.example/r/", without=["CostOverBudget"], thresholds=thresholds)
    )
    full = [rule["expr"] for rule in alerts(rules) if rule["alert"] == "GroundwatchNatsStorageFull"]
    assert ["> 0.7 " in expr for expr in full] == [True, False]
    (growing,) = (rule["expr"] for rule in alerts(rules) if rule["alert"] == "GroundwatchBacklogGrowing")
    assert ">= 2000000 #" in growing
    assert "GroundwatchCostOverBudget" not in names(rules)
    assert {rule["annotations"]["runbook_url"] for rule in alerts(rules)} == {
        f"https://wiki.example/r/{name}.md" for name in names(rules)
    }
    file = tmp_path / "rules.yaml"
    file.write_text(json.dumps(rules))
    done = subprocess.run([need("promtool"), "check", "rules", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        ({"thresholds": {"NatsStorageFul.warning": 1}}, "'NatsStorageFul.warning' not allowed"),
        ({"without": ["AuditOverdu"]}, "/monitoring/prometheusRule/without/0"),
        ({"runbookUrl": "docs/runbooks"}, "/monitoring/prometheusRule/runbookUrl"),
    ],
)
def test_a_misspelled_threshold_or_alert_is_refused(rule: Object, named: str) -> None:
    done = template((), watched(**rule))
    assert done.returncode != 0 and named in done.stderr


def changed(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = ROOT / "deploy" / "prometheus" / "rules.py"
    return subprocess.run(["python3", str(program), *arguments], capture_output=True, text=True)


def test_the_file_for_prometheus_itself_is_changed_the_same_way() -> None:
    done = changed("--set", "NatsStorageFull.warning=0.7", "--without", "JudgeDrifts")
    assert done.returncode == 0, done.stderr
    rules = yaml.safe_load(done.stdout)
    assert names(rules) == EVERY - {"GroundwatchJudgeDrifts"}
    assert sum("> 0.7 " in rule["expr"] for rule in alerts(rules)) == 1
    for wrong in (
        ("--set", "NatsStorageFul=1"),
        ("--without", "JudgeDrift"),
        ("--set", "NatsMemoryHigh.limit=a"),
    ):
        refused = changed(*wrong)
        assert refused.returncode == 2 and wrong[1].partition("=")[0] in refused.stderr


def test_a_stage_that_nobody_serves_pages_within_three_minutes() -> None:
    (rule,) = (
        rule
        for rule in alerts(yaml.safe_load(RULES.read_text()))
        if rule["alert"] == "GroundwatchStageWithoutConsumers"
    )
    shortest = min(map(int, re.findall(r"\[(\d+)m\]", rule["expr"])))
    assert shortest + int(rule["for"].removesuffix("m")) <= 3


def test_gateways_reach_the_monitoring_port_of_an_existing_nats() -> None:
    values = {
        **LLM,
        "nats": {"enabled": False, "url": "nats://nats.example:4222"},
        "settings": {"nats": {"monitor_url": "http://a.example:8222,http://b.example:8223"}},
    }
    done = template((), values)
    assert done.returncode == 0, done.stderr
    rule = {"ports": [{"port": port, "protocol": "TCP"} for port in (8222, 8223)]}
    reaching = [
        one["metadata"]["name"]
        for one in yaml.safe_load_all(done.stdout)
        if one and one["kind"] == "NetworkPolicy" and rule in one["spec"]["egress"]
    ]
    assert reaching == ["gw-groundwatch-gateway"]
