"""A model under test behind any OpenAI-compatible endpoint: asked as its users ask it, in plain text.

What a judge is held to does not hold here: an answer that was cut off is what its users would have seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from groundwatch.errors import Unscorable
from groundwatch.events import Usage
from groundwatch.models.asking.retry_policy import CallKind
from groundwatch.models.openai.answers import Answer
from groundwatch.models.openai.endpoint import Endpoint, Image, said_by_user
from groundwatch.models.openai.settings import ChatSettings, OnCall
from groundwatch.models.replies import encodable


class Text(msgspec.Struct, frozen=True, kw_only=True):
    """What a model said. `cut_off`: it ran out of tokens."""

    text: str
    usage: Usage
    cut_off: bool = False


class TextModel:
    """A model that answers in text; one for each endpoint and loop, for any number of tasks."""

    def __init__(
        self,
        settings: ChatSettings,
        *,
        on_call: OnCall | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._endpoint = Endpoint(settings, on_call=on_call, environment=environment)

    @property
    def model(self) -> str:
        """The model's name at its endpoint."""
        return self._endpoint.model

    async def say(self, text: str, images: Sequence[Image] = ()) -> Text:
        """Ask with `images` in front of the text.

        Raises `Unscorable` (refused, empty_reply, judge_rejected_request), `RateLimited` with the wait asked
        for, or `TransientError`.
        """
        endpoint = self._endpoint
        answer, seconds = await endpoint.ask([said_by_user(text, images)], endpoint.patience())
        try:
            said = _read(answer)
        except Unscorable as error:
            endpoint.tell(CallKind(error.reason), seconds, answer.usage)
            raise
        endpoint.tell(CallKind.OK, seconds, answer.usage)
        return said

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoint.close()


def _read(answer: Answer) -> Text:
    if answer.refusal:
        raise Unscorable(CallKind.REFUSED, answer.refusal)
    if not answer.text.strip():
        raise Unscorable(CallKind.EMPTY_REPLY)
    return Text(text=encodable(answer.text), usage=answer.usage, cut_off=answer.cut_off)
