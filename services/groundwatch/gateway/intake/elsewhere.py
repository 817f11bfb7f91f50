"""Messages of a logged call that were uploaded, so that the call only names them."""

import msgspec

from groundwatch.conversations.conversation import Conversation
from groundwatch.conversations.messages import with_messages
from groundwatch.errors import InputError, TransientError
from groundwatch.gateway.fetching.fetcher import Fetcher
from groundwatch.runtime.telemetry.logs import logger

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
