"""NVIDIA Dynamo's request trace: a durable consumer on the stream that its operator keeps for it.

Dynamo publishes each call of a model as one record, with the request as it came in. Its NATS may be another
cluster than ours; while that is away, nothing else here is held up by it.
"""

import asyncio
import time
from typing import Any

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from groundwatch.conversations.conversation import Conversation, Unreadable
from groundwatch.conversations.openai import read_exchange
from groundwatch.errors import UNDECODED, GroundwatchError, TransientError, UsageError, words
from groundwatch.gateway.auth import Caller
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.receivers.nats import Consuming, Later
from groundwatch.gateway.refusals import ANSWER_SECONDS, Refused
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.services.tasks import SupervisedTask
from groundwatch.runtime.settings import NatsSettings
from groundwatch.runtime.settings.gateway import DynamoSettings
from groundwatch.runtime.telemetry.logs import Outage, logger
from groundwatch.topology import GATEWAY

NAME = "dynamo"
ACK_WAIT = 30.0
MAX_ACK_PENDING = 1_000
AGAIN_SECONDS = 5.0
CONNECT_SECONDS = 5.0
LONGEST_REASON = 200
PAYLOAD = "request_payload"
"""The kind of record that has what was asked and answered; others have times and counts only."""


class _Payload(msgspec.Struct):
    request_id: str = ""
    model: str = ""
    request: msgspec.Raw = msgspec.Raw(b"null")
    response: msgspec.Raw = msgspec.Raw(b"null")
    payload_complete: bool = True
    payload_drop_reason: str | None = None


class _Record(msgspec.Struct):
    event_type: str = PAYLOAD
    payload: _Payload | None = None


_DECODER = msgspec.json.Decoder(_Record)


class Dynamo(SupervisedTask):
    """Follows the stream for as long as it runs, and says as a note what keeps it from that."""

    def __init__(self, core: GatewayCore, settings: DynamoSettings, own: NatsSettings) -> None:
        super().__init__("gateway-dynamo", self._follow)
        self._core = core
        self._settings = settings
        self._nats = NatsSettings(url=settings.url, credentials=settings.credentials) if settings.url else own
        self._consuming: Consuming | None = None
        self._bus: Bus | None = None
        self._away = "not connected yet"
        self._dropped = ""
        core.telling.append(self._notes)

    def _notes(self) -> list[str]:
        told = []
        if why := self._away or (self._consuming.problem if self._consuming is not None else ""):
            told.append(f"Dynamo's calls are not read: {why}")
        if self._dropped:
            told.append(f"Dynamo left out what some calls were about: {self._dropped}")
        return told

    async def _follow(self) -> None:
        while True:
            try:
                await self._connect()
                self._away = ""
                logger.info("gateway.dynamo", stream=self._settings.stream)
                assert self._bus is not None
                await self._bus.until_lost()
            except (GroundwatchError, nats.errors.Error, OSError, TimeoutError) as error:
                why = words(error)
                if why != self._away:
                    logger.warning("gateway.dynamo_away", reason=why)
                self._away = why
            finally:
                await self._disconnect(0.0)
            await asyncio.sleep(AGAIN_SECONDS)

    async def drain(self, timeout: float) -> None:
        """Finish what was fetched, and follow no more."""
        if self._consuming is not None:
            await self._consuming.drain(timeout)
        await self.stop()

    async def _disconnect(self, timeout: float) -> None:
        consuming, self._consuming = self._consuming, None
        bus, self._bus = self._bus, None
        if consuming is not None:
            await consuming.drain(timeout)
        if bus is not None:
            await bus.close()

    async def _connect(self) -> None:
        # Our own server knows this process as the gateway.
        self._bus = bus = Bus(self._nats, name=NAME, user="" if self._settings.url else GATEWAY)
        if self._settings.url:
            # That it is away hides nothing of ours.
            bus.outage = Outage()
        await bus.connect(timeout=CONNECT_SECONDS)
        settings = self._settings
        try:
            info = await bus.js.stream_info(settings.stream)
        except nats.js.errors.NotFoundError as error:
            raise UsageError(
                f"there is no stream {settings.stream}: make one of the subject {settings.subject} "
                "(gateway.dynamo.stream)"
            ) from error
        try:
            await bus.js.consumer_info(settings.stream, settings.durable)
        except nats.js.errors.NotFoundError:
            await bus.js.add_consumer(
                settings.stream,
                ConsumerConfig(
                    durable_name=settings.durable,
                    filter_subject=settings.subject,
                    ack_policy=AckPolicy.EXPLICIT,
                    deliver_policy=DeliverPolicy.ALL,
                    ack_wait=ACK_WAIT,
                    max_ack_pending=MAX_ACK_PENDING,
                ),
            )
        self._consuming = Consuming(
            bus,
            stream=info.config.name or settings.stream,
            consumer=settings.durable,
            subject=settings.subject,
            ack_wait=ACK_WAIT,
            take=self._take,
        )
        await self._consuming.start()

    async def _take(self, message: Msg) -> None:
        core = self._core
        try:
            record = _DECODER.decode(message.data)
        except UNDECODED as error:
            core.logged.count("dynamo", "unreadable")
            logger.warning("gateway.dynamo_unreadable", error=str(error)[:LONGEST_REASON])
            return
        payload = record.payload
        if record.event_type != PAYLOAD or payload is None:
            core.logged.count("dynamo", "ignored")
            return
        asked, answered = bytes(payload.request), bytes(payload.response)
        caller = Caller(self._settings.tenant or "default")
        name = payload.request_id
        if not payload.payload_complete:
            self._dropped = (payload.payload_drop_reason or "it does not say why")[:LONGEST_REASON]
            why = f"Dynamo left out its request or its response: {self._dropped}"
            await self._record(Unreadable("no_response", why, name, payload.model), caller)
            return
        if b"null" in (asked, answered):
            # A call that was cancelled or failed has no response: that is nobody's fault.
            core.logged.count("dynamo", "incomplete")
            return
        try:
            await core.backlog.room(time.monotonic() + ANSWER_SECONDS)
            call = await core.threads.run(caller.sender, read_exchange, asked, answered, id=name)
        except (Refused, TransientError) as error:
            raise Later from error
        named: dict[str, Any] = {"library": "dynamo"} if isinstance(call, Conversation) else {}
        call = msgspec.structs.replace(call, model=call.model or payload.model, **named)
        await self._record(call, caller)

    async def _record(self, call: Conversation | Unreadable, caller: Caller) -> None:
        ended = await self._core.logged.record_or_decline(call, caller, "dynamo")
        if isinstance(ended, Refused) and ended.passing:
            raise Later from ended
