"""A model under test behind any OpenAI-compatible endpoint: asked as its users ask it, in plain text.

What a judge is held to does not hold here: an answer that was cut off is what its users would have seen.
"""

from collections.abc import Sequence

from groundwatch.errors import Unscorable
from groundwatch.models.asking.retry_policy import CallKind
from groundwatch.models.openai.answers import Answer
from groundwatch.models.openai.endpoint import Endpoint, Image, user_message
from groundwatch.models.replies import Text, encodable


class TextModel(Endpoint):
    """A model that answers in text."""

    async def say(self, text: str, images: Sequence[Image] = ()) -> Text:
        answer, seconds = await self._chat([user_message(text, images)], self._retry_policy())
        return self._checked(lambda: _read(answer), seconds, answer.usage)


def _read(answer: Answer) -> Text:
    if answer.refusal:
        raise Unscorable(CallKind.REFUSED, answer.refusal)
    if not answer.text.strip():
        raise Unscorable(CallKind.EMPTY_REPLY)
    return Text(text=encodable(answer.text), usage=answer.usage, cut_off=answer.cut_off)
