"""The words of the wire: prefix, headers, names of streams, stages and buckets."""

PREFIX = "gw"

HEADER_MESSAGE_ID = "Nats-Msg-Id"
HEADER_EXPECT_SEQUENCE = "Nats-Expected-Last-Subject-Sequence"
HEADER_PROTOCOLS = "Gw-Protocols"
HEADER_DIGEST = "Gw-Digest"
HEADER_OUTCOME = "Gw-Outcome"
HEADER_REASON = "Gw-Reason"
HEADER_ORIGIN = "Gw-Origin"
HEADER_RETRY = "Gw-Retry"
HEADER_TRACE = "traceparent"

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
    HEADER_TRACE: "The span that published it (W3C Trace Context), where `telemetry.traces` is set",
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
BUDGETS_BUCKET = "gw-budgets"
RUNS_BUCKET = "gw-runs"
EXPORTS_BUCKET = "gw-exports"
TOMBSTONES_BUCKET = "gw-tombstones"
CACHE_BUCKET = "gw-cache"
ATTEMPTS_BUCKET = "gw-attempts"

DAY = 86_400.0
STAGES = ("extraction", "captioning", "generation", "matching", "verification", "scoring")
GATEWAY = "gateway"
COMMAND_LINE = "cli"
REPLAY = "replay"
ARCHIVE = "archive"
ERASE = "erase"
AUDITOR = "audit"
PROVISIONER = "provision"
