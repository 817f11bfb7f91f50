"""A judge behind any OpenAI-compatible endpoint: asked with a schema, paid by the token, bounded in all.

Three kinds of trouble end three ways. What the event itself causes (a refusal, a reply that cannot be
read, a request that is too long) makes the response unscored. What passes (rate limits, timeouts, a server
that is down) is tried again here within bounds and then handed back to the runtime. A wrong key or model
name is the operator's to mend, so it is handed back too: nothing is lost while they do.
"""

from __future__ import annotations

import asyncio
import base64
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import msgspec
import openai

from groundwatch.errors import Unscorable
from groundwatch.events import Usage
from groundwatch.models.chat_settings import ChatSettings, OnCall
from groundwatch.models.openai_answers import Answer, fault_of, read_answer
from groundwatch.models.patience import CallKind, Fault, Gate, Patience
from groundwatch.models.replies import encodable, last_valid
from groundwatch.protocols.base import Step

Image: TypeAlias = tuple[bytes, str]
"""An image's bytes and its media type."""

__all__ = ["ChatModel", "ChatSettings", "Completion", "Image", "OnCall"]

_SHOWN_AGAIN = 8_000


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """A judge's reply, parsed and valid, and what all requests for it used."""

    reply: object
    usage: Usage


class ChatModel:
    """A model behind an OpenAI-compatible chat-completions endpoint; one for each endpoint and loop.

    `complete` may be called by any number of tasks: no more than `concurrency` requests are under way at
    once, and a server that asks for a pause is given it by all of them.
    """

    def __init__(
        self,
        settings: ChatSettings,
        *,
        on_call: OnCall | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._settings = settings
        self._on_call = on_call
        self._key = (os.environ if environment is None else environment).get(settings.api_key_env, "")
        self._client = openai.AsyncOpenAI(
            base_url=settings.base_url,
            api_key=self._key or "none",
            timeout=settings.timeout,
            max_retries=0,
        )
        self._whom = _describe(settings, with_key=bool(self._key))
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._gate = Gate()

    @property
    def model(self) -> str:
        """The model's name, as scores carry it."""
        return self._settings.model

    @property
    def longest_call(self) -> float:
        """Seconds that `complete` may take once it has a slot: for acknowledgement deadlines.

        Leaves out what rate-limited answers themselves take, which come at once.
        """
        return (self._settings.retries + 2) * self._settings.timeout + self._settings.patience

    async def complete(
        self, step: Step, images: Sequence[Image] = (), *, check: Callable[[object], object] | None = None
    ) -> Completion:
        """Ask `step`, with `images` in front of it.

        A reply that does not meet the step's schema, that `check` rejects with `ValueError`, or that was
        cut off goes back to the model once, with what is wrong with it.

        Raises `Unscorable` (unparsable_reply, cut_off, refused, empty_reply, judge_rejected_request),
        `RateLimited` with the wait asked for, or `TransientError`.
        """
        settings = self._settings
        patience = Patience(
            retries=settings.retries, seconds=settings.patience, first_wait=settings.first_wait
        )
        messages = self._messages(step, images)
        usage = Usage()
        trouble = Unscorable(CallKind.UNPARSABLE_REPLY)
        for mending in (False, True):
            answer, seconds = await self._ask(step, messages, patience)
            usage += answer.usage
            try:
                reply = _read(answer, step, check)
            except Unscorable as error:
                self._tell(CallKind(error.reason), seconds, answer.usage)
                if mending or error.reason not in (CallKind.UNPARSABLE_REPLY, CallKind.CUT_OFF):
                    raise
                trouble = error
            else:
                self._tell(CallKind.OK, seconds, answer.usage)
                return Completion(reply=reply, usage=usage)
            messages = [*messages, *_ask_again(answer, trouble)]
        raise trouble

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _ask(
        self, step: Step, messages: list[dict[str, object]], patience: Patience
    ) -> tuple[Answer, float]:
        """One answer and the seconds it took, after as many requests as patience allows."""
        while True:
            async with self._slots:
                await patience.pass_through(self._gate)
                started = time.perf_counter()
                outcome = await self._request(step, messages)
                seconds = time.perf_counter() - started
            if isinstance(outcome, Answer):
                return outcome, seconds
            self._tell(outcome.kind, seconds, Usage())
            if outcome.retry_after is not None:
                self._gate.close_for(outcome.retry_after)
            await patience.wait_out(outcome)

    async def _request(self, step: Step, messages: list[dict[str, object]]) -> Answer | Fault:
        create: Any = self._client.chat.completions.with_raw_response.create
        try:
            async with asyncio.timeout(self._settings.timeout):
                raw = await create(messages=messages, **self._parameters(step))
        except (TimeoutError, openai.APIError) as error:
            return fault_of(error, key=self._key, whom=self._whom)
        try:
            return read_answer(
                raw.http_response.content,
                input_price=self._settings.input_price,
                output_price=self._settings.output_price,
            )
        except ValueError as error:
            return fault_of(error, key=self._key, whom=self._whom)

    def _parameters(self, step: Step) -> dict[str, object]:
        settings = self._settings
        parameters: dict[str, object] = {
            "model": settings.model,
            "temperature": settings.temperature,
            "seed": settings.seed,
            settings.token_limit: settings.max_tokens,
        }
        if settings.structured == "json_schema":
            form = {"name": step.name, "schema": step.schema, "strict": True}
            parameters["response_format"] = {"type": "json_schema", "json_schema": form}
        elif settings.structured == "json_object":
            parameters["response_format"] = {"type": "json_object"}
        return {name: value for name, value in parameters.items() if name not in settings.omit}

    def _messages(self, step: Step, images: Sequence[Image]) -> list[dict[str, object]]:
        system = step.system
        if self._settings.structured != "json_schema":
            schema = msgspec.json.encode(step.schema).decode()
            system = f"{system}\n\nThe reply is one JSON object that meets this JSON Schema:\n{schema}"
        question: list[dict[str, object]] = [
            {
                "type": "image_url",
                "image_url": {"url": f"data:{media_type};base64,{base64.b64encode(data).decode()}"},
            }
            for data, media_type in images
        ]
        text = encodable(step.user)
        return [
            {"role": "system", "content": encodable(system)},
            {"role": "user", "content": [*question, {"type": "text", "text": text}] if question else text},
        ]

    def _tell(self, kind: CallKind, seconds: float, usage: Usage) -> None:
        if self._on_call is not None:
            self._on_call(kind.value, seconds, usage)


def _describe(settings: ChatSettings, *, with_key: bool) -> str:
    """Whom we ask, for messages; without what an address may hold of credentials."""
    address = urlsplit(settings.base_url)
    host = address.netloc.rpartition("@")[2]
    key = "" if with_key else f" (no key in {settings.api_key_env})"
    return f"model '{settings.model}' at {address.scheme}://{host}{address.path}{key}"


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
