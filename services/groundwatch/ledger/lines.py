"""One UTC day of the ledger: what was recorded on it and what became of it, in counts and two digests.

A digest is the sum, modulo 2^128, of a hash of each pair. It does not depend on the order, a pair can be
taken out again, and a lost, doubled or changed pair changes it. The pairs of a day all have their outcome
exactly when its two digests are equal.
"""

from datetime import UTC, date, datetime
from hashlib import blake2b

import msgspec

from groundwatch.events import OutcomeKind
from groundwatch.topology import DAY

SIZE = 16
_MODULUS = 1 << (8 * SIZE)
_NONE = bytes(SIZE)

KINDS = frozenset(kind.value for kind in OutcomeKind)


def pair_hash(protocol: str, key: str) -> bytes:
    """What stands for a pair of a response and a protocol: 16 bytes, from which its key is not read back."""
    return blake2b(f"{protocol}.{key}".encode(), digest_size=SIZE, person=b"gw-ledger").digest()


def key_hash(key: str) -> bytes:
    """What stands for a question, by the key that its answer has too."""
    return pair_hash("", key)


def day_of(time: float) -> int:
    """The UTC day of a time, in days since the epoch."""
    return int(time // DAY)


def number_of(day: date) -> int:
    """A UTC day in days since the epoch."""
    return day.toordinal() - date(1970, 1, 1).toordinal()


def date_of(day: int) -> str:
    return datetime.fromtimestamp(day * DAY, UTC).date().isoformat()


class Line(msgspec.Struct, kw_only=True):
    """A day's counts. `erased` are responses; all others but `responses` count pairs."""

    responses: int = 0
    recorded: int = 0
    scored: int = 0
    unscored: int = 0
    declined: int = 0
    erased: int = 0
    reasons: dict[str, int] = {}
    recorded_digest: bytes = _NONE
    outcome_digest: bytes = _NONE

    @property
    def outcomes(self) -> int:
        return self.scored + self.unscored + self.declined

    @property
    def balanced(self) -> bool:
        return self.recorded == self.outcomes and self.recorded_digest == self.outcome_digest

    def record(self, pair: bytes, number: int = 1) -> None:
        """`number` is -1 to take it out again."""
        self.recorded += number
        self.recorded_digest = _sum(self.recorded_digest, pair, number)

    def outcome(self, pair: bytes, kind: str, reason: str, number: int = 1) -> None:
        if self.count(kind, reason, number):
            self.outcome_digest = _sum(self.outcome_digest, pair, number)

    def count(self, kind: str, reason: str, number: int) -> bool:
        """One of a kind that nobody knows counts nowhere, so that the day does not balance."""
        if kind not in KINDS:
            return False
        setattr(self, kind, getattr(self, kind) + number)
        if reason:
            name = f"{kind}: {reason}"
            self.reasons[name] = self.reasons.get(name, 0) + number
            if not self.reasons[name]:
                del self.reasons[name]
        return True


def _sum(digest: bytes, pair: bytes, number: int) -> bytes:
    total = int.from_bytes(digest, "big") + number * int.from_bytes(pair, "big")
    return (total % _MODULUS).to_bytes(SIZE, "big")
