"""The dead letters: every event that could not be processed, whole, with its reason.

Burying writes the dead letter first and then the outcome that stands for it, so the ledger balances at
every moment. `send_again` gives a dead letter back to its stage; if that succeeds, its outcome replaces
the one that stood for it.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping

import msgspec
import nats.errors

from groundwatch.errors import UNDECODED, DecodeError, InputError, TransientError, Unavailable, words
from groundwatch.events import REPLACEABLE, Event, ResponseRecorded
from groundwatch.keys import digest
from groundwatch.runtime.delivery.bus import Bus, Outgoing, Stored
from groundwatch.runtime.delivery.outcomes import (
    Superseded,
    dead,
    header_of,
    named_in,
    outgoing,
    replace_dead,
    response_of,
)
from groundwatch.runtime.delivery.streams import Read, read_stream
from groundwatch.runtime.delivery.work import Arrived
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import (
    DEAD,
    HEADER_ORIGIN,
    HEADER_PROTOCOLS,
    HEADER_REASON,
    HEADER_RETRY,
    HEADER_TRACE,
    OUTCOMES,
    RESPONSES,
    is_token,
    number_in,
    parse_subject,
    subject_of,
)

UNKNOWN = "unknown"

LETTER_ONLY = ("outcome", "alarm", "second")
"""Events that no outcome follows from."""


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter as people see it. `sequence` is what `groundwatch admin dead retry` takes."""

    sequence: int
    stage: str
    reason: str
    subject: str
    protocols: tuple[str, ...]
    retries: int
    time: float
    payload: bytes
    trace: str = ""


class DeadLetters:
    """Buries what a stage, or the gateway's intake, could not process, or `receiver` could not be told of."""

    def __init__(self, bus: Bus, stage: str, metrics: Metrics, receiver: str = "") -> None:
        self._receiver = receiver
        self._bus = bus
        self._stage = stage
        self._metrics = metrics

    async def bury(
        self, arrived: Arrived, event: Event | None, failed: tuple[str, ...], error: Exception
    ) -> None:
        """Write the dead letter, then an unscored outcome for each protocol that failed.

        A question has none yet, nor has what was never recorded: only what is recorded has outcomes. An
        outcome or an alarm on its way out leaves a letter only, and `failed` are receivers; so does an answer
        on its way to a second judge, which has its outcome.
        `failed` empty means: every protocol of the message. A message whose protocols end one after the other
        leaves a letter for each time. Raises `Unavailable` when the streams cannot be reached.
        """
        address = arrived.address
        run = address.run if address else UNKNOWN
        told = address is not None and address.kind in ("outcome", "alarm")
        if told and not failed:
            failed = arrived.asked or (self._receiver,)
        letter_only = address is not None and address.kind in LETTER_ONLY
        response = response_of(event) if event is not None and not letter_only else None
        protocols = (
            failed or arrived.protocols or ((address.protocol,) if address and address.protocol else ())
        )
        if not protocols and response is not None:
            protocols = tuple(name for name in response.protocols if name not in response.declined)
        # Whoever writes beside the gateway may name anything; what cannot be in a subject has no outcome.
        protocols = tuple(filter(is_token, protocols))
        headers = {
            HEADER_ORIGIN: arrived.origin,
            HEADER_REASON: _one_line(f"{_kind(error)}: {error}"),
            HEADER_RETRY: str(number_in(arrived.headers.get(HEADER_RETRY, ""))),
        }
        if protocols:
            headers[HEADER_PROTOCOLS] = ",".join(protocols)
        letter_key = digest(arrived.fingerprint, *sorted(failed))[:32] if failed else arrived.fingerprint
        letter = Outgoing(
            subject=subject_of("dead", self._stage, run, letter_key),
            payload=arrived.message.data,
            message_id=("dead", self._stage, letter_key),
            headers=headers,
            whole=True,
        ).carrying(arrived.trace)
        try:
            stored = await self._bus.create(letter)
        except InputError as too_large:
            where = f"; its bytes stay in {arrived.stream} at sequence {arrived.sequence}"
            headers[HEADER_REASON] = _one_line(f"{_kind(error)}: {error} ({too_large}{where})")
            empty = msgspec.structs.replace(letter, payload=b"", headers=headers)
            stored = await self._bus.create(empty.carrying(arrived.trace))
        if stored is Stored.NEW:
            self._metrics.dead_letters.labels(self._stage, _kind(error)).inc()
            logger.error(
                "dead_letter", stage=self._stage, subject=arrived.origin, reason=headers[HEADER_REASON]
            )
        if address is None or not protocols or letter_only or address.kind in ("asked", "intake"):
            return
        response = response or await self._recorded(address.run, address.key)
        # What the event itself says of its run may be what is wrong with it.
        response = msgspec.structs.replace(response, run=address.run)
        superseded = named_in(arrived.headers)
        for protocol in protocols:
            outcome = dead(response, protocol, self._stage, error)
            message = outgoing(outcome, key=address.key)
            if protocol in superseded:
                # It was sent again, and one stands for it already.
                continue
            message = message.carrying({**arrived.trace, HEADER_ORIGIN: arrived.origin})
            stored = await self._bus.create(message)
            if stored is Stored.EXISTED:
                stored = await replace_dead(self._bus, message)
            if stored is Stored.NEW:
                self._metrics.outcome(outcome)

    async def _recorded(self, run: str, key: str) -> ResponseRecorded:
        """The response as recorded, when the event at hand cannot say whose it is."""
        try:
            found = await self._bus.history.last(RESPONSES, subject_of("recorded", run, key))
            return msgspec.json.decode(found.data if found is not None else b"", type=ResponseRecorded)
        except UNDECODED:
            return ResponseRecorded(id=UNKNOWN, model=UNKNOWN, tenant=UNKNOWN, answer="", run=run)
        except (nats.errors.Error, OSError, TimeoutError) as error:
            raise Unavailable(f"cannot read the recorded response: {words(error)}") from error


async def dead_letters(bus: Bus, first: int = 1) -> AsyncIterator[DeadLetter]:
    """All dead letters from sequence `first` on, oldest first."""
    async for message in read_stream(bus.js, DEAD, start_sequence=first):
        address = parse_subject(message.subject)
        headers = message.headers
        yield DeadLetter(
            sequence=message.sequence,
            stage=address.stage if address else UNKNOWN,
            reason=headers.get(HEADER_REASON, ""),
            subject=headers.get(HEADER_ORIGIN, ""),
            protocols=tuple(filter(None, headers.get(HEADER_PROTOCOLS, "").split(","))),
            retries=number_in(headers.get(HEADER_RETRY, "")),
            time=message.time,
            payload=message.data,
            trace=headers.get(HEADER_TRACE, ""),
        )


async def send_again(bus: Bus, letter: DeadLetter) -> None:
    """Give a dead letter back to its stage, then remove it; one whose protocols all have their outcome by now
    only goes.

    A crash in between leaves both; the message id keeps the second try from doubling the first. Raises what
    NATS and the archive raise.
    """
    outcomes = await _outcomes_of(bus, letter)
    reasons = {name: one.headers.get(HEADER_REASON, "") for name, one in outcomes.items()}
    standing = {
        name: Superseded(outcomes[name].sequence, reason)
        for name, reason in reasons.items()
        if reason in REPLACEABLE
    }
    protocols = tuple(name for name in letter.protocols if name not in reasons or name in standing)
    if protocols or not letter.protocols:
        await bus.create(_again(letter, protocols, standing))
    await asyncio.wait_for(bus.js.delete_msg(DEAD, letter.sequence), 10)


def _again(letter: DeadLetter, protocols: tuple[str, ...], standing: Mapping[str, Superseded]) -> Outgoing:
    address = parse_subject(letter.subject)
    run = address.run if address else UNKNOWN
    key = (address.key if address else "") or digest(letter.subject)[:32]
    headers = {HEADER_ORIGIN: letter.subject, HEADER_RETRY: str(letter.retries + 1), **header_of(standing)}
    if protocols:
        headers[HEADER_PROTOCOLS] = ",".join(protocols)
    if letter.trace:
        headers[HEADER_TRACE] = letter.trace
    return Outgoing(
        subject=subject_of("retry", letter.stage, run, key),
        payload=letter.payload,
        message_id=("retry", str(letter.sequence), str(letter.time)),
        headers=headers,
        expect=None,
        whole=True,
    )


async def _outcomes_of(bus: Bus, letter: DeadLetter) -> dict[str, Read]:
    """The outcomes that there are of a letter's protocols, in the stream or the archive."""
    address = parse_subject(letter.subject)
    if address is None or address.kind in ("asked", "intake", *LETTER_ONLY):
        return {}
    names = [name for name in letter.protocols if is_token(name)]
    subjects = [subject_of("outcome", address.run, name, address.key) for name in names]
    found = await bus.history.last_of_each(OUTCOMES, subjects)
    return {name: one for name, one in zip(names, found, strict=True) if one is not None}


def _kind(error: Exception) -> str:
    match error:
        case DecodeError():
            return "undecodable"
        case InputError():
            return "bad_input"
        case TransientError():
            return "gave_up"
    return "bug"


def _one_line(text: str) -> str:
    printable = "".join(char if char.isprintable() else " " for char in text)
    return printable.encode("utf-8", "replace").decode("utf-8")[:1_000]
