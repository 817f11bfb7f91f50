"""What every receiver is: asked within bounds, again when that helps, and left alone while it is away.

Its faults end as those of a judge do. What it refuses for the event's sake is the event's fault, and goes to
the dead letters; what passes is tried again; a wrong address or key is the operator's to mend, and everything
waits until they have. A batch that fails is told event by event, so that none suffers for another.
"""

import asyncio
import base64
import binascii
import os
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

import httpx
import msgspec

from groundwatch.addresses import shown_address, shown_variable
from groundwatch.errors import (
    GroundwatchError,
    InputError,
    RateLimited,
    SettingsError,
    TransientError,
    Unavailable,
)
from groundwatch.events import AlarmRaised, OutcomeKind, ResponseScored, Usage
from groundwatch.models.asking import ASKED_FOR, CallKind, Calls, Fault, RetryPolicy, retry_after
from groundwatch.outflow.evaluations import span_of
from groundwatch.runtime.settings.outflow import ReceiverSettings
from groundwatch.runtime.telemetry.metrics import Metrics

PREFIX = "whsec_"
KEY_BYTES = range(24, 65)
"""As Standard Webhooks has it."""

MAX_BYTES = 64 * 1024


def read_secret(name: str, settings: ReceiverSettings) -> str:
    """What the receiver knows us by; empty where settings name none. Raises `SettingsError`."""
    where = f"setting 'outflow.receivers.{name}."
    if settings.secret_env:
        secret = os.environ.get(settings.secret_env, "").strip()
        if not secret:
            told = shown_variable(settings.secret_env)
            raise SettingsError(f"{where}secret_env': the variable {told} is not set")
        return secret
    if not settings.secret_file:
        return ""
    try:
        with Path(settings.secret_file).open("rb") as file:
            secret = file.read(MAX_BYTES).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is no text"
        raise SettingsError(f"{where}secret_file': {settings.secret_file}: {why}") from error
    if not secret:
        raise SettingsError(f"{where}secret_file': {settings.secret_file} is empty")
    return secret


def signing_keys(name: str, secret: str) -> list[bytes]:
    """The keys of a webhook, one a line: the first is in use, others are on their way out or in."""
    found = []
    for line in secret.splitlines():
        try:
            key = base64.b64decode(line.strip().removeprefix(PREFIX), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) not in KEY_BYTES:
            raise SettingsError(
                f"setting 'outflow.receivers.{name}': a key of a webhook is {PREFIX} and 24 to 64 random "
                f"bytes in base64: echo {PREFIX}$(openssl rand -base64 32)"
            )
        found.append(key)
    return found


def user_and_password(name: str, secret: str) -> tuple[str, str]:
    """Both keys of Langfuse, with a colon between."""
    user, colon, password = secret.partition(":")
    if not (user and colon and password) or "\n" in secret:
        raise SettingsError(
            f"setting 'outflow.receivers.{name}': the secret of Langfuse is its public and its secret key, "
            "with a colon between: pk-lf-…:sk-lf-…"
        )
    return user, password


def headers(name: str, secret: str) -> dict[str, str]:
    """Headers as OTEL_EXPORTER_OTLP_HEADERS has them: name=value, by commas; the names in lower case."""
    found = {}
    for pair in filter(None, (one.strip() for one in secret.replace("\n", ",").split(","))):
        key, equals, value = pair.partition("=")
        key, value = key.strip().lower(), value.strip()
        if not equals or not key.isascii() or not value.isascii() or not value.isprintable() or " " in key:
            raise SettingsError(
                f"setting 'outflow.receivers.{name}': the secret of a collector is a header, such as "
                "authorization=Bearer …; several by commas"
            )
        found[key] = value
    return found


E = TypeVar("E", ResponseScored, AlarmRaised)

MAX_REPLY = 64 * 1024
"""Bytes of a reply that are read: all that is wanted of it is why."""

DETAIL = 300
RESULTS = ("sent", "refused", "other_tenant", "declined", "no_span")
AWAY = (502, 503, 504)
PASSING = (408, 425)
OPERATORS = (401, 402, 403, 404, 405, 407, 410, 421, 426, 428, 431, 451, 501, 511)
"""Statuses that no event can have caused: the address or the key is wrong."""


class Refusal(msgspec.Struct, frozen=True):
    """The receiver will not have this, however often it is told."""

    why: str


class Receiver(ABC, Generic[E]):
    """One receiver; for any number of tasks of one loop.

    `most` is how many events one request may tell. `spans_only`: of outcomes, only those of responses that
    came as a span have a place there.
    """

    most = 1
    spans_only = False

    def __init__(self, name: str, settings: ReceiverSettings, metrics: Metrics) -> None:
        self.name = name
        self.settings = settings
        self._whom = f"receiver {name} at {shown_address(settings.url)}"
        self._metrics = metrics
        slots = asyncio.Semaphore(settings.concurrency)
        self._calls = Calls(
            name, settings, slots=slots, on_call=self._on_call, attribute="groundwatch.receiver"
        )
        for result in RESULTS:
            metrics.receiver_events.labels(name, result)
        metrics.receiver_away_seconds.labels(name).set(0)

    async def deliver(self, events: Sequence[E]) -> list[GroundwatchError | None]:
        """Tell it of these. Why it was not told of one: an error in its place."""
        told = []
        for at, event in enumerate(events):
            if why := self._not_wanted(event):
                self._count(why, 1)
            else:
                told.append(at)
        chunks = [told[start : start + self.most] for start in range(0, len(told), self.most)]
        found = await asyncio.gather(*(self._deliver([events[at] for at in chunk]) for chunk in chunks))
        errors: list[GroundwatchError | None] = [None] * len(events)
        for chunk, results in zip(chunks, found, strict=True):
            for at, result in zip(chunk, results, strict=True):
                errors[at] = result
        return errors

    async def close(self) -> None:
        """Let go of the connection."""

    def _not_wanted(self, event: ResponseScored | AlarmRaised) -> str:
        """Why it is not told of this one; empty when it is."""
        if self.settings.tenants and event.tenant not in self.settings.tenants:
            return "other_tenant"
        if isinstance(event, AlarmRaised):
            return ""
        if event.outcome is OutcomeKind.DECLINED and not self.settings.declined:
            return "declined"
        return "no_span" if self.spans_only and not span_of(event.tags)[1] else ""

    async def _deliver(self, events: list[E]) -> list[GroundwatchError | None]:
        if len(events) == 1:
            ASKED_FOR.set(events[0].key)
        answer: int | Refusal
        try:
            answer, _ = await self._calls.persist(partial(self._told, events), RetryPolicy(self.settings))
        except Unavailable as error:
            return [error] * len(events)
        except TransientError as error:
            if len(events) == 1:
                return [error]
            # It may be due to one of them.
            answer = Refusal(str(error))
        if isinstance(answer, int):
            self._count("sent", answer)
            self._count("refused", len(events) - answer)
            return [None] * len(events)
        if len(events) > 1:
            return [error for event in events for error in await self._deliver([event])]
        self._count("refused", 1)
        return [InputError(f"{self._whom} refuses it: {answer.why}")]

    async def _told(self, events: list[E]) -> int | Refusal | Fault:
        """One request, within its time."""
        began = time.perf_counter()
        found = await self._tell(events)
        if not isinstance(found, Fault):
            result = CallKind.REFUSED if isinstance(found, Refusal) else CallKind.OK
            self._on_call(result.value, time.perf_counter() - began, Usage())
        return found

    @abstractmethod
    async def _tell(self, events: list[E]) -> int | Refusal | Fault:
        """Make one request; how many of these it took.

        A secret that cannot be read is a fault that waits for the operator.
        """

    def _on_call(self, result: str, seconds: float, usage: Usage) -> None:
        self._metrics.receiver_seconds.labels(self.name, result).observe(seconds)

    def _count(self, result: str, number: int) -> None:
        self._metrics.receiver_events.labels(self.name, result).inc(number)

    def _misconfigured(self, why: str) -> Fault:
        error = TransientError(f"check the settings: {why}")
        return Fault(kind=CallKind.MISCONFIGURED, error=error, away=True)

    def _late(self) -> Fault:
        error = TransientError(f"{self._whom} did not answer within {self.settings.timeout:g} s")
        return Fault(kind=CallKind.TIMEOUT, error=error, passes=True)

    def _unreachable(self, why: str, *, away: bool) -> Fault:
        error = TransientError(f"{self._whom} cannot be reached ({why})")
        return Fault(kind=CallKind.UNREACHABLE, error=error, passes=True, away=away)

    def _rate_limited(self, message: str, wait: float | None) -> Fault:
        error = RateLimited(message, retry_after=wait)
        return Fault(kind=CallKind.RATE_LIMITED, error=error, passes=True, retry_after=wait)


class HttpReceiver(Receiver[E]):
    """One that is told by POST. Redirects are not followed: they could lead anywhere."""

    def __init__(self, name: str, settings: ReceiverSettings, metrics: Metrics) -> None:
        super().__init__(name, settings, metrics)
        self._client = httpx.AsyncClient(
            timeout=settings.timeout, follow_redirects=False, verify=tls(name, settings) or True
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def _post(
        self, url: str, body: bytes, headers: Mapping[str, str], auth: tuple[str, str] | None = None
    ) -> bytes | Refusal | Fault:
        """The head of the reply, or what became of the request instead."""
        sent = {"accept-encoding": "identity", "user-agent": "groundwatch", **headers}
        reply = bytearray()
        try:
            async with (
                asyncio.timeout(self.settings.timeout),
                self._client.stream("POST", url, content=body, headers=sent, auth=auth) as response,
            ):
                async for chunk in response.aiter_raw():
                    reply += chunk
                    if len(reply) >= MAX_REPLY:
                        break
        except (TimeoutError, httpx.TimeoutException) as error:
            if isinstance(error, httpx.ConnectTimeout):
                return self._unreachable("no connection in time", away=True)
            return self._late()
        except httpx.HTTPError as error:
            away = isinstance(error, httpx.ConnectError)
            return self._unreachable(f"{type(error).__name__}: {error}"[:DETAIL], away=away)
        except httpx.InvalidURL as error:
            return self._misconfigured(f"{self._whom}: {error}")
        return self._read(response, bytes(reply[:MAX_REPLY]))

    def _read(self, response: httpx.Response, reply: bytes) -> bytes | Refusal | Fault:
        status = response.status_code
        if 200 <= status < 300:
            return reply
        said = " ".join(reply.decode("utf-8", "replace").split())[:DETAIL]
        message = f"{self._whom} answered {status}: {said}" if said else f"{self._whom} answered {status}"
        wait = retry_after(dict(response.headers))
        if status == 429:
            return self._rate_limited(message, wait)
        if 300 <= status < 400:
            return self._misconfigured(f"{message} (redirects are not followed: give the address itself)")
        if status in OPERATORS:
            return self._misconfigured(message)
        if status in PASSING or status >= 500:
            error = TransientError(message)
            kind = CallKind.SERVER_ERROR
            return Fault(kind=kind, error=error, passes=True, away=status in AWAY, retry_after=wait)
        return Refusal(f"{status}: {said}" if said else str(status))


def tls(name: str, settings: ReceiverSettings) -> ssl.SSLContext | None:
    """With the certificates that settings name; None: the system's. Raises `SettingsError`."""
    if not settings.tls_ca:
        return None
    try:
        return ssl.create_default_context(cafile=settings.tls_ca)
    except (OSError, ssl.SSLError) as error:
        why = error.strerror or str(error)
        raise SettingsError(f"setting 'outflow.receivers.{name}.tls_ca': {settings.tls_ca}: {why}") from error
