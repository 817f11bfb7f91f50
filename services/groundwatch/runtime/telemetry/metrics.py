"""Prometheus metrics, shared by all services. Names and units follow Prometheus conventions.

Label sets are bounded: of more than `max_labels` tenants or models the rarest become `other`, so that a
caller who invents model names cannot fill the server's memory.
"""

import contextlib
from collections import Counter as Counted
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from groundwatch.events import Decision, Judge, ResponseRecorded, ResponseScored, Usage
from groundwatch.runtime.telemetry.cache_metrics import CacheMetrics
from groundwatch.runtime.telemetry.replay_metrics import ReplayMetrics
from groundwatch.statistics.sampling import weight

OTHER = "other"
SCORE_BUCKETS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99, 1.0)
SECONDS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
DELAY_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1_800, 3_600, 14_400, 86_400)
"""Of outcomes, in seconds: a backlog is hours long before anybody calls it lost."""


MOMENTS = ("responses", "facts", "refuted", "facts_squared", "refuted_squared", "product")
"""Over scored responses: how many, Σn, Σx, Σn², Σx², Σnx; n are decided and x refuted facts of a response."""


ENOUGH = 10
AGE = 100_000
"""How often a value must come to take another one's label, and after how many calls all counts are halved."""

SCOPES = 10
"""So many times as many combinations of tenant, model and version as there are labels for each."""

BUDGETED = ("responses_per_minute", "tokens_per_day", "cost_per_day")

DEAD_REASONS = ("undecodable", "bad_input", "gave_up", "bug")
"""Why an event is a dead letter."""


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
            self._age()
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

    def _age(self) -> None:
        self._calls += 1
        if self._calls % AGE == 0:
            self._counts = {value: count // 2 for value, count in self._counts.items()}
            self._waiting = _halved(self._waiting)


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


class Metrics:
    """All metrics of one process, on a registry of its own."""

    def __init__(
        self, *, max_labels: int = 100, version_tags: Sequence[str] = ("version", "release")
    ) -> None:
        self.registry = registry = CollectorRegistry()
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
        scope = ("tenant", "model", "protocol")
        self.responses = Counter(
            "groundwatch_responses", "Responses recorded", ("tenant", "model"), registry=registry
        )
        self.refused = Counter(
            "groundwatch_refused_responses", "Responses refused at the door", ("reason",), registry=registry
        )
        self.outcomes = Counter(
            "groundwatch_outcomes",
            "Outcomes: one for each response and protocol",
            (*scope, "version", "outcome", "reason"),
            registry=registry,
        )
        self.claims = Counter(
            "groundwatch_claims",
            "Judged claims of scored responses",
            (*scope, "version", "category", "verdict"),
            registry=registry,
        )
        self.weighted_claims = Counter(
            "groundwatch_weighted_claims",
            "Claims of all responses that the judged ones stand for: each counts 1 / probability of judging",
            (*scope, "version", "category", "verdict"),
            registry=registry,
        )
        self.fact_moments = Counter(
            "groundwatch_fact_moments",
            "Sums over scored responses with n decided and x refuted facts, for tests between rates",
            ("model", "version", "protocol", "moment"),
            registry=registry,
        )
        self.score = Histogram(
            "groundwatch_score", "Score of a response", scope, buckets=SCORE_BUCKETS, registry=registry
        )
        self.delay = Histogram(
            "groundwatch_outcome_delay_seconds",
            "From recording a response to its outcome",
            ("protocol",),
            buckets=DELAY_BUCKETS,
            registry=registry,
        )
        self.stage_seconds = Histogram(
            "groundwatch_stage_seconds",
            "Time that a stage held a message",
            ("stage",),
            buckets=SECONDS_BUCKETS,
            registry=registry,
        )
        self.stage_messages = Counter(
            "groundwatch_stage_messages",
            "Messages handled by a stage",
            ("stage", "result"),
            registry=registry,
        )
        self.stage_timeouts = Counter(
            "groundwatch_stage_timeouts",
            "Times that handling took longer than a stage allows",
            ("stage",),
            registry=registry,
        )
        self.stage_longest_seconds = Gauge(
            "groundwatch_stage_longest_seconds",
            "For how long the oldest work of a stage goes on by now",
            ("stage",),
            registry=registry,
        )
        self.judge_away_seconds = Gauge(
            "groundwatch_judge_away_seconds",
            "For how long a judge has been away, 0 while it answers",
            ("stage", "judge"),
            registry=registry,
        )
        self.redeliveries = Counter(
            "groundwatch_redeliveries", "Messages delivered again", ("stage",), registry=registry
        )
        self.dead_letters = Counter(
            "groundwatch_dead_letters",
            "Events sent to the dead letters",
            ("stage", "reason"),
            registry=registry,
        )
        self.consumer_lag = Gauge(
            "groundwatch_consumer_lag",
            "Messages waiting for or held by a durable consumer",
            ("stage", "consumer"),
            registry=registry,
        )
        self.consumer_up = Gauge(
            "groundwatch_consumer_up", "1 while the durable consumer exists", ("consumer",), registry=registry
        )
        self.consumer_pulls = Gauge(
            "groundwatch_consumer_pulls",
            "Requests that wait at a durable consumer for messages: 0 while nobody asks, or all are busy",
            ("stage", "consumer"),
            registry=registry,
        )
        self.consumer_delivered = Gauge(
            "groundwatch_consumer_delivered",
            "Deliveries that a durable consumer has made since it was created",
            ("stage", "consumer"),
            registry=registry,
        )
        self.dead_letters_waiting = Gauge(
            "groundwatch_dead_letters_waiting", "Dead letters in their stream", registry=registry
        )
        self.not_stored = Gauge(
            "groundwatch_events_not_stored",
            "Kinds of events that their stream did not store when this process last published them",
            registry=registry,
        )
        self.objective = Gauge(
            "groundwatch_objective_ratio",
            "The setting alarm.objective: the share of facts not in the image that counts as good",
            registry=registry,
        )
        engine = ("stage", "engine", "model")
        self.engine_calls = Counter(
            "groundwatch_engine_calls", "Calls to an engine", (*engine, "result"), registry=registry
        )
        self.engine_seconds = Histogram(
            "groundwatch_engine_seconds",
            "Time of an engine call",
            engine,
            buckets=SECONDS_BUCKETS,
            registry=registry,
        )
        self.engine_tokens = Counter(
            "groundwatch_engine_tokens", "Tokens used by engines", (*engine, "direction"), registry=registry
        )
        self.engine_cost = Counter(
            "groundwatch_engine_cost_dollars", "Cost of engine calls, US dollars", engine, registry=registry
        )
        self.requests = Counter(
            "groundwatch_model_requests",
            "Requests to model endpoints",
            ("stage", "result"),
            registry=registry,
        )
        self.request_seconds = Histogram(
            "groundwatch_model_request_seconds",
            "Time of a request to a model endpoint",
            ("stage",),
            buckets=SECONDS_BUCKETS,
            registry=registry,
        )
        watched = ("model", "protocol", "category")
        self.alarms = Counter(
            "groundwatch_alarms", "Alarms that this gateway announced", watched, registry=registry
        )
        self.alarm_raised = Gauge(
            "groundwatch_alarm_raised",
            "Alarms raised now, one for each set of judges",
            watched,
            registry=registry,
        )
        self.archive_rows = Counter(
            "groundwatch_archive_rows", "Rows written to the archive", ("table",), registry=registry
        )
        self.archive_failures = Counter(
            "groundwatch_archive_failures",
            "Attempts to write to the archive that failed and are tried again",
            ("reason",),
            registry=registry,
        )
        self.archive_unreadable = Counter(
            "groundwatch_archive_unreadable",
            "Outcomes in the stream that could not be archived, each told in the log",
            ("reason",),
            registry=registry,
        )
        self.archive_files = Gauge(
            "groundwatch_archive_files", "Files that the archive consists of", registry=registry
        )
        self.archive_bytes = Gauge("groundwatch_archive_bytes", "Bytes of these files", registry=registry)
        self.archive_lag = Gauge(
            "groundwatch_archive_lag",
            "Places in the stream that the archive has not come to yet",
            ("stream",),
            registry=registry,
        )
        self.images = Counter("groundwatch_images", "Images at the door", ("result",), registry=registry)
        budgeted = ("budget", "resource")
        self.budget_limit = Gauge(
            "groundwatch_budget_limit", "What may be spent in one window", budgeted, registry=registry
        )
        self.budget_used = Gauge(
            "groundwatch_budget_used",
            "What all gateways have spent in the window of now",
            budgeted,
            registry=registry,
        )
        self.budget_declined = Counter(
            "groundwatch_budget_declined",
            "Responses recorded that were declined over budget, by protocol each",
            ("budget", "stratum"),
            registry=registry,
        )
        self._budget = BoundedLabel(max_labels)
        self.cache = CacheMetrics(registry, self._model)
        self.replay = ReplayMetrics(registry)

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
        """Show one limit of a budget and what is used of it."""
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

    def response(self, response: ResponseRecorded) -> None:
        """Count a newly recorded response."""
        tenant, model, _ = self._scope(self._tenant(response.tenant), self._model(response.model), "")
        self.responses.labels(tenant, model).inc()

    def outcome(self, scored: ResponseScored) -> None:
        """Count an outcome that the stream has just taken for the first time."""
        protocol = self._protocol(scored.protocol)
        tenant, model, version = self._scope(
            self._tenant(scored.tenant), self._model(scored.model), self._version_of(scored.tags)
        )
        scope = (tenant, model, protocol)
        self.outcomes.labels(*scope, version, scored.outcome.value, self._reason(scored.reason)).inc()
        if scored.recorded_at and scored.scored_at:
            self.delay.labels(protocol).observe(max(0.0, scored.scored_at - scored.recorded_at))
        if scored.score is None:
            return
        self.score.labels(*scope).observe(scored.score)
        counts: dict[tuple[str, Decision], int] = {}
        for claim in scored.claims:
            pair = (claim.category, claim.decision)
            counts[pair] = counts.get(pair, 0) + 1
        for category in {category for category, _ in counts}:
            # All verdicts of a category begin together, so that the first refuted fact is in the rate too.
            for decision in Decision:
                count = counts.get((category, decision), 0)
                labels = (*scope, version, self._category(category), decision.value)
                self.claims.labels(*labels).inc(count)
                self.weighted_claims.labels(*labels).inc(count * weight(scored.drawn))
        self._facts((scope[1], version, protocol), scored)

    def _version_of(self, tags: Mapping[str, str]) -> str:
        """The version of the model, by the first tag that says it; empty is no label to Prometheus."""
        found = next((tags[tag] for tag in self._version_tags if tags.get(tag)), "")
        return self._version(found) if found else ""

    def _facts(self, who: tuple[str, str, str], scored: ResponseScored) -> None:
        """Add a response to the moments from which rules compute a rate and its error.

        Facts of one answer are no independent draws. With these sums the variance of a ratio over whole
        answers (Cochran 1977, section 6.3) can be had for any window:
        (Σx² − 2rΣxn + r²Σn²) / (Σn)², where r = Σx / Σn. A response that was judged with probability p
        stands for 1 / p of them, so its n and x are divided by p; `responses` counts those that were judged.
        """
        refuted = sum(claim.decision is Decision.REFUTED for claim in scored.claims)
        decided = refuted + sum(claim.decision is Decision.SUPPORTED for claim in scored.claims)
        if not decided:
            return
        each = weight(scored.drawn)
        n, x = each * decided, each * refuted
        values = (1, n, x, n * n, x * x, n * x)
        # All six at once, zeros too: Prometheus cannot tell the first rise of a series that it never saw.
        for moment, value in zip(MOMENTS, values, strict=True):
            self.fact_moments.labels(*who, moment).inc(value)

    def _forget(self, name: str, value: str) -> None:
        """End all series of a label that another value takes the place of."""
        self.generation += 1
        self._scope.forget(value)
        for metric in (*vars(self).values(), *vars(self.cache).values()):
            if isinstance(metric, Counter | Gauge | Histogram):
                with contextlib.suppress(ValueError):
                    metric.remove_by_labels({name: value})

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
