"""VALOR's files in, its numbers out.

A file holds features that are extracted already (`image_id, gt_words, generated_words`), or responses
(`image_id` with `answer`, `caption`, `generated_caption` or `text`) beside the benchmark's annotation. They
are judged by the services' own handlers, from matching or from extraction on.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec

from groundwatch.errors import TransientError, UsageError
from groundwatch.events import Claim, ClaimsExtracted, ClaimsMatched, Judge, Reference, ResponseRecorded
from groundwatch.matching.engines import build
from groundwatch.models.asking import CallKind
from groundwatch.protocols import registry
from groundwatch.protocols.base import Stage
from groundwatch.protocols.features import attribute_pairs, written
from groundwatch.protocols.method import Progress, Result
from groundwatch.protocols.valor.protocol import Valor, matched_of, pairs_of
from groundwatch.protocols.valor.scoring import Matched, protocol_name
from groundwatch.replay.pipeline import Pair, Pipeline
from groundwatch.runtime.delivery.work import Result as Handled
from groundwatch.runtime.settings import Settings
from groundwatch_benchmarks.json_files import json_lines, write_lines
from groundwatch_benchmarks.methods.valor.files import (
    SUBSETS,
    Annotation,
    Unmatched,
    after_matching,
    extracted_record,
    read_annotations,
    read_unmatched,
    subset_of,
)
from groundwatch_benchmarks.methods.valor.suite import measure

BATCH = 32

ANSWERS = ("answer", "caption", "generated_caption", "text")
"""Keys under which the works write what a model said of an image."""


class _OfFile(Pair):
    """A response of a file. What it is not to blame for, such as a wrong key, ends the command at once."""

    def take(self, result: Handled | Exception) -> Exception | None:
        error = super().take(result)
        passes = isinstance(error, TransientError) and error.kind != CallKind.MISCONFIGURED
        if error is not None and not passes:
            raise error
        return error


async def judge_file(
    file: Path,
    *,
    subset: str | None,
    annotation: Path | None,
    out: Path | None,
    settings: Settings,
    progress: Progress,
) -> Result:
    """Judge a file and write what was matched to `out`; the numbers are those of the works' own arithmetic.

    A response that could not be judged counts in `unjudged`, with its reason, and in nothing else.
    """
    if subset is None:
        raise UsageError(f"valor needs a subset: one of {SUBSETS}", "subset")
    protocol = registry.get(protocol_name(subset_of(subset)))
    assert isinstance(protocol, Valor)
    tell = partial(progress, f"judging with valor, {subset}")
    unjudged: Counter[str] = Counter()
    known: Sequence[tuple[Unmatched | Annotation, Pair]]
    if annotation is None:
        start = Stage.MATCHING
        known = [(record, _features(record, protocol)) for record in read_unmatched(file, protocol.subset)]
    else:
        start = Stage.EXTRACTION
        known = _annotated(file, annotation, protocol, unjudged)
    measured: list[Matched] = []
    records: list[dict[str, object]] = []
    engine = build(settings.matching)
    pipeline = Pipeline(settings, engines={Stage.MATCHING: engine})
    try:
        for at in range(0, len(known), BATCH):
            part = known[at : at + BATCH]
            await pipeline.judge(start, [pair for _, pair in part])
            for source, pair in part:
                events = (message.payload for message in pair.messages)
                judged = next((one for one in events if isinstance(one, ClaimsMatched)), None)
                if judged is None:
                    unjudged[pair.outcome.reason] += 1
                    continue
                measured.append(matched_of(judged))
                record = _record(source, judged.extracted, protocol)
                records.append(after_matching(record, *pairs_of(judged), protocol.subset))
            tell(at + len(part), len(known))
    finally:
        await pipeline.close()
    if out is not None:
        write_lines(out, records)
    return {
        "protocol": "valor",
        "subset": subset,
        **measure(measured, protocol.subset, in_order=protocol.in_order),
        "unjudged": dict(unjudged),
        "judge": msgspec.to_builtins(engine.judge(protocol)),
    }


def _features(record: Unmatched, protocol: Valor) -> Pair:
    claims = []
    for text in record.generated:
        pairs = attribute_pairs(text)
        parts = pairs[0] if len(pairs) == 1 else ()
        claims.append(Claim(text=text, category=protocol.category, parts=parts))
    response = ResponseRecorded(
        id=record.image_id,
        model="extracted",
        answer="",
        reference=Reference(objects=tuple(map(written, record.reference))),
    )
    event = ClaimsExtracted(
        response=response, protocol=protocol.name, judge=Judge(engine="extracted"), claims=tuple(claims)
    )
    return _OfFile(event, protocol.name)


def _annotated(
    file: Path, annotation: Path, protocol: Valor, unjudged: Counter[str]
) -> list[tuple[Annotation, _OfFile]]:
    """The responses of a file that are about an image of the annotation; the others are counted."""
    annotated = {one.image_id: one for one in read_annotations(annotation, protocol.subset)}
    known = []
    for response in _responses(file):
        if (one := annotated.get(response.id)) is None:
            unjudged["not_annotated"] += 1
            continue
        reference = Reference(objects=tuple(map(written, one.reference)))
        known.append((one, _OfFile(msgspec.structs.replace(response, reference=reference), protocol.name)))
    if not known:
        raise UsageError(f"{file}: no response is about an image of {annotation}")
    return known


def _record(source: Unmatched | Annotation, extracted: ClaimsExtracted, protocol: Valor) -> Unmatched:
    if isinstance(source, Unmatched):
        return source
    generated = tuple(claim.text for claim in extracted.claims)
    return extracted_record(source, generated, extracted.response.answer, protocol.subset)


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
