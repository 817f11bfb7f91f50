"""What a caller writes, read into events; its images checked in a process of their own, and stored first."""

import asyncio
import base64
import binascii
import re
import uuid
from collections.abc import Sequence
from functools import partial
from itertools import count
from typing import Annotated, Any

import msgspec

from groundwatch.conversations.conversation import ImageUrl
from groundwatch.errors import InputError, TransientError
from groundwatch.events import ResponseRecorded, Strategy
from groundwatch.gateway.callers import Caller
from groundwatch.gateway.fetching.fetcher import Fetcher
from groundwatch.gateway.intake.results import Reason, Refused
from groundwatch.records import (
    Described,
    Limits,
    Refusal,
    check_record,
    convert_record,
    decode_record,
    recorded,
)
from groundwatch.runtime.settings.gateway import IntakeSettings
from groundwatch.runtime.stores.image_checks import ImageChecks
from groundwatch.runtime.stores.images import Image, ImageStore
from groundwatch.runtime.stores.tombstones import NOT_AGAIN, Erased
from groundwatch.runtime.telemetry.metrics import Metrics

DIGEST = re.compile(r"[0-9a-f]{64}\Z")
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


def read_attachment(given: str | SentImage, index: int) -> Attachment | Refused:
    """What an item of `images` means: a name is not permission to read a thing."""
    if isinstance(given, SentImage):
        if given.base64 is not None and given.url is None:
            return Encoded(base64=given.base64)
        if given.url is not None and given.base64 is None:
            return ImageUrl(given.url)
        return wrong_image(index, "has neither base64 nor url, or both")
    if DIGEST.match(given):
        return given
    if url := _DATA_URL.match(given):
        return Encoded(base64=given[url.end() :])
    if given[:5].lower() == "data:":
        message = "only base64 data URLs are read"
    elif _URL.match(given):
        message = 'send the image or its hash, or its address as {"url": "..."}'
    else:
        message = "not the SHA-256 of an image in lower-case hex; paths are not read: send the image"
    return wrong_image(index, message)


def wrong_image(index: int, message: str, name: str = "", reason: Reason = "image") -> Refused:
    return Refused(id=name, reason=reason, field=f"images[{index}]", message=message)


class Sent(Described, frozen=True, kw_only=True):
    """A response as HTTP brings it: the id may be left to us, and images may come inside."""

    id: Annotated[str, msgspec.Meta(max_length=256)] = ""
    images: tuple[str | SentImage, ...] = ()


class SentQuestion(Sent, frozen=True, kw_only=True):
    """A question as HTTP brings it: what a response has, but for the answer."""

    answer: str = ""
    strategy: Strategy = Strategy.DIRECT


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A response ready for `Intake`, or with a `strategy` a question. Its images are not in the response yet.

    `sender` is behind whom its images wait. With `declined` it is recorded and no protocol judges it, for
    this reason.
    """

    response: ResponseRecorded
    images: tuple[Attachment, ...] = ()
    sender: str = ""
    strategy: Strategy | None = None
    declined: str = ""


_SENT = msgspec.json.Decoder(Sent)
_QUESTION = msgspec.json.Decoder(SentQuestion)


def read_submission(line: bytes, bounds: Limits, caller: Caller, *, name: str = "") -> Submission | Refused:
    """Read one JSON object of `caller`'s; one without an id has the id `name`, or one that is made up."""
    sent = decode_record(line, _SENT, bounds)
    return _refused(sent) if isinstance(sent, Refusal) else _submission(sent, None, bounds, caller, name)


def take_submission(
    values: dict[str, Any], images: Sequence[Attachment | Refused], bounds: Limits, caller: Caller
) -> Submission | Refused:
    """The same for a response that came as values, beside its images, which are looked at in their turn."""
    sent = convert_record(values, Sent)
    return _refused(sent) if isinstance(sent, Refusal) else _submission(sent, images, bounds, caller)


def read_question(line: bytes, bounds: Limits, caller: Caller) -> Submission | Refused:
    """Read one JSON object that asks for an answer instead of bringing one."""
    sent = decode_record(line, _QUESTION, bounds)
    if isinstance(sent, Refusal):
        return _refused(sent)
    if sent.answer:
        message = "is what is asked for: leave it out"
        return Refused(id=sent.id, reason="invalid", field="answer", message=message)
    if not sent.prompt.strip():
        return Refused(id=sent.id, reason="invalid", field="prompt", message="is missing")
    read = _submission(sent, None, bounds, caller)
    return read if isinstance(read, Refused) else msgspec.structs.replace(read, strategy=sent.strategy)


def _submission(
    sent: Sent, images: Sequence[Attachment | Refused] | None, bounds: Limits, caller: Caller, name: str = ""
) -> Submission | Refused:
    name = sent.id or name or uuid.uuid4().hex
    tenant = caller.owner(sent.tenant, name)
    if isinstance(tenant, Refused):
        return tenant
    if wrong := check_record(sent, name, sent.images if images is None else images, bounds):
        return _refused(wrong)
    given: list[Attachment] = []
    for image in map(read_attachment, sent.images, count()) if images is None else images:
        if isinstance(image, Refused):
            return msgspec.structs.replace(image, id=name)
        given.append(image)
    response = recorded(msgspec.structs.replace(sent, tenant=tenant), name, ())
    return Submission(response=response, images=tuple(given), sender=caller.sender)


def _refused(refusal: Refusal) -> Refused:
    message = refusal.message
    if refusal.field.startswith("images[") and message.startswith("Expected"):
        message += ' (an image is a SHA-256, a data: URL, {"base64": "..."} or {"url": "..."})'
    reason: Reason = "invalid" if refusal.field else "malformed"
    return Refused(id=refusal.id, reason=reason, field=refusal.field, message=message)


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

    async def store(self, given: bytes | Encoded, sender: str) -> Image:
        """Check and store. Senders take turns.

        Raises `InputError` that says what is wrong with it, `TransientError` when it cannot be stored.
        """
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
        new = await self._store.put(image)
        self._metrics.images.labels("stored" if new else "known").inc()
        return image

    def known(self, images: Sequence[Attachment]) -> bool:
        """Whether all are digests seen before, so that nothing must be waited for."""
        return all(isinstance(image, str) and self._store.seen(image) for image in images)

    async def digests(self, submission: Submission) -> tuple[str, ...] | Refused:
        """Store what came as bytes, look up the rest, and last fetch what is elsewhere, side by side.

        Raises `TransientError` as `store` does.
        """
        found: dict[int, str] = {}
        name, elsewhere = submission.response.id, list[tuple[int, ImageUrl]]()
        for index, given in enumerate(submission.images):
            try:
                if isinstance(given, ImageUrl):
                    elsewhere.append((index, given))
                elif not isinstance(given, str):
                    found[index] = (await self.store(given, submission.sender)).sha256
                elif await self._store.has(given):
                    found[index] = given
                else:
                    missing = f"no image {given} is stored: send it to /v1/images first"
                    return wrong_image(index, missing, name, "image_missing")
            except InputError as error:
                return wrong_image(index, str(error), name)
        fetching = (self.fetch(image, submission.sender, index, name) for index, image in elsewhere)
        for (index, _), fetched in zip(elsewhere, await asyncio.gather(*fetching), strict=True):
            if isinstance(fetched, Refused):
                return fetched
            found[index] = fetched
        return tuple(found[index] for index in range(len(submission.images)))

    async def fetch(self, image: ImageUrl, sender: str, index: int = 0, name: str = "") -> str | Refused:
        """The digest of the image there, which is stored then. Raises `TransientError` as `store` does."""
        if refusal := self._fetcher.refusal(image.url):
            return wrong_image(index, refusal, name, "image_not_allowed")
        reason: Reason = "image_not_fetched"
        try:
            async with self._fetcher.fetched(image.url, sender, most=self._limits.max_image_bytes) as data:
                reason = "image"
                return (await self.store(data, sender)).sha256
        except InputError as error:
            return wrong_image(index, str(error), name, reason)
        except TransientError as error:
            if reason == "image":
                raise
            # Not asked again at once: what is elsewhere is not helped by that.
            refused = wrong_image(index, str(error), name, "image_unavailable")
            return msgspec.structs.replace(refused, lasting=True)

    def _decode(self, given: Encoded) -> bytes:
        limit = self._limits.max_image_bytes
        if len(given.base64) > limit * 3 // 2 + 1024:
            raise InputError(f"image is larger than {limit} bytes")
        try:
            return base64.b64decode("".join(given.base64.split()), validate=True)
        except (binascii.Error, ValueError) as error:
            raise InputError(f"not base64: {error}") from error
