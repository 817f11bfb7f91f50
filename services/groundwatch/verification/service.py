"""The verification service: claims in, a verdict for each of them out."""

from collections.abc import Sequence

from groundwatch.errors import GroundwatchError
from groundwatch.events import ClaimsExtracted, ClaimsVerified, Judge
from groundwatch.models.engines import LoadImage
from groundwatch.protocols.base import Stage
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.work import Result, Work
from groundwatch.runtime.services.stages import ClaimService
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.stores.images import ImageStore
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.verification.engines import build
from groundwatch.verification.engines.base import Verification, VerificationEngine


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
            load_image=load_image or (lambda sha256: ImageStore(self.bus.js).load(sha256)),
            on_call=self.count_request,
            visual=settings.visual,
            triton=settings.triton,
        )
        self.consume(ClaimsExtracted, self.handle, settings.verification, engine)

    async def handle(self, works: Sequence[Work[ClaimsExtracted]]) -> Sequence[Result | GroundwatchError]:
        return await self.judge_claims(works, self.engine.judge, self.engine.verify, _event, Verification())


def _event(extracted: ClaimsExtracted, judge: Judge, found: Verification) -> ClaimsVerified:
    return ClaimsVerified(extracted=extracted, judge=judge, verdicts=found.verdicts, usage=found.usage)
