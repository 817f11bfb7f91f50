"""Alerts about the system itself: they fire when they must, and keep silent when they must."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from tests.deploy.prometheus import test_rules_models as models
from tests.deploy.prometheus.conftest import RULES, Case, Check, Series, names_of, need, phases, steady

from groundwatch.protocols import registry
from groundwatch.runtime.telemetry.metrics import Metrics

pytestmark = pytest.mark.slow

SCORING = {"stage": "scoring", "consumer": "scoring"}


def alert(name: str, severity: str, **labels: str) -> dict[str, str]:
    return {"alertname": f"Groundwatch{name}", "severity": severity} | labels


def consumer(lag: str, pulls: str, delivered: str) -> Series:
    labels = 'stage="scoring", consumer="scoring", pod="gateway-0"'
    return {
        f"groundwatch_consumer_lag{{{labels}}}": lag,
        f"groundwatch_consumer_pulls{{{labels}}}": pulls,
        f"groundwatch_consumer_delivered{{{labels}}}": delivered,
    }


def delays(late: float, quick: float, minutes: int) -> Series:
    found = {}
    for limit, share in (("60", 0.0), ("600", 0.0), ("1800", 1.0), ("+Inf", 1.0)):
        found[f'groundwatch_outcome_delay_seconds_bucket{{protocol="faithscore", le="{limit}"}}'] = steady(
            quick + late * share, minutes
        )
    found['groundwatch_outcome_delay_seconds_count{protocol="faithscore"}'] = steady(quick + late, minutes)
    return found


FIRES = {
    "a backlog that grows": Case(
        series=consumer(steady(100, 60, start=900), "0x60", steady(50, 60)),
        at=40,
        fires=[alert("BacklogGrowing", "warning", **SCORING)],
    ),
    "nobody works at a stage": Case(
        series=consumer("25x30", "0x30", "700x30"),
        at=20,
        fires=[alert("StageWithoutConsumers", "critical", **SCORING)],
    ),
    "a consumer is gone": Case(
        series={
            'groundwatch_consumer_up{consumer="extraction", pod="a"}': "1x4 0x16",
            'groundwatch_consumer_up{consumer="extraction", pod="b"}': "1x4 0x16",
        },
        at=10,
        fires=[alert("ConsumerMissing", "critical", consumer="extraction")],
    ),
    "a server's disk is full": Case(
        series={
            'groundwatch_events_not_stored{pod="a"}': "0x4 1x10",
            'groundwatch_events_not_stored{pod="b"}': "0x15",
        },
        at=10,
        fires=[alert("EventsNotStored", "critical")],
    ),
    "one event late is no full disk": Case(
        series={"groundwatch_events_not_stored": "0x4 1 0x10"},
        at=10,
        fires=[],
    ),
    "the first dead letter of a stage": Case(
        series={
            'groundwatch_dead_letters_total{stage="scoring", reason="bug"}': "0x9 1x10",
            'groundwatch_dead_letters_total{stage="scoring", reason="gave_up"}': "0x20",
            "groundwatch_dead_letters_waiting": "0x9 1x10",
        },
        at=15,
        fires=[alert("DeadLetters", "warning", stage="scoring", reason="bug")],
    ),
    "dead letters of a process that was never scraped": Case(
        series={"groundwatch_dead_letters_waiting": "3x9 7x10"},
        at=15,
        fires=[alert("DeadLetters", "warning", stage="unknown", reason="unknown")],
    ),
    "the ledger does not balance": Case(
        series={'groundwatch_audit_unaccounted{run="live"}': "0x4 2x10"},
        at=6,
        fires=[alert("AuditOutOfBalance", "critical", run="live")],
    ),
    "no audit for three periods": Case(
        series={
            'groundwatch_audit_end_time_seconds{run="live"}': "60x120",
            'groundwatch_audit_period_seconds{run="live"}': "1200x120",
        },
        at=80,
        fires=[alert("AuditOverdue", "warning", run="live")],
    ),
    "more than 100 dollars a day": Case(
        series={'groundwatch_engine_cost_dollars_total{stage="verification"}': steady(2, 90)},
        at=90,
        fires=[alert("CostOverBudget", "warning", of="all")],
    ),
    "a tenant's budget is used up": Case(
        series={
            'groundwatch_budget_used{budget="acme", resource="cost_per_day", pod="a"}': "4+0.1x30",
            'groundwatch_budget_limit{budget="acme", resource="cost_per_day", pod="a"}': "5x30",
            'groundwatch_budget_used{budget="acme", resource="responses_per_minute", pod="a"}': "60x30",
            'groundwatch_budget_limit{budget="acme", resource="responses_per_minute", pod="a"}': "60x30",
        },
        at=20,
        fires=[alert("CostOverBudget", "warning", of="tenants", budget="acme", resource="cost_per_day")],
    ),
    "more than what was allowed": Case(
        series={
            'groundwatch_engine_cost_dollars_total{stage="verification"}': steady(0.2, 90),
            "groundwatch:cost_budget:dollars1d": "10x90",
        },
        at=90,
        fires=[alert("CostOverBudget", "warning", of="all")],
    ),
    "one outcome in ten is late": Case(
        series=delays(1, 9, 60),
        at=30,
        fires=[alert("OutcomesLate", "warning", protocol="faithscore")],
    ),
    "a collector is away": Case(
        series={'groundwatch_receiver_away_seconds{receiver="collector"}': "0x5 60+60x40"},
        at=30,
        fires=[alert("ReceiverAway", "warning", receiver="collector")],
    ),
    "one of two processes reaches the collector": Case(
        series={
            'groundwatch_receiver_away_seconds{receiver="collector", instance="a"}': "60+60x40",
            'groundwatch_receiver_away_seconds{receiver="collector", instance="b"}': "0x40",
        },
        at=30,
        fires=[],
    ),
    "the archive's disk is full": Case(
        series={
            'groundwatch_archive_failures_total{reason="disk_full"}': steady(2, 40),
            'groundwatch_archive_rows_total{table="outcomes"}': phases((50, 10), (0, 30)),
        },
        at=35,
        fires=[alert("ArchiveCannotWrite", "warning", reason="disk_full")],
    ),
    "the archive falls behind": Case(
        series={'groundwatch_archive_lag{stream="GW_OUTCOMES"}': "120000+500x70"},
        at=60,
        fires=[alert("ArchiveBehind", "warning")],
    ),
    "nobody works at a replay": Case(
        series={'groundwatch_replay_state{run="judge-2", state="unattended"}': "0x5 1x30"},
        at=30,
        fires=[alert("ReplayUnattended", "warning", run="judge-2")],
    ),
    "the gateway is full": Case(
        series={'groundwatch_refused_responses_total{reason="backlog"}': phases((0, 10), (5, 20))},
        at=25,
        fires=[alert("GatewayRefuses", "critical", reason="backlog")],
    ),
    "the judge's key is wrong": Case(
        series={
            'groundwatch_model_requests_total{stage="verification", result="misconfigured"}': steady(1, 30)
        },
        at=20,
        fires=[alert("JudgeMisconfigured", "critical", stage="verification")],
    ),
    "a judge is away for every process of its stage": Case(
        series={
            f'groundwatch_judge_away_seconds{{stage="verification", judge="j", pod="{pod}"}}': "0x4 60+60x20"
            for pod in "ab"
        },
        at=15,
        fires=[alert("JudgeAway", "critical", stage="verification", judge="j")],
    ),
    "a handler hangs": Case(
        series={'groundwatch_stage_timeouts_total{stage="matching"}': "0x9 1x20"},
        at=15,
        fires=[alert("WorkTimedOut", "warning", stage="matching")],
    ),
    "nothing is scraped": Case(
        series={'groundwatch_consumer_up{consumer="scoring"}': "1x2"},
        at=30,
        fires=[alert("NotScraped", "critical")],
    ),
}

SILENT = {
    "a replay between two who work at it": Case(
        series={'groundwatch_replay_state{run="judge-2", state="unattended"}': "0x5 1x10 0x20"}, at=30
    ),
    "a backlog that is worked off": Case(series=consumer("5000-100x45", "0x45", steady(200, 45)), at=40),
    "a small backlog that grows": Case(series=consumer(steady(10, 60), "0x60", steady(50, 60)), at=60),
    "a short burst": Case(
        series=consumer("0x10 500+2000x5 10500-2000x5 0x30", "1x60", steady(500, 60)), at=22
    ),
    "a stage at rest, scaled to zero": Case(series=consumer("0x30", "0x30", "700x30"), at=25),
    "a stage that starts from zero": Case(
        series=consumer("0x10 25x3 0x20", "0x12 1x20", "700x12 725x20"), at=16
    ),
    "all are busy with long judgements": Case(series=consumer("25x40", "0x40", steady(0.5, 40)), at=30),
    "a consumer that one process has not seen yet": Case(
        series={
            'groundwatch_consumer_up{consumer="extraction", pod="a"}': "1x20",
            'groundwatch_consumer_up{consumer="extraction", pod="b"}': "0x20",
        },
        at=10,
    ),
    "no dead letters": Case(
        series={
            'groundwatch_dead_letters_total{stage="scoring", reason="bug"}': "0x20",
            "groundwatch_dead_letters_waiting": "0x20",
        },
        at=15,
    ),
    "dead letters of old, and a restart": Case(
        series={
            'groundwatch_dead_letters_total{stage="scoring", reason="bug"}': "4x9 0x40",
            "groundwatch_dead_letters_waiting": "4x60",
        },
        at=45,
    ),
    "dead letters that were sent again": Case(series={"groundwatch_dead_letters_waiting": "9x9 0x30"}, at=15),
    "the ledger balances, lately": Case(
        series={
            'groundwatch_audit_unaccounted{run="live"}': "0x120",
            'groundwatch_audit_end_time_seconds{run="live"}': "3600x120",
            'groundwatch_audit_period_seconds{run="live"}': "1200x120",
        },
        at=90,
    ),
    "less than 100 dollars a day": Case(
        series={'groundwatch_engine_cost_dollars_total{stage="verification"}': steady(1, 90)}, at=90
    ),
    # A process that restarts has used nothing again.
    "cost that begins anew": Case(
        series={'groundwatch_engine_cost_dollars_total{stage="verification"}': "0+1x30 0+1x30 0+1x30"}, at=90
    ),
    "budgets with room, and one without a limit": Case(
        series={
            'groundwatch_budget_used{budget="acme", resource="cost_per_day"}': "4.9x30",
            'groundwatch_budget_limit{budget="acme", resource="cost_per_day"}': "5x30",
            'groundwatch_budget_used{budget="other", resource="tokens_per_day"}': "10x30",
            'groundwatch_budget_limit{budget="other", resource="tokens_per_day"}': "0x30",
        },
        at=20,
    ),
    "one outcome in two hundred is late": Case(series=delays(1, 199, 60), at=30),
    "late, but hardly any": Case(series=delays(1, 1, 60), at=30),
    "refusals that are the sender's fault": Case(
        series={'groundwatch_refused_responses_total{reason="invalid"}': steady(50, 40)}, at=30
    ),
    "a refusal that is over": Case(
        series={'groundwatch_refused_responses_total{reason="backlog"}': phases((0, 10), (5, 2), (0, 20))},
        at=25,
    ),
    "requests that time out": Case(
        series={'groundwatch_model_requests_total{stage="verification", result="timeout"}': steady(1, 30)},
        at=20,
    ),
    "a judge that comes back within minutes": Case(
        series={'groundwatch_judge_away_seconds{stage="verification", judge="j"}': "0x4 60+60x4 0x20"}, at=12
    ),
    "a judge that only one process cannot reach": Case(
        series={
            'groundwatch_judge_away_seconds{stage="verification", judge="j", pod="a"}': "60+60x30",
            'groundwatch_judge_away_seconds{stage="verification", judge="j", pod="b"}': "0x30",
        },
        at=25,
    ),
    "no work that hangs": Case(series={'groundwatch_stage_timeouts_total{stage="matching"}': "3x40"}, at=35),
    "a scrape that was missed": Case(
        series={'groundwatch_consumer_up{consumer="scoring"}': "1x10 _x7 1x20"}, at=18
    ),
}


@pytest.mark.parametrize("name", FIRES)
def test_fires(promtool: Check, name: str) -> None:
    found = promtool(FIRES[name])
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("name", SILENT)
def test_keeps_silent(promtool: Check, name: str) -> None:
    assert not SILENT[name].fires
    found = promtool(SILENT[name])
    assert found.returncode == 0, found.stdout + found.stderr


def alerts() -> list[str]:
    """Every alert's name, once."""
    return sorted(set(re.findall(r"- alert: (\w+)", RULES.read_text())))


def test_every_alert_has_cases_in_which_it_fires() -> None:
    shown = {one["alertname"] for case in (FIRES | models.FIRES).values() for one in case.fires}
    assert shown == set(alerts())


CASES = FIRES | models.FIRES


@pytest.mark.parametrize("name", alerts())
def test_an_alert_tells_numbers_and_where_to_read_on(promtool: Check, name: str) -> None:
    case = next(case for case in CASES.values() if any(one["alertname"] == name for one in case.fires))
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
    pages = Path(__file__).parents[3] / "docs" / "runbooks"
    for name in alerts():
        text = (pages / f"{name}.md").read_text()
        for heading in (
            f"# {name}",
            "## What it means",
            "## Look at this first",
            "## What to do",
            "## Silence",
        ):
            assert re.search(rf"^{heading}", text, re.MULTILINE), (name, heading)
    assert {page.stem for page in pages.glob("Groundwatch*.md")} == set(alerts())
    urls = set(re.findall(r"runbook_url: (\S+)", RULES.read_text()))
    assert urls == {f"docs/runbooks/{name}.md" for name in alerts()}


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
    known |= {f"groundwatch_audit_{name}" for name in ("unaccounted", "end_time_seconds", "period_seconds")}
    text = "\n".join(line for line in RULES.read_text().splitlines() if not line.strip().startswith("#"))
    used = set(re.findall(r"(?<![:\w-])groundwatch_\w+(?!\w*:)", text))
    assert used
    assert used <= known


def test_protocols_need_no_rule_of_their_own() -> None:
    assert not any(json.dumps(name) in RULES.read_text() for name in registry.names())
