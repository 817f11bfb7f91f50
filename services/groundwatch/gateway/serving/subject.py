"""Responses that are published on `gw.intake.<tenant>`: whoever may publish there needs no HTTP.

The subject says whose a response is, since NATS lets a tenant's user publish on no other. What stands in the
headers is whatever the sender wrote, and means nothing.
"""

import asyncio
import time

from nats.aio.msg import Msg

from groundwatch.errors import DecodeError, GroundwatchError, InputError, TransientError
from groundwatch.gateway.callers import Caller
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.intake.results import ANSWER_SECONDS, Recorded
from groundwatch.gateway.intake.submissions import read_submission
from groundwatch.gateway.refusals import Refused
from groundwatch.gateway.serving.consuming import AGAIN_SECONDS, Consuming, Later
from groundwatch.keys import digest
from groundwatch.runtime.delivery.dead_letters import DeadLetters
from groundwatch.runtime.delivery.work import Arrived
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.topology import GATEWAY, RETRY, consumer

LONGEST_SECONDS = 60.0
"""After which a response of a tenant that sends too much is looked at again, at the latest."""


class SubjectIntake:
    """Records what is published, or makes it a dead letter; takes dead letters that were sent again, too."""

    def __init__(self, core: GatewayCore) -> None:
        self._core = core
        self._dead = DeadLetters(core.bus, GATEWAY, core.metrics)
        core.metrics.stage(GATEWAY)
        self._consuming = [
            Consuming(
                core.bus,
                stream=spec.stream,
                consumer=spec.name,
                subject=spec.filters[0],
                ack_wait=spec.ack_wait,
                take=self._take,
            )
            for spec in (consumer(GATEWAY), consumer(f"{GATEWAY}-retry"))
        ]

    async def start(self) -> None:
        for consuming in self._consuming:
            await consuming.start()

    async def drain(self, timeout: float) -> None:
        await asyncio.gather(*(consuming.drain(timeout) for consuming in self._consuming))

    @property
    def problem(self) -> str:
        return next((one.problem for one in self._consuming if one.problem), "")

    async def _take(self, message: Msg) -> None:
        metadata = message.metadata
        arrived = Arrived(message, foreign=metadata.stream != RETRY)
        if arrived.delivered > 1:
            self._core.metrics.redeliveries.labels(GATEWAY).inc()
        try:
            ended = await self._record(arrived)
        except Exception as error:
            logger.error("gateway.bug", subject=arrived.origin, error=repr(error), exc_info=True)
            await self._bury(arrived, error)
            return
        if isinstance(ended, Recorded):
            self._core.metrics.stage_messages.labels(GATEWAY, "done").inc()
        elif ended.passing:
            self._core.metrics.stage_messages.labels(GATEWAY, "handed_back").inc()
            # Of a tenant that floods, each comes more rarely, so that the others have their turn.
            again = AGAIN_SECONDS * arrived.delivered if ended.reason == "rate_limited" else AGAIN_SECONDS
            raise Later(min(again, LONGEST_SECONDS))
        elif ended.reason == "erased":
            # Kept nowhere: what was erased must not come back as a dead letter.
            logger.info("gateway.erased", subject=arrived.origin, reason=ended.message)
        else:
            await self._bury(arrived, _error(ended))

    async def _record(self, arrived: Arrived) -> Recorded | Refused:
        core, address = self._core, arrived.address
        if refusal := await core.backlog.room(time.monotonic() + ANSWER_SECONDS):
            return core.intake.refuse(refusal)
        tenant = address.tenant if address is not None else ""
        if not tenant:
            return Refused(reason="invalid", message=f"{arrived.origin[:64]} is the subject of no tenant")
        if over := core.admission.admit(tenant):
            return core.intake.refuse(over)
        # Delivered again, one without an id must be the same.
        name = digest(arrived.key, str(arrived.stored_at.timestamp()))[:32]
        read = read_submission(arrived.message.data, core.bounds, Caller(tenant), name=name)
        if isinstance(read, Refused):
            core.admission.give_back(tenant)
            return core.intake.refuse(read)
        ended = await core.intake.record(read, timeout=ANSWER_SECONDS)
        core.ended(ended, tenant)
        return ended

    async def _bury(self, arrived: Arrived, error: Exception) -> None:
        try:
            await self._dead.bury(arrived, None, (), error)
        except TransientError as away:
            raise Later from away
        self._core.metrics.stage_messages.labels(GATEWAY, "dead").inc()


def _error(refused: Refused) -> GroundwatchError:
    where = f"{refused.field}: " if refused.field else ""
    text = f"{refused.reason}: {where}{refused.message}"
    return DecodeError(text) if refused.reason == "malformed" else InputError(text)
