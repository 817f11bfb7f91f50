from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.errors import FileFormatError, UsageError
from groundwatch_benchmarks.datasets.valor import (
    CoOccurrence,
    Feature,
    Kind,
    Scene,
    dependent_objects,
    most_skewed,
    read_scenes,
    select,
)


def scene(image_id: str, name: str, *others: str) -> Scene:
    return Scene(
        image_id=image_id, features={name: frozenset(Feature(Kind.OBJECT, other) for other in others)}
    )


PLATES = [
    scene("1", "plate", "fork", "food"),
    scene("2", "plate", "fork"),
    scene("3", "plate", "fork", "cat"),
    scene("4", "plate", "cat"),
    scene("5", "bed", "pillow"),
]
FORK, CAT = Feature(Kind.OBJECT, "fork"), Feature(Kind.OBJECT, "cat")


def test_equation_1_and_the_five_measures():
    table = CoOccurrence(PLATES)
    assert (table.together["plate"][FORK], table.probabilities("plate")[FORK]) == (3, 0.75)
    found = table.skew("plate")
    assert found is not None
    assert found == {
        "highest": 0.75,
        "average": 0.5,
        "highest_over_average": 0.25,
        "average_over_lowest": 0.25,
        "highest_over_lowest": 0.5,
    }
    assert table.skew("plate", Kind.RELATION) is None
    assert table.probabilities("ship") == {}


def test_the_steps_find_images_that_lack_what_usually_comes_along():
    table = CoOccurrence([*PLATES, scene("6", "plate", "sock")])
    objects = dependent_objects(table, Kind.OBJECT)
    assert objects == ("bed", "plate")
    assert most_skewed(table, objects, "highest_over_lowest", Kind.OBJECT, 1) == ("plate",)
    (chosen,) = select(table, ["plate"], Kind.OBJECT)
    assert chosen.usual == (FORK,)
    assert [feature.value for feature in chosen.rare] == ["food", "sock"]
    assert chosen.images == {Feature(Kind.OBJECT, "sock"): ("6",)}
    assert dependent_objects(table, Kind.OBJECT, least=2, by_frequency=True) == ("plate",)
    with pytest.raises(UsageError, match="highest_over_average"):
        most_skewed(table, objects, "largest", Kind.OBJECT, 1)


def test_gqas_scene_graphs_are_read(tmp_path: Path):
    graph = {
        "7": {
            "width": 5,
            "objects": {
                "1": {"name": "cup", "attributes": ["red"], "relations": [{"name": "on", "object": "2"}]},
                "2": {"name": "table", "attributes": [], "relations": []},
            },
        }
    }
    path = tmp_path / "g.json"
    path.write_text(json.dumps(graph), "utf-8")
    (found,) = read_scenes(path)
    assert found.features["cup"] == {
        Feature(Kind.OBJECT, "table"),
        Feature(Kind.ATTRIBUTE, "red"),
        Feature(Kind.RELATION, "on table"),
    }
    graph["7"]["objects"]["1"]["relations"][0]["object"] = "9"
    path.write_text(json.dumps(graph), "utf-8")
    with pytest.raises(FileFormatError, match=r"g\.json:1: image '7': key 'relations': no object '9'"):
        read_scenes(path)


NAMES = st.sampled_from("abcd")


@given(st.lists(st.tuples(NAMES, st.lists(NAMES, max_size=3)), max_size=8), st.randoms())
def test_probabilities_are_bounded_and_no_order_matters(rows, random):
    scenes = [scene(str(at), name, *others) for at, (name, others) in enumerate(rows)]
    table = CoOccurrence(scenes)
    again = CoOccurrence(random.sample(scenes, len(scenes)))
    for name in table.objects:
        assert all(0 < value <= 1 for value in table.probabilities(name).values())
        assert again.probabilities(name) == table.probabilities(name)
    for chosen in select(table, sorted(table.objects), Kind.OBJECT):
        assert not set(chosen.rare) & set(chosen.usual)
        for feature, images in chosen.images.items():
            for image in images:
                here = table.scenes[int(image)].features[chosen.object]
                assert feature in here and not here & set(chosen.usual)
