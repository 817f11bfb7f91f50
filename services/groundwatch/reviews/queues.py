"""Queues of answers that people look at: which answers belong to one, and with which probability each is
drawn into it."""

import re
import secrets
import time
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Literal

import msgspec

from groundwatch.errors import UNDECODED, InputError, InvalidName, Unavailable, UnknownName, UsageError
from groundwatch.events import AlarmRaised, Decision, OpinionGiven
from groundwatch.protocols import registry
from groundwatch.reviews.frames import FRAME
from groundwatch.reviews.items import Items, holding
from groundwatch.runtime.delivery.bus import ENCODER, Bus
from groundwatch.runtime.delivery.streams import FAULTS, read_stream
from groundwatch.runtime.stores.buckets import Bucket
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.times import LAST
from groundwatch.topology import ALARMS, QUEUES_BUCKET, run_subjects

Rule = Literal["random", "uncertain", "disagreement", "alarm", "all"]

TRIES = 20
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


class QueueProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a queue is. `held` are items that somebody works at, `failed` those at which nobody can,
    `opinions` counts those of all reviewers, and `reviewers` those of each."""

    items: int = 0
    done: int = 0
    held: int = 0
    failed: int = 0
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
        if found is None or (spec := _decoded(found.data)) is None:
            raise UnknownName(f"there is no queue '{name}'", "queue")
        return spec

    async def close(self, name: str) -> QueueSpec:
        """Draw no more for it, and give nobody another item; what was said counts on."""
        return await self._change(name, lambda spec: msgspec.structs.replace(spec, closed=True))

    async def set_mean(self, name: str, mean: float) -> QueueSpec:
        """Write down, once, what the uncertainty of answers is held against; -1 where none says how sure its
        judge was."""
        mean = mean if mean > 0 else -1.0

        def change(spec: QueueSpec) -> QueueSpec:
            return spec if spec.mean_uncertainty else msgspec.structs.replace(spec, mean_uncertainty=mean)

        return await self._change(name, change)

    async def _change(self, name: str, change: Callable[[QueueSpec], QueueSpec]) -> QueueSpec:
        for _ in range(TRIES):
            found = await self._bucket.get(_key(name))
            if found is None or (spec := _decoded(found.data)) is None:
                raise UnknownName(f"there is no queue '{name}'", "queue")
            if (changed := change(spec)) == spec:
                return spec
            if await self._bucket.put(found.key, ENCODER.encode(changed), found.revision):
                return changed
        raise Unavailable(f"others write the queue '{name}' at this moment")

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
        items = done = held = failed = 0
        now = time.time()
        for item in await self.items.all(name):
            if tenant not in ("", item.tenant):
                continue
            items += 1
            done += item.done
            held += not item.done and bool(holding(item, now))
            failed += item.state == "failed"
            for reviewer in item.done_by:
                reviewers[reviewer] = reviewers.get(reviewer, 0) + 1
        return QueueProgress(
            items=items,
            done=done,
            held=held,
            failed=failed,
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
        alarm = None
        try:
            async for read in read_stream(self._bus.js, ALARMS, subjects=(run_subjects("alarm", "live"),)):
                if read.subject.rpartition(".")[2] == key:
                    alarm = msgspec.json.decode(read.data, type=AlarmRaised)
        except FAULTS as error:
            raise Unavailable(f"cannot read {ALARMS}: {error!r}") from error
        if alarm is None:
            raise UnknownName(f"there is no alarm '{key}'", "alarm")
        return alarm


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


def _decoded(data: bytes) -> QueueSpec | None:
    try:
        return _SPEC.decode(data)
    except UNDECODED as error:
        logger.warning("queue.unreadable", error=str(error))
        return None
