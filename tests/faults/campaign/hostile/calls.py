"""Hostile gRPC calls: never UNKNOWN and never INTERNAL, which is how a handler's own fault shows."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

import grpc
from tests.faults.campaign.hostile import floods, pictures, texts
from tests.faults.campaign.hostile.findings import Findings

from groundwatch.gateway.grpc.generated import monitor_pb2 as pb
from groundwatch.gateway.grpc.generated.monitor_pb2_grpc import MonitorServiceStub

CALL_SECONDS = 40.0
SERVICE = "/groundwatch.v1.MonitorService/"
UNARY = ("Submit", "GetResponse", "GetReport")
FORBIDDEN = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL)
NUMBERS = (0.0, -1.0, 1e300, -1e300, float("nan"), float("inf"), float("-inf"), 1e18, 253402300800.0)
WHOLE = (0, -1, 2**63 - 1, -(2**63), 10**12)


class Calls:
    """Calls over one channel."""

    def __init__(self, port: int, findings: Findings, seed: int) -> None:
        self._findings = findings
        self._random = random.Random(f"gRPC {seed}")
        self._number = 0
        self._channel = grpc.aio.insecure_channel(
            f"127.0.0.1:{port}", options=(("grpc.enable_http_proxy", 0), ("grpc.max_metadata_size", 65_536))
        )
        self._stub = MonitorServiceStub(self._channel)
        self._asks: dict[Callable[[], Any], int] = {
            self._submit: 30,
            self._stream: 8,
            self._get: 10,
            self._watch: 4,
            self._noise: 10,
            self._no_method: 2,
            self._metadata: 4,
            self._flood: 1,
        }

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()

    async def ask(self) -> None:
        """One hostile call of a kind chosen by the seed."""
        self._number += 1
        chosen = self._random.choices(list(self._asks), list(self._asks.values()))[0]
        what, began = chosen.__name__.strip("_"), time.monotonic()
        self._findings.count(f"gRPC: {what}")
        try:
            await chosen()
            self._findings.status("OK")
        except ValueError:
            # A text that cannot be a protobuf string never leaves this side.
            pass
        except grpc.aio.UsageError:
            pass
        except grpc.aio.AioRpcError as error:
            self._findings.status(error.code().name)
            if error.code() in FORBIDDEN:
                told = f"{what} {self._number}: {error.code().name} {error.details()}"
                self._findings.add("answers of 500", told)
            elif error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                self._findings.add("unanswered", f"gRPC {what} {self._number}: {error.details()}")
            elif "\n" in (error.details() or "") or "Traceback" in (error.details() or ""):
                self._findings.add("not as promised", f"gRPC {what}: {error.details()!r}")
        self._findings.took(f"gRPC: {what}", time.monotonic() - began)

    def _text(self) -> str:
        found = texts.name(self._random)
        return found.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def _response(self) -> pb.Response:
        chance = self._random
        made = pb.Response(id=f"c{self._number}", model="m", answer=f"a red dog {self._number}")
        for _ in range(chance.randint(1, 3)):
            field = chance.choice(("id", "model", "answer", "prompt", "tenant"))
            setattr(made, field, self._text())
        if chance.random() < 0.3:
            made.recorded_at = chance.choice(NUMBERS)
        if chance.random() < 0.3:
            made.protocols.extend(self._text() for _ in range(chance.randint(1, 3)))
        if chance.random() < 0.3:
            for _ in range(chance.choice((1, 5, 200))):
                made.tags[self._text()] = self._text()
        if chance.random() < 0.3:
            image = made.images.add()
            if chance.random() < 0.5:
                image.sha256 = self._text()
            elif chance.random() < 0.8:
                image.data = pictures.picture(chance)[1]
        if chance.random() < 0.3:
            made.reference.objects.extend(self._text() for _ in range(chance.choice((1, 50, 3_000))))
            triplet = made.reference.triplets.add()
            triplet.subject, triplet.object = self._text(), self._text()
        if chance.random() < 0.1:
            made.declined[self._text()] = self._text()
        return made

    async def _submit(self) -> None:
        await self._stub.Submit(pb.SubmitRequest(response=self._response()), timeout=CALL_SECONDS)

    async def _stream(self) -> None:
        chance = self._random

        async def requests() -> Any:
            for _ in range(chance.randint(0, 4)):
                count = chance.choice((0, 1, 3))
                yield pb.SubmitStreamRequest(responses=[self._response() for _ in range(count)])

        call = self._stub.SubmitStream(requests(), timeout=CALL_SECONDS)
        async for _ in call:
            if chance.random() < 0.1:
                call.cancel()
                return

    async def _get(self) -> None:
        asked = pb.GetResponseRequest(id=self._text(), tenant=self._text())
        await self._stub.GetResponse(asked, timeout=CALL_SECONDS)

    async def _watch(self) -> None:
        asked = pb.WatchScoresRequest(model=self._text(), tenant=self._text(), protocol=self._text())
        asked.after = self._random.choice(WHOLE)
        call = self._stub.WatchScores(asked, timeout=CALL_SECONDS)
        try:
            async with asyncio.timeout(0.5):
                async for _ in call:
                    break
        except TimeoutError:
            pass
        finally:
            call.cancel()

    async def _noise(self) -> None:
        """Bytes that are no message, or one that is cut or nested without end."""
        chance = self._random
        whole = pb.SubmitRequest(response=self._response()).SerializeToString()
        nested = b"\x0a\x7f" * 5_000
        data = chance.choice(
            (chance.randbytes(chance.randrange(1, 400)), whole[: chance.randrange(len(whole) + 1)], nested)
        )
        method = self._channel.unary_unary(f"{SERVICE}{chance.choice(UNARY)}")
        await method(data, timeout=CALL_SECONDS)

    async def _no_method(self) -> None:
        await self._channel.unary_unary(f"{SERVICE}Nothing")(b"", timeout=CALL_SECONDS)

    async def _metadata(self) -> None:
        chance = self._random
        sent = (
            ("authorization", chance.choice(("Bearer", "x" * 3_000, "Bearer ~"))),
            ("odd-bin", chance.randbytes(2_000)),
            ("x" * 200, "y"),
        )
        await self._stub.GetResponse(pb.GetResponseRequest(id="x"), metadata=sent, timeout=CALL_SECONDS)

    async def _flood(self) -> None:
        _, flood = await asyncio.to_thread(floods.one_of, self._random, True)
        await floods.pour(flood, None, self._channel, CALL_SECONDS)
