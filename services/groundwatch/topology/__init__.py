"""Streams, subjects and durable consumers: declared here once, created by `groundwatch admin provision`.

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

from groundwatch.topology.buckets import (
    BUCKETS,
)
from groundwatch.topology.channels import (
    CHANNELS,
)
from groundwatch.topology.names import (
    ALARMS,
    ARCHIVE,
    ASKED,
    ATTEMPTS_BUCKET,
    AUDITOR,
    BUDGETS_BUCKET,
    CACHE_BUCKET,
    COMMAND_LINE,
    DAY,
    DEAD,
    ERASE,
    EXPORTS_BUCKET,
    EXTRACTED,
    GATEWAY,
    HEADER_DIGEST,
    HEADER_EXPECT_SEQUENCE,
    HEADER_MESSAGE_ID,
    HEADER_ORIGIN,
    HEADER_OUTCOME,
    HEADER_PROTOCOLS,
    HEADER_REASON,
    HEADER_RETRY,
    HEADER_TRACE,
    HEADERS,
    IMAGES_BUCKET,
    JUDGED,
    OUTCOMES,
    PREFIX,
    PROVISIONER,
    REPLAY,
    RESPONSES,
    RETRY,
    RUNS_BUCKET,
    STAGES,
    TOMBSTONES_BUCKET,
)
from groundwatch.topology.permissions import (
    Permissions,
    inbox_prefix,
    permissions,
    streams_of,
    users,
)
from groundwatch.topology.specs import (
    BucketSpec,
    ChannelSpec,
    ConsumerSpec,
    StreamSpec,
)
from groundwatch.topology.streams import (
    CONSUMERS,
    STREAMS,
    consumer,
    stream,
)
from groundwatch.topology.subjects import (
    MAX_TOKEN,
    Address,
    alarm_subject,
    asked_subject,
    chain_subject,
    dead_subject,
    extracted_subject,
    is_token,
    judged_subject,
    outcome_subject,
    parse_subject,
    recorded_subject,
    retry_subject,
    run_subjects,
    stage_of,
)

__all__ = [
    "ALARMS",
    "ARCHIVE",
    "ASKED",
    "ATTEMPTS_BUCKET",
    "AUDITOR",
    "BUCKETS",
    "BUDGETS_BUCKET",
    "CACHE_BUCKET",
    "CHANNELS",
    "COMMAND_LINE",
    "CONSUMERS",
    "DAY",
    "DEAD",
    "ERASE",
    "EXPORTS_BUCKET",
    "EXTRACTED",
    "GATEWAY",
    "HEADERS",
    "HEADER_DIGEST",
    "HEADER_EXPECT_SEQUENCE",
    "HEADER_MESSAGE_ID",
    "HEADER_ORIGIN",
    "HEADER_OUTCOME",
    "HEADER_PROTOCOLS",
    "HEADER_REASON",
    "HEADER_RETRY",
    "HEADER_TRACE",
    "IMAGES_BUCKET",
    "JUDGED",
    "MAX_TOKEN",
    "OUTCOMES",
    "PREFIX",
    "PROVISIONER",
    "REPLAY",
    "RESPONSES",
    "RETRY",
    "RUNS_BUCKET",
    "STAGES",
    "STREAMS",
    "TOMBSTONES_BUCKET",
    "Address",
    "BucketSpec",
    "ChannelSpec",
    "ConsumerSpec",
    "Permissions",
    "StreamSpec",
    "alarm_subject",
    "asked_subject",
    "chain_subject",
    "consumer",
    "dead_subject",
    "extracted_subject",
    "inbox_prefix",
    "is_token",
    "judged_subject",
    "outcome_subject",
    "parse_subject",
    "permissions",
    "recorded_subject",
    "retry_subject",
    "run_subjects",
    "stage_of",
    "stream",
    "streams_of",
    "users",
]
