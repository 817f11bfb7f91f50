"""Clients that send without end: over HTTP, alone and many at once, and over gRPC; again where unsure."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import grpc
import httpx
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from tests.faults.campaign.truth import BRIEF, Sent, Truth

from groundwatch.gateway.grpc.generated import monitor_pb2 as pb
from groundwatch.gateway.grpc.generated.monitor_pb2_grpc import MonitorServiceStub
from groundwatch.runtime.stores.tombstones import CURRENT_SECONDS

Ended = Literal["recorded", "duplicate", "erased", "conflict", "refused", "uncertain", "odd"]

ATTEMPT_SECONDS = 45.0
PAUSE = 0.3
BULK = 5
GIVE_UP_SHARE = 0.15
CORRECT_SHARE = 0.15
REPEAT_SHARE = 0.05
NOT_RECORDED = ("unavailable", "backlog")

BROKEN = (httpx.TransportError, AttributeError)
"""What httpx raises of a connection that broke; the second comes of one that broke while it was made."""


class Gateway:
    """Where one gateway listens."""

    def __init__(self, port: int, grpc_port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.grpc_port = grpc_port


class Clients:
    """Many clients, each with one response, or a few, on its way."""

    def __init__(
        self, truth: Truth, gateways: Sequence[Gateway], *, seed: int, rate: float, began: float
    ) -> None:
        self._truth = truth
        self._gateways = list(gateways)
        self._random = random.Random(f"traffic {seed}")
        self._rate = rate
        self._began = began
        self._http = httpx.AsyncClient(
            timeout=httpx.Timeout(ATTEMPT_SECONDS, connect=2.0),
            limits=httpx.Limits(max_connections=400),
            trust_env=False,
        )
        self._channels: dict[int, grpc.aio.Channel] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.stopped = False
        self.answers: Counter[str] = Counter()

    async def run(self) -> None:
        """Begin with new responses at a steady rate, until stopped."""
        while not self.stopped:
            many = self._random.random() < 0.25
            responses = [self._truth.make() for _ in range(BULK if many else 1)]
            self._begin(responses)
            if self._random.random() < REPEAT_SHARE * len(responses):
                self._again()
            await asyncio.sleep(len(responses) / self._rate * self._random.uniform(0.5, 1.5))

    async def finish(self, seconds: float) -> int:
        """Wait for those on their way, then stop them; how many were still trying."""
        self.stopped = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        left = [task for task in self._tasks if not task.done()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        return len(left)

    async def close(self) -> None:
        """Close every connection."""
        await self._http.aclose()
        for channel in self._channels.values():
            await channel.close()

    async def deliver(self, sent: Sent) -> None:
        """Send one until it is acknowledged, as a patient client does."""
        while sent.waits:
            await self._attempt([sent])
            await asyncio.sleep(PAUSE)

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _begin(self, responses: list[Sent]) -> None:
        task = asyncio.create_task(self._send(responses))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, responses: list[Sent]) -> None:
        waiting = responses
        while waiting:
            await self._attempt(waiting)
            waiting = [sent for sent in waiting if sent.waits]
            if waiting:
                await asyncio.sleep(PAUSE)
            for sent in list(waiting):
                thrown = self._random.random()
                if thrown < GIVE_UP_SHARE:
                    waiting.remove(sent)
                elif thrown < GIVE_UP_SHARE + CORRECT_SHARE and sent.refused and not sent.uncertain:
                    self._truth.correct(sent)

    def _again(self) -> None:
        """Repeat something that was acknowledged, or say something else under its id."""
        known = self._truth.acknowledged()
        gone = [sent for sent in self._truth.sent.values() if sent.erased]
        chosen = gone if gone and self._random.random() < 0.3 else known
        if not chosen:
            return
        sent = self._random.choice(chosen)
        other = self._random.random() < 0.3
        task = asyncio.create_task(self.repeat(sent, other=other))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def repeat(self, sent: Sent, *, other: bool = False) -> None:
        """Send again what was acknowledged, or something else under its id."""
        erased, gone = (
            sent.erased_at is not None and self._now() - sent.erased_at > CURRENT_SECONDS,
            sent.gone,
        )
        body = {**sent.body, "answer": "Something else."} if other else sent.body
        ended = (await self._single(self._random.choice(self._gateways), body))[0]
        age = ", old" if sent.is_old(self._now()) else ""
        self.answers[f"repeat: {ended}{age}"] += 1
        if erased and ended in ("recorded", "duplicate"):
            self._truth.violation("erased and back", f"{sent.name}: a repeat is answered {ended}")
        elif other and ended == "recorded":
            # Where retention had removed it, this is another response of that id.
            sent.conflicting = True
        if not gone and not sent.gone and ended == "recorded" and sent.body["tenant"] != BRIEF:
            self._truth.violation("doubled", f"{sent.name}: a repeat is answered {ended}, other={other}")
        elif not gone and not sent.gone and other and ended == "duplicate":
            self._truth.violation("doubled", f"{sent.name}: another body is answered duplicate")

    async def _attempt(self, responses: list[Sent]) -> None:
        gateway = self._random.choice(self._gateways)
        if len(responses) > 1:
            sure = not any(sent.uncertain or sent.acknowledged_at for sent in responses)
            ended = await self._bulk(gateway, [sent.body for sent in responses], sure=sure)
        elif self._random.random() < 0.25:
            ended = await self._grpc(gateway, responses[0].body)
        else:
            ended = await self._single(gateway, responses[0].body)
        for sent, how in zip(responses, ended, strict=True):
            self._note(sent, how)

    def _note(self, sent: Sent, ended: Ended) -> None:
        self.answers[ended] += 1
        never = sent.refused and not sent.uncertain and sent.acknowledged_at is None
        if ended in ("recorded", "duplicate"):
            if never and ended == "duplicate":
                self._truth.violation("refused yet recorded", f"{sent.name}: then called a duplicate")
            sent.acknowledged_at = sent.acknowledged_at or self._now()
        elif ended == "conflict":
            kind = "refused yet recorded" if sent.corrected else "odd answers"
            self._truth.violation(kind, f"{sent.name}: answered 409")
            sent.conflicting = True
        elif ended == "refused":
            sent.refused = True
        elif ended == "uncertain":
            sent.uncertain = True
        elif ended == "erased" and not sent.gone:
            self._truth.violation("odd answers", f"{sent.name}: 410, and nobody erased it")
            sent.gone = True

    async def _single(self, gateway: Gateway, body: dict[str, Any]) -> list[Ended]:
        try:
            reply = await self._http.post(f"{gateway.url}/v1/responses", json=body)
        except BROKEN as error:
            self.answers[f"  {type(error).__name__}"] += 1
            return ["uncertain"]
        told = self._json(reply)
        ended: dict[int, Ended] = {202: "recorded", 200: "duplicate", 410: "erased", 409: "conflict"}
        if reply.status_code in ended:
            return [ended[reply.status_code]]
        if reply.status_code == 503:
            if "retry-after" not in reply.headers:
                self._truth.violation("odd answers", "503 without Retry-After")
            self.answers[f"  503 {told.get('reason')}"] += 1
            return ["refused" if told.get("reason") in NOT_RECORDED else "uncertain"]
        return self._odd(reply)

    async def _bulk(self, gateway: Gateway, bodies: list[dict[str, Any]], *, sure: bool) -> list[Ended]:
        """`sure` says that none of them can have been recorded before."""
        content = "".join(json.dumps(body) + "\n" for body in bodies)
        try:
            reply = await self._http.post(
                f"{gateway.url}/v1/responses",
                content=content,
                headers={"content-type": "application/x-ndjson"},
            )
        except BROKEN as error:
            self.answers[f"  {type(error).__name__}"] += 1
            return ["uncertain"] * len(bodies)
        told = self._json(reply)
        if reply.status_code == 503:
            return ["refused" if told.get("reason") in NOT_RECORDED else "uncertain"] * len(bodies)
        if reply.status_code != 200:
            return self._odd(reply) * len(bodies)
        # "recorded" here also stands for duplicates, which a bulk reply only counts.
        ended: list[Ended] = ["recorded"] * len(bodies)
        reasons: dict[str, Ended] = {"conflict": "conflict", "erased": "erased"}
        for error in told["errors"]:
            self.answers[f"  line {error['reason']}"] += 1
            refused: Ended = "refused" if error["reason"] in NOT_RECORDED else "uncertain"
            ended[error["line"] - 1] = reasons.get(error["reason"], refused)
        if told["accepted"] + told["duplicates"] + told["refused"] != len(bodies):
            self._truth.violation("odd answers", f"{len(bodies)} lines, answered {told}")
        if sure and told["duplicates"]:
            self._truth.violation("refused yet recorded", f"{bodies[0]['id']} and more: called duplicates")
        return ended

    async def _grpc(self, gateway: Gateway, body: dict[str, Any]) -> list[Ended]:
        channel = self._channels.get(gateway.grpc_port)
        if channel is None:
            options = (("grpc.max_reconnect_backoff_ms", 1_000), ("grpc.enable_http_proxy", 0))
            channel = grpc.aio.insecure_channel(f"127.0.0.1:{gateway.grpc_port}", options=options)
            self._channels[gateway.grpc_port] = channel
        reference = pb.Reference(**body["reference"])
        message = pb.Response(**{**body, "reference": reference})
        try:
            reply = await MonitorServiceStub(channel).Submit(
                pb.SubmitRequest(response=message), timeout=ATTEMPT_SECONDS
            )
        except grpc.aio.AioRpcError as error:
            return [self._of(error)]
        return ["duplicate" if reply.status == pb.SUBMIT_STATUS_DUPLICATE else "recorded"]

    def _of(self, error: grpc.aio.AioRpcError) -> Ended:
        code, reason = error.code(), _reason(error)
        if code in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL):
            self._truth.violation("answers of 500", f"gRPC {code.name}: {error.details()}")
            return "uncertain"
        if code is grpc.StatusCode.ALREADY_EXISTS:
            return "conflict"
        if code is grpc.StatusCode.FAILED_PRECONDITION:
            return "erased"
        self.answers[f"  gRPC {code.name} {reason}"] += 1
        return "refused" if reason in NOT_RECORDED else "uncertain"

    def _json(self, reply: httpx.Response) -> dict[str, Any]:
        try:
            return dict(reply.json())
        except ValueError:
            self._truth.violation(
                "answers of 500" if reply.status_code >= 500 else "odd answers",
                f"{reply.status_code} is no JSON: {reply.text[:80]!r}",
            )
            return {}

    def _odd(self, reply: httpx.Response) -> list[Ended]:
        kind = "answers of 500" if reply.status_code == 500 else "odd answers"
        self._truth.violation(kind, f"{reply.status_code}: {reply.text[:200]}")
        return ["uncertain"]


def _reason(error: grpc.aio.AioRpcError) -> str:
    """Why the gateway refused; "" when it was not the gateway that ended the call."""
    status = rpc_status.from_call(error)
    for detail in status.details if status is not None else ():
        told = error_details_pb2.ErrorInfo()
        if detail.Unpack(told):
            return told.reason.lower()
    return ""
