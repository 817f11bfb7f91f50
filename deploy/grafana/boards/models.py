"""The dashboard Models: how much of what each model says is not in the image."""

from __future__ import annotations

from deploy.grafana.boards.frame import alarms, choice, frame, gateway, one, window
from deploy.grafana.boards.panels import THIN, Column, Query, band, figure, lines, link, rows
from deploy.grafana.boards.promql import (
    MODELS,
    SCOPE,
    decided,
    eligible,
    hallucination_rate,
    increase,
    model_rate,
    moment,
    quantile,
    rate,
    share,
    wilson,
)
from grafana_foundation_sdk.builders import dashboard

W = "$window"
VERSION = "model, version"
INTERVAL = (
    "The 95 % interval is Wilson's over the effective number of facts: facts of one answer hang together, "
    "and the design effect of the model's answers makes it wider."
)
WORST = "${gateway}/answers?order=worst&model=${__data.fields.Model:percentencode}"


def models() -> dashboard.Dashboard:
    """Rates per model, version, category and tenant, with their intervals; coverage; scores."""
    made = (
        frame(
            "groundwatch / Models",
            "groundwatch-models",
            "How much of what each model says about an image is not in the image, and how sure that is.",
        )
        .with_variable(one("protocol", "protocol", "label_values(groundwatch_outcomes_total, protocol)"))
        .with_variable(
            choice("model", "model", 'label_values(groundwatch_outcomes_total{protocol="$protocol"}, model)')
        )
        .with_variable(
            choice(
                "tenant",
                "tenant",
                'label_values(groundwatch_outcomes_total{protocol="$protocol",model=~"$model"}, tenant)',
            )
        )
        .with_variable(window())
        .with_variable(gateway())
        .annotation(alarms())
    )
    _figures(made)
    _versions(made)
    _corrected(made)
    _headline(made)
    _categories(made)
    _tenants(made)
    _coverage(made)
    return made


def _figures(made: dashboard.Dashboard) -> None:
    scored = f'{SCOPE},outcome="scored"'
    unscored = f'{SCOPE},outcome=~"scored|unscored"'
    made.with_panel(
        figure(
            "Facts not in the image",
            "Share of the facts that the judge could decide, per model, of all tenants.",
            model_rate("model", W),
            unit="percentunit",
            legend="{{model}}",
            decimals=1,
            width=8,
        )
    )
    made.with_panel(
        figure(
            "Alarms raised now",
            "Categories of models that say more of what is not in the image than before. "
            "At most one false alarm in alarm.responses good responses.",
            f"sum(max by (model, protocol, category) (groundwatch_alarm_raised{{{MODELS}}}))",
            red_from=1,
        )
    )
    made.with_panel(
        figure(
            "Answers judged",
            "Responses with a score in the chosen window.",
            f"sum(increase(groundwatch_outcomes_total{{{scored}}}[{W}]))",
            decimals=0,
        )
    )
    made.with_panel(
        figure(
            "Coverage",
            "Share of the facts that the judge could decide; the rest is in no rate.",
            share(decided("protocol", W), eligible("protocol", W)),
            unit="percentunit",
            decimals=1,
        )
    )
    made.with_panel(
        figure(
            "Scored",
            "Share of the judged answers that got a score; the others are unscored, with a reason.",
            share(
                increase("groundwatch_outcomes_total", scored, "protocol", W),
                increase("groundwatch_outcomes_total", unscored, "protocol", W),
            ),
            unit="percentunit",
            decimals=1,
        )
    )


def _versions(made: dashboard.Dashboard) -> None:
    made.with_row(dashboard.Row("Models and versions"))
    scored = increase("groundwatch_outcomes_total", f'{MODELS},outcome="scored"', VERSION, W)
    judged = increase("groundwatch_outcomes_total", f'{MODELS},outcome=~"scored|unscored"', VERSION, W)
    made.with_panel(
        rows(
            "Versions side by side",
            f"Each version of each model in the window, of all tenants. {INTERVAL} "
            "A model's cell leads to its "
            "worst answers. The version is the response's tag `version` or `release`.",
            {"model": "Model", "version": "Version"},
            [
                Column("Not in the image", model_rate(VERSION, W), "percentunit", 1, gauge=True),
                Column("from", wilson("low", VERSION, W, cluster=VERSION), "percentunit", 1),
                Column("to", wilson("high", VERSION, W, cluster=VERSION), "percentunit", 1),
                Column("Facts", f"{moment('facts', VERSION, W)} > 0"),
                Column("Answers", f"{scored} > 0"),
                Column("Scored", share(scored, judged), "percentunit", 1),
            ],
            links=[link("worst answers", WORST)],
            sort="Not in the image",
            height=7,
        )
    )
    made.with_panel(
        lines(
            "Rate of each version",
            "Facts not in the image, of all tenants, before each point. "
            "Versions whose thin lines do not meet "
            f"differ. {INTERVAL}",
            [
                Query(model_rate(VERSION, W), "{{model}} {{version}}"),
                Query(wilson("low", VERSION, W, cluster=VERSION), "{{model}} {{version}} low"),
                Query(wilson("high", VERSION, W, cluster=VERSION), "{{model}} {{version}} high"),
            ],
            unit="percentunit",
            width=24,
        )
        .override_by_query("B", THIN)
        .override_by_query("C", THIN)
    )
    made.with_panel(
        band(
            "$model",
            f"Facts of this model that are not in the image, all versions and tenants. {INTERVAL}",
            model_rate("model", W),
            wilson("low", "model", W, cluster="model"),
            wilson("high", "model", W, cluster="model"),
            width=24,
            top=0.3,
        )
        .repeat("model")
        .repeat_direction("h")
        .max_per_row(3)
    )


def _corrected(made: dashboard.Dashboard) -> None:
    by = "queue, model, version, category, by"

    def told(metric: str, more: str = "", labels: str = by) -> str:
        return f"max by ({labels}) (groundwatch_corrected_rate{metric}{{{MODELS}{more}}})"

    whole, each = ',version="*",category="all"', "queue, model, by"
    made.with_row(dashboard.Row("Corrected by second opinions"))
    made.with_panel(
        rows(
            "First judges and corrected",
            "Facts not in the image in all answers that a queue was drawn from: as the first judges say, and "
            "as its reviewers, or a better model, would say of all of them, with 95 % intervals. "
            "Version * is all together.",
            {
                "model": "Model",
                "version": "Version",
                "category": "Category",
                "queue": "Queue",
                "by": "By",
            },
            [
                Column("First judges", told("_judged"), "percentunit", 1),
                Column("Corrected", told(""), "percentunit", 1, gauge=True),
                Column("from", told("_low"), "percentunit", 1),
                Column("to", told("_high"), "percentunit", 1),
                Column("Opinions", told("_opinions")),
            ],
            links=[link("the queue", "${gateway}/queues/${__data.fields.Queue:percentencode}")],
            width=14,
            height=9,
        )
    )
    made.with_panel(
        lines(
            "Corrected beside uncorrected",
            "Of all facts and versions, before each point. Where the first judges' line lies outside of the "
            "thin ones they are wrong about the rate.",
            [
                Query(told("", whole, each), "{{model}} {{queue}} corrected by {{by}}"),
                Query(told("_low", whole, each), "{{model}} {{queue}} low"),
                Query(told("_high", whole, each), "{{model}} {{queue}} high"),
                Query(told("_judged", whole, each), "{{model}} {{queue}} first judges"),
            ],
            unit="percentunit",
            width=10,
            height=9,
        )
        .override_by_query("B", THIN)
        .override_by_query("C", THIN)
    )


def _headline(made: dashboard.Dashboard) -> None:
    def number(name: str) -> str:
        return f'max by (model, judges, figure) (groundwatch_figure{{{MODELS},number="{name}"}})'

    made.with_row(dashboard.Row("Figures of the paper"))
    made.with_panel(
        rows(
            "Figures of the paper",
            "What the protocol's paper reports of a model, over all live traffic, with its 95 % interval; "
            "answers (or images, sequences) are n, and coverage is the share of judged answers in it. "
            "Rank 0: the figure ranks no models.",
            {"model": "Model", "figure": "Figure", "judges": "Judges"},
            [
                Column("Value", number("value"), "short", 3),
                Column("from", number("low"), "short", 3),
                Column("to", number("high"), "short", 3),
                Column("n", number("n")),
                Column("Coverage", number("coverage"), "percentunit", 1),
                Column("Rank", f"{number('rank')} or {number('value')} * 0"),
            ],
            width=14,
        )
    )
    made.with_panel(
        lines(
            "Figures over time",
            "The same before each point: all of the stream, so a change shows slowly.",
            [Query(number("value"), "{{model}} {{figure}}")],
            unit="short",
            width=10,
        )
    )


def _categories(made: dashboard.Dashboard) -> None:
    by = "model, category"
    made.with_row(dashboard.Row("Categories"))
    made.with_panel(
        lines(
            "Rate of each category",
            "Facts of each category that are not in the image, before each point; each judged answer "
            "stands for as many as it was drawn from.",
            [Query(hallucination_rate(by, W), "{{model}} {{category}}")],
            unit="percentunit",
            height=9,
        )
    )
    made.with_panel(
        rows(
            "Categories now",
            f"The same over the chosen window. {INTERVAL}",
            {"model": "Model", "category": "Category"},
            [
                Column("Not in the image", hallucination_rate(by, W), "percentunit", 1, gauge=True),
                Column("from", wilson("low", by, W, cluster="model"), "percentunit", 1),
                Column("to", wilson("high", by, W, cluster="model"), "percentunit", 1),
                Column("Facts", decided(by, W)),
            ],
            links=[link("worst answers", WORST)],
            sort="Not in the image",
            width=12,
            height=9,
        )
    )


def _tenants(made: dashboard.Dashboard) -> None:
    by = "tenant, model"
    low = wilson("low", by, W, cluster="model")
    worst = f"topk(10, {low})"

    def of_worst(expr: str) -> str:
        return f"{expr} and on ({by}) {worst}"

    made.with_row(dashboard.Row("Tenants"))
    made.with_panel(
        rows(
            "Worst tenants",
            "The ten whose rate is highest at the lower end of its interval: a tenant with three facts does "
            f"not lead. {INTERVAL}",
            {"tenant": "Tenant", "model": "Model"},
            [
                Column("at least", worst, "percentunit", 1),
                Column("Not in the image", of_worst(hallucination_rate(by, W)), "percentunit", 1, gauge=True),
                Column("at most", of_worst(wilson("high", by, W, cluster="model")), "percentunit", 1),
                Column("Facts", of_worst(decided(by, W))),
            ],
            links=[link("worst answers", f"{WORST}&tenant=${{__data.fields.Tenant:percentencode}}")],
            sort="at least",
            width=14,
        )
    )
    made.with_panel(
        lines(
            "Responses recorded",
            "Per second and tenant.",
            [
                Query(
                    'sum by (tenant) (rate(groundwatch_responses_total{tenant=~"$tenant",model=~"$model"}'
                    "[$__rate_interval]))",
                    "{{tenant}}",
                )
            ],
            unit="reqps",
            width=10,
            stacked=True,
        )
    )


def _coverage(made: dashboard.Dashboard) -> None:
    by = "model"
    made.with_row(dashboard.Row("Coverage and scores"))
    made.with_panel(
        lines(
            "Coverage",
            "Facts that the judge could decide, over the window before each point. When it falls, the rate "
            "speaks of fewer facts.",
            [Query(share(decided(by, W), eligible(by, W)), "{{model}}")],
            unit="percentunit",
            width=8,
            top=1,
        )
    )
    made.with_panel(
        lines(
            "Without a score",
            "Outcomes without a score a second, by reason: unscored, or declined by sampling or budget.",
            [
                Query(
                    rate("groundwatch_outcomes_total", f'{SCOPE},outcome!="scored"', "outcome, reason"),
                    "{{outcome}}: {{reason}}",
                )
            ],
            unit="ops",
            width=8,
            stacked=True,
        )
    )
    made.with_panel(
        lines(
            "Scores",
            "The median and the lowest tenth of the protocol's score of an answer, over the window before "
            "each point.",
            [
                Query(quantile(0.5, "groundwatch_score", SCOPE, by, W), "{{model}} median"),
                Query(quantile(0.1, "groundwatch_score", SCOPE, by, W), "{{model}} lowest tenth"),
            ],
            unit="percentunit",
            width=8,
            top=1,
        )
    )
