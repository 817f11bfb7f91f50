"""The state of every run, in one bucket: what it is asked to do, how far it is, and who works at it.

A replay's source is cut into pages of consecutive sequences. Whoever works at a run takes a page by
compare-and-set, says how far it is while it works, and counts what it did in the same write that moves the
page's position. So any number of processes can share a run, each page's counts are taken exactly once, and
a page whose process died goes on from its last position. What was published behind that position is found
in the stream and neither judged nor counted twice.

A durable consumer of the server would deliver what the stream holds, and nothing of what has left it for the
archive, also while the run waits: pages would be needed beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Literal

import msgspec
import nats.js.errors
import psutil  # type: ignore[import-untyped]
from nats.js import JetStreamContext
from nats.js.kv import KeyValue

from groundwatch import topology
from groundwatch.errors import UNDECODED, GroundwatchError, TransientError, UsageError, words
from groundwatch.events import OutcomeKind, ResponseScored, Usage
from groundwatch.replay.spec import Spec
from groundwatch.runtime.delivery.bus import ENCODER
from groundwatch.runtime.delivery.history import History
from groundwatch.runtime.delivery.streams import FAULTS
from groundwatch.topology import RUNS_BUCKET, is_token

LEASE_SECONDS = 15.0
"""A page whose process has not been heard of for so long is free."""

PAGE = 20_000
LEAST_PAGE = 100
PAGES = 16
"""A run has about so many pages, so that several processes can share a small one too."""

KINDS = frozenset(kind.value for kind in OutcomeKind)

Status = Literal["importing", "running", "paused", "done", "cancelled", "deleting"]


class RunGone(GroundwatchError):
    """The run was deleted while somebody worked at it."""


class Counts(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What was done. `events` are those read, `responses` those selected; the others count pairs of a
    response and a protocol. `repeated` had their outcome already when they came again after a crash."""

    events: int = 0
    responses: int = 0
    scored: int = 0
    unscored: int = 0
    declined: int = 0
    repeated: int = 0
    reasons: dict[str, int] = {}
    usage: Usage = Usage()

    @property
    def outcomes(self) -> int:
        return self.scored + self.unscored + self.declined

    def note(self, kind: str, reason: str) -> None:
        """Count one outcome of a kind, without what it took; one of no kind is none of ours."""
        if kind not in KINDS:
            return
        setattr(self, kind, getattr(self, kind) + 1)
        if reason:
            self.reasons[f"{kind}: {reason}"] = self.reasons.get(f"{kind}: {reason}", 0) + 1

    def add(self, outcome: ResponseScored, *, repeated: bool = False) -> None:
        """Count one outcome."""
        self.note(outcome.outcome.value, outcome.reason)
        self.repeated += repeated
        usage = outcome.usage
        if usage.calls or usage.cost or usage.input_tokens or usage.cached:
            self.usage += usage

    def __add__(self, other: Counts) -> Counts:
        sums = {name: getattr(self, name) + getattr(other, name) for name in _ADDED}
        return Counts(**sums, reasons=dict(Counter(self.reasons) + Counter(other.reasons)))


_ADDED = [name for name in Counts.__struct_fields__ if name != "reasons"]


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A process that works at runs. `started` tells a process from a later one of the same number."""

    id: str
    host: str
    pid: int
    started: float

    def surely_dead(self) -> bool:
        """Whether it ran on this machine and does no more; False means nothing."""
        if self.host != socket.gethostname():
            return False
        try:
            return bool(abs(psutil.Process(self.pid).create_time() - self.started) > 1)
        except psutil.NoSuchProcess:
            return True
        except psutil.Error:
            return False


def this_worker() -> Worker:
    pid, started = os.getpid(), psutil.Process().create_time()
    return Worker(id=secrets.token_hex(6), host=socket.gethostname(), pid=pid, started=started)


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Sequences `first` to `last`, of which those below `at` are done. `worker` has it until `expires`;
    `taken` is how many have had it."""

    first: int
    last: int
    at: int
    worker: Worker
    expires: float
    taken: int = 1

    def free(self, now: float) -> bool:
        return now > self.expires or self.worker.surely_dead()


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run. Sequences `first` to `last` of its stream are its source, of which those below `next` are given
    out or done; `pages` are those in work. `nonce` tells it from an earlier run of the same name.
    `parts` are those of several partitions, counted through (`JoinedHistory`). `judges` has the fingerprint
    of each protocol's judge by `protocol.stage`. Times in seconds since the epoch."""

    spec: Spec
    nonce: str
    status: Status
    first: int
    last: int
    next: int
    page: int = PAGE
    pages: tuple[Page, ...] = ()
    counts: Counts = msgspec.field(default_factory=Counts)
    judges: dict[str, str] = {}
    reason: str = ""
    created_at: float = 0.0
    updated_at: float = 0.0
    finished_at: float = 0.0
    worked: float = 0.0
    parts: tuple[tuple[int, int], ...] = ()

    @property
    def name(self) -> str:
        return self.spec.run

    @property
    def standing(self) -> str:
        """Its status, with the reason where it has one."""
        return f"{self.status} ({self.reason})" if self.reason else self.status

    @property
    def share(self) -> float:
        """How much of the source is done, 0 to 1."""
        if self.last < self.first:
            return 1.0
        left = self.last - self.next + 1 + sum(page.last - page.at + 1 for page in self.pages)
        return 1.0 - left / (self.last - self.first + 1)

    def done(self, sequence: int) -> bool:
        """Whether this sequence of the source has been dealt with."""
        if sequence >= self.next:
            return False
        return not any(page.at <= sequence <= page.last for page in self.pages)

    def workers(self, now: float) -> int:
        return len({page.worker.id for page in self.pages if not page.free(now)})


DECODER = msgspec.json.Decoder(Run)


class Runs:
    """The bucket of runs."""

    def __init__(self, bucket: KeyValue) -> None:
        self._bucket = bucket

    @classmethod
    async def open(cls, js: JetStreamContext) -> Runs:
        """Raises `UsageError` when nothing is provisioned."""
        try:
            return cls(await js.key_value(RUNS_BUCKET))
        except nats.js.errors.NotFoundError as error:
            raise UsageError(
                f"the bucket {RUNS_BUCKET} is missing on this server: run groundwatch admin provision first"
            ) from error

    async def find(self, name: str) -> Run | None:
        """The run of this name, if there is one; what can be none's name is nobody's."""
        if not is_token(name):
            return None
        try:
            entry = await self._bucket.get(name)
        except nats.js.errors.KeyNotFoundError:
            return None
        return DECODER.decode(entry.value or b"")

    async def get(self, name: str) -> Run:
        """The run of this name. Raises `UsageError` naming those that there are."""
        found = await self.find(name)
        if found is None:
            known: list[str] = []
            with contextlib.suppress(nats.js.errors.NoKeysError):
                known = sorted(await self._bucket.keys())
            raise UsageError(f"no run '{name[:64]}'; there are: {', '.join(known) or 'none yet'}")
        return found

    async def create(self, run: Run) -> Run:
        """Begin a run. Raises `UsageError` when its name is in use."""
        now = time.time()
        run = msgspec.structs.replace(run, created_at=now, updated_at=now)
        try:
            await self._bucket.create(run.name, ENCODER.encode(run))
        except nats.js.errors.KeyWrongLastSequenceError:
            raise exists(run.name) from None
        return run

    async def change(self, name: str, how: Callable[[Run], Run]) -> Run:
        """Compare-and-set until it holds. `how` may be called more than once, and may raise.

        Raises `RunGone` when there is no such run, `TransientError` when the server does not answer.
        """
        while True:
            try:
                entry = await self._bucket.get(name)
                run = DECODER.decode(entry.value or b"")
                changed = msgspec.structs.replace(how(run), updated_at=time.time())
                await self._bucket.update(name, ENCODER.encode(changed), last=entry.revision)
            except nats.js.errors.KeyWrongLastSequenceError:
                await asyncio.sleep(0.01)
                continue
            except nats.js.errors.KeyNotFoundError as error:
                raise RunGone(f"run '{name}' was deleted") from error
            except FAULTS as error:
                raise TransientError(f"cannot write the state of run '{name}': {words(error)}") from error
            return changed

    async def remove(self, name: str) -> None:
        """Forget a run, whose events are gone."""
        with contextlib.suppress(nats.js.errors.KeyNotFoundError):
            await self._bucket.purge(name)


def exists(name: str, status: str = "") -> UsageError:
    """What is told of a name that is in use."""
    return UsageError(
        f"run '{name}' exists already{f' ({status})' if status else ''}: choose another name, go on with it "
        f"(groundwatch replay resume {name}) or delete it (groundwatch replay delete {name})"
    )


def new_run(
    spec: Spec,
    *,
    first: int,
    last: int,
    parts: tuple[tuple[int, int], ...] = (),
    status: Status = "running",
) -> Run:
    size = max(LEAST_PAGE, min(PAGE, -(-(last - first + 1) // PAGES)))
    return Run(
        spec=spec,
        nonce=secrets.token_hex(4),
        status=status,
        first=first,
        last=last,
        next=first,
        page=size,
        parts=parts,
    )


def take(run: Run, worker: Worker) -> Run:
    """The run with a page for this worker, if there is one to have; finished when nothing is left."""
    if run.status != "running" or page_of(run, worker) is not None:
        return run
    now = time.time()
    expires = now + LEASE_SECONDS
    for index, page in enumerate(run.pages):
        if page.free(now):
            taken = msgspec.structs.replace(page, worker=worker, expires=expires, taken=page.taken + 1)
            pages = (*run.pages[:index], *run.pages[index + 1 :], taken)
            return msgspec.structs.replace(run, pages=pages)
    if run.next <= run.last:
        last = min(run.next + run.page - 1, run.last)
        taken = Page(first=run.next, last=last, at=run.next, worker=worker, expires=expires)
        return msgspec.structs.replace(run, pages=(*run.pages, taken), next=last + 1)
    if not run.pages:
        return msgspec.structs.replace(run, status="done", finished_at=now)
    return run


def page_of(run: Run, worker: Worker) -> Page | None:
    return next((page for page in run.pages if page.worker.id == worker.id), None)


def grown(run: Run, worker: Worker, sequence: int) -> Run:
    """The run with this worker's page longer, by one more that has `sequence` in it, where nobody else has
    what follows and nothing lies before the sequence."""
    page = page_of(run, worker)
    if page is None or page.last + 1 != run.next:
        return run
    last = min(max(run.next, sequence) + run.page - 1, run.last)
    pages = tuple(msgspec.structs.replace(one, last=last) if one is page else one for one in run.pages)
    return msgspec.structs.replace(run, pages=pages, next=last + 1)


def reported(
    run: Run, worker: Worker, at: int, counts: Counts, seconds: float, *, let_go: bool = False
) -> Run:
    """The run with the worker's report: its page stands at `at`, and `counts` happened on the way there.

    A page that is through leaves the list; `let_go` leaves it to others at once. A run whose page somebody
    else has taken meanwhile stays as it is: they count what they find. A report that came through although
    its acknowledgement did not is not counted again. Spending beyond the run's bounds pauses it.
    """
    page = page_of(run, worker)
    if page is None:
        return run
    if page.at >= at:
        counts = Counts()
    pages = tuple(one for one in run.pages if one is not page)
    if at <= page.last:
        expires = 0.0 if let_go else time.time() + LEASE_SECONDS
        pages = (*pages, msgspec.structs.replace(page, at=at, expires=expires))
    changed = msgspec.structs.replace(
        run, pages=pages, counts=run.counts + counts, worked=run.worked + seconds
    )
    if changed.status == "running" and (why := over_budget(changed.spec, changed.counts.usage)):
        return msgspec.structs.replace(changed, status="paused", reason=why)
    return changed


def judged_by(run: Run, protocol: str, judges: dict[str, str]) -> Run:
    """The run with a protocol's judges, fingerprints by stage. Raises `UsageError` when it has others."""
    now = {f"{protocol}.{stage}": judge for stage, judge in judges.items()}
    for where, judge in now.items():
        if (begun := run.judges.get(where, judge)) != judge:
            raise UsageError(
                f"run '{run.name}' was begun with judge {begun} for {where}, and here it is {judge}: one run "
                "is never of two; replay into another"
            )
    return msgspec.structs.replace(run, judges={**now, **run.judges})


def over_budget(spec: Spec, usage: Usage) -> str:
    """Which bound of the spec was reached; empty when none was."""
    tokens = usage.input_tokens + usage.output_tokens
    if spec.max_tokens and tokens >= spec.max_tokens:
        return f"its budget of {spec.max_tokens:,} tokens is used up ({tokens:,})"
    if spec.max_cost and usage.cost >= spec.max_cost:
        return f"its budget of ${spec.max_cost:,.2f} is used up (${usage.cost:,.2f})"
    return ""


AT_ONCE = 50
"""Outcomes that are looked up together."""

_DECODER = msgspec.json.Decoder(ResponseScored)


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """How far a replay judged as its source did. `pairs` have an outcome in both runs, `same_judges` of them
    by the same judges, `changed` of those with other bytes. `share` is changed by same_judges."""

    pairs: int
    same_judges: int
    changed: int
    share: float | None


async def paired(
    history: History, left: str, right: str
) -> AsyncIterator[tuple[ResponseScored, ResponseScored]]:
    """The outcomes of the same response and protocol in two runs, in the order of the right one. Outcomes
    that do not decode count as absent."""
    part: list[tuple[str, bytes]] = []

    async def looked_up() -> list[tuple[ResponseScored, ResponseScored]]:
        found = await look_up(history, [subject for subject, _ in part])
        both = [(one, _decoded(data)) for one, (_, data) in zip(found, part, strict=True)]
        part.clear()
        return [(one, other) for one, other in both if one is not None and other is not None]

    subjects = (topology.run_subjects("outcome", right),)
    async for message in history.read(topology.OUTCOMES, subjects=subjects):
        if (address := topology.parse_subject(message.subject)) is not None:
            part.append((topology.subject_of("outcome", left, address.protocol, address.key), message.data))
        if len(part) == AT_ONCE:
            for pair in await looked_up():
                yield pair
    for pair in await looked_up():
        yield pair


def judgement(outcome: ResponseScored) -> bytes:
    """The bytes that are equal when the same judges say the same.

    All of the outcome but the name of its run, the moment of scoring and what the judging took.
    """
    return ENCODER.encode(msgspec.structs.replace(outcome, run="", scored_at=0.0, usage=Usage()))


async def changed(history: History, source: str, run: str) -> Changed:
    """Compare each outcome of a run with that of its source, where the same judges judged."""
    pairs = same = other = 0
    async for left, right in paired(history, source, run):
        pairs += 1
        if OutcomeKind.DECLINED in (left.outcome, right.outcome) or left.judges != right.judges:
            continue
        same += 1
        other += judgement(left) != judgement(right)
    return Changed(pairs=pairs, same_judges=same, changed=other, share=other / same if same else None)


async def look_up(history: History, subjects: Iterable[str]) -> list[ResponseScored | None]:
    found = await history.last_of_each(topology.OUTCOMES, list(subjects))
    return [_decoded(one.data) if one is not None else None for one in found]


def _decoded(data: bytes) -> ResponseScored | None:
    try:
        return _DECODER.decode(data)
    except UNDECODED:
        return None
