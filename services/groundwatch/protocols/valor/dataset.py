"""VALOR-Bench, section 3.1.2 and Appendix B: images that lack what usually comes along."""

from pathlib import Path
from typing import Annotated, Any

import msgspec

from groundwatch.errors import UsageError
from groundwatch.protocols.method import CommandResult
from groundwatch.protocols.published import write_lines
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
from groundwatch.terminal import Group, RenderableType, Table, box, lines

MEASURES = Skew.__struct_fields__


def build_dataset(
    scene_graphs: Annotated[Path, msgspec.Meta(description="Scene graphs in GQA's format (JSON).")],
    *,
    kind: Annotated[
        Kind, msgspec.Meta(description="What comes along with an object: another one, a quality, a relation.")
    ] = Kind.OBJECT,
    measure: Annotated[
        str, msgspec.Meta(description=f"Appendix B's measure to rank by: {', '.join(MEASURES)}.")
    ] = "highest",
    top: Annotated[int, msgspec.Meta(ge=1, description="How many of the most skewed objects.")] = 10,
    least: Annotated[int, msgspec.Meta(ge=1, description="Leave out objects that fewer images have.")] = 5,
    by_frequency: Annotated[
        bool, msgspec.Meta(description="Step 1 by frequencies instead of probabilities.")
    ] = False,
    out: Annotated[
        Path | None,
        msgspec.Meta(description="Write the selection here, one rare feature of an object a line."),
    ] = None,
) -> CommandResult:
    """Choose images that lack what usually comes along (VALOR-Bench, section 3.1.2 and Appendix B)."""
    if measure not in MEASURES:
        raise UsageError(f"no measure '{measure}': one of {', '.join(MEASURES)}", "measure")
    table = CoOccurrence(read_scenes(scene_graphs))
    dependent = dependent_objects(table, kind, least=least, by_frequency=by_frequency)
    chosen = select(table, most_skewed(table, dependent, measure, kind, top), kind)
    if out is not None:
        write_lines(out, [line for one in chosen for line in _lines(table, one)])
    found: dict[str, Any] = {
        "scenes": len(table.scenes),
        "objects": len(table.objects),
        "kind": kind.value,
        "measure": measure,
        "least": least,
        "dependent": len(dependent),
        "images": len({image for one in chosen for image in _images(one)}),
        "chosen": [_selected(table, one, kind) for one in chosen],
    }
    return CommandResult(numbers=found, table=_table(found))


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


def _table(found: dict[str, Any]) -> RenderableType:
    title = (
        f"{found['scenes']} scenes with {found['objects']} objects; {found['dependent']} are what some "
        f"{found['kind']} depends on most; of these the most skewed by {found['measure']}"
    )
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("object")
    for name in ("in images", *(name.replace("_over_", " −\n") for name in MEASURES)):
        table.add_column(lines(*name.split("\n")), justify="right")
    table.add_column("usual")
    table.add_column("rare")
    table.add_column(lines("chosen", "images"), justify="right")
    for one in found["chosen"]:
        table.add_row(
            one["object"],
            str(one["images_with_it"]),
            *(f"{one['skew'][name]:.3f}" for name in MEASURES),
            _named(one["usual"]),
            _named(one["rare"]),
            str(len(one["images"])),
        )
    return Group(table, f"{found['images']} images in all.")


def _named(features: list[dict[str, Any]]) -> str:
    shown = [one["value"] for one in features[:3]]
    return ", ".join(shown) + (f" and {len(features) - 3} more" if len(features) > 3 else "")
