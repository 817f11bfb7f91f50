"""From messages of the source to outcomes in the run: choosing, judging, publishing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from groundwatch.errors import UNDECODED, DecodeError, InputError, TransientError
from groundwatch.events import (
    ChainAdvanced,
    ClaimsExtracted,
    ClaimsMatched,
    ClaimsVerified,
    ResponseRecorded,
    ResponseScored,
)
from groundwatch.protocols.base import Stage
from groundwatch.replay.pipeline import Pair, Pipeline
from groundwatch.replay.runs import AT_ONCE, Counts, Run, look_up
from groundwatch.replay.spec import Selection, Spec
from groundwatch.runtime.delivery.bus import Bus, Outgoing, Receipt, Stored, wait_acks
from groundwatch.runtime.delivery.outcomes import dead, outgoing, response_of
from groundwatch.runtime.delivery.streams import FAULTS, Read
from groundwatch.topology import (
    HEADER_OUTCOME,
    HEADER_PROTOCOLS,
    is_token,
    parse_subject,
    subject_of,
)

Source = ResponseRecorded | ClaimsExtracted | ClaimsVerified | ClaimsMatched | ChainAdvanced

UNKNOWN = "unknown"


class Item(Pair, kw_only=True):
    """One event of the source for one of its protocols. `broken` says why it does not decode; then the event
    is a response of nobody."""

    key: str
    response: ResponseRecorded
    broken: str = ""

    @property
    def asks(self) -> bool:
        """Whether a judge is asked for it."""
        return (
            not self.broken
            and self.response.unanswered is None
            and self.protocol not in self.response.declined
        )


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

    def __init__(self, spec: Spec) -> None:
        self._run = spec.run
        self._recorded = spec.stage == Stage.EXTRACTION
        self.selection = Selection(spec)
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
            if address is None or not self.selection.subject(address):
                continue
            key = address.key
            try:
                event = self._decoder.decode(message.data)
            except UNDECODED as error:
                if self.selection.everything:
                    responses += 1
                    items += self._broken(message, key, address.protocol, str(error))
                continue
            response = response_of(event)
            if not self.selection.response(response):
                continue
            responses += 1
            response = msgspec.structs.replace(response, run=self._run)
            if self._recorded:
                judged, left_out = self.selection.asked(response.protocols)
                chains += left_out
                items += [
                    Item(response, protocol, key=key, response=response)
                    for protocol in (response.protocols if with_chains else judged)
                    if is_token(protocol)
                ]
            else:
                event = _with_response(event, response)
                items.append(Item(event, address.protocol, key=key, response=response))
        return Chosen(items, len(messages), responses, messages[-1].sequence if messages else 0, chains)

    def _broken(self, message: Read, key: str, protocol: str, why: str) -> list[Item]:
        nobody = ResponseRecorded(id=UNKNOWN, model=UNKNOWN, tenant=UNKNOWN, answer="", run=self._run)
        named = (protocol,) if protocol else self.selection.named(message.headers.get(HEADER_PROTOCOLS, ""))
        broken = why or "does not decode"
        return [Item(nobody, name, key=key, response=nobody, broken=broken) for name in named]


class Writer:
    """Judges items and publishes what comes of them into the run. Counts what became of each."""

    def __init__(
        self,
        bus: Bus,
        run: Run,
        pipeline: Pipeline,
        *,
        begin_protocol: Callable[[str, dict[str, str]], Awaitable[None]],
        away: Callable[[Exception], Awaitable[None]],
    ) -> None:
        self._bus = bus
        self._run = run.name
        self._keep = run.spec.keep
        self._nonce = run.nonce
        self._pipeline = pipeline
        self._stage = Stage(run.spec.stage)
        self._begin_protocol = begin_protocol
        self._away = away
        self._begun: set[str] = set()
        self._beginning = asyncio.Lock()

    async def write(self, chosen: Chosen, *, look_first: bool) -> Counts:
        """Judge and publish. `look_first` asks the stream first which outcomes there are already, so that
        no judge is paid twice."""
        counts = Counts(events=chosen.events, responses=chosen.responses)
        items = await self._without_done(chosen.items, counts) if look_first else chosen.items
        await self.judge(items)
        if self._keep:
            await self._create([(item, message) for item in items for message in item.messages[:-1]])
        stored = await self._create([(item, item.messages[-1]) for item in items])
        existed = []
        for item, what in zip(items, stored, strict=True):
            if what is Stored.NEW:
                counts.add(item.outcome)
            else:
                existed.append(item)
        for item in await self._without_done(existed, counts):
            # Refused as a repeat, and yet not there: somebody has erased it meanwhile.
            counts.add(item.outcome)
        return counts

    async def judge(self, items: list[Item]) -> None:
        """Bring each to its outcome."""
        for item in items:
            if item.broken:
                item.fail(self._stage.value, DecodeError(item.broken))
        asked = {item.protocol for item in items if item.asks}
        if asked - self._begun:
            # One after the other: who came first is judged first.
            async with self._beginning:
                for name in asked - self._begun:
                    if judges := await self._pipeline.judges(name, self._stage):
                        await self._begin_protocol(name, judges)
                    self._begun.add(name)
        await self._pipeline.judge(self._stage, [item for item in items if not item.broken])

    async def _create(self, messages: list[tuple[Item, Outgoing]]) -> list[Stored]:
        """Publish all, however long the server takes to come back."""
        stored: dict[int, Stored] = {}
        while left := [index for index in range(len(messages)) if index not in stored]:
            sent: dict[int, Receipt] = {}
            trouble: TransientError | None = None
            try:
                for index in left:
                    sent[index] = await self._send(*messages[index])
            except TransientError as error:
                trouble = error
            await wait_acks(sent.values())
            for index, receipt in sent.items():
                try:
                    stored[index] = receipt.result()
                except TransientError as error:
                    trouble = error
            if trouble is not None:
                await self._away(trouble)
        return [stored[index] for index in range(len(messages))]

    async def _send(self, item: Item, message: Outgoing) -> Receipt:
        """An outcome that the server does not take is told by its reason; other events leave their place.

        By the run's own number: the server knows the ids of a deleted run of this name for minutes.
        """
        subject = message.subject
        if HEADER_OUTCOME in message.headers and not subject.endswith(f".{item.key}"):
            subject = subject_of("outcome", self._run, item.protocol, item.key)
        numbered = msgspec.structs.replace(message, subject=subject, message_id=f"{self._nonce}-{subject}")
        try:
            return await self._bus.start_create(numbered)
        except InputError as error:
            bare = msgspec.structs.replace(numbered, payload=b"")
            if HEADER_OUTCOME in message.headers:
                judges, usage = item.outcome.judges, item.outcome.usage
                why = dead(item.response, item.protocol, Stage.SCORING, error, judges=judges, usage=usage)
                item.go_on(outgoing(why))
                bare = msgspec.structs.replace(numbered, payload=why, headers=item.messages[-1].headers)
            return await self._bus.start_create(bare)

    async def _without_done(self, items: list[Item], counts: Counts) -> list[Item]:
        """Those that have no outcome in the run yet; the others are counted as they are there."""
        left = []
        for start in range(0, len(items), AT_ONCE):
            part = items[start : start + AT_ONCE]
            for item, outcome in zip(part, await self._there(part), strict=True):
                if outcome is None:
                    left.append(item)
                else:
                    counts.add(outcome, repeated=True)
        return left

    async def _there(self, items: list[Item]) -> list[ResponseScored | None]:
        subjects = [subject_of("outcome", self._run, item.protocol, item.key) for item in items]
        while True:
            try:
                return await look_up(self._bus.history, subjects)
            except (*FAULTS, TransientError) as error:
                await self._away(error)


def _with_response(event: Source, response: ResponseRecorded) -> Source:
    match event:
        case ResponseRecorded():
            return response
        case ClaimsVerified() | ClaimsMatched():
            extracted = msgspec.structs.replace(event.extracted, response=response)
            return msgspec.structs.replace(event, extracted=extracted)
    return msgspec.structs.replace(event, response=response)
