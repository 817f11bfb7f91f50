"""The extraction service: recorded responses in, their claims out."""

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial

import msgspec

from groundwatch.errors import GroundwatchError, InputError, Unscorable
from groundwatch.events import ClaimsExtracted, Judge, LeftOutKind, OutcomeKind, ResponseRecorded
from groundwatch.extraction.engines import build
from groundwatch.extraction.engines.base import Extraction, ExtractionEngine
from groundwatch.models.engines import attempt
from groundwatch.protocols.base import ChainProtocol, EvaluationProtocol, Stage
from groundwatch.reading.document import (
    ANOTHER_LANGUAGE,
    REASONING_ONLY,
    Document,
    keep_languages,
    read_document,
    with_places,
)
from groundwatch.runtime.delivery import outcomes
from groundwatch.runtime.delivery.bus import Bus, Outgoing
from groundwatch.runtime.delivery.work import Result, Work
from groundwatch.runtime.services.service import StageService, find_protocol, next_stage
from groundwatch.runtime.services.stages import chain_of
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import ASKED, EXTRACTED, subject_of


class ExtractionService(StageService):
    """Where every response enters: each protocol's claims are found, declined ones get their outcome.

    A protocol whose route does not begin here is sent on to where it does. A response that says why it has
    no answer is unscored for every protocol. Declining happens here and not at the door, so that the
    decision is in the stream before anything follows from it: a gateway that dies between two writes cannot
    unbalance the ledger.
    """

    engine: ExtractionEngine

    def __init__(
        self, settings: Settings, bus: Bus | None, metrics: Metrics, engine: ExtractionEngine | None = None
    ) -> None:
        super().__init__(Stage.EXTRACTION.value, settings, bus, metrics)
        engine = engine or build(settings.extraction, on_call=self.count_request)
        self.consume(ResponseRecorded, self.handle, settings.extraction, engine)

    async def handle(self, works: Sequence[Work[ResponseRecorded]]) -> Sequence[Result]:
        """Extract for every protocol of every response, protocol by protocol for the engine's sake."""
        publications: list[list[Outgoing]] = [self._declined(work) for work in works]
        failures: list[dict[str, Exception]] = [{} for _ in works]
        wanted: dict[str, list[int]] = {}
        documents: dict[int, Document] = {}
        for index, work in enumerate(works):
            for name in self._named(work) if work.arrived.first else await self._left(work):
                if work.event.unanswered is None:
                    wanted.setdefault(name, []).append(index)
                    continue
                why = Unscorable(work.event.unanswered.reason, work.event.unanswered.detail)
                publications[index].append(self._unscored(work.event, name, why))
        for name, indices in wanted.items():
            if missing := [index for index in indices if index not in documents]:
                read = await asyncio.to_thread(self._read, [works[index].event for index in missing])
                documents.update(zip(missing, read, strict=True))
            ends = await self._extract(
                name, [works[index].event for index in indices], [documents[index] for index in indices]
            )
            for index, end in zip(indices, ends, strict=True):
                if isinstance(end, GroundwatchError):
                    failures[index][name] = end
                else:
                    publications[index].append(end)
        return [
            Result(publications=tuple(out), failures=failed)
            for out, failed in zip(publications, failures, strict=True)
        ]

    def _read(self, responses: Sequence[ResponseRecorded]) -> list[Document]:
        """What the engine reads of each answer."""
        documents = []
        for response in responses:
            document = read_document(response.answer)
            if document.unread is None:
                document = keep_languages(document, self.engine.languages, response.prompt)
            documents.append(document)
            if (why := document.unread) is not None:
                language = why.detail if why.reason == ANOTHER_LANGUAGE else ""
                self.metrics.unread_answers.labels(why.reason, language).inc()
            for kind, detail in {(part.kind, part.detail) for part in document.left_out}:
                self.metrics.left_out.labels(kind.value, detail if kind is LeftOutKind.LANGUAGE else "").inc()
        return documents

    async def _extract(
        self, name: str, responses: Sequence[ResponseRecorded], documents: Sequence[Document]
    ) -> list[Outgoing | GroundwatchError]:
        protocol = find_protocol(name)
        if isinstance(protocol, GroundwatchError):
            return [protocol] * len(responses)
        if protocol.route[0] is not Stage.EXTRACTION:
            return [attempt(partial(self._sent_on, protocol), response) for response in responses]
        judge = self.engine.judge(protocol)
        readable = [
            msgspec.structs.replace(response, answer=document.text)
            for response, document in zip(responses, documents, strict=True)
            if document.unread is None
        ]
        results: Iterator[Extraction | GroundwatchError] = iter(
            await self.judge_all(protocol, self.engine.extract, readable, self.engine.judge, Extraction)
        )
        ends: list[Outgoing | GroundwatchError] = []
        for response, document in zip(responses, documents, strict=True):
            result = document.unread or next(results)
            match result:
                case Unscorable(reason=reason):
                    if reason == REASONING_ONLY:
                        result.values = protocol.values_without_answer(response)
                    ends.append(self._unscored(response, name, result, judge, document))
                case GroundwatchError():
                    ends.append(result)
                case _:
                    ends.append(self._extracted(response, protocol, judge, result, document))
        return ends

    def _named(self, work: Work[ResponseRecorded]) -> list[str]:
        declined = work.event.declined
        return [name for name in work.arrived.asked or work.event.protocols if name not in declined]

    async def _left(self, work: Work[ResponseRecorded]) -> list[str]:
        """Tried again because one protocol failed: the others need not pay their judge twice."""
        response, left = work.event, []
        for name in self._named(work):
            protocol = find_protocol(name)
            place = None if isinstance(protocol, GroundwatchError) else self._next(response, protocol)
            if not await self.done_before(work.arrived, response, name, place):
                left.append(name)
        return left

    def _next(self, response: ResponseRecorded, protocol: EvaluationProtocol) -> tuple[str, str]:
        """The stream and subject of what follows from the response."""
        run, name, key = response.run, protocol.name, response.key
        if (first := protocol.route[0]) is not Stage.EXTRACTION:
            return ASKED, subject_of("chain", run, first.value, name, key, "1")
        return EXTRACTED, subject_of("extracted", run, next_stage(protocol, first).value, name, key)

    def _sent_on(self, protocol: EvaluationProtocol, response: ResponseRecorded) -> Outgoing:
        if not isinstance(protocol, ChainProtocol):
            why = f"nothing can be sent to {protocol.route[0]} without extraction"
            raise InputError(f"{protocol.name}: {why}")
        try:
            return chain_of(protocol.start(response), protocol.route[0])
        except Unscorable as error:
            return self._unscored(response, protocol.name, error)

    def _declined(self, work: Work[ResponseRecorded]) -> list[Outgoing]:
        response = work.event
        return [
            self.publication_of(outcomes.without_score(response, name, OutcomeKind.DECLINED, reason))
            for name, reason in response.declined.items()
            if name in (work.arrived.asked or response.protocols)
        ]

    def _unscored(
        self,
        response: ResponseRecorded,
        protocol: str,
        error: Unscorable,
        judge: Judge | None = None,
        document: Document | None = None,
    ) -> Outgoing:
        outcome = outcomes.unscored(response, protocol, error, judges={self.name: judge} if judge else None)
        if document is not None and document.left_out:
            outcome = msgspec.structs.replace(outcome, left_out=document.left_out)
        return self.publication_of(outcome)

    def _extracted(
        self,
        response: ResponseRecorded,
        protocol: EvaluationProtocol,
        judge: Judge,
        found: Extraction,
        document: Document,
    ) -> Outgoing:
        event = ClaimsExtracted(
            response=response,
            protocol=protocol.name,
            judge=judge,
            units=found.units,
            claims=with_places(found.claims, document),
            usage=found.usage,
            left_out=document.left_out,
        )
        message_id = (response.key, response.run, protocol.name, self.name, judge.fingerprint)
        subject = self._next(response, protocol)[1]
        return Outgoing(subject=subject, payload=event, message_id=message_id)
