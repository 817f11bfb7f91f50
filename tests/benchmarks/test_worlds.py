from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest
from PIL import Image

from groundwatch.errors import UsageError
from groundwatch.miniature.language import holds
from groundwatch.miniature.world import Scene, scenes
from groundwatch.protocols import registry
from groundwatch.protocols.method import Benchmark, Method, Question
from groundwatch_benchmarks.miniature_facts import triplets
from groundwatch_benchmarks.probing import suites

NUMBER = 25


def shown() -> list[Scene]:
    drawn = scenes(suites.SEED)
    return [next(drawn) for _ in range(NUMBER)]


@pytest.mark.parametrize("name", [name for name, one in registry.benchmarks().items() if one.world])
def test_a_suite_asks_the_same_again_with_images_and_ids_of_their_own(name: str) -> None:
    suite = suites.world(name, NUMBER)
    first, second = list(suite.questions()), list(suite.questions())
    assert len(first) >= NUMBER
    assert len({one.id for one in first}) == len(first)
    assert [(one.id, one.prompt, one.reference, one.tags) for one in first] == [
        (one.id, one.prompt, one.reference, one.tags) for one in second
    ]
    for one in first[:: max(1, len(first) // 10)]:
        registry.get(one.protocol)
        for picture in one.images:
            assert Image.open(io.BytesIO(picture.load())).format == "PNG"


def test_the_world_has_every_suite_that_folders_have() -> None:
    assert [bool(one.world) for one in registry.benchmarks().values()] == [
        bool(one.suite) for one in registry.benchmarks().values()
    ]


def test_pope_asks_what_is_so() -> None:
    by_unit = {f"scene-{at}": one for at, one in enumerate(shown())}
    asked = list(suites.world("pope", NUMBER).questions())
    assert {one.tags["category"] for one in asked} == {"random", "popular", "adversarial"}
    for one in asked:
        assert one.reference is not None
        (fact,) = one.reference.facts
        thing = one.prompt.removeprefix("Is there ").removesuffix(" in the image?")
        assert holds(by_unit[one.unit], f"There is {thing}.") is fact.holds


def test_triplets_hold() -> None:
    for one in shown():
        for subject, relation, target in triplets(one):
            if relation == "is":
                text = f"The {subject} is {target}."
            elif relation in ("in", "on"):
                text = f"The {subject} is {relation} the {target}."
            else:
                text = f"The {subject} is {relation} the {target}."
            assert holds(one, text) is True, text


def test_positions_hold_for_kinds_that_differ() -> None:
    found = 0
    for one in suites.world("valor", NUMBER).questions():
        if one.tags["category"] == "relation-positional":
            scene = shown()[int(one.id.rpartition("-")[2])]
            assert one.reference is not None
            for text in one.reference.objects:
                found += 1
                assert holds(scene, f"{text[0].upper()}{text[1:]}.") is True
    assert found > NUMBER / 2


def test_an_unknown_suite_is_refused_with_those_that_are_there() -> None:
    with pytest.raises(UsageError, match="no suite of the miniature world 'popes'; known are amber, dash-b"):
        suites.world("popes")


def test_without_the_package_a_suite_says_where_its_questions_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "groundwatch_benchmarks", None)
    monkeypatch.setattr(registry, "benchmarks", dict)
    with pytest.raises(UsageError, match="'pope' needs the package groundwatch-benchmarks: pip install"):
        suites.world("pope", NUMBER)


def test_without_the_package_a_plug_ins_questions_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "groundwatch_benchmarks", None)
    monkeypatch.setattr(registry, "benchmarks", lambda: {"plug": Benchmark(world="plugmod:ask")})
    monkeypatch.setattr(registry, "methods", lambda: {"plug": Method(name="plug", protocols=())})
    with pytest.raises(UsageError, match="'plugmod:ask' cannot be loaded: No module named 'plugmod'"):
        suites.world("plug", NUMBER)
    question = Question(id="1", protocol="plug", prompt="Is it so?", images=())
    monkeypatch.setitem(sys.modules, "plugmod", SimpleNamespace(ask=lambda drawn: [question] * len(drawn)))
    assert list(suites.world("plug", 2).questions()) == [question] * 2
