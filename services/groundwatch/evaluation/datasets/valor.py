"""VALOR-Bench, section 3.1.2 and Appendix B: images that lack what usually comes along."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from groundwatch.errors import UsageError
from groundwatch.evaluation.datasets.lines import write_lines
from groundwatch.protocols.valor.benchmark import (
    CoOccurrence,
    Feature,
    Kind,
    Selected,
    Skew,
    dependent_objects,
    most_skewed,
    read_scenes,
    select,
)

MEASURES = Skew.__struct_fields__


def choose_valor(
    scene_graphs: Path,
    out: Path | None,
    *,
    kind: Kind,
    measure: str,
    top: int,
    least: int,
    by_frequency: bool,
) -> dict[str, Any]:
    """What was chosen; with `out` one rare feature of an object a line is written there.

    `measure` is one of `MEASURES`. Raises `FileFormatError` naming file, line and key.
    """
    if measure not in MEASURES:
        raise UsageError(f"no measure '{measure}': one of {', '.join(MEASURES)}", "measure")
    table = CoOccurrence(read_scenes(scene_graphs))
    dependent = dependent_objects(table, kind, least=least, by_frequency=by_frequency)
    chosen = select(table, most_skewed(table, dependent, measure, kind, top), kind)
    if out is not None:
        write_lines(out, [line for one in chosen for line in _lines(table, one)])
    return {
        "scenes": len(table.scenes),
        "objects": len(table.objects),
        "kind": kind.value,
        "measure": measure,
        "least": least,
        "dependent": len(dependent),
        "images": len({image for one in chosen for image in _images(one)}),
        "chosen": [_selected(table, one, kind) for one in chosen],
    }


def _selected(table: CoOccurrence, one: Selected, kind: Kind) -> dict[str, Any]:
    return {
        "object": one.object,
        "images_with_it": table.objects[one.object],
        "skew": msgspec.to_builtins(table.skew(one.object, kind)),
        "usual": [_feature(table, one.object, feature) for feature in one.usual],
        "rare": [_feature(table, one.object, feature) for feature in one.rare],
        "images": sorted(_images(one)),
    }


def _images(one: Selected) -> set[str]:
    return {image for images in one.images.values() for image in images}


def _lines(table: CoOccurrence, one: Selected) -> list[dict[str, Any]]:
    usual = [feature.value for feature in one.usual]
    return [
        {"object": one.object, **_feature(table, one.object, feature), "usual": usual, "images": list(images)}
        for feature, images in one.images.items()
    ]


def _feature(table: CoOccurrence, name: str, feature: Feature) -> dict[str, Any]:
    return {
        "kind": feature.kind.value,
        "value": feature.value,
        "frequency": table.frequency(feature, name),
        "probability": table.probability(feature, name),
    }
