"""A model's endpoint, OpenAI-compatible: how it is asked, within which bounds, and what its faults mean.

Three kinds of trouble end three ways. What the event itself causes (a refusal, a reply that cannot be
read, a request that is too long) makes the response unscored. What passes (rate limits, timeouts, a server
that is down) is tried again here within bounds and then handed back to the runtime. A wrong key or model
name is the operator's to mend, so it is handed back too: nothing is lost while they do.
"""

import asyncio
import base64
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import httpx
import openai

from groundwatch.addresses import shown_address, shown_variable
from groundwatch.errors import Unscorable
from groundwatch.events import Usage
from groundwatch.models.asking.breaker import Breaker
from groundwatch.models.asking.calls import Calls
from groundwatch.models.asking.retry_policy import CallKind, Fault, RetryPolicy
from groundwatch.models.openai.answers import Answer, fault_of, read_answer
from groundwatch.models.openai.settings import ChatSettings, OnCall
from groundwatch.models.replies import encodable

Image: TypeAlias = tuple[bytes, str]
"""An image's bytes and its media type."""

Message: TypeAlias = dict[str, object]

T = TypeVar("T")


class Endpoint:
    """A model behind an OpenAI-compatible server; one for each endpoint and loop.

    It may be asked by any number of tasks: no more than `concurrency` requests are under way at once, and
    a server that asks for a pause is given it by all of them. Every question raises `Unscorable` (refused,
    empty_reply, judge_rejected_request, and what its reading says), `RateLimited` with the wait asked for,
    `Unavailable` while the model is away, or `TransientError`.
    """

    def __init__(
        self,
        settings: ChatSettings,
        *,
        on_call: OnCall | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.settings = settings
        self._on_call = on_call
        self._key = (os.environ if environment is None else environment).get(settings.api_key_env, "")
        self._client = openai.AsyncOpenAI(
            base_url=settings.base_url,
            api_key=self._key or "none",
            timeout=settings.timeout,
            max_retries=0,
        )
        # Without what an address may hold of credentials.
        key = "" if self._key else f" (no key in {shown_variable(settings.api_key_env)})"
        self._whom = f"model '{settings.model}' at {shown_address(settings.base_url)}{key}"
        self._calls = Calls(
            settings.model,
            slots=asyncio.Semaphore(settings.concurrency),
            breaker=Breaker(failures=settings.breaker_failures, pause=settings.breaker_pause),
            record=self._record,
        )

    @property
    def model(self) -> str:
        return self.settings.model

    async def close(self) -> None:
        await self._client.close()

    def _retry_policy(self) -> RetryPolicy:
        """What one judgement may spend on waiting."""
        settings = self.settings
        return RetryPolicy(
            retries=settings.retries, seconds=settings.patience, first_wait=settings.first_wait
        )

    async def _chat(
        self, messages: Sequence[Message], policy: RetryPolicy, **form: object
    ) -> tuple[Answer, float]:
        """A chat completion and the seconds it took, still to be `_checked`.

        `form` are further parameters of the request.
        """
        create: Any = self._client.chat.completions.with_raw_response.create

        async def send() -> httpx.Response:
            raw = await create(messages=messages, **self._parameters(form))
            response: httpx.Response = raw.http_response
            return response

        return await self._calls.persist(
            lambda: self._read_from(send(), lambda body: read_answer(body, self.settings), "chat completion"),
            policy,
        )

    async def _post(
        self, path: str, body: Mapping[str, object], read: Callable[[bytes], tuple[T, Usage]], what: str
    ) -> tuple[tuple[T, Usage], float]:
        """What another page than chat answers, what it used and the seconds it took; still to be `_checked`.

        `path` is below the endpoint's address; `read` raises `ValueError` for what is not `what`, such as
        "image".
        """
        sent = {name: value for name, value in body.items() if value and name not in self.settings.omit}
        return await self._calls.persist(
            lambda: self._read_from(self._client.post(path, cast_to=httpx.Response, body=sent), read, what),
            self._retry_policy(),
        )

    def _checked(self, check: Callable[[], T], seconds: float, usage: Usage) -> T:
        """What `check` makes of a reply, recorded by what becomes of it. Raises `Unscorable` as it does."""
        try:
            found = check()
        except Unscorable as error:
            self._record(CallKind(error.reason), seconds, usage)
            raise
        self._record(CallKind.OK, seconds, usage)
        return found

    def _record(self, kind: CallKind, seconds: float, usage: Usage) -> None:
        if self._on_call is not None:
            self._on_call(kind.value, seconds, usage)

    async def _read_from(
        self, sent: Awaitable[httpx.Response], read: Callable[[bytes], T], what: str
    ) -> T | Fault:
        try:
            async with asyncio.timeout(self.settings.timeout):
                response = await sent
            return read(response.content)
        except (TimeoutError, openai.APIError, ValueError) as error:
            return fault_of(error, key=self._key, whom=self._whom, wanted=what)

    def _parameters(self, form: Mapping[str, object]) -> dict[str, object]:
        settings = self.settings
        parameters: dict[str, object] = {
            "model": settings.model,
            "temperature": settings.temperature,
            "seed": settings.seed,
            settings.token_limit: settings.max_tokens,
            **form,
        }
        return {name: value for name, value in parameters.items() if name not in settings.omit}


def user_message(text: str, images: Sequence[Image]) -> Message:
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
