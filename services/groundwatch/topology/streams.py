"""Every stream and every durable consumer."""

from groundwatch.topology.names import (
    ALARMS,
    ASKED,
    DEAD,
    EXTRACTED,
    JUDGED,
    OUTCOMES,
    PREFIX,
    RESPONSES,
    RETRY,
    STAGES,
)
from groundwatch.topology.specs import ConsumerSpec, StreamSpec

STREAMS: tuple[StreamSpec, ...] = (
    StreamSpec(
        name=RESPONSES,
        subjects=(f"{PREFIX}.recorded.>",),
        description="Recorded LVLM responses: the source of truth",
    ),
    StreamSpec(name=EXTRACTED, subjects=(f"{PREFIX}.extracted.>",), description="Claims found in responses"),
    StreamSpec(
        name=ASKED,
        subjects=(f"{PREFIX}.asked.>", f"{PREFIX}.chain.>"),
        description="What models under test and image generators are asked: questions, and chains of rounds",
    ),
    StreamSpec(
        name=JUDGED,
        subjects=(f"{PREFIX}.judged.>",),
        description="Claims with verdicts or matches, and chains that have all their rounds",
    ),
    StreamSpec(
        name=OUTCOMES,
        subjects=(f"{PREFIX}.outcome.>",),
        description="One outcome for each response and protocol; a retried dead letter replaces its own",
        max_per_subject=1,
    ),
    StreamSpec(
        name=ALARMS,
        subjects=(f"{PREFIX}.alarm.>",),
        description="Alarms: a model's rate of facts that are not in the image has risen",
    ),
    StreamSpec(
        name=DEAD,
        subjects=(f"{PREFIX}.dead.>",),
        description="Events that could not be processed, with the reason",
    ),
    StreamSpec(
        name=RETRY, subjects=(f"{PREFIX}.retry.>",), description="Dead letters sent again", work_queue=True
    ),
)

CONSUMERS: tuple[ConsumerSpec, ...] = (
    ConsumerSpec(
        name="extraction",
        stream=RESPONSES,
        filters=(f"{PREFIX}.recorded.live.>",),
        description="Every response: claims are extracted, declined protocols get their outcome",
    ),
    ConsumerSpec(
        name="captioning",
        stream=ASKED,
        filters=(f"{PREFIX}.asked.live.captioning.>", f"{PREFIX}.chain.live.captioning.>"),
        description="Questions to answer, and images of chains to describe, by the model under test",
    ),
    ConsumerSpec(
        name="generation",
        stream=ASKED,
        filters=(f"{PREFIX}.chain.live.generation.>",),
        description="Descriptions of chains to make images from",
    ),
    ConsumerSpec(
        name="matching",
        stream=EXTRACTED,
        filters=(f"{PREFIX}.extracted.live.matching.>",),
        description="Claims to match with the reference annotation",
    ),
    ConsumerSpec(
        name="verification",
        stream=EXTRACTED,
        filters=(f"{PREFIX}.extracted.live.verification.>",),
        description="Claims to verify",
    ),
    ConsumerSpec(
        name="scoring",
        stream=JUDGED,
        filters=(f"{PREFIX}.judged.live.scoring.>",),
        description="Judged claims and whole chains to score",
    ),
    *(
        ConsumerSpec(
            name=f"{stage}-retry",
            stream=RETRY,
            filters=(f"{PREFIX}.retry.{stage}.>",),
            description=f"Dead letters of {stage} that somebody sent again",
        )
        for stage in STAGES
    ),
)


def stream(name: str) -> StreamSpec:
    """The declaration of a stream."""
    return next(spec for spec in STREAMS if spec.name == name)


def consumer(name: str) -> ConsumerSpec:
    """The declaration of a durable consumer."""
    return next(spec for spec in CONSUMERS if spec.name == name)
