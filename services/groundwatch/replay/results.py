"""How far the same judges say the same in a run as in its source."""

from collections.abc import AsyncIterator, Iterable

import msgspec

from groundwatch import topology
from groundwatch.errors import UNDECODED
from groundwatch.events import OutcomeKind, ResponseScored, Usage
from groundwatch.runtime.delivery.bus import ENCODER
from groundwatch.runtime.delivery.history import History

AT_ONCE = 50
"""Outcomes that are looked up together."""

_DECODER = msgspec.json.Decoder(ResponseScored)


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """How far a replay judged as its source did. `pairs` have an outcome in both runs, `same_judges` of them
    by the same judges, `changed` of those with other bytes. `share` is changed by same_judges."""

    pairs: int
    same_judges: int
    changed: int
    share: float | None


async def paired(
    history: History, left: str, right: str, *, first: int = 1, last: int | None = None
) -> AsyncIterator[tuple[ResponseScored, ResponseScored]]:
    """The outcomes of the same response and protocol in two runs, in the order of the right one, from its
    sequence `first` to `last`. Outcomes that do not decode count as absent."""
    part: list[tuple[str, bytes]] = []

    async def looked_up() -> list[tuple[ResponseScored, ResponseScored]]:
        found = await look_up(history, [subject for subject, _ in part])
        both = [(one, _decoded(data)) for one, (_, data) in zip(found, part, strict=True)]
        part.clear()
        return [(one, other) for one, other in both if one is not None and other is not None]

    async for message in history.read(
        topology.OUTCOMES,
        subjects=(topology.run_subjects("outcome", right),),
        start_sequence=first,
        last_sequence=last,
    ):
        if (address := topology.parse_subject(message.subject)) is not None:
            part.append((topology.subject_of("outcome", left, address.protocol, address.key), message.data))
        if len(part) == AT_ONCE:
            for pair in await looked_up():
                yield pair
    for pair in await looked_up():
        yield pair


def judgement(outcome: ResponseScored) -> bytes:
    """The bytes that are equal when the same judges say the same.

    All of the outcome but the name of its run, the moment of scoring and what the judging took.
    """
    return ENCODER.encode(msgspec.structs.replace(outcome, run="", scored_at=0.0, usage=Usage()))


async def changed(
    history: History,
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
    async for left, right in paired(history, source, run, first=first, last=last):
        if pairs == most:
            break
        pairs += 1
        if OutcomeKind.DECLINED in (left.outcome, right.outcome) or left.judges != right.judges:
            continue
        same += 1
        other += judgement(left) != judgement(right)
    return Changed(pairs=pairs, same_judges=same, changed=other, share=other / same if same else None)


async def look_up(history: History, subjects: Iterable[str]) -> list[ResponseScored | None]:
    found = await history.last_of_each(topology.OUTCOMES, list(subjects))
    return [_decoded(one.data) if one is not None else None for one in found]


def _decoded(data: bytes) -> ResponseScored | None:
    try:
        return _DECODER.decode(data)
    except UNDECODED:
        return None
