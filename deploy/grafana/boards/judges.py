"""The dashboard Judges: what the engines and models that judge take, cost and cannot do."""

from __future__ import annotations

from deploy.grafana.boards.frame import choice, frame, gateway
from deploy.grafana.boards.panels import THIN, Column, Query, bars, figure, lines, rows
from deploy.grafana.boards.promql import increase, mean, quantile, rate, share
from grafana_foundation_sdk.builders import dashboard

JUDGE = 'stage=~"$stage",engine=~"$engine"'
STAGE = 'stage=~"$stage"'
BY = "stage, engine, model"
NAME = "{{stage}}: {{engine}} {{model}}"
ALL = "$__range"


def judges() -> dashboard.Dashboard:
    """Latency, tokens, cost, failures and undecided facts of each judge."""
    made = (
        frame(
            "groundwatch / Judges",
            "groundwatch-judges",
            "What the engines and models that judge take, what they cost, and what they could not judge.",
        )
        .with_variable(choice("stage", "stage", "label_values(groundwatch_engine_calls_total, stage)"))
        .with_variable(
            choice(
                "engine", "engine", 'label_values(groundwatch_engine_calls_total{stage=~"$stage"}, engine)'
            )
        )
        .with_variable(gateway())
    )
    _figures(made)
    _each(made)
    _use(made)
    _cascades(made)
    _cache(made)
    _requests(made)
    _people(made)
    _trust(made)
    return made


def _figures(made: dashboard.Dashboard) -> None:
    calls = increase("groundwatch_engine_calls_total", JUDGE, "", ALL)
    good = increase("groundwatch_engine_calls_total", f'{JUDGE},result="ok"', "", ALL)
    cost = f"sum(increase(groundwatch_engine_cost_dollars_total{{{JUDGE}}}[{ALL}]))"
    scored = f'sum(increase(groundwatch_outcomes_total{{outcome="scored"}}[{ALL}]))'
    made.with_panel(
        figure(
            "Judgements", "By an engine, one for each response and stage, in the range.", calls, decimals=0
        )
    )
    made.with_panel(
        figure(
            "Without fault",
            "Share of the judgements that an engine gave; the others were unscorable, tried again or failed.",
            share(good, calls),
            unit="percentunit",
            decimals=1,
        )
    )
    made.with_panel(
        figure(
            "Time of a judgement, 99 %",
            "Of all chosen judges, in the range; of a batch, its share.",
            quantile(0.99, "groundwatch_engine_seconds", JUDGE, window=ALL),
            unit="s",
            decimals=2,
        )
    )
    made.with_panel(
        figure(
            "Tokens",
            "Read and written by the judges, in the range.",
            f"sum(increase(groundwatch_engine_tokens_total{{{JUDGE}}}[{ALL}]))",
            decimals=1,
        )
    )
    made.with_panel(
        figure("Cost", "By the prices in the settings, in the range.", cost, unit="currencyUSD", decimals=4)
    )
    made.with_panel(
        figure(
            "Cost of 1,000 scores",
            "Cost in the range over scored outcomes in the range, for all protocols together.",
            f"1000 * {share(cost, scored)}",
            unit="currencyUSD",
            decimals=3,
        )
    )


def _each(made: dashboard.Dashboard) -> None:
    def calls(result: str) -> str:
        return increase("groundwatch_engine_calls_total", f"{JUDGE}{result}", BY, ALL)

    good = calls(',result="ok"')
    made.with_row(dashboard.Row("Each judge"))
    made.with_panel(
        rows(
            "Judges side by side",
            "Over the range of the dashboard. Tokens and cost are those of judges that tell them.",
            {"stage": "Stage", "engine": "Engine", "model": "Model"},
            [
                Column("Judgements", calls("")),
                Column(
                    "Not judged",
                    share(f"({calls('')} - ({good} or {calls('')} * 0))", calls("")),
                    "percentunit",
                    1,
                ),
                Column("p50", quantile(0.5, "groundwatch_engine_seconds", JUDGE, BY, ALL), "s", 3),
                Column("p95", quantile(0.95, "groundwatch_engine_seconds", JUDGE, BY, ALL), "s", 3),
                Column(
                    "Tokens each",
                    share(increase("groundwatch_engine_tokens_total", JUDGE, BY, ALL), calls("")),
                    "short",
                    0,
                ),
                Column(
                    "Cost",
                    increase("groundwatch_engine_cost_dollars_total", JUDGE, BY, ALL),
                    "currencyUSD",
                    4,
                ),
            ],
            height=6,
        )
    )
    made.with_panel(
        lines(
            "Judgements",
            "Per second and judge.",
            [Query(rate("groundwatch_engine_calls_total", JUDGE, BY), NAME)],
            unit="ops",
            width=8,
        )
    )
    made.with_panel(
        lines(
            "Time of a judgement, 95 %",
            "Of a batch, its share. A judge behind a network is orders slower than one in the process.",
            [Query(quantile(0.95, "groundwatch_engine_seconds", JUDGE, BY), NAME)],
            unit="s",
            width=8,
            log=True,
        )
    )
    made.with_panel(
        lines(
            "What became of judgements",
            "ok; unscorable, so unscored with a reason; transient, so tried again; error.",
            [Query(rate("groundwatch_engine_calls_total", JUDGE, "result"), "{{result}}")],
            unit="ops",
            width=8,
            stacked=True,
        )
    )


def _use(made: dashboard.Dashboard) -> None:
    made.with_row(dashboard.Row("Tokens and cost"))
    made.with_panel(
        lines(
            "Tokens",
            "Per second, read and written.",
            [
                Query(
                    rate("groundwatch_engine_tokens_total", JUDGE, "stage, model, direction"),
                    "{{stage}} {{model}} {{direction}}",
                )
            ],
            width=8,
            stacked=True,
        )
    )
    made.with_panel(
        lines(
            "Cost an hour",
            "At the rate of each point, by the prices in the settings.",
            [Query(f"3600 * {rate('groundwatch_engine_cost_dollars_total', JUDGE, BY)}", NAME)],
            unit="currencyUSD",
            width=8,
            stacked=True,
        )
    )
    made.with_panel(
        bars(
            "Cost in the range",
            "Which judge the money went to.",
            Query(increase("groundwatch_engine_cost_dollars_total", JUDGE, BY, ALL), NAME),
            unit="currencyUSD",
            width=8,
        )
    )


def _cascades(made: dashboard.Dashboard) -> None:
    by, name = "protocol, step, engine", "{{protocol}} {{step}}: {{engine}}"
    made.with_row(dashboard.Row("Judges in a row"))
    made.with_panel(
        lines(
            "Facts by the judge whose word stands",
            "Per second, by its place in the cascade; the last one's with what it left undecided.",
            [Query(rate("groundwatch_cascade_facts_total", 'result!="passed"', by), name)],
            unit="ops",
            stacked=True,
        )
    )
    made.with_panel(
        lines(
            "Cost of a cascade's judges an hour",
            "At the rate of each point, by the prices in the settings.",
            [Query(f"3600 * {rate('groundwatch_cascade_cost_dollars_total', '', by)}", name)],
            unit="currencyUSD",
            stacked=True,
        )
    )


def _cache(made: dashboard.Dashboard) -> None:
    def known(by: str, window: str) -> str:
        hits = increase("groundwatch_cache_hits_total", JUDGE, by, window)
        return share(hits, f"({hits} + {increase('groundwatch_cache_misses_total', JUDGE, by, window)})")

    made.with_row(dashboard.Row("What was known already"))
    made.with_panel(
        figure(
            "From the cache",
            "Share of the judgements that the cache knew, in the range, of judges whose judgements it keeps.",
            known("", ALL),
            unit="percentunit",
            decimals=1,
            width=6,
        )
    )
    made.with_panel(
        figure(
            "Saved",
            "What these would have cost, by the prices of when they were judged.",
            f"sum(increase(groundwatch_cache_saved_dollars_total{{{JUDGE}}}[{ALL}]))",
            unit="currencyUSD",
            decimals=4,
            width=6,
        )
    )
    made.with_panel(
        figure(
            "Calls saved",
            "Calls to models that were not made.",
            f"sum(increase(groundwatch_cache_saved_calls_total{{{JUDGE}}}[{ALL}]))",
            decimals=0,
            width=6,
        )
    )
    made.with_panel(
        figure(
            "Of no use",
            "Times that the cache did not answer or took no more; judges were asked, and the log says why.",
            f"sum(increase(groundwatch_cache_faults_total{{{STAGE}}}[{ALL}])) or vector(0)",
            decimals=0,
            red_from=0.5,
            width=6,
        )
    )
    made.with_panel(
        lines(
            "Hits and misses",
            "Judgements a second that the cache knew, and that it did not know.",
            [
                Query(rate("groundwatch_cache_hits_total", JUDGE, "stage"), "{{stage}} known"),
                Query(rate("groundwatch_cache_misses_total", JUDGE, "stage"), "{{stage}} not known"),
            ],
            unit="ops",
            stacked=True,
        )
    )
    made.with_panel(
        lines(
            "Saved an hour",
            "At the rate of each point, US dollars.",
            [Query(f"3600 * {rate('groundwatch_cache_saved_dollars_total', JUDGE, BY)}", NAME)],
            unit="currencyUSD",
            stacked=True,
        )
    )


def _requests(made: dashboard.Dashboard) -> None:
    made.with_row(dashboard.Row("Requests to models"))
    made.with_panel(
        lines(
            "Requests",
            "Single requests to a model's endpoint a second, by result; a judgement can take several. "
            "misconfigured is a wrong key or model name.",
            [Query(rate("groundwatch_model_requests_total", STAGE, "stage, result"), "{{stage}} {{result}}")],
            unit="reqps",
        )
    )
    made.with_panel(
        lines(
            "Time of a request",
            "Mean and 95 % of each stage's requests.",
            [
                Query(mean("groundwatch_model_request_seconds", STAGE, "stage"), "{{stage}} mean"),
                Query(quantile(0.95, "groundwatch_model_request_seconds", STAGE, "stage"), "{{stage}} p95"),
            ],
            unit="s",
        )
    )


def _people(made: dashboard.Dashboard) -> None:
    def told(measure: str, by: str, number: str = "value") -> str:
        chosen = f'measure="{measure}",number="{number}"'
        return f"max by ({by}) (groundwatch_agreement{{{chosen}}})"

    judges, reviewers = "protocol, judges, category", "protocol, category"
    made.with_row(dashboard.Row("Judges and people"))
    made.with_panel(
        rows(
            "First judges against people",
            "Facts that both decided, of all answers that people reviewed: Cohen's κ with its 95 % interval, "
            "and F1, precision and recall of what does not hold. Of doubtful answers, where a queue draws "
            "these first, κ is lower.",
            {"protocol": "Protocol", "judges": "Judges", "category": "Category"},
            [
                Column("κ", told("kappa", judges), "short", 2),
                Column("from", told("kappa", judges, "low"), "short", 2),
                Column("to", told("kappa", judges, "high"), "short", 2),
                Column("F1", told("f1", judges), "percentunit", 0),
                Column("Precision", told("precision", judges), "percentunit", 0),
                Column("Recall", told("recall", judges), "percentunit", 0),
                Column("Answers", told("kappa", judges, "n")),
            ],
            sort="Answers",
            width=14,
        )
    )
    made.with_panel(
        rows(
            "People against each other",
            "Facts that at least two reviewers decided: Fleiss' κ and Krippendorff's α with its 95 % "
            "interval. No judge can agree with people more than they do with each other.",
            {"protocol": "Protocol", "category": "Category"},
            [
                Column("Fleiss' κ", told("fleiss", reviewers), "short", 2),
                Column("α", told("alpha", reviewers), "short", 2),
                Column("from", told("alpha", reviewers, "low"), "short", 2),
                Column("to", told("alpha", reviewers, "high"), "short", 2),
                Column("Facts", told("alpha", reviewers, "n")),
            ],
            width=10,
        )
    )
    by = "protocol, judges, queue, answers"
    name = "{{protocol}} {{judges}} {{queue}}: {{answers}}"

    def drift(number: str) -> str:
        return f'max by ({by}) (groundwatch_judge_drift{{number="{number}"}})'

    made.with_panel(
        lines(
            "Do judges drift from people?",
            "κ over the answers recorded last and over those before them, of queues drawn alike, with 95 % "
            "intervals. GroundwatchJudgeDrifts comes when the latest lies clearly below.",
            [Query(drift("value"), name), Query(drift("low"), name), Query(drift("high"), name)],
            width=24,
            top=1,
        )
        .override_by_query("B", THIN)
        .override_by_query("C", THIN)
    )


def _trust(made: dashboard.Dashboard) -> None:
    made.with_row(dashboard.Row("What judges could not tell"))
    by = "protocol, category"
    made.with_panel(
        lines(
            "Undecided facts",
            "Share of the facts of each category that the judge could not decide, over fifteen minutes; they "
            "are in no rate.",
            [
                Query(
                    share(
                        increase("groundwatch_claims_total", 'verdict="undecided"', by, "15m"),
                        increase("groundwatch_claims_total", "", by, "15m"),
                    ),
                    "{{protocol}} {{category}}",
                )
            ],
            unit="percentunit",
            width=8,
        )
    )
    same = " or ".join(
        f'groundwatch_people_verdicts{{people="{verdict}",judge="{verdict}"}}'
        for verdict in ("supported", "refuted")
    )
    made.with_panel(
        lines(
            "Agreement with people",
            "Share of the claims that people looked at and the judge decided, on which both say the same. "
            "From groundwatch validate verdicts --metrics-file.",
            [
                Query(
                    f"sum by (protocol) ({same}) "
                    '/ (sum by (protocol) (groundwatch_people_verdicts{judge!="undecided"}) > 0)',
                    "{{protocol}}",
                )
            ],
            unit="percentunit",
            width=8,
            top=1,
        )
    )
    made.with_panel(
        lines(
            "Unscored",
            "Outcomes without a score a second, by reason.",
            [
                Query(
                    rate("groundwatch_outcomes_total", 'outcome="unscored"', "protocol, reason"),
                    "{{protocol}}: {{reason}}",
                )
            ],
            unit="ops",
            width=8,
            stacked=True,
        )
    )
