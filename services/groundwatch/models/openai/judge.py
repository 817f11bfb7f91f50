"""A judge behind any OpenAI-compatible endpoint: asked with a schema, paid by the token, bounded in all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from groundwatch.errors import Unscorable
from groundwatch.events import Usage
from groundwatch.models.asking.retry_policy import CallKind
from groundwatch.models.openai.answers import Answer
from groundwatch.models.openai.endpoint import Endpoint, Image, Message, said_by_user
from groundwatch.models.openai.settings import ChatSettings, OnCall
from groundwatch.models.replies import encodable, last_valid
from groundwatch.protocols.base import Step

__all__ = ["ChatModel", "ChatSettings", "Completion", "Image", "OnCall"]

_SHOWN_AGAIN = 8_000


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """A judge's reply, parsed and valid, and what all requests for it used."""

    reply: object
    usage: Usage


class ChatModel:
    """A model that answers in JSON; one for each endpoint and loop, for any number of tasks."""

    def __init__(
        self,
        settings: ChatSettings,
        *,
        on_call: OnCall | None = None,
        environment: Mapping[str, str] | None = None,
        endpoint: Endpoint | None = None,
    ) -> None:
        """`endpoint` is one that is used for other questions too, and shares its slots with them."""
        self._endpoint = endpoint or Endpoint(settings, on_call=on_call, environment=environment)

    @property
    def model(self) -> str:
        """The model's name, as scores carry it."""
        return self._endpoint.model

    @property
    def longest_call(self) -> float:
        """Seconds that `complete` may take once it has a slot: for acknowledgement deadlines.

        Leaves out what rate-limited answers themselves take, which come at once.
        """
        settings = self._endpoint.settings
        return (settings.retries + 2) * settings.timeout + settings.patience

    async def complete(
        self, step: Step, images: Sequence[Image] = (), *, check: Callable[[object], object] | None = None
    ) -> Completion:
        """Ask `step`, with `images` in front of it.

        A reply that does not meet the step's schema, that `check` rejects with `ValueError`, or that was
        cut off goes back to the model once, with what is wrong with it.

        Raises `Unscorable` (unparsable_reply, cut_off, refused, empty_reply, judge_rejected_request),
        `RateLimited` with the wait asked for, or `TransientError`.
        """
        endpoint = self._endpoint
        patience = endpoint.patience()
        messages = self._messages(step, images)
        form = self._form(step)
        usage = Usage()
        trouble = Unscorable(CallKind.UNPARSABLE_REPLY)
        for mending in (False, True):
            answer, seconds = await endpoint.ask(messages, patience, **form)
            usage += answer.usage
            try:
                reply = _read(answer, step, check)
            except Unscorable as error:
                endpoint.tell(CallKind(error.reason), seconds, answer.usage)
                if mending or error.reason not in (CallKind.UNPARSABLE_REPLY, CallKind.CUT_OFF):
                    raise
                trouble = error
            else:
                endpoint.tell(CallKind.OK, seconds, answer.usage)
                return Completion(reply=reply, usage=usage)
            messages = [*messages, *_ask_again(answer, trouble)]
        raise trouble

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoint.close()

    def _form(self, step: Step) -> dict[str, object]:
        structured = self._endpoint.settings.structured
        if structured == "json_schema":
            form = {"name": step.name, "schema": step.schema, "strict": True}
            return {"response_format": {"type": "json_schema", "json_schema": form}}
        return {"response_format": {"type": "json_object"}} if structured == "json_object" else {}

    def _messages(self, step: Step, images: Sequence[Image]) -> list[Message]:
        system = step.system
        if self._endpoint.settings.structured != "json_schema":
            schema = msgspec.json.encode(step.schema).decode()
            system = f"{system}\n\nThe reply is one JSON object that meets this JSON Schema:\n{schema}"
        return [{"role": "system", "content": encodable(system)}, said_by_user(step.user, images)]


def _read(answer: Answer, step: Step, check: Callable[[object], object] | None) -> object:
    if answer.refusal:
        raise Unscorable(CallKind.REFUSED, answer.refusal)
    if answer.cut_off:
        raise Unscorable(CallKind.CUT_OFF, f"after {answer.usage.output_tokens} tokens")
    if not answer.text.strip():
        raise Unscorable(CallKind.EMPTY_REPLY)
    try:
        reply = last_valid(answer.text, step.schema)
        if check is not None:
            check(reply)
    except ValueError as error:
        raise Unscorable(CallKind.UNPARSABLE_REPLY, str(error)) from error
    return reply


def _ask_again(answer: Answer, trouble: Unscorable) -> list[dict[str, object]]:
    wrong = "it was cut off before its end" if trouble.reason == CallKind.CUT_OFF else trouble.detail
    return [
        {"role": "assistant", "content": encodable(answer.text[:_SHOWN_AGAIN]) or "(empty)"},
        {
            "role": "user",
            "content": encodable(
                f"This reply cannot be used: {wrong}. Reply again to the same question, with the whole "
                "corrected JSON object and nothing else, as briefly as it can be written."
            ),
        },
    ]
