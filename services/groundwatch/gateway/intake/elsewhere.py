"""What a logged call only names: messages that were uploaded, and images at an address."""

import asyncio

import msgspec

from groundwatch.conversations.conversation import Conversation, Image, ImageDigest, ImageUrl
from groundwatch.conversations.messages import with_messages
from groundwatch.errors import InputError, TransientError
from groundwatch.gateway.fetching.fetcher import Fetcher
from groundwatch.gateway.intake.results import Refused
from groundwatch.gateway.intake.submissions import Attachments
from groundwatch.runtime.settings.gateway import IntakeSettings
from groundwatch.runtime.telemetry.logs import logger

NOT_ALLOWED = "url_not_fetched"
NOT_THERE = "url_not_there"
NO_MESSAGES = "reference_not_fetched"


class Elsewhere:
    """Fetches them. What cannot be had is left out with its reason, since who logs does not send again."""

    def __init__(self, fetcher: Fetcher, attachments: Attachments, limits: IntakeSettings) -> None:
        self._fetcher = fetcher
        self._attachments = attachments
        self._limits = limits

    async def complete(self, call: Conversation, sender: str) -> Conversation | Refused:
        """The call with all that could be fetched. Refused is only what cannot be stored now."""
        call = await self._with_messages(call, sender)
        if len(call.images) > self._limits.max_images or not any(
            isinstance(image, ImageUrl) for image in call.images
        ):
            return call
        try:
            found = await asyncio.gather(*(self._image(image, sender) for image in call.images))
        except TransientError as error:
            return Refused(id=call.id, reason="unavailable", message=str(error))
        return msgspec.structs.replace(
            call,
            images=tuple(image for image in found if not isinstance(image, str)),
            left_out=(*call.left_out, *(reason for reason in found if isinstance(reason, str))),
        )

    async def _with_messages(self, call: Conversation, sender: str) -> Conversation:
        missing = []
        # What was asked first: it says anew which images are left out.
        for side in ("input", "output"):
            if url := call.references.get(side):
                try:
                    data = await self._fetcher.fetch(url, sender, most=self._limits.max_line)
                except (InputError, TransientError) as error:
                    logger.debug("fetch.left_out", id=call.id, error=str(error))
                    missing.append(NO_MESSAGES)
                else:
                    call = with_messages(call, side, data)
        return msgspec.structs.replace(call, left_out=(*call.left_out, *missing)) if missing else call

    async def _image(self, image: Image, sender: str) -> Image | str:
        """The image, stored where it was elsewhere, or the reason why it is left out."""
        if not isinstance(image, ImageUrl):
            return image
        fetched = await self._attachments.fetch(image, sender)
        if not isinstance(fetched, Refused):
            return ImageDigest(fetched)
        logger.debug("fetch.left_out", error=fetched.message)
        return NOT_ALLOWED if fetched.reason == "image_not_allowed" else NOT_THERE
