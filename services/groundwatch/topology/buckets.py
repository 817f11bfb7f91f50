"""Every bucket: what is in it, who writes it, who reads it."""

from groundwatch.topology.names import (
    ATTEMPTS_BUCKET,
    AUDITOR,
    BUDGETS_BUCKET,
    CACHE_BUCKET,
    COMMAND_LINE,
    DAY,
    ERASE,
    EXPORTS_BUCKET,
    GATEWAY,
    IMAGES_BUCKET,
    REPLAY,
    RUNS_BUCKET,
    STAGES,
    TOMBSTONES_BUCKET,
)
from groundwatch.topology.specs import BucketSpec

BUCKETS: tuple[BucketSpec, ...] = (
    BucketSpec(
        name=IMAGES_BUCKET,
        kind="objects",
        description="Images by SHA-256 of their bytes",
        writers=(GATEWAY, "generation", REPLAY),
        readers=("captioning", "verification", COMMAND_LINE, ERASE),
    ),
    BucketSpec(
        name=RUNS_BUCKET,
        kind="key_value",
        description="State of every replay: what it is asked to do, how far it is, who works at it",
        writers=(REPLAY, COMMAND_LINE),
        readers=(GATEWAY, AUDITOR, ERASE),
    ),
    BucketSpec(
        name=BUDGETS_BUCKET,
        kind="key_value",
        description="Budgets of judging, and what is used of them: rules, leases, what was spent",
        writers=(GATEWAY, COMMAND_LINE),
        readers=(ERASE,),
    ),
    BucketSpec(
        name=CACHE_BUCKET,
        kind="key_value",
        description="Judgements by judge and input, so that nobody is paid twice for one",
        writers=("extraction", "verification", "matching", REPLAY, COMMAND_LINE, ERASE),
        drop_old=True,
    ),
    BucketSpec(
        name=ATTEMPTS_BUCKET,
        kind="key_value",
        description="How often events were tried that did not succeed at once, by consumer and sequence",
        writers=STAGES,
        readers=(ERASE,),
        drop_old=True,
        max_age=7 * DAY,
        max_bytes=64 * 1024 * 1024,
    ),
    BucketSpec(
        name=EXPORTS_BUCKET,
        kind="key_value",
        description="Files that recorded events were exported to, so that an erasure finds them",
        writers=(COMMAND_LINE, ERASE),
    ),
    BucketSpec(
        name=TOMBSTONES_BUCKET,
        kind="key_value",
        description="What was erased, by digests: it is not recorded again",
        writers=(ERASE,),
        readers=(GATEWAY, COMMAND_LINE, AUDITOR),
    ),
)
