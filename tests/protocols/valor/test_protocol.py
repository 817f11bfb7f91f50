"""VALOR's five protocols: routes, questions, and scores from matched claims."""

from __future__ import annotations

import pytest

from groundwatch.errors import InputError, Unscorable
from groundwatch.events import (
    Claim,
    ClaimsExtracted,
    ClaimsMatched,
    ClaimsVerified,
    Judge,
    Match,
    Reference,
    ResponseRecorded,
)
from groundwatch.protocols import registry
from groundwatch.protocols.base import Stage
from groundwatch.protocols.valor.protocol import PROTOCOLS, Valor, ValorSettings
from groundwatch.protocols.valor.scoring import Subset

JUDGE = Judge(engine="test")


def matched(objects: tuple[str, ...], claims: tuple[str, ...], *matches: Match) -> ClaimsMatched:
    response = ResponseRecorded(id="1", model="m", answer="a", reference=Reference(objects=objects))
    extracted = ClaimsExtracted(
        response=response,
        protocol="valor-object-existence",
        judge=JUDGE,
        claims=tuple(Claim(text=text, category="object") for text in claims),
    )
    return ClaimsMatched(extracted=extracted, judge=JUDGE, matches=matches)


@pytest.mark.parametrize("subset", list(Subset))
def test_each_subset_is_a_protocol_with_its_own_prompt(subset: Subset):
    protocol = registry.get(f"valor-{subset}")
    assert isinstance(protocol, Valor) and protocol.subset is subset
    assert protocol.route == (Stage.EXTRACTION, Stage.MATCHING, Stage.SCORING)
    others = {registry.get(f"valor-{other}").prompt_digest(Stage.EXTRACTION) for other in Subset}
    assert len(others) == 5
    assert protocol.prompt_digest(Stage.MATCHING) and protocol.prompt_digest(Stage.SCORING) == ""


@pytest.mark.parametrize("subset", list(Subset))
def test_the_question_is_asked_and_its_reply_read(subset: Subset):
    protocol = PROTOCOLS[subset]
    response = ResponseRecorded(id="1", model="m", answer="A red cup. Ignore this.")
    step = protocol.extraction_step(0, response, ())
    assert step is not None and "A red cup." in step.user and "A red cup." not in step.system
    if subset in (Subset.ATTRIBUTE_OBJECT, Subset.ATTRIBUTE_PEOPLE):
        reply: object = {"pairs": [{"attribute": "red", "object": "cup"}] * 2}
        expected = ["(red, cup)", "(red, cup)"]
    else:
        reply = {"features": ["cup ", "lid", "cup"]}
        expected = ["cup", "lid", "cup"] if subset is Subset.RELATION_COMPARATIVE else ["cup", "lid"]
    units, claims = protocol.read_extraction(0, reply, response, ())
    assert [claim.text for claim in claims] == expected
    assert units[0].text == response.answer
    with pytest.raises(ValueError, match=r"empty|unknown|required"):
        protocol.read_extraction(0, {"features": [" "]}, response, ())


@pytest.mark.parametrize("subset", list(Subset))
def test_the_judge_is_told_what_becomes_of_denials_guesses_and_short_answers(subset: Subset):
    step = PROTOCOLS[subset].extraction_step(
        0, ResponseRecorded(id="1", model="m", prompt="Is there a dog?", answer="No."), ()
    )
    assert step is not None and "Is there a dog?" in step.user
    for told in ("denies", "guesses", "Thinking", "short answer"):
        assert told in step.system
    unasked = PROTOCOLS[subset].extraction_step(0, ResponseRecorded(id="1", model="m", answer="A dog."), ())
    assert unasked is not None and "(not known)" in unasked.user


def test_nothing_is_asked_of_an_empty_answer():
    response = ResponseRecorded(id="1", model="m", answer=" ")
    assert PROTOCOLS[Subset.OBJECT_EXISTENCE].extraction_step(0, response, ()) is None


def test_matched_claims_are_scored():
    found = PROTOCOLS[Subset.OBJECT_EXISTENCE].score(
        matched(
            ("sofa", "man", "ground / court"),
            ("couch", "people", "court", "dragon"),
            Match(claim=0, reference="sofa"),
            Match(claim=1, reference="man", kind="broader"),
            Match(claim=2, reference="court"),
        )
    )
    assert found.score == 0.75
    assert found.values["coverage"] == pytest.approx(2 / 3)
    assert (found.values["generated"], found.values["reference"]) == (4, 3)


@pytest.mark.parametrize(("in_order", "faithful"), [(False, 2), (True, 0)])
def test_settings_hold_attributes_to_their_order(in_order: bool, faithful: int):
    pairs = ("(red, car)", "(blue, bus)")
    found = {one.subset: one for one in ValorSettings(in_order=in_order).protocols()}
    claims = (Match(claim=at, reference=text) for at, text in enumerate(pairs))
    score = found[Subset.ATTRIBUTE_OBJECT].score(matched(pairs[::-1], pairs, *claims))
    assert score.values["faithful"] == faithful
    assert not found[Subset.OBJECT_EXISTENCE].in_order


def test_nothing_said_is_unscored_and_never_zero():
    protocol = PROTOCOLS[Subset.OBJECT_EXISTENCE]
    with pytest.raises(Unscorable, match="no_features"):
        protocol.score(matched(("sofa",), ()))
    with pytest.raises(Unscorable, match="no_reference"):
        protocol.score(matched((), ("sofa",)))


def test_verified_claims_are_refused():
    protocol = PROTOCOLS[Subset.OBJECT_EXISTENCE]
    extracted = matched(("sofa",), ("sofa",)).extracted
    with pytest.raises(InputError):
        protocol.score(ClaimsVerified(extracted=extracted, judge=JUDGE))
    with pytest.raises(InputError):
        protocol.verification_step(extracted.response, ())


def test_the_counterparts_reply_is_read_and_held_to_its_numbers():
    protocol = PROTOCOLS[Subset.OBJECT_EXISTENCE]
    extracted = matched(("sofa", "lawn / field"), ("couch", "grass", "people")).extracted
    step = protocol.matching_step(extracted)
    assert '1: "lawn / field"' in step.user and '2: "people"' in step.user

    def entry(described: int, annotated: int, kind: str = "matched") -> dict[str, object]:
        return {"described": described, "annotated": annotated, "kind": kind}

    found = protocol.read_matching({"matches": [entry(1, 1, "broader"), entry(0, 0)]}, extracted)
    assert found == (
        Match(claim=0, reference="sofa"),
        Match(claim=1, reference="lawn / field", kind="broader"),
    )
    for wrong in ([entry(3, 0)], [entry(0, 2)], [entry(0, -1)], [entry(0, 0), entry(0, 1)]):
        with pytest.raises(ValueError, match="item"):
            protocol.read_matching({"matches": wrong}, extracted)
    pairs = PROTOCOLS[Subset.ATTRIBUTE_OBJECT]
    with pytest.raises(ValueError, match="taken twice"):
        pairs.read_matching({"matches": [entry(0, 0), entry(1, 0)]}, extracted)
