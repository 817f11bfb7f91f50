"""Alerts about the system itself: they fire when they must, and keep silent when they must."""

from __future__ import annotations

from tests.deploy.prometheus.conftest import Case, Series, alert, phases, steady

SCORING = {"stage": "scoring", "consumer": "scoring"}


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


READY = {f'groundwatch_ready{{service="{name}"}}': "1x40" for name in ("gateway", "scoring")}

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
    "nobody works at a stage, three minutes on": Case(
        series=consumer("0x9 25x30", "8x9 0x30", "700x40"),
        at=13,
        fires=[alert("StageWithoutConsumers", "critical", **SCORING)],
    ),
    "processes of a stage that are ready and do nothing": Case(
        series=consumer("0x9 25x30", "8x9 0x30", "700x40") | READY,
        at=21,
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
        series={
            'groundwatch_archive_lag{stream="GW_OUTCOMES"}': "120000+500x70",
            'groundwatch_archive_rows_total{table="outcomes"}': steady(50, 70),
        },
        at=60,
        fires=[alert("ArchiveBehind", "warning", stream="GW_OUTCOMES")],
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
    "each of those who are ready works for eight minutes at what it has": Case(
        series=consumer("25x40", "8x9 0x8 8x20", "700x17 705x20") | READY,
        at=17,
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
