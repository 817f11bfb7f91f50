"""Streams, subjects and durable consumers: declared here once, created by `groundwatch provision`.

Services only bind to what stands here. Two declarations of one stream overwrite each other silently in
NATS, so there is no second one.

A subject names where its event goes next, so a consumer's filter never changes when a protocol is added:

    gw.asked.<run>.<stage>.<key>                     a question for a model under test
    gw.recorded.<run>.<key>                          a response, as recorded
    gw.extracted.<run>.<stage>.<protocol>.<key>      its claims, on their way to <stage>
    gw.chain.<run>.<stage>.<protocol>.<key>.<step>   a chain in that round, on its way to <stage>
    gw.judged.<run>.<stage>.<protocol>.<key>         its judged claims, on their way to <stage>
    gw.outcome.<run>.<protocol>.<key>                its one outcome
    gw.alarm.<run>.<protocol>.<key>                  alarms of one model and category, in their order
    gw.dead.<stage>.<run>.<key>                      an event that <stage> could not process
    gw.retry.<stage>.<run>.<key>                     a dead letter that somebody sent again

`key` is `events.response_key` (of an alarm, `AlarmRaised.key`): one subject for each response, and for
each round of a chain. That is what makes every stage exactly once: an event is published with "expect no
message on this subject", which the server itself enforces for as long as the stream remembers, where a
duplicate window of message ids forgets after minutes.
"""

from __future__ import annotations

import msgspec

from groundwatch.events import (
    AlarmRaised,
    ChainAdvanced,
    ClaimsExtracted,
    ClaimsMatched,
    ClaimsVerified,
    Event,
    QuestionAsked,
    ResponseRecorded,
    ResponseScored,
)

PREFIX = "gw"

HEADER_MESSAGE_ID = "Nats-Msg-Id"
HEADER_EXPECT_SEQUENCE = "Nats-Expected-Last-Subject-Sequence"
HEADER_PROTOCOLS = "Gw-Protocols"
HEADER_DIGEST = "Gw-Digest"
HEADER_OUTCOME = "Gw-Outcome"
HEADER_REASON = "Gw-Reason"
HEADER_ORIGIN = "Gw-Origin"
HEADER_RETRY = "Gw-Retry"

HEADERS: dict[str, str] = {
    HEADER_MESSAGE_ID: "Digest of event, stage and judges: the server drops a repeat of it for minutes",
    HEADER_EXPECT_SEQUENCE: "The sequence that the subject must be at, 0 for an empty one: the server "
    "refuses the event otherwise",
    HEADER_PROTOCOLS: "The protocols asked for, by commas; on a dead letter and its retry, those that "
    "failed. Lets the audit read headers only",
    HEADER_DIGEST: "Digest of what the caller sent: tells a repeat from a contradiction",
    HEADER_OUTCOME: "scored, unscored or declined",
    HEADER_REASON: "On an outcome, its reason; on a dead letter, why it is there",
    HEADER_ORIGIN: "The subject of the original",
    HEADER_RETRY: "How many times this event has been sent again",
}
"""What every header means."""

RESPONSES = "GW_RESPONSES"
EXTRACTED = "GW_EXTRACTED"
ASKED = "GW_ASKED"
JUDGED = "GW_JUDGED"
OUTCOMES = "GW_OUTCOMES"
ALARMS = "GW_ALARMS"
DEAD = "GW_DEAD"
RETRY = "GW_RETRY"
IMAGES_BUCKET = "gw-images"

DAY = 86_400.0
STAGES = ("extraction", "captioning", "generation", "matching", "verification", "scoring")
GATEWAY = "gateway"
COMMAND_LINE = "cli"


class StreamSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A stream as it must be. Ages in seconds, sizes in bytes; 0 means without limit.

    `refuse_when_full` refuses new events instead of dropping old ones: the source of truth must push
    back on its writers, never forget what they were told is safe.
    """

    name: str
    subjects: tuple[str, ...]
    description: str
    max_age: float = 30 * DAY
    max_bytes: int = 0
    max_per_subject: int = 0
    duplicate_window: float = 600.0
    work_queue: bool = False
    refuse_when_full: bool = True


class ConsumerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A durable pull consumer as it must be. `ack_wait` in seconds.

    The server redelivers without end; giving up is the runtime's decision, since only it can write the
    dead letter. `max_ack_pending` bounds what all replicas of a stage hold together.
    """

    name: str
    stream: str
    filters: tuple[str, ...]
    description: str
    ack_wait: float = 30.0
    max_ack_pending: int = 5_000

    @property
    def service(self) -> str:
        """The service that binds to it."""
        return self.name.removesuffix("-retry")


class ChannelSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A family of subjects: what is on it, and who puts it there.

    `address` has the variable tokens in braces. `events` empty means the bytes of another channel's event
    as they came, decodable or not. `readers` look without a durable consumer; those with one are in
    `CONSUMERS`. Every message carries `headers`, some carry `optional_headers`.
    """

    name: str
    address: str
    stream: str
    description: str
    publishers: tuple[str, ...]
    readers: tuple[str, ...] = ()
    events: tuple[type[Event], ...] = ()
    headers: tuple[str, ...] = (HEADER_MESSAGE_ID, HEADER_EXPECT_SEQUENCE)
    optional_headers: tuple[str, ...] = ()


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

CHANNELS: tuple[ChannelSpec, ...] = (
    ChannelSpec(
        name="asked",
        address=f"{PREFIX}.asked.{{run}}.{{stage}}.{{key}}",
        stream=ASKED,
        description="A question for a model under test; its answer becomes a recorded response",
        events=(QuestionAsked,),
        publishers=(GATEWAY,),
        readers=(GATEWAY,),
        headers=(HEADER_MESSAGE_ID, HEADER_EXPECT_SEQUENCE, HEADER_PROTOCOLS, HEADER_DIGEST),
    ),
    ChannelSpec(
        name="recorded",
        address=f"{PREFIX}.recorded.{{run}}.{{key}}",
        stream=RESPONSES,
        description="A response, as recorded",
        events=(ResponseRecorded,),
        publishers=(GATEWAY, "captioning"),
        readers=(GATEWAY, COMMAND_LINE),
        headers=(HEADER_MESSAGE_ID, HEADER_EXPECT_SEQUENCE, HEADER_PROTOCOLS, HEADER_DIGEST),
    ),
    ChannelSpec(
        name="extracted",
        address=f"{PREFIX}.extracted.{{run}}.{{stage}}.{{protocol}}.{{key}}",
        stream=EXTRACTED,
        description="A response's claims for one protocol, on their way to a stage",
        events=(ClaimsExtracted,),
        publishers=("extraction",),
        readers=(COMMAND_LINE,),
    ),
    ChannelSpec(
        name="chain",
        address=f"{PREFIX}.chain.{{run}}.{{stage}}.{{protocol}}.{{key}}.{{step}}",
        stream=ASKED,
        description="A chain with its history so far, on its way to a stage in that round",
        events=(ChainAdvanced,),
        publishers=("extraction", "captioning", "generation"),
        readers=(COMMAND_LINE,),
    ),
    ChannelSpec(
        name="judged",
        address=f"{PREFIX}.judged.{{run}}.{{stage}}.{{protocol}}.{{key}}",
        stream=JUDGED,
        description="Claims with verdicts or matches, or a whole chain, on their way to a stage",
        events=(ClaimsVerified, ClaimsMatched, ChainAdvanced),
        publishers=("matching", "verification", "generation"),
        readers=(COMMAND_LINE,),
    ),
    ChannelSpec(
        name="outcome",
        address=f"{PREFIX}.outcome.{{run}}.{{protocol}}.{{key}}",
        stream=OUTCOMES,
        description="The one outcome of a response for a protocol: from scoring, or from where it ended",
        events=(ResponseScored,),
        publishers=STAGES,
        readers=(GATEWAY, COMMAND_LINE),
        headers=(HEADER_MESSAGE_ID, HEADER_EXPECT_SEQUENCE, HEADER_OUTCOME),
        optional_headers=(HEADER_REASON,),
    ),
    ChannelSpec(
        name="alarm",
        address=f"{PREFIX}.alarm.{{run}}.{{protocol}}.{{key}}",
        stream=ALARMS,
        description="An alarm, once for each change; those of one model and category follow each other",
        events=(AlarmRaised,),
        publishers=(GATEWAY,),
        readers=(GATEWAY,),
    ),
    ChannelSpec(
        name="dead",
        address=f"{PREFIX}.dead.{{stage}}.{{run}}.{{key}}",
        stream=DEAD,
        description="An event that a stage could not process, as it came",
        publishers=STAGES,
        readers=(COMMAND_LINE,),
        headers=(HEADER_MESSAGE_ID, HEADER_EXPECT_SEQUENCE, HEADER_ORIGIN, HEADER_REASON, HEADER_RETRY),
        optional_headers=(HEADER_PROTOCOLS,),
    ),
    ChannelSpec(
        name="retry",
        address=f"{PREFIX}.retry.{{stage}}.{{run}}.{{key}}",
        stream=RETRY,
        description="A dead letter that somebody sent again",
        publishers=(COMMAND_LINE,),
        headers=(HEADER_MESSAGE_ID, HEADER_ORIGIN, HEADER_RETRY),
        optional_headers=(HEADER_PROTOCOLS,),
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


def recorded_subject(run: str, key: str) -> str:
    """Where a recorded response goes."""
    return f"{PREFIX}.recorded.{run}.{key}"


def asked_subject(run: str, stage: str, key: str) -> str:
    """Where a question goes on its way to `stage`."""
    return f"{PREFIX}.asked.{run}.{stage}.{key}"


def chain_subject(run: str, stage: str, protocol: str, key: str, step: int) -> str:
    """Where a chain goes on its way to `stage` in round `step`, counted from 1."""
    return f"{PREFIX}.chain.{run}.{stage}.{protocol}.{key}.{step}"


def extracted_subject(run: str, stage: str, protocol: str, key: str) -> str:
    """Where extracted claims go on their way to `stage`."""
    return f"{PREFIX}.extracted.{run}.{stage}.{protocol}.{key}"


def judged_subject(run: str, stage: str, protocol: str, key: str) -> str:
    """Where judged claims go on their way to `stage`."""
    return f"{PREFIX}.judged.{run}.{stage}.{protocol}.{key}"


def outcome_subject(run: str, protocol: str, key: str) -> str:
    """Where the outcome goes."""
    return f"{PREFIX}.outcome.{run}.{protocol}.{key}"


def alarm_subject(run: str, protocol: str, key: str) -> str:
    """Where an alarm goes."""
    return f"{PREFIX}.alarm.{run}.{protocol}.{key}"


def dead_subject(stage: str, run: str, key: str) -> str:
    """Where an event goes that `stage` could not process."""
    return f"{PREFIX}.dead.{stage}.{run}.{key}"


def retry_subject(stage: str, run: str, key: str) -> str:
    """Where a dead letter goes when it is sent again."""
    return f"{PREFIX}.retry.{stage}.{run}.{key}"


class Address(msgspec.Struct, frozen=True):
    """What a subject says: readable even when the event under it is not."""

    kind: str
    run: str
    key: str
    stage: str = ""
    protocol: str = ""


def is_token(text: str) -> bool:
    """Whether the text can stand between two dots of a subject, as every protocol's name must."""
    return bool(text) and text.isascii() and text.replace("-", "").replace("_", "").isalnum()


def parse_subject(subject: str) -> Address | None:
    """Read a subject of ours; None when it is not one."""
    match subject.split("."):
        case [_, "recorded", run, key]:
            return Address("recorded", run, key)
        case [_, ("extracted" | "judged") as kind, run, stage, protocol, key]:
            return Address(kind, run, key, stage, protocol)
        case [_, "asked", run, stage, key]:
            return Address("asked", run, key, stage)
        case [_, "chain", run, stage, protocol, key, _]:
            return Address("chain", run, key, stage, protocol)
        case [_, "outcome", run, protocol, key]:
            return Address("outcome", run, key, "", protocol)
        case [_, "alarm", run, protocol, key]:
            return Address("alarm", run, key, "", protocol)
        case [_, ("dead" | "retry") as kind, stage, run, key]:
            return Address(kind, run, key, stage)
    return None
