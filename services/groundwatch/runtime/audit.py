"""The ledger: recorded = scored + unscored + declined + in flight, counted from the streams themselves.

Nothing here trusts a counter. A response without an outcome is *in flight* only if its event can be
pointed at: waiting for, or held by, the consumer of the stage it has reached. One that every stage has
acknowledged and that still has no outcome is *lost*, and the ledger does not balance.

Consumers only move forward and streams only grow, so the consumers' positions are read first: whatever a
stage had acknowledged by then left its result where the later reading finds it. That makes the audit
exact while traffic flows.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec
import nats.js.errors

from groundwatch.errors import UsageError
from groundwatch.events import LIVE, OutcomeKind
from groundwatch.runtime.streams import read_stream
from groundwatch.topology import (
    CONSUMERS,
    DEAD,
    EXTRACTED,
    HEADER_OUTCOME,
    HEADER_PROTOCOLS,
    HEADER_REASON,
    JUDGED,
    OUTCOMES,
    PREFIX,
    RESPONSES,
    parse_subject,
)

if TYPE_CHECKING:
    from nats.js import JetStreamContext

EXPIRY_MARGIN = 3600.0
"""Seconds: an outcome this close behind the oldest response kept may outlive its response."""

Pair = tuple[str, str]
"""Key of a response, and protocol."""


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """The balance of one run. All but `responses`, `dead_letters` and `foreign` count pairs of a response
    and a protocol.

    `lost` have been acknowledged everywhere and have no outcome; `orphans` are outcomes of responses that
    were never recorded; `expired` are outcomes whose responses retention has removed; `foreign` are
    messages in the source stream that no gateway wrote.
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
    foreign: int
    dead_letters: int
    reasons: dict[str, int]
    in_flight_at: dict[str, int]
    balanced: bool


async def audit(js: JetStreamContext, run: str = LIVE) -> Ledger:
    """Count one run. Raises `UsageError` when the streams do not exist."""
    try:
        return await _audit(js, run)
    except nats.js.errors.NotFoundError as error:
        raise UsageError("nothing is provisioned on this server: run groundwatch provision first") from error


async def _audit(js: JetStreamContext, run: str) -> Ledger:
    positions = {spec.name: await _position(js, spec.stream, spec.name) for spec in CONSUMERS}
    last_sequence = (await js.stream_info(RESPONSES)).state.last_seq
    oldest = await _oldest_time(js)
    waiting: dict[Pair, int] = {}
    keys: set[str] = set()
    foreign = 0
    async for message in read_stream(
        js,
        RESPONSES,
        subjects=(f"{PREFIX}.recorded.{run}.>",),
        headers_only=True,
        last_sequence=last_sequence,
    ):
        address = parse_subject(message.subject)
        protocols = message.headers.get(HEADER_PROTOCOLS)
        if address is None or not protocols:
            foreign += 1
            continue
        keys.add(address.key)
        for protocol in protocols.split(","):
            waiting[address.key, protocol] = message.sequence
    recorded = len(waiting)

    kinds: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    unknown: list[tuple[Pair, float]] = []
    async for message in read_stream(
        js, OUTCOMES, subjects=(f"{PREFIX}.outcome.{run}.>",), headers_only=True
    ):
        address = parse_subject(message.subject)
        if address is None:
            continue
        pair = (address.key, address.protocol)
        if waiting.pop(pair, None) is None:
            unknown.append((pair, message.time))
            continue
        kind = message.headers.get(HEADER_OUTCOME, "")
        kinds[kind] += 1
        if reason := message.headers.get(HEADER_REASON):
            reasons[f"{kind}: {reason}"] += 1

    reached = await _reached(js, run, waiting)
    in_flight: Counter[str] = Counter()
    for pair, sequence in waiting.items():
        stage = _where(pair, sequence, positions, reached)
        if stage is not None:
            in_flight[stage] += 1
    lost = len(waiting) - in_flight.total()
    orphans = expired = 0
    for (key, protocol), when in unknown:
        if oldest and when < oldest + EXPIRY_MARGIN:
            expired += 1
        elif key in keys or not await _recorded_since(js, run, key, protocol):
            orphans += 1
    counted = sum(kinds[kind.value] for kind in OutcomeKind)
    return Ledger(
        run=run,
        responses=len(keys),
        recorded=recorded,
        scored=kinds[OutcomeKind.SCORED.value],
        unscored=kinds[OutcomeKind.UNSCORED.value],
        declined=kinds[OutcomeKind.DECLINED.value],
        in_flight=in_flight.total(),
        lost=lost,
        orphans=orphans,
        expired=expired,
        foreign=foreign,
        dead_letters=(await js.stream_info(DEAD)).state.messages,
        reasons=dict(reasons.most_common()),
        in_flight_at=dict(in_flight.most_common()),
        balanced=recorded == counted + in_flight.total() and orphans == 0,
    )


async def _position(js: JetStreamContext, stream: str, consumer: str) -> int:
    """Up to which sequence of its stream the consumer has acknowledged everything."""
    info = await js.consumer_info(stream, consumer)
    floor: int = info.ack_floor.stream_seq if info.ack_floor else 0
    if not info.num_ack_pending and info.delivered:
        return max(floor, int(info.delivered.stream_seq))
    return floor


async def _oldest_time(js: JetStreamContext) -> float:
    """When the oldest response still kept was stored; 0 while none has been removed."""
    state = (await js.stream_info(RESPONSES)).state
    if state.first_seq <= 1 or not state.messages:
        return 0.0
    async for message in read_stream(
        js, RESPONSES, headers_only=True, start_sequence=state.first_seq, last_sequence=state.first_seq
    ):
        return message.time
    return 0.0


async def _reached(
    js: JetStreamContext, run: str, waiting: dict[Pair, int]
) -> dict[Pair, list[tuple[str, int]]]:
    """For each pair that waits, the later stages it was sent to, with the event's sequence there."""
    reached: dict[Pair, list[tuple[str, int]]] = {}
    if not waiting:
        return reached
    for stream, kind in ((EXTRACTED, "extracted"), (JUDGED, "judged")):
        async for message in read_stream(
            js, stream, subjects=(f"{PREFIX}.{kind}.{run}.>",), headers_only=True
        ):
            address = parse_subject(message.subject)
            if address is not None and (pair := (address.key, address.protocol)) in waiting:
                reached.setdefault(pair, []).append((address.stage, message.sequence))
    return reached


def _where(
    pair: Pair,
    sequence: int,
    positions: dict[str, int],
    reached: dict[Pair, list[tuple[str, int]]],
) -> str | None:
    """The stage that has the pair's event now; None when every stage has let go of it."""
    if sequence > positions["extraction"]:
        return "extraction"
    for stage, at in reversed(reached.get(pair, [])):
        if at > positions.get(stage, 0):
            return stage
    return None


async def _recorded_since(js: JetStreamContext, run: str, key: str, protocol: str) -> bool:
    """Whether an outcome belongs to a response recorded after the reading began."""
    try:
        found = await js.get_last_msg(RESPONSES, f"{PREFIX}.recorded.{run}.{key}")
    except nats.js.errors.NotFoundError:
        return False
    return protocol in (found.headers or {}).get(HEADER_PROTOCOLS, "").split(",")
