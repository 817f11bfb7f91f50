"""Prometheus metrics, shared by all services. Names and units follow Prometheus conventions.

Label sets are bounded: of more than `max_labels` tenants or models the rarest become `other`, so that a
caller who invents model names cannot fill the server's memory.
"""

import contextlib
from collections import Counter as Counted
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from groundwatch.events import Decision, Judge, ResponseRecorded, ResponseScored, Usage, version_of
from groundwatch.statistics.sampling import weight

# A series more for each counter and histogram, which no rule and no dashboard reads.
disable_created_metrics()  # type: ignore[no-untyped-call]

OTHER = "other"

ENOUGH = 10
AGE = 100_000
"""How often a value must come to take another one's label, and after how many calls all counts are halved."""


class BoundedLabel:
    """Gives at most `limit` values labels of their own; the others become `other`.

    Without `forget` the first to come have them. With it a value that has come `ENOUGH` times, and more often
    than the rarest one with a label, takes the label's place: `forget` is told which one goes, so that its
    series end. What comes less of late counts for less. So values that are invented once each neither keep
    out one that is in use nor make series without end.
    """

    def __init__(self, limit: int, forget: Callable[[str], None] | None = None) -> None:
        self._limit = limit
        self._forget = forget
        self._seen: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._waiting: dict[str, int] = {}
        self._calls = 0

    def __call__(self, value: str) -> str:
        known = self._seen.get(value)
        if known is None:
            return self._new(value)
        if self._forget is not None:
            self._counts[value] += 1
            self._calls += 1
            if self._calls % AGE == 0:
                self._counts = {value: count // 2 for value, count in self._counts.items()}
                self._waiting = _halved(self._waiting)
        return known

    def _new(self, value: str) -> str:
        if len(self._seen) >= self._limit:
            if self._forget is None or not self._earned(value):
                return OTHER
            rarest = min(self._counts, key=self._counts.__getitem__)
            del self._counts[rarest]
            self._forget(self._seen.pop(rarest))
        # Prometheus text is UTF-8; a lone surrogate in a name must not break the whole page.
        known = self._seen[value] = value.encode("utf-8", "replace").decode("utf-8")[:128]
        self._counts[value] = self._waiting.pop(value, 0) + 1
        return known

    def _earned(self, value: str) -> bool:
        if value not in self._waiting and len(self._waiting) >= self._limit:
            # Those that came once make room.
            self._waiting = _halved(self._waiting)
        if len(self._waiting) < self._limit or value in self._waiting:
            self._waiting[value] = self._waiting.get(value, 0) + 1
        count = self._waiting.get(value, 0)
        return count >= ENOUGH and count > min(self._counts.values())


def _halved(counts: dict[str, int]) -> dict[str, int]:
    return {value: count // 2 for value, count in counts.items() if count > 1}


class BoundedScope:
    """Tenant, model and version together: each is bounded, and so is how many combinations there are."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._seen: set[tuple[str, str, str]] = set()

    def __call__(self, tenant: str, model: str, version: str) -> tuple[str, str, str]:
        """The three as they are, or all versions and tenants of the model together."""
        scope = (tenant, model, version)
        if scope not in self._seen:
            if len(self._seen) >= self._limit:
                return OTHER, model, OTHER if version else ""
            self._seen.add(scope)
        return scope

    def forget(self, value: str) -> None:
        """Let combinations with a label that is no more make room."""
        self._seen = {scope for scope in self._seen if value not in scope}


M = TypeVar("M", Counter, Gauge, Histogram)

MOMENTS = ("responses", "facts", "refuted", "facts_squared", "refuted_squared", "product")
"""Over scored responses: how many, Σn, Σx, Σn², Σx², Σnx; n are decided and x refuted facts of a response."""

SCOPES = 10
"""So many times as many combinations of tenant, model and version as there are labels for each."""

BUDGETED = ("responses_per_minute", "tokens_per_day", "cost_per_day")

DEAD_REASONS = ("undecodable", "bad_input", "gave_up", "bug")
"""Why an event is a dead letter."""


class _Metric(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    help: str
    counter: str = ""
    gauge: str = ""
    histogram: str = ""
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


_DECLARED = msgspec.toml.decode(
    files("groundwatch.runtime.telemetry").joinpath("metrics.toml").read_bytes(),
    type=dict[str, dict[str, _Metric]],
)


def declare(holder: object, group: str, registry: CollectorRegistry) -> None:
    """Give `holder` the metrics of a group in `metrics.toml`, each under the name of its attribute."""
    for attribute, one in _DECLARED[group].items():
        metric: Counter | Gauge | Histogram
        if one.counter:
            metric = Counter(one.counter, one.help, one.labels, registry=registry)
        elif one.gauge:
            metric = Gauge(one.gauge, one.help, one.labels, registry=registry)
        else:
            metric = Histogram(one.histogram, one.help, one.labels, buckets=one.buckets, registry=registry)
        setattr(holder, attribute, metric)


class NatsMetrics:
    """What NATS' servers tell of themselves, by their monitoring ports."""

    monitor_up: Gauge
    jetstream_up: Gauge
    stored: Gauge
    store_limit: Gauge
    memory: Gauge
    memory_limit: Gauge
    leaderless: Gauge
    replicas_behind: Gauge
    slow_consumers: Counter

    def __init__(self, registry: CollectorRegistry) -> None:
        declare(self, "nats", registry)

    def figures(self) -> list[Gauge]:
        """All that is true only while somebody looks."""
        return [one for one in vars(self).values() if isinstance(one, Gauge) and one is not self.monitor_up]


class ReplayMetrics:
    """What replays tell: by name for those that are not over, by number for all.

    All are told anew each time, and so of no run that is told no more. The last one only the process knows
    that replays.
    """

    runs: Gauge
    state: Gauge
    progress: Gauge
    events: Gauge
    expected: Gauge
    outcomes: Gauge
    faults: Gauge
    left: Gauge
    cost: Gauge
    calls: Gauge
    workers: Gauge
    waited: Gauge

    def __init__(self, registry: CollectorRegistry) -> None:
        declare(self, "replay", registry)

    def clear(self) -> None:
        """Show nothing, until it is told anew."""
        for one in vars(self).values():
            one.clear()


class Metrics:
    """All metrics of one process, on a registry of its own."""

    responses: Counter
    refused: Counter
    rate_limited: Counter
    outcomes: Counter
    claims: Counter
    weighted_claims: Counter
    fact_moments: Counter
    score: Histogram
    figure: Gauge
    groups: Gauge
    delay: Histogram
    left_out: Counter
    unread_answers: Counter
    stage_seconds: Histogram
    stage_messages: Counter
    stage_timeouts: Counter
    stage_longest_seconds: Gauge
    judge_away_seconds: Gauge
    redeliveries: Counter
    dead_letters: Counter
    consumer_lag: Gauge
    consumer_up: Gauge
    consumer_pulls: Gauge
    consumer_delivered: Gauge
    dead_letters_waiting: Gauge
    not_stored: Gauge
    ready: Gauge
    nats_connected: Gauge
    models_not_ready: Gauge
    certificate_end: Gauge
    objective: Gauge
    engine_calls: Counter
    engine_seconds: Histogram
    engine_tokens: Counter
    engine_cost: Counter
    cascade_facts: Counter
    cascade_calls: Counter
    cascade_cost: Counter
    requests: Counter
    request_seconds: Histogram
    cache_hits: Counter
    cache_misses: Counter
    cache_saved_calls: Counter
    cache_saved_tokens: Counter
    cache_saved_cost: Counter
    cache_faults: Counter
    alarms: Counter
    alarm_raised: Gauge
    corrected_rate: Gauge
    corrected_rate_low: Gauge
    corrected_rate_high: Gauge
    corrected_judged: Gauge
    corrected_opinions: Gauge
    second_opinions: Counter
    second_opinions_waiting: Gauge
    second_opinions_left: Gauge
    agreement: Gauge
    judge_drift: Gauge
    archive_rows: Counter
    archive_failures: Counter
    archive_unreadable: Counter
    archive_files: Gauge
    archive_bytes: Gauge
    archive_images: Counter
    archive_lag: Gauge
    archive_hot_sequence: Gauge
    archive_hot_seconds: Gauge
    indexed_ids: Gauge
    archive_hot_window: Gauge
    receiver_events: Counter
    receiver_seconds: Histogram
    receiver_away_seconds: Gauge
    receiver_lag: Gauge
    images: Counter
    fetches: Counter
    logged_calls: Counter
    images_left_out: Counter
    lost_before_intake: Counter
    budget_limit: Gauge
    budget_used: Gauge
    budget_declined: Counter

    def __init__(
        self, *, max_labels: int = 100, version_tags: Sequence[str] = ("version", "release")
    ) -> None:
        self.registry = registry = CollectorRegistry()
        declare(self, "process", registry)
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        self.generation = 0
        self._tenant = BoundedLabel(max_labels, partial(self._forget, "tenant"))
        self._model = BoundedLabel(max_labels, partial(self._forget, "model"))
        self._scope = BoundedScope(max_labels * SCOPES)
        # These are ours to name, but reach us in events that somebody else may have written.
        self._protocol = BoundedLabel(max_labels)
        self._reason = BoundedLabel(max_labels)
        self._category = BoundedLabel(max_labels)
        self._version = BoundedLabel(max_labels, partial(self._forget, "version"))
        self._version_tags = tuple(version_tags)
        self._clocks: dict[str, list[Callable[[], float]]] = {}
        self._budget = BoundedLabel(max_labels)
        # `labels` costs more than counting does, so what every outcome counts in is looked up once.
        self._series: dict[tuple[Any, ...], Any] = {}
        self.replay = ReplayMetrics(registry)
        self.nats = NatsMetrics(registry)

    def stage(self, name: str) -> None:
        """Show what rarely happens to a stage as 0 from its start on.

        A counter that Prometheus first sees at 1 has not increased, and would be in no rate and no alert.
        """
        for result in ("done", "retried", "handed_back", "dead"):
            self.stage_messages.labels(name, result)
        self.stage_timeouts.labels(name)
        for reason in DEAD_REASONS:
            self.dead_letters.labels(name, reason)
        self.redeliveries.labels(name)

    def longest_work(self, name: str, seconds: Callable[[], float]) -> None:
        """Show for how long the oldest work of a stage goes on; a stage has several consumers."""
        clocks = self._clocks.setdefault(name, [])
        clocks.append(seconds)
        self.stage_longest_seconds.labels(name).set_function(lambda: max(clock() for clock in clocks))

    def budget(self, name: str, resource: str, limit: float, used: float) -> None:
        labels = (self._budget(name), resource)
        self.budget_limit.labels(*labels).set(limit)
        self.budget_used.labels(*labels).set(used)

    def forget_budget(self, name: str) -> None:
        """Show a budget no more, or not as it was."""
        for gauge in (self.budget_limit, self.budget_used):
            for resource in BUDGETED:
                with contextlib.suppress(KeyError):
                    gauge.remove(self._budget(name), resource)

    def over_budget(self, name: str, stratum: str) -> None:
        """Count a response that was declined for a protocol because a budget had too little left."""
        self.budget_declined.labels(self._budget(name), stratum).inc()

    def over_rate(self, tenant: str) -> None:
        """Count a response that was not taken since its tenant sends too much."""
        self.rate_limited.labels(self._tenant(tenant)).inc()

    def response(self, response: ResponseRecorded) -> None:
        tenant, model, _ = self._scope(self._tenant(response.tenant), self._model(response.model), "")
        self._labelled(self.responses, tenant, model).inc()

    def outcome(self, scored: ResponseScored) -> None:
        """Count an outcome that the stream has just taken for the first time."""
        protocol = self._protocol(scored.protocol)
        tenant, model, version = self._scope(
            self._tenant(scored.tenant), self._model(scored.model), self._version_label(scored.tags)
        )
        scope = (tenant, model, protocol)
        reason = self._reason(scored.reason)
        self._labelled(self.outcomes, *scope, version, scored.outcome.value, reason).inc()
        if scored.recorded_at and scored.scored_at:
            delay = max(0.0, scored.scored_at - scored.recorded_at)
            self._labelled(self.delay, protocol).observe(delay)
        if scored.score is None:
            return
        self._labelled(self.score, *scope).observe(scored.score)
        each = weight(scored.drawn)
        counts = Counted((claim.category, claim.decision) for claim in scored.claims)
        for (category, decision), count in counts.items():
            claims, weighted = self._verdict(decision, *scope, self._category(category))
            claims.inc(count)
            weighted.inc(count * each)
        refuted = sum(count for (_, decision), count in counts.items() if decision is Decision.REFUTED)
        supported = sum(count for (_, decision), count in counts.items() if decision is Decision.SUPPORTED)
        if refuted + supported:
            self._moments((model, version, protocol), each * (refuted + supported), each * refuted)

    def _labelled(self, metric: M, *labels: str) -> M:
        """`metric.labels(*labels)`."""
        found: M | None = self._series.get((metric, *labels))
        if found is None:
            found = self._series[(metric, *labels)] = metric.labels(*labels)
        return found

    def _verdict(self, decision: Decision, *labels: str) -> tuple[Counter, Counter]:
        """The facts of a category and verdict, and the same weighted.

        Supported and refuted ones begin together, so that the first refuted fact is in the rate too.
        """
        found: tuple[Counter, Counter] | None = self._series.get((decision, *labels))
        if found is None:
            for one in {decision, Decision.SUPPORTED, Decision.REFUTED}:
                counters = (self.claims, self.weighted_claims)
                self._series[(one, *labels)] = tuple(
                    counter.labels(*labels, one.value) for counter in counters
                )
            found = self._series[(decision, *labels)]
        return found

    def version_of(self, tags: Mapping[str, str]) -> str:
        """The version of the model, by the first tag that says it."""
        return version_of(tags, self._version_tags)

    def _version_label(self, tags: Mapping[str, str]) -> str:
        """The same, and of too many another's; empty is no label to Prometheus."""
        found = self.version_of(tags)
        return self._version(found) if found else ""

    def _moments(self, who: tuple[str, str, str], n: float, x: float) -> None:
        """Add a response to the moments from which rules compute a rate and its error.

        Facts of one answer are no independent draws. With these sums the variance of a ratio over whole
        answers (Cochran 1977, section 6.3) can be had for any window:
        (Σx² − 2rΣxn + r²Σn²) / (Σn)², where r = Σx / Σn. A response that was judged with probability p
        stands for 1 / p of them, so its n and x are divided by p; `responses` counts those that were judged.
        """
        found: list[Counter] | None = self._series.get(who)
        if found is None:
            found = self._series[who] = [self.fact_moments.labels(*who, moment) for moment in MOMENTS]
        # All six at once, zeros too: Prometheus cannot tell the first rise of a series that it never saw.
        for counter, value in zip(found, (1, n, x, n * n, x * x, n * x), strict=True):
            counter.inc(value)

    def _forget(self, name: str, value: str) -> None:
        """End all series of a label that another value takes the place of."""
        self.generation += 1
        self._scope.forget(value)
        self._series.clear()
        for metric in vars(self).values():
            if isinstance(metric, Counter | Gauge | Histogram):
                with contextlib.suppress(ValueError):
                    metric.remove_by_labels({name: value})

    def figures(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Show the figures of a report's rows and no others: these are as many as the report tells apart."""
        self.figure.clear()
        self.groups.clear()
        for row in rows:
            model = row["model"].encode("utf-8", "replace").decode("utf-8")[:128]
            for one in row["figures"]:
                numbers = {**(one["value"] or {}), "coverage": one["coverage"], "rank": one["rank"] or None}
                for name, value in numbers.items():
                    if value is not None:
                        labels = (model, row["protocol"], row["fingerprint"], one["name"], name)
                        self.figure.labels(*labels).set(value)
            for told, number in row["groups"].items():
                reason = told.partition(":")[0]
                self.groups.labels(model, row["protocol"], row["fingerprint"], reason).inc(number)

    def alarm_labels(self, model: str, protocol: str, category: str) -> tuple[str, str, str]:
        """The labels of an alarm, bounded; without a tenant, since a model is watched for all of them."""
        return self._model(model), self._protocol(protocol), self._category(category)

    def judgements(
        self, stage: str, judge: Judge, results: Sequence[tuple[str, Usage | None]], seconds: float
    ) -> None:
        """Count what an engine made of a batch: each result with what it used and its share of the time."""
        who = (stage, judge.engine, self._model(judge.model))
        for result, number in Counted(result for result, _ in results).items():
            self.engine_calls.labels(*who, result).inc(number)
        times = self.engine_seconds.labels(*who)
        for _, usage in results:
            times.observe(seconds / len(results))
            if usage is None:
                continue
            if usage.input_tokens or usage.output_tokens:
                self.engine_tokens.labels(*who, "input").inc(usage.input_tokens)
                self.engine_tokens.labels(*who, "output").inc(usage.output_tokens)
            if usage.cost:
                self.engine_cost.labels(*who).inc(usage.cost)

    def cascade(self, protocol: str, step: int, engine: str, facts: Mapping[str, int], usage: Usage) -> None:
        """Count what became of facts at a judge of a cascade, and what it used."""
        who = (self._protocol(protocol), str(step), engine)
        for result, number in facts.items():
            self.cascade_facts.labels(*who, result).inc(number)
        self.cascade_calls.labels(*who).inc(usage.calls)
        self.cascade_cost.labels(*who).inc(usage.cost)

    def cache_looked_up(self, stage: str, judge: Judge, saved: Sequence[Usage], *, misses: int) -> None:
        """Count what was known, with what each took when it was judged, and what was not known."""
        who = (stage, judge.engine, self._model(judge.model))
        usage = sum(saved, Usage())
        # All begin together, so that the share of hits has no gap while there is none.
        self.cache_hits.labels(*who).inc(len(saved))
        self.cache_misses.labels(*who).inc(misses)
        self.cache_saved_calls.labels(*who).inc(usage.calls)
        self.cache_saved_tokens.labels(*who, "input").inc(usage.input_tokens)
        self.cache_saved_tokens.labels(*who, "output").inc(usage.output_tokens)
        self.cache_saved_cost.labels(*who).inc(usage.cost)


def show_end(metrics: Metrics, setting: str, path: str) -> None:
    """Show when the first certificate of the file ends; nothing where it holds none."""
    # Imported only when wanted: most processes show none.
    from cryptography.x509 import load_pem_x509_certificates

    try:
        certificates = load_pem_x509_certificates(Path(path).read_bytes())
    except ValueError:
        return
    end = min(certificate.not_valid_after_utc for certificate in certificates)
    metrics.certificate_end.labels(setting).set(end.timestamp())
