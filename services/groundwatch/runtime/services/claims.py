"""What verification and matching share: claims in, the same claims judged out."""

from collections.abc import Callable, Sequence
from typing import Any

from groundwatch.errors import GroundwatchError, Unscorable
from groundwatch.events import (
    ClaimsExtracted,
    ClaimsMatched,
    ClaimsVerified,
    Judge,
    OutcomeKind,
    ResponseRecorded,
)
from groundwatch.protocols.base import EvaluationProtocol
from groundwatch.protocols.base import Stage as StageName
from groundwatch.runtime.delivery import outcomes
from groundwatch.runtime.delivery.bus import Outgoing
from groundwatch.runtime.delivery.work import Publication, Result, Work
from groundwatch.runtime.services.service import StageService, find_protocol, next_stage
from groundwatch.topology import JUDGED, judged_subject

Judged = ClaimsVerified | ClaimsMatched


class ClaimService(StageService):
    """A stage that judges claims. Subclasses say which engine call and which event."""

    async def judge_claims(
        self,
        works: Sequence[Work[ClaimsExtracted]],
        judge_of: Callable[[EvaluationProtocol], Judge],
        call: Any,
        event_of: Callable[[ClaimsExtracted, Judge, Any], Judged],
        nothing: Any,
    ) -> Sequence[Result | GroundwatchError]:
        """Judge each event's claims; events without claims pass on with `nothing`, unasked."""
        results: list[Result | GroundwatchError] = [Result() for _ in works]
        groups: dict[str, list[int]] = {}
        for index, work in enumerate(works):
            groups.setdefault(work.event.protocol, []).append(index)
        for name, indices in groups.items():
            protocol = find_protocol(name)
            if isinstance(protocol, GroundwatchError):
                for index in indices:
                    results[index] = protocol
                continue
            judge = judge_of(protocol)
            asked = []
            for index in indices:
                work = works[index]
                if not work.arrived.first and await self._done_before(work, protocol):
                    continue
                if work.event.claims:
                    asked.append(index)
                else:
                    results[index] = self._passed_on(event_of(work.event, judge, nothing), protocol)
            if not asked:
                continue
            answers: Sequence[Any] = await self.judge_all(
                protocol, call, [works[index].event for index in asked], judge_of, type(nothing)
            )
            for index, answer in zip(asked, answers, strict=True):
                extracted = works[index].event
                match answer:
                    case Unscorable():
                        results[index] = self._unscored(extracted, judge, answer)
                    case GroundwatchError():
                        results[index] = Result(failures={name: answer})
                    case _:
                        results[index] = self._passed_on(event_of(extracted, judge, answer), protocol)
        return results

    async def _done_before(self, work: Work[ClaimsExtracted], protocol: EvaluationProtocol) -> bool:
        response = work.event.response
        place = (JUDGED, self._subject(response, protocol))
        return await self.done_before(work.arrived, response, protocol.name, place)

    def _subject(self, response: ResponseRecorded, protocol: EvaluationProtocol) -> str:
        stage = next_stage(protocol, StageName(self.name))
        return judged_subject(response.run, stage.value, protocol.name, response.key)

    def _unscored(self, extracted: ClaimsExtracted, judge: Judge, error: Unscorable) -> Result:
        outcome = outcomes.without_score(
            extracted.response,
            extracted.protocol,
            OutcomeKind.UNSCORED,
            error.reason,
            detail=error.detail,
            judges={StageName.EXTRACTION.value: extracted.judge, self.name: judge},
            usage=extracted.usage,
        )
        return Result(
            publications=(Publication(outcomes.outgoing(outcome), lambda: self.metrics.outcome(outcome)),)
        )

    def _passed_on(self, judged: Judged, protocol: EvaluationProtocol) -> Result:
        response = judged.extracted.response
        message = Outgoing(
            subject=self._subject(response, protocol),
            payload=judged,
            message_id=(
                response.key,
                response.run,
                protocol.name,
                self.name,
                judged.extracted.judge.fingerprint,
                judged.judge.fingerprint,
            ),
        )
        return Result(publications=(Publication(message),))
