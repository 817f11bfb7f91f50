"""Which corrected rate of a model is shown beside its judged one."""

from collections.abc import Iterable

from groundwatch.reporting.corrected import EVERY_VERSION, CorrectedRow
from groundwatch.statistics.intervals import Interval


class CorrectedRates:
    """Those of whole queues. Of several about the same, people go before models, then more opinions before
    fewer."""

    def __init__(self, rows: Iterable[CorrectedRow]) -> None:
        self._rows: dict[tuple[str, str, str, str, str], CorrectedRow] = {}
        for row in sorted(rows, key=lambda one: (one.by == "people", one.opinions)):
            if row.whole and row.corrected is not None:
                key = (row.model, row.protocol, row.fingerprint, row.version, row.category)
                self._rows[key] = row

    def row(
        self,
        model: str,
        protocol: str,
        fingerprint: str,
        *,
        version: str = EVERY_VERSION,
        category: str = "all",
    ) -> CorrectedRow | None:
        return self._rows.get((model, protocol, fingerprint, version, category))

    def rate(self, model: str, protocol: str, fingerprint: str, **narrower: str) -> Interval | None:
        row = self.row(model, protocol, fingerprint, **narrower)
        return row.corrected if row is not None else None
