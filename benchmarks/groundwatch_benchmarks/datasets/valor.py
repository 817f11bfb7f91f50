"""Building a benchmark as VALOR-Bench was built: images that lack what usually comes along.

Source: VALOR-EVAL, section 3.1 (equations 1 to 5) and Appendix B. Scene graphs are in GQA's format. A
frequency is a number of images, so that a conditional probability never passes 1.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from groundwatch.errors import UsageError
from groundwatch.protocols.method import CommandResult
from groundwatch.terminal import Group, RenderableType, Table, box, lines
from groundwatch_benchmarks.datasets.scene_graphs import ImageGraph, read_scene_graphs
from groundwatch_benchmarks.json_files import write_lines

MEASURES = ("highest", "average", "highest_over_average", "average_over_lowest", "highest_over_lowest")


class Kind(StrEnum):
    """What comes along with an object: another one, a quality of it, or what it does with another one."""

    OBJECT = "object"
    ATTRIBUTE = "attribute"
    RELATION = "relation"


class Feature(NamedTuple):
    """Something that an object comes along with: ("object", "fork") or ("relation", "on table")."""

    kind: Kind
    value: str


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """One image: every object's name with every feature that some object of that name has."""

    image_id: str
    features: dict[str, frozenset[Feature]]


class Selected(msgspec.Struct, frozen=True, kw_only=True):
    """What the steps chose of one object: rare features (I), usual ones (H), and images of each rare one."""

    object: str
    rare: tuple[Feature, ...]
    usual: tuple[Feature, ...]
    images: dict[Feature, tuple[str, ...]]


class CoOccurrence:
    """Frequencies and conditional probabilities over scenes (equation 1)."""

    def __init__(self, scenes: Iterable[Scene]) -> None:
        self.scenes = tuple(scenes)
        self.objects: Counter[str] = Counter()
        self.together: dict[str, Counter[Feature]] = defaultdict(Counter)
        for scene in self.scenes:
            for name, features in scene.features.items():
                self.objects[name] += 1
                self.together[name].update(features)

    def probabilities(self, name: str, kind: Kind | None = None) -> dict[Feature, float]:
        """Equation 1, P(feature | object), for every feature that occurs with the object."""
        return {
            feature: number / self.objects[name]
            for feature, number in self.together.get(name, {}).items()
            if kind is None or feature.kind is kind
        }

    def skew(self, name: str, kind: Kind | None = None) -> dict[str, float] | None:
        """Appendix B's `MEASURES` of how unevenly features come along with an object; None without any."""
        values = list(self.probabilities(name, kind).values())
        if not values:
            return None
        highest, average, lowest = max(values), fmean(values), min(values)
        measured = (highest, average, highest - average, average - lowest, highest - lowest)
        return dict(zip(MEASURES, measured, strict=True))


def read_scenes(path: Path) -> list[Scene]:
    return [_scene(graph) for graph in read_scene_graphs(path)]


def dependent_objects(
    table: CoOccurrence, kind: Kind, *, least: int = 1, by_frequency: bool = False
) -> tuple[str, ...]:
    """Step 1 (equation 2): for each feature the object that it depends on most; several when they tie.

    `least` leaves out objects that fewer images have, whose probabilities say nothing.
    """
    best: dict[Feature, tuple[float, list[str]]] = {}
    for name in sorted(table.objects):
        if table.objects[name] < least:
            continue
        for feature, probability in table.probabilities(name, kind).items():
            value = table.together[name][feature] if by_frequency else probability
            top, names = best.get(feature, (-1.0, []))
            if value > top:
                best[feature] = (value, [name])
            elif value == top:
                names.append(name)
    return tuple(sorted({name for _, names in best.values() for name in names}))


def most_skewed(
    table: CoOccurrence, names: Iterable[str], measure: str, kind: Kind, top: int
) -> tuple[str, ...]:
    if measure not in MEASURES:
        raise UsageError(f"no measure '{measure}': one of {', '.join(MEASURES)}", "measure")
    worth = {name: skew[measure] for name in names if (skew := table.skew(name, kind)) is not None}
    return tuple(sorted(worth, key=lambda name: (-worth[name], name))[:top])


def select(table: CoOccurrence, names: Iterable[str], kind: Kind) -> list[Selected]:
    """Steps 2 to 4 (equations 3 to 5) for each object.

    Rare features are those with the lowest probability, usual ones those with the highest; an image is
    taken when the object has a rare feature in it and none of the usual ones.
    """
    found = []
    for name in names:
        known = table.probabilities(name, kind)
        if not known:
            continue
        lowest, highest = min(known.values()), max(known.values())
        usual = {feature for feature, value in known.items() if value == highest}
        rare = {feature for feature, value in known.items() if value == lowest} - usual
        images: dict[Feature, list[str]] = defaultdict(list)
        for scene in table.scenes:
            here = scene.features.get(name, frozenset())
            if not here & usual:
                for feature in here & rare:
                    images[feature].append(scene.image_id)
        found.append(
            Selected(
                object=name,
                rare=tuple(sorted(rare)),
                usual=tuple(sorted(usual)),
                images={feature: tuple(images[feature]) for feature in sorted(images)},
            )
        )
    return found


def _scene(graph: ImageGraph) -> Scene:
    features: dict[str, set[Feature]] = defaultdict(set)
    names = {one.name for one in graph.things}
    for one in graph.things:
        mine = features[one.name]
        mine |= {Feature(Kind.OBJECT, other) for other in names - {one.name}}
        mine |= {Feature(Kind.ATTRIBUTE, text) for text in one.attributes}
        mine |= {Feature(Kind.RELATION, f"{name} {other}") for name, other in one.relations}
    return Scene(
        image_id=graph.image_id, features={name: frozenset(found) for name, found in features.items()}
    )


def build_dataset(
    scene_graphs: Annotated[Path, Meta(description="Scene graphs in GQA's format (JSON).")],
    *,
    kind: Annotated[
        Kind, Meta(description="What comes along with an object: another one, a quality, a relation.")
    ] = Kind.OBJECT,
    measure: Annotated[
        str, Meta(description=f"Appendix B's measure to rank by: {', '.join(MEASURES)}.")
    ] = "highest",
    top: Annotated[int, Meta(ge=1, description="How many of the most skewed objects.")] = 10,
    least: Annotated[int, Meta(ge=1, description="Leave out objects that fewer images have.")] = 5,
    by_frequency: Annotated[
        bool, Meta(description="Step 1 by frequencies instead of probabilities.")
    ] = False,
    out: Annotated[
        Path | None, Meta(description="Write the selection here, one rare feature of an object a line.")
    ] = None,
) -> CommandResult:
    """Choose images that lack what usually comes along (VALOR-Bench, section 3.1.2 and Appendix B)."""
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
        "skew": table.skew(one.object, kind),
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
        "frequency": table.together[name][feature],
        "probability": table.together[name][feature] / table.objects[name],
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
