"""The judge of `[second_opinion]`: a verification engine that is asked outside of its stage."""

from collections.abc import Sequence
from functools import partial

from groundwatch.annotation.second_opinion import NAME
from groundwatch.errors import GroundwatchError, InputError, Unavailable
from groundwatch.events import ClaimsExtracted, Judge, Usage, Verdict
from groundwatch.protocols.base import EvaluationProtocol
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.services.service import counted
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.settings.reading import with_second_judge
from groundwatch.runtime.stores.images import ImageStore
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.verification.engines import build
from groundwatch.verification.engines.base import Verification, verify_with


class EngineJudge:
    """Counts what it does as the stages do, under a name of its own."""

    def __init__(self, settings: Settings, bus: Bus, metrics: Metrics) -> None:
        """Raises `SettingsError` where settings name no judge that can give another opinion."""
        chosen, self.protocols = with_second_judge(settings)
        self._bus = bus
        self._metrics = metrics
        self._engine = build(
            chosen.verification,
            load_image=self._load_image,
            on_call=self._count_request,
            visual=chosen.visual,
            triton=chosen.triton,
            detector=chosen.detector,
        )

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        return self._engine.judge(protocol)

    def at_once(self, protocol: EvaluationProtocol) -> int:
        engine = self._engine.of(protocol)
        return max(1, getattr(engine, "at_once", 1)) if engine.batch == 1 else engine.batch

    async def verify(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[tuple[Verdict, ...] | GroundwatchError]:
        judge = self._engine.judge(protocol)
        ask = partial(verify_with, self._engine.of(protocol), protocol=protocol)
        found = await counted(NAME, self._metrics, ask, extracted, judge)
        if self._engine.judge(protocol) != judge:
            # What one model said must not stand under another one's name.
            why = f"{judge.engine}: another model answers than was asked"
            return [Unavailable(why, retry_after=0.0)] * len(extracted)
        return [_verdicts(one, event) for one, event in zip(found, extracted, strict=True)]

    async def warm_up(self) -> None:
        await self._engine.warm_up()

    def problems(self) -> list[str]:
        return self._engine.problems()

    async def close(self) -> None:
        await self._engine.close()

    async def _load_image(self, sha256: str) -> tuple[bytes, str]:
        return await ImageStore(self._bus.js, self._bus.cold_images).load(sha256)

    def _count_request(self, result: str, seconds: float, usage: Usage) -> None:
        self._metrics.requests.labels(NAME, result).inc()
        self._metrics.request_seconds.labels(NAME).observe(seconds)


def _verdicts(
    found: Verification | GroundwatchError, event: ClaimsExtracted
) -> tuple[Verdict, ...] | GroundwatchError:
    if isinstance(found, GroundwatchError):
        return found
    if len(found.verdicts) != len(event.claims):
        return InputError(f"{len(found.verdicts)} verdicts for {len(event.claims)} claims")
    return found.verdicts
