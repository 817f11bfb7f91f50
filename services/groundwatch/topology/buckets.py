"""Every bucket: what is in it, who writes it, who reads it."""

from __future__ import annotations

from groundwatch.topology.names import (
    BUDGETS_BUCKET,
    CACHE_BUCKET,
    COMMAND_LINE,
    GATEWAY,
    IMAGES_BUCKET,
    REPLAY,
    RUNS_BUCKET,
)
from groundwatch.topology.specs import BucketSpec

BUCKETS: tuple[BucketSpec, ...] = (
    BucketSpec(
        name=IMAGES_BUCKET,
        kind="objects",
        description="Images by SHA-256 of their bytes",
        writers=(GATEWAY, "generation", REPLAY),
        readers=("captioning", "verification", COMMAND_LINE),
    ),
    BucketSpec(
        name=RUNS_BUCKET,
        kind="key_value",
        description="State of every replay: what it is asked to do, how far it is, who works at it",
        writers=(REPLAY, COMMAND_LINE),
        readers=(GATEWAY,),
    ),
    BucketSpec(
        name=BUDGETS_BUCKET,
        kind="key_value",
        description="Budgets of judging, and what is used of them: rules, leases, what was spent",
        writers=(GATEWAY, COMMAND_LINE),
    ),
    BucketSpec(
        name=CACHE_BUCKET,
        kind="key_value",
        description="Judgements by judge and input, so that nobody is paid twice for one",
        writers=("extraction", "verification", "matching", REPLAY, COMMAND_LINE),
        drop_old=True,
    ),
)
