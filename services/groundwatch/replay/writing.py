"""From messages of the source to outcomes in the run: choosing, judging, publishing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import nats.errors
import nats.js.errors

from groundwatch.errors import UNDECODED, GroundwatchError, InputError, TransientError
from groundwatch.events import (
    ChainAdvanced,
    ClaimsExtracted,
    ClaimsMatched,
    ClaimsVerified,
    Event,
    OutcomeKind,
    ResponseRecorded,
    ResponseScored,
)
from groundwatch.protocols.base import Stage
from groundwatch.replay.engines import Engines, protocol_of
from groundwatch.replay.judging import Made, judging_stage, scored
from groundwatch.replay.runs import Run, Tally
from groundwatch.replay.spec import Selection, Spec
from groundwatch.runtime.delivery.bus import ENCODER, Outgoing, Receipt, Stored, settle
from groundwatch.runtime.delivery.outcomes import DEAD_LETTER, UNDECODABLE, without_score
from groundwatch.runtime.delivery.streams import Read
from groundwatch.topology import (
    HEADER_OUTCOME,
    HEADER_PROTOCOLS,
    HEADER_REASON,
    OUTCOMES,
    extracted_subject,
    is_token,
    judged_subject,
    outcome_subject,
    parse_subject,
)

if TYPE_CHECKING:
    from groundwatch.runtime.delivery.bus import Bus

Source = ResponseRecorded | ClaimsExtracted | ClaimsVerified | ClaimsMatched | ChainAdvanced

UNKNOWN = "unknown"
LOOKUPS = 50
"""Outcomes that are looked up at once."""

FAULTS = (nats.errors.Error, nats.js.errors.Error, OSError, TimeoutError)

_OUTCOMES = msgspec.json.Decoder(ResponseScored)


class Item(msgspec.Struct):
    """One event of the source for one of its protocols, on its way to an outcome.

    `event` None: it does not decode, and `broken` says why.
    """

    key: str
    protocol: str
    event: Source | None
    response: ResponseRecorded
    broken: str = ""
    made: Made | None = None


class Chosen(msgspec.Struct):
    """What of a list of messages the spec is about.

    `last` is the sequence up to which everything is in here or before it; `due` is when its first response
    was recorded. `chains` are pairs that a replay leaves out.
    """

    items: list[Item]
    events: int
    responses: int
    last: int
    chains: int = 0

    @property
    def due(self) -> float:
        """Seconds since the epoch; 0 without any response."""
        return self.items[0].response.recorded_at if self.items else 0.0

    def joined(self, after: Chosen, within: float) -> Chosen | None:
        """Both as one, where the responses of `after` were recorded within so many seconds of ours."""
        if self.items and after.items and abs(after.due - self.due) > within:
            return None
        return Chosen(
            self.items + after.items,
            self.events + after.events,
            self.responses + after.responses,
            after.last,
            self.chains + after.chains,
        )


class Choosing:
    """Decodes messages of the source and picks those that the spec is about."""

    def __init__(self, spec: Spec, selection: Selection) -> None:
        self._run = spec.run
        self._recorded = spec.stage == Stage.EXTRACTION
        self._selection = selection
        kinds: Any = {
            "extraction": ResponseRecorded,
            "scoring": ClaimsVerified | ClaimsMatched | ChainAdvanced,
        }.get(spec.stage, ClaimsExtracted)
        self._decoder: msgspec.json.Decoder[Source] = msgspec.json.Decoder(kinds)

    def choose(self, messages: Sequence[Read], *, with_chains: bool = False) -> Chosen:
        """The items of these messages, in their order; the run is already the replay's own.

        `with_chains` has those too that a replay leaves out: an export does not.
        """
        items: list[Item] = []
        responses = chains = 0
        for message in messages:
            address = parse_subject(message.subject)
            if address is None or not self._selection.subject(address):
                continue
            key = address.key
            try:
                event = self._decoder.decode(message.data)
            except UNDECODED as error:
                if self._selection.everything:
                    responses += 1
                    items += self._broken(message, key, address.protocol, str(error))
                continue
            response = response_of(event)
            if not self._selection.response(response):
                continue
            responses += 1
            response = msgspec.structs.replace(response, run=self._run)
            if self._recorded:
                chains += self._selection.chains(response)
                items += [
                    Item(key, protocol, response, response)
                    for protocol in (
                        response.protocols if with_chains else self._selection.protocols(response)
                    )
                    if is_token(protocol)
                ]
            else:
                items.append(Item(key, address.protocol, _with_response(event, response), response))
        return Chosen(items, len(messages), responses, messages[-1].sequence if messages else 0, chains)

    def _broken(self, message: Read, key: str, protocol: str, why: str) -> list[Item]:
        nobody = ResponseRecorded(id=UNKNOWN, model=UNKNOWN, tenant=UNKNOWN, answer="", run=self._run)
        named = (protocol,) if protocol else self._selection.named(message.headers.get(HEADER_PROTOCOLS, ""))
        return [Item(key, name, None, nobody, why or "does not decode") for name in named]


class Writer:
    """Judges items and publishes what comes of them into the run. Counts what became of each."""

    def __init__(
        self,
        bus: Bus,
        run: Run,
        engines: Engines,
        *,
        begin_protocol: Callable[[str, dict[str, str]], Awaitable[None]],
        away: Callable[[Exception], Awaitable[None]],
    ) -> None:
        self._bus = bus
        self._spec = run.spec
        self._nonce = run.nonce
        self._engines = engines
        self._begin_protocol = begin_protocol
        self._away = away
        self._begun: set[str] = set()

    async def write(self, chosen: Chosen, *, look_first: bool) -> Tally:
        """Judge and publish. `look_first` asks the stream first which outcomes there are already, so that
        no judge is paid twice."""
        tally = Tally()
        tally.events, tally.responses = chosen.events, chosen.responses
        items = chosen.items
        if look_first:
            items = await self._without_done(items, tally)
        await self._judge(items)
        await self._publish(items, tally)
        return tally

    async def _judge(self, items: list[Item]) -> None:
        groups: dict[str, list[Item]] = {}
        for item in items:
            response = item.response
            if item.event is None:
                item.made = self._without(item, OutcomeKind.UNSCORED, UNDECODABLE, item.broken)
            elif (why := response.declined.get(item.protocol)) is not None:
                item.made = self._without(item, OutcomeKind.DECLINED, why)
            elif response.unanswered is not None:
                told = response.unanswered
                item.made = self._without(item, OutcomeKind.UNSCORED, told.reason, told.detail)
            else:
                groups.setdefault(item.protocol, []).append(item)
        for name, group in groups.items():
            made = await self._made(name, [item.event for item in group])
            for index, item in enumerate(group):
                item.made = (
                    self._without(item, OutcomeKind.UNSCORED, DEAD_LETTER, str(made))
                    if isinstance(made, GroundwatchError)
                    else made[index]
                )

    async def _made(self, name: str, events: list[Any]) -> list[Made] | GroundwatchError:
        if self._spec.stage == Stage.SCORING:
            protocol = protocol_of(name)
            if isinstance(protocol, InputError):
                return protocol
            return [scored(event, protocol) for event in events]
        if name not in self._begun:
            judging = await self._engines.judging(name)
            if isinstance(judging, GroundwatchError):
                return judging
            await self._begin_protocol(name, judging.fingerprints())
            self._begun.add(name)
        return await self._engines.judge(name, events)

    def _without(self, item: Item, kind: OutcomeKind, reason: str, detail: str = "") -> Made:
        return Made(without_score(item.response, item.protocol, kind, reason, detail=detail))

    async def _publish(self, items: list[Item], tally: Tally) -> None:
        if self._spec.keep:
            await self._create([one for item in items for one in self._on_the_way(item)])
        stored = await self._create([self._outcome(item) for item in items])
        existed = []
        for item, what in zip(items, stored, strict=True):
            made = item.made
            assert made is not None
            if what is Stored.NEW:
                tally.outcome(made.outcome.outcome, made.outcome.reason, made.outcome.usage)
            else:
                existed.append(item)
        if existed:
            for item in await self._without_done(existed, tally):
                # Refused as a repeat, and yet not there: somebody has erased it meanwhile.
                made = item.made
                assert made is not None
                tally.outcome(made.outcome.outcome, made.outcome.reason, made.outcome.usage)

    def _outcome(self, item: Item) -> Outgoing:
        assert item.made is not None
        outcome = item.made.outcome
        headers = {HEADER_OUTCOME: outcome.outcome.value}
        if outcome.reason:
            headers[HEADER_REASON] = outcome.reason
        return Outgoing(
            subject=outcome_subject(self._spec.run, item.protocol, item.key),
            payload=ENCODER.encode(outcome),
            # The run's own number: the server knows the ids of a deleted run of this name for minutes.
            message_id=f"{self._nonce}-{item.protocol}-{item.key}",
            headers=headers,
        )

    def _on_the_way(self, item: Item) -> list[Outgoing]:
        made = item.made
        assert made is not None
        found = []
        run, name, key = self._spec.run, item.protocol, item.key
        if self._spec.stage == Stage.EXTRACTION and made.extracted is not None:
            protocol = protocol_of(name)
            assert not isinstance(protocol, InputError)
            stage = judging_stage(protocol).value
            found.append(
                self._kept(extracted_subject(run, stage, name, key), "extracted", item, made.extracted)
            )
        if made.judged is not None and self._spec.stage != Stage.SCORING:
            found.append(
                self._kept(judged_subject(run, Stage.SCORING.value, name, key), "judged", item, made.judged)
            )
        return found

    def _kept(self, subject: str, kind: str, item: Item, event: Event) -> Outgoing:
        return Outgoing(
            subject=subject,
            payload=ENCODER.encode(event),
            message_id=f"{self._nonce}-{kind}-{item.protocol}-{item.key}",
        )

    async def _create(self, messages: list[Outgoing]) -> list[Stored]:
        """Publish all, however long the server takes to come back."""
        found: dict[int, Stored] = {}
        while len(found) < len(messages):
            sent: dict[int, Receipt] = {}
            trouble: TransientError | None = None
            for index, message in enumerate(messages):
                if index in found:
                    continue
                try:
                    sent[index] = await self._send(message)
                except TransientError as error:
                    trouble = error
                    break
            await settle(sent.values())
            for index, receipt in sent.items():
                try:
                    found[index] = receipt.result()
                except TransientError as error:
                    trouble = error
            if trouble is not None:
                await self._away(trouble)
        return [found[index] for index in range(len(messages))]

    async def _send(self, message: Outgoing) -> Receipt:
        try:
            return await self._bus.start_create(message)
        except InputError:
            return await self._bus.start_create(self._too_large(message))

    def _too_large(self, message: Outgoing) -> Outgoing:
        """An outcome with more claims than the server takes is told by its reason; its claims are lost."""
        if HEADER_OUTCOME not in message.headers:
            return msgspec.structs.replace(message, payload=b"")
        outcome = _OUTCOMES.decode(message.payload)
        limit = self._bus.client.max_payload
        why = f"an outcome of {len(message.payload)} bytes does not fit the server's max_payload of {limit}"
        bare = msgspec.structs.replace(
            outcome,
            outcome=OutcomeKind.UNSCORED,
            score=None,
            values={},
            reason=DEAD_LETTER,
            detail=why,
            units=(),
            claims=(),
        )
        return msgspec.structs.replace(
            message,
            payload=ENCODER.encode(bare),
            headers={HEADER_OUTCOME: OutcomeKind.UNSCORED.value, HEADER_REASON: DEAD_LETTER},
        )

    async def _without_done(self, items: list[Item], tally: Tally) -> list[Item]:
        """Those that have no outcome in the run yet; the others are counted as they are there."""
        left = []
        for start in range(0, len(items), LOOKUPS):
            part = items[start : start + LOOKUPS]
            found = await asyncio.gather(*(self._there(item) for item in part))
            for item, outcome in zip(part, found, strict=True):
                if outcome is None:
                    left.append(item)
                else:
                    tally.outcome(outcome.outcome, outcome.reason, outcome.usage, repeated=True)
        return left

    async def _there(self, item: Item) -> ResponseScored | None:
        subject = outcome_subject(self._spec.run, item.protocol, item.key)
        while True:
            try:
                message = await self._bus.js.get_last_msg(OUTCOMES, subject)
                return _OUTCOMES.decode(message.data or b"")
            except nats.js.errors.NotFoundError:
                return None
            except FAULTS as error:
                await self._away(error)


def response_of(event: Source) -> ResponseRecorded:
    """The response that an event is about."""
    match event:
        case ResponseRecorded():
            return event
        case ClaimsVerified() | ClaimsMatched():
            return event.extracted.response
    return event.response


def _with_response(event: Source, response: ResponseRecorded) -> Source:
    match event:
        case ResponseRecorded():
            return response
        case ClaimsVerified() | ClaimsMatched():
            extracted = msgspec.structs.replace(event.extracted, response=response)
            return msgspec.structs.replace(event, extracted=extracted)
    return msgspec.structs.replace(event, response=response)
