"""What a caller writes, read into events; its images checked in a process of their own, and stored first."""

import asyncio
import re
import uuid
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated, Any, TypeVar

import msgspec

from groundwatch.conversations.conversation import REASONS, Image, ImageDigest, ImageText, ImageUrl, Origin
from groundwatch.conversations.messages import image_of
from groundwatch.errors import ImageError, InputError, TransientError
from groundwatch.events import ResponseRecorded, Strategy
from groundwatch.gateway.auth import Caller
from groundwatch.gateway.fetching import Fetcher
from groundwatch.gateway.refusals import Reason, Refused, outcome_of
from groundwatch.image_files import from_base64
from groundwatch.records import (
    Described,
    Limits,
    Refusal,
    check_record,
    convert_record,
    decode_record,
    recorded,
    shortened,
)
from groundwatch.runtime.settings.gateway import IntakeSettings
from groundwatch.runtime.stores.image_checks import ImageChecks
from groundwatch.runtime.stores.images import Image as StoredImage
from groundwatch.runtime.stores.images import ImageStore
from groundwatch.runtime.stores.tombstones import NOT_AGAIN, Erased
from groundwatch.runtime.telemetry.metrics import Metrics

NOT_ALLOWED, NOT_THERE = "url_not_fetched", "url_not_there"

DIGEST = re.compile(r"[0-9a-f]{64}\Z")
NAMES = 64
"""Characters that hashes have: what is longer and has the form of base64 is an image."""

_DATA_URL = re.compile(r"data:[^,]{0,200};base64,", re.IGNORECASE)
_URL = re.compile(r"[a-z][a-z0-9+.-]{1,20}:", re.IGNORECASE)


class Encoded(msgspec.Struct, frozen=True, kw_only=True):
    base64: str


class SentImage(msgspec.Struct, frozen=True, kw_only=True):
    """An image as HTTP brings it, where it is not a hash or a data URL: one of the two."""

    base64: str | None = None
    url: str | None = None


Attachment = str | bytes | Encoded | ImageUrl
"""An image given with a response: the SHA-256 of a stored one, its bytes, these as base64, or where it is."""


def read_attachment(given: str | SentImage, index: int) -> Attachment:
    """What an item of `images` means: a name is not permission to read a thing. Raises `Refused`."""
    if isinstance(given, SentImage):
        if given.base64 is not None and given.url is None:
            return Encoded(base64=given.base64)
        if given.url is not None and given.base64 is None:
            # As OpenAI's API has it, an address may hold the image itself.
            inside = given.url[:5].lower() == "data:"
            return read_attachment(given.url, index) if inside else ImageUrl(given.url)
        raise wrong_image(index, "has neither base64 nor url, or both")
    if DIGEST.match(given):
        return given
    if url := _DATA_URL.match(given):
        return Encoded(base64=given[url.end() :])
    if len(given) > NAMES and isinstance(image_of(given), ImageText):
        return Encoded(base64=given)
    if given[:5].lower() == "data:":
        message = "only base64 data URLs are read"
    elif _URL.match(given):
        message = 'send the image or its hash, or its address as {"url": "..."}'
    else:
        message = "not the SHA-256 of an image in lower-case hex; paths are not read: send the image"
    raise wrong_image(index, message)


def wrong_image(
    index: int, message: str, name: str = "", reason: Reason = "image", left_out: str = ""
) -> Refused:
    return Refused(reason, message, field=f"images[{index}]", id=name, left_out=left_out)


class Sent(Described, frozen=True, kw_only=True):
    """A response as HTTP brings it: the id may be left to us, and images may come inside.

    With `left_out` it is a logged call, which is recorded without what cannot be taken; its items are the
    reasons for what its sender could not send, those of `earlier_left_out` the reasons for that of earlier
    turns.
    """

    id: Annotated[str, msgspec.Meta(max_length=256)] = ""
    images: tuple[str | SentImage, ...] = ()
    left_out: Annotated[tuple[str, ...], msgspec.Meta(max_length=1_000)] | None = None
    earlier_left_out: Annotated[tuple[str, ...], msgspec.Meta(max_length=1_000)] = ()


class SentQuestion(Sent, frozen=True, kw_only=True):
    """A question as HTTP brings it: what a response has, but for the answer."""

    answer: str = ""
    strategy: Strategy = Strategy.DIRECT


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A response ready for `Intake`, or with a `strategy` a question. Its images are not in the response yet.

    `sender` is behind whom its images wait. With `left_out` it is a logged call: these are the reasons for
    what it lacks, and an image that cannot be taken adds one. `varies`: logged again, more or less of it may
    be there, since something had to be fetched. With `declined` no protocol judges it, for this reason.
    `origin` is who logged or sent it. The first `earlier_images` and all of `earlier_left_out` are of turns
    before the one that was answered.
    """

    response: ResponseRecorded
    images: tuple[Attachment, ...] = ()
    sender: str = ""
    strategy: Strategy | None = None
    left_out: tuple[str, ...] | None = None
    varies: bool = False
    declined: str = ""
    origin: Origin = Origin()
    earlier_images: int = 0
    earlier_left_out: tuple[str, ...] = ()

    @property
    def is_lenient(self) -> bool:
        return self.left_out is not None

    def of_one_turn(self) -> "Submission":
        """The same where the images of every turn are judged."""
        left_out = None if self.left_out is None else (*self.earlier_left_out, *self.left_out)
        return msgspec.structs.replace(self, earlier_images=0, earlier_left_out=(), left_out=left_out)


class Stored(msgspec.Struct, frozen=True):
    """The images of a submission and those of `earlier` turns, with the reasons for what each lacks."""

    images: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    earlier: tuple[str, ...] = ()
    earlier_left_out: tuple[str, ...] = ()


T = TypeVar("T")

_SENT = msgspec.json.Decoder(Sent)
_QUESTION = msgspec.json.Decoder(SentQuestion)


def read_submission(line: bytes, bounds: Limits, caller: Caller, *, name: str = "") -> Submission:
    """Read one JSON object of `caller`'s; one without an id has the id `name`, or one that is made up.

    Raises `Refused`, as all that reads here.
    """
    sent = decode_record(line, _SENT, bounds)
    if isinstance(sent, Refusal):
        raise _refused(sent)
    return _submission(sent, sent.images, read_attachment, bounds, caller, name)


def take_submission(
    values: dict[str, Any],
    images: Sequence[T],
    read_image: Callable[[T, int], Attachment],
    bounds: Limits,
    caller: Caller,
) -> Submission:
    """The same for a response that came as values, beside its images, which are read in their turn."""
    sent = convert_record(values, Sent)
    if isinstance(sent, Refusal):
        raise _refused(sent)
    return _submission(sent, images, read_image, bounds, caller)


def read_question(line: bytes, bounds: Limits, caller: Caller) -> Submission:
    """Read one JSON object that asks for an answer instead of bringing one."""
    sent = decode_record(line, _QUESTION, bounds)
    if isinstance(sent, Refusal):
        raise _refused(sent)
    if sent.answer:
        raise Refused("invalid", "is what is asked for: leave it out", field="answer", id=sent.id)
    if not sent.prompt.strip():
        raise Refused("invalid", "is missing", field="prompt", id=sent.id)
    read = _submission(sent, sent.images, read_attachment, bounds, caller)
    return msgspec.structs.replace(read, strategy=sent.strategy)


def _submission(
    sent: Sent,
    brought: Sequence[T],
    read_image: Callable[[T, int], Attachment],
    bounds: Limits,
    caller: Caller,
    name: str = "",
) -> Submission:
    name = sent.id or name or uuid.uuid4().hex
    tenant = caller.owner(sent.tenant, name)
    left_out, before = sent.left_out, _known(sent.earlier_left_out)
    if left_out is not None:
        sent, brought, cut, cut_before = shortened(sent, brought, bounds)
        left_out, before = (*_known(left_out), *cut), (*before, *cut_before)
    early = sent.earlier_images
    if wrong := check_record(sent, name, brought, bounds):
        raise _refused(wrong)
    given: list[Attachment] = []
    for index, image in enumerate(brought):
        try:
            given.append(read_image(image, index))
        except Refused as error:
            if left_out is None:
                raise error.but(id=name) from None
            # Whatever a library wrote in an image's place is looked at.
            written = image_of(image) if isinstance(image, str) else None
            if written is not None and not isinstance(written, str):
                given.append(attachment_of(written))
            elif index < sent.earlier_images:
                early, before = early - 1, (*before, written or "image_format")
            else:
                left_out = (*left_out, written or "image_format")
    response = recorded(msgspec.structs.replace(sent, tenant=tenant), name, ())
    return Submission(
        response=response,
        images=tuple(given),
        sender=caller.sender,
        left_out=left_out,
        varies=bool(given) and any(isinstance(image, ImageUrl) for image in given),
        origin=Origin(source="responses", library=caller.agent),
        earlier_images=early,
        earlier_left_out=before,
    )


def _known(reasons: Sequence[str]) -> tuple[str, ...]:
    return tuple(reason if reason in REASONS else "unknown_placeholder" for reason in reasons)


def _digests(images: Sequence[str | StoredImage | Refused]) -> tuple[str, ...]:
    return tuple(
        image if isinstance(image, str) else image.sha256
        for image in images
        if isinstance(image, str | StoredImage)
    )


def attachment_of(image: Image) -> Attachment:
    if isinstance(image, ImageDigest):
        return image.sha256
    return Encoded(base64=image.base64) if isinstance(image, ImageText) else image


def _refused(refusal: Refusal) -> Refused:
    message = refusal.message
    if refusal.field.startswith("images[") and message.startswith("Expected"):
        message += ' (an image is a SHA-256, a data: URL, {"base64": "..."} or {"url": "..."})'
    reason: Reason = "invalid" if refusal.field else "malformed"
    return Refused(reason, message, field=refusal.field, id=refusal.id)


class Attachments:
    def __init__(
        self,
        store: ImageStore,
        limits: IntakeSettings,
        metrics: Metrics,
        erased: Erased,
        fetcher: Fetcher,
    ) -> None:
        self._store = store
        self._erased = erased
        self._limits = limits
        self._metrics = metrics
        self._checks = ImageChecks(limits)
        self._fetcher = fetcher

    async def close(self) -> None:
        await self._fetcher.close()
        await self._checks.close()

    async def store(self, given: bytes | Encoded, sender: str) -> StoredImage:
        """Check and store. Raises `InputError` that says what is wrong with it, `TransientError` when it
        cannot be stored."""
        image = await self._check(given, sender)
        await self._put(image)
        return image

    async def _check(self, given: bytes | Encoded, sender: str) -> StoredImage:
        """Senders take turns."""
        try:
            data = given if isinstance(given, bytes) else partial(self._decode, given)
            image = await self._checks.check(data, sender)
        except InputError:
            self._metrics.images.labels("refused").inc()
            raise
        if problem := self._erased.problem:
            raise TransientError(f"not stored: {problem}")
        if self._erased.any_image((image.sha256,)):
            self._metrics.images.labels("refused").inc()
            raise InputError(f"this image was erased, and {NOT_AGAIN}")
        return image

    async def _put(self, image: StoredImage) -> None:
        new = await self._store.put(image)
        self._metrics.images.labels("stored" if new else "known").inc()

    def known(self, images: Sequence[Attachment]) -> bool:
        """Whether all are digests seen before, so that nothing must be waited for."""
        return all(isinstance(image, str) and self._store.seen(image) for image in images)

    async def digests(self, submission: Submission, check: Callable[[Stored], Awaitable[None]]) -> Stored:
        """Check what came as bytes, look up the rest, and last fetch what is elsewhere, side by side. What is
        new is stored when all of it is right, and `check` raises nothing: what is refused leaves no image.

        Raises `Refused`, or `TransientError` as `store` does.
        """
        name, sender = submission.response.id, submission.sender
        results: dict[int, str | StoredImage | Refused] = {}

        async def keep(index: int, getting: Awaitable[str | StoredImage]) -> Refused | None:
            """Why the image is refused; None where it is there, or a logged call does without it."""
            results[index] = result = await outcome_of(getting)
            left_out = isinstance(result, Refused) and submission.is_lenient and result.left_out
            return result if isinstance(result, Refused) and not left_out else None

        elsewhere: dict[int, ImageUrl] = {}
        for index, given in enumerate(submission.images):
            if isinstance(given, ImageUrl):
                elsewhere[index] = given
            elif refused := await keep(index, self._one(given, sender, index, name)):
                raise refused.but()
        fetching = (
            keep(index, self._fetch(image, sender, index, name)) for index, image in elsewhere.items()
        )
        for refused in await asyncio.gather(*fetching):
            if refused is not None:
                raise refused.but()
        every = [results[index] for index in range(len(submission.images))]
        earlier, turn = every[: submission.earlier_images], every[submission.earlier_images :]
        stored = Stored(
            images=_digests(turn),
            left_out=tuple(image.left_out for image in turn if isinstance(image, Refused)),
            earlier=_digests(earlier),
            earlier_left_out=tuple(image.left_out for image in earlier if isinstance(image, Refused)),
        )
        given_here = [image for image in every if isinstance(image, StoredImage)]
        if not all(self._store.seen(image.sha256) for image in given_here):
            await check(stored)
        for image in given_here:
            await self._put(image)
        return stored

    async def _one(
        self, given: str | bytes | Encoded, sender: str, index: int, name: str
    ) -> str | StoredImage:
        try:
            if not isinstance(given, str):
                return await self._check(given, sender)
        except ImageError as error:
            raise wrong_image(index, str(error), name, left_out=error.reason) from error
        except InputError as error:
            raise wrong_image(index, str(error), name) from error
        if await self._store.has(given):
            return given
        missing = f"no image {given} is stored: send it to /v1/images first"
        raise wrong_image(index, missing, name, "image_missing", "image_missing")

    async def _fetch(self, image: ImageUrl, sender: str, index: int, name: str) -> StoredImage:
        """The image that is there. Raises `Refused`, or `TransientError` as `store` does."""
        if refusal := self._fetcher.refusal(image.url):
            raise wrong_image(index, refusal, name, "image_not_allowed", NOT_ALLOWED)
        reason: Reason = "image_not_fetched"
        try:
            async with self._fetcher.fetched(image.url, sender, most=self._limits.max_image_bytes) as data:
                reason = "image"
                return await self._check(data, sender)
        except ImageError as error:
            raise wrong_image(index, str(error), name, reason, error.reason) from error
        except InputError as error:
            # Of an image that was erased, a call is not taken either.
            left_out = "" if reason == "image" else NOT_THERE
            raise wrong_image(index, str(error), name, reason, left_out) from error
        except TransientError as error:
            if reason == "image":
                raise
            # Not asked again at once: what is elsewhere is not helped by that.
            refused = wrong_image(index, str(error), name, "image_unavailable", NOT_THERE)
            raise refused.but(lasting=True) from error

    def _decode(self, given: Encoded) -> bytes:
        limit = self._limits.max_image_bytes
        if len(given.base64) > limit * 3 // 2 + 1024:
            raise ImageError(f"image is larger than {limit} bytes", "image_too_large")
        return from_base64(given.base64)
