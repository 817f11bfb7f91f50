"""Retention shorter than a stream's own: by stream, and by tenant and stream; and what came after an erasure.

What a stage has still to do stays, however old: the ledger must balance.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import msgspec
from nats.js import JetStreamContext

from groundwatch import topology
from groundwatch.archive.images import named_in
from groundwatch.erasure.erasing import forget_judgements
from groundwatch.erasure.finding import (
    QUEUES,
    Stores,
    channels_of,
    drop_from_archive,
    mark_removed,
    owner_key,
    owner_tenant,
    queued_of,
    say_erased,
    still_named,
)
from groundwatch.errors import words
from groundwatch.ledger.store import ErasureEntries
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.direct import overwrite
from groundwatch.runtime.delivery.streams import read_stream
from groundwatch.runtime.delivery.unanswered import done_up_to
from groundwatch.runtime.services.tasks import PASSING, SupervisedTask, until_set
from groundwatch.runtime.settings import Ages, RetentionSettings, Settings
from groundwatch.runtime.stores import images, tombstones
from groundwatch.runtime.stores.images import IMAGES_STREAM
from groundwatch.runtime.stores.tombstones import Tombstone, tombstone_name
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.times import moment_of
from groundwatch.topology.partitions import consumers_of, kind_of, streams_of_kind

if TYPE_CHECKING:
    from groundwatch.archive.events import Events
    from groundwatch.archive.table import Change

STREAMS = {
    "responses": topology.RESPONSES,
    "asked": topology.ASKED,
    "extracted": topology.EXTRACTED,
    "judged": topology.JUDGED,
    "outcomes": topology.OUTCOMES,
    "alarms": topology.ALARMS,
    "opinions": topology.OPINIONS,
    "dead": topology.DEAD,
}
"""Names in settings. The work queue of retries empties itself."""

FRESH = topology.DAY
"""Seconds after an erasure in which something of it can still come: from a stage that had held it."""


EVERY_SECONDS = 3_600.0
FIRST_SECONDS = 60.0
"""After the start, when services have other things to do."""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What a round removed, by store: `expired` for its age, `resurrected` since it had been erased."""

    expired: dict[str, int]
    resurrected: dict[str, int]
    dry_run: bool = False


async def enforce(
    js: JetStreamContext,
    settings: RetentionSettings,
    stores: Stores,
    *,
    dry_run: bool = False,
    archived_images: bool = True,
) -> Kept:
    """One round; whether `archived_images` are looked at too, which reads all of the archive's events.

    Raises what NATS and the archive raise.
    """
    now = time.time()
    expired: Counter[str] = Counter()
    if not dry_run:
        for tenant, ages in (("", settings), *settings.tenants.items()):
            if ages.responses:
                # First of all: the audit takes outcomes of older responses for expired, and not for orphans,
                # even when this round does not come to its end.
                cut = Tombstone(
                    kind="retention",
                    name=tombstone_name("retention", tenant),
                    at=now - ages.responses * topology.DAY,
                    settled=True,
                )
                await tombstones.write(js, cut)
    kept_in = [
        (name, one) for name, kind in STREAMS.items() for one in streams_of_kind(kind, stores.partitions)
    ]
    for name, stream in kept_in:
        kind = STREAMS[name]
        old = await _too_old(js, name, stream, settings, now)
        expired[kind] += len(old) if dry_run else await overwrite(js, stream, old)
        if stores.events is not None and kind in topology.COPIED:
            expired["archived events"] += await asyncio.to_thread(
                _drop_archived, stores.events, name, stream, settings, now, dry_run=dry_run
            )
    if settings.images:
        before = now - settings.images * topology.DAY
        expired["images"] += await _unnamed_images(js, before, stores, dry_run=dry_run)
        if archived_images:
            expired["archive images"] += await _unnamed_in_archive(js, before, stores, dry_run=dry_run)
    again = Counter[str]() if dry_run else await _sweep_again(js, stores, now)
    return Kept(
        expired={name: number for name, number in expired.items() if number},
        resurrected=dict(again),
        dry_run=dry_run,
    )


def age_of(ages: Ages, name: str) -> float:
    """Days that a stream's events are kept, 0 for as long as the stream keeps them.

    A question goes with its answer at the latest: one without an answer would count as lost.
    """
    days: float = getattr(ages, name)
    if name == "asked" and ages.responses:
        return min(days or ages.responses, ages.responses)
    return days


def _ages_of(settings: RetentionSettings, name: str) -> tuple[float, dict[str, float]]:
    """In general, and of tenants that have one of their own."""
    ages = {tenant: age_of(ages, name) for tenant, ages in settings.tenants.items()}
    return age_of(settings, name), {tenant: days for tenant, days in ages.items() if days}


async def _too_old(
    js: JetStreamContext, name: str, stream: str, settings: RetentionSettings, now: float
) -> list[int]:
    general, by_tenant = _ages_of(settings, name)
    if not general and not by_tenant:
        return []
    shortest = min(days for days in (general, *by_tenant.values()) if days)
    last = await _settled_until(js, stream)
    found = []
    for subjects in channels_of(stream):
        async for read in read_stream(
            js, stream, subjects=(subjects,), headers_only=not by_tenant, last_sequence=last
        ):
            if read.time > now - shortest * topology.DAY:
                break
            days = (by_tenant.get(owner_tenant(read) or "") if by_tenant else None) or general
            if days and read.time <= now - days * topology.DAY:
                found.append(read.sequence)
    return found


def _drop_archived(
    events: Events, name: str, stream: str, settings: RetentionSettings, now: float, *, dry_run: bool
) -> int:
    """The same for what the archive keeps of the stream's events; how many were too old."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    general, by_tenant = _ages_of(settings, name)
    cuts = {tenant: moment_of(now - days * topology.DAY) for tenant, days in by_tenant.items()}
    if not general and not cuts:
        return 0
    conditions = [(ds.field("tenant") == one) & (ds.field("time") <= cut) for one, cut in cuts.items()]
    if general:
        cuts[""] = moment_of(now - general * topology.DAY)
        of_others = ~ds.field("tenant").isin(pa.array(list(by_tenant), pa.string()))
        conditions.append(of_others & (ds.field("time") <= cuts[""]))
    too_old = reduce(or_, conditions)
    latest = max(cuts.values()).date()
    if dry_run:
        held = events.snapshot().dataset()
        return held.count_rows(filter=(ds.field("stream") == stream) & too_old) if held is not None else 0
    removed = 0

    def draft(change: Change) -> bool:
        nonlocal removed
        files = [file for file in change.base.files() if file.stream == stream and file.day <= latest]
        removed = change.remove_rows(files, too_old)
        return bool(removed)

    events.change(draft)
    return removed


async def _settled_until(js: JetStreamContext, stream: str) -> int:
    """Up to which sequence no stage has anything left to do."""
    last = int((await js.stream_info(stream)).state.last_seq)
    for spec in consumers_of(stream):
        info = await js.consumer_info(stream, spec.name)
        if info.num_ack_pending or info.num_pending:
            last = min(last, done_up_to(info))
    return last


async def _unnamed_images(js: JetStreamContext, before: float, stores: Stores, *, dry_run: bool) -> int:
    """Remove images that were used before then only, and that no event names; with pieces of no image.

    An image that is used while this looks stays: to be used, it was written anew, and what is removed is
    exactly what was read here.
    """
    before = min(before, time.time() - images.GRACE_SECONDS)
    stored = {one.sha256: one async for one in images.stored_images(js)}
    unnamed = await _unnamed(js, {name for name, one in stored.items() if one.time <= before}, stores)
    if dry_run:
        return len(unnamed)
    removed = 0
    for name in unnamed:
        one = stored[name]
        if await overwrite(js, IMAGES_STREAM, (one.sequence,)):
            removed += 1
            await images.drop_pieces(js, one.nuid)
    await images.drop_orphans(js, before)
    return removed


async def _unnamed(js: JetStreamContext, names: set[str], stores: Stores) -> set[str]:
    """Those that no event names, in the streams or the archive."""
    left = names - await still_named(js, names, frozenset(), stores.partitions)
    if left and stores.events is not None:
        left -= await asyncio.to_thread(named_in, stores.events, left)
    return left


async def _unnamed_in_archive(js: JetStreamContext, before: float, stores: Stores, *, dry_run: bool) -> int:
    """Remove images from the archive that were written before then, and that no event names.

    One that is in the object store stays: it may be named at any moment.
    """
    if stores.images is None:
        return 0
    before = min(before, time.time() - images.GRACE_SECONDS)
    hot = images.ImageStore(js)
    removed = 0
    for name in await _unnamed(js, set(await asyncio.to_thread(stores.images.stored_before, before)), stores):
        if await hot.stored(name) is None:
            removed += 1
            if not dry_run:
                await asyncio.to_thread(stores.images.remove, name)
    return removed


async def _sweep_again(js: JetStreamContext, stores: Stores, now: float) -> Counter[str]:
    """Remove what a stage or a replay published of a response, or put into the cache, after its erasure."""
    fresh = [
        stone
        async for stone in tombstones.tombstones(js)
        if stone.kind in ("response", "tenant") and (not stone.settled or now - stone.at < FRESH)
    ]
    found: Counter[str] = Counter()
    if not fresh:
        return found
    names = {stone.name for stone in fresh}
    tenants = any(stone.kind == "tenant" for stone in fresh)

    def erased(key: str, tenant: str | None) -> bool:
        mine = tombstone_name("response", key) in names
        return mine or (tenant is not None and tombstone_name("tenant", tenant) in names)

    keys: set[str] = set()
    ledger = ErasureEntries(js, "again", stores.partitions)
    await ledger.start()
    kinds = (*STREAMS.values(), topology.SECOND, topology.INTAKE, topology.RETRY)
    doomed: dict[str, list[int]] = {}
    for stream in (name for kind in kinds for name in streams_of_kind(kind, stores.partitions)):
        # What was published and not recorded names its response only inside.
        whole = tenants or stream in (topology.INTAKE, topology.DEAD, topology.RETRY)
        for subjects in channels_of(stream) if stream != topology.ALARMS else ():
            async for read in read_stream(js, stream, subjects=(subjects,), headers_only=not whole):
                key = owner_key(read)
                if erased(key, owner_tenant(read) if tenants else None):
                    keys.add(key)
                    doomed.setdefault(stream, []).append(read.sequence)
                    ledger.note(stream, read)
    if keys:
        await say_erased(js, stores, ledger, keys)
    for stream, sequences in doomed.items():
        found[kind_of(stream)] += await overwrite(js, stream, sequences)
    if sequences := await queued_of(js, erased):
        found[QUEUES] += await overwrite(js, QUEUES, sequences)
        await mark_removed(js)
    if keys:
        await drop_from_archive(js, stores, keys)
    await ledger.finish()
    if stores.images is not None:
        # A copy that was being made when its image was erased.
        hot = images.ImageStore(js)
        again = {name for stone in fresh for name in stone.images}
        for name in {one for one in again if await asyncio.to_thread(stores.images.has, one)}:
            if await hot.stored(name) is None and await _unnamed(js, {name}, stores):
                found["archive images"] += await asyncio.to_thread(stores.images.remove, name)
    if tokens := {token for stone in fresh for token in stone.cache}:
        found["cache"] += await forget_judgements(js, tokens)
    return Counter({name: number for name, number in found.items() if number})


class RetentionService:
    """Removes again and again what is too old, and what came of an erased response after all."""

    name = "retention"

    def __init__(self, settings: Settings, bus: Bus) -> None:
        self._settings = settings
        self._bus = bus
        self._stopped = asyncio.Event()
        self._failed = ""
        self._archived_images_at = 0.0
        self._task = SupervisedTask("retention", self._again_and_again)

    async def start(self) -> None:
        self._task.start()

    async def drain(self, timeout: float) -> None:
        """Finish a round that is under way, if it ends within `timeout` seconds."""
        self._stopped.set()
        await self._task.finish(timeout)

    def problems(self) -> list[str]:
        """Why nothing is removed; nothing waits for it otherwise."""
        return [f"{self.name}: {why}" for why in (self._task.problem, self._failed) if why]

    async def once(self) -> Kept:
        """One round. Raises what NATS and the archive raise."""
        stores = Stores.of(self._settings.archive, partitions=self._bus.partitions)
        due = time.monotonic() >= self._archived_images_at
        kept = await enforce(self._bus.js, self._settings.retention, stores, archived_images=due)
        if due:
            self._archived_images_at = time.monotonic() + topology.DAY
        if kept.expired or kept.resurrected:
            logger.info("retention.removed", expired=kept.expired, erased_before=kept.resurrected)
        return kept

    async def _again_and_again(self) -> None:
        pause = FIRST_SECONDS
        while True:
            await until_set(self._stopped, pause)
            if self._stopped.is_set():
                return
            pause = EVERY_SECONDS
            try:
                await self.once()
                self._failed = ""
            except PASSING as error:
                self._failed = f"the last round failed: {words(error)}"
                logger.error("retention.failed", error=words(error))
