"""Alerts about models: they fire when they must, and keep silent when they must."""

from __future__ import annotations

from tests.deploy.prometheus.conftest import Case, Series, answers, phases, steady

HOUR = 60
DAY = 24 * HOUR
BEFORE = 10 * HOUR
ABOVE = "GroundwatchHallucinationRateAboveObjective"
WORSE = "GroundwatchModelWorseThanLastWeek"
SIBLING = "GroundwatchVersionWorseThanSibling"
RAISED = "GroundwatchModelAlarmRaised"
COVERAGE = "GroundwatchCoverageFalling"
PEOPLE = "GroundwatchJudgeDisagreesWithPeople"
DRIFTS = "GroundwatchJudgeDrifts"
HERON = {"model": "heron", "protocol": "faithscore"}


def above(window: str, severity: str, model: str = "heron") -> dict[str, str]:
    return {
        "alertname": ABOVE,
        "model": model,
        "protocol": "faithscore",
        "window": window,
        "severity": severity,
    }


FAST, HOURS = above("1h", "critical"), above("6h", "critical")
DAY_LONG, DAYS = above("1d", "warning"), above("3d", "warning")
LAST_WEEK = {"alertname": WORSE, "window": "1h", "severity": "warning"} | HERON


def sibling(version: str) -> list[dict[str, str]]:
    return [
        {"alertname": SIBLING, "version": version, "window": window, "severity": "warning"} | HERON
        for window in ("1h", "1d")
    ]


def gauge(category: str, pod: str = "a") -> str:
    labels = f'model="heron", protocol="faithscore", category="{category}", pod="{pod}"'
    return f"groundwatch_alarm_raised{{{labels}}}"


def outcomes(scored: list[tuple[float, int]], unscored: list[tuple[float, int]]) -> Series:
    labels = 'model="heron", protocol="faithscore", tenant="t"'
    return {
        f'groundwatch_outcomes_total{{{labels}, outcome="scored", reason=""}}': phases(*scored),
        f'groundwatch_outcomes_total{{{labels}, outcome="unscored", reason="cut_off"}}': phases(*unscored),
        f'groundwatch_outcomes_total{{{labels}, outcome="declined", reason="sampled_out"}}': phases(
            (100, sum(minutes for _, minutes in scored))
        ),
    }


def verdicts(agreed: int, disagreed: int, undecided: int = 0) -> Series:
    labels = 'protocol="faithscore"'
    return {
        f'groundwatch_people_verdicts{{{labels}, people="supported", judge="supported"}}': f"{agreed}x20",
        f'groundwatch_people_verdicts{{{labels}, people="refuted", judge="supported"}}': f"{disagreed}x20",
        f'groundwatch_people_verdicts{{{labels}, people="refuted", judge="undecided"}}': f"{undecided}x20",
    }


Kappa = tuple[float, float, float, int]
"""Value, low, high, and of how many answers."""


def drift(before: Kappa, latest: Kappa, *pods: str, minutes: int = 20) -> Series:
    """What replicas tell of agreement with people: the first `minutes`, and then what it was before."""
    labels = 'protocol="faithscore", judges="a1b2", queue="weekly"'
    return {
        f'groundwatch_judge_drift{{{labels}, answers="{answers}", number="{number}", pod="{pod}"}}': (
            f"{value}x{minutes} {before[at]}x20"
        )
        for pod in pods or ("a",)
        for answers, kappa in (("before", before), ("latest", latest))
        for at, (number, value) in enumerate(zip(("value", "low", "high", "n"), kappa, strict=True))
    }


FIRES = {
    # 30 % of facts from the start: too fast a burn over an hour and over six.
    "far above the objective": Case(series=answers((10, 0.30, 30)), at=30, fires=[FAST, HOURS]),
    # Over the last hour it is the fast burn; over six it is 15 %, three times the objective.
    "bad for an hour after good ones": Case(
        series=answers((10, 0.02, 4 * HOUR), (10, 0.40, HOUR)), at=5 * HOUR, fires=[FAST, LAST_WEEK]
    ),
    "somewhat above it for hours": Case(
        series=answers((5, 0.14, 5 * HOUR)), at=5 * HOUR, fires=[HOURS, DAY_LONG, DAYS]
    ),
    "a little above it for a day": Case(series=answers((2, 0.09, DAY)), at=DAY, fires=[DAY_LONG, DAYS]),
    "just above it for days": Case(series=answers((2, 0.065, 2 * DAY)), at=2 * DAY, fires=[DAYS]),
    "the gateway's objective counts": Case(
        series=answers((10, 0.06, 90)) | {"groundwatch_objective_ratio": "0.01x95"},
        at=90,
        fires=[FAST, HOURS, DAY_LONG],
    ),
    "a model's own objective counts more": Case(
        series=answers((10, 0.06, 90), model="strict")
        | answers((10, 0.06, 90), model="usual")
        | {'groundwatch:model_objective:ratio{model="strict"}': "0.01x95"},
        at=90,
        fires=[
            above("1h", "critical", "strict"),
            above("6h", "critical", "strict"),
            above("1d", "warning", "strict"),
        ],
    ),
    "worse than its last week, within the objective": Case(
        series=answers((20, 0.005, BEFORE), (20, 0.045, HOUR)), at=BEFORE + HOUR, fires=[LAST_WEEK]
    ),
    # The long window still sees it, the short one does not: nobody is called out of bed for what is over.
    "a bad time that is over is no burn": Case(
        series=answers((30, 0.02, 4 * HOUR), (30, 0.60, 30), (30, 0.02, 20)),
        at=4 * HOUR + 50,
        fires=[LAST_WEEK],
    ),
    "a version worse than its sibling": Case(
        series=answers((10, 0.005, 90), version="1") | answers((10, 0.045, 90), version="2"),
        at=90,
        fires=sibling("2"),
    ),
    "the worst of three versions": Case(
        series=answers((10, 0.01, 90), version="1")
        | answers((10, 0.01, 90), version="2")
        | answers((10, 0.049, 90), version="3"),
        at=90,
        fires=sibling("3"),
    ),
    "an alarm is raised": Case(
        series={
            gauge("all", pod="a"): "0x4 1x6",
            gauge("all", pod="b"): "0x4 1x6",
            gauge("color", pod="a"): "2x10",
            gauge("count", pod="a"): "0x10",
        },
        at=6,
        fires=[
            {"alertname": RAISED, "category": "all", "severity": "critical"} | HERON,
            {"alertname": RAISED, "category": "color", "severity": "warning"} | HERON,
        ],
    ),
    "fewer responses are scored than before": Case(
        series=outcomes([(10, BEFORE), (8, HOUR)], [(0.1, BEFORE), (2, HOUR)]),
        at=BEFORE + HOUR,
        fires=[
            {"alertname": COVERAGE, "of": "responses", "window": "1h", "against": "last week"}
            | {"severity": "warning"}
            | HERON
        ],
    ),
    "hardly any response is scored": Case(
        series=outcomes([(2, 90)], [(8, 90)]),
        at=90,
        fires=[
            {"alertname": COVERAGE, "of": "responses", "window": "1h", "against": "floor"}
            | {"severity": "warning"}
            | HERON
        ],
    ),
    "nothing was ever scored": Case(
        series={
            'groundwatch_outcomes_total{model="heron", protocol="faithscore", outcome="unscored"}': steady(
                5, 90
            )
        },
        at=90,
        fires=[
            {"alertname": COVERAGE, "of": "responses", "window": "1h", "against": "floor"}
            | {"severity": "warning"}
            | HERON
        ],
    ),
    "the judge decides fewer facts": Case(
        series={
            'groundwatch_claims_total{model="heron", protocol="faithscore", verdict="supported"}': phases(
                (40, BEFORE), (20, HOUR)
            ),
            'groundwatch_claims_total{model="heron", protocol="faithscore", verdict="undecided"}': phases(
                (5, BEFORE), (25, HOUR)
            ),
        },
        at=BEFORE + HOUR,
        fires=[
            {"alertname": COVERAGE, "of": "facts", "window": "1h", "against": "last week"}
            | {"severity": "warning"}
            | HERON
        ],
    ),
    "people see it otherwise": Case(
        series=verdicts(120, 80),
        at=10,
        fires=[{"alertname": PEOPLE, "protocol": "faithscore", "severity": "warning"}],
    ),
    "people agree less with the judge than they did": Case(
        series=drift((0.80, 0.75, 0.84, 400), (0.48, 0.38, 0.58, 200), "a", "b"),
        at=15,
        fires=[
            {"alertname": DRIFTS, "protocol": "faithscore", "judges": "a1b2", "queue": "weekly"}
            | {"answers": "latest", "number": "value", "severity": "warning"}
        ],
    ),
}

SILENT = {
    "within the objective": Case(series=answers((10, 0.04, 8 * HOUR)), at=8 * HOUR),
    "far above it, in too few answers": Case(series=answers((0.6, 0.5, HOUR)), at=HOUR),
    # A third of the facts, but all from few answers: chance is not ruled out.
    "above it by chance": Case(
        series={
            f'groundwatch_fact_moments_total{{model="a", protocol="faithscore", moment="{moment}"}}': values
            for moment, values in {
                "responses": steady(1, 90),
                "facts": steady(5, 90),
                "refuted": steady(1.1, 90),
                "facts_squared": steady(300, 90),
                "refuted_squared": steady(300, 90),
                "product": steady(300, 90),
            }.items()
        },
        at=90,
    ),
    "no worse than last week": Case(series=answers((20, 0.03, BEFORE + HOUR)), at=BEFORE + HOUR),
    "better than last week": Case(series=answers((20, 0.045, BEFORE), (20, 0.005, HOUR)), at=BEFORE + HOUR),
    "worse than last week, in too few answers": Case(
        series=answers((20, 0.005, BEFORE), (1.5, 0.05, HOUR)), at=BEFORE + HOUR
    ),
    "worse than a week of too few answers": Case(
        series=answers((0.1, 0.0, 10 * HOUR), (20, 0.045, 30)), at=10 * HOUR + 30
    ),
    "worse by less than matters": Case(
        series=answers((2000, 0.010, BEFORE), (2000, 0.020, HOUR)), at=BEFORE + HOUR
    ),
    "no last week": Case(series=answers((20, 0.045, 50)), at=50),
    "siblings alike": Case(
        series=answers((10, 0.03, 90), version="1") | answers((10, 0.031, 90), version="2"), at=90
    ),
    "a sibling with too few answers": Case(
        series=answers((10, 0.005, 90), version="1") | answers((1.2, 0.049, 90), version="2"), at=90
    ),
    "no sibling": Case(series=answers((10, 0.045, 90), version="2"), at=90),
    "other models are no siblings": Case(
        series=answers((10, 0.005, 90), version="1") | answers((10, 0.045, 90), model="osprey", version="2"),
        at=90,
    ),
    # Both processes of a stage restart now and then; rates come from rises alone.
    "counters that begin anew": Case(
        series={
            name: " ".join(["0+" + values.removeprefix("0 ").split("+")[1].split("x")[0] + "x19"] * 6)
            for name, values in answers((10, 0.02, 20)).items()
        },
        at=115,
    ),
    "an alarm that has ended": Case(
        series={gauge("all"): "1x4 0x6"},
        at=8,
    ),
    "coverage as before": Case(series=outcomes([(9, BEFORE + HOUR)], [(1, BEFORE + HOUR)]), at=BEFORE + HOUR),
    "coverage lower, of too few": Case(
        series=outcomes([(10, BEFORE), (0.4, HOUR)], [(0.1, BEFORE), (0.3, HOUR)]), at=BEFORE + HOUR
    ),
    "all is declined": Case(
        series={
            'groundwatch_outcomes_total{model="heron", protocol="faithscore", outcome="declined"}': steady(
                50, 90
            )
        },
        at=90,
    ),
    "people agree": Case(series=verdicts(180, 20), at=10),
    "people disagree on too few": Case(series=verdicts(30, 30), at=10),
    "people disagree, perhaps": Case(series=verdicts(78, 24), at=10),
    "the judge decided nothing of theirs": Case(
        series={
            'groundwatch_people_verdicts{protocol="valor", people="refuted", judge="undecided"}': "300x20"
        },
        at=10,
    ),
    "people agree with the judge as before": Case(
        series=drift((0.80, 0.75, 0.84, 400), (0.77, 0.69, 0.84, 200)), at=15
    ),
    "people agree more with the judge than they did": Case(
        series=drift((0.48, 0.38, 0.58, 200), (0.80, 0.75, 0.84, 200)), at=15
    ),
    # Intervals that do not meet, and yet only three standard errors: chance is not ruled out.
    "people agree less with the judge, perhaps": Case(
        series=drift((0.80, 0.72, 0.88, 200), (0.62, 0.53, 0.71, 200)), at=15
    ),
    "people agree less with the judge, by less than matters": Case(
        series=drift((0.80, 0.79, 0.81, 9000), (0.72, 0.71, 0.73, 9000)), at=15
    ),
    "people agree less with the judge, on too few": Case(
        series=drift((0.80, 0.75, 0.84, 99), (0.30, 0.20, 0.40, 99)), at=15
    ),
    "people agreed with the judge on too few": Case(
        series=drift((0.80, 0.75, 0.84, 60), (0.30, 0.20, 0.40, 100)), at=15
    ),
    "people agree less with the judge for a moment": Case(
        series=drift((0.80, 0.75, 0.84, 400), (0.48, 0.38, 0.58, 200), minutes=5), at=15
    ),
    "too few facts are wrong to tell how people agree": Case(
        series={
            name: values
            for name, values in drift((0.80, 0.75, 0.84, 400), (0.0, 0.0, 0.0, 200)).items()
            if 'answers="before"' in name
        },
        at=15,
    ),
    "nothing at all": Case(series={}, at=90),
}
