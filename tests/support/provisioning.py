"""Streams that are made again after they were deleted, or used."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec
import nats.js.errors
from nats.js import JetStreamContext

from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.topology import BUCKETS, STREAMS

_as_new: dict[str, dict[str, Any]] = {}
"""By the id of a server, what its streams were when they had been made."""


async def make_as_new(js: JetStreamContext) -> None:
    """Streams, consumers and buckets as `topology` declares them, with nothing in them.

    Those that were used are made anew and not purged: the server remembers message ids beyond a purge, so an
    event that an earlier test had published would not be taken. To make all takes longer than most tests.
    """
    known = _as_new.setdefault(js._nc._server_info["server_id"], {})
    there = await _streams(js)
    used = [name for name in _NAMES if name not in known or there.get(name) != known[name]]
    if not used:
        return
    for name in used:
        with contextlib.suppress(nats.js.errors.NotFoundError):
            await js.delete_stream(name)
    await provision_again(js)
    known.update(await _streams(js))


_NAMES = [spec.name for spec in STREAMS] + [spec.stream for spec in BUCKETS]


async def _streams(js: JetStreamContext) -> dict[str, Any]:
    """What the server says of those that `topology` declares, without what changes by itself."""
    found: dict[str, Any] = {}
    for one in await _listed(js, "$JS.API.STREAM.LIST", "streams"):
        name = one["config"]["name"]
        if name in _NAMES:
            consumers = (
                await _listed(js, f"$JS.API.CONSUMER.LIST.{name}", "consumers")
                if one["state"]["consumer_count"]
                else []
            )
            for each in consumers:
                for key in ("ts", "num_waiting", "push_bound"):
                    each.pop(key, None)
            found[name] = (one["config"], one["created"], one["state"], consumers)
    return found


async def _listed(js: JetStreamContext, subject: str, key: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        reply = await js._nc.request(subject, msgspec.json.encode({"offset": len(found)}), timeout=10)
        page = msgspec.json.decode(reply.data)
        found += page[key] or []
        if len(found) >= page["total"] or not page[key]:
            return found


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
