"""What the judgement cache tells Prometheus."""

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter

from groundwatch.events import Judge, Usage


class CacheMetrics:
    """Counters of one process. `model` bounds the label of that name."""

    def __init__(self, registry: CollectorRegistry, model: Callable[[str], str]) -> None:
        self._model = model
        who = ("stage", "engine", "model")
        self.hits = Counter(
            "groundwatch_cache_hits", "Judgements that were known already", who, registry=registry
        )
        self.misses = Counter(
            "groundwatch_cache_misses", "Judgements that were not known yet", who, registry=registry
        )
        self.saved_calls = Counter(
            "groundwatch_cache_saved_calls",
            "Calls to models that hits made unnecessary",
            who,
            registry=registry,
        )
        self.saved_tokens = Counter(
            "groundwatch_cache_saved_tokens",
            "Tokens that hits would have used",
            (*who, "direction"),
            registry=registry,
        )
        self.saved_cost = Counter(
            "groundwatch_cache_saved_dollars",
            "What hits would have cost, US dollars, by the prices when they were first judged",
            who,
            registry=registry,
        )
        self.faults = Counter(
            "groundwatch_cache_faults",
            "Times that the cache was of no use: judges are asked instead",
            ("stage", "operation"),
            registry=registry,
        )

    def looked_up(self, stage: str, judge: Judge, saved: Sequence[Usage], *, misses: int) -> None:
        """Count what was known, with what each took when it was judged, and what was not known."""
        who = (stage, judge.engine, self._model(judge.model))
        usage = sum(saved, Usage())
        # All begin together, so that the share of hits has no gap while there is none.
        self.hits.labels(*who).inc(len(saved))
        self.misses.labels(*who).inc(misses)
        self.saved_calls.labels(*who).inc(usage.calls)
        self.saved_tokens.labels(*who, "input").inc(usage.input_tokens)
        self.saved_tokens.labels(*who, "output").inc(usage.output_tokens)
        self.saved_cost.labels(*who).inc(usage.cost)

    def fault(self, stage: str, operation: str) -> None:
        """Count one `get`, `put` or `decode` that went wrong."""
        self.faults.labels(stage, operation).inc()
