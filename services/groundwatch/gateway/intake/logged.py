"""Calls that other systems logged, made into submissions: OTLP, LiteLLM, serving systems and NATS alike."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Literal

import msgspec

from groundwatch.conversations.conversation import (
    ID_LENGTH,
    LIBRARY_TAG,
    REASONS,
    RESPONSE_TAG,
    SERVICE_TAG,
    SPAN_TAG,
    TRACE_TAG,
    Conversation,
    ImageUrl,
    Origin,
    Unreadable,
    choices_of,
)
from groundwatch.conversations.messages import with_messages
from groundwatch.errors import InputError, TransientError
from groundwatch.events import DEFAULT_TENANT, ResponseRecorded
from groundwatch.gateway.auth import Caller
from groundwatch.gateway.fetching import Fetcher
from groundwatch.gateway.intake.senders import BATCHES, Sender, Senders
from groundwatch.gateway.intake.submissions import Submission, attachment_of
from groundwatch.gateway.refusals import Recorded, Refused, outcome_of
from groundwatch.keys import digest
from groundwatch.records import (
    ANSWER_TOO_LONG,
    PROMPT_TOO_LONG,
    Described,
    Limits,
    check_record,
    recorded,
    shortened,
)
from groundwatch.runtime.settings.gateway import LoggedCallsSettings
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics

ALWAYS = frozenset((PROMPT_TOO_LONG, ANSWER_TOO_LONG))
"""Reasons for which nothing is judged, whatever is set: half of what was said is something else."""


MANY = 100
MANY_BARE = "where it is shown some, what logs its calls leaves them out: groundwatch connect tells more"
MOST_MODELS, MOST_NAMED = 200, 3
"""Models of which answers without images are counted, the latest, and those that a note names."""


class LeftOut:
    """`notes` are what somebody should change in the settings of what logs the calls."""

    def __init__(self, settings: LoggedCallsSettings, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._notes: dict[str, str] = {}
        self._bare: OrderedDict[str, int] = OrderedDict()
        """Answers of a model without an image since the last with one."""

    @property
    def notes(self) -> list[str]:
        bare = [f"'{model[:LONGEST_NAME]}'" for model, number in self._bare.items() if number >= MANY]
        told = f"{', '.join(bare[:MOST_NAMED])}{' and others' if len(bare) > MOST_NAMED else ''}"
        note = f"the last {MANY} answers and more of {told} came without an image: {MANY_BARE}"
        return [*self._notes.values(), *([note] if bare else [])]

    def recorded(self, response: ResponseRecorded) -> None:
        """Notice models whose answers come without images."""
        number = 0 if response.images or response.reference else self._bare.pop(response.model, 0) + 1
        if number:
            self._bare[response.model] = number
        else:
            self._bare.pop(response.model, None)
        if len(self._bare) > MOST_MODELS:
            self._bare.popitem(last=False)

    def declined(self, left_out: Iterable[str]) -> str:
        """The reason for which no protocol judges a call that lacks this; empty where it is judged."""
        reasons = list(left_out)
        if self._settings.without_image == "decline" and reasons:
            return reasons[0]
        return next((reason for reason in reasons if reason in ALWAYS), "")

    def count(self, left_out: Iterable[str]) -> None:
        for reason in left_out:
            self._metrics.images_left_out.labels(reason).inc()
            self.note(reason)

    def note(self, reason: str, note: str = "") -> None:
        if reason not in self._notes:
            self._notes[reason] = note = note or note_on(reason)
            logger.warning("gateway.left_out", reason=reason, note=note)


def note_on(reason: str) -> str:
    if known := REASONS.get(reason):
        return f"{reason}: {known.library} {known.did}; what keeps it: {known.setting}"
    return f"{reason}: part of what was asked is missing in logged calls"


NO_MESSAGES = "reference_not_fetched"


async def with_uploaded(call: Conversation, fetcher: Fetcher, sender: str, most: int) -> Conversation:
    """The call with what could be fetched. What cannot be had is left out, since who logs sends once."""
    missing = []
    # What was asked first: it says anew which images are left out.
    for side in ("input", "output"):
        if url := call.references.get(side):
            try:
                data = await fetcher.fetch(url, sender, most=most)
            except (InputError, TransientError) as error:
                logger.debug("fetch.left_out", id=call.id, error=str(error))
                missing.append(NO_MESSAGES)
            else:
                call = with_messages(call, side, data)
    return msgspec.structs.replace(call, left_out=(*call.left_out, *missing)) if missing else call


LONGEST_ID = 256
LONGEST_NAME = 80

UNKNOWN = "unknown"
"""The model of a call that is declined since nobody said which model it was."""

NOT_LOST = frozenset({"failed", "tool_call"})
"""Reasons of calls that have no answer to judge: nobody has to mend anything."""

INCOMPLETE = frozenset({"no_span", "no_request", "no_response"})
"""Reasons of calls of which a part never came."""

SETTLED = frozenset({"conflict", "erased", "other_tenant"})
"""Reasons for which a call must not be recorded as declined either."""

TOGETHER = 16
"""Calls of one request that are recorded at once."""

Source = Literal["otlp", "litellm", "kserve", "dynamo", "nats", "proxy"]
"""By which way a logged call came: bounded, since it is a metric's label."""

Result = Literal[
    "recorded",
    "without_image",
    "duplicate",
    "refused",
    "unreadable",
    "ignored",
    "incomplete",
    "batch_refused",
]
"""`without_image`: recorded, although an image or another part was left out. `ignored`: no call of a model.
`incomplete`: a part of it never came, or was left out by who logged it. `batch_refused`: a whole request."""

Record = Callable[[Callable[[], Submission]], Awaitable[Recorded]]
"""`GatewayCore.record`."""


Complete = Callable[[Conversation, str, str], Awaitable[Conversation]]
"""A call with what it only names, for a sender and a tenant. Raises `Refused`."""


def _tags(conversation: Conversation) -> dict[str, str]:
    """With the ids of the span, by which the evaluation finds back to it, and who logged it."""
    origin = conversation.origin
    ids = {
        SERVICE_TAG: origin.service,
        LIBRARY_TAG: conversation.library or origin.library,
        TRACE_TAG: conversation.trace_id,
        SPAN_TAG: conversation.span_id,
        RESPONSE_TAG: conversation.response_id[:ID_LENGTH],
    }
    return {**conversation.tags, **{name: value for name, value in ids.items() if value}}


def submission_of(
    conversation: Conversation,
    caller: Caller,
    bounds: Limits,
    *,
    varies: bool = False,
    source: str = "",
) -> Submission:
    """The submission of a logged call. Raises `Refused`.

    An id that is missing or too long becomes a digest, the same for the same call. What is beyond a bound is
    cut off, and left out by its reason.
    """
    texts = (conversation.id, conversation.model, conversation.prompt, conversation.answer)
    tags = _tags(conversation)
    try:
        "".join((*texts, *tags, *tags.values())).encode()
    except UnicodeEncodeError:
        raise Refused("malformed", "contains a lone surrogate, which is no character") from None
    name = id_of(conversation)
    for field in ("model", "answer"):
        if not getattr(conversation, field):
            why = f" ({note_on(conversation.left_out[0])})" if conversation.left_out else ""
            raise Refused("invalid", f"was not logged{why}", field=field, id=name)
    described = Described(
        model=conversation.model,
        answer=conversation.answer,
        prompt=conversation.prompt,
        tags=tags,
        tenant=caller.only or "",
        earlier=conversation.earlier,
        earlier_images=conversation.earlier_images,
    )
    described, images, cut, cut_before = shortened(described, conversation.images, bounds)
    if wrong := check_record(described, name, images, bounds):
        raise Refused("invalid", wrong.message, field=wrong.field, id=name)
    return Submission(
        response=recorded(described, name, ()),
        images=tuple(map(attachment_of, images)),
        sender=caller.sender,
        left_out=(*conversation.left_out, *cut),
        earlier_images=described.earlier_images,
        earlier_left_out=(*conversation.earlier_left_out, *cut_before),
        varies=varies or any(isinstance(image, ImageUrl) for image in images),
        origin=_origin(source, caller, conversation.origin, conversation.library),
    )


def _origin(source: str, caller: Caller, origin: Origin, library: str = "") -> Origin:
    """With what is known where the call itself says less."""
    return msgspec.structs.replace(
        origin, source=source, library=origin.library or library or caller.agent[:LONGEST_NAME]
    )


def _declined(
    call: Conversation | Unreadable, refused: Refused, caller: Caller, name: str, source: str
) -> Submission:
    """A call that could not be taken as it is: that there was one, and why nobody judges it."""
    reason: str = refused.reason
    tags: dict[str, str] = {}
    if isinstance(call, Unreadable):
        reason, name = call.reason, call.id[:LONGEST_ID] or name
    else:
        ids = {TRACE_TAG: call.trace_id, SPAN_TAG: call.span_id}
        name, tags = id_of(call), {tag: value for tag, value in ids.items() if value}
        if refused.field in ("model", "answer") and not getattr(call, refused.field):
            reason = next(iter(call.left_out), f"no_{refused.field}")
    response = ResponseRecorded(
        id=name,
        model=call.model[:LONGEST_ID] or UNKNOWN,
        answer="",
        tags=tags,
        tenant=caller.only or DEFAULT_TENANT,
    )
    origin = _origin(source, caller, call.origin)
    return Submission(response=response, sender=caller.sender, declined=reason, origin=origin)


def id_of(conversation: Conversation) -> str:
    """The id under which it is recorded."""
    if conversation.id:
        return conversation.id if len(conversation.id) <= LONGEST_ID else digest(conversation.id)
    texts = (conversation.model, conversation.prompt, conversation.answer, repr(conversation.at))
    images = (msgspec.json.encode(image).decode() for image in conversation.images)
    return digest(*texts, *images)


def _unreadable(call: Unreadable, name: str = "") -> Refused:
    return Refused("malformed", call.message, id=call.id[:LONGEST_ID] or name)


class LoggedCalls:
    """Records logged calls, and counts them."""

    def __init__(
        self,
        bounds: Limits,
        metrics: Metrics,
        left_out: LeftOut,
        senders: Senders,
        record: Record,
        complete: Complete,
    ) -> None:
        self._bounds = bounds
        self._metrics = metrics
        self._left_out = left_out
        self._senders = senders
        self._record = record
        self._complete = complete

    async def record(self, call: Conversation, caller: Caller, source: Source) -> Recorded:
        """Record one, each further choice of its answer as a response of its own. Raises `Refused`."""
        read = partial(submission_of, caller=caller, bounds=self._bounds, source=source)
        try:
            if call.references and self._is_wanted(call, read):
                # What is fetched must not change the id.
                named = msgspec.structs.replace(call, id=id_of(call))
                call = await self._complete(named, caller.sender, caller.only or DEFAULT_TENANT)
                read = partial(read, varies=True)
            ended = await self._record(partial(read, call))
        except Refused as error:
            # Another span of a call that is recorded, whose text differs a little.
            again = error.reason == "conflict" and source == "otlp"
            self.count(
                source, "duplicate" if again else "incomplete" if error.field == "answer" else "refused"
            )
            if not error.passing and error.reason not in SETTLED:
                self._sender(source, caller, call.origin, call.library).miss("refused", 1, error.message)
            if error.field == "answer":
                for reason in call.left_out:
                    self._left_out.note(reason)
            raise
        if ended.status == "duplicate":
            self.count(source, "duplicate")
        else:
            self.count(source, "without_image" if ended.left_out else "recorded")
        for other in choices_of(call, ended.id):
            also = await self.record_or_decline(other, caller, source)
            if isinstance(also, Refused) and also.passing:
                raise also
        return ended

    def _is_wanted(self, call: Conversation, read: Callable[[Conversation], Submission]) -> bool:
        """Whether a call can be taken as it is, or once its answer was fetched."""
        try:
            read(call)
        except Refused as error:
            return error.field == "answer"
        return True

    async def record_or_decline(
        self, call: Conversation | Unreadable, caller: Caller, source: Source, *, name: str = ""
    ) -> Recorded | Refused:
        """Record a call, for the tenant `caller` is of; or, of one that is refused for good, that there was
        one: as declined, under its id, or else as `name`. What has neither may be no call at all.

        Why it is refused is told by the log and, since who sends seldom looks at replies, by a note.
        """
        if isinstance(call, Conversation):
            ended = await outcome_of(self.record(call, caller, source))
            if isinstance(ended, Recorded) or ended.passing or ended.reason in SETTLED:
                return ended
            refused = ended
        else:
            refused = _unreadable(call, name)
            if call.reason in NOT_LOST:
                self.count(source, "ignored")
                return refused
        if refused.id:
            declined = await outcome_of(self._record(partial(_declined, call, refused, caller, name, source)))
            if isinstance(declined, Refused) and declined.reason != "conflict":
                return declined
            if isinstance(declined, Refused) or declined.status == "duplicate":
                # It came again, or another span of it that could be read came before.
                self.count(source, "duplicate")
                return Recorded(id=declined.id, status="duplicate")
        if isinstance(call, Unreadable):
            self.count(source, "incomplete" if call.reason in INCOMPLETE else "unreadable")
            if call.reason not in INCOMPLETE:
                note = f"{source}: calls come that are not read ({call.reason}); the log says what they are"
                self._left_out.note(f"{source}_{call.reason}", note)
                self._sender(source, caller, call.origin).miss("refused", 1, call.message)
        logger.warning(f"gateway.{source}", id=refused.id, tenant=caller.only, reason=refused.message)
        return refused.but(kept=bool(refused.id))

    async def record_all(
        self, calls: Sequence[Conversation | Unreadable], caller: Caller, source: Source
    ) -> list[Recorded | Refused]:
        """How each of them ended, in order: by `record_or_decline`.

        Raises `Refused` when one was not recorded for no fault of its own: all are to come again.
        """
        passing: list[Refused] = []
        ended: list[Recorded | Refused] = [Refused("unavailable", "not recorded")] * len(calls)

        async def record(number: int) -> None:
            if passing:
                ended[number] = passing[0]
                return
            ended[number] = result = await self.record_or_decline(calls[number], caller, source)
            if isinstance(result, Refused) and result.passing:
                passing.append(result)

        numbers = iter(range(len(calls)))

        async def record_in_turn() -> None:
            for number in numbers:
                await record(number)
                # What is refused at once waits for nothing by itself.
                await asyncio.sleep(0)

        await asyncio.gather(*(record_in_turn() for _ in range(min(TOGETHER, len(calls)))))
        if passing and passing[0].reason == "rate_limited":
            # Those that were there already have used nothing after all, so the others may have their turn:
            # else a request that comes again and again would never get beyond its first few.
            passing.clear()
            for number, result in enumerate(ended):
                if isinstance(result, Refused) and result.passing:
                    await record(number)
        if passing:
            raise passing[0].but()
        return ended

    def ignore(self, origin: Origin, caller: Caller, source: Source, number: int, example: str) -> None:
        """Tell of spans or log records that are of no call of a model."""
        self.count(source, "ignored", number)
        self._sender(source, caller, origin).miss("ignored", number, example)

    def _sender(self, source: Source, caller: Caller, origin: Origin, library: str = "") -> Sender:
        return self._senders.of(_origin(source, caller, origin, library), caller.only or DEFAULT_TENANT)

    def batch_refused(self, source: Source, refused: Refused, caller: Caller) -> None:
        """Tell of a request whose calls nobody has read."""
        self.count(source, "batch_refused")
        self._sender(source, caller, Origin()).miss("batch_refused", 1, refused.message)
        logger.warning(f"gateway.{source}_batch", tenant=caller.only, by=caller.agent, reason=refused.message)
        note = f"{source}: whole batches are refused, and the calls in them lost ({refused.message})"
        if refused.status.http == 413:
            note += f"; what helps: {BATCHES[source]}, or larger bounds (docs/connect.md#batches)"
        self._left_out.note(f"{source}_batch_{refused.reason}", note)

    def count(self, source: Source, result: Result, times: int = 1) -> None:
        self._metrics.logged_calls.labels(source, result).inc(times)
