"""Any service of the system, made from settings."""

from groundwatch.errors import UsageError
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.services.service import Service
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.telemetry.metrics import Metrics

STAGES = (
    "gateway",
    "extraction",
    "captioning",
    "generation",
    "matching",
    "verification",
    "scoring",
    "archive",
)
"""Services of `groundwatch up`."""

SERVED = (*STAGES, "replay")
"""Services that may have processes of their own."""


def make_service(name: str, settings: Settings, bus: Bus, metrics: Metrics) -> Service:
    """The service of this name. Imported only when wanted: a light one must not pay for a heavy one."""
    match name:
        case "gateway":
            from groundwatch.gateway.service import GatewayService
            from groundwatch.replay.watching import RunGauges

            gauges = RunGauges(bus, metrics.replay)
            if settings.gateway.grpc_port < 0:
                return GatewayService(settings, bus, metrics, run_gauges=gauges)
            from groundwatch.replay.manager import ReplayManager

            return GatewayService(settings, bus, metrics, ReplayManager(settings), gauges)
        case "extraction":
            from groundwatch.extraction.service import ExtractionService

            return ExtractionService(settings, bus, metrics)
        case "captioning":
            from groundwatch.captioning.service import CaptioningService

            return CaptioningService(settings, bus, metrics)
        case "generation":
            from groundwatch.generation.service import GenerationService

            return GenerationService(settings, bus, metrics)
        case "matching":
            from groundwatch.matching.service import MatchingService

            return MatchingService(settings, bus, metrics)
        case "verification":
            from groundwatch.verification.service import VerificationService

            return VerificationService(settings, bus, metrics)
        case "scoring":
            from groundwatch.scoring.service import ScoringService

            return ScoringService(settings, bus, metrics)
        case "archive":
            from groundwatch.archive.service import ArchiveService

            return ArchiveService(settings, bus, metrics)
        case "replay":
            from groundwatch.replay.service import ReplayService

            return ReplayService(settings, bus, metrics)
    raise UsageError(f"no service '{name}'; there are {', '.join(SERVED)}")


def metrics_for(settings: Settings) -> Metrics:
    """The metrics of a process, as settings want them."""
    return Metrics(max_labels=settings.telemetry.max_labels, version_tags=settings.telemetry.version_tags)
