"""A judge behind any OpenAI-compatible endpoint: asked with a schema, paid by the token, bounded in all."""

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from groundwatch.errors import Unscorable
from groundwatch.events import Usage
from groundwatch.models.asking.retry_policy import CallKind
from groundwatch.models.openai.answers import Answer
from groundwatch.models.openai.endpoint import Endpoint, Image, Message, user_message
from groundwatch.models.replies import encodable, last_valid
from groundwatch.protocols.prompts import Step

_SHOWN_AGAIN = 8_000


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """A judge's reply, parsed and valid, and what all requests for it used."""

    reply: object
    usage: Usage


class ChatModel(Endpoint):
    """A model that answers in JSON."""

    async def complete(
        self, step: Step, images: Sequence[Image] = (), *, check: Callable[[object], object] | None = None
    ) -> Completion:
        """Ask `step`, with `images` in front of it.

        A reply that does not meet the step's schema, that `check` rejects with `ValueError`, or that was
        cut off goes back to the model once, with what is wrong with it; then it is `Unscorable`
        (unparsable_reply, cut_off).
        """
        policy = self._retry_policy()
        messages = self._messages(step, images)
        form = self._form(step)
        usage = Usage()
        trouble = Unscorable(CallKind.UNPARSABLE_REPLY)
        for mending in (False, True):
            answer, seconds = await self._chat(messages, policy, **form)
            usage += answer.usage
            try:
                reply = self._checked(partial(_read, answer, step, check), seconds, answer.usage)
            except Unscorable as error:
                if mending or error.reason not in (CallKind.UNPARSABLE_REPLY, CallKind.CUT_OFF):
                    raise
                trouble = error
            else:
                return Completion(reply=reply, usage=usage)
            messages = [*messages, *_ask_again(answer, trouble)]
        raise trouble

    def _form(self, step: Step) -> dict[str, object]:
        structured = self.settings.structured
        if structured == "json_schema":
            form = {"name": step.name, "schema": step.schema, "strict": True}
            return {"response_format": {"type": "json_schema", "json_schema": form}}
        return {"response_format": {"type": "json_object"}} if structured == "json_object" else {}

    def _messages(self, step: Step, images: Sequence[Image]) -> list[Message]:
        system = step.system
        if self.settings.structured != "json_schema":
            schema = msgspec.json.encode(step.schema).decode()
            system = f"{system}\n\nThe reply is one JSON object that meets this JSON Schema:\n{schema}"
        return [{"role": "system", "content": encodable(system)}, user_message(step.user, images)]


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
