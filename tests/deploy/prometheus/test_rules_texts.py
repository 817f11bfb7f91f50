"""What all rules and alerts have in common: their texts, their pages, their labels, that each is tested."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from tests.deploy.prometheus.conftest import RULES, Check, names_of, need
from tests.deploy.prometheus.test_alerts_e2e import RIGHT
from tests.deploy.prometheus.test_faults_e2e import FAULTS
from tests.deploy.prometheus.test_rules import FIRES

from groundwatch.ledger.ledger import AuditMetrics
from groundwatch.protocols import registry
from groundwatch.runtime.telemetry.metrics import Metrics

pytestmark = pytest.mark.slow

PAGES = Path(__file__).parents[3] / "docs" / "runbooks"
TOOLBOX = "exec deploy/RELEASE-toolbox -- groundwatch "

COUNTED = "it counts what takes more traffic or time than a test has; its case is of these numbers"
READ = "a test of the gateway or the stage breaks the real thing and reads the metric; its case is of it"

WITHOUT_FAULT = {
    "GroundwatchArchiveBehind": COUNTED,
    "GroundwatchAuditOutOfBalance": "nothing that a process does makes it: somebody deletes from a stream",
    "GroundwatchBacklogGrowing": COUNTED,
    "GroundwatchConsumerMissing": READ,
    "GroundwatchCostOverBudget": COUNTED,
    "GroundwatchCoverageFalling": COUNTED,
    "GroundwatchDeadLetters": READ,
    "GroundwatchEventsNotStored": READ,
    "GroundwatchGatewayNotReady": READ,
    "GroundwatchGatewayRefuses": READ,
    "GroundwatchHotWindowNotCooled": COUNTED,
    "GroundwatchJudgeDisagreesWithPeople": "people's verdicts are a file, and no fault of a process",
    "GroundwatchJudgeDrifts": "people's opinions are no fault of a process; a test reads the metric",
    "GroundwatchJudgeFails": COUNTED,
    "GroundwatchJudgeMisconfigured": READ,
    "GroundwatchModelAlarmRaised": COUNTED,
    "GroundwatchModelWorseThanLastWeek": COUNTED,
    "GroundwatchModelsNotReady": "Triton and its models take minutes to start; tests/faults kills them",
    "GroundwatchNatsJetStreamOff": "a disk of its own in a cluster; what the server tells is read by a test",
    "GroundwatchNatsNoLeader": "tests/gateway/live/test_nats_monitor.py kills two servers of three",
    "GroundwatchNatsReplicasBehind": "tests/gateway/live/test_nats_monitor.py kills one server of three",
    "GroundwatchOutcomesLate": COUNTED,
    "GroundwatchReplayUnattended": READ,
    "GroundwatchStageWithoutConsumers": READ,
    "GroundwatchVersionWorseThanSibling": COUNTED,
    "GroundwatchWorkTimedOut": READ,
}
"""Alerts for which no test breaks the real thing under a real Prometheus, and why."""


def alerts() -> list[str]:
    """Every alert's name, once."""
    return sorted(set(re.findall(r"- alert: (\w+)", RULES.read_text())))


def test_every_alert_has_cases_in_which_it_fires() -> None:
    shown = {one["alertname"] for case in FIRES.values() for one in case.fires}
    assert shown == set(alerts())


@pytest.mark.parametrize("name", alerts())
def test_an_alert_tells_numbers_and_where_to_read_on(promtool: Check, name: str) -> None:
    case = next(case for case in FIRES.values() if any(one["alertname"] == name for one in case.fires))
    said = promtool(case, expected=False)
    assert said.returncode == 1
    assert name in names_of(said.stdout + said.stderr)
    (told,) = re.findall(
        rf'alertname="{name}".*?Annotations:\{{(.*?)\}}\]?\s*$',
        said.stdout + said.stderr,
        re.DOTALL | re.MULTILINE,
    )[:1]
    annotations = dict(re.findall(r'(summary|description|runbook_url)="((?:[^"\\]|\\.)*)"', told))
    assert set(annotations) == {"summary", "description", "runbook_url"}
    both = annotations["summary"] + annotations["description"]
    assert "error" not in both.lower().replace("and its error", "")
    for sign in ("<no value>", "unknown of", "NaN", "{{", "%!"):
        assert sign not in both
    if name not in ("GroundwatchConsumerMissing",):
        assert re.search(r"\d", both), both


def test_every_alert_has_its_page() -> None:
    for name in alerts():
        text = (PAGES / f"{name}.md").read_text()
        for heading in (
            f"# {name}",
            "## What it means",
            "## Look at this first",
            "## What to do",
            "## Silence",
        ):
            assert re.search(rf"^{heading}", text, re.MULTILINE), (name, heading)
    assert {page.stem for page in PAGES.glob("Groundwatch*.md")} == set(alerts())
    urls = set(re.findall(r"runbook_url: (\S+)", RULES.read_text()))
    assert urls == {f"docs/runbooks/{name}.md" for name in alerts()}


def commands() -> list[tuple[str, str]]:
    """Each line of shell that a runbook tells to type, with its page."""
    return [
        (page.stem, line)
        for page in PAGES.glob("Groundwatch*.md")
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)
        for line in block.splitlines()
    ]


def test_commands_are_as_they_are_typed_in_a_cluster() -> None:
    typed = commands()
    assert len(typed) > 80
    # `validate` reads files of whoever types it, and needs no cluster.
    begin = ("kubectl -n NAMESPACE ", "curl -s ", "amtool silence add ", "groundwatch validate ")
    assert [one for one in typed if not one[1].startswith(begin)] == []
    assert sum(TOOLBOX in line for _, line in typed) > 15


def test_a_silence_names_its_alert_and_labels_that_it_has() -> None:
    for page, line in commands():
        if line.startswith("amtool"):
            labels = dict(re.findall(r"(\w+)=(\S+)", line.partition(" --")[0]))
            assert labels.pop("alertname") == page
            fires = [one for case in FIRES.values() for one in case.fires if one["alertname"] == page]
            assert any(labels.keys() <= one.keys() for one in fires), line


def test_the_rules_are_clean() -> None:
    found = subprocess.run(
        [need("promtool"), "check", "rules", "--lint=all", "--lint-fatal", str(RULES)],
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stdout + found.stderr


def test_the_rules_use_metrics_that_there_are() -> None:
    known = set()
    for family in Metrics().registry.collect():
        kinds = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}
        known |= {family.name + end for end in kinds.get(family.type, [""])}
    # From commands of their own: `groundwatch audit --every` and `groundwatch validate verdicts`.
    known |= {"groundwatch_people_verdicts"}
    known |= {family.name for family in AuditMetrics().registry.collect()}
    text = "\n".join(line for line in RULES.read_text().splitlines() if not line.strip().startswith("#"))
    used = set(re.findall(r"(?<![:\w-])groundwatch_\w+(?!\w*:)", text))
    assert used
    assert used <= known


def test_clusters_and_namespaces_are_told_apart() -> None:
    text = "\n".join(line for line in RULES.read_text().splitlines() if not line.strip().startswith("#"))
    # What users record for all clusters, and the one about which nothing is known any more.
    for allowed in (
        "* on (model) group_left ()",
        "max by (model) (groundwatch:model_objective:ratio)",
        "max(groundwatch:cost_budget:dollars1d)",
    ):
        assert allowed in text
        text = text.replace(allowed, "")
    found = re.findall(r"\b(?:by|on) \(([a-z_, ]*)\)", text)
    assert len(found) > 100
    assert [labels for labels in found if not labels.startswith("cluster, namespace")] == []
    assert re.findall(r"\b(?:sum|min|max|count|avg|group)\(", text) == []


def test_every_alert_has_a_real_fault_or_a_reason() -> None:
    tested = {RIGHT} | set(FAULTS)
    assert tested | set(WITHOUT_FAULT) == set(alerts())
    assert tested & set(WITHOUT_FAULT) == set()


def test_protocols_need_no_rule_of_their_own() -> None:
    assert not any(json.dumps(name) in RULES.read_text() for name in registry.names())
