"""Every bucket: what is in it, who writes it, who reads it."""

from __future__ import annotations

from groundwatch.topology.names import GATEWAY, IMAGES_BUCKET
from groundwatch.topology.specs import BucketSpec

BUCKETS: tuple[BucketSpec, ...] = (
    BucketSpec(
        name=IMAGES_BUCKET,
        kind="objects",
        description="Images by SHA-256 of their bytes",
        writers=(GATEWAY, "generation"),
        readers=("captioning", "verification"),
    ),
)
