"""The judge of `[second_opinion]`: a verification engine that is asked outside of its stage."""

from groundwatch.annotation.second_opinion import SecondOpinions
from groundwatch.events import OpinionAsked
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.settings.reading import with_second_judge
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.verification.engines import build


def second_opinions(settings: Settings, bus: Bus, metrics: Metrics) -> SecondOpinions:
    """Raises `SettingsError` where settings name no judge that can give another opinion."""
    chosen, protocols = with_second_judge(settings)
    made = SecondOpinions(chosen, bus, metrics, protocols)
    engine = build(
        chosen.verification,
        load_image=made.load_image,
        on_call=made.count_request,
        visual=chosen.visual,
        triton=chosen.triton,
        detector=chosen.detector,
    )
    stage = chosen.verification.model_copy(update={"concurrency": settings.second_opinion.concurrency})
    made.consume(OpinionAsked, made.handle, stage, engine)
    return made
