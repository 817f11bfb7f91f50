"""Scene graphs in GQA's format: image → objects by id, each with its name, attributes and relations."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from groundwatch.protocols.published import Place, json_members


class Relation(NamedTuple):
    """What an object does with another one, which is given by its name."""

    name: str
    other: str


class Thing(msgspec.Struct, frozen=True, kw_only=True):
    """One object of an image."""

    name: str
    attributes: tuple[str, ...] = ()
    relations: tuple[Relation, ...] = ()


class ImageGraph(msgspec.Struct, frozen=True, kw_only=True):
    """One image with all its objects."""

    image_id: str
    things: tuple[Thing, ...]


def read_scene_graphs(path: str | Path) -> list[ImageGraph]:
    """Read GQA's scene graphs; raises `FileFormatError` naming file, line and key."""
    file = Path(path)
    return [
        _graph(Place(file, line, f"image '{key}'"), key, value) for line, key, value in json_members(file)
    ]


def _graph(place: Place, image_id: str, value: Any) -> ImageGraph:
    if not isinstance(value, dict):
        raise place.wrong("expected an object")
    graph = place.take(value, "objects", dict, "an object of ids to objects")
    objects: dict[str, dict[str, Any]] = {}
    for key, one in graph.items():
        if not isinstance(one, dict):
            raise place.wrong(f"key '{key}': expected an object")
        place.take(one, "name", str, "a text")
        objects[key] = one
    return ImageGraph(
        image_id=image_id,
        things=tuple(
            Thing(
                name=one["name"],
                attributes=_texts(place, one, "attributes"),
                relations=_relations(place, one, objects),
            )
            for one in objects.values()
        ),
    )


def _texts(place: Place, one: Mapping[str, Any], key: str) -> tuple[str, ...]:
    found = one.get(key, [])
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise place.wrong(f"key '{key}': expected a list of texts")
    return tuple(found)


def _relations(
    place: Place, one: Mapping[str, Any], objects: Mapping[str, Mapping[str, Any]]
) -> tuple[Relation, ...]:
    found = []
    for relation in place.take({"relations": [], **one}, "relations", list, "a list of relations"):
        if not isinstance(relation, dict):
            raise place.wrong("key 'relations': expected objects")
        name = place.take(relation, "name", str, "a text")
        other = str(place.take(relation, "object", (str, int), "an object's id"))
        if other not in objects:
            raise place.wrong(f"key 'relations': no object '{other}'")
        found.append(Relation(name, objects[other]["name"]))
    return tuple(found)
