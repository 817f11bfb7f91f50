"""MHaluBench's files: the claims of answers, with people's labels, in a JSON list.

Source: Unified Hallucination Detection for Multimodal Large Language Models (Chen et al., ACL 2024). An item
has its `image_path`, and in the validation files `response`, `task_type` and `segments`, each with its
`claims` (`claim`, `claim_label`) and its own `segment_label`. The training file has `claim_list` beside
`ref_claim_label`. A label is hallucination or non-hallucination; a segment without one is hallucinated where
one of its claims is, as in the paper.
"""

from pathlib import Path, PureWindowsPath

import msgspec

from groundwatch.protocols.people import LabelledAnswer
from groundwatch.protocols.published import Place, json_items


class _Claim(msgspec.Struct):
    claim: str
    claim_label: str


class _Segment(msgspec.Struct):
    claims: list[_Claim]
    segment_label: str = ""


class _Item(msgspec.Struct):
    image_path: str
    response: str = ""
    task_type: str = ""
    segments: list[_Segment] | None = None
    claim_list: list[str] | None = None
    ref_claim_label: list[str] = []


def read_labelled(path: Path) -> list[LabelledAnswer]:
    """Raises `FileFormatError` naming file, line and key."""
    return [_answer(place, place.read(value, _Item)) for place, value in json_items(path)]


def _answer(place: Place, item: _Item) -> LabelledAnswer:
    claims: list[str] = []
    labels: list[bool] = []
    segments: list[tuple[range, bool]] = []
    for segment in item.segments if item.segments is not None else _as_segments(place, item):
        own = [_label(place, "claim_label", one.claim_label) for one in segment.claims]
        given = segment.segment_label
        whole = _label(place, "segment_label", given) if given else any(own)
        segments.append((range(len(labels), len(labels) + len(own)), whole))
        claims += [one.claim for one in segment.claims]
        labels += own
    return LabelledAnswer(
        # Only the name: the path is that of the machine on which the answers were labelled.
        image=PureWindowsPath(item.image_path).name,
        answer=item.response,
        task=item.task_type,
        claims=tuple(claims),
        hallucinated=tuple(labels),
        segments=tuple(segments),
    )


def _as_segments(place: Place, item: _Item) -> list[_Segment]:
    if item.claim_list is None:
        raise place.wrong("key 'segments': is missing, and so is 'claim_list'")
    if len(item.claim_list) != len(item.ref_claim_label):
        why = f"{len(item.ref_claim_label)} labels for {len(item.claim_list)} claims"
        raise place.wrong(f"key 'ref_claim_label': {why}")
    return [_Segment([_Claim(*one)]) for one in zip(item.claim_list, item.ref_claim_label, strict=True)]


def _label(place: Place, key: str, label: str) -> bool:
    match label.strip().casefold():
        case "hallucination" | "non-hallucination" as found:
            return found == "hallucination"
    raise place.wrong(f"key '{key}': expected hallucination or non-hallucination")
