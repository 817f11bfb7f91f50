"""Labels whose values others invent: so many of them are told apart, the rest is `other`."""

from collections.abc import Callable

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
