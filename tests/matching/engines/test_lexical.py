"""The lexical engine: synonyms match, broader concepts are told apart."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from groundwatch.errors import Unscorable
from groundwatch.events import Claim, ClaimsExtracted, Judge, Match, Reference, ResponseRecorded
from groundwatch.matching.engines.base import Matching
from groundwatch.matching.engines.lexical import LexicalEngine
from groundwatch.protocols import registry

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
