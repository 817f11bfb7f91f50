"""The dashboard Runs: what is judged and asked beside live traffic."""

from __future__ import annotations

from deploy.grafana.boards.frame import choice, frame, gateway
from deploy.grafana.boards.panels import Column, Query, figure, lines, rows
from deploy.grafana.boards.promql import increase, rate, share
from grafana_foundation_sdk.builders import dashboard

CANARY = 'suite=~"$suite",model=~"$model"'
BY = "suite, model"
NAME = "{{model}} {{suite}}"
ALL = "$__range"


def runs() -> dashboard.Dashboard:
    """Replays; rounds of canaries: scores, questions and what was not answered."""
    made = (
        frame(
            "groundwatch / Runs",
            "groundwatch-runs",
            "What is judged and asked beside live traffic: replays and rounds of canaries.",
            since="now-24h",
        )
        .with_variable(choice("suite", "suite", "label_values(groundwatch_canary_questions_total, suite)"))
        .with_variable(
            choice(
                "model", "model", 'label_values(groundwatch_canary_questions_total{suite=~"$suite"}, model)'
            )
        )
        .with_variable(gateway())
    )
    _replays(made)
    _canaries(made)
    return made


def _replays(made: dashboard.Dashboard) -> None:
    def number(state: str) -> str:
        return f'sum(max by (state) (groundwatch_replay_runs{{state=~"{state}"}})) or vector(0)'

    def of_run(name: str, selector: str = "") -> str:
        return f"max by (run) (groundwatch_replay_{name}{{{selector}}})"

    made.with_row(dashboard.Row("Replays"))
    made.with_panel(
        figure("Working", "Replays that somebody works at.", number("working"), decimals=0, width=6)
    )
    made.with_panel(
        figure(
            "Nobody works at",
            "Replays that no process works at: groundwatch serve replay, or groundwatch replay resume.",
            number("unattended"),
            decimals=0,
            red_from=0.5,
            width=6,
        )
    )
    made.with_panel(
        figure(
            "Stand still",
            "Paused by hand, or since their own budget is used up: groundwatch replay resume.",
            number("paused|over_budget"),
            decimals=0,
            width=6,
        )
    )
    made.with_panel(
        figure(
            "Spent",
            "By the replays that are not over, or have just ended, US dollars.",
            f"sum({of_run('cost_dollars')}) or vector(0)",
            unit="currencyUSD",
            decimals=2,
            width=6,
        )
    )
    made.with_panel(
        lines(
            "Progress",
            "How much of its source each replay has done. A flat line waits: for live traffic, its pace, or "
            "somebody who works at it.",
            [Query(of_run("progress_ratio"), "{{run}}")],
            unit="percentunit",
            top=1,
        )
    )
    made.with_panel(
        lines(
            "Gave way to live traffic",
            "Share of their time that replays waited since live traffic goes first.",
            [Query("sum by (run) (deriv(groundwatch_replay_waited_seconds[1m])) >= 0", "{{run}}")],
            unit="percentunit",
            top=1,
        )
    )
    made.with_panel(
        rows(
            "Replays",
            "Those that are not over, or have ended within two minutes. Faults: see replay retry.",
            {"run": "Replay"},
            [
                Column("Done", of_run("progress_ratio"), "percentunit", 1),
                Column("Events", of_run("events")),
                Column("Of about", of_run("events_expected")),
                Column("Left", of_run("seconds_left"), "s"),
                Column("Scored", of_run("outcomes", 'outcome="scored"')),
                Column("Unscored", of_run("outcomes", 'outcome="unscored"')),
                Column("Faults", of_run("faults")),
                Column("Calls", of_run("calls", 'by="judge"')),
                Column("From the cache", of_run("calls", 'by="cache"')),
                Column("Cost", of_run("cost_dollars"), "currencyUSD", 2),
            ],
            height=6,
        )
    )


def _canaries(made: dashboard.Dashboard) -> None:
    scored = f'{CANARY},outcome="scored"'
    made.with_row(dashboard.Row("Canaries"))
    made.with_panel(
        figure(
            "Questions",
            "Asked of models in the range.",
            f"sum(increase(groundwatch_canary_questions_total{{{CANARY}}}[{ALL}]))",
            decimals=0,
            width=6,
        )
    )
    made.with_panel(
        figure(
            "Answered",
            "Share of the questions whose answers could be scored.",
            f"sum(increase(groundwatch_canary_questions_total{{{scored}}}[{ALL}])) "
            f"/ (sum(increase(groundwatch_canary_questions_total{{{CANARY}}}[{ALL}])) > 0)",
            unit="percentunit",
            decimals=1,
            width=6,
        )
    )
    made.with_panel(
        figure(
            "Longest since a round",
            "Of all chosen models. More than twice the canary's `--every`: it has stopped.",
            f"max(time() - groundwatch_canary_last_round_seconds{{{CANARY}}})",
            unit="s",
            decimals=0,
            width=6,
        )
    )
    made.with_panel(
        figure(
            "Rounds that failed",
            "In the range; the canary's log says why.",
            f"sum(increase(groundwatch_canary_failed_rounds_total{{{CANARY}}}[{ALL}])) or vector(0)",
            decimals=0,
            red_from=0.5,
            width=6,
        )
    )
    made.with_panel(
        lines(
            "Score of each round",
            "Mean score of the last round; a small sample, so look at several in a row.",
            [Query(f"groundwatch_canary_score{{{CANARY}}}", NAME)],
            unit="percentunit",
            top=1,
        )
    )
    made.with_panel(
        lines(
            "Questions",
            "Per minute, by what became of them.",
            [
                Query(
                    f"60 * {rate('groundwatch_canary_questions_total', CANARY, 'suite, model, outcome')}",
                    f"{NAME} {{{{outcome}}}}",
                )
            ],
            stacked=True,
        )
    )
    questions = increase("groundwatch_canary_questions_total", CANARY, BY, ALL)
    made.with_panel(
        rows(
            "Models",
            "Over the range of the dashboard; the score is that of the last round.",
            {"suite": "Suite", "model": "Model"},
            [
                Column("Score", f"max by ({BY}) (groundwatch_canary_score{{{CANARY}}})", "percentunit", 1),
                Column("Questions", questions),
                Column(
                    "Answered",
                    share(increase("groundwatch_canary_questions_total", scored, BY, ALL), questions),
                    "percentunit",
                    1,
                ),
                Column(
                    "Since the last round",
                    f"time() - max by ({BY}) (groundwatch_canary_last_round_seconds{{{CANARY}}})",
                    "s",
                ),
            ],
            height=5,
        )
    )
