"""The lexical engine: synonyms match, broader concepts are told apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.errors import FileFormatError, SettingsError, Unscorable
from groundwatch.events import Claim, ClaimsExtracted, Judge, Match, Reference, ResponseRecorded
from groundwatch.language.nouns import Likeness, compare_attribute, compare_relation, read_relation
from groundwatch.matching.engines import LexicalEngine, Matching, SemanticEngine, build
from groundwatch.protocols import registry
from groundwatch.protocols.valor.protocol import Valor
from groundwatch.protocols.valor.scoring import Subset
from groundwatch.runtime.settings import StageSettings
from groundwatch_benchmarks.agreement.valor import matching_accuracy, read_gold

PROTOCOL = registry.get("faithscore")


def extracted(objects: tuple[str, ...], *claims: Claim) -> ClaimsExtracted:
    response = ResponseRecorded(id="1", model="m", answer="", reference=Reference(objects=objects))
    return ClaimsExtracted(response=response, protocol="valor", judge=Judge(engine="test"), claims=claims)


def named(*texts: str) -> tuple[Claim, ...]:
    return tuple(Claim(text=text, category="object") for text in texts)


async def matched(objects: tuple[str, ...], *claims: Claim) -> tuple[Match, ...]:
    (result,) = await LexicalEngine().match([extracted(objects, *claims)], PROTOCOL)
    assert isinstance(result, Matching)
    return result.matches


async def test_names_match_by_lemma_and_synonym() -> None:
    found = await matched(("sofa", "dogs", "dining table"), *named("couches", "There is a dog.", "lamp"))
    assert found == (Match(claim=0, reference="sofa"), Match(claim=1, reference="dogs"))


async def test_a_broader_claim_is_told_apart() -> None:
    found = await matched(("dining table", "puppy"), *named("a table", "animal", "cat"))
    assert found == (
        Match(claim=0, reference="dining table", kind="broader"),
        Match(claim=1, reference="puppy", kind="broader"),
    )


async def test_a_narrower_claim_does_not_match() -> None:
    assert await matched(("person",), *named("fireman")) == ()


async def test_the_first_part_is_what_the_claim_is_about() -> None:
    claim = Claim(text="the ball is red", category="attribute", parts=("ball", "red"))
    assert await matched(("ball",), claim) == (Match(claim=0, reference="ball"),)


async def test_two_claims_take_two_objects_of_one_name() -> None:
    found = await matched(("bike", "bicycle"), *named("bicycle", "bike", "bikes"))
    assert [match.reference for match in found] == ["bike", "bicycle", "bike"]


async def test_without_objects_there_is_nothing_to_match() -> None:
    (result,) = await LexicalEngine().match([extracted((), *named("dog"))], PROTOCOL)
    assert isinstance(result, Unscorable)
    assert result.reason == "no_reference"


@given(
    st.lists(st.text(max_size=30), max_size=5),
    st.lists(st.text(min_size=1, max_size=30), min_size=1, max_size=5),
)
async def test_unusual_names_are_matched_without_failing(claims: list[str], objects: list[str]) -> None:
    found = await matched(tuple(objects), *named(*claims))
    assert all(0 <= match.claim < len(claims) and match.reference in objects for match in found)
    assert len({match.claim for match in found}) == len(found)


GOLD = Path(__file__).parents[2] / "data" / "valor_matching_gold.jsonl"


@pytest.fixture(scope="module")
def engine() -> SemanticEngine:
    return SemanticEngine()


async def match(
    engine: SemanticEngine, category: str, claims: list[str], reference: list[str], protocol=PROTOCOL
):
    response = ResponseRecorded(id="1", model="m", answer="", reference=Reference(objects=tuple(reference)))
    event = ClaimsExtracted(
        response=response,
        protocol="valor-object-existence",
        judge=Judge(engine="test"),
        claims=tuple(Claim(text=text, category=category) for text in claims),
    )
    (result,) = await engine.match([event], protocol)
    assert isinstance(result, Matching)
    return {claims[one.claim]: (one.reference, one.kind) for one in result.matches}


def test_the_gold_set_is_large_and_halved():
    pairs = read_gold(GOLD)
    assert len(pairs) >= 400
    assert len({(pair.generated, pair.reference) for pair in pairs}) == len(pairs)
    assert abs(sum(pair.half == "test" for pair in pairs) * 2 - len(pairs)) <= 2


def test_the_gold_sets_test_half_is_decided_as_people_did(engine: SemanticEngine):
    found = matching_accuracy(read_gold(GOLD), engine.compare)
    assert found["test"]["accuracy"] >= 0.965
    assert all(value >= 0.9 for value in found["f1"].values())


async def test_objects_meet_the_best_name_first(engine: SemanticEngine):
    found = await match(
        engine, "object", ["people", "couches", "sofa", "dragon", "man"], ["sofa", "man", "woman"]
    )
    assert found == {
        "people": ("man", "broader"),
        "couches": ("sofa", "matched"),
        "sofa": ("sofa", "matched"),
        "man": ("man", "matched"),
    }


async def test_alternatives_are_any_of_them(engine: SemanticEngine):
    found = await match(engine, "rank", ["court", "grass"], ["ground / court", "grass filed"])
    assert found["court"] == ("court", "matched")


async def test_numbered_pairs_take_a_feature_each(engine: SemanticEngine):
    claims = ["(red, apple)", "(red, apples)", "(red , apple)", "(light blue, cup)", "(green, table)"]
    found = await match(
        engine, "attribute", claims, ["(red, apple)", "(red, apple)", "(blue, cup)", "(white, table)"]
    )
    assert len([claim for claim in found if "apple" in claim]) == 2
    assert found["(light blue, cup)"][1] == "matched"
    assert "(green, table)" not in found


async def test_in_order_a_pair_meets_only_its_own_number(engine: SemanticEngine):
    said, there = ["(red, vehicle)", "(red, car)"], ["(red, car)", "(red, bus)"]
    free = {"(red, vehicle)": ("(red, bus)", "broader"), "(red, car)": ("(red, car)", "matched")}
    assert await match(engine, "attribute", said, there) == free
    held = Valor(Subset.ATTRIBUTE_OBJECT, in_order=True)
    found = await match(engine, "attribute", said, there, held)
    assert found == {"(red, vehicle)": ("(red, car)", "broader")}
    assert engine.judge(held).fingerprint != engine.judge(PROTOCOL).fingerprint


async def test_a_pair_may_match_one_of_several(engine: SemanticEngine):
    found = await match(engine, "attribute", ["(black, bag)"], ["(white, bag), (black, bag)"])
    assert found == {"(black, bag)": ("(black, bag)", "matched")}


async def test_relations_are_read_from_either_side(engine: SemanticEngine):
    reference = [
        "the cup is to the left of the jug | the jug is to the right of the cup",
        "jug is on the table",
    ]
    claims = ["jug is right of cup", "the jug is near the table", "cup is on the left of the table"]
    found = await match(engine, "relation", claims, reference)
    assert found["jug is right of cup"][1] == "matched"
    assert found["the jug is near the table"] == ("jug is on the table", "broader")
    assert "cup is on the left of the table" not in found


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("red", "red", Likeness.SAME),
        ("dark blue", "blue", Likeness.SAME),
        ("blue", "light blue", Likeness.BROADER),
        ("gray", "grey", Likeness.SAME),
        ("red", "blue", Likeness.NONE),
        ("black and white", "white and black", Likeness.SAME),
        ("unknown", "black", Likeness.NONE),
        ("two", "2", Likeness.SAME),
    ],
)
def test_attributes(one: str, other: str, expected: Likeness):
    assert compare_attribute(one, other) is expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("dog is under the table", "table is above the dog", Likeness.SAME),
        ("chair is on the left side of the image", "the chair is on the left of the picture", Likeness.SAME),
        ("chair is on the left side of the image", "chair is on the right side of the image", Likeness.NONE),
        ("man is next to the dog", "man is to the left of the dog", Likeness.BROADER),
        ("man is left of the dog", "man is next to the dog", Likeness.NONE),
        ("person is on the beach", "the man is on the beach", Likeness.BROADER),
        ("no relation", "man is on the beach", Likeness.NONE),
    ],
)
def test_relations(one: str, other: str, expected: Likeness):
    assert compare_relation(one, other) is expected


def test_a_relation_needs_two_things():
    assert read_relation("the dog barks") is None
    assert read_relation("a dog is sitting on a mat") == ("a dog", "on", "a mat")


async def test_without_a_reference_nothing_is_matched(engine: SemanticEngine):
    event = ClaimsExtracted(
        response=ResponseRecorded(id="1", model="m", answer=""), protocol="x", judge=Judge(engine="t")
    )
    (result,) = await engine.match([event], PROTOCOL)
    assert isinstance(result, Unscorable) and result.reason == "no_reference"


async def test_the_first_part_is_what_a_claim_is_about(engine: SemanticEngine):
    response = ResponseRecorded(id="1", model="m", answer="", reference=Reference(objects=("dog",)))
    event = ClaimsExtracted(
        response=response,
        protocol="x",
        judge=Judge(engine="t"),
        claims=(
            Claim(text="There", category="object", parts=("dogs", "x")),
            Claim(text="", category="object"),
        ),
    )
    (result,) = await engine.match([event], PROTOCOL)
    assert isinstance(result, Matching) and result.matches == (Match(claim=0, reference="dog"),)


def test_the_engine_is_found_by_name():
    assert isinstance(build(StageSettings(engine="semantic")).engine, SemanticEngine)
    with pytest.raises(SettingsError, match="lexical, llm, semantic"):
        build(StageSettings(engine="psychic"))


def test_a_wrong_gold_set_is_named(tmp_path: Path):
    path = tmp_path / "gold.jsonl"
    path.write_text('{"generated": "a", "reference": "b", "decision": "maybe", "half": "tune"}\n', "utf-8")
    with pytest.raises(FileFormatError, match="decision"):
        read_gold(path)
