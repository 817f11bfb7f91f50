"""Queues of answers that people look at: which answers belong to one, and with which probability each is
drawn into it."""

import asyncio
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from groundwatch.errors import (
    UNDECODED,
    HeldByOthers,
    InputError,
    InvalidName,
    Unavailable,
    UnknownName,
    UsageError,
    words,
)
from groundwatch.events import AlarmRaised, Decision, OpinionGiven, ResponseScored
from groundwatch.keys import reviewer_key
from groundwatch.protocols import registry
from groundwatch.reporting.sums import CATEGORIES, OTHER, facts_of, fingerprint
from groundwatch.reviews.opinions import Opinions
from groundwatch.runtime.delivery.bus import ENCODER, Bus, Stored
from groundwatch.runtime.delivery.streams import FAULTS, announced_alarms
from groundwatch.runtime.stores.buckets import Bucket
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.statistics.alarm import ALL
from groundwatch.statistics.sampling import WeightedSums, weight
from groundwatch.times import LAST
from groundwatch.topology import ALARMS, QUEUES_BUCKET

GROUPS = 1_000
"""Models, versions and sets of judges that a frame tells apart; beyond, models go by the name `other`."""

FRAME = "frame."

FrameGroup: TypeAlias = tuple[str, str, str, str, str]
"""Model, version, protocol, fingerprint of the set of judges, category."""


class AnswerCount(msgspec.Struct):
    """How many answers there are, whether or not a claim was decided."""

    number: int = 0


class Frame(msgspec.Struct, kw_only=True):
    """What one queue was drawn from so far.

    `sums` has the first judges' refuted of decided claims, `answers` the answers of the same group, category
    `all`. `sequences` and `streams` are by partition: up to which outcome it counts, in the stream that was
    made then (µs since the epoch). `drawn` of them are items. A queue of a fixed size is `complete` when it
    was drawn.
    """

    queue: str = ""
    sums: dict[FrameGroup, WeightedSums] = {}
    answers: dict[FrameGroup, AnswerCount] = {}
    sequences: dict[int, int] = {}
    streams: dict[int, int] = {}
    drawn: int = 0
    complete: bool = False

    @property
    def size(self) -> int:
        """How many answers it counts."""
        return sum(one.number for one in self.answers.values())

    def add(self, event: ResponseScored, version: str) -> None:
        """Count an outcome; one is drawn from those alone that are counted."""
        each = weight(event.drawn)
        judges = fingerprint(event.judges)
        group = (event.model, version, event.protocol, judges)
        if (*group, ALL) not in self.answers and len(self.answers) >= GROUPS:
            group = (OTHER, "", event.protocol, judges)
        self.answers.setdefault((*group, ALL), AnswerCount()).number += 1
        for category, (refuted, decided) in facts_of(event).items():
            known = (*group, category) in self.sums or self._categories(group) < CATEGORIES
            named = category if known else OTHER
            self.sums.setdefault((*group, named), WeightedSums()).add(refuted, decided, each)

    def _categories(self, group: tuple[str, str, str, str]) -> int:
        return sum(one[:4] == group for one in self.sums)


_BY_GROUP = ("sums", "answers")
"""What is written as pairs: names of JSON objects are texts."""


class Frames:
    """The frames of all queues. Everything raises `Unavailable` when the server does not answer."""

    def __init__(self, bus: Bus) -> None:
        self._bucket = Bucket(bus, QUEUES_BUCKET)

    async def load(self, queue: str) -> tuple[Frame, int]:
        """The frame, and the revision that a newer one must name; an empty one where there is none."""
        found = await self._bucket.get(FRAME + queue)
        if found is None:
            return Frame(queue=queue), 0
        try:
            fields = msgspec.json.decode(found.data)
            fields |= {name: {tuple(group): one for group, one in fields[name]} for name in _BY_GROUP}
            return msgspec.convert(fields | {"queue": queue}, Frame, str_keys=True), found.revision
        except (*UNDECODED, KeyError, TypeError, ValueError) as error:
            logger.warning("frame.unreadable", queue=queue, error=str(error))
            return Frame(queue=queue), found.revision

    async def save(self, frame: Frame, revision: int) -> int:
        """Write it over this revision; the new one, 0 where another replica has written meanwhile."""
        fields = {name: getattr(frame, name) for name in Frame.__struct_fields__}
        fields |= {name: list(fields[name].items()) for name in _BY_GROUP}
        return await self._bucket.put(FRAME + frame.queue, ENCODER.encode(fields), revision)


LEASE_SECONDS = 900.0
ITEM = "item."
DRAFT = "draft."

REMOVED = "item.removed"
"""Changes when items were removed."""

MAX_DRAFT = 256 * 1024
"""Bytes of a draft."""

PAGE = 100

State = Literal["open", "held", "done"]


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that was drawn into a queue, with that `probability`; 0 is that of one chosen by hand.

    `wanted` reviewers are to look at it. `held_by` has until when somebody holds it, `done_by` who has given
    an opinion. Items are given in the order of `order`, which is random: so those that are done at any
    moment are a random part of what was drawn. `asked`: it was handed on to the judge whose queue it is.
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
    wanted: int = 1
    held_by: dict[str, float] = {}
    done_by: tuple[str, ...] = ()
    asked: bool = False

    @property
    def done(self) -> bool:
        return len(self.done_by) >= self.wanted

    @property
    def state(self) -> State:
        if self.done:
            return "done"
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
        """Add an item unless it is there; whether it is new. One that is drawn takes the place of the same
        chosen by hand, with nobody's opinion yet: what was said of that one counts in no rate."""
        if await self._bucket.put(_item_key(item.queue, item.key), ENCODER.encode(item), 0):
            return True
        if not item.probability:
            return False
        changed = await self._change(item.queue, item.key, lambda one: one if one.probability else item)
        return changed is item

    async def next(self, queue: str, reviewer: str, after: str = "", tenant: str = "") -> Item | None:
        """The reviewer's next item, behind that of the key `after`, which nobody else gets while it is held.

        One that the reviewer holds already comes first; one that the same reviewer has done never comes. From
        the end it goes on at the beginning. None when there is nothing left for this reviewer.
        """
        known = await self._current(queue)
        begin = _order(known[after]) if after in known else (-1.0, "")
        candidates = [
            item for item in known.values() if tenant in ("", item.tenant) and self._is_free(item, reviewer)
        ]
        now = self._clock()

        def place(item: Item) -> tuple[bool, bool, tuple[float, str]]:
            mine = not after and reviewer in holding(item, now)
            return not mine, _order(item) <= begin, _order(item)

        for item in sorted(candidates, key=place):
            if item.key == after:
                continue
            try:
                return await self.hold(queue, item.key, reviewer)
            except (HeldByOthers, UnknownName):
                # Somebody was faster, or it was erased.
                continue
        return None

    async def look_up(self, queue: str, key: str) -> Item | None:
        found = await self._bucket.get(_item_key(queue, key))
        return _ITEM.decode(found.data) if found is not None else None

    async def find(self, queue: str, key: str) -> Item:
        """Raises `UnknownName`."""
        found = await self._bucket.get(_item_key(queue, key))
        return self._item(queue, key, found.data if found is not None else None)

    async def hold(self, queue: str, key: str, reviewer: str) -> Item:
        """Hold the item, or hold it for longer. Raises `HeldByOthers`, `UnknownName`."""

        def change(item: Item) -> Item:
            if reviewer in item.done_by:
                return item
            if not self._is_free(item, reviewer):
                who = ", ".join(holding(item, self._clock()))
                raise HeldByOthers(f"{who} has this now" if who else "others have completed this meanwhile")
            now = self._clock()
            held = holding(item, now) | {reviewer: now + LEASE_SECONDS}
            return msgspec.structs.replace(item, held_by=held)

        return await self._change(queue, key, change)

    async def release(self, queue: str, key: str, reviewer: str) -> Item:
        """Let go of the item; the draft stays, for when the reviewer comes back."""

        def change(item: Item) -> Item:
            held = {who: until for who, until in holding(item, self._clock()).items() if who != reviewer}
            return msgspec.structs.replace(item, held_by=held)

        return await self._change(queue, key, change)

    async def ask(self, queue: str, key: str) -> Item:
        """Note that the judge is asked for its opinion. Raises `UnknownName`."""
        return await self._change(queue, key, lambda item: msgspec.structs.replace(item, asked=True))

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

    async def reopen(self, queue: str, key: str, reviewer: str) -> None:
        """Take back what this reviewer said when they completed the item, which is a draft again, theirs to
        complete: until then it counts nowhere, unless it was said for another queue. Raises `UnknownName`."""
        item = await self.find(queue, key)
        said = await self._opinions.last(item.run, item.protocol, reviewer, key)
        if reviewer not in item.done_by or said is None:
            raise UnknownName(f"'{reviewer}' has not completed item '{key}'", "key")
        draft = {name: getattr(said, name) for name in ("labels", "facts", "mark", "seconds")}
        await self._bucket.change(_draft_key(queue, key, reviewer), lambda _: {}, lambda _: draft)

        def change(item: Item) -> Item:
            held = holding(item, self._clock()) | {reviewer: self._clock() + LEASE_SECONDS}
            done = tuple(one for one in item.done_by if one != reviewer)
            return msgspec.structs.replace(item, held_by=held, done_by=done)

        await self._change(queue, key, change)
        if said.queue == queue:
            nothing: dict[str, Any] = {"labels": (), "facts": (), "mark": None, "probability": 0.0}
            await self._opinions.give(msgspec.structs.replace(said, given_at=self._clock(), **nothing))

    async def save_draft(self, queue: str, key: str, reviewer: str, draft: dict[str, Any]) -> Item:
        """Keep what a reviewer has so far, and hold the item for longer.

        Raises `HeldByOthers`, `UnknownName`, `InputError` for one that is too large.
        """
        if len(ENCODER.encode(draft)) > MAX_DRAFT:
            raise InputError(f"a draft has at most {MAX_DRAFT} bytes")
        item = await self.hold(queue, key, reviewer)
        await self._bucket.change(_draft_key(queue, key, reviewer), lambda _: {}, lambda _: draft)
        return item

    async def load_draft(self, queue: str, key: str, reviewer: str) -> dict[str, Any] | None:
        found = await self._bucket.get(_draft_key(queue, key, reviewer))
        if found is None:
            return None
        draft: Any = msgspec.json.decode(found.data)
        return draft if isinstance(draft, dict) else None

    async def list(self, queue: str, *, tenant: str = "", after: str = "", limit: int = PAGE) -> list[Item]:
        """Items in the order in which they are given, behind that of the key `after`."""
        known = await self._current(queue)
        begin = _order(known[after]) if after in known else (-1.0, "")
        found = [item for item in known.values() if _order(item) > begin and tenant in ("", item.tenant)]
        return sorted(found, key=_order)[:limit]

    async def all(self, queue: str) -> Sequence[Item]:
        return tuple((await self._current(queue)).values())

    async def remove(self, queue: str, keys: Iterable[str]) -> None:
        """Remove single items."""
        await self._bucket.remove([_item_key(queue, key) for key in keys], REMOVED)

    async def delete_all(self, queue: str) -> int:
        """Remove every item of a queue, and every draft; how many items that were."""
        keys = {document.key async for document in self._bucket.read(f"{ITEM}{queue}.>")}
        drafts = {document.key async for document in self._bucket.read(f"{DRAFT}{queue}.>")}
        await self._bucket.remove([*drafts, *keys], REMOVED)
        return len(keys)

    def _is_free(self, item: Item, reviewer: str) -> bool:
        """Whether the reviewer holds it or may hold it."""
        if reviewer in item.done_by:
            return False
        held = holding(item, self._clock())
        return reviewer in held or len(item.done_by) + len(held) < item.wanted

    def _item(self, queue: str, key: str, data: bytes | None) -> Item:
        if data is None:
            self._known.get(queue, {}).pop(key, None)
            raise UnknownName(f"there is no item '{key}' in queue '{queue}'", "key")
        return _ITEM.decode(data)

    async def _change(self, queue: str, key: str, change: Callable[[Item], Item]) -> Item:
        read = partial(self._item, queue, key)
        changed = await self._bucket.change(_item_key(queue, key), read, change)
        self._known.setdefault(queue, {})[key] = changed
        return changed

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


def _order(item: Item) -> tuple[float, str]:
    """Where it stands: all that were chosen by hand come first."""
    return item.order, item.key


def _item_key(queue: str, key: str) -> str:
    return f"{ITEM}{_token(queue)}.{_token(key)}"


def _draft_key(queue: str, key: str, reviewer: str) -> str:
    return f"{DRAFT}{_token(queue)}.{_token(key)}.{reviewer_key(reviewer)}"


def _token(text: str) -> str:
    """A part of a key in the bucket, whoever gave it."""
    if _is_token(text) is None:
        raise UnknownName(f"there is nothing of the name '{text[:64]}'", "key")
    return text


Rule = Literal["random", "uncertain", "signals", "disagreement", "alarm", "all"]

MOST_QUEUES, MOST_OF_TENANT = 200, 50
DEFINITION = "definition."

Text = Annotated[str, msgspec.Meta(max_length=512)]
Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
Person = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]

JUDGE = "judge:"
"""What the name of a reviewer begins with who is a judge; behind it stands the judge's fingerprint."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class QueueSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which scored outcomes of live traffic a queue is drawn from, and by which rule.

    With a `size` so many are drawn, once, from what is recorded up to `until`; without one each answer that
    comes is drawn with a probability of about `share`, until the queue is closed. Empty filters match
    everything; `tag` is `name=value`; `category` and `verdict` want a claim of that kind. Times are of
    recording, in seconds since the epoch. `alarm` is the key of an alarm, whose model, protocol, category and
    `since` are taken. `reviewers` is how many look at each item, `assigned` who may, where not everybody.
    `salt` makes the draw, and `mean_uncertainty` is what an answer's uncertainty is held against, for ever.
    """

    name: Name
    protocol: Text = ""
    rule: Rule = "random"
    size: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 0
    share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    model: Text = ""
    tenant: Text = ""
    version: Text = ""
    tag: Text = ""
    category: Text = ""
    verdict: Decision | None = None
    since: Annotated[float, msgspec.Meta(ge=0, le=LAST)] = 0.0
    until: Annotated[float, msgspec.Meta(ge=0, le=LAST)] = 0.0
    alarm: Text = ""
    reviewers: Annotated[int, msgspec.Meta(ge=1, le=50)] = 1
    assigned: Annotated[tuple[Person, ...], msgspec.Meta(max_length=200)] = ()
    salt: str = ""
    mean_uncertainty: float = 0.0
    created_at: float = 0.0
    created_by: str = ""
    closed: bool = False

    @property
    def for_judge(self) -> bool:
        """Whether a judge works at it, and no people."""
        return bool(self.assigned) and all(one.startswith(JUDGE) for one in self.assigned)

    def has(self, opinion: OpinionGiven) -> bool:
        """Whether the opinion was given for this queue, and not for one of its name that was deleted before
        and drawn otherwise."""
        return opinion.queue == self.name and opinion.given_at >= self.created_at


def item_of(spec: QueueSpec, event: ResponseScored, version: str, probability: float, **more: Any) -> Item:
    """This outcome as an item; with the probability 0 it was chosen by hand, and is in no rate."""
    return Item(
        queue=spec.name,
        key=event.key,
        id=event.id,
        tenant=event.tenant,
        model=event.model,
        version=version,
        protocol=event.protocol,
        run=event.run,
        partition=event.partition,
        probability=probability,
        recorded_at=event.recorded_at,
        wanted=spec.reviewers,
        **more,
    )


class QueueProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a queue is. `held` are items that somebody works at, `opinions` counts those of all reviewers,
    and `reviewers` those of each."""

    items: int = 0
    done: int = 0
    held: int = 0
    opinions: int = 0
    reviewers: dict[str, int] = {}


_SPEC = msgspec.json.Decoder(QueueSpec)


class Queues:
    """The definitions of queues. Everything raises `Unavailable` when the server does not answer."""

    def __init__(self, bus: Bus, items: Items | None = None) -> None:
        self._bus = bus
        self._bucket = Bucket(bus, QUEUES_BUCKET)
        self.items = items or Items(bus)

    async def create(self, spec: QueueSpec) -> QueueSpec:
        """Write the queue down, complete; what it draws comes soon after. Raises `UsageError` for one that
        cannot be."""
        spec = await self._completed(spec)
        tenants = Counter(queue.tenant for queue in await self.list())
        if tenants.total() >= MOST_QUEUES:
            raise UsageError(f"there are {MOST_QUEUES} queues already: delete one first")
        if spec.tenant and tenants[spec.tenant] >= MOST_OF_TENANT:
            raise UsageError(
                f"tenant '{spec.tenant}' has {MOST_OF_TENANT} queues already: delete one first", "tenant"
            )
        if await self._bucket.get(_key(spec.name)) is None:
            # Of one before it, whose definition went with its tenant.
            await self.items.delete_all(spec.name)
            await self._bucket.remove([FRAME + spec.name])
        if not await self._bucket.put(_key(spec.name), ENCODER.encode(spec), 0):
            message = f"there is a queue '{spec.name}' already"
            if spec.tenant and (await self.find(spec.name)).tenant not in ("", spec.tenant):
                # What others name their queues is none of this tenant's business.
                message = (
                    f"no queue of tenant '{spec.tenant}' can be named '{spec.name}': choose another name"
                )
            raise UsageError(message, "queue")
        return spec

    async def list(self) -> list[QueueSpec]:
        """Every queue, the oldest first."""
        found = {}
        async for document in self._bucket.read(f"{DEFINITION}>"):
            if (spec := _decoded(document.data)) is not None:
                found[document.key] = spec
        return sorted(found.values(), key=lambda spec: (spec.created_at, spec.name))

    async def find(self, name: str) -> QueueSpec:
        """Raises `UnknownName`."""
        found = await self._bucket.get(_key(name))
        return _found(name, found.data if found is not None else None)

    async def close(self, name: str, closed: bool = True) -> QueueSpec:
        """Draw no more for it, and give nobody another item; what was said counts on. Or, not `closed`, go on
        where it was: what was recorded meanwhile is drawn from too."""
        return await self._change(name, lambda spec: msgspec.structs.replace(spec, closed=closed))

    async def set_mean(self, name: str, mean: float) -> QueueSpec:
        """Write down, once, what the uncertainty of answers is held against; -1 where none says how sure its
        judge was."""
        mean = mean if mean > 0 else -1.0

        def change(spec: QueueSpec) -> QueueSpec:
            return spec if spec.mean_uncertainty else msgspec.structs.replace(spec, mean_uncertainty=mean)

        return await self._change(name, change)

    async def _change(self, name: str, change: Callable[[QueueSpec], QueueSpec]) -> QueueSpec:
        return await self._bucket.change(_key(name), partial(_found, name), change)

    async def delete(self, name: str) -> int:
        """Remove the queue with its items and drafts; opinions stay. How many items that were."""
        await self.find(name)
        await self.close(name)
        items = await self.items.delete_all(name)
        await self._bucket.remove([FRAME + name, _key(name)])
        return items

    async def progress(self, name: str, tenant: str = "") -> QueueProgress:
        """Over all items, or those of one tenant."""
        reviewers: dict[str, int] = {}
        items = done = held = 0
        now = time.time()
        for item in await self.items.all(name):
            if tenant not in ("", item.tenant):
                continue
            items += 1
            done += item.done
            held += not item.done and bool(holding(item, now))
            for reviewer in item.done_by:
                reviewers[reviewer] = reviewers.get(reviewer, 0) + 1
        return QueueProgress(
            items=items,
            done=done,
            held=held,
            opinions=sum(reviewers.values()),
            reviewers=dict(sorted(reviewers.items())),
        )

    async def _completed(self, spec: QueueSpec) -> QueueSpec:
        now = time.time()
        if spec.rule == "alarm":
            spec = _of_alarm(spec, await self._alarm(spec.alarm))
        elif spec.alarm:
            raise UsageError("an alarm is named for the rule 'alarm' alone", "alarm")
        if not spec.protocol:
            raise UsageError("name the protocol whose outcomes are looked at", "protocol")
        registry.get(spec.protocol)
        if spec.tag and not all(spec.tag.partition("=")[::2]):
            raise UsageError("a tag is written name=value", "tag")
        if spec.until and spec.until <= spec.since:
            raise UsageError("'until' is not behind 'since'", "until")
        for person in spec.assigned:
            check_reviewer(person, "assigned")
        fixed = spec.size > 0
        return msgspec.structs.replace(
            spec,
            share=1.0 if spec.rule == "all" else spec.share,
            since=spec.since if fixed or spec.since else now,
            until=(spec.until or now) if fixed else spec.until,
            salt=secrets.token_hex(8),
            mean_uncertainty=0.0,
            created_at=now,
            closed=False,
        )

    async def _alarm(self, key: str) -> AlarmRaised:
        """The last alarm of this key."""
        if not key:
            raise UsageError("name the alarm whose answers are to be looked at", "alarm")
        try:
            alarms = [alarm async for alarm in announced_alarms(self._bus.js) if alarm.key == key]
        except FAULTS as error:
            raise Unavailable(f"cannot read {ALARMS}: {words(error)}") from error
        if not alarms:
            raise UnknownName(f"there is no alarm '{key}'", "alarm")
        return alarms[-1]


def check_reviewer(name: str, field: str = "reviewer") -> None:
    """Raises `InvalidName` for what cannot be the name of a reviewer."""
    if not name.strip() or len(name) > 128 or _CONTROL.search(name):
        raise InvalidName(f"{field}: a name has 1 to 128 characters, and no control characters", field)


def read_spec(data: bytes) -> QueueSpec:
    """Raises `InputError` for what is none."""
    try:
        return _SPEC.decode(data)
    except UNDECODED as error:
        raise InputError(str(error)) from error


def _of_alarm(spec: QueueSpec, alarm: AlarmRaised) -> QueueSpec:
    return msgspec.structs.replace(
        spec,
        protocol=alarm.protocol,
        model=alarm.model,
        category=spec.category or ("" if alarm.category == "all" else alarm.category),
        since=spec.since or alarm.since,
    )


def _key(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", name):
        raise UnknownName(f"there is no queue '{name[:64]}'", "queue")
    return DEFINITION + name


def _found(name: str, data: bytes | None) -> QueueSpec:
    if data is None or (spec := _decoded(data)) is None:
        raise UnknownName(f"there is no queue '{name}'", "queue")
    return spec


def _decoded(data: bytes) -> QueueSpec | None:
    try:
        return _SPEC.decode(data)
    except UNDECODED as error:
        logger.warning("queue.unreadable", error=str(error))
        return None
