"""Building a benchmark as VALOR-Bench was built: images that lack what usually comes along.

Source: VALOR-EVAL, section 3.1 (equations 1 to 5) and Appendix B. Scene graphs are in GQA's format. A
frequency is a number of images, so that a conditional probability never passes 1.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import msgspec

from groundwatch.protocols.scene_graphs import ImageGraph, read_scene_graphs


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


class Skew(msgspec.Struct, frozen=True, kw_only=True):
    """Appendix B's five measures of how unevenly an object's features come along with it."""

    highest: float
    average: float
    highest_over_average: float
    average_over_lowest: float
    highest_over_lowest: float


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

    def frequency(self, feature: Feature, name: str) -> int:
        """In how many images an object of this name has the feature."""
        return self.together[name][feature] if name in self.together else 0

    def probability(self, feature: Feature, name: str) -> float:
        """Equation 1. Raises `KeyError` for an object that no image has."""
        if not self.objects[name]:
            raise KeyError(name)
        return self.frequency(feature, name) / self.objects[name]

    def probabilities(self, name: str, kind: Kind | None = None) -> dict[Feature, float]:
        """P(feature | object) for every feature that occurs with the object."""
        return {
            feature: number / self.objects[name]
            for feature, number in self.together.get(name, {}).items()
            if kind is None or feature.kind is kind
        }

    def skew(self, name: str, kind: Kind | None = None) -> Skew | None:
        """Appendix B's measures; None for an object without features of the kind."""
        values = list(self.probabilities(name, kind).values())
        if not values:
            return None
        highest, average, lowest = max(values), fmean(values), min(values)
        return Skew(
            highest=highest,
            average=average,
            highest_over_average=highest - average,
            average_over_lowest=average - lowest,
            highest_over_lowest=highest - lowest,
        )


def read_scenes(path: str | Path) -> list[Scene]:
    """The scenes of a file of GQA's scene graphs; raises `FileFormatError` naming file, line and key."""
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
            value = table.frequency(feature, name) if by_frequency else probability
            top, names = best.get(feature, (-1.0, []))
            if value > top:
                best[feature] = (value, [name])
            elif value == top:
                names.append(name)
    return tuple(sorted({name for _, names in best.values() for name in names}))


def most_skewed(
    table: CoOccurrence, names: Iterable[str], measure: str, kind: Kind, top: int
) -> tuple[str, ...]:
    """The `top` objects by one of Appendix B's measures, named as in `Skew`."""
    if measure not in Skew.__struct_fields__:
        raise ValueError(f"no measure '{measure}'; known are {', '.join(Skew.__struct_fields__)}")
    worth = {name: getattr(skew, measure) for name in names if (skew := table.skew(name, kind)) is not None}
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
