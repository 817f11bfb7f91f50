"""Corrected rates, as the service of annotations writes them down."""

import msgspec

from groundwatch.errors import UNDECODED, Unavailable
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.stores.buckets import Bucket
from groundwatch.statistics.intervals import Interval
from groundwatch.topology import QUEUES_BUCKET

KEY = "corrected"

EVERY_VERSION = "*"


class CorrectedRate(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown of a corrected rate. `version` is `*` where several are taken together, `category` `all`
    for all facts. Only of a queue that is `whole` is it the rate of all of the model's answers."""

    model: str
    protocol: str
    fingerprint: str
    category: str
    version: str = EVERY_VERSION
    corrected: Interval | None = None
    opinions: int = 0
    by: str = ""
    for_half: int | None = None
    whole: bool = True


class _Rates(msgspec.Struct):
    rows: list[CorrectedRate] = []


_DECODER = msgspec.json.Decoder(_Rates)


class CorrectedRates:
    """Of several queues about the same, people go before models, then more opinions before fewer."""

    def __init__(self, rows: list[CorrectedRate]) -> None:
        self._rows: dict[tuple[str, str, str, str, str], CorrectedRate] = {}
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
    ) -> CorrectedRate | None:
        return self._rows.get((model, protocol, fingerprint, version, category))

    def rate(
        self,
        model: str,
        protocol: str,
        fingerprint: str,
        *,
        version: str = EVERY_VERSION,
        category: str = "all",
    ) -> Interval | None:
        row = self.row(model, protocol, fingerprint, version=version, category=category)
        return row.corrected if row is not None else None


class Corrections:
    def __init__(self, bus: Bus) -> None:
        self._bucket = Bucket(bus, QUEUES_BUCKET)

    async def read(self) -> CorrectedRates:
        """None where nobody has corrected anything, or where that cannot be read now."""
        try:
            found = await self._bucket.get(KEY)
            return CorrectedRates(_DECODER.decode(found.data).rows if found is not None else [])
        except (Unavailable, *UNDECODED):
            return CorrectedRates([])
