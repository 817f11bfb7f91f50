"""Corrected rates, as the service of annotations writes them down."""

import msgspec
import nats.js.errors

from groundwatch.errors import UNDECODED
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import FAULTS
from groundwatch.statistics.intervals import Interval

BUCKET = "gw-queues"
KEY = "corrected"


class CorrectedRate(msgspec.Struct, frozen=True):
    """What is shown of a corrected rate: of one version, or with "" of all; of one category, or of `all`."""

    model: str
    protocol: str
    fingerprint: str
    category: str
    version: str = ""
    corrected: Interval | None = None
    opinions: int = 0
    by: str = ""
    for_half: int = 0


_DECODER = msgspec.json.Decoder(list[CorrectedRate])


class CorrectedRates:
    def __init__(self, rows: list[CorrectedRate]) -> None:
        self._rows = {
            (row.model, row.protocol, row.fingerprint, row.version, row.category): row for row in rows
        }

    def row(
        self, model: str, protocol: str, fingerprint: str, *, version: str = "", category: str = "all"
    ) -> CorrectedRate | None:
        return self._rows.get((model, protocol, fingerprint, version, category))

    def rate(
        self, model: str, protocol: str, fingerprint: str, *, version: str = "", category: str = "all"
    ) -> Interval | None:
        row = self.row(model, protocol, fingerprint, version=version, category=category)
        return row.corrected if row is not None else None


class Corrections:
    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def read(self) -> CorrectedRates:
        """None where nobody has corrected anything, or where that cannot be read now."""
        try:
            bucket = await self._bus.js.key_value(BUCKET)
            entry = await bucket.get(KEY)
            return CorrectedRates(_DECODER.decode(entry.value or b"[]"))
        except (nats.js.errors.NotFoundError, *FAULTS, *UNDECODED):
            return CorrectedRates([])
