from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.errors import InputError, Unscorable
from groundwatch.events import (
    ClaimsExtracted,
    ClaimsMatched,
    ClaimsVerified,
    Decision,
    Judge,
    Reference,
    ResponseRecorded,
)
from groundwatch.protocols import registry
from groundwatch.protocols.chair.protocol import Caption, ChairProtocol, chair, read, vocabulary
from groundwatch.reading.graph import Thing
from groundwatch.runtime.delivery.outcomes import outcome_of

SHARES = ("chair_s", "chair_i", "faithfulness", "coverage")
NAMES = st.frozensets(st.sampled_from("abcdef"))
CAPTIONS = st.lists(st.builds(Caption, mentioned=NAMES, present=NAMES), max_size=6)


def caption(mentioned: str, present: str) -> Caption:
    return Caption(mentioned=frozenset(mentioned), present=frozenset(present))


def test_by_hand():
    found = chair([caption("ab", "bcd"), caption("c", "c"), caption("", "ab")])
    assert (found["chair_s"], found["chair_i"]) == (1 / 3, 1 / 3)
    assert (found["faithfulness"], found["coverage"]) == (pytest.approx(2 / 3), 2 / 6)
    assert (found["mentioned"], found["hallucinated"]) == (3, 1)


def test_nothing_is_no_number():
    assert chair([])["chair_s"] is None
    silent = chair([caption("", "")])
    assert [silent[name] for name in SHARES] == [0.0, None, None, None]


@given(CAPTIONS, st.randoms())
def test_bounds_and_order(captions, random):
    found = chair(captions)
    for name in SHARES:
        assert found[name] is None or 0 <= found[name] <= 1
    assert chair(random.sample(captions, len(captions))) == found


@given(CAPTIONS)
def test_repeating_the_corpus_changes_no_rate(captions):
    once, twice = chair(captions), chair(captions * 2)
    assert [once[name] for name in SHARES] == [twice[name] for name in SHARES]


CHAIR = ChairProtocol()
JUDGE = Judge(engine="test")


def extracted(answer: str, *objects: str) -> ClaimsExtracted:
    units, claims = read(answer)
    response = ResponseRecorded(
        id="1", model="m", answer=answer, reference=Reference(objects=objects) if objects else None
    )
    return ClaimsExtracted(response=response, protocol="chair", judge=JUDGE, units=units, claims=claims)


def matched(answer: str, *objects: str) -> ClaimsMatched:
    event = extracted(answer, *objects)
    return ClaimsMatched(
        extracted=event, judge=JUDGE, matches=CHAIR.match(event) if event.claims and objects else ()
    )


def test_it_is_registered():
    assert isinstance(registry.get("chair"), ChairProtocol)


def test_a_class_is_one_claim_where_it_is_first_said():
    units, claims = read("A puppy sleeps. The dog lies beside two cats, near a couch.")
    assert [(claim.text, claim.parts, claim.unit) for claim in claims] == [
        ("puppy", ("dog",), 0),
        ("cats", ("cat",), 1),
        ("couch", ("couch",), 2),
    ]
    assert units[1].text == "The dog lies beside two cats"


def test_the_score_by_hand():
    found = CHAIR.score(matched("A puppy and two cats on a couch. The dog barks.", "dog", "red sofa", "cup"))
    assert found.score == found.values["faithfulness"] == pytest.approx(2 / 3)
    assert found.values == {
        "chair_i": pytest.approx(1 / 3),
        "chair_s": 1.0,
        "faithfulness": pytest.approx(2 / 3),
        "sentence_level": 0.0,
        "mentioned": 3,
        "hallucinated": 1,
        "coverage": pytest.approx(2 / 3),
    }


def test_an_annotation_without_a_class_has_no_coverage():
    found = CHAIR.score(matched("A dog.", "tree"))
    assert (found.score, found.values["chair_s"]) == (0.0, 1.0)
    assert "coverage" not in found.values


def test_what_is_not_matched_is_refuted():
    outcome = outcome_of(matched("A puppy and a cat.", "dog"), CHAIR)
    assert [(claim.text, claim.decision, claim.evidence) for claim in outcome.claims] == [
        ("puppy", Decision.SUPPORTED, "dog"),
        ("cat", Decision.REFUTED, ""),
    ]
    assert (outcome.decided, outcome.eligible) == (2, 2)


@pytest.mark.parametrize(
    ("answer", "objects", "reason"),
    [("", ("dog",), "nothing_to_verify"), ("A sunny day.", (), "nothing_to_verify")],
)
def test_nothing_mentioned_is_no_score(answer, objects, reason):
    with pytest.raises(Unscorable, match=reason):
        CHAIR.score(matched(answer, *objects))


def test_without_a_reference_there_is_nothing_to_match():
    with pytest.raises(Unscorable, match="no_reference"):
        CHAIR.match(extracted("A dog."))


def test_it_scores_no_verified_claims_and_asks_no_llm():
    event = extracted("A dog.", "dog")
    with pytest.raises(InputError, match="matched"):
        CHAIR.score(ClaimsVerified(extracted=event, judge=JUDGE))
    for ask in (
        lambda: CHAIR.extraction_step(0, event.response, ()),
        lambda: CHAIR.verification_step(event.response, event.claims),
        lambda: CHAIR.read_verification({}, event.claims),
    ):
        with pytest.raises(InputError):
            ask()


NAMES = st.lists(st.sampled_from([*vocabulary().classes[:12], "tree", "lamp"]), max_size=6)


@given(NAMES, NAMES.filter(bool), st.randoms())
def test_bounds_order_and_repetition(said, there, random):
    answer = ". ".join(said)
    if not read(answer)[1]:
        return
    found = CHAIR.score(matched(answer, *there))
    assert all(0 <= found.values[name] <= 1 for name in ("chair_i", "chair_s", "faithfulness"))
    assert 0 <= found.values.get("coverage", 0) <= 1
    shuffled = random.sample(said, len(said))
    assert CHAIR.score(matched(". ".join(shuffled), *reversed(there))) == found
    assert CHAIR.score(matched(". ".join(said * 2), *there, *there)) == found


def test_what_is_denied_is_not_mentioned() -> None:
    answer = "A dog sleeps. There isn't a cat."
    cat = Thing("cat", (28, 31), denied=True)
    assert answer[28:31] == "cat"
    assert [claim.text for claim in read(answer, [cat])[1]] == ["dog"]
    assert [claim.text for claim in read(answer)[1]] == ["dog", "cat"]


def test_what_is_only_guessed_is_marked_as_a_guess_and_each_has_its_place() -> None:
    answer = "A tree’s leaf. There may be a traffic light, and ẞ a DOG and cats."
    light, cats = answer.index("traffic"), answer.index("cats")
    things = [
        Thing("traffic light", (light, light + 13), hedged=True),
        Thing("dog", (answer.index("DOG"), answer.index("DOG") + 3), hedged=True),
        Thing("cats", (cats, cats + 4)),
    ]
    claims = read(answer, iter(things))[1]
    assert [(claim.parts[0], claim.hedged) for claim in claims] == [
        ("traffic light", True),
        ("dog", True),
        ("cat", False),
    ]
    places = [answer[slice(*claim.span)] for claim in claims if claim.span]
    assert places == ["traffic light", "DOG", "cats"]
