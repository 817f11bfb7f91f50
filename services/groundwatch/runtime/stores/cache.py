"""The judgement cache: what a judge said of an input is kept, so that nobody is paid twice for it.

Kept is what had a price: the results of engines that ask somebody else. An input that could not be judged is
not: a refusal or a reply that cannot be read may be another one next time. Two processes that miss the same
entry both ask, and the later one's word stays. The bucket drops its oldest entries when it is full, and
nothing here ever fails a judgement: without the cache, judges are asked.

A judgement is kept under everything that its judge saw, and nothing else. A key is three tokens,
`<scope>.<response>.<judgement>`. The scope is the tenant, the second token stands for the response as judges
see it, the third for all of it together. So whatever is known of a response, or of a tenant, is found again
by the first two.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec
import nats.js.errors
from nats.js.kv import KeyValue

from groundwatch.errors import UNDECODED, GroundwatchError, InputError, Unavailable
from groundwatch.events import LIVE, ClaimsExtracted, Judge, ResponseRecorded, Usage
from groundwatch.keys import digest
from groundwatch.models.settings import AskingSettings, ChatSettings
from groundwatch.protocols.base import ELSEWHERE, EvaluationProtocol
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import FAULTS
from groundwatch.runtime.settings import Settings, StageSettings
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import CACHE_BUCKET

LARGEST = 512 * 1024
"""Bytes of an entry: below every server's own limit."""

TIMEOUT = 1.0
"""Seconds that the cache is waited for."""

PAUSE = 10.0
"""Seconds that it is left alone after a fault."""

FORMAT = "1"
"""Raised when entries of before cannot be used any more."""

SHARED = "shared"
"""The scope of all tenants, where they share."""

_ENCODER = msgspec.json.Encoder()
_TOKEN = 32
_NOBODY = Judge(engine="")
_NOTHING = ResponseRecorded(id="", model="", answer="")

_WAITING_AND_PAYING = {*AskingSettings.model_fields, "api_key_env", "input_price", "output_price"}
"""Keys of `<stage>.llm` that change no reply."""

E = TypeVar("E", ResponseRecorded, ClaimsExtracted)
R = TypeVar("R", bound=msgspec.Struct)


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What the bucket holds. `key` and `form` are there so that nothing else is ever taken for it."""

    key: str
    form: str
    result: msgspec.Raw


class JudgementCache:
    """The bucket of judgements, for any number of stages of one process."""

    def __init__(self, settings: Settings, bus: Bus | None, metrics: Metrics) -> None:
        """Without a bus nothing is kept."""
        self._settings = settings
        self._bus = bus
        self._metrics = metrics
        self._bucket: KeyValue | None = None
        self._quiet_until = 0.0
        self._asked_with: dict[tuple[str, str, ChatSettings | None], str] = {}

    def keeps(self, stage: str, judge: Judge) -> bool:
        cache = self._settings.cache
        # What engines compute here takes less than a look into the cache.
        return self._bus is not None and cache.enabled and stage in cache.stages and judge.engine in ELSEWHERE

    async def through(
        self,
        stage: str,
        protocol: EvaluationProtocol,
        judge_of: Callable[[EvaluationProtocol], Judge],
        items: Sequence[E],
        ask: Callable[[Sequence[E], EvaluationProtocol], Awaitable[Sequence[R | GroundwatchError]]],
        form: type[R],
        llm: ChatSettings | None = None,
    ) -> Sequence[R | GroundwatchError]:
        """One result for each item, in order: what is known from the cache, of the others what `ask` says.

        `llm` is that of the judge, where it is not what settings say for the protocol. A result from the
        cache is the one that was kept but for its usage: that says how many calls it saved, and no more.
        """
        judge = judge_of(protocol)
        if not items or not self.keeps(stage, judge):
            return await ask(items, protocol)
        keys = [self._key(item, stage, protocol, judge, llm) for item in items]
        known = await asyncio.gather(*(self._get(stage, key, form) for key in keys))
        left = [index for index, result in enumerate(known) if result is None]
        saved = [_usage(result) for result in known if result is not None]
        self._metrics.cache_looked_up(stage, judge, saved, misses=len(left))
        results: list[R | GroundwatchError | None] = [
            None
            if result is None
            else msgspec.structs.replace(result, usage=Usage(cached=_usage(result).calls))
            for result in known
        ]
        if left:
            answers: Sequence[R | GroundwatchError]
            # Looking took a moment, in which a server can have said that another checkpoint answers now.
            if (now := judge_of(protocol)) != judge:
                why = f"{judge.engine}: {now.model} answers now, not {judge.model}"
                answers = [Unavailable(why, retry_after=0.0)] * len(left)
            else:
                answers = await ask([items[index] for index in left], protocol)
            for index, answer in zip(left, answers, strict=True):
                results[index] = answer
            kept = {
                key: answer
                for index, answer in zip(left, answers, strict=True)
                if (key := keys[index]) and isinstance(answer, form) and _worth_keeping(answer)
            }
            await asyncio.gather(*(self._put(stage, key, one) for key, one in kept.items()))
        return [result for result in results if result is not None]

    def _key(
        self,
        item: ResponseRecorded | ClaimsExtracted,
        stage: str,
        protocol: EvaluationProtocol,
        judge: Judge,
        llm: ChatSettings | None,
    ) -> str:
        """Empty for an input that has none: it is judged, and not kept."""
        where = stage, protocol.name, llm
        if where not in self._asked_with:
            self._asked_with[where] = asked_with(self._settings, *where)
        try:
            return cache_key(
                item,
                stage=stage,
                protocol=protocol.name,
                judge=judge,
                settings=self._asked_with[where],
                shared=self._settings.cache.shared_across_tenants,
            )
        except InputError:
            return ""

    async def _get(self, stage: str, key: str, form: type[R]) -> R | None:
        if not key or time.monotonic() < self._quiet_until:
            return None
        try:
            found = await (await self._store()).get(key)
        except nats.js.errors.KeyNotFoundError:
            return None
        except FAULTS as error:
            self._fault(stage, "get", error)
            return None
        try:
            return _decoded(found.value or b"", key, form)
        except UNDECODED as error:
            # Judged again, and written over.
            logger.warning("cache.unreadable", stage=stage, key=key, error=str(error))
            self._metrics.cache_faults.labels(stage, "decode").inc()
            return None

    async def _put(self, stage: str, key: str, result: msgspec.Struct) -> None:
        if time.monotonic() < self._quiet_until:
            return
        try:
            raw = msgspec.Raw(msgspec.json.encode(result))
            entry = msgspec.json.encode(Entry(key=key, form=type(result).__name__, result=raw))
        except UnicodeEncodeError:
            return
        if len(entry) > LARGEST:
            return
        try:
            await (await self._store()).put(key, entry)
        except FAULTS as error:
            self._fault(stage, "put", error)

    async def _store(self) -> KeyValue:
        if self._bucket is None:
            assert self._bus is not None
            js = self._bus.client.jetstream(timeout=TIMEOUT)
            self._bucket = await js.key_value(CACHE_BUCKET)
        return self._bucket

    def _fault(self, stage: str, operation: str, error: BaseException) -> None:
        """The cache does not answer: judges are asked, and it is left alone for a while."""
        self._metrics.cache_faults.labels(stage, operation).inc()
        if time.monotonic() >= self._quiet_until:
            logger.warning("cache.away", stage=stage, operation=operation, error=repr(error), seconds=PAUSE)
        self._quiet_until = time.monotonic() + PAUSE
        self._bucket = None


def _decoded(data: bytes, key: str, form: type[R]) -> R:
    """Raises `msgspec.DecodeError` for anything but what was kept under this key."""
    entry = msgspec.json.decode(data, type=Entry)
    if (entry.key, entry.form) != (key, form.__name__):
        raise msgspec.DecodeError(f"is a {entry.form} of {entry.key}")
    return msgspec.json.decode(entry.result, type=form)


def _usage(result: Any) -> Usage:
    usage: Usage = result.usage
    return usage


def _worth_keeping(result: Any) -> bool:
    """What cost nothing is had again for nothing; what is judged in part may be judged whole next time."""
    return _usage(result).calls > 0 and getattr(result, "whole", True)


def seen(response: ResponseRecorded) -> ResponseRecorded:
    """The response without what no judge looks at: whose it is, who wrote it, when, where, and why.

    What is left out is named, so that a field that is new to events is part of the key by itself.
    """
    return msgspec.structs.replace(
        response,
        id="",
        model="",
        tenant="",
        protocols=(),
        declined={},
        drawn={},
        run=LIVE,
        recorded_at=0.0,
        unanswered=None,
        partition=0,
        earlier=None,
    )


def asked_with(settings: Settings, stage: str, protocol: str, llm: ChatSettings | None = None) -> str:
    """Digest of the settings of a stage that can change a reply and are in no judge's name.

    `llm` is the judge's own, where it is one of several.
    """
    section: StageSettings = getattr(settings, stage)
    llm = llm or section.protocols.get(protocol, section).llm or section.llm
    chat = llm.model_dump(mode="json") if llm else {}
    chat = {name: value for name, value in chat.items() if name not in _WAITING_AND_PAYING}
    return digest(_text(chat), _text(settings.visual.model_dump()) if stage == "verification" else "")


def cache_key(
    event: ResponseRecorded | ClaimsExtracted,
    *,
    stage: str,
    protocol: str,
    judge: Judge,
    settings: str,
    shared: bool = False,
) -> str:
    """The key of a judgement; `settings` is what `asked_with` says. Raises `InputError` for no text."""
    response = event if isinstance(event, ResponseRecorded) else event.response
    try:
        content, claims = _content(response), ""
        if isinstance(event, ClaimsExtracted):
            # Without its response, who extracted, and what that took.
            bare = msgspec.structs.replace(event, response=_NOTHING, judge=_NOBODY, usage=Usage())
            claims = _text(bare)
    except UnicodeEncodeError as error:
        raise InputError(f"text that has no encoding: {error}") from error
    whole = digest(FORMAT, stage, protocol, _text(judge), settings, content, claims)
    scope = SHARED if shared else scope_of(response.tenant)
    return f"{scope}.{content[:_TOKEN]}.{whole}"


def scope_of(tenant: str) -> str:
    return digest("tenant", tenant)[:_TOKEN]


def keys_of(response: ResponseRecorded) -> str:
    """Matches the keys of all that is known of a response, in any scope: for erasing it."""
    return f"*.{_content(response)[:_TOKEN]}.>"


def _content(response: ResponseRecorded) -> str:
    return digest(_text(seen(response)))


def _text(value: object) -> str:
    return _ENCODER.encode(value).decode()
