"""Judged questions out of scored responses: the lines that `groundwatch score tri-he … --out` writes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from pathlib import PurePath
from typing import Any

from groundwatch.protocols.published import Place
from groundwatch.protocols.trihe.protocol import TriHe
from groundwatch.protocols.trihe.scoring import JudgedQuestion, JudgedTriplet, Part, Triplet
from groundwatch.protocols.trihe.wording import part_of

IMAGE_TAGS = ("image_id", "image")
"""The tags that name a response's image, the first one that is there."""

_HALLUCINATED = {"supported": False, "refuted": True, "undecided": None}


def judged_outcomes(lines: Iterable[tuple[Place, dict[str, Any]]]) -> list[JudgedQuestion]:
    """One question for each response that was judged, its image by tag, else by its own id.

    Raises `FileFormatError` naming file, line and key, also for another protocol's outcomes.
    """
    found = []
    for place, record in lines:
        protocol = place.take(record, "protocol", str, "a text")
        if protocol != TriHe.name:
            raise place.wrong(f"key 'protocol': expected {TriHe.name}, not {protocol}")
        if place.take(record, "outcome", str, "a text") == "declined":
            continue
        tags = record.get("tags", {})
        if not isinstance(tags, dict):
            raise place.wrong("key 'tags': expected an object")
        image = next((tags[tag] for tag in IMAGE_TAGS if isinstance(tags.get(tag), str)), None)
        name = PurePath(image).stem if image else place.take(record, "id", str, "a text")
        found.append(JudgedQuestion(image=name, triplets=_triplets(place, record)))
    return found


def _triplets(place: Place, record: dict[str, Any]) -> tuple[JudgedTriplet, ...]:
    claims, units = _objects(place, record, "claims"), _objects(place, record, "units")
    ends = list(accumulate(len(place.take(unit, "text", str, "a text").split()) for unit in units))
    found = []
    for claim in claims:
        decision = place.take(claim, "decision", str, "a text")
        if decision not in _HALLUCINATED:
            raise place.wrong(f"key 'decision': expected one of {', '.join(_HALLUCINATED)}")
        unit = place.take(claim, "unit", int, "a number")
        found.append(
            JudgedTriplet(
                hallucinated=_HALLUCINATED[decision],
                part=_part(claim, decision),
                triplet=_triplet(place, claim),
                tokens=ends[unit] if 0 <= unit < len(ends) else None,
            )
        )
    return tuple(found)


def _part(claim: dict[str, Any], decision: str) -> Part | None:
    evidence = claim.get("evidence", "")
    return part_of(evidence) if decision == "refuted" and isinstance(evidence, str) else None


def _triplet(place: Place, claim: dict[str, Any]) -> Triplet | None:
    parts = claim.get("parts", [])
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise place.wrong("key 'parts': expected a list of texts")
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 else None


def _objects(place: Place, record: dict[str, Any], key: str) -> list[dict[str, Any]]:
    found = record.get(key, [])
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise place.wrong(f"key '{key}': expected a list of objects")
    return found
