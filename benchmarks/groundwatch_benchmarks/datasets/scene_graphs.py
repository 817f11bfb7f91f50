"""Scene graphs of images in GQA's format."""

from pathlib import Path

import msgspec

from groundwatch_benchmarks.json_files import json_images


class Thing(msgspec.Struct, frozen=True, kw_only=True):
    """One object of an image in GQA's format; `relations` are what it does with which other object."""

    name: str
    attributes: tuple[str, ...] = ()
    relations: tuple[tuple[str, str], ...] = ()


class ImageGraph(msgspec.Struct, frozen=True, kw_only=True):
    image_id: str
    things: tuple[Thing, ...]


class _Relation(msgspec.Struct):
    name: str
    object: str | int


class _Object(msgspec.Struct):
    name: str
    attributes: tuple[str, ...] = ()
    relations: tuple[_Relation, ...] = ()


class _Graph(msgspec.Struct):
    objects: dict[str, _Object]


def read_scene_graphs(path: Path) -> list[ImageGraph]:
    """GQA's scene graphs: image → objects by id, each with its name, attributes and relations."""
    found = []
    for place, image, value in json_images(path):
        objects = place.read(value, _Graph).objects
        for relation in (relation for one in objects.values() for relation in one.relations):
            if str(relation.object) not in objects:
                raise place.wrong(f"key 'relations': no object '{relation.object}'")
        things = tuple(
            Thing(
                name=one.name,
                attributes=one.attributes,
                relations=tuple((each.name, objects[str(each.object)].name) for each in one.relations),
            )
            for one in objects.values()
        )
        found.append(ImageGraph(image_id=image, things=things))
    return found
