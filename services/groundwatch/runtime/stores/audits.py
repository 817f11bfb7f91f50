"""The last audit, in a few numbers, for those who do not count themselves."""

import msgspec
import nats.js.errors
from nats.js import JetStreamContext

from groundwatch.errors import UNDECODED
from groundwatch.topology import LEDGER_BUCKET

_KEY = "summary"


class AuditSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Of live traffic, at `at` (seconds since the epoch); numbers are those of the ledger. `standing` is the
    result in words."""

    at: float
    standing: str
    balanced: bool
    recorded: int
    scored: int
    unscored: int
    declined: int
    in_flight: int
    unaccounted: int
    erased: int = 0
    expired: int = 0


_DECODER = msgspec.json.Decoder(AuditSummary)


async def write_summary(js: JetStreamContext, summary: AuditSummary) -> None:
    """Raises what NATS raises."""
    bucket = await js.key_value(LEDGER_BUCKET)
    await bucket.put(_KEY, msgspec.json.encode(summary))


async def read_summary(js: JetStreamContext) -> AuditSummary | None:
    """None before there was an audit. Raises what NATS raises."""
    try:
        entry = await (await js.key_value(LEDGER_BUCKET)).get(_KEY)
        return _DECODER.decode(entry.value or b"")
    except (nats.js.errors.NotFoundError, *UNDECODED):
        return None
