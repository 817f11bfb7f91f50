"""Between the messages of the contract and what the core works with."""

from __future__ import annotations

from typing import Any

import msgspec

from groundwatch.events import (
    Decision,
    Judge,
    Label,
    OutcomeKind,
    ResponseRecorded,
    ResponseScored,
    Usage,
)
from groundwatch.gateway.auth.callers import Caller
from groundwatch.gateway.grpc.generated import monitor_pb2 as pb
from groundwatch.gateway.intake.attachments import DIGEST, Attachment
from groundwatch.gateway.intake.parsing import Submission, take_submission
from groundwatch.gateway.intake.results import Recorded, Refused
from groundwatch.gateway.replays import Replay
from groundwatch.records import Limits

LABELS = {Label.DESCRIPTIVE: pb.LABEL_DESCRIPTIVE, Label.ANALYTICAL: pb.LABEL_ANALYTICAL}
DECISIONS = {
    Decision.SUPPORTED: pb.DECISION_SUPPORTED,
    Decision.REFUTED: pb.DECISION_REFUTED,
    Decision.UNDECIDED: pb.DECISION_UNDECIDED,
}
KINDS = {
    OutcomeKind.SCORED: pb.OUTCOME_KIND_SCORED,
    OutcomeKind.UNSCORED: pb.OUTCOME_KIND_UNSCORED,
    OutcomeKind.DECLINED: pb.OUTCOME_KIND_DECLINED,
}
RECORDED = {"recorded": pb.SUBMIT_STATUS_RECORDED, "duplicate": pb.SUBMIT_STATUS_DUPLICATE}


def submission(sent: pb.Response, caller: Caller, bounds: Limits) -> Submission | Refused:
    """What `caller` has sent."""
    tenant = caller.owner(sent.tenant, sent.id)
    if isinstance(tenant, Refused):
        return tenant
    values: dict[str, Any] = {
        "id": sent.id,
        "model": sent.model,
        "answer": sent.answer,
        "prompt": sent.prompt,
        "recorded_at": sent.recorded_at,
        "tenant": tenant,
    }
    if sent.protocols:
        values["protocols"] = tuple(sent.protocols)
    if sent.tags:
        values["tags"] = dict(sent.tags)
    if sent.HasField("reference"):
        known = sent.reference
        values["reference"] = {
            "facts": [{"text": fact.text, "holds": fact.holds} for fact in known.facts],
            "objects": list(known.objects),
            "triplets": [(one.subject, one.relation, one.object) for one in known.triplets],
            "complete": known.complete,
        }
    return take_submission(values, [_image(image, i) for i, image in enumerate(sent.images)], bounds, caller)


def _image(image: pb.Image, index: int) -> Attachment | Refused:
    match image.WhichOneof("source"):
        case "data":
            return image.data
        case "sha256" if DIGEST.match(image.sha256):
            return image.sha256
        case "sha256":
            message = "not the SHA-256 of an image in lower-case hex; send the image as data"
        case _:
            message = "has neither sha256 nor data"
    return Refused(reason="image", field=f"images[{index}]", message=message)


def result(ended: Recorded | Refused) -> pb.SubmitResult:
    """How one response of a stream ended."""
    if isinstance(ended, Recorded):
        return pb.SubmitResult(id=ended.id, status=RECORDED[ended.status])
    return pb.SubmitResult(
        id=ended.id,
        status=pb.SUBMIT_STATUS_REFUSED,
        reason=ended.reason,
        field=ended.field,
        message=ended.message,
    )


def response(event: ResponseRecorded) -> pb.Response:
    """A response as it was recorded."""
    told = pb.Response(
        id=event.id,
        model=event.model,
        answer=event.answer,
        prompt=event.prompt,
        tenant=event.tenant,
        images=[pb.Image(sha256=image) for image in event.images],
        tags=event.tags,
        protocols=event.protocols,
        recorded_at=event.recorded_at,
        declined=event.declined,
    )
    if event.reference is not None:
        known = event.reference
        told.reference.CopyFrom(
            pb.Reference(
                facts=[pb.KnownFact(text=fact.text, holds=fact.holds) for fact in known.facts],
                objects=known.objects,
                triplets=[pb.Triplet(subject=s, relation=r, object=o) for s, r, o in known.triplets],
                complete=known.complete,
            )
        )
    return told


def outcome(event: ResponseScored) -> pb.Outcome:
    """An outcome with all of its judgements."""
    return pb.Outcome(
        id=event.id,
        tenant=event.tenant,
        model=event.model,
        protocol=event.protocol,
        run=event.run,
        kind=KINDS[event.outcome],
        score=event.score,
        values=event.values,
        reason=event.reason,
        detail=event.detail,
        judges={stage: _judge(judge) for stage, judge in event.judges.items()},
        units=[
            pb.SubSentence(
                start=unit.start,
                end=unit.end,
                text=unit.text,
                label=LABELS[unit.label],
                confidence=unit.confidence,
            )
            for unit in event.units
        ],
        claims=[
            pb.JudgedClaim(
                text=claim.text,
                category=claim.category,
                unit=claim.unit,
                decision=DECISIONS[claim.decision],
                probability=claim.probability,
                evidence=claim.evidence,
                parts=claim.parts,
            )
            for claim in event.claims
        ],
        eligible=event.eligible,
        decided=event.decided,
        answer_words=event.answer_words,
        usage=_usage(event.usage),
        drawn=pb.Drawn(**msgspec.structs.asdict(event.drawn)),
        tags=event.tags,
        recorded_at=event.recorded_at,
        scored_at=event.scored_at,
    )


def replay(state: Replay) -> pb.Replay:
    """A replay, and how far it is."""
    return pb.Replay(
        run=state.run,
        source=state.source,
        stage=state.stage,
        status=f"REPLAY_STATUS_{state.status.upper()}",
        reason=state.reason,
        share=state.share,
        events=state.events,
        responses=state.responses,
        scored=state.scored,
        unscored=state.unscored,
        declined=state.declined,
        usage=_usage(state.usage),
        workers=state.workers,
        created_at=state.created_at,
        updated_at=state.updated_at,
        seconds_left=state.seconds_left,
    )


def _judge(judge: Judge) -> pb.Judge:
    return pb.Judge(
        engine=judge.engine,
        model=judge.model,
        prompt=judge.prompt,
        version=judge.version,
        fingerprint=judge.fingerprint,
    )


def _usage(usage: Usage) -> pb.Usage:
    return pb.Usage(
        calls=usage.calls,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cost=usage.cost,
    )
