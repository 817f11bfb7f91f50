"""One answer with everything that is known of it: what was recorded, how it was judged, in which runs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from groundwatch.errors import UNDECODED, TransientError
from groundwatch.events import (
    LIVE,
    ChainAdvanced,
    ClaimsMatched,
    ClaimsVerified,
    ResponseRecorded,
    ResponseScored,
)
from groundwatch.gateway.answers.search import AnswerSearch
from groundwatch.keys import in_partition, response_key
from groundwatch.protocols.base import Stage
from groundwatch.reporting.answers import AnswerQuery, Hit
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.placing import places_of
from groundwatch.runtime.delivery.streams import FAULTS, last_message
from groundwatch.topology import EXTRACTED, JUDGED, OUTCOMES, RESPONSES, parse_subject, subject_of
from groundwatch.topology.partitions import stream_of

OF_ONE = 200
"""Outcomes of one response at most, of all protocols and runs."""

_RECORDED = msgspec.json.Decoder(ResponseRecorded)
_SCORED = msgspec.json.Decoder(ResponseScored)
_JUDGED = msgspec.json.Decoder(ClaimsVerified | ClaimsMatched | ChainAdvanced)

T = TypeVar("T")


class RawEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event as it lies in its stream, or did."""

    subject: str
    data: bytes


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A response in one of its `runs`. `hits` are its outcomes in all, `outcomes` those of this run by
    protocol; on what is `waiting` nothing has been decided yet. `response` is None where only outcomes are
    left."""

    key: str
    id: str
    tenant: str
    run: str
    response: ResponseRecorded | None
    runs: tuple[str, ...]
    outcomes: dict[str, ResponseScored]
    waiting: tuple[str, ...]
    hits: tuple[Hit, ...]
    events: tuple[RawEvent, ...]
    judged: dict[str, ClaimsVerified | ClaimsMatched | ChainAdvanced]


class ErasedAnswer(msgspec.Struct, frozen=True):
    """One that was erased."""


async def find_answer(
    bus: Bus, search: AnswerSearch, tenant: str, name: str, run: str = ""
) -> Answer | ErasedAnswer | None:
    """None where nothing of this id is recorded. Raises `TransientError` when it cannot be looked up now."""
    key = response_key(tenant, name)
    if search.is_erased(key, tenant):
        return ErasedAnswer()
    page, places = await asyncio.gather(
        search.search(AnswerQuery(id=name, tenant=tenant), most=OF_ONE), _places(bus, key)
    )
    hits = page.hits
    runs = tuple(dict.fromkeys([*([LIVE] if any(hit.run == LIVE for hit in hits) else []), *_runs(hits)]))
    wanted = run or (runs[0] if runs else LIVE)
    keys = list(dict.fromkeys([*(hit.key for hit in hits), *(in_partition(key, one) for one in places)]))
    own = [hit for hit in hits if hit.run == wanted]
    events = await _hot(bus, wanted, keys, [hit.protocol for hit in own])
    response = _decoded(_RECORDED, events, RESPONSES)
    if response is None and hits:
        events = await _archived(search, hits, wanted) or events
        response = _decoded(_RECORDED, events, RESPONSES)
    if response is None and not own:
        return None
    outcomes = {
        event.protocol: event
        for _, raw in events
        if parse_kind(raw.subject) == "outcome" and (event := _decode(_SCORED, raw.data)) is not None
    }
    missing = [hit for hit in own if hit.protocol not in outcomes]
    for event in await search.archived_outcomes(missing):
        outcomes[event.protocol] = event
    protocols = dict.fromkeys([*(response.protocols if response else ()), *outcomes])
    judged = {}
    for _, raw in events:
        if parse_kind(raw.subject) == "judged" and (found := _decode(_JUDGED, raw.data)) is not None:
            address = parse_subject(raw.subject)
            judged[address.protocol if address else ""] = found
    return Answer(
        key=keys[0],
        id=name,
        tenant=tenant,
        run=wanted,
        response=response,
        runs=runs or (wanted,),
        outcomes={name: outcomes[name] for name in protocols if name in outcomes},
        waiting=tuple(name for name in protocols if name not in outcomes),
        hits=tuple(hits),
        events=tuple(raw for _, raw in events),
        judged=judged,
    )


def parse_kind(subject: str) -> str:
    address = parse_subject(subject)
    return address.kind if address is not None else ""


def _runs(hits: Sequence[Hit]) -> list[str]:
    return sorted({hit.run for hit in hits})


async def _places(bus: Bus, key: str) -> tuple[int, ...]:
    try:
        return await places_of(bus, key)
    except FAULTS as error:
        raise TransientError(f"cannot read {RESPONSES}: {error!r}") from error


async def _hot(
    bus: Bus, run: str, keys: Sequence[str], protocols: Sequence[str]
) -> list[tuple[str, RawEvent]]:
    """Events of this run that streams hold, each with its stream's name in the first partition."""
    recorded = await _last(bus, [(RESPONSES, subject_of("recorded", run, key)) for key in keys])
    response = _decoded(_RECORDED, recorded, RESPONSES)
    if response is not None:
        keys = [response.key]
        protocols = list(dict.fromkeys([*response.protocols, *protocols]))
    wanted = []
    for key in keys:
        for protocol in protocols:
            wanted += [
                (EXTRACTED, subject_of("extracted", run, stage, protocol, key))
                for stage in (Stage.VERIFICATION, Stage.MATCHING, Stage.SCORING)
            ]
            wanted.append((JUDGED, subject_of("judged", run, Stage.SCORING, protocol, key)))
            wanted.append((OUTCOMES, subject_of("outcome", run, protocol, key)))
    return [*recorded, *await _last(bus, wanted)]


async def _last(bus: Bus, wanted: Sequence[tuple[str, str]]) -> list[tuple[str, RawEvent]]:
    try:
        found = await asyncio.gather(
            *(last_message(bus.js, stream_of(stream, subject), subject) for stream, subject in wanted)
        )
    except FAULTS as error:
        raise TransientError(f"cannot be read from NATS: {error!r}") from error
    return [
        (stream, RawEvent(subject=read.subject, data=read.data))
        for (stream, _), read in zip(wanted, found, strict=True)
        if read is not None
    ]


async def _archived(search: AnswerSearch, hits: Sequence[Hit], run: str) -> list[tuple[str, RawEvent]]:
    """Events of this run that have left their streams."""
    about = next((hit for hit in hits if hit.run == run), hits[0])
    found = await search.archived_messages(about.key, about.recorded_at)
    return [
        (stream, RawEvent(subject=subject, data=data))
        for stream, subject, data, _ in found
        if (address := parse_subject(subject)) is not None and address.run == run
    ]


def _decoded(
    decoder: msgspec.json.Decoder[T], events: Sequence[tuple[str, RawEvent]], stream: str
) -> T | None:
    return next(
        (event for name, raw in events if name == stream if (event := _decode(decoder, raw.data))), None
    )


def _decode(decoder: msgspec.json.Decoder[T], data: bytes) -> T | None:
    try:
        return decoder.decode(data)
    except UNDECODED:
        return None
