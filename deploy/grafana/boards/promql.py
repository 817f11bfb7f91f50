"""PromQL that several panels share: rates of facts, their intervals, quantiles, busy-ness of stages.

Every function returns an expression. Windows are text that Grafana fills in, such as `$__rate_interval`.
"""

from __future__ import annotations

import re
from typing import Final

Z: Final = 1.96
"""The normal quantile of a two-sided 95 % interval."""

WHERE: Final = 'cluster=~"$cluster",namespace=~"$namespace"'
"""What the variables of every dashboard choose."""

_SELECTOR = re.compile(r"\b((?:groundwatch|process)_\w+)(?:\{([^}]*)\})?")

SCOPE: Final = 'tenant=~"$tenant",model=~"$model",protocol="$protocol"'
"""What the variables of the Models dashboard choose."""

MODELS: Final = 'model=~"$model",protocol="$protocol"'


def placed(expr: str) -> str:
    """The expression over the chosen clusters and namespaces alone."""

    def selector(found: re.Match[str]) -> str:
        return f"{found[1]}{{{','.join(filter(None, (found[2], WHERE)))}}}"

    return _SELECTOR.sub(selector, expr)


def increase(metric: str, selector: str, by: str, window: str) -> str:
    """The rise of a counter over `window`, summed `by` these labels over all replicas."""
    return f"sum by ({by}) (increase({metric}{{{selector}}}[{window}]))"


def rate(metric: str, selector: str, by: str, window: str = "$__rate_interval") -> str:
    """The rise of a counter a second, summed `by` these labels over all replicas."""
    return f"sum by ({by}) (rate({metric}{{{selector}}}[{window}]))"


def decided(by: str, window: str, scope: str = SCOPE) -> str:
    """Facts that the judge could decide, each once: what a rate rests on."""
    return increase("groundwatch_claims_total", f'{scope},verdict=~"supported|refuted"', by, window)


def eligible(by: str, window: str, scope: str = SCOPE) -> str:
    """Facts that the judge was asked about."""
    return increase("groundwatch_claims_total", scope, by, window)


def share(part: str, whole: str) -> str:
    """`part` of `whole`; nothing where there was no traffic."""
    return f"{part} / ({whole} > 0)"


def weighted(verdict: str, by: str, window: str, scope: str = SCOPE) -> str:
    """Facts of all answers that the judged ones stand for: right under any sampling and budget."""
    return increase("groundwatch_weighted_claims_total", f'{scope},verdict=~"{verdict}"', by, window)


def hallucination_rate(by: str, window: str, scope: str = SCOPE) -> str:
    """The share of decided facts that are not in the image."""
    return share(weighted("refuted", by, window, scope), weighted("supported|refuted", by, window, scope))


def moment(name: str, by: str, window: str) -> str:
    """A sum over the answers of all tenants, each weighted by how likely it was to be judged."""
    return increase("groundwatch_fact_moments_total", f'{MODELS},moment="{name}"', by, window)


def model_rate(by: str, window: str) -> str:
    """`hallucination_rate` of models or versions over all tenants: right under any sampling and budget."""
    return share(moment("refuted", by, window), moment("facts", by, window))


def design_effect(by: str, window: str) -> str:
    """By how much facts of one answer hang together: the variance of the rate over whole answers (Cochran
    1977, section 6.3) over that of as many independent facts, at least 1.

    It is known for each model and version over all tenants and categories. Where the rate is 0 or 1 it
    cannot be told, and is 1.
    """

    def of(name: str) -> str:
        return moment(name, by, window)

    n, x = of("facts"), of("refuted")
    squares = f"{n} ^ 2 * {of('refuted_squared')} + {x} ^ 2 * {of('facts_squared')}"
    clustered = f"({squares} - 2 * {x} * {n} * {of('product')})"
    return f"(({clustered} / ({x} * {n} * ({n} - {x})) > 1) or ({n} * 0 + 1))"


def wilson(end: str, by: str, window: str, *, cluster: str, scope: str = SCOPE) -> str:
    """The `low` or `high` end of Wilson's 95 % interval (1927) of `hallucination_rate`; of `model_rate` where
    `by` is `cluster`.

    (x + k/2 ± √(k x (n − x) / n + k²/4)) / (n + k), where x of n facts are refuted and k is z² times the
    design effect of `cluster`, the labels of the series in which facts hang together. Facts and moments are
    weighted alike: were all weights w, then x, n and the design effect would be w times what they are
    without, and the interval the same.
    """
    match = "" if cluster == by else f" on ({cluster}) group_left ()"
    effect = design_effect(cluster, window)
    if cluster == by:
        x, n = moment("refuted", by, window), moment("facts", by, window)
    else:
        x = weighted("refuted", by, window, scope)
        n = weighted("supported|refuted", by, window, scope)
    k = f"({n} * 0 +{match} {Z**2:.4f} * {effect})"
    sign = "-" if end == "low" else "+"
    root = f"sqrt({k} * {x} * clamp_min({n} - {x}, 0) / {n} + {k} ^ 2 / 4)"
    return f"({x} + {k} / 2 {sign} {root}) / (({n} > 0) + {k})"


def quantile(q: float, metric: str, selector: str, by: str = "", window: str = "$__rate_interval") -> str:
    """A quantile of a histogram, `by` these labels."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({q}, sum by ({labels}) (rate({metric}_bucket{{{selector}}}[{window}])))"


def mean(metric: str, selector: str, by: str, window: str = "$__rate_interval") -> str:
    """The mean of a histogram's observations."""
    return share(rate(f"{metric}_sum", selector, by, window), rate(f"{metric}_count", selector, by, window))


def backlog(selector: str = 'stage=~"$stage"') -> str:
    """Messages that wait for a stage or are held by it; all replicas tell the same consumer's number."""
    lag = f"max by (cluster, namespace, stage, consumer) (groundwatch_consumer_lag{{{selector}}})"
    return f"sum by (stage) ({lag})"


def replicas(selector: str = 'stage=~"$stage"') -> str:
    """Processes in which a stage runs."""
    return f"count by (stage) (count by (stage, instance) (groundwatch_stage_seconds_count{{{selector}}}))"
