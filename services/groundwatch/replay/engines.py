"""The judges of a replay: engines built from its settings, one set for all of its protocols."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, cast

from groundwatch.errors import GroundwatchError, InputError, UsageError
from groundwatch.events import ClaimsExtracted, ResponseRecorded
from groundwatch.extraction import engines as extraction
from groundwatch.extraction.engines.base import ExtractionEngine
from groundwatch.matching import engines as matching
from groundwatch.matching.engines.base import MatchingEngine
from groundwatch.protocols import registry
from groundwatch.protocols.base import EvaluationProtocol, Stage
from groundwatch.replay.judging import Judging, Made, judging_stage
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.services.service import find_protocol
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.stores.cache import JudgementCache
from groundwatch.runtime.stores.images import ImageStore
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.verification import engines as verification
from groundwatch.verification.engines.base import VerificationEngine


class Engines:
    """Engines, built when a protocol first needs them, so that nothing is loaded in vain."""

    def __init__(self, settings: Settings, bus: Bus, *, start: Stage, metrics: Metrics | None = None) -> None:
        self._settings = settings
        self._cache = JudgementCache(settings, bus, metrics)
        self._images = ImageStore(bus.js)
        self._start = start
        self._extraction: ExtractionEngine | None = None
        self._verification: VerificationEngine | None = None
        self._matching: MatchingEngine | None = None
        self._judging: dict[str, Judging | GroundwatchError] = {}
        self._building = asyncio.Lock()
        registry.configure(settings.protocols)
        # Said before anything is read: a name nobody knows, a part that is not installed.
        if start is Stage.EXTRACTION:
            self._extraction = extraction.build(settings.extraction)
        if start in (Stage.EXTRACTION, Stage.VERIFICATION):
            self._verifying()
        if start is Stage.MATCHING or (start is Stage.EXTRACTION and settings.matching.engine):
            self._matched()

    async def judging(self, name: str) -> Judging | GroundwatchError:
        """The judges of this protocol, ready; or why it cannot be judged."""
        found = self._judging.get(name)
        if found is None:
            async with self._building:
                found = self._judging.get(name)
                if found is None:
                    found = self._judging[name] = await self._build(name)
        return found

    async def _build(self, name: str) -> Judging | GroundwatchError:
        protocol = find_protocol(name)
        if isinstance(protocol, GroundwatchError):
            return protocol
        try:
            stage = judging_stage(protocol)
        except UsageError as error:
            return InputError(str(error))
        judge = self._verifying() if stage is Stage.VERIFICATION else self._matched()
        judging = Judging(
            protocol,
            self._extraction,
            judge,
            self._settings.retry,
            attempts=self._settings.retry.attempts,
            cache=self._cache,
        )
        await judging.warm_up()
        return judging

    def _verifying(self) -> VerificationEngine:
        if self._verification is None:
            settings = self._settings
            self._verification = verification.build(
                settings.verification,
                load_image=self._images.load,
                visual=settings.visual,
                triton=settings.triton,
            )
        return self._verification

    def _matched(self) -> MatchingEngine:
        if self._matching is None:
            self._matching = matching.build(self._settings.matching)
        return self._matching

    async def judge(
        self, name: str, events: Sequence[ResponseRecorded] | Sequence[ClaimsExtracted]
    ) -> list[Made] | GroundwatchError:
        """One result for each event of this protocol, in order; or why there can be none."""
        judging = await self.judging(name)
        if isinstance(judging, GroundwatchError):
            return judging
        if self._start is Stage.EXTRACTION:
            return await judging.from_responses(cast(Sequence[ResponseRecorded], events))
        return await judging.from_extracted(cast(Sequence[ClaimsExtracted], events))

    @property
    def compute(self) -> bool:
        """Whether those that there are so far compute, and wait for nobody else."""
        engines = (self._extraction, self._verification, self._matching)
        return all(engine.batch > 1 for engine in engines if engine is not None)

    async def close(self) -> None:
        """Let go of what the engines hold."""
        for engine in (self._extraction, self._verification, self._matching):
            if engine is not None:
                with contextlib.suppress(Exception):
                    await cast(Any, engine).close()


def protocol_of(name: str) -> EvaluationProtocol | InputError:
    """The protocol, or why its events cannot be scored."""
    return find_protocol(name)
