"""Opinions in their stream: of one reviewer about one answer the last one counts, and each is there once."""

import contextlib
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any

import msgspec

from groundwatch.errors import InputError, Unavailable, words
from groundwatch.events import Decision, FactOpinion, Label, OpinionGiven, ResponseScored
from groundwatch.keys import home_key, reviewer_key
from groundwatch.reporting.sums import facts_of, fingerprint
from groundwatch.runtime.delivery.bus import ENCODER, Bus, Outgoing, Stored
from groundwatch.runtime.delivery.streams import FAULTS, decoded, last_message, position_of, read_stream
from groundwatch.statistics.sampling import weight
from groundwatch.topology import OPINIONS, PREFIX, subject_of

TRIES = 20
BUSY = "others write the same opinion at this moment: send it again"

MAX_TEXT = 10_000
MAX_CATEGORY = 100
"""Characters of a fact and of its category."""

_DECODER = msgspec.json.Decoder(OpinionGiven)


class StoredOpinion(msgspec.Struct, frozen=True):
    """An opinion with its place in the stream."""

    sequence: int
    opinion: OpinionGiven


class Opinions:
    """The stream of opinions. Everything raises `Unavailable` when the server does not answer.

    `unreadable` counts what the last reading skipped, since it is no opinion.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.unreadable = 0

    async def give(self, opinion: OpinionGiven, *, replace: bool = True) -> Stored:
        """Put it behind what the same reviewer said of the same answer before; nothing, where it says the
        same, or not to `replace` what was said for the same queue. Raises `InputError` for one that is too
        large."""
        for _ in range(TRIES):
            before = await self._last(_subject(opinion))
            if before is not None and not replace and before.opinion.queue == opinion.queue:
                return Stored.EXISTED
            if (stored := await self._put(opinion, before)) is not None:
                return stored
        raise Unavailable(BUSY)

    async def _put(self, opinion: OpinionGiven, before: StoredOpinion | None) -> Stored | None:
        """Put it behind that one; None where another one is there by now."""
        sequence, subject = 0, _subject(opinion)
        if before is not None:
            if _same(before.opinion, opinion):
                return Stored.EXISTED
            sequence = before.sequence
            opinion = msgspec.structs.replace(opinion, revision=before.opinion.revision + 1)
        data = ENCODER.encode(opinion)
        message = Outgoing(
            subject=subject,
            payload=data,
            message_id=(subject, str(sequence), str(opinion.revision), data.decode()),
            expect=sequence,
        )
        return Stored.NEW if await self._bus.create(message) is Stored.NEW else None

    async def object_to(
        self, outcome: ResponseScored, claim: int, decision: Decision | None, reviewer: str
    ) -> Stored:
        """Say of one claim what somebody says who came upon it, beside what they objected to before in the
        answer; None takes it back. No rule drew it: it is in no rate. Raises `InputError`."""
        if not 0 <= claim < len(outcome.claims):
            raise InputError(f"there is no claim {claim}")
        more: dict[str, Any] = {"reviewer": reviewer, "given_at": time.time(), "objection": True}
        opinion = opinion_on(outcome, facts=(), **more)
        for _ in range(TRIES):
            before = await self._last(_subject(opinion))
            kept = before.opinion.facts if before is not None else ()
            facts = {one.claim: one for one in kept if one.claim != claim}
            if decision is not None:
                said = outcome.claims[claim]
                facts[claim] = FactOpinion(
                    text=said.text, category=said.category, decision=decision, unit=said.unit, claim=claim
                )
            whole = msgspec.structs.replace(opinion, facts=tuple(facts.values()))
            if (stored := await self._put(whole, before)) is not None:
                return stored
        raise Unavailable(BUSY)

    async def last(self, run: str, protocol: str, reviewer: str, key: str) -> OpinionGiven | None:
        """What this reviewer said last of this answer."""
        found = await self._last(subject_of("opinion", run, protocol, reviewer_key(reviewer), key))
        return found.opinion if found is not None else None

    async def of(self, key: str, protocol: str = "") -> list[OpinionGiven]:
        """The last opinion of each reviewer about an answer, in whatever run it is."""
        place = home_key(key, self._bus.partitions)
        return await self.latest(f"{PREFIX}.opinion.*.{protocol or '*'}.*.{place}")

    async def read(
        self, since_sequence: int = 0, subject: str = f"{PREFIX}.opinion.>"
    ) -> AsyncGenerator[StoredOpinion]:
        """Every opinion behind a sequence up to now, in the order of giving, also what was revised since."""
        self.unreadable = 0
        with _asking():
            reading = read_stream(
                self._bus.js,
                OPINIONS,
                subjects=(subject,),
                start_sequence=since_sequence + 1,
            )
            async with contextlib.aclosing(reading):
                async for read in reading:
                    if (opinion := decoded(_DECODER, read)) is not None:
                        yield StoredOpinion(read.sequence, opinion)
                    else:
                        self.unreadable += 1

    async def latest(self, subject: str = f"{PREFIX}.opinion.>") -> list[OpinionGiven]:
        """Of each reviewer about each answer the last opinion."""
        found: dict[tuple[str, str, str, str, bool], OpinionGiven] = {}
        async for one in self.read(subject=subject):
            found[identity(one.opinion)] = one.opinion
        return list(found.values())

    async def position(self) -> tuple[int, int]:
        """When the stream was made (µs since the epoch), and its last sequence."""
        with _asking():
            at = await position_of(self._bus.js, OPINIONS)
        return at.created, at.last

    async def _last(self, subject: str) -> StoredOpinion | None:
        with _asking():
            found = await last_message(self._bus.js, OPINIONS, subject)
        if found is None or (opinion := decoded(_DECODER, found)) is None:
            return None
        return StoredOpinion(found.sequence, opinion)


def opinion_on(
    outcome: ResponseScored, *, reviewer: str, facts: tuple[FactOpinion, ...], given_at: float, **more: Any
) -> OpinionGiven:
    """An opinion about this outcome, with what its judges said; `more` are other fields."""
    return OpinionGiven(
        id=outcome.id,
        model=outcome.model,
        protocol=outcome.protocol,
        reviewer=reviewer,
        tenant=outcome.tenant,
        run=outcome.run,
        partition=outcome.partition,
        tags=outcome.tags,
        images=outcome.images,
        recorded_at=outcome.recorded_at,
        weight=weight(outcome.drawn),
        fingerprint=fingerprint(outcome.judges),
        judged=facts_of(outcome),
        facts=facts,
        given_at=given_at,
        **more,
    )


def check_opinion(
    outcome: ResponseScored, facts: Sequence[FactOpinion], labels: Sequence[Label | None]
) -> None:
    """Raises `InputError` for what cannot be said of this outcome."""
    if len(labels) > len(outcome.units):
        raise InputError(f"labels: there are {len(outcome.units)} sub-sentences")
    about = [fact.claim for fact in facts if fact.claim is not None]
    if len(about) != len(set(about)):
        raise InputError("facts: two are about the same claim")
    for fact in facts:
        if fact.claim is not None and not 0 <= fact.claim < len(outcome.claims):
            raise InputError(f"facts: there is no claim {fact.claim}")
        if not 0 <= fact.unit < max(1, len(outcome.units)):
            raise InputError(
                f"facts: there are {len(outcome.units)} sub-sentences, and none is number {fact.unit}"
            )
        if not fact.text.strip() or len(fact.text) > MAX_TEXT:
            raise InputError(f"facts: a text has 1 to {MAX_TEXT:,} characters")
        if not 1 <= len(fact.category) <= MAX_CATEGORY:
            raise InputError(f"facts: a category has 1 to {MAX_CATEGORY} characters")


def _subject(opinion: OpinionGiven) -> str:
    author = reviewer_key(opinion.reviewer, opinion.objection)
    return subject_of("opinion", opinion.run, opinion.protocol, author, opinion.key)


def identity(opinion: OpinionGiven) -> tuple[str, str, str, str, bool]:
    """Whose opinion of what it is: another one of the same identity replaces it."""
    return opinion.run, opinion.protocol, opinion.key, opinion.reviewer, opinion.objection


def _same(one: OpinionGiven, other: OpinionGiven) -> bool:
    """Whether they say the same, whenever and however fast."""
    bare = {"given_at": 0.0, "seconds": 0.0, "revision": 0}
    return msgspec.structs.replace(one, **bare) == msgspec.structs.replace(other, **bare)


@contextlib.contextmanager
def _asking() -> Iterator[None]:
    try:
        yield
    except FAULTS as error:
        raise Unavailable(f"cannot read {OPINIONS}: {words(error)}") from error
