"""The extraction service: recorded responses in, their claims out."""

from __future__ import annotations

from collections.abc import Sequence

from groundwatch.errors import GroundwatchError, Unscorable
from groundwatch.events import ClaimsExtracted, Judge, OutcomeKind, ResponseRecorded, ResponseScored, digest
from groundwatch.extraction.engines import build
from groundwatch.extraction.engines.base import Extraction, ExtractionEngine
from groundwatch.protocols.base import EvaluationProtocol, Stage
from groundwatch.runtime import outcomes
from groundwatch.runtime.bus import ENCODER, Bus, Outgoing
from groundwatch.runtime.metrics import Metrics
from groundwatch.runtime.service import StageService, find_protocol, next_stage
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.work import Publication, Result, Work
from groundwatch.topology import EXTRACTED, HEADER_RETRY, extracted_subject


class ExtractionService(StageService):
    """Where every response enters: each protocol's claims are found, declined ones get their outcome.

    Declining happens here and not at the door, so that the decision is in the stream before anything
    follows from it: a gateway that dies between two writes cannot unbalance the ledger.
    """

    def __init__(
        self, settings: Settings, bus: Bus, metrics: Metrics, engine: ExtractionEngine | None = None
    ) -> None:
        super().__init__(Stage.EXTRACTION.value, settings, bus, metrics)
        self.engine = engine or build(settings.extraction, on_call=self.count_request)
        self.consume(ResponseRecorded, self.handle, settings.extraction, self.engine)

    async def handle(self, works: Sequence[Work[ResponseRecorded]]) -> Sequence[Result]:
        """Extract for every protocol of every response, protocol by protocol for the engine's sake."""
        publications: list[list[Publication]] = [self._declined(work) for work in works]
        failures: list[dict[str, Exception]] = [{} for _ in works]
        wanted: dict[str, list[int]] = {}
        for index, work in enumerate(works):
            for name in await self._wanted(work):
                wanted.setdefault(name, []).append(index)
        for name, indices in wanted.items():
            protocol = find_protocol(name)
            if isinstance(protocol, GroundwatchError):
                for index in indices:
                    failures[index][name] = protocol
                continue
            judge = self.engine.judge(protocol)
            responses = [works[index].event for index in indices]
            results: Sequence[Extraction | GroundwatchError] = await self.judge_all(
                protocol, self.engine.extract, responses, judge
            )
            for index, response, result in zip(indices, responses, results, strict=True):
                match result:
                    case Unscorable():
                        publications[index].append(self._unscored(response, name, judge, result))
                    case GroundwatchError():
                        failures[index][name] = result
                    case _:
                        publications[index].append(self._extracted(response, protocol, judge, result))
        return [
            Result(publications=tuple(out), failures=failed)
            for out, failed in zip(publications, failures, strict=True)
        ]

    async def _wanted(self, work: Work[ResponseRecorded]) -> list[str]:
        response, arrived = work.event, work.arrived
        retried = HEADER_RETRY in arrived.headers
        # A dead letter that nobody could read names no protocols: now that it reads, it says so itself.
        names = (arrived.protocols if retried else ()) or response.protocols
        wanted = [name for name in names if name not in response.declined]
        if arrived.delivered == 1 or len(wanted) < 2:
            return wanted
        # Delivered again because one protocol failed: the others need not pay their judge twice.
        left = []
        for name in wanted:
            protocol = find_protocol(name)
            if isinstance(protocol, GroundwatchError):
                left.append(name)
                continue
            stage = next_stage(protocol, Stage.EXTRACTION)
            subject = extracted_subject(response.run, stage.value, name, response.key)
            if not await self.bus.holds(EXTRACTED, subject):
                left.append(name)
        return left

    def _declined(self, work: Work[ResponseRecorded]) -> list[Publication]:
        response = work.event
        return [
            self._outcome(outcomes.without_score(response, name, OutcomeKind.DECLINED, reason))
            for name, reason in response.declined.items()
            if name in response.protocols
        ]

    def _unscored(
        self, response: ResponseRecorded, protocol: str, judge: Judge, error: Unscorable
    ) -> Publication:
        return self._outcome(
            outcomes.without_score(
                response,
                protocol,
                OutcomeKind.UNSCORED,
                error.reason,
                detail=error.detail,
                judges={self.name: judge},
            )
        )

    def _outcome(self, outcome: ResponseScored) -> Publication:
        return Publication(outcomes.outgoing(outcome), lambda: self.metrics.outcome(outcome))

    def _extracted(
        self, response: ResponseRecorded, protocol: EvaluationProtocol, judge: Judge, found: Extraction
    ) -> Publication:
        event = ClaimsExtracted(
            response=response,
            protocol=protocol.name,
            judge=judge,
            units=found.units,
            claims=found.claims,
            usage=found.usage,
        )
        key = response.key
        stage = next_stage(protocol, Stage.EXTRACTION)
        return Publication(
            Outgoing(
                subject=extracted_subject(response.run, stage.value, protocol.name, key),
                payload=ENCODER.encode(event),
                message_id=digest(key, response.run, protocol.name, self.name, judge.fingerprint)[:32],
            )
        )
