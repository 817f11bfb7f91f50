"""Yes or no from any OpenAI-compatible endpoint: by the probabilities of its first word where it gives them.

A judge that says only "yes" hides how sure it is. Servers that tell the log-probabilities of the likeliest
tokens let the two answers be weighed: P(yes) is what falls to yes of what falls to yes and no together. The
others are asked for a word, which a schema constrains.
"""

import math
import re
from collections.abc import Mapping, Sequence

import msgspec

from groundwatch.errors import Unscorable
from groundwatch.events import Usage
from groundwatch.models.asking.retry_policy import CallKind
from groundwatch.models.openai.answers import Answer
from groundwatch.models.openai.endpoint import Image, Message, user_message
from groundwatch.models.openai.judge import ChatModel
from groundwatch.models.openai.settings import ChatSettings, OnCall
from groundwatch.models.replies import encodable
from groundwatch.protocols.prompts import Step

LEAST_MASS = 0.1
"""What must fall to yes and no together: below it the model is not answering the question."""

ANSWER_TOKENS = 8

_AROUND = re.compile(r"^[\W_Ġ]+|[\W_]+$")
_ALONE = re.compile(r"\W{0,20}(yes|no)\W{0,20}", re.IGNORECASE)
_SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {"answer": {"type": "string", "enum": ["yes", "no"]}},
    "required": ["answer"],
    "additionalProperties": False,
}


class YesNo(msgspec.Struct, frozen=True, kw_only=True):
    """An answer. `probability` is that of yes, None where the endpoint told only the word."""

    yes: bool
    probability: float | None = None
    usage: Usage = Usage()


class YesNoModel(ChatModel):
    """A model that answers yes or no."""

    def __init__(
        self,
        settings: ChatSettings,
        *,
        top_logprobs: int = 10,
        on_call: OnCall | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`top_logprobs` is how many alternatives are asked for; 0 asks for the word alone."""
        super().__init__(settings, on_call=on_call, environment=environment)
        self._top = 0 if {"logprobs", "top_logprobs"} & set(settings.omit) else top_logprobs

    async def ask(self, system: str, user: str, images: Sequence[Image] = ()) -> YesNo:
        usage = Usage()
        if self._top:
            try:
                answer, seconds = await self._weigh(system, user, images)
            except Unscorable as error:
                if "logprob" not in error.detail.lower():
                    raise
                # The server knows no such parameter: nobody need ask it again.
                self._top = 0
            else:
                usage = answer.usage
                try:
                    return self._checked(lambda: _read(answer), seconds, usage)
                except Unscorable as error:
                    if error.reason != CallKind.UNPARSABLE_REPLY:
                        raise
        return await self._constrained(system, user, images, usage)

    async def _weigh(self, system: str, user: str, images: Sequence[Image]) -> tuple[Answer, float]:
        form: dict[str, object] = {"logprobs": True, "top_logprobs": self._top}
        if self.settings.token_limit == "max_tokens":
            form["max_tokens"] = min(ANSWER_TOKENS, self.settings.max_tokens)
        instructions: Message = {"role": "system", "content": encodable(system)}
        return await self._chat([instructions, user_message(user, images)], self._retry_policy(), **form)

    async def _constrained(self, system: str, user: str, images: Sequence[Image], usage: Usage) -> YesNo:
        form = f'{system}\n\nGive the word as a JSON object: {{"answer": "yes"}} or {{"answer": "no"}}.'
        step = Step(name="yes_no", system=form, user=user, schema=_SCHEMA)
        completion = await self.complete(step, images)
        reply = completion.reply
        assert isinstance(reply, dict)
        return YesNo(yes=reply["answer"] == "yes", usage=usage + completion.usage)


def probability(places: Sequence[Sequence[tuple[str, float]]]) -> float | None:
    """P(yes) at the first place of an answer that holds a word; None where it is neither yes nor no.

    `places` are the likeliest tokens of each place with their log-probabilities. Tokens that differ in case,
    spaces or punctuation alone are added up.
    """
    for place in places:
        if place and not any(letter.isalnum() for letter in place[0][0]):
            # White space, a quotation mark, or bold type in front of the word.
            continue
        mass = {"yes": 0.0, "no": 0.0}
        for token, logprob in place:
            if (word := _word(token)) in mass and not math.isnan(logprob):
                mass[word] += math.exp(min(0.0, logprob))
        whole = mass["yes"] + mass["no"]
        return mass["yes"] / whole if whole >= LEAST_MASS else None
    return None


def _word(token: str) -> str:
    """The token without the space that tokenizers write as a letter, and without punctuation."""
    return _AROUND.sub("", token).casefold()


def _read(answer: Answer) -> YesNo:
    """Raises `Unscorable`: unparsable_reply when it is neither, or when there is nothing to read."""
    if answer.refusal:
        raise Unscorable(CallKind.REFUSED, answer.refusal)
    if (found := probability(answer.tokens)) is not None:
        return YesNo(yes=found >= 0.5, probability=found, usage=answer.usage)
    if answer.tokens:
        raise Unscorable(CallKind.UNPARSABLE_REPLY)
    if not answer.text.strip():
        raise Unscorable(CallKind.EMPTY_REPLY)
    alone = _ALONE.fullmatch(answer.text.strip()) if len(answer.text) < 60 else None
    if alone is None:
        raise Unscorable(CallKind.UNPARSABLE_REPLY)
    return YesNo(yes=alone[1].casefold() == "yes", usage=answer.usage)
