"""The annotation service: draws the items of every queue, and keeps the corrected rates up to date."""

import asyncio
import time
from collections.abc import Sequence

from groundwatch.annotation.drawing import QueueReader, mean_uncertainty
from groundwatch.annotation.second_opinion import SecondOpinions, keep_queues
from groundwatch.errors import GroundwatchError, words
from groundwatch.reviews.agreement import AgreementReader, agreement_metrics, write_agreement
from groundwatch.reviews.corrected import (
    CorrectedRates,
    compute_corrected,
    corrected_metrics,
    write_corrected,
)
from groundwatch.reviews.opinions import Opinions
from groundwatch.reviews.queues import Queues, QueueSpec
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import FAULTS
from groundwatch.runtime.services.tasks import SupervisedTask
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import ANNOTATION, OPINIONS

ROUND_SECONDS = 1.0

CORRECTED_SECONDS = 60.0
"""Without a new opinion corrected rates are computed so often, since what was judged meanwhile counts too."""


class AnnotationService:
    """Draws queues from outcomes as they come, and those of a fixed size once; has a second judge give its
    opinion where there is one."""

    name = ANNOTATION

    def __init__(
        self, settings: Settings, bus: Bus, metrics: Metrics, second: SecondOpinions | None = None
    ) -> None:
        """`second` are those of the judge of `[second_opinion]`."""
        self._bus = bus
        self._metrics = metrics
        self._agreement = AgreementReader(bus)
        self._queues = Queues(bus)
        self._reader = QueueReader(bus, self._queues.items, metrics.version_of)
        self._second = second
        self._drawn: set[str] = set()
        self._fault = ""
        self._tasks = [
            SupervisedTask("annotation-queues", self._follow),
            SupervisedTask("annotation-samples", self._draw),
            SupervisedTask("annotation-corrected", self._correct),
        ]

    async def start(self) -> None:
        for task in self._tasks:
            task.start()
        if self._second is not None:
            await self._second.start()

    async def drain(self, timeout: float) -> None:
        """What was read and is not written is read again by the next start."""
        if self._second is not None:
            await self._second.drain(timeout)
        for task in self._tasks:
            await task.stop()

    def problems(self) -> list[str]:
        found = self._bus.problems()
        found += [task.problem for task in self._tasks if task.problem]
        found += [self._second.problem] if self._second is not None and self._second.problem else []
        found += [self._fault] if self._fault else []
        return [f"{self.name}: {why}" for why in found]

    def notes(self) -> list[str]:
        """A second judge that is away is none of ours: people go on reviewing."""
        found = self._second.problems() if self._second is not None else []
        if number := self._agreement.unreadable:
            found.append(f"{self.name}: {number:,} messages of {OPINIONS} are no opinions and count nowhere")
        return found

    async def _follow(self) -> None:
        """Queues that take what comes."""
        while True:
            await self._once()
            await asyncio.sleep(ROUND_SECONDS)

    async def _once(self) -> None:
        try:
            specs = [spec for spec in await self._queues.list() if not spec.size and not spec.closed]
            if self._second is None:
                await keep_queues(self._queues, specs, {})
            await self._reader.go_on(await self._measured(specs))
            self._fault = ""
        except (GroundwatchError, *FAULTS) as error:
            if not self._fault:
                logger.warning("annotation.not_drawn", error=words(error))
            self._fault = f"queues are not drawn: {words(error)}"

    async def _draw(self) -> None:
        """Queues of a fixed size."""
        while True:
            for spec in await self._queues.list():
                known = f"{spec.name} {spec.salt}"
                if not spec.size or spec.closed or known in self._drawn:
                    continue
                (measured,) = await self._measured([spec], waiting=False)
                if await self._reader.draw(measured):
                    self._drawn.add(known)
            await asyncio.sleep(ROUND_SECONDS)

    async def _correct(self) -> None:
        """Write down the corrected rates and who agrees with whom, soon after each opinion."""
        known, computed = (0, 0), 0.0
        while True:
            at = await Opinions(self._bus).position()
            if at != known or time.monotonic() - computed >= CORRECTED_SECONDS:
                rows = await compute_corrected(self._bus, self._metrics.version_of)
                await write_corrected(self._bus, CorrectedRates(at=time.time(), rows=rows))
                corrected_metrics(self._metrics, rows)
                if at != known:
                    agreement = await self._agreement.compute(time.time())
                    await write_agreement(self._bus, agreement)
                    agreement_metrics(self._metrics, agreement)
                known, computed = at, time.monotonic()
            await asyncio.sleep(ROUND_SECONDS)

    async def _measured(self, specs: Sequence[QueueSpec], *, waiting: bool = True) -> list[QueueSpec]:
        """Queues that draw doubtful answers, with what these are held against. One of which nothing is
        recorded yet is left out where it may wait."""
        found = []
        for spec in specs:
            if spec.rule in ("uncertain", "signals") and not spec.mean_uncertainty:
                mean = await mean_uncertainty(self._bus, spec, self._metrics.version_of)
                if mean is None and waiting:
                    continue
                spec = await self._queues.set_mean(spec.name, mean or 0.0)
            found.append(spec)
        return found
