"""The verification service: claims in, a verdict for each of them out."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from groundwatch.errors import GroundwatchError
from groundwatch.events import ClaimsExtracted, ClaimsVerified, Judge
from groundwatch.models.engines import LoadImage
from groundwatch.models.settings import ChatSettings
from groundwatch.protocols.base import EvaluationProtocol, Stage
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.work import Result, Work
from groundwatch.runtime.services.stages import ClaimService
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.verification.engines import build
from groundwatch.verification.engines.base import Verification, VerificationEngine, verify_with
from groundwatch.verification.engines.by_protocol import EngineByProtocol
from groundwatch.verification.engines.cascade import CascadeEngine, Step


class VerificationService(ClaimService):
    """Decides each claim against the image or the reference, by the engine of its protocol."""

    engine: VerificationEngine

    def __init__(
        self,
        settings: Settings,
        bus: Bus | None,
        metrics: Metrics,
        engine: VerificationEngine | None = None,
        *,
        load_image: LoadImage | None = None,
    ) -> None:
        super().__init__(Stage.VERIFICATION.value, settings, bus, metrics)
        engine = engine or build(
            settings.verification,
            load_image=load_image or self.load_image,
            on_call=self.count_request,
            visual=settings.visual,
            triton=settings.triton,
            detector=settings.detector,
        )
        self.consume(ClaimsExtracted, self.handle, settings.verification, engine)

    async def judge_all(
        self,
        protocol: EvaluationProtocol,
        call: Any,
        items: Sequence[Any],
        judge_of: Callable[[EvaluationProtocol], Judge],
        form: type[Any],
        llm: ChatSettings | None = None,
    ) -> Sequence[Any]:
        """The judges of a cascade are each asked so: what one says is counted and kept as its own."""
        ask_one = super().judge_all
        engine = self.engine.of(protocol) if isinstance(self.engine, EngineByProtocol) else self.engine
        if not isinstance(engine, CascadeEngine):
            return await ask_one(protocol, call, items, judge_of, form, llm)

        async def ask(step: Step, some: Sequence[ClaimsExtracted], protocol: EvaluationProtocol) -> Any:
            verify = partial(verify_with, step.engine)
            return await ask_one(protocol, verify, some, step.engine.judge, form, step.settings.llm)

        return await engine.run(items, protocol, ask, self.metrics.cascade)

    async def handle(self, works: Sequence[Work[ClaimsExtracted]]) -> Sequence[Result | GroundwatchError]:
        return await self.judge_claims(works, self.engine.judge, self.engine.verify, _event, Verification())


def _event(extracted: ClaimsExtracted, judge: Judge, found: Verification) -> ClaimsVerified:
    return ClaimsVerified(extracted=extracted, judge=judge, verdicts=found.verdicts, usage=found.usage)
