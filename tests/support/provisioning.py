"""Streams that are made again after they were deleted."""

from __future__ import annotations

import asyncio

import nats.js.errors
from nats.js import JetStreamContext

from groundwatch.runtime.delivery.provisioning import provision


async def provision_again(js: JetStreamContext) -> None:
    """Make what `topology` declares, soon after it was deleted.

    nats-server clears a deleted stream's folder for a moment longer, and a stream of the same name that is
    made meanwhile can lose its folder ("error creating store for stream").
    """
    async with asyncio.timeout(30):
        while True:
            try:
                await provision(js)
                return
            except nats.js.errors.ServerError:
                await asyncio.sleep(0.1)
