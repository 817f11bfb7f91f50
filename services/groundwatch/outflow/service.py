"""The outflow service: each receiver that settings name has a durable consumer and a stage of its own.

So a receiver that is away holds up nobody else, nor scoring: what it is to be told of waits in the stream.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
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
from groundwatch.runtime.delivery.streams import FAULTS
from groundwatch.runtime.delivery.work import Envelope, Handler, Result, Work
from groundwatch.runtime.services.tasks import SupervisedTask
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import OUTFLOW, ConsumerSpec, consumer, parse_subject, receiver_consumer
from groundwatch.topology.partitions import consumers_in

BATCH = 64
MONITOR_SECONDS = 5.0

FORMS: dict[str, Any] = {"outcome": ResponseScored, "alarm": AlarmRaised}


class OutflowService:
    """Tells each receiver of every outcome, or of every alarm, at least once."""

    name = OUTFLOW

    def __init__(self, settings: Settings, bus: Bus, metrics: Metrics) -> None:
        self._settings = settings
        self._bus = bus
        self._metrics = metrics
        self._receivers = {
            name: make_receiver(name, one, metrics) for name, one in settings.outflow.receivers.items()
        }
        self._away: list[AwayJudges] = []
        self._stages: list[Stage[Any]] = []
        self._monitor = SupervisedTask("outflow-monitor", self._watch)
        self._started = False

    async def start(self) -> None:
        """Make the consumers of receivers that are new, then begin to fetch."""
        for name, receiver in self._receivers.items():
            kind: Literal["outcome", "alarm"] = "alarm" if receiver.settings.kind == "webhook" else "outcome"
            specs = list(consumers_in(receiver_consumer(name, kind), self._bus.partitions))
            await bind_receiver(self._bus.js, specs, self._settings.nats.replicas)
            for spec in specs:
                self._add(spec, FORMS[kind], self._handler(receiver), [receiver])
        if self._receivers:
            self._add(consumer(f"{OUTFLOW}-retry"), msgspec.Raw, self._retry, list(self._receivers.values()))
        for stage in self._stages:
            await stage.start()
        self._monitor.start()
        self._started = True

    async def drain(self, timeout: float) -> None:
        """Finish what was fetched, or hand it back; then let go of the connections."""
        await self._monitor.stop()
        await asyncio.gather(*(stage.drain(timeout) for stage in self._stages))
        await asyncio.gather(*(receiver.close() for receiver in self._receivers.values()))

    def problems(self) -> list[str]:
        """A receiver that is away is none of ours: see `notes`."""
        found = self._bus.problems()
        if not self._started:
            found.append("not started")
        elif self._monitor.problem:
            found.append(self._monitor.problem)
        for stage in self._stages:
            found += stage.problems()
            found += [f"consumer {stage.consumer.name}: {one.problem}" for one in stage.pulls if one.problem]
        return [f"{self.name}: {why}" for why in found]

    def notes(self) -> list[str]:
        """What does not go out, and why."""
        told = dict.fromkeys(note for away in self._away for note in away.problems())
        return [f"{self.name}: {note}" for note in told]

    def _add(
        self, spec: ConsumerSpec, form: Any, handler: Handler[Any], receivers: Sequence[Receiver[Any]]
    ) -> None:
        away = AwayJudges(self.name, self._metrics, number=len(receivers), what="receiver")
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
                bus=self._bus,
                metrics=self._metrics,
                retries=self._settings.retry,
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

    async def _watch(self) -> None:
        told = False
        while True:
            lags: Counter[str] = Counter()
            for stage in self._stages:
                with contextlib.suppress(*FAULTS):
                    spec = stage.consumer
                    info = await self._bus.js.consumer_info(spec.stream, spec.name)
                    lag = (info.num_pending or 0) + (info.num_ack_pending or 0)
                    if spec.name == f"{OUTFLOW}-retry":
                        self._metrics.consumer_lag.labels(self.name, spec.name).set(lag)
                    else:
                        lags[spec.durable.removeprefix(f"{OUTFLOW}-to-")] += lag
            for name, lag in lags.items():
                self._metrics.receiver_lag.labels(name).set(lag)
            if bool(self.notes()) != told:
                told = not told
                logger.info("outflow.notes", notes=self.notes())
            await asyncio.sleep(MONITOR_SECONDS)
