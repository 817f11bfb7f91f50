"""The balance of a run, as an audit finds it: recorded = scored + unscored + declined + in flight."""

from collections import Counter
from collections.abc import Sequence

import msgspec


class LostResponses(msgspec.Struct, frozen=True, kw_only=True):
    """Responses that were recorded and that their stream has no more, though no erasure removed them and they
    are neither cold nor old enough for retention: their sequences, and the UTC day of what was stored before
    them."""

    stream: str
    first: int
    last: int
    day: str

    @property
    def number(self) -> int:
        return self.last - self.first + 1

    def describe(self) -> str:
        return (
            f"{self.number:,} responses are gone from {self.stream}: sequences {self.first:,} to "
            f"{self.last:,}, stored on {self.day} or later; no erasure and no retention removed them: "
            "restore the stream from its backup (docs/disaster.md)"
        )


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """The balance of one run. All but `responses`, `dead_letters`, `foreign`, `lost_responses` and those of
    questions count pairs of a response and a protocol.

    `lost` have been acknowledged everywhere and have no outcome; `orphans` are outcomes of responses that
    were never recorded; `expired` are outcomes whose responses retention has removed; `foreign` are
    messages in the source stream that no gateway wrote. `questions` wait for their answer, with captioning
    or among the dead letters; `questions_lost` have been acknowledged and have neither answer nor letter.
    `unsettled` is of those in flight how many at most may be lost: they lie among others that are held, and
    it is known when those are done. A ledger with such is not `balanced`, and not out of balance either:
    `unaccounted` is what is known to be missing or too many. `erased` are responses that erasures have
    removed with their outcomes; `lost_responses` have been recorded and are gone. `lost_before_intake` are
    responses that their senders dropped, as they say themselves, by sender and reason: no gateway has seen
    them, and they are in no balance.
    `waiting_at_intake` were published over NATS and wait for a gateway: they are in no balance either yet.
    `sealed_days` are balanced and over: their lines stay, and nothing of them is read again. `begun_anew`
    says why everything was read from the beginning, where there was a state to go on from. `archive_unread`
    says why what has left the streams could not be looked at: what is lost or an orphan by then stays one.
    """

    run: str
    responses: int
    recorded: int
    scored: int
    unscored: int
    declined: int
    in_flight: int
    lost: int
    orphans: int
    expired: int
    foreign: int = 0
    dead_letters: int = 0
    reasons: dict[str, int]
    in_flight_at: dict[str, int]
    balanced: bool
    questions: int = 0
    questions_lost: int = 0
    erased: int = 0
    unsettled: int = 0
    lost_before_intake: dict[str, dict[str, int]] = {}
    waiting_at_intake: int = 0
    sealed_days: int = 0
    begun_anew: str = ""
    archive_unread: str = ""
    lost_responses: tuple[LostResponses, ...] = ()

    @property
    def unaccounted(self) -> int:
        counted = self.scored + self.unscored + self.declined + self.in_flight
        gone = sum(one.number for one in self.lost_responses)
        return max(self.lost, abs(self.recorded - counted)) + self.orphans + self.questions_lost + gone

    @property
    def standing(self) -> str:
        if self.balanced:
            return "balanced"
        if self.unaccounted:
            return f"NOT BALANCED, {self.unaccounted:,} unaccounted for"
        return f"not settled yet: {self.unsettled:,} at most of those in flight may be lost"


OF_PARTITION = (
    "responses",
    "recorded",
    "scored",
    "unscored",
    "declined",
    "in_flight",
    "lost",
    "orphans",
    "expired",
    "foreign",
    "questions",
    "questions_lost",
    "erased",
    "unsettled",
    "sealed_days",
)
"""Counts of which each partition has its own. The others are of streams and buckets that all share."""


def together(ledgers: Sequence[Ledger]) -> Ledger:
    """The balance of all partitions. A day counts as sealed once for each of them."""
    if len(ledgers) == 1:
        return ledgers[0]
    sums = {name: sum(getattr(one, name) for one in ledgers) for name in OF_PARTITION}
    anew = [f"partition {number}: {one.begun_anew}" for number, one in enumerate(ledgers) if one.begun_anew]
    return msgspec.structs.replace(
        ledgers[-1],
        **sums,
        reasons=_added([one.reasons for one in ledgers]),
        in_flight_at=_added([one.in_flight_at for one in ledgers]),
        balanced=all(one.balanced for one in ledgers),
        lost_responses=tuple(lost for one in ledgers for lost in one.lost_responses),
        begun_anew="; ".join(anew),
    )


def _added(several: Sequence[dict[str, int]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for one in several:
        found.update(one)
    return dict(found.most_common())
