"""The dashboard Runs: what is asked of models beside live traffic."""

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
    """Rounds of canaries: scores, questions and what was not answered."""
    made = (
        frame(
            "groundwatch / Runs",
            "groundwatch-runs",
            "What is asked of models beside live traffic: rounds of canaries and their progress.",
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
    _canaries(made)
    return made


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
            "Of all chosen models. More than twice `groundwatch canary --every`: it has stopped.",
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
