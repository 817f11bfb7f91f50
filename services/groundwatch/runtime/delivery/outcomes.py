"""A response as a message: recorded, by the gateway or by captioning, and its one outcome for a protocol."""

import hashlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import nats.errors

from groundwatch.errors import UNDECODED, DecodeError, InputError, Unavailable, Unscorable, UsageError, words
from groundwatch.events import (
    DEAD_LETTER,
    REPLACEABLE,
    UNDECODABLE,
    ChainAdvanced,
    ClaimsExtracted,
    ClaimsMatched,
    ClaimsVerified,
    Decision,
    Drawn,
    Event,
    Judge,
    JudgedClaim,
    OutcomeKind,
    QuestionAsked,
    ResponseRecorded,
    ResponseScored,
    Usage,
    Verdict,
)
from groundwatch.protocols.base import ChainProtocol, EvaluationProtocol, MatchedProtocol, Stage, count_words
from groundwatch.records import Limits, Refusal, read_record
from groundwatch.runtime.delivery.bus import ENCODER, Bus, Outgoing, Stored
from groundwatch.runtime.delivery.streams import Read, position_of
from groundwatch.runtime.settings.gateway import IntakeSettings
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.topology import (
    HEADER_DIGEST,
    HEADER_EXPECT_SEQUENCE,
    HEADER_OUTCOME,
    HEADER_PROTOCOLS,
    HEADER_REASON,
    HEADER_REPLACED,
    HEADER_SUPERSEDES,
    OUTCOMES,
    Address,
    number_in,
    parse_subject,
    run_subjects,
    subject_of,
)
from groundwatch.topology.partitions import stream_of

MAX_DETAIL = 500

_OF_RESPONSES = ("recorded", "extracted", "judged", "asked", "chain")

_SCORED = msgspec.json.Decoder(ResponseScored)
_CANONICAL = msgspec.json.Encoder(order="deterministic")


def without_score(
    response: ResponseRecorded,
    protocol: str,
    kind: OutcomeKind,
    reason: str,
    *,
    detail: str = "",
    judges: Mapping[str, Judge] | None = None,
    usage: Usage | None = None,
    **more: Any,
) -> ResponseScored:
    """An outcome, with the reason where it has no score; `more` are other fields of it."""
    more.setdefault("answer_words", count_words(response.answer))
    return ResponseScored(
        id=response.id,
        model=response.model,
        tenant=response.tenant,
        run=response.run,
        protocol=protocol,
        outcome=kind,
        reason=reason,
        detail=detail[:MAX_DETAIL],
        judges=dict(judges or {}),
        usage=usage or Usage(),
        drawn=response.drawn.get(protocol, Drawn()),
        tags=response.tags,
        images=response.images,
        recorded_at=response.recorded_at,
        scored_at=time.time(),
        partition=response.partition,
        **more,
    )


def unscored(response: ResponseRecorded, protocol: str, error: Unscorable, **more: Any) -> ResponseScored:
    """The outcome of what a judge could not judge; `more` is as in `without_score`."""
    more |= {"detail": error.detail, "values": dict(error.values)}
    return without_score(response, protocol, OutcomeKind.UNSCORED, error.reason, **more)


def dead(
    response: ResponseRecorded, protocol: str, stage: str, error: Exception, **more: Any
) -> ResponseScored:
    """The outcome that stands for what `stage` could not process."""
    reason = UNDECODABLE if isinstance(error, DecodeError) else DEAD_LETTER
    return unscored(response, protocol, Unscorable(reason, f"{stage}: {error}"), **more)


def response_of(event: Event) -> ResponseRecorded:
    """The response that an event on its way to an outcome is about."""
    match event:
        case ClaimsVerified() | ClaimsMatched():
            return event.extracted.response
        case ClaimsExtracted() | ChainAdvanced() | QuestionAsked():
            return event.response
    assert isinstance(event, ResponseRecorded)
    return event


def so_far(event: Event) -> tuple[dict[str, Judge], Usage]:
    """Who has judged on the way to this event, by stage, and what that took."""
    match event:
        case ClaimsExtracted():
            return {Stage.EXTRACTION.value: event.judge}, event.usage
        case ClaimsVerified() | ClaimsMatched():
            judges, usage = so_far(event.extracted)
            stage = Stage.VERIFICATION if isinstance(event, ClaimsVerified) else Stage.MATCHING
            return {**judges, stage.value: event.judge}, usage + event.usage
        case ChainAdvanced():
            return dict(event.judges), event.usage
    return {}, Usage()


def outcome_of(
    judged: ClaimsVerified | ClaimsMatched | ChainAdvanced, protocol: EvaluationProtocol
) -> ResponseScored:
    """The outcome of judged claims or of a whole chain: scored, or unscored with the protocol's reason."""
    if isinstance(judged, ChainAdvanced):
        return _outcome_of_chain(judged, protocol)
    extracted = judged.extracted
    response = extracted.response
    judges, usage = so_far(judged)
    claims = judged_claims(judged, protocol)
    more: dict[str, Any] = {
        "judges": judges,
        "usage": usage,
        "units": extracted.units,
        "claims": claims,
        "eligible": len(claims),
        "left_out": extracted.left_out,
    }
    try:
        result = protocol.score(judged)
    except Unscorable as error:
        return unscored(response, protocol.name, error, **more)
    more |= {"score": result.score, "values": result.values}
    more["decided"] = sum(claim.decision is not Decision.UNDECIDED for claim in claims)
    return without_score(response, protocol.name, OutcomeKind.SCORED, "", **more)


def _outcome_of_chain(chain: ChainAdvanced, protocol: EvaluationProtocol) -> ResponseScored:
    """`eligible` and `decided` count rounds; `answer_words` is over all descriptions."""
    if not isinstance(protocol, ChainProtocol):
        raise InputError(f"{protocol.name} scores claims, not chains")
    try:
        result = protocol.score_chain(chain)
    except Unscorable as error:
        return unscored_chain(chain, error)
    return without_score(
        chain.response,
        protocol.name,
        OutcomeKind.SCORED,
        "",
        score=result.score,
        values=result.values,
        judges=chain.judges,
        usage=chain.usage,
        eligible=chain.length,
        decided=len(chain.steps),
        answer_words=sum(len(step.description.split()) for step in chain.steps),
    )


def unscored_chain(
    chain: ChainAdvanced, error: Unscorable, judges: Mapping[str, Judge] | None = None
) -> ResponseScored:
    """The outcome of a chain that cannot go on; `judges` where its rounds so far had none."""
    judges = {**(judges or {}), **chain.judges}
    return unscored(chain.response, chain.protocol, error, judges=judges, usage=chain.usage)


def judged_claims(
    judged: ClaimsVerified | ClaimsMatched, protocol: EvaluationProtocol
) -> tuple[JudgedClaim, ...]:
    """Each claim with its verdict; for matches: supported, or what the protocol makes of no match."""
    claims = judged.extracted.claims
    if isinstance(judged, ClaimsVerified):
        verdicts = judged.verdicts
    else:
        found = {match.claim: match.reference for match in judged.matches}
        unmatched = protocol.unmatched if isinstance(protocol, MatchedProtocol) else Decision.UNDECIDED
        verdicts = tuple(
            Verdict(decision=Decision.SUPPORTED, evidence=found[index])
            if index in found
            else Verdict(decision=unmatched)
            for index in range(len(claims))
        )
    if len(verdicts) != len(claims):
        raise InputError(f"{len(verdicts)} verdicts for {len(claims)} claims")
    return tuple(
        JudgedClaim(
            text=claim.text,
            category=claim.category,
            unit=claim.unit,
            decision=verdict.decision,
            probability=verdict.probability,
            evidence=verdict.evidence,
            parts=claim.parts,
            boxes=verdict.boxes,
            span=claim.span,
            hedged=claim.hedged,
            place=claim.place,
        )
        for claim, verdict in zip(claims, verdicts, strict=True)
    )


def outgoing(
    outcome: ResponseScored, *, key: str | None = None, counted: Callable[[], None] | None = None
) -> Outgoing:
    """The outcome as a message. Its id names response, protocol and judges, as rule 2 asks."""
    key = key or outcome.key
    judges = [f"{stage}={judge.fingerprint}" for stage, judge in sorted(outcome.judges.items())]
    headers = {HEADER_OUTCOME: outcome.outcome.value}
    if outcome.reason:
        headers[HEADER_REASON] = outcome.reason
    return Outgoing(
        subject=subject_of("outcome", outcome.run, outcome.protocol, key),
        payload=outcome,
        message_id=(key, outcome.run, outcome.protocol, "outcome", outcome.reason, *judges),
        headers=headers,
        counted=counted,
    )


class Superseded(NamedTuple):
    """An outcome that only stood for a dead letter: its sequence, and its reason.

    While its stream holds it, it is replaced by compare-and-set. What has left the stream can be compared
    with no more. So a dead letter that is sent again names these outcomes, what follows from it carries that
    on, and who archives the new outcome removes the old one.
    """

    sequence: int
    reason: str


def header_of(several: Mapping[str, Superseded]) -> dict[str, str]:
    """These outcomes, by protocol, as a header; none where there are none."""
    if not several:
        return {}
    listed = (f"{name}:{one.sequence}:{one.reason}" for name, one in several.items())
    return {HEADER_SUPERSEDES: ",".join(listed)}


def named_in(headers: Mapping[str, str]) -> dict[str, Superseded]:
    """Those that a message names, by protocol. What is not of this form names none."""
    several = {}
    for part in headers.get(HEADER_SUPERSEDES, "").split(","):
        match part.split(":"):
            case [name, text, reason] if sequence := number_in(text):
                several[name] = Superseded(sequence, reason)
    return several


def superseded_by(subject: str, headers: Mapping[str, str]) -> int:
    """The sequence of the message whose place one on this subject takes, 0 for none."""
    if expected := number_in(headers.get(HEADER_EXPECT_SEQUENCE, "")):
        return expected
    address = parse_subject(subject)
    if address is None or address.kind != "outcome":
        return 0
    one = named_in(headers).get(address.protocol)
    return one.sequence if one is not None else 0


def replacing_archived(message: Outgoing) -> Outgoing:
    """An outcome that takes the place of one of the archive alone says so; others are as they are."""
    if HEADER_SUPERSEDES not in message.headers:
        return message
    address = parse_subject(message.subject)
    if address is None or address.kind != "outcome":
        return message
    one = named_in(message.headers).get(address.protocol)
    return message.carrying({HEADER_REPLACED: one.reason}) if one is not None else message


async def replace_dead(bus: Bus, message: Outgoing) -> Stored:
    """Publish over an outcome that only stood for a dead letter; any other one stays.

    Called when creating `message` found an outcome in place. Compare-and-set, so that of two racing
    retries one wins.
    """
    if message.headers.get(HEADER_REASON) in REPLACEABLE:
        return Stored.EXISTED
    try:
        existing = await bus.history.last(OUTCOMES, message.subject)
        held = await position_of(bus.js, stream_of(OUTCOMES, message.subject))
    except (nats.errors.Error, OSError, TimeoutError) as error:
        raise Unavailable(f"cannot read {message.subject}: {words(error)}") from error
    # None: a repeat of a message id whose outcome has since been erased. Nothing to bring back.
    if existing is None or existing.headers.get(HEADER_REASON) not in REPLACEABLE:
        return Stored.EXISTED
    name = (message.subject, "instead of", str(existing.sequence))
    reason = existing.headers[HEADER_REASON]
    message = message.carrying({HEADER_REPLACED: reason})
    expect = existing.sequence
    if expect < held.first:
        # What has left the stream is there no more to be compared with.
        address = parse_subject(message.subject)
        assert address is not None
        message = message.carrying(header_of({address.protocol: Superseded(expect, reason)}))
        expect = 0
    return await bus.create(msgspec.structs.replace(message, message_id=name, expect=expect))


async def read_outcomes(bus: Bus, run_name: str, *, follow: bool) -> AsyncIterator[ResponseScored]:
    """The run's outcomes from the beginning; with `follow`, the new ones for ever."""
    subjects = (run_subjects("outcome", run_name),)
    reading = _followed(bus, subjects) if follow else bus.history.read(OUTCOMES, subjects=subjects)
    async for message in reading:
        try:
            outcome = _SCORED.decode(message.data)
        except UNDECODED as error:
            # Another version or another program wrote it: it cannot be counted here, and must be told.
            logger.warning("outcome.unreadable", subject=message.subject, error=str(error))
            continue
        yield outcome


async def _followed(bus: Bus, subjects: Sequence[str]) -> AsyncIterator[Read]:
    async for batch in bus.history.follow(OUTCOMES, subjects=subjects):
        for message in batch.messages:
            yield message
    raise UsageError("the stream of outcomes was made anew: begin again")


def contradiction(address: Address | None, event: object) -> str:
    """Where an event on its way says another run or response than its subject: what follows from it would
    stand under a name that nobody waits for. Empty where they agree."""
    if address is None or address.kind not in _OF_RESPONSES or not isinstance(event, Event):
        return ""
    response = response_of(event)
    if (response.run, response.key) == (address.run, address.key):
        return ""
    return f"its subject is of {address.run} and {address.key}, its body of {response.run} and {response.key}"


def limits(settings: IntakeSettings) -> Limits:
    """The gateway's limits, so that a response meets the same ones on every way in."""
    return Limits(
        line=settings.max_line,
        answer=settings.max_answer,
        prompt=settings.max_prompt,
        images=settings.max_images,
        reference=settings.max_reference_items,
    )


def digest_of(said: msgspec.Struct) -> str:
    """Digest of what a caller said: 32 hex digits that tell a repeat from a contradiction."""
    return hashlib.sha256(_CANONICAL.encode(said)).hexdigest()[:32]


def recorded(
    response: ResponseRecorded, said_digest: str = "", counted: Callable[[], None] | None = None
) -> Outgoing:
    """The response on its way into the stream; `said_digest` where it is not of the response itself."""
    key = response.key
    return Outgoing(
        subject=subject_of("recorded", response.run, key),
        payload=ENCODER.encode(response),
        message_id=(key, "recorded"),
        headers={
            HEADER_PROTOCOLS: ",".join(response.protocols),
            HEADER_DIGEST: said_digest or digest_of(response),
        },
        counted=counted,
    )


def check_recorded(response: ResponseRecorded, bounds: Limits) -> Refusal | None:
    """What is wrong with a response that came as an event: the gateway's own rules, and images by digest."""
    if response.unanswered is not None:
        # A model under test that said nothing: only there an answer may be missing.
        response = msgspec.structs.replace(response, answer=response.answer or "-")
    read = read_record(ENCODER.encode(response), msgspec.structs.replace(bounds, digests=True))
    return read if isinstance(read, Refusal) else None
