"""Recording responses, over HTTP and gRPC alike.

A response is recorded once its event is in the stream, under a subject that its tenant and id make and
that holds one event for as long as the stream keeps it. So the answer to "is this a repeat?" is the server's
own, and stays right with many gateways and after any restart; of what has left the stream the archive knows.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, get_args

import msgspec
import nats.js.errors

from groundwatch.conversations.conversation import (
    LIBRARY_TAG,
    RESPONSE_TAG,
    SERVICE_TAG,
    SPAN_TAG,
    TRACE_TAG,
    Origin,
)
from groundwatch.errors import InputError, NotStored, TransientError, Unacknowledged
from groundwatch.events import LIVE, Earlier, QuestionAsked, ResponseRecorded, Strategy
from groundwatch.gateway.budgets import OVER_BUDGET, Budgets, Decided, Held, decide
from groundwatch.gateway.fetching import Fetcher
from groundwatch.gateway.intake.known_ids import KnownIds
from groundwatch.gateway.intake.logged import LeftOut
from groundwatch.gateway.intake.senders import Senders
from groundwatch.gateway.intake.submissions import Attachments, Submission
from groundwatch.gateway.intake.submissions import Stored as Images
from groundwatch.gateway.refusals import Reason, Recorded, Refused, bounded
from groundwatch.keys import bare_key, home_key, home_of
from groundwatch.protocols import registry
from groundwatch.protocols.base import Stage
from groundwatch.runtime.delivery.bus import ENCODER, Bus, Outgoing, Receipt, Stored
from groundwatch.runtime.delivery.outcomes import digest_of, recorded
from groundwatch.runtime.delivery.streams import FAULTS
from groundwatch.runtime.settings.gateway import GatewaySettings
from groundwatch.runtime.stores.images import ImageStore
from groundwatch.runtime.stores.tombstones import Erased
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import ASKED, HEADER_DIGEST, HEADER_PROTOCOLS, RESPONSES, subject_of
from groundwatch.topology.partitions import stream_of

RETRY_SECONDS = 0.25
UNSURE_SECONDS = 60.0
"""So long what was sent to the stream and not acknowledged may still come there, on a connection that is no
more: it is not known to be missing before."""

MOST_UNSURE = 10_000
LOGGED_TAGS = frozenset((TRACE_TAG, SPAN_TAG, SERVICE_TAG, LIBRARY_TAG))


class Ready(msgspec.Struct, kw_only=True):
    """A response, or a question, that was sent. `digest` is of what the caller said.

    `held` is what it has used of budgets, to be undone if it turns out to be a repeat. `span` is that of
    recording it, where it is traced. `receipt` is what the stream will say, or why it was not sent.
    """

    response: ResponseRecorded
    outgoing: Outgoing
    digest: str
    stream: str = RESPONSES
    held: tuple[Held, ...] = ()
    left_out: tuple[str, ...] = ()
    declined: tuple[str, ...] = ()
    origin: Origin = Origin()
    span: Any = None
    receipt: Receipt | Refused

    def undo(self) -> None:
        for held in self.held:
            held.undo()


class Intake:
    def __init__(
        self,
        settings: GatewaySettings,
        bus: Bus,
        metrics: Metrics,
        store: ImageStore,
        budgets: Budgets,
        erased: Erased,
        known: KnownIds,
    ) -> None:
        self._settings = settings
        self._bus = bus
        self._metrics = metrics
        self._budgets = budgets
        self._erased = erased
        self._known = known
        self.fetcher = Fetcher(settings.fetch, metrics)
        self._unsure: dict[str, float] = {}
        self.left_out = LeftOut(settings.logged_calls, metrics)
        self.senders = Senders()
        self.attachments = Attachments(store, settings.intake, metrics, erased, self.fetcher)
        for reason in get_args(Reason):
            metrics.refused.labels(reason)

    async def record(self, submission: Submission, *, timeout: float = 0.0) -> Recorded:
        """Record a response. Faults that pass are tried again for `timeout` seconds. Raises `Refused`."""
        deadline = time.monotonic() + timeout
        try:
            while True:
                try:
                    ready = await self.send(submission)
                    break
                except Refused as error:
                    if not error.passing or error.lasting or time.monotonic() >= deadline:
                        raise error.but(id=submission.response.id) from None
                await asyncio.sleep(RETRY_SECONDS)
            if isinstance(ready, Recorded):
                return ready
            return await self.finish(ready, timeout=deadline - time.monotonic())
        except Refused as error:
            if error.reason == "conflict" and submission.is_lenient and submission.varies:
                # The same call again, of which more or less could be fetched than before.
                return Recorded(id=error.id, status="duplicate")
            raise

    async def ask(self, question: Submission, strategy: Strategy) -> Recorded:
        """Put a question to the response's model, whose answer will be recorded in its place.

        Nothing is sampled out: who asks wants the answer judged. Raises `Refused`.
        """

        def question_of(response: ResponseRecorded) -> QuestionAsked:
            protocols = self._checked(response)
            response = msgspec.structs.replace(response, protocols=protocols, recorded_at=0.0)
            return QuestionAsked(response=response, strategy=strategy)

        async def check_new(response: ResponseRecorded) -> None:
            await self._check_free(ASKED, response, digest_of(question_of(response)))

        stored, *_ = await self._with_images(question, check_new)
        asked = question_of(stored)
        response, digest = asked.response, digest_of(asked)
        try:
            async with bounded():
                partition = home_of(response.key, self._bus.partitions)
                response = msgspec.structs.replace(response, partition=partition)
                key = response.key
                outgoing = Outgoing(
                    subject=subject_of("asked", LIVE, Stage.CAPTIONING.value, key),
                    payload=ENCODER.encode(msgspec.structs.replace(asked, response=response)),
                    message_id=(key, "asked"),
                    headers={HEADER_PROTOCOLS: ",".join(response.protocols), HEADER_DIGEST: digest},
                )
                if (same := self._known.is_same(ASKED, key, digest)) is not None:
                    return _repeated(response, same)
                taken = self._known.is_same(RESPONSES, key, "") is not None or await self._bus.holds(
                    RESPONSES, subject_of("recorded", LIVE, key)
                )
                if taken and not await self._bus.holds(ASKED, outgoing.subject):
                    raise _conflict(response)
        except TransientError as error:
            raise _unavailable(response.id, error) from error
        outgoing, span = self._bus.begin_trace(outgoing, "gateway ask")
        receipt = await self._publish(response.id, outgoing)
        ready = Ready(
            response=response, digest=digest, stream=ASKED, outgoing=outgoing, span=span, receipt=receipt
        )
        return await self.finish(ready)

    @property
    def blind(self) -> bool:
        """Whether nothing is taken for now, since it is not known what was erased, or recorded long ago."""
        return bool(self._erased.problem or self._known.problem)

    def check_erased(self, response: ResponseRecorded) -> None:
        """Raises `Refused` where a response, its tenant or an image of it was erased.

        While nobody knows what was erased, or recorded long ago, nothing is taken.
        """
        if problem := self._erased.problem or self._known.problem:
            raise Refused("unavailable", f"not recorded: {problem}", id=response.id)
        if why := self._erased.why(response):
            raise Refused("erased", why, field="id", id=response.id)

    def _checked(self, response: ResponseRecorded) -> tuple[str, ...]:
        """The protocols that judge it. Raises `Refused` for one that may not be recorded."""
        self.check_erased(response)
        if not response.protocols:
            return self._settings.protocols
        for protocol in response.protocols:
            if protocol not in registry.names():
                why = registry.unknown(protocol)
                raise Refused("unknown_protocol", why, field="protocols", id=response.id)
        return tuple(dict.fromkeys(response.protocols))

    async def _check_new(self, response: ResponseRecorded) -> None:
        """Raises what the stream would refuse a response for, before its images are stored."""
        self._checked(response)
        await self._check_free(RESPONSES, response, digest_of(_said(response)))

    async def _check_free(self, stream: str, response: ResponseRecorded, digest: str) -> None:
        """Raises `Refused` for an id that the archive or the stream knows to be taken, `TransientError`."""
        same = self._known.is_same(stream, response.key, digest)
        if same is None:
            key = home_key(response.key, self._bus.partitions)
            place = ("recorded", LIVE) if stream == RESPONSES else ("asked", LIVE, Stage.CAPTIONING.value)
            headers = await self._bus.headers_of(stream, subject_of(*place, key))
            same = headers is None or headers.get(HEADER_DIGEST) == digest
        if not same:
            raise _conflict(response)

    async def send(self, submission: Submission) -> Ready | Recorded:
        """Store its images, decide everything about the response and send it, which waits for its place.

        With reasons for what it lacks perhaps no protocol judges it, and none with `declined`, which uses
        nothing of a budget. What is sent must be finished: it may have used something of one. Raises
        `Refused`.
        """
        if self._settings.logged_calls.judged_images == "all":
            submission = submission.of_one_turn()
        response, left_out = submission.response, submission.left_out or ()
        before = submission.earlier_left_out
        if submission.images:
            response, left_out, before = await self._with_images(submission, self._check_new)
        declined = submission.declined or (self.left_out.declined(left_out) if left_out else "")
        protocols = self._checked(response)
        said = _said(response)
        key, digest = said.key, digest_of(said)
        if (same := self._known.is_same(RESPONSES, key, digest)) is not None:
            return _repeated(response, same)
        budgets = self._budgets if self._budgets.states and not declined else None
        now = self._budgets.clock()
        if declined:
            decided = Decided(declined=dict.fromkeys(protocols, declined))
        else:
            decided = decide(self._settings.sampling, budgets, response, protocols, now)
        event = msgspec.structs.replace(
            response,
            protocols=protocols,
            declined=decided.declined,
            drawn=decided.drawn,
            recorded_at=now,
            partition=home_of(key, self._bus.partitions),
        )
        outgoing, span = self._bus.begin_trace(recorded(event, digest), "gateway record")
        return Ready(
            response=event,
            digest=digest,
            outgoing=outgoing,
            held=decided.held,
            left_out=(*before, *left_out),
            declined=(declined,) if submission.declined else (),
            origin=submission.origin,
            span=span,
            receipt=await self._publish(event.id, outgoing),
        )

    async def _publish(self, name: str, outgoing: Outgoing) -> Receipt | Refused:
        try:
            if why := self._bus.storage.pausing(outgoing.subject):
                raise NotStored(why)
            return await self._bus.start_create(outgoing)
        except InputError as error:
            return Refused("too_large", str(error), id=name)
        except TransientError as error:
            return _unavailable(name, error)

    async def finish(self, ready: Ready, *, timeout: float = 0.0) -> Recorded:
        """Wait until the stream has it, sending it again for `timeout` seconds if the stream refuses.

        Nothing is sent any more once this has ended. Raises `Refused`.
        """
        deadline = time.monotonic() + timeout
        unsure: Refused | None = None
        ended: Recorded | Refused | None = None
        try:
            async with bounded():
                ended = await self._confirm(ready)
                while isinstance(ended, Refused) and ended.passing and not ended.lasting:
                    if time.monotonic() >= deadline:
                        break
                    unsure = ended if ended.unsure else unsure
                    await asyncio.sleep(RETRY_SECONDS)
                    ended = None
                    ready.receipt = await self._publish(ready.response.id, ready.outgoing)
                    ended = await self._confirm(ready, again=True)
        except TransientError:
            ended = ended or _unconfirmed(ready, "no answer came back")
        finally:
            if ready.span is not None:
                ready.span.end()
        if isinstance(ended, Refused):
            # An earlier attempt may have got through, although the last one did not.
            ended = unsure or ended if ended.passing else ended
            if ended.unsure:
                self._unsure[bare_key(ready.response.key)] = time.monotonic()
                while len(self._unsure) > MOST_UNSURE:
                    del self._unsure[next(iter(self._unsure))]
            else:
                ready.undo()
            raise ended.but()
        if ended.status == "duplicate":
            ready.undo()
        elif ready.stream == RESPONSES:
            self._metrics.response(ready.response)
            self.left_out.recorded(ready.response)
            sender = self.senders.of(ready.origin, ready.response.tenant)
            sender.record(len(ready.response.images), ready.left_out or ready.declined)
            if ready.left_out:
                self.left_out.count(ready.left_out)
                ended = msgspec.structs.replace(ended, left_out=ready.left_out)
            for protocol, reason in ready.response.declined.items():
                if reason == OVER_BUDGET:
                    drawn = ready.response.drawn[protocol]
                    self._metrics.over_budget(drawn.budget, drawn.stratum)
        return ended

    def is_unsure(self, key: str) -> bool:
        """Whether a response may be on its way into the stream yet."""
        return time.monotonic() - self._unsure.get(key, -UNSURE_SECONDS) < UNSURE_SECONDS

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Counts the refusal that the block raises."""
        try:
            yield
        except Refused as error:
            self.count(error)
            raise

    def count(self, refused: Refused) -> None:
        self._metrics.refused.labels(refused.reason).inc()

    async def _with_images(
        self, submission: Submission, check_new: Callable[[ResponseRecorded], Awaitable[None]]
    ) -> tuple[ResponseRecorded, tuple[str, ...], tuple[str, ...]]:
        """The response with its images stored, and the reasons for what is left out of its turn, and of those
        before. `check_new` raises `Refused` for a response that names its images."""
        response = submission.response

        def showing(stored: Images) -> ResponseRecorded:
            earlier = response.earlier
            if stored.earlier:
                earlier = Earlier(text=earlier.text if earlier else "", images=stored.earlier)
            return msgspec.structs.replace(response, images=stored.images, earlier=earlier)

        async def check(stored: Images) -> None:
            await check_new(showing(stored))

        self.check_erased(response)
        try:
            async with bounded():
                stored = await self.attachments.digests(submission, check)
        except TransientError as error:
            raise _unavailable(response.id, error) from error
        left_out = (*(submission.left_out or ()), *stored.left_out)
        return showing(stored), left_out, (*submission.earlier_left_out, *stored.earlier_left_out)

    async def _confirm(self, ready: Ready, *, again: bool = False) -> Recorded | Refused:
        """`again`: an earlier attempt may have got through without our hearing of it."""
        waiting = ready.receipt
        if isinstance(waiting, Refused):
            return waiting
        name, subject = ready.response.id, ready.outgoing.subject
        try:
            if await waiting is Stored.NEW:
                return Recorded(id=name, status="recorded")
        except Unacknowledged as error:
            return _unconfirmed(ready, error)
        except TransientError as error:
            return _unavailable(name, error)
        stream = stream_of(ready.stream, subject)
        try:
            try:
                existing = await self._bus.js.get_last_msg(stream, subject)
            except nats.js.errors.NotFoundError:
                # The server remembers the message id of an event that has since been erased.
                anonymous = msgspec.structs.replace(ready.outgoing, message_id="")
                if await self._bus.create(anonymous) is Stored.NEW:
                    return Recorded(id=name, status="recorded")
                existing = await self._bus.js.get_last_msg(stream, subject)
        except (TransientError, *FAULTS) as error:
            # Something is on this subject; whether it is this response is what could not be read.
            return _unconfirmed(ready, error)
        if again and existing.data == ready.outgoing.payload:
            return Recorded(id=name, status="recorded")
        if (existing.headers or {}).get(HEADER_DIGEST) == ready.digest:
            return Recorded(id=name, status="duplicate")
        return _conflict(ready.response)


def _said(response: ResponseRecorded) -> ResponseRecorded:
    """What its sender said. Without its span, who logged it, and earlier turns: one call may be logged by
    several, by each in its own way, and is one response."""
    tags = response.tags
    if SPAN_TAG in tags or RESPONSE_TAG in tags:
        tags = {name: value for name, value in tags.items() if name not in LOGGED_TAGS}
    return msgspec.structs.replace(response, recorded_at=0.0, tags=tags, earlier=None)


def _repeated(response: ResponseRecorded, same: bool) -> Recorded:
    """How it ends where its id has left the stream. Raises `Refused` unless the same was recorded."""
    if not same:
        raise _conflict(response)
    return Recorded(id=response.id, status="duplicate")


def _conflict(response: ResponseRecorded) -> Refused:
    message = f"another response of tenant '{response.tenant}' has the id '{response.id}'"
    return Refused("conflict", message, field="id", id=response.id)


def _unavailable(name: str, error: Exception) -> Refused:
    lasting = isinstance(error, NotStored)
    return Refused("unavailable", f"not recorded: {error}", id=name, lasting=lasting)


def _unconfirmed(ready: Ready, error: Exception | str) -> Refused:
    message = f"not known whether it is recorded ({error}): send it again under this id"
    return Refused("unconfirmed", message, id=ready.response.id)
