"""VALOR's files in, its numbers out.

A file holds features that are extracted already (`image_id, gt_words, generated_words`), or responses
(`image_id` with `answer`, `caption`, `generated_caption` or `text`) beside the benchmark's annotation.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from groundwatch.errors import GroundwatchError, TransientError, Unscorable, UsageError
from groundwatch.events import Claim, ClaimsExtracted, ClaimsMatched, Judge, Reference, ResponseRecorded
from groundwatch.extraction import engines as extraction
from groundwatch.extraction.engines.base import Extraction, ExtractionEngine
from groundwatch.matching import engines as matching
from groundwatch.matching.engines import Matching, MatchingEngine
from groundwatch.protocols import registry
from groundwatch.protocols.features import attribute_pairs, written
from groundwatch.protocols.method import Progress, Result
from groundwatch.protocols.published import json_lines, write_lines
from groundwatch.protocols.valor.files import (
    SUBSETS,
    Unmatched,
    after_matching,
    extracted_record,
    read_annotations,
    read_unmatched,
    subset_of,
)
from groundwatch.protocols.valor.protocol import Valor, matched_of, pairs_of
from groundwatch.protocols.valor.scoring import Matched, Subset, measure, protocol_name
from groundwatch.runtime.settings import Settings

T = TypeVar("T")

BATCH = 32

ANSWERS = ("answer", "caption", "generated_caption", "text")
"""Keys under which the works write what a model said of an image."""


async def judge_file(
    file: Path,
    *,
    subset: str | None,
    annotation: Path | None,
    out: Path | None,
    settings: Settings,
    progress: Progress,
) -> Result:
    if subset is None:
        raise UsageError(f"valor needs a subset: one of {SUBSETS}", "subset")
    return await score_valor(
        file,
        subset_of(subset),
        annotation,
        lambda: extraction.build(settings.extraction),
        matching.build(settings.matching),
        out,
        partial(progress, f"judging with valor, {subset}"),
    )


async def score_valor(
    file: Path,
    subset: Subset,
    annotation: Path | None,
    extraction: Callable[[], ExtractionEngine],
    matching: MatchingEngine,
    out: Path | None,
    progress: Callable[[int, int], None],
) -> Result:
    """Judge a file and write what was matched to `out`; the numbers are those of the works' own arithmetic.

    A response whose engine could not judge it counts in `unjudged`, with its reason, and in nothing else.
    """
    protocol = registry.get(protocol_name(subset))
    assert isinstance(protocol, Valor)
    try:
        if annotation is None:
            prepared = [_features_event(record, protocol) for record in read_unmatched(file, subset)]
            unjudged: dict[str, int] = {}
        else:
            prepared, unjudged = await _extracted(file, annotation, protocol, extraction, progress)
        measured: list[Matched] = []
        records: list[dict[str, object]] = []
        for part in _parts(prepared):
            for record, judged in await _matched(part, protocol, matching, unjudged):
                measured.append(matched_of(judged))
                records.append(after_matching(record, *pairs_of(judged), subset))
            progress(len(measured) + sum(unjudged.values()), len(prepared))
    finally:
        await matching.close()
    if out is not None:
        write_lines(out, records)
    return {
        "protocol": "valor",
        "subset": subset.value,
        **measure(measured, subset, in_order=protocol.in_order),
        "unjudged": unjudged,
        "judge": msgspec.to_builtins(matching.judge(protocol)),
    }


def _features_event(record: Unmatched, protocol: Valor) -> tuple[Unmatched, ClaimsExtracted]:
    claims = []
    for text in record.generated:
        pairs = attribute_pairs(text)
        parts = pairs[0] if len(pairs) == 1 else ()
        claims.append(Claim(text=text, category=protocol.category, parts=parts))
    response = ResponseRecorded(id=record.image_id, model="extracted", answer="")
    found = Extraction(units=(), claims=tuple(claims))
    return record, _event(response, record, protocol, Judge(engine="extracted"), found)


def _event(
    response: ResponseRecorded, record: Unmatched, protocol: Valor, judge: Judge, found: Extraction
) -> ClaimsExtracted:
    reference = Reference(objects=tuple(map(written, record.reference)))
    return ClaimsExtracted(
        response=msgspec.structs.replace(response, reference=reference),
        protocol=protocol.name,
        judge=judge,
        units=found.units,
        claims=found.claims,
    )


async def _extracted(
    file: Path,
    annotation: Path,
    protocol: Valor,
    build: Callable[[], ExtractionEngine],
    progress: Callable[[int, int], None],
) -> tuple[list[tuple[Unmatched, ClaimsExtracted]], dict[str, int]]:
    annotated = {one.image_id: one for one in read_annotations(annotation, protocol.subset)}
    responses = list(_responses(file))
    known = [response for response in responses if response.id in annotated]
    if not known:
        raise UsageError(f"{file}: no response is about an image of {annotation}")
    unjudged: dict[str, int] = {}
    if len(known) < len(responses):
        unjudged["not_annotated"] = len(responses) - len(known)
    engine = build()
    judge = engine.judge(protocol)
    prepared = []
    try:
        for part in _parts(known):
            for response, found in zip(part, await engine.extract(part, protocol), strict=True):
                if not isinstance(found, Extraction):
                    _note(unjudged, found)
                    continue
                generated = tuple(claim.text for claim in found.claims)
                record = extracted_record(annotated[response.id], generated, response.answer, protocol.subset)
                prepared.append((record, _event(response, record, protocol, judge, found)))
            progress(len(prepared), 2 * len(known))
    finally:
        await engine.close()
    return prepared, unjudged


async def _matched(
    part: Sequence[tuple[Unmatched, ClaimsExtracted]],
    protocol: Valor,
    matching: MatchingEngine,
    unjudged: dict[str, int],
) -> list[tuple[Unmatched, ClaimsMatched]]:
    judge = matching.judge(protocol)
    asked = [event for _, event in part if event.claims]
    answers = iter(await matching.match(asked, protocol))
    judged = []
    for record, event in part:
        answer = next(answers) if event.claims else Matching()
        if isinstance(answer, Matching):
            judged.append((record, ClaimsMatched(extracted=event, judge=judge, matches=answer.matches)))
        else:
            _note(unjudged, answer)
    return judged


def _note(unjudged: dict[str, int], error: GroundwatchError) -> None:
    """Count what was not judged by its reason; raises what is nobody's judgement."""
    if not isinstance(error, Unscorable | TransientError):
        raise error
    reason = error.reason if isinstance(error, Unscorable) else "unavailable"
    unjudged[reason] = unjudged.get(reason, 0) + 1


def _responses(file: Path) -> Iterator[ResponseRecorded]:
    for place, record in json_lines(file):
        tags = record.get("tags")
        image = record.get("image_id", tags.get("image_id") if isinstance(tags, dict) else None)
        if not isinstance(image, str | int) or isinstance(image, bool):
            raise place.wrong("key 'image_id': expected the image that the response is about")
        answer = next((record[key] for key in ANSWERS if isinstance(record.get(key), str)), None)
        if answer is None:
            raise place.wrong(f"key 'answer': expected a text (or under {', '.join(ANSWERS[1:])})")
        yield ResponseRecorded(id=str(image), model=str(record.get("model", "")), answer=answer)


def _parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), BATCH):
        yield items[start : start + BATCH]
