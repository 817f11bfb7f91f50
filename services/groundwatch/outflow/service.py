"""The outflow service: each receiver that settings name has a durable consumer and a stage of its own.

So a receiver that is away holds up nobody else, nor scoring: what it is to be told of waits in the stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from groundwatch.errors import UNDECODED, DecodeError, GroundwatchError, InputError
from groundwatch.events import AlarmRaised, ResponseScored
from groundwatch.outflow.receivers import Receiver, make_receiver
from groundwatch.runtime.delivery.away import AwayJudges
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.provisioning import bind_receiver
from groundwatch.runtime.delivery.stage import Stage
from groundwatch.runtime.delivery.work import Envelope, Handler, Result, Work
from groundwatch.runtime.services.service import StageService
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.settings.outflow import OF_ALARMS
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import OUTFLOW, ConsumerSpec, consumer, parse_subject, receiver_consumer
from groundwatch.topology.partitions import consumers_in

BATCH = 64

RETRY_CONSUMER = f"{OUTFLOW}-retry"
FORMS: dict[str, Any] = {"outcome": ResponseScored, "alarm": AlarmRaised}


class OutflowService(StageService):
    """Tells each receiver of every outcome, or of every alarm, at least once."""

    mend = "run groundwatch admin provision, then start this service again"

    def __init__(self, settings: Settings, bus: Bus, metrics: Metrics) -> None:
        super().__init__(OUTFLOW, settings, bus, metrics)
        self._receivers = {
            name: make_receiver(name, one, metrics) for name, one in settings.outflow.receivers.items()
        }
        self._away: list[AwayJudges] = []
        self._lags: dict[str, dict[str, int]] = {}

    async def start(self) -> None:
        """Make the consumers of receivers that are new, then begin to fetch."""
        for receiver in self._receivers.values():
            await bind_receiver(self.bus.js, self._consumers(receiver), self.settings.nats.replicas)
        await super().start()

    async def drain(self, timeout: float) -> None:
        """Finish what was fetched, or hand it back; then let go of the connections."""
        await super().drain(timeout)
        await asyncio.gather(*(receiver.close() for receiver in self._receivers.values()))

    def notes(self) -> list[str]:
        """What does not go out, and why: a receiver that is away is no problem of ours."""
        told = dict.fromkeys(note for away in self._away for note in away.problems())
        return [f"{self.name}: {note}" for note in told]

    def _consumers(self, receiver: Receiver[Any]) -> list[ConsumerSpec]:
        return list(consumers_in(receiver_consumer(receiver.name, _kind(receiver)), self.bus.partitions))

    def _build_stages(self) -> None:
        for receiver in self._receivers.values():
            for spec in self._consumers(receiver):
                self._add(spec, FORMS[_kind(receiver)], self._handler(receiver), [receiver])
        if self._receivers:
            self._add(consumer(RETRY_CONSUMER), msgspec.Raw, self._retry, list(self._receivers.values()))

    def _add(
        self, spec: ConsumerSpec, form: Any, handler: Handler[Any], receivers: Sequence[Receiver[Any]]
    ) -> None:
        away = AwayJudges(self.name, self.metrics, number=len(receivers), what="receiver")
        self._away.append(away)
        # All the tries of one event at a receiver that hangs.
        longest = max(one.settings.timeout * (2 + one.settings.retries) for one in receivers)
        patience = max(one.settings.patience for one in receivers)
        self._stages.append(
            Stage(
                name=self.name,
                consumer=spec,
                event=form,
                handler=handler,
                bus=self.bus,
                metrics=self.metrics,
                retries=self.settings.retry,
                batch=BATCH,
                concurrency=1,
                timeout=BATCH * (longest + patience),
                judges=away,
                receiver=receivers[0].name,
            )
        )

    def _handler(self, receiver: Receiver[Any]) -> Handler[Any]:
        async def handle(works: Sequence[Work[Any]]) -> list[Result]:
            errors = await receiver.deliver([work.event for work in works])
            return [Result(failures={receiver.name: error} if error else {}) for error in errors]

        return handle

    async def _retry(self, works: Sequence[Work[Any]]) -> list[Result | GroundwatchError]:
        """Dead letters that were sent again, each to the receivers that it names."""
        return [await self._again(bytes(work.event), work.arrived) for work in works]

    async def _again(self, payload: bytes, arrived: Envelope) -> Result | GroundwatchError:
        address = parse_subject(arrived.origin)
        if address is None or address.kind not in FORMS:
            return InputError(f"no receiver is told of {arrived.origin}")
        try:
            event = msgspec.json.decode(payload, type=FORMS[address.kind])
        except UNDECODED as error:
            return DecodeError(str(error))
        failures: dict[str, Exception] = {}
        for name in arrived.asked:
            if (receiver := self._receivers.get(name)) is None:
                failures[name] = InputError(f"settings name no receiver '{name}'")
            elif (failed := (await receiver.deliver([event]))[0]) is not None:
                failures[name] = failed
        return Result(failures=failures)

    def _show_lag(self, spec: ConsumerSpec, lag: int) -> None:
        if spec.name == RETRY_CONSUMER:
            super()._show_lag(spec, lag)
            return
        name = spec.durable.removeprefix(f"{OUTFLOW}-to-")
        lags = self._lags.setdefault(name, {})
        lags[spec.name] = lag
        self.metrics.receiver_lag.labels(name).set(sum(lags.values()))


def _kind(receiver: Receiver[Any]) -> Literal["outcome", "alarm"]:
    return "alarm" if receiver.settings.kind in OF_ALARMS else "outcome"
