"""A model's endpoint, OpenAI-compatible: how it is asked, within which bounds, and what its faults mean.

Three kinds of trouble end three ways. What the event itself causes (a refusal, a reply that cannot be
read, a request that is too long) makes the response unscored. What passes (rate limits, timeouts, a server
that is down) is tried again here within bounds and then handed back to the runtime. A wrong key or model
name is the operator's to mend, so it is handed back too: nothing is lost while they do.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import httpx
import openai

from groundwatch.addresses import shown_address, shown_variable
from groundwatch.events import Usage
from groundwatch.models.asking.breaker import Breaker
from groundwatch.models.asking.calls import Calls
from groundwatch.models.asking.retry_policy import CallKind, Fault, Patience
from groundwatch.models.openai.answers import Answer, fault_of, read_answer
from groundwatch.models.openai.settings import ChatSettings, OnCall
from groundwatch.models.replies import encodable

Image: TypeAlias = tuple[bytes, str]
"""An image's bytes and its media type."""

Message: TypeAlias = dict[str, object]

T = TypeVar("T")


class Endpoint:
    """A model behind an OpenAI-compatible chat-completions endpoint; one for each endpoint and loop.

    It may be asked by any number of tasks: no more than `concurrency` requests are under way at once, and
    a server that asks for a pause is given it by all of them.
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
        self._calls = Calls(
            settings.model,
            slots=asyncio.Semaphore(settings.concurrency),
            breaker=Breaker(failures=settings.breaker_failures, pause=settings.breaker_pause),
            tell=self.tell,
        )

    @property
    def model(self) -> str:
        """The model's name, as scores carry it."""
        return self._settings.model

    @property
    def settings(self) -> ChatSettings:
        """How it is reached and paid."""
        return self._settings

    def patience(self) -> Patience:
        """What one judgement may spend on waiting."""
        settings = self._settings
        return Patience(retries=settings.retries, seconds=settings.patience, first_wait=settings.first_wait)

    async def ask(
        self, messages: Sequence[Message], patience: Patience, **form: object
    ) -> tuple[Answer, float]:
        """One answer and the seconds it took, after as many requests as patience allows.

        `form` are further parameters of the request. Raises `Unscorable` (refused, judge_rejected_request),
        `RateLimited` with the wait asked for, `Unavailable` while the model is away, or `TransientError`. An
        answer is still to be told.
        """
        return await self._calls.persist(lambda: self._complete(messages, form), patience)

    async def post(
        self, path: str, body: Mapping[str, object], read: Callable[[bytes], T], patience: Patience, what: str
    ) -> tuple[T, float]:
        """What `read` makes of the body that another page than chat answers, and the seconds it took.

        `path` is below the endpoint's address; `read` raises `ValueError` for what is not `what`, such as
        "image". Raises as `ask` does, and an answer is still to be told.
        """

        async def request() -> T | Fault:
            return await self._read_from(
                self._client.post(path, cast_to=httpx.Response, body=dict(body)), read, what
            )

        return await self._calls.persist(request, patience)

    def tell(self, kind: CallKind, seconds: float, usage: Usage) -> None:
        """Count a request that got an answer by what became of that."""
        if self._on_call is not None:
            self._on_call(kind.value, seconds, usage)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _complete(self, messages: Sequence[Message], form: Mapping[str, object]) -> Answer | Fault:
        create: Any = self._client.chat.completions.with_raw_response.create

        async def send() -> httpx.Response:
            raw = await create(messages=messages, **self._parameters(form))
            response: httpx.Response = raw.http_response
            return response

        settings = self._settings
        return await self._read_from(
            send(),
            lambda body: read_answer(
                body, input_price=settings.input_price, output_price=settings.output_price
            ),
            "chat completion",
        )

    async def _read_from(
        self, sent: Awaitable[httpx.Response], read: Callable[[bytes], T], what: str
    ) -> T | Fault:
        try:
            async with asyncio.timeout(self._settings.timeout):
                response = await sent
        except (TimeoutError, openai.APIError) as error:
            return fault_of(error, key=self._key, whom=self._whom, wanted=what)
        try:
            return read(response.content)
        except ValueError as error:
            return fault_of(error, key=self._key, whom=self._whom, wanted=what)

    def _parameters(self, form: Mapping[str, object]) -> dict[str, object]:
        settings = self._settings
        parameters: dict[str, object] = {
            "model": settings.model,
            "temperature": settings.temperature,
            "seed": settings.seed,
            settings.token_limit: settings.max_tokens,
            **form,
        }
        return {name: value for name, value in parameters.items() if name not in settings.omit}


def said_by_user(text: str, images: Sequence[Image]) -> Message:
    """A user's message with `images` in front of its text."""
    question: list[Message] = [
        {
            "type": "image_url",
            "image_url": {"url": f"data:{media_type};base64,{base64.b64encode(data).decode()}"},
        }
        for data, media_type in images
    ]
    text = encodable(text)
    return {"role": "user", "content": [*question, {"type": "text", "text": text}] if question else text}


def _describe(settings: ChatSettings, *, with_key: bool) -> str:
    """Whom we ask, for messages; without what an address may hold of credentials."""
    key = "" if with_key else f" (no key in {shown_variable(settings.api_key_env)})"
    return f"model '{settings.model}' at {shown_address(settings.base_url)}{key}"
