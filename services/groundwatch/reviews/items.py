"""Items of queues: answers that wait for reviewers, who holds which, and what is said so far.

Who wants an item writes so into it by compare-and-set, so that no two hold one beyond the number of reviewers
that it is to have. A hold is a lease: it ends `LEASE_SECONDS` after the last draft was saved.
"""

import asyncio
import random
import re
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import msgspec

from groundwatch.errors import UNDECODED, HeldByOthers, InputError, Unavailable, UnknownName
from groundwatch.events import OpinionGiven
from groundwatch.keys import reviewer_key
from groundwatch.reviews.opinions import Opinions
from groundwatch.runtime.delivery.bus import ENCODER, Bus, Stored
from groundwatch.runtime.stores.buckets import Bucket
from groundwatch.topology import QUEUES_BUCKET

LEASE_SECONDS = 900.0
TRIES = 50
ITEM = "item."
DRAFT = "draft."

REMOVED = "item.removed"
"""Changes when items were removed."""

MAX_DRAFT = 256 * 1024
"""Bytes of a draft."""

MAX_REASON = 500
"""Characters of why an item failed."""

PAGE = 100

State = Literal["open", "held", "done", "failed"]


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that was drawn into a queue, with that `probability`.

    `wanted` reviewers are to look at it. `held_by` has until when somebody holds it, `done_by` who has given
    an opinion. Items are given in the order of `order`, which is random: so those that are done at any
    moment are a random part of what was drawn. `tries` counts how often a judge was asked for an
    opinion, and `failed` is why nobody is given the item any more.
    """

    queue: str
    key: str
    id: str
    tenant: str
    model: str
    protocol: str
    version: str = ""
    run: str = "live"
    partition: int = 0
    probability: float = 1.0
    uncertainty: float = 0.0
    order: float = 0.0
    recorded_at: float = 0.0
    drawn_at: float = 0.0
    wanted: int = 1
    held_by: dict[str, float] = {}
    done_by: tuple[str, ...] = ()
    tries: int = 0
    failed: str = ""

    @property
    def done(self) -> bool:
        return len(self.done_by) >= self.wanted

    @property
    def state(self) -> State:
        if self.done:
            return "done"
        if self.failed:
            return "failed"
        return "held" if holding(self, time.time()) else "open"


_is_token = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII).fullmatch
_ITEM = msgspec.json.Decoder(Item)


def holding(item: Item, now: float) -> dict[str, float]:
    """Who holds it, with until when."""
    return {who: until for who, until in item.held_by.items() if until > now and who not in item.done_by}


class Items:
    """The items of all queues. Everything raises `Unavailable` when the server does not answer."""

    def __init__(self, bus: Bus, clock: Callable[[], float] = time.time) -> None:
        self._bucket = Bucket(bus, QUEUES_BUCKET)
        self._opinions = Opinions(bus)
        self._clock = clock
        self._known: dict[str, dict[str, Item]] = {}
        self._position = (0, 0)
        self._turn = asyncio.Lock()

    async def create(self, item: Item) -> bool:
        """Add an item unless it is there; whether it is new."""
        return bool(await self._bucket.put(_key(item.queue, item.key), ENCODER.encode(item), 0))

    async def next(self, queue: str, reviewer: str, after: str = "", tenant: str = "") -> Item | None:
        """The reviewer's next item, behind that of the key `after`, which nobody else gets while it is held.

        One that the reviewer holds already comes first; one that the same reviewer has done never comes. From
        the end it goes on at the beginning. None when there is nothing left for this reviewer.
        """
        known = await self._current(queue)
        begin = known[after].order if after in known else -1.0
        candidates = [
            item for item in known.values() if tenant in ("", item.tenant) and self._is_free(item, reviewer)
        ]
        now = self._clock()

        def place(item: Item) -> tuple[bool, bool, float]:
            mine = not after and reviewer in holding(item, now)
            return not mine, item.order <= begin, item.order

        for item in sorted(candidates, key=place):
            if item.key == after:
                continue
            try:
                return await self.hold(queue, item.key, reviewer)
            except (HeldByOthers, UnknownName):
                # Somebody was faster, or it was erased.
                continue
        return None

    async def find(self, queue: str, key: str) -> Item:
        """Raises `UnknownName`."""
        return (await self._get(queue, key))[0]

    async def hold(self, queue: str, key: str, reviewer: str, *, tries: int | None = None) -> Item:
        """Hold the item, or hold it for longer, and note how many `tries` that are. Raises `HeldByOthers`,
        `UnknownName`."""

        def change(item: Item) -> Item:
            if reviewer in item.done_by:
                return item
            if not self._is_free(item, reviewer):
                who = ", ".join(holding(item, self._clock()))
                if item.failed:
                    raise HeldByOthers(f"nobody can look at this: {item.failed}")
                raise HeldByOthers(f"{who} has this now" if who else "others have completed this meanwhile")
            now = self._clock()
            held = holding(item, now) | {reviewer: now + LEASE_SECONDS}
            return msgspec.structs.replace(item, held_by=held, tries=item.tries if tries is None else tries)

        return await self._change(queue, key, change)

    renew = hold

    async def release(self, queue: str, key: str, reviewer: str, *, tries: int | None = None) -> Item:
        """Let go of the item; the draft stays, for when the reviewer comes back. `tries` as in `hold`."""

        def change(item: Item) -> Item:
            held = {who: until for who, until in holding(item, self._clock()).items() if who != reviewer}
            return msgspec.structs.replace(item, held_by=held, tries=item.tries if tries is None else tries)

        return await self._change(queue, key, change)

    async def fail(self, queue: str, key: str, reason: str) -> Item:
        """Give the item to nobody any more, for this reason."""

        def change(item: Item) -> Item:
            return msgspec.structs.replace(item, failed=reason[:MAX_REASON], held_by={})

        return await self._change(queue, key, change)

    async def complete(self, queue: str, key: str, opinion: OpinionGiven, *, replace: bool = True) -> Stored:
        """Give the opinion, and then note that its reviewer has done the item. Safe to repeat.

        Without `replace` an opinion of before on the same item stands. Raises `HeldByOthers` where the
        reviewer neither holds it nor may, `UnknownName`.
        """
        await self.hold(queue, key, opinion.reviewer)
        stored = await self._opinions.give(opinion, replace=replace)

        def change(item: Item) -> Item:
            held = {who: until for who, until in item.held_by.items() if who != opinion.reviewer}
            done = item.done_by if opinion.reviewer in item.done_by else (*item.done_by, opinion.reviewer)
            return msgspec.structs.replace(item, held_by=held, done_by=done)

        await self._change(queue, key, change)
        await self._bucket.remove([_draft_key(queue, key, opinion.reviewer)])
        return stored

    async def save_draft(self, queue: str, key: str, reviewer: str, draft: dict[str, Any]) -> Item:
        """Keep what a reviewer has so far, and hold the item for longer.

        Raises `HeldByOthers`, `UnknownName`, `InputError` for one that is too large.
        """
        data = ENCODER.encode(draft)
        if len(data) > MAX_DRAFT:
            raise InputError(f"a draft has at most {MAX_DRAFT} bytes")
        item = await self.hold(queue, key, reviewer)
        name = _draft_key(queue, key, reviewer)
        for _ in range(TRIES):
            before = await self._bucket.get(name)
            if await self._bucket.put(name, data, before.revision if before is not None else 0):
                return item
        raise Unavailable("the draft is saved elsewhere at this moment: save it again")

    async def load_draft(self, queue: str, key: str, reviewer: str) -> dict[str, Any] | None:
        found = await self._bucket.get(_draft_key(queue, key, reviewer))
        if found is None:
            return None
        draft: Any = msgspec.json.decode(found.data)
        return draft if isinstance(draft, dict) else None

    async def list(
        self, queue: str, *, state: State | None = None, tenant: str = "", after: str = "", limit: int = PAGE
    ) -> list[Item]:
        """Items in the order in which they are given, behind that of the key `after`."""
        known = await self._current(queue)
        begin = known[after].order if after in known else -1.0
        found = [
            item
            for item in known.values()
            if item.order > begin and tenant in ("", item.tenant) and state in (None, item.state)
        ]
        return sorted(found, key=lambda item: item.order)[:limit]

    async def all(self, queue: str) -> Sequence[Item]:
        return tuple((await self._current(queue)).values())

    async def remove(self, queue: str, keys: Iterable[str]) -> None:
        """Remove single items."""
        await self._bucket.remove([_key(queue, key) for key in keys], REMOVED)

    async def delete_all(self, queue: str) -> int:
        """Remove every item of a queue, and every draft; how many items that were."""
        keys = {document.key async for document in self._bucket.read(f"{ITEM}{queue}.>")}
        drafts = {document.key async for document in self._bucket.read(f"{DRAFT}{queue}.>")}
        await self._bucket.remove([*drafts, *keys], REMOVED)
        return len(keys)

    def _is_free(self, item: Item, reviewer: str) -> bool:
        """Whether the reviewer holds it or may hold it."""
        if reviewer in item.done_by or item.failed:
            return False
        held = holding(item, self._clock())
        return reviewer in held or len(item.done_by) + len(held) < item.wanted

    async def _get(self, queue: str, key: str) -> tuple[Item, int]:
        found = await self._bucket.get(_key(queue, key))
        if found is None:
            self._known.get(queue, {}).pop(key, None)
            raise UnknownName(f"there is no item '{key}' in queue '{queue}'", "key")
        return _ITEM.decode(found.data), found.revision

    async def _change(self, queue: str, key: str, change: Callable[[Item], Item]) -> Item:
        for _ in range(TRIES):
            item, revision = await self._get(queue, key)
            changed = change(item)
            if changed == item:
                return item
            if await self._bucket.put(_key(queue, key), ENCODER.encode(changed), revision):
                self._known.setdefault(queue, {})[key] = changed
                return changed
            await asyncio.sleep(random.uniform(0, 0.02))
        raise Unavailable(f"others change item '{key}' at this moment: send it again")

    async def _current(self, queue: str) -> dict[str, Item]:
        """The queue's items as they are now: what was written since we last looked is read."""
        async with self._turn:
            created, last = await self._bucket.position()
            if (created, last) != self._position:
                begun, before = self._position
                if created != begun or (last > before and not await self._read(before)):
                    await self._read(0)
                self._position = created, last
        return self._known.get(queue, {})

    async def _read(self, after: int) -> bool:
        """Read what was written after a revision; False where something was removed since."""
        known = self._known if after else {}
        async for document in self._bucket.read(f"{ITEM}>", after):
            if document.key == REMOVED:
                if after:
                    return False
                continue
            try:
                item = _ITEM.decode(document.data)
            except UNDECODED:
                continue
            known.setdefault(item.queue, {})[item.key] = item
        self._known = known
        return True


def _key(queue: str, key: str) -> str:
    return f"{ITEM}{_token(queue)}.{_token(key)}"


def _draft_key(queue: str, key: str, reviewer: str) -> str:
    return f"{DRAFT}{_token(queue)}.{_token(key)}.{reviewer_key(reviewer)}"


def _token(text: str) -> str:
    """A part of a key in the bucket, whoever gave it."""
    if _is_token(text) is None:
        raise UnknownName(f"there is nothing of the name '{text[:64]}'", "key")
    return text
