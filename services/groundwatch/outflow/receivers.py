"""What is told of an outcome, and who is told: a class for each kind of receiver.

Each is asked within bounds, again when that helps, and left alone while it is away. Its faults end as those
of a judge do. What it refuses for the event's sake is the event's fault, and goes to the dead letters; what
passes is tried again; a wrong address or key is the operator's to mend, and everything waits until they have.
A batch that fails is told event by event, so that none suffers for another.
"""

import asyncio
import base64
import binascii
import gzip
import hashlib
import hmac
import html
import math
import re
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import SEVERITY_NUMBER_INFO, LogRecord

import groundwatch
from groundwatch.addresses import below, shown_address
from groundwatch.conversations.conversation import RESPONSE_TAG, SPAN_TAG, TRACE_TAG
from groundwatch.errors import (
    GroundwatchError,
    InputError,
    RateLimited,
    SettingsError,
    TransientError,
    Unavailable,
)
from groundwatch.events import AlarmRaised, Decision, OutcomeKind, ResponseScored, Usage
from groundwatch.keys import digest
from groundwatch.models.asking import ASKED_FOR, CallKind, Calls, Fault, RetryPolicy, retry_after
from groundwatch.reporting.alarms import Raised, tell
from groundwatch.runtime.security.secrets import read_secret
from groundwatch.runtime.settings.outflow import ReceiverSettings
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics

FAITHFUL, UNFAITHFUL = "faithful", "unfaithful"
"""Labels of what has a score and claims: whether one of them does not hold."""

MAX_EXPLANATION = 1_000

_TRACE = re.compile(r"(?!0{32})[0-9a-f]{32}\Z")
_ENVIRONMENT = re.compile(r"(?!langfuse)[a-z0-9_-]{1,40}\Z")
"""As Langfuse takes it."""
_SPAN = re.compile(r"(?!0{16})[0-9a-f]{16}\Z")


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """What a protocol made of one response.

    `response` is the id that the model's server gave the answer, or the one it is recorded under. `id` stays
    the same when it is told again, also when the outcome replaces one that stood for a dead letter. `error`
    says why there is no score, as a bounded slug. `trace_id` and `span_id` are those of the judged span, in
    hex; empty where the response came in another way.
    """

    id: str
    name: str
    response: str
    model: str
    tenant: str
    at: float
    score: float | None = None
    label: str = ""
    explanation: str = ""
    error: str = ""
    trace_id: str = ""
    span_id: str = ""
    environment: str = ""
    details: dict[str, str | float] = {}


def evaluation_of(outcome: ResponseScored, *, explanation: bool = True) -> Evaluation:
    """With `explanation` the reasons go along, which quote the answer."""
    score = outcome.score if outcome.score is not None and math.isfinite(outcome.score) else None
    scored = outcome.outcome is OutcomeKind.SCORED
    trace_id, span_id = span_of(outcome.tags)
    environment = outcome.tags.get("environment", "")
    return Evaluation(
        id=digest("evaluation", outcome.run, outcome.protocol, outcome.key)[:32],
        name=outcome.protocol,
        response=outcome.tags.get(RESPONSE_TAG) or outcome.id,
        model=outcome.model,
        tenant=outcome.tenant,
        at=outcome.scored_at or outcome.recorded_at,
        score=score,
        label=_label(outcome) if scored else outcome.outcome.value,
        explanation=_explanation(outcome)[:MAX_EXPLANATION] if explanation else "",
        error="" if scored else outcome.reason or outcome.outcome.value,
        trace_id=trace_id,
        span_id=span_id,
        environment=environment if _ENVIRONMENT.match(environment) else "",
        details=_details(outcome),
    )


def span_of(tags: Mapping[str, str]) -> tuple[str, str]:
    """Trace and span id; both empty unless they are ids, since anybody may write tags."""
    trace_id, span_id = tags.get(TRACE_TAG, "").lower(), tags.get(SPAN_TAG, "").lower()
    return (trace_id, span_id) if _TRACE.match(trace_id) and _SPAN.match(span_id) else ("", "")


def _label(outcome: ResponseScored) -> str:
    decisions = {claim.decision for claim in outcome.claims}
    if Decision.REFUTED in decisions:
        return UNFAITHFUL
    return FAITHFUL if Decision.SUPPORTED in decisions else ""


def _explanation(outcome: ResponseScored) -> str:
    if outcome.outcome is not OutcomeKind.SCORED:
        return f"{outcome.reason}: {outcome.detail}" if outcome.detail else outcome.reason
    if not outcome.claims:
        return ""
    counts = dict.fromkeys(Decision, 0)
    for claim in outcome.claims:
        counts[claim.decision] += 1
    decided = counts[Decision.SUPPORTED] + counts[Decision.REFUTED]
    told = f"{counts[Decision.SUPPORTED]} of {decided} decided claims hold"
    if undecided := counts[Decision.UNDECIDED]:
        told += f", {undecided} undecided"
    refuted = [claim.text for claim in outcome.claims if claim.decision is Decision.REFUTED]
    return f"{told}. Not in the image: {'; '.join(refuted)}" if refuted else f"{told}."


def _details(outcome: ResponseScored) -> dict[str, str | float]:
    """What else a receiver may keep beside the score; of a judge its name and fingerprint."""
    found: dict[str, str | float] = {
        "tenant": outcome.tenant,
        "model": outcome.model,
        "response": outcome.id,
        "outcome": outcome.outcome.value,
    }
    if outcome.eligible:
        found["coverage"] = outcome.decided / outcome.eligible
    for stage, judge in sorted(outcome.judges.items()):
        found[f"judge.{stage}"] = " ".join(filter(None, (judge.engine, judge.model, judge.fingerprint)))
    return found


PREFIX = "whsec_"
KEY_BYTES = range(24, 65)
"""As Standard Webhooks has it."""


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


class Request(NamedTuple):
    """What is posted, at a path below the receiver's address."""

    body: bytes
    headers: Mapping[str, str]
    path: str = ""
    auth: tuple[str, str] | None = None


class Receiver(ABC, Generic[E]):
    """One receiver that is told by POST; for any number of tasks of one loop. Redirects are not followed:
    they could lead anywhere.

    `most` is how many events one request may tell. `spans_only`: of outcomes, only those of responses that
    came as a span have a place there.
    """

    most = 1
    spans_only = False

    def __init__(self, name: str, settings: ReceiverSettings, metrics: Metrics) -> None:
        self.name = name
        self.settings = settings
        self._whom = f"receiver {name} at {self._shown(settings.url)}"
        self._metrics = metrics
        slots = asyncio.Semaphore(settings.concurrency)
        self._calls = Calls(
            name, settings, slots=slots, on_call=self._on_call, attribute="groundwatch.receiver"
        )
        for result in RESULTS:
            metrics.receiver_events.labels(name, result)
        metrics.receiver_away_seconds.labels(name).set(0)
        self._client = httpx.AsyncClient(
            timeout=settings.timeout, follow_redirects=False, verify=tls(name, settings) or True
        )

    def _shown(self, url: str) -> str:
        """The address as errors have it."""
        return shown_address(url)

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
        await self._client.aclose()

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
            answer, _ = await self._calls.persist(partial(self._tell, events), RetryPolicy(self.settings))
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

    async def _tell(self, events: list[E]) -> int | Refusal | Fault:
        """Make one request, within its time; how many of these it took."""
        settings, began = self.settings, time.perf_counter()
        setting = f"outflow.receivers.{self.name}.secret"
        try:
            secret = read_secret(setting, file=settings.secret_file, env=settings.secret_env)
            request = self._request(events, secret)
        except SettingsError as error:
            # It waits for the operator.
            return self._misconfigured(str(error))
        url = below(settings.url, request.path) if request.path else settings.url
        reply = await self._post(url, request)
        if isinstance(reply, Fault):
            return reply
        taken = self._taken(reply, len(events)) if isinstance(reply, bytes) else reply
        result = CallKind.REFUSED if isinstance(taken, Refusal) else CallKind.OK
        self._on_call(result.value, time.perf_counter() - began, Usage())
        return taken

    @abstractmethod
    def _request(self, events: list[E], secret: str) -> Request:
        """Raises `SettingsError` for a secret that is none of its kind."""

    def _taken(self, reply: bytes, number: int) -> int | Refusal:
        """How many of so many events were taken, by the head of the reply."""
        return number

    def _on_call(self, result: str, seconds: float, usage: Usage) -> None:
        self._metrics.receiver_seconds.labels(self.name, result).observe(seconds)

    def _count(self, result: str, number: int) -> None:
        self._metrics.receiver_events.labels(self.name, result).inc(number)

    def _misconfigured(self, why: str) -> Fault:
        error = TransientError(f"check the settings: {why}")
        return Fault(kind=CallKind.MISCONFIGURED, error=error, away=True)

    def _unreachable(self, why: str, *, away: bool) -> Fault:
        error = TransientError(f"{self._whom} cannot be reached ({why})")
        return Fault(kind=CallKind.UNREACHABLE, error=error, passes=True, away=away)

    async def _post(self, url: str, request: Request) -> bytes | Refusal | Fault:
        """The head of the reply, or what became of the request instead."""
        sent = {"accept-encoding": "identity", "user-agent": "groundwatch", **request.headers}
        reply = bytearray()
        try:
            async with (
                asyncio.timeout(self.settings.timeout),
                self._client.stream(
                    "POST", url, content=request.body, headers=sent, auth=request.auth
                ) as response,
            ):
                async for chunk in response.aiter_raw():
                    reply += chunk
                    if len(reply) >= MAX_REPLY:
                        break
        except (TimeoutError, httpx.TimeoutException) as error:
            if isinstance(error, httpx.ConnectTimeout):
                return self._unreachable("no connection in time", away=True)
            late = TransientError(f"{self._whom} did not answer within {self.settings.timeout:g} s")
            return Fault(kind=CallKind.TIMEOUT, error=late, passes=True)
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
            limited = RateLimited(message, retry_after=wait)
            return Fault(kind=CallKind.RATE_LIMITED, error=limited, passes=True, retry_after=wait)
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


EVENT = "gen_ai.evaluation.result"


def request_of(outcomes: list[ResponseScored], settings: ReceiverSettings) -> ExportLogsServiceRequest:
    """The outcomes as one request."""
    request = ExportLogsServiceRequest()
    logs = request.resource_logs.add()
    logs.resource.attributes.extend(
        _attributes({"service.name": "outflow", "service.namespace": "groundwatch"})
    )
    scope = logs.scope_logs.add()
    scope.scope.name, scope.scope.version = "groundwatch", groundwatch.__version__
    scope.log_records.extend(
        record_of(evaluation_of(one, explanation=settings.explanation)) for one in outcomes
    )
    return request


def record_of(evaluation: Evaluation) -> LogRecord:
    attributes: dict[str, str | float | None] = {
        "gen_ai.evaluation.name": evaluation.name,
        "gen_ai.evaluation.score.value": evaluation.score,
        "gen_ai.evaluation.score.label": evaluation.label or None,
        "gen_ai.evaluation.explanation": evaluation.explanation or None,
        "gen_ai.response.id": evaluation.response,
        "gen_ai.response.model": evaluation.model,
        "error.type": evaluation.error or None,
        "groundwatch.evaluation.id": evaluation.id,
        **{f"groundwatch.{name}": value for name, value in evaluation.details.items()},
    }
    told = evaluation.error if evaluation.score is None else f"{evaluation.score:g}"
    nanoseconds = max(0, int(evaluation.at * 1e9))
    return LogRecord(
        time_unix_nano=nanoseconds,
        observed_time_unix_nano=nanoseconds,
        severity_number=SEVERITY_NUMBER_INFO,
        severity_text="INFO",
        event_name=EVENT,
        body=AnyValue(string_value=f"{evaluation.name}: {told}"),
        attributes=_attributes({name: value for name, value in attributes.items() if value is not None}),
        trace_id=bytes.fromhex(evaluation.trace_id),
        span_id=bytes.fromhex(evaluation.span_id),
        flags=1 if evaluation.span_id else 0,
    )


def _attributes(values: Mapping[str, str | float]) -> list[KeyValue]:
    return [
        KeyValue(
            key=key,
            value=AnyValue(string_value=value) if isinstance(value, str) else AnyValue(double_value=value),
        )
        for key, value in values.items()
    ]


class OtlpReceiver(Receiver[ResponseScored]):
    """A collector: each outcome is an event `gen_ai.evaluation.result`, an OTLP log record, by HTTP with
    protobuf.

    Its trace and span id are those of the judged span, as the GenAI conventions have it; where the response
    came in another way, `gen_ai.response.id` tells which it is. Its address is the collector's, with or
    without /v1/logs.
    """

    most = 64

    def _request(self, events: list[ResponseScored], secret: str) -> Request:
        given = headers(self.name, secret)
        sent = {**given, "content-type": "application/x-protobuf", "content-encoding": "gzip"}
        body = gzip.compress(request_of(events, self.settings).SerializeToString(), 1)
        return Request(body, sent, "/v1/logs")

    def _taken(self, reply: bytes, number: int) -> int | Refusal:
        """Nothing may be sent again that a collector took in part: what it took would be there twice."""
        try:
            partial = ExportLogsServiceResponse.FromString(reply).partial_success
        except DecodeError:
            # It said 200. Some answer in JSON, or with nothing at all.
            return number
        rejected = min(max(0, partial.rejected_log_records), number)
        why = " ".join(partial.error_message.split())[:DETAIL]
        if rejected == number:
            return Refusal(why or "rejected")
        if rejected:
            logger.error("receiver.refused_some", receiver=self.name, events=rejected, of=number, why=why)
        elif why:
            logger.warning("receiver.warns", receiver=self.name, why=why)
        return number - rejected


def score_of(evaluation: Evaluation) -> dict[str, object]:
    """The body of a request."""
    found: dict[str, object] = {
        "id": evaluation.id,
        "traceId": evaluation.trace_id,
        "observationId": evaluation.span_id,
        "metadata": evaluation.details,
    }
    if evaluation.environment:
        found["environment"] = evaluation.environment
    if evaluation.explanation:
        found["comment"] = evaluation.explanation
    if evaluation.score is None:
        what = {"name": f"{evaluation.name}.unscored", "value": evaluation.error, "dataType": "CATEGORICAL"}
        # Another id: a score that follows on it is of another type.
        return {**found, **what, "id": f"{evaluation.id}-unscored"}
    return {**found, "name": evaluation.name, "value": evaluation.score, "dataType": "NUMERIC"}


class LangfuseReceiver(Receiver[ResponseScored]):
    """Each outcome of a response that came as a span is a score of that span.

    The score's id is the evaluation's, so one that is told again replaces itself. An outcome without a score
    is one of the name `<protocol>.unscored`, a category: a name has one data type there. Its secret are both
    keys, with a colon between.
    """

    spans_only = True

    def _request(self, events: list[ResponseScored], secret: str) -> Request:
        (event,) = events
        keys = user_and_password(self.name, secret)
        body = msgspec.json.encode(score_of(evaluation_of(event, explanation=self.settings.explanation)))
        return Request(body, {"content-type": "application/json"}, "/api/public/scores", keys)


def annotation_of(evaluation: Evaluation) -> dict[str, object]:
    """One annotation of a request."""
    result = {
        "score": evaluation.score,
        "label": evaluation.label or evaluation.error,
        "explanation": evaluation.explanation,
    }
    return {
        "span_id": evaluation.span_id,
        "name": evaluation.name,
        "annotator_kind": "LLM",
        "identifier": evaluation.id,
        "result": {name: value for name, value in result.items() if value not in (None, "")},
        "metadata": {**evaluation.details, **({"error.type": evaluation.error} if evaluation.error else {})},
    }


class PhoenixReceiver(Receiver[ResponseScored]):
    """Each outcome of a response that came as a span is an annotation of that span.

    Its `identifier` is the evaluation's id, so one that is told again replaces itself. Its secret, where it
    wants one, is an API key.
    """

    most = 64
    spans_only = True

    def _request(self, events: list[ResponseScored], secret: str) -> Request:
        told = [annotation_of(evaluation_of(one, explanation=self.settings.explanation)) for one in events]
        key = {"authorization": f"Bearer {secret}"} if secret else {}
        body = msgspec.json.encode({"data": told})
        return Request(body, {"content-type": "application/json", **key}, "/v1/span_annotations")


SOURCE = "/groundwatch/alarms"


def alarm_id(alarm: AlarmRaised) -> str:
    """The same whenever it is told, and when it is told that it is over."""
    parts = (alarm.run, alarm.protocol, alarm.key, str(alarm.raised_response), alarm.response_id)
    return digest("alarm", *parts)[:32]


def cloud_event(alarm: AlarmRaised) -> dict[str, object]:
    """The alarm, or its end, as a CloudEvent; its id is the same whenever it is told."""
    name, at, kind = alarm_id(alarm), alarm.raised_at, "raised"
    if alarm.recovered_at is not None:
        name, at, kind = digest("alarm over", name)[:32], alarm.recovered_at, "recovered"
    return {
        "specversion": "1.0",
        "id": name,
        "source": SOURCE,
        "type": f"groundwatch.alarm.{kind}",
        "subject": f"{alarm.protocol}/{alarm.model}/{alarm.category}",
        "time": datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z"),
        "datacontenttype": "application/json",
        "data": alarm,
    }


def signature(keys: list[bytes], name: str, at: int, body: bytes) -> str:
    """The header `webhook-signature`: one for each key, so that a key can be changed."""
    signed = f"{name}.{at}.".encode() + body
    made = (base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode() for key in keys)
    return " ".join(f"v1,{one}" for one in made)


class WebhookReceiver(Receiver[AlarmRaised]):
    """Each alarm, and each end of one, is a CloudEvent 1.0 in structured mode, signed as Standard Webhooks
    has it: its secret are keys with `whsec_`, one a line."""

    def _request(self, events: list[AlarmRaised], secret: str) -> Request:
        keys = signing_keys(self.name, secret)
        (alarm,) = events
        event = cloud_event(alarm)
        body, name, at = msgspec.json.encode(event), str(event["id"]), int(time.time())
        sent = {
            "content-type": "application/cloudevents+json; charset=utf-8",
            "webhook-id": name,
            "webhook-timestamp": str(at),
            "webhook-signature": signature(keys, name, at, body),
        }
        return Request(body, sent)


def _sentence(alarm: AlarmRaised) -> str:
    """On one line, as pages and the log tell it, with whose it is."""
    return f"{tell(Raised(alarm=alarm))} (tenant {alarm.tenant})"


class SlackReceiver(Receiver[AlarmRaised]):
    """Each alarm, and each end of one, is a message of a channel; the address of its incoming webhook is all
    that it wants, and a secret: who knows it can write there."""

    def _shown(self, url: str) -> str:
        return urlsplit(url).netloc.rpartition("@")[2]

    def _request(self, events: list[AlarmRaised], secret: str) -> Request:
        (alarm,) = events
        # Names are a caller's, and these three begin links and mentions.
        text = html.escape(_sentence(alarm), quote=False)
        sign = "warning" if alarm.recovered_at is None else "white_check_mark"
        return Request(
            msgspec.json.encode({"text": f":{sign}: {text}"}), {"content-type": "application/json"}
        )


class PagerDutyReceiver(Receiver[AlarmRaised]):
    """Each alarm triggers an incident by the Events API 2, and its end resolves that; its secret is the
    integration's key."""

    def _request(self, events: list[AlarmRaised], secret: str) -> Request:
        (alarm,) = events
        event = cloud_event(alarm)
        payload = {
            "summary": _sentence(alarm)[:1_024],
            "source": alarm.model,
            "severity": "warning",
            "timestamp": event["time"],
            "component": alarm.protocol,
            "class": alarm.category,
            "custom_details": alarm,
        }
        action = "trigger" if alarm.recovered_at is None else "resolve"
        told = {"routing_key": secret.strip(), "event_action": action, "dedup_key": alarm_id(alarm)}
        return Request(msgspec.json.encode(told | {"payload": payload}), {"content-type": "application/json"})


KINDS: dict[str, type[Receiver[Any]]] = {
    "otlp-http": OtlpReceiver,
    "langfuse": LangfuseReceiver,
    "phoenix": PhoenixReceiver,
    "webhook": WebhookReceiver,
    "slack": SlackReceiver,
    "pagerduty": PagerDutyReceiver,
}


def make_receiver(name: str, settings: ReceiverSettings, metrics: Metrics) -> Receiver[Any]:
    """The receiver of this name. Raises `SettingsError`."""
    return KINDS[settings.kind](name, settings, metrics)
