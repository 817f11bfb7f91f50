"""Images that come with a response: checked in a process of their own, stored before the event names them."""

import base64
import binascii
import re
from collections.abc import Sequence
from functools import partial

import msgspec

from groundwatch.errors import InputError, TransientError
from groundwatch.gateway.intake.results import Refused
from groundwatch.runtime.settings import IntakeSettings
from groundwatch.runtime.stores.image_checks import ImageChecks
from groundwatch.runtime.stores.images import Image, ImageStore
from groundwatch.runtime.stores.tombstones import NOT_AGAIN, Erased
from groundwatch.runtime.telemetry.metrics import Metrics

DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_DATA_URL = re.compile(r"data:[^,]{0,200};base64,", re.IGNORECASE)
_URL = re.compile(r"[a-z][a-z0-9+.-]{1,20}:", re.IGNORECASE)


class Encoded(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes of an image as base64 text."""

    base64: str


Attachment = str | bytes | Encoded
"""An image given with a response: the SHA-256 of a stored one, its bytes, or its bytes as base64."""


def read_attachment(given: str | Encoded) -> Attachment | str:
    """What an item of `images` means. Raises `InputError`: a name is not permission to read a thing."""
    if isinstance(given, Encoded) or DIGEST.match(given):
        return given
    if url := _DATA_URL.match(given):
        return Encoded(base64=given[url.end() :])
    if given[:5].lower() == "data:":
        raise InputError("only base64 data URLs are read")
    if _URL.match(given):
        raise InputError("URLs are not fetched; send the image or its hash")
    raise InputError("not the SHA-256 of an image in lower-case hex; paths are not read: send the image")


class Attachments:
    """The way of an image into the store."""

    def __init__(
        self, store: ImageStore, limits: IntakeSettings, metrics: Metrics, erased: Erased | None = None
    ) -> None:
        self._store = store
        self._erased = erased
        self._limits = limits
        self._metrics = metrics
        self._checks = ImageChecks(limits)

    async def close(self) -> None:
        await self._checks.close()

    async def store(self, given: bytes | Encoded, sender: str) -> tuple[Image, bool]:
        """Check and store; tells whether it is new. Senders take turns.

        Raises `InputError` that says what is wrong with it, `TransientError` when it cannot be stored.
        """
        try:
            data = given if isinstance(given, bytes) else partial(self._decode, given)
            image = await self._checks.check(data, sender)
        except InputError:
            self._metrics.images.labels("refused").inc()
            raise
        if self._erased is not None and (problem := self._erased.problem):
            raise TransientError(f"not stored: {problem}")
        if self._erased is not None and self._erased.any_image((image.sha256,)):
            self._metrics.images.labels("refused").inc()
            raise InputError(f"this image was erased, and {NOT_AGAIN}")
        new = await self._store.put(image)
        self._metrics.images.labels("stored" if new else "known").inc()
        return image, new

    def known(self, images: Sequence[Attachment]) -> bool:
        """Whether all are digests seen before, so that nothing must be waited for."""
        return all(isinstance(image, str) and self._store.seen(image) for image in images)

    async def digests(
        self, name: str, images: Sequence[Attachment], sender: str
    ) -> tuple[str, ...] | Refused:
        """Store what came as bytes and look up the rest; `name` is the response's id.

        Raises `TransientError` when the store does not answer.
        """
        found: list[str] = []
        for index, given in enumerate(images):
            field = f"images[{index}]"
            if isinstance(given, str):
                if not await self._store.has(given):
                    return Refused(
                        id=name,
                        reason="image_missing",
                        field=field,
                        message=f"no image {given} is stored: send it to /v1/images first",
                    )
                found.append(given)
                continue
            try:
                image, _ = await self.store(given, sender)
            except InputError as error:
                return Refused(id=name, reason="image", field=field, message=str(error))
            found.append(image.sha256)
        return tuple(found)

    def _decode(self, given: Encoded) -> bytes:
        limit = self._limits.max_image_bytes
        if len(given.base64) > limit * 3 // 2 + 1024:
            raise InputError(f"image is larger than {limit} bytes")
        try:
            return base64.b64decode("".join(given.base64.split()), validate=True)
        except (binascii.Error, ValueError) as error:
            raise InputError(f"not base64: {error}") from error
