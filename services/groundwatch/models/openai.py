"""Models behind any OpenAI-compatible endpoint: how they are asked, and what their faults mean.

They are judges in JSON or by yes and no, models under test, and makers of images.

Three kinds of trouble end three ways. What the event itself causes (a refusal, a reply that cannot be
read, a request that is too long) makes the response unscored. What passes (rate limits, timeouts, a server
that is down) is tried again here within bounds and then handed back to the runtime. A wrong key or model
name is the operator's to mend, so it is handed back too: nothing is lost while they do. The body of a reply
is read here rather than by the client library, which passes an HTML page or a list through as if it were a
completion.

A judge that says only "yes" hides how sure it is. Servers that tell the log-probabilities of the likeliest
tokens let the two answers be weighed: P(yes) is what falls to yes of what falls to yes and no together. The
others are asked for a word, which a schema constrains.

Servers differ in the parameters that they take. Those that one names as unsupported are left out from then
on, and what a judge by yes and no must be asked is learnt from its first answer.

Images come as base64 in the reply. One that is told by its address is not fetched: a reply does not choose
what we read.
"""

import asyncio
import base64
import binascii
import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar

import httpx
import httpx2
import msgspec
import openai
import structlog

from groundwatch.addresses import shown_address, shown_variable
from groundwatch.errors import RateLimited, TransientError, Unscorable
from groundwatch.events import LeftOutKind, Usage
from groundwatch.image_files import media_type
from groundwatch.keys import digest
from groundwatch.models.asking import CALL_HEADERS, CallKind, Calls, Fault, RetryPolicy, retry_after
from groundwatch.models.replies import (
    Generated,
    Image,
    Text,
    encodable,
    last_placed,
    last_valid,
    whole_values,
)
from groundwatch.models.settings import ChatSettings, OnCall
from groundwatch.protocols.prompts import Form, Step, read_reply
from groundwatch.reading.document import read_document

T = TypeVar("T")

logger: structlog.stdlib.BoundLogger = structlog.get_logger("groundwatch")

SERVICE_UNAVAILABLE = 503
_DETAIL = 300
_OURS = ("model", "response_format", "temperature", "seed", "max_tokens", "max_completion_tokens")
_FILTERED = ("content_filter", "content_policy_violation")
_CUT_OFF = ("length", "max_tokens")
_UNREADABLE = (CallKind.UNPARSABLE_REPLY, CallKind.CUT_OFF)
# The client raises those of either library, by its version.
_NOBODY_THERE = (httpx.ConnectError, httpx.ConnectTimeout, httpx2.ConnectError, httpx2.ConnectTimeout)
_UNSUPPORTED = ("unsupported_parameter", "unsupported_value")
_DISPENSABLE = ("temperature", "seed", "max_tokens")
"""Parameters that are done without, or by another name, where a server says that it does not support them."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the model said. `refusal` says why it would not; `cut_off` that it ran out of tokens.

    `tokens` are the likeliest tokens of each place with their log-probabilities, first the one that was
    taken, where they were asked for and given; on some servers with those of what was thought before the
    answer. `thought`: it thought apart from the text.
    """

    text: str = ""
    refusal: str = ""
    cut_off: bool = False
    usage: Usage = Usage()
    tokens: tuple[tuple[tuple[str, float], ...], ...] = ()
    thought: bool = False

    def places(self, at: int) -> Sequence[Sequence[tuple[str, float]]]:
        """Those of `tokens` from the character `at` of the text on; none where that cannot be told."""
        written = "".join(place[0][0] for place in self.tokens)
        begins = written.rfind(self.text) if self.text else -1
        if begins < 0:
            # Tokens as a tokenizer has them, such as "ĠYes": the beginning is where they begin.
            return () if at or self.thought else self.tokens
        end = 0
        for number, place in enumerate(self.tokens):
            end += len(place[0][0])
            if end > begins + at:
                return self.tokens[number:]
        return ()


class _Message(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    reasoning: Any = None
    reasoning_content: Any = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None
    logprobs: Any = None


class _Alternative(msgspec.Struct):
    token: str
    logprob: float


class _TokenPlace(_Alternative):
    top_logprobs: list[_Alternative] | None = None


class _Logprobs(msgspec.Struct):
    content: list[_TokenPlace] | None = None


class Tokens(msgspec.Struct):
    """Those of what was asked and answered: pages of chat call them otherwise than pages of images."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    completion_tokens_details: Any = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class _Body(msgspec.Struct):
    choices: list[_Choice]
    usage: Tokens | None = None


def decoded(body: bytes, kind: type[T]) -> T:
    """The body of a reply as a value. Raises `ValueError` for what is none."""
    try:
        return msgspec.convert(json.loads(body), kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ValueError(str(error)) from error


def usage_of(tokens: Tokens | None, settings: ChatSettings) -> Usage:
    """What one call used and cost by its tokens; a server that counts none costs nothing."""
    tokens = tokens or Tokens()
    asked = max(0, tokens.prompt_tokens or tokens.input_tokens or 0)
    answered = max(0, tokens.completion_tokens or tokens.output_tokens or 0)
    cost = (asked * settings.input_price + answered * settings.output_price) / 1_000_000
    return Usage(calls=1, input_tokens=asked, output_tokens=answered, cost=cost)


def read_answer(body: bytes, settings: ChatSettings) -> Answer:
    """Read the body of a successful response. Raises `ValueError` for what is no chat completion."""
    read = decoded(body, _Body)
    usage = usage_of(read.usage, settings)
    if not read.choices:
        return Answer(usage=usage)
    choice = read.choices[0]
    refusal = choice.message.refusal or ""
    if choice.finish_reason in _FILTERED:
        refusal = refusal or "stopped by the endpoint's content filter"
    return Answer(
        text=choice.message.content or "",
        refusal=encodable(refusal[:_DETAIL]),
        cut_off=choice.finish_reason in _CUT_OFF,
        usage=usage,
        tokens=_tokens(choice.logprobs),
        thought=bool(choice.message.reasoning or choice.message.reasoning_content or _hidden(read.usage)),
    )


def _hidden(tokens: Tokens | None) -> bool:
    """Whether tokens were spent on thoughts that are not told."""
    details = tokens.completion_tokens_details if tokens else None
    return bool(isinstance(details, dict) and details.get("reasoning_tokens"))


def _tokens(logprobs: Any) -> tuple[tuple[tuple[str, float], ...], ...]:
    """The alternatives at each place; nothing where servers write something else there.

    The token that was taken is not always among its own alternatives.
    """
    try:
        read = msgspec.convert(logprobs, _Logprobs)
    except msgspec.ValidationError:
        return ()
    return tuple(
        tuple({one.token: one.logprob for one in (place, *(place.top_logprobs or ()))}.items())
        for place in read.content or ()
    )


def fault_of(error: Exception, *, key: str, whom: str, wanted: str = "chat completion") -> Fault:
    """What a failed request means. `whom` says whom we asked; `key` is kept out of every message.

    `wanted` is what was to come back. A status that the event cannot have caused never costs the event its
    score.
    """
    if isinstance(error, openai.APIStatusError):
        return _of_status(error, key=key, whom=whom)
    if isinstance(error, (TimeoutError, openai.APITimeoutError)):
        kind, what = CallKind.TIMEOUT, "did not answer in time"
    elif isinstance(error, openai.APIConnectionError):
        kind, what = CallKind.UNREACHABLE, f"cannot be reached ({_cause(error)})"
    else:
        kind, what = CallKind.NOT_A_COMPLETION, f"sent no {wanted} ({_cause(error)})"
    # A connection that was never made says nothing of what was to be asked over it; one that broke may.
    away = isinstance(error.__cause__, _NOBODY_THERE)
    return Fault(kind=kind, error=TransientError(_hide(f"{whom} {what}", key)), passes=True, away=away)


def _of_status(error: openai.APIStatusError, *, key: str, whom: str) -> Fault:
    status = error.status_code
    detail = _hide(encodable(_said_of(error)), key)[:_DETAIL]
    message = f"{whom} answered {status}: {detail}"
    # OpenAI forbids log-probabilities of some models, as if the key were wrong.
    if status in (400, 413, 415, 422) or (status == 403 and "logprobs" in detail):
        return _of_rejection(error, detail=detail, message=message)
    wait = retry_after(dict(error.response.headers))
    if status == 429 and error.code != "insufficient_quota":
        limited = RateLimited(message, retry_after=wait)
        return Fault(kind=CallKind.RATE_LIMITED, error=limited, passes=True, retry_after=wait)
    if status >= 500 or status in (408, 409, 425):
        kind, away, broken = CallKind.SERVER_ERROR, status == SERVICE_UNAVAILABLE, TransientError(message)
        return Fault(kind=kind, error=broken, passes=True, away=away, retry_after=wait)
    wrong = TransientError(f"check the settings: {message}")
    return Fault(kind=CallKind.MISCONFIGURED, error=wrong, away=True)


def _said_of(error: openai.APIStatusError) -> str:
    """The message of a refusal. The client finds it in `error.message` alone: others call it otherwise."""
    body = error.body.get("detail", error.body) if isinstance(error.body, dict) else error.body
    if " - " in error.message or not body or str(body).lstrip().startswith("<"):
        return error.message
    said = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    return f"{error.message} - {' '.join(said.split())}"


def _of_rejection(error: openai.APIStatusError, *, detail: str, message: str) -> Fault:
    """A bad request is the event's fault, unless the server names a parameter that settings chose."""
    if error.code in _FILTERED:
        return Fault(kind=CallKind.REFUSED, error=Unscorable(CallKind.REFUSED, detail))
    ours = error.param in _OURS and error.code != "context_length_exceeded"
    if ours or error.code == "invalid_api_key" or "api key" in detail.lower():
        return Fault(kind=CallKind.MISCONFIGURED, error=TransientError(f"check the settings: {message}"))
    kind = CallKind.JUDGE_REJECTED_REQUEST
    return Fault(kind=kind, error=Unscorable(kind, detail))


def _cause(error: Exception) -> str:
    cause = error.__cause__ or error
    return f"{type(cause).__name__}: {str(cause)[:_DETAIL]}" if str(cause) else type(cause).__name__


def _hide(text: str, key: str) -> str:
    return text.replace(key, "[key]") if key else text


Message: TypeAlias = dict[str, object]


class Endpoint:
    """A model behind an OpenAI-compatible server; one for each endpoint and loop.

    It may be asked by any number of tasks: no more than `concurrency` requests are under way at once, and
    a server that asks for a pause is given it by all of them. Every question raises `Unscorable` (refused,
    empty_reply, judge_rejected_request, and what its reading says), `RateLimited` with the wait asked for,
    `Unavailable` while the model is away, or `TransientError`.
    """

    def __init__(self, settings: ChatSettings, *, on_call: OnCall | None = None) -> None:
        self.settings = settings
        self._key = os.environ.get(settings.api_key_env, "")
        self._client = openai.AsyncOpenAI(
            base_url=settings.base_url, api_key=self._key or "none", timeout=settings.timeout, max_retries=0
        )
        # Without what an address may hold of credentials.
        key = "" if self._key else f" (no key in {shown_variable(settings.api_key_env)})"
        self._whom = f"model '{settings.model}' at {shown_address(settings.base_url)}{key}"
        slots = asyncio.Semaphore(settings.concurrency)
        self._calls = Calls(settings.model, settings, slots=slots, on_call=on_call)
        self.unsupported: set[str] = set()
        """Parameters that the server has said it does not support."""

    @property
    def model(self) -> str:
        return self.settings.model

    @property
    def variant(self) -> str:
        """What is behind the version of who is asked with `extra_body`: another answer may come."""
        body = self.settings.extra_body
        return f"-{digest(json.dumps(body, sort_keys=True))[:8]}" if body else ""

    async def close(self) -> None:
        await self._client.close()

    async def _chat(
        self,
        messages: Sequence[Message],
        form: Mapping[str, object] | None = None,
        policy: RetryPolicy | None = None,
    ) -> tuple[Answer, float]:
        """A chat completion and the seconds it took, still to be `_checked`.

        `form` are further parameters of the request.
        """
        settings = self.settings
        body: dict[str, object] = {
            "messages": messages,
            "model": settings.model,
            "temperature": settings.temperature,
            "seed": settings.seed,
            settings.token_limit: settings.max_tokens,
            **(form or {}),
        }
        read = partial(read_answer, settings=settings)
        return await self._post("/chat/completions", body, read, "chat completion", policy)

    async def _post(
        self,
        path: str,
        body: Mapping[str, object],
        read: Callable[[bytes], T],
        what: str,
        policy: RetryPolicy | None = None,
    ) -> tuple[T, float]:
        """What is read of the reply and the seconds it took, still to be `_checked`.

        `path` is below the endpoint's address; `read` raises `ValueError` for what is not `what`, such as
        "image".
        """

        async def request() -> T | Fault:
            while True:
                sent = self._sent(body)
                try:
                    async with asyncio.timeout(self.settings.timeout):
                        response = await self._client.post(
                            path,
                            cast_to=httpx.Response,
                            body=sent,
                            options={"headers": {**CALL_HEADERS.get()}},
                        )
                    return read(response.content)
                except (TimeoutError, openai.APIError, ValueError) as error:
                    if not self._does_without(error, sent):
                        return fault_of(error, key=self._key, whom=self._whom, wanted=what)

        return await self._calls.persist(request, policy or RetryPolicy(self.settings))

    def _sent(self, body: Mapping[str, object]) -> dict[str, object]:
        """The parameters as this server takes them, with the settings' own over ours."""
        left_out = {*self.settings.omit, *self.unsupported}
        sent = {name: value for name, value in body.items() if value != "" and name not in left_out}
        if "max_tokens" in self.unsupported and "max_tokens" in body:
            sent["max_completion_tokens"] = body["max_tokens"]
        return sent | self.settings.extra_body

    def _does_without(self, error: Exception, sent: Mapping[str, object]) -> bool:
        """Whether the server said that it does not support what can be left out, and was sent it."""
        named = error.param if isinstance(error, openai.APIError) and error.code in _UNSUPPORTED else None
        if named not in _DISPENSABLE or named not in sent or named in self.settings.extra_body:
            return False
        if named not in self.unsupported:
            self.unsupported.add(named)
            logger.warning("judge.parameter_left_out", model=self.model, parameter=named)
        return True

    def _checked(self, check: Callable[[], T], seconds: float, usage: Usage) -> T:
        """What `check` makes of a reply, recorded by what becomes of it. Raises `Unscorable` as it does."""
        try:
            found = check()
        except Unscorable as error:
            self._calls.record(CallKind(error.reason), seconds, usage)
            raise
        self._calls.record(CallKind.OK, seconds, usage)
        return found


def user_message(text: str, images: Sequence[Image]) -> Message:
    urls = (f"data:{media_type};base64,{base64.b64encode(data).decode()}" for data, media_type in images)
    question: list[Message] = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    text = encodable(text)
    return {"role": "user", "content": [*question, {"type": "text", "text": text}] if question else text}


LEAST_MASS = 0.1
"""What must fall to yes and no together: below it the model is not answering the question."""

ANSWER_TOKENS = 8

FEW_LOGPROBS = 5
"""As many alternatives every server tells that tells any."""

_TOO_MANY = re.compile(r"greater|maximum|max allowed|exceed|above|<=|at most|between")
_LONGEST_THOUGHT = 1_000_000
_SHOWN_AGAIN = 8_000
_AROUND = re.compile(r"^[\W_Ġ]+|[\W_]+$")
_ALONE = re.compile(r"\W{0,20}(yes|no)\W{0,20}", re.IGNORECASE)


class _Word(Form, frozen=True):
    answer: Literal["yes", "no"]


class _NumberedWord(Form, frozen=True):
    index: int
    answer: Literal["yes", "no"]


class _Words(Form, frozen=True):
    answers: tuple[_NumberedWord, ...]


class _AnyWords(Form, frozen=True):
    answers: tuple[Any, ...]


_AT_INDEX = re.compile(r'"index"\s*+:\s*+(\d{1,9}+)\s*+,\s*+"answer"\s*+:\s*+"(yes|no)"')
_LIST_BEGINS = re.compile(r'\s*+(?:```json\s*+)?+\{\s*+"answers"\s*+:\s*+\[')


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
                if mending or error.reason not in _UNREADABLE:
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
    """A model that answers yes or no, each question in one request.

    What its server takes is learnt from the first question, which goes alone and may take more: how many
    log-probabilities (`top`; 0: it is asked for a JSON object in place of a word), and whether the model
    thinks (`thinks`): one that does not gets no more tokens than a word needs. A question that is answered
    with neither word is asked once more for a JSON object, and a JSON object that cannot be read goes back
    once.
    """

    def __init__(
        self, settings: ChatSettings, *, top_logprobs: int = 10, on_call: OnCall | None = None
    ) -> None:
        """`top_logprobs` is how many alternatives are asked for; 0 asks for the word alone."""
        super().__init__(settings, on_call=on_call)
        self.top = 0 if {"logprobs", "top_logprobs"} & set(settings.omit) else top_logprobs
        self.thinks = False
        self._first: asyncio.Event | None = None

    async def ask(self, system: str, user: str, images: Sequence[Image] = ()) -> YesNo:
        if self._first is not None:
            await self._first.wait()
            return await self._ask(system, user, images)
        self._first = asyncio.Event()
        try:
            return await self._ask(system, user, images)
        finally:
            self._first.set()

    async def ask_all(
        self, system: str, user: str, images: Sequence[Image], number: int
    ) -> tuple[list[YesNo | Unscorable], Usage]:
        """The answers to `number` statements in one request, in order, and what it used.

        P(yes) is read off the place of each word in the JSON, where the server told log-probabilities.
        """
        step = Step(name="yes_no_all", system=system, user=user, form=_Words)
        messages = self._messages(step, images)
        return await self.learning(
            lambda top, _: (messages, self._form(step) | alternatives(top)),
            lambda answer, _: _words(answer, number),
            word=False,
        )

    async def _ask(self, system: str, user: str, images: Sequence[Image]) -> YesNo:
        form = f'{system}\n\nGive the word as a JSON object: {{"answer": "yes"}} or {{"answer": "no"}}.'
        step = Step(name="yes_no", system=form, user=user, form=_Word)

        def put(top: int, thinks: bool) -> tuple[list[Message], dict[str, object]]:
            if not top:
                return self._messages(step, images), self._form(step)
            form = alternatives(top)
            if not thinks:
                form[self.settings.token_limit] = min(ANSWER_TOKENS, self.settings.max_tokens)
            return [{"role": "system", "content": encodable(system)}, user_message(user, images)], form

        said, usage = await self.learning(put, lambda answer, top: _yes_or_no(answer, None if top else step))
        return msgspec.structs.replace(said, usage=usage)

    async def learning(
        self,
        put: Callable[[int, bool], tuple[list[Message], dict[str, object]]],
        read: Callable[[Answer, int], T],
        *,
        word: bool = True,
    ) -> tuple[T, Usage]:
        """What is read of the answer to what is `put`, by `top` and `thinks`, and what all requests used.

        It is put again only where its answer tells that another way is needed, which each does once, and
        where it cannot be read: once as JSON, and JSON once more with what is wrong with it.
        """
        usage, policy = Usage(), RetryPolicy(self.settings)
        again: list[Message] = []
        formed = False
        while True:
            known = self.top, self.thinks
            top, thinks = 0 if formed else self.top, self.thinks
            answer = Answer()
            messages, form = put(top, thinks)
            try:
                answer, seconds = await self._chat([*messages, *again], form, policy)
                found = self._checked(partial(read, answer, top), seconds, answer.usage)
            except Unscorable as error:
                usage += answer.usage
                self._learn(error, answer, top, word)
                if (self.top, self.thinks) != known:
                    continue
                by_word = word and bool(top)
                if again or error.reason not in (_UNREADABLE[:1] if by_word else _UNREADABLE):
                    raise
                if by_word:
                    formed = True
                else:
                    again = _ask_again(answer, error)
            else:
                return found, usage + answer.usage

    def _learn(self, error: Unscorable, answer: Answer, top: int, word: bool) -> None:
        detail = error.detail.lower()
        if top and "logprob" in detail:
            fewer = FEW_LOGPROBS if _TOO_MANY.search(detail) else 0
            self.top = min(self.top, fewer if fewer < top else 0)
        elif top and word and ("output limit" in detail or error.reason == CallKind.CUT_OFF):
            self.thinks = True
        elif top and word and error.reason == CallKind.UNPARSABLE_REPLY and not answer.tokens:
            # Neither a word nor the probability of one.
            self.top = 0


def alternatives(top: int) -> dict[str, object]:
    return {"logprobs": True, "top_logprobs": top} if top else {}


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


def _yes_or_no(answer: Answer, formed: Step | None) -> YesNo:
    """By the first word of what was said when thinking was over, or by the form that was asked for."""
    if formed is not None:
        return YesNo(yes=read_reply(_parsed(answer, formed, None), _Word).answer == "yes")
    if answer.refusal:
        raise Unscorable(CallKind.REFUSED, answer.refusal)
    document = read_document(answer.text[:_LONGEST_THOUGHT])
    said = document.text.strip()
    if answer.cut_off and (document.cut or not _ALONE.fullmatch(said)):
        # Thoughts whose mark stands in the prompt look like an answer: only a word that ends is none of them.
        raise Unscorable(CallKind.CUT_OFF, "before an answer came")
    if not said and (document.left_out or answer.thought or not answer.tokens):
        raise Unscorable(CallKind.EMPTY_REPLY)
    places = answer.places(document.text.find(said) if document.left_out else 0)
    if (found := probability(places)) is not None:
        return YesNo(yes=found >= 0.5, probability=found)
    alone = _ALONE.fullmatch(said) if len(said) < 60 and not places else None
    if alone is None:
        raise Unscorable(CallKind.UNPARSABLE_REPLY)
    return YesNo(yes=alone[1].casefold() == "yes")


def _words(answer: Answer, number: int) -> list[YesNo | Unscorable]:
    """Of each statement; one that could not be read leaves the others as they are. Raises `Unscorable` where
    that is so of all."""
    items, begin = _items(answer)
    answers = [one for item in items if (one := _numbered(item)) is not None]
    said = Counter(one.index for one in answers)
    words = {one.index: one.answer for one in answers}
    places = {
        int(place[1]): place.start(2)
        for place in _AT_INDEX.finditer(answer.text, begin)
        if words.get(int(place[1])) == place[2]
    }
    found: list[YesNo | Unscorable] = []
    failed: list[Unscorable] = []
    for index in range(1, number + 1):
        if said[index] != 1:
            reason = CallKind.CUT_OFF if answer.cut_off and not said[index] else CallKind.UNPARSABLE_REPLY
            failed.append(Unscorable(reason, f"{said[index]} answers to statement {index}"))
            found.append(failed[-1])
            continue
        likely = probability(answer.places(places[index])[:1]) if answer.tokens and index in places else None
        yes = words[index] == "yes" if likely is None else likely >= 0.5
        found.append(YesNo(yes=yes, probability=likely))
    if failed and len(failed) == number:
        raise failed[0]
    return found


def _items(answer: Answer) -> tuple[Sequence[object], int]:
    """What the list of answers holds, to be read one by one, and where in the text that begins. Of a list
    that was cut off, those that came whole.
    """
    text = answer.text
    if answer.refusal or not answer.cut_off:
        try:
            reply, begin = last_placed(_said(answer), _AnyWords)
        except ValueError as error:
            raise Unscorable(CallKind.UNPARSABLE_REPLY, str(error)) from error
        return reply["answers"], begin
    document = read_document(text[:_LONGEST_THOUGHT])
    thoughts = [part.end for part in document.left_out if part.kind is LeftOutKind.REASONING]
    begins = None if document.cut else _LIST_BEGINS.match(text, max(thoughts, default=0))
    if begins is None:
        raise Unscorable(CallKind.CUT_OFF, f"after {answer.usage.output_tokens} tokens")
    return whole_values(text[begins.end() :]), begins.end()


def _numbered(item: object) -> _NumberedWord | None:
    try:
        return read_reply(item, _NumberedWord)
    except ValueError:
        return None


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
        content = user_message("", [(image, _known_type(image))])["content"]
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


def _known_type(image: bytes) -> str:
    if found := media_type(image):
        return found
    raise Unscorable("unreadable_image", "not a JPEG, PNG, WebP or GIF image")
