"""Applications whose calls come as a span and as log records, and serving systems that log requests and
responses: apart, in any order, late, twice, or in part."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from itertools import chain

import httpx
import msgspec
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from tests.faults.campaign.traffic import ATTEMPT_SECONDS, BROKEN, PAUSE, Gateway
from tests.faults.campaign.truth import Truth
from tests.gateway.otlp.made import PROTOBUF, logs, record, span, traces
from tests.gateway.serving.test_kserve import KIND, answered, asked

from groundwatch.events import OutcomeKind, ResponseRecorded, ResponseScored
from groundwatch.gateway.receivers.joining import ENDED, STREAM
from groundwatch.keys import response_key
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import read_stream
from groundwatch.topology import RESPONSES

TENANT = "default"
JOIN_WAIT, JOIN_TIMEOUT = 1.0, 40.0
SETTINGS = {
    "GROUNDWATCH_GATEWAY__LOGGED_CALLS__JOIN_WAIT": str(JOIN_WAIT),
    "GROUNDWATCH_GATEWAY__LOGGED_CALLS__JOIN_TIMEOUT": str(JOIN_TIMEOUT),
    "GROUNDWATCH_GATEWAY__CLOUD_EVENTS__WAIT": str(JOIN_TIMEOUT),
}
MARGIN_SECONDS = 5.0
END_SECONDS = 150.0
DELAYS = (0.0, 0.0, 0.2, 3.0, 8.0)
EVENTS_SHARE, APART_SHARE, NEVER_SHARE, AGAIN_SHARE = 0.4, 0.4, 0.15, 0.2

_RECORDED = msgspec.json.Decoder(ResponseRecorded)


class Call(msgspec.Struct, kw_only=True):
    """A call, and the parts of it that were acknowledged; times are of the monotonic clock."""

    number: int
    parts: frozenset[str]
    acknowledged: set[str] = set()
    first: float = 0.0
    last: float = 0.0

    @property
    def name(self) -> str:
        return f"chatcmpl-halves-{self.number:06}"

    @property
    def answer(self) -> str:
        return f"a dog and {self.number} cups"

    @property
    def trace(self) -> bytes:
        return self.number.to_bytes(16, "big")

    @property
    def key(self) -> str:
        return response_key(TENANT, self.name)

    @property
    def key_without_span(self) -> str:
        return response_key(TENANT, f"{self.trace.hex()}:{'02' * 8}")

    def request(self, parts: Sequence[str]) -> tuple[str, dict[str, str], bytes]:
        """The path, the headers and the body that bring these parts."""
        if parts[0] in ("request", "response"):
            body = asked() if parts[0] == "request" else answered(self.answer)
            headers = {"ce-specversion": "1.0", "ce-id": self.name, "ce-type": KIND + parts[0]}
            return "/v1/cloudevents", headers, msgspec.json.encode(body)
        ids = {"trace_id": self.trace}
        if "span" in parts:
            about = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "heron-7b"}
            request = traces(span(about | {"gen_ai.response.id": self.name}, **ids))
            return "/v1/traces", PROTOBUF, request.SerializeToString()
        chosen = {"index": 0, "message": {"role": "assistant", "content": self.answer}}
        records = {
            "asked": record("gen_ai.user.message", {"content": "What is there?"}, **ids),
            "answered": record("gen_ai.choice", chosen, **ids),
        }
        return "/v1/logs", PROTOBUF, logs(*(records[part] for part in parts)).SerializeToString()


class LoggedHalves:
    """Sends such calls without end, and knows what must have become of each."""

    def __init__(self, truth: Truth, gateways: Sequence[Gateway], *, seed: int, rate: float) -> None:
        self._truth = truth
        self._gateways = gateways
        self._random = random.Random(f"halves {seed}")
        self._rate = rate
        self._tasks: set[asyncio.Task[None]] = set()
        self._http = httpx.AsyncClient(timeout=httpx.Timeout(ATTEMPT_SECONDS, connect=2.0), trust_env=False)
        self.calls: list[Call] = []
        self.stopped = False
        self.answers: Counter[str] = Counter()

    async def run(self) -> None:
        """Begin with new calls at a steady rate, until stopped."""
        while not self.stopped:
            chance = self._random
            if chance.random() < EVENTS_SHARE:
                groups = [["request"], ["response"]]
            elif chance.random() < APART_SHARE:
                groups = [["span"], ["asked"], ["answered"]]
            else:
                groups = [["span"], ["asked", "answered"]]
            call = Call(number=len(self.calls) + 1, parts=frozenset(chain.from_iterable(groups)))
            chance.shuffle(groups)
            if chance.random() < NEVER_SHARE:
                groups.pop()
            self.calls.append(call)
            task = asyncio.create_task(self._send(call, groups))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(chance.uniform(0.5, 1.5) / self._rate)

    async def finish(self, seconds: float) -> int:
        """Wait for those on their way, then stop them; how many were still trying."""
        self.stopped = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        left = list(self._tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._http.aclose()
        return len(left)

    async def _send(self, call: Call, groups: Sequence[Sequence[str]]) -> None:
        for parts in groups:
            await asyncio.sleep(self._random.choice(DELAYS))
            again = self._random.random() < AGAIN_SHARE
            for _ in range(1 + again):
                await self._deliver(call, parts)

    async def _deliver(self, call: Call, parts: Sequence[str]) -> None:
        while True:
            if await self._attempt(call, parts):
                return
            await asyncio.sleep(PAUSE)

    async def _attempt(self, call: Call, parts: Sequence[str]) -> bool:
        """Whether these were acknowledged."""
        path, headers, body = call.request(parts)
        call.first = call.first or time.monotonic()
        try:
            url = f"{self._random.choice(self._gateways).url}{path}"
            reply = await self._http.post(url, content=body, headers=headers)
        except BROKEN as error:
            self.answers[type(error).__name__] += 1
            return False
        self.answers[str(reply.status_code)] += 1
        if reply.status_code == 200:
            if rejected := _rejected(path, reply.content):
                self._truth.violation("odd answers", f"{path} of {call.name}: {rejected}")
            call.acknowledged.update(parts)
            call.last = time.monotonic()
            return True
        if reply.status_code != 503 or "retry-after" not in reply.headers:
            kind = "answers of 500" if reply.status_code == 500 else "odd answers"
            self._truth.violation(kind, f"{path}: {reply.status_code} {reply.content[:200]!r}")
        return False

    async def ended(self, bus: Bus) -> None:
        """Wait until nothing waits to be joined."""
        deadline = time.monotonic() + END_SECONDS
        while waiting := await waiting_halves(bus):
            if time.monotonic() > deadline:
                self._truth.violation("stuck", f"{waiting} halves wait for others")
                return
            await asyncio.sleep(0.5)

    async def compare(self, bus: Bus, outcomes: dict[str, list[tuple[int, ResponseScored]]]) -> None:
        """Every call against what must have become of it."""
        recorded: dict[str, ResponseRecorded] = {}
        async for message in bus.history.read(RESPONSES):
            event = _RECORDED.decode(message.data)
            if event.tenant == TENANT:
                recorded[event.key] = event
        for call in self.calls:
            if wrong := _wrong(call, recorded, outcomes):
                self._truth.violation("lost", f"{call.name}, of which {call.acknowledged} came: {wrong}")

    @property
    def keys(self) -> set[str]:
        """What may be recorded of them."""
        return {key for call in self.calls for key in (call.key, call.key_without_span)}


def _rejected(path: str, content: bytes) -> str:
    if path == "/v1/cloudevents":
        return ""
    form = ExportTraceServiceResponse if path == "/v1/traces" else ExportLogsServiceResponse
    return str(form.FromString(content).partial_success.error_message)


def _wrong(
    call: Call,
    recorded: dict[str, ResponseRecorded],
    outcomes: dict[str, list[tuple[int, ResponseScored]]],
) -> str:
    whole = call.acknowledged == call.parts
    in_time = call.last - call.first < JOIN_TIMEOUT - MARGIN_SECONDS
    if not call.acknowledged:
        return ""
    if whole and in_time:
        event = recorded.get(call.key)
        if event is None or event.answer != call.answer:
            return f"recorded is {event}"
        if outcomes[call.key][0][1].outcome is OutcomeKind.DECLINED:
            return f"declined as {event.declined}"
        return "is told as missing a half" if call.key_without_span in recorded else ""
    return "" if call.key in recorded or call.key_without_span in recorded else "is in no ledger"


async def waiting_halves(bus: Bus) -> int:
    """How many halves wait to be joined."""
    reading = read_stream(bus.js, STREAM, headers_only=True)
    return sum([not read.subject.endswith(f".{ENDED}") async for read in reading])
