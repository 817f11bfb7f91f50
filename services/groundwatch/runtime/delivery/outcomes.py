"""Making and publishing the one outcome of a response for a protocol."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec
import nats.errors
import nats.js.errors

from groundwatch.errors import UNDECODED, InputError, Unavailable, Unscorable, UsageError
from groundwatch.events import (
    ChainAdvanced,
    ClaimsMatched,
    ClaimsVerified,
    Decision,
    Drawn,
    Judge,
    JudgedClaim,
    OutcomeKind,
    ResponseRecorded,
    ResponseScored,
    Usage,
    Verdict,
    digest,
)
from groundwatch.protocols.base import ChainProtocol, EvaluationProtocol, MatchedProtocol, Stage
from groundwatch.protocols.words import count_words
from groundwatch.runtime.delivery.bus import ENCODER, Bus, Outgoing, Stored
from groundwatch.runtime.delivery.streams import Read, follow_stream, read_stream
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.topology import HEADER_OUTCOME, HEADER_REASON, OUTCOMES, outcome_subject, run_subjects

DEAD_LETTER = "dead_letter"
UNDECODABLE = "undecodable"
REPLACEABLE = (DEAD_LETTER, UNDECODABLE)
"""Reasons of outcomes that stand for a dead letter: a retry that succeeds replaces them."""

MAX_DETAIL = 500

_SCORED = msgspec.json.Decoder(ResponseScored)


def without_score(
    response: ResponseRecorded,
    protocol: str,
    kind: OutcomeKind,
    reason: str,
    *,
    detail: str = "",
    judges: Mapping[str, Judge] | None = None,
    usage: Usage | None = None,
) -> ResponseScored:
    """An outcome that carries a reason instead of a score."""
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
        answer_words=count_words(response.answer),
        usage=usage or Usage(),
        drawn=response.drawn.get(protocol, Drawn()),
        tags=response.tags,
        recorded_at=response.recorded_at,
        scored_at=time.time(),
    )


def outcome_of(
    judged: ClaimsVerified | ClaimsMatched | ChainAdvanced, protocol: EvaluationProtocol
) -> ResponseScored:
    """The outcome of judged claims or of a whole chain: scored, or unscored with the protocol's reason."""
    if isinstance(judged, ChainAdvanced):
        return _outcome_of_chain(judged, protocol)
    extracted = judged.extracted
    response = extracted.response
    judge_stage = Stage.VERIFICATION if isinstance(judged, ClaimsVerified) else Stage.MATCHING
    judges = {Stage.EXTRACTION.value: extracted.judge, judge_stage.value: judged.judge}
    usage = extracted.usage + judged.usage
    claims = judged_claims(judged, protocol)
    try:
        result = protocol.score(judged)
    except Unscorable as error:
        bare = without_score(
            response,
            protocol.name,
            OutcomeKind.UNSCORED,
            error.reason,
            detail=error.detail,
            judges=judges,
            usage=usage,
        )
        return msgspec.structs.replace(bare, units=extracted.units, claims=claims, eligible=len(claims))
    return ResponseScored(
        id=response.id,
        model=response.model,
        tenant=response.tenant,
        run=response.run,
        protocol=protocol.name,
        outcome=OutcomeKind.SCORED,
        score=result.score,
        values=result.values,
        judges=judges,
        units=extracted.units,
        claims=claims,
        eligible=len(claims),
        decided=len([claim for claim in claims if claim.decision is not Decision.UNDECIDED]),
        answer_words=count_words(response.answer),
        usage=usage,
        drawn=response.drawn.get(protocol.name, Drawn()),
        tags=response.tags,
        recorded_at=response.recorded_at,
        scored_at=time.time(),
    )


def _outcome_of_chain(chain: ChainAdvanced, protocol: EvaluationProtocol) -> ResponseScored:
    """`eligible` and `decided` count rounds; `answer_words` is over all descriptions."""
    if not isinstance(protocol, ChainProtocol):
        raise InputError(f"{protocol.name} scores claims, not chains")
    try:
        result = protocol.score_chain(chain)
    except Unscorable as error:
        return unscored_chain(chain, error)
    bare = without_score(
        chain.response, protocol.name, OutcomeKind.SCORED, "", judges=chain.judges, usage=chain.usage
    )
    return msgspec.structs.replace(
        bare,
        score=result.score,
        values=result.values,
        eligible=chain.length,
        decided=len(chain.steps),
        answer_words=sum(len(step.description.split()) for step in chain.steps),
    )


def unscored_chain(
    chain: ChainAdvanced, error: Unscorable, judges: Mapping[str, Judge] | None = None
) -> ResponseScored:
    """The outcome of a chain that cannot go on; `judges` where its rounds so far had none."""
    return without_score(
        chain.response,
        chain.protocol,
        OutcomeKind.UNSCORED,
        error.reason,
        detail=error.detail,
        judges={**(judges or {}), **chain.judges},
        usage=chain.usage,
    )


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
        )
        for claim, verdict in zip(claims, verdicts, strict=True)
    )


def outgoing(outcome: ResponseScored, *, key: str | None = None) -> Outgoing:
    """The outcome as a message. Its id names response, protocol and judges, as rule 2 asks."""
    key = key or outcome.key
    judges = ",".join(f"{stage}={judge.fingerprint}" for stage, judge in sorted(outcome.judges.items()))
    headers = {HEADER_OUTCOME: outcome.outcome.value}
    if outcome.reason:
        headers[HEADER_REASON] = outcome.reason
    return Outgoing(
        subject=outcome_subject(outcome.run, outcome.protocol, key),
        payload=ENCODER.encode(outcome),
        message_id=digest(key, outcome.run, outcome.protocol, "outcome", outcome.reason, judges)[:32],
        headers=headers,
    )


async def replace_dead(bus: Bus, message: Outgoing) -> Stored:
    """Publish over an outcome that only stood for a dead letter; any other one stays.

    Called when creating `message` found an outcome in place. Compare-and-set, so that of two racing
    retries one wins.
    """
    if message.headers.get(HEADER_REASON) in REPLACEABLE:
        return Stored.EXISTED
    try:
        existing = await bus.js.get_last_msg(OUTCOMES, message.subject)
    except nats.js.errors.NotFoundError:
        # A repeat of a message id whose outcome has since been erased: nothing to bring back.
        return Stored.EXISTED
    except (nats.errors.Error, OSError, TimeoutError) as error:
        raise Unavailable(f"cannot read {message.subject}: {error!r}") from error
    if (existing.headers or {}).get(HEADER_REASON) not in REPLACEABLE:
        return Stored.EXISTED
    return await bus.create(
        Outgoing(
            subject=message.subject,
            payload=message.payload,
            message_id=f"{message.message_id}-{existing.seq}",
            headers=message.headers,
            expect=existing.seq,
        )
    )


async def read_outcomes(bus: Bus, run_name: str, *, follow: bool) -> AsyncIterator[ResponseScored]:
    """The run's outcomes from the beginning; with `follow`, the new ones for ever."""
    subjects = (run_subjects("outcome", run_name),)
    reading = _followed(bus, subjects) if follow else read_stream(bus.js, OUTCOMES, subjects=subjects)
    async for message in reading:
        try:
            outcome = _SCORED.decode(message.data)
        except UNDECODED as error:
            # Another version or another program wrote it: it cannot be counted here, and must be told.
            logger.warning("outcome.unreadable", subject=message.subject, error=str(error))
            continue
        yield outcome


async def _followed(bus: Bus, subjects: Sequence[str]) -> AsyncIterator[Read]:
    async for batch in follow_stream(bus.js, OUTCOMES, subjects=subjects):
        for message in batch.messages:
            yield message
    raise UsageError("the stream of outcomes was made anew: begin again")
