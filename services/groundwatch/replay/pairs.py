"""Two runs side by side, response by response: what comparing them reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import msgspec

from groundwatch.errors import UNDECODED
from groundwatch.events import OutcomeKind, ResponseScored, Usage
from groundwatch.runtime.delivery.bus import ENCODER
from groundwatch.runtime.delivery.streams import last_message, read_stream
from groundwatch.topology import OUTCOMES, outcome_subject, parse_subject, run_subjects

if TYPE_CHECKING:
    from nats.js import JetStreamContext

LOOKUPS = 50

_DECODER = msgspec.json.Decoder(ResponseScored)

Pair = tuple[ResponseScored | None, ResponseScored | None]


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """How far a replay judged as its source did. `pairs` have an outcome in both runs, `same_judges` of them
    by the same judges, `changed` of those with other bytes. `share` is changed by same_judges."""

    pairs: int
    same_judges: int
    changed: int
    share: float | None


async def paired(
    js: JetStreamContext,
    left: str,
    right: str,
    *,
    both: bool = False,
    first: int = 1,
    last: int | None = None,
) -> AsyncIterator[Pair]:
    """Every outcome of the two runs beside that of the same response and protocol in the other, or None.

    In the order of the right run, from the sequence `first` to `last`; those that only the left one has come
    last, and not at all with `both`. Outcomes that do not decode count as absent. Holds 48 bytes for
    each outcome of the right run.
    """
    seen: set[bytes] = set()
    part: list[tuple[str, str, bytes]] = []

    async def looked_up() -> list[Pair]:
        found = await asyncio.gather(
            *(_outcome(js, outcome_subject(left, protocol, key)) for key, protocol, _ in part)
        )
        pairs = [(one, _decoded(data)) for one, (_, _, data) in zip(found, part, strict=True)]
        part.clear()
        return pairs

    async for message in read_stream(
        js, OUTCOMES, subjects=(run_subjects("outcome", right),), start_sequence=first, last_sequence=last
    ):
        address = parse_subject(message.subject)
        if address is None:
            continue
        if not both:
            seen.add(f"{address.protocol}.{address.key}".encode())
        part.append((address.key, address.protocol, message.data))
        if len(part) == LOOKUPS:
            for pair in await looked_up():
                if not both or None not in pair:
                    yield pair
    for pair in await looked_up():
        if not both or None not in pair:
            yield pair
    if both:
        return
    async for message in read_stream(js, OUTCOMES, subjects=(run_subjects("outcome", left),)):
        address = parse_subject(message.subject)
        if address is not None and f"{address.protocol}.{address.key}".encode() not in seen:
            yield _decoded(message.data), None


def judgement(outcome: ResponseScored) -> bytes:
    """The bytes that are equal when the same judges say the same.

    All of the outcome but the name of its run, the moment of scoring and what the judging took.
    """
    return ENCODER.encode(msgspec.structs.replace(outcome, run="", scored_at=0.0, usage=Usage()))


async def changed(
    js: JetStreamContext,
    source: str,
    run: str,
    *,
    first: int = 1,
    last: int | None = None,
    most: int | None = None,
) -> Changed:
    """Compare each outcome of a run with that of its source, where the same judges judged: all of them, or
    at `most` so many of the sequences `first` to `last`."""
    pairs = same = other = 0
    async for left, right in paired(js, source, run, both=True, first=first, last=last):
        if pairs == most:
            break
        assert left is not None and right is not None
        pairs += 1
        if OutcomeKind.DECLINED in (left.outcome, right.outcome) or left.judges != right.judges:
            continue
        same += 1
        other += judgement(left) != judgement(right)
    return Changed(pairs=pairs, same_judges=same, changed=other, share=other / same if same else None)


async def _outcome(js: JetStreamContext, subject: str) -> ResponseScored | None:
    found = await last_message(js, OUTCOMES, subject)
    return _decoded(found.data) if found is not None else None


def _decoded(data: bytes) -> ResponseScored | None:
    try:
        return _DECODER.decode(data)
    except UNDECODED:
        return None
