"""Models behind any OpenAI-compatible endpoint: judges in JSON or by yes and no, models under test, images.

A judge that says only "yes" hides how sure it is. Servers that tell the log-probabilities of the likeliest
tokens let the two answers be weighed: P(yes) is what falls to yes of what falls to yes and no together. The
others are asked for a word, which a schema constrains.

Images come as base64 in the reply. One that is told by its address is not fetched: a reply does not choose
what we read.
"""

import base64
import binascii
import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import msgspec

from groundwatch.errors import Unscorable
from groundwatch.events import Usage
from groundwatch.models.asking import CallKind, RetryPolicy
from groundwatch.models.openai.endpoint import (
    Answer,
    Endpoint,
    Message,
    Tokens,
    decoded,
    usage_of,
    user_message,
)
from groundwatch.models.replies import Generated, Image, Text, encodable, last_valid
from groundwatch.models.settings import ChatSettings, OnCall
from groundwatch.protocols.prompts import Form, Step, read_reply

LEAST_MASS = 0.1
"""What must fall to yes and no together: below it the model is not answering the question."""

ANSWER_TOKENS = 8

_SHOWN_AGAIN = 8_000
_AROUND = re.compile(r"^[\W_Ġ]+|[\W_]+$")
_ALONE = re.compile(r"\W{0,20}(yes|no)\W{0,20}", re.IGNORECASE)


class _Word(Form, frozen=True):
    answer: Literal["yes", "no"]


class TextModel(Endpoint):
    """A model under test, asked as its users ask it: an answer that was cut off is what they would see."""

    async def say(self, text: str, images: Sequence[Image] = ()) -> Text:
        answer, seconds = await self._chat([user_message(text, images)])
        said = self._checked(lambda: _said(answer), seconds, answer.usage)
        return Text(text=encodable(said), usage=answer.usage, cut_off=answer.cut_off)


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
        policy = RetryPolicy(self.settings)
        messages = self._messages(step, images)
        usage = Usage()
        for mending in (False, True):
            answer, seconds = await self._chat(messages, self._form(step), policy)
            usage += answer.usage
            try:
                reply = self._checked(partial(_parsed, answer, step, check), seconds, answer.usage)
            except Unscorable as error:
                if mending or error.reason not in (CallKind.UNPARSABLE_REPLY, CallKind.CUT_OFF):
                    raise
                messages = [*messages, *_ask_again(answer, error)]
            else:
                break
        return Completion(reply=reply, usage=usage)

    def _form(self, step: Step) -> dict[str, object]:
        structured = self.settings.structured
        if structured == "json_schema":
            form = {"name": step.name, "schema": step.schema, "strict": True}
            return {"response_format": {"type": "json_schema", "json_schema": form}}
        return {"response_format": {"type": "json_object"}} if structured == "json_object" else {}

    def _messages(self, step: Step, images: Sequence[Image]) -> list[Message]:
        system = step.system
        if self.settings.structured != "json_schema" and step.written is None:
            schema = msgspec.json.encode(step.schema).decode()
            system = f"{system}\n\nThe reply is one JSON object that meets this JSON Schema:\n{schema}"
        return [{"role": "system", "content": encodable(system)}, user_message(step.user, images)]


class YesNo(msgspec.Struct, frozen=True, kw_only=True):
    """An answer. `probability` is that of yes, None where the endpoint told only the word."""

    yes: bool
    probability: float | None = None
    usage: Usage = Usage()


class YesNoModel(ChatModel):
    """A model that answers yes or no."""

    def __init__(
        self, settings: ChatSettings, *, top_logprobs: int = 10, on_call: OnCall | None = None
    ) -> None:
        """`top_logprobs` is how many alternatives are asked for; 0 asks for the word alone."""
        super().__init__(settings, on_call=on_call)
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
                    return self._checked(lambda: _yes_or_no(answer), seconds, usage)
                except Unscorable as error:
                    if error.reason != CallKind.UNPARSABLE_REPLY:
                        raise
        return await self._constrained(system, user, images, usage)

    async def _weigh(self, system: str, user: str, images: Sequence[Image]) -> tuple[Answer, float]:
        form: dict[str, object] = {"logprobs": True, "top_logprobs": self._top}
        if self.settings.token_limit == "max_tokens":
            form["max_tokens"] = min(ANSWER_TOKENS, self.settings.max_tokens)
        instructions: Message = {"role": "system", "content": encodable(system)}
        return await self._chat([instructions, user_message(user, images)], form)

    async def _constrained(self, system: str, user: str, images: Sequence[Image], usage: Usage) -> YesNo:
        form = f'{system}\n\nGive the word as a JSON object: {{"answer": "yes"}} or {{"answer": "no"}}.'
        step = Step(name="yes_no", system=form, user=user, form=_Word)
        completion = await self.complete(step, images)
        said = read_reply(completion.reply, _Word)
        return YesNo(yes=said.answer == "yes", usage=usage + completion.usage)


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
            # Without the space that tokenizers write as a letter, and without punctuation.
            word = _AROUND.sub("", token).casefold()
            if word in mass and not math.isnan(logprob):
                mass[word] += math.exp(min(0.0, logprob))
        whole = mass["yes"] + mass["no"]
        return mass["yes"] / whole if whole >= LEAST_MASS else None
    return None


def _said(answer: Answer) -> str:
    if answer.refusal:
        raise Unscorable(CallKind.REFUSED, answer.refusal)
    if not answer.text.strip():
        raise Unscorable(CallKind.EMPTY_REPLY)
    return answer.text


def _parsed(answer: Answer, step: Step, check: Callable[[object], object] | None) -> object:
    if answer.cut_off and not answer.refusal:
        raise Unscorable(CallKind.CUT_OFF, f"after {answer.usage.output_tokens} tokens")
    try:
        reply = last_valid(_said(answer), step.form, step.written)
        if check is not None:
            check(reply)
    except ValueError as error:
        raise Unscorable(CallKind.UNPARSABLE_REPLY, str(error)) from error
    return reply


def _yes_or_no(answer: Answer) -> YesNo:
    if answer.refusal:
        raise Unscorable(CallKind.REFUSED, answer.refusal)
    if (found := probability(answer.tokens)) is not None:
        return YesNo(yes=found >= 0.5, probability=found, usage=answer.usage)
    if answer.tokens:
        raise Unscorable(CallKind.UNPARSABLE_REPLY)
    said = _said(answer)
    alone = _ALONE.fullmatch(said.strip()) if len(said) < 60 else None
    if alone is None:
        raise Unscorable(CallKind.UNPARSABLE_REPLY)
    return YesNo(yes=alone[1].casefold() == "yes", usage=answer.usage)


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


class _Datum(msgspec.Struct):
    b64_json: str | None = None
    url: str | None = None


class _Images(msgspec.Struct):
    data: list[_Datum]
    usage: Tokens | None = None


class _Vector(msgspec.Struct):
    embedding: tuple[float, ...]


class _Vectors(msgspec.Struct):
    data: list[_Vector]


class ImagesModel(Endpoint):
    """An image generator behind `/images/generations`."""

    def __init__(self, settings: ChatSettings, *, size: str = "", on_call: OnCall | None = None) -> None:
        """`size` such as 512x512; empty leaves it to the server."""
        super().__init__(settings, on_call=on_call)
        self._size = size

    @property
    def model(self) -> str:
        """The model's name, as scores carry it, with the size that it is asked for."""
        return f"{self.settings.model}/{self._size}" if self._size else self.settings.model

    async def draw(self, prompt: str) -> Generated:
        body = {
            "model": self.settings.model,
            "prompt": encodable(prompt),
            "n": 1,
            "response_format": "b64_json",
            "size": self._size,
        }
        (data, usage), seconds = await self._post("/images/generations", body, self._read, "image")

        def check() -> Generated:
            if not data:
                raise Unscorable(CallKind.EMPTY_REPLY, "no image")
            return Generated(image=data, usage=usage)

        return self._checked(check, seconds, usage)

    def _read(self, body: bytes) -> tuple[bytes, Usage]:
        read = decoded(body, _Images)
        found = read.data[0] if read.data else _Datum()
        if found.url and not found.b64_json:
            raise ValueError("an address in place of the image: set it to answer b64_json")
        try:
            data = base64.b64decode(found.b64_json or "", validate=True)
        except binascii.Error as error:
            raise ValueError(f"the image is not base64: {error}") from error
        return data, usage_of(read.usage, self.settings)


class ImageVectors(Endpoint):
    """An image encoder behind `/embeddings`, asked as vLLM serves CLIP and SigLIP: an image as a message."""

    async def encode(self, image: bytes) -> tuple[float, ...]:
        content = user_message("", [(image, _media_type(image))])["content"]
        assert isinstance(content, list)
        body = {
            "model": self.settings.model,
            "messages": [{"role": "user", "content": content[:1]}],
            "encoding_format": "float",
        }
        (vector, usage), seconds = await self._post("/embeddings", body, _vector, "vector")
        return self._checked(lambda: vector, seconds, usage)


def _vector(body: bytes) -> tuple[tuple[float, ...], Usage]:
    read = decoded(body, _Vectors)
    if len(read.data) != 1 or not read.data[0].embedding:
        raise ValueError("expected one vector")
    return read.data[0].embedding, Usage(calls=1)


def _media_type(image: bytes) -> str:
    if image[:3] == b"\xff\xd8\xff":
        return "image/jpeg"
    if image[:4] == b"\x89PNG":
        return "image/png"
    if image[:4] == b"RIFF" and image[8:12] == b"WEBP":
        return "image/webp"
    raise Unscorable("unreadable_image", "not a JPEG, PNG or WebP image")
