"""What two stages each share: claims in, the same claims judged out; a chain in, the same chain carried on.

The number of a chain's round is part of the subject that an event is created on, so that however often a
round is delivered, only its first result stays, and the chain goes on from that one alone.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from groundwatch.errors import GroundwatchError, InputError, Unscorable
from groundwatch.events import (
    ChainAdvanced,
    ClaimsExtracted,
    ClaimsMatched,
    ClaimsVerified,
    Judge,
    ResponseRecorded,
)
from groundwatch.protocols.base import ChainProtocol, EvaluationProtocol
from groundwatch.protocols.base import Stage as StageName
from groundwatch.runtime.delivery import outcomes
from groundwatch.runtime.delivery.bus import Outgoing
from groundwatch.runtime.delivery.work import Envelope, Result, Work
from groundwatch.runtime.services.service import StageService, find_protocol, next_stage
from groundwatch.topology import ASKED, JUDGED, subject_of

T = TypeVar("T")

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
                if not work.arrived.first:
                    place = (JUDGED, self._subject(work.event.response, protocol))
                    if await self.done_before(work.arrived, work.event.response, name, place):
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

    def _subject(self, response: ResponseRecorded, protocol: EvaluationProtocol) -> str:
        stage = next_stage(protocol, StageName(self.name))
        return subject_of("judged", response.run, stage.value, protocol.name, response.key)

    def _unscored(self, extracted: ClaimsExtracted, judge: Judge, error: Unscorable) -> Result:
        judges = {StageName.EXTRACTION.value: extracted.judge, self.name: judge}
        outcome = outcomes.unscored(
            extracted.response, extracted.protocol, error, judges=judges, usage=extracted.usage
        )
        return Result(publications=(self.publication_of(outcome),))

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
        return Result(publications=(message,))


def chain_of(chain: ChainAdvanced, to: StageName) -> Outgoing:
    """The chain as a message on its way to `to`."""
    response = chain.response
    judges = (f"{stage}={judge.fingerprint}" for stage, judge in sorted(chain.judges.items()))
    step = str(_round(chain, to))
    return Outgoing(
        subject=_place(chain, to)[1],
        payload=chain,
        message_id=(response.key, response.run, chain.protocol, to.value, step, *judges),
    )


def _round(chain: ChainAdvanced, to: StageName) -> int:
    """A description begins a round, so a chain that waits for one is already in the next."""
    return len(chain.steps) + (to is StageName.CAPTIONING)


def _place(chain: ChainAdvanced, to: StageName) -> tuple[str, str]:
    response = chain.response
    if to is StageName.SCORING:
        return JUDGED, subject_of("judged", response.run, to.value, chain.protocol, response.key)
    subject = subject_of(
        "chain", response.run, to.value, chain.protocol, response.key, str(_round(chain, to))
    )
    return ASKED, subject


class ChainService(StageService):
    """A stage that carries chains on. Subclasses say how."""

    def chain_protocol(self, chain: ChainAdvanced) -> ChainProtocol:
        """The chain's protocol. Raises `InputError` when it is unknown or not one of chains."""
        protocol = find_protocol(chain.protocol)
        if isinstance(protocol, GroundwatchError):
            raise protocol
        if not isinstance(protocol, ChainProtocol):
            raise InputError(f"{protocol.name} is no protocol of chains")
        return protocol

    async def already_done(self, arrived: Envelope, done: ChainAdvanced, to: StageName) -> bool:
        """Whether an earlier delivery has carried the chain on, to as many rounds as `done` has."""
        return not arrived.first and await self.bus.holds(*_place(done, to))

    async def ask(
        self, call: Callable[[Sequence[T]], Awaitable[Sequence[Any]]], asked: Sequence[tuple[Judge, T]]
    ) -> list[Any]:
        """What the engine answers each, in order: judge by judge, so that each is counted for its own."""
        groups: dict[Judge, list[int]] = defaultdict(list)
        for place, (judge, _) in enumerate(asked):
            groups[judge].append(place)
        answers: dict[int, Any] = {}
        for judge, places in groups.items():
            found = await self.counted(call, [asked[place][1] for place in places], judge)
            answers.update(zip(places, found, strict=True))
        return [answers[place] for place in range(len(asked))]

    def carried_on(self, chain: ChainAdvanced, judge: Judge, to: StageName) -> Result:
        """The chain, with this stage's judge, to the next stage."""
        judges = {**chain.judges, self.name: judge}
        return Result(publications=(chain_of(msgspec.structs.replace(chain, judges=judges), to),))

    def check_judge(self, chain: ChainAdvanced, judge: Judge) -> None:
        """Raises `Unscorable` when earlier rounds had another judge: one score is never of two."""
        before = chain.judges.get(self.name)
        if before is not None and before != judge:
            detail = f"rounds before {_round(chain, StageName(self.name))} were by {before.fingerprint}"
            raise Unscorable("judge_changed", f"{detail}, now it is {judge.fingerprint}")

    def not_carried_on(
        self, chain: ChainAdvanced, error: GroundwatchError, judge: Judge | None = None
    ) -> Result:
        """The end of the chain for a reason, or a failure that the runtime deals with."""
        if not isinstance(error, Unscorable):
            return Result(failures={chain.protocol: error})
        outcome = outcomes.unscored_chain(chain, error, {self.name: judge} if judge else None)
        return Result(publications=(self.publication_of(outcome),))
