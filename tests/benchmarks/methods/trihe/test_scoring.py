"""Hallu_Q, Hallu_I, the three-way definition and the analyses, by example and as properties."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.protocols.trihe.scoring import JudgedTriplet, question_rate
from groundwatch.protocols.triplets import Judgement, SceneGraph
from groundwatch_benchmarks.methods.trihe.scoring import (
    JudgedQuestion,
    first_tokens,
    frequent_pairs,
    object_pairs,
    on_pairs,
    rates,
    trend,
)

names = st.sampled_from(["man", "horse", "hat", "field"])
triplets = st.tuples(names, st.sampled_from(["riding", "on", "is"]), names)
judged = st.builds(
    JudgedTriplet,
    hallucinated=st.sampled_from([True, False, None]),
    part=st.sampled_from(["object1", "relation", "object2", None]),
    triplet=st.none() | triplets,
    tokens=st.none() | st.integers(1, 40),
)
questions = st.lists(
    st.builds(JudgedQuestion, image=st.sampled_from("abc"), triplets=st.lists(judged, max_size=5).map(tuple)),
    max_size=8,
)

HT = JudgedTriplet(hallucinated=True, part="object1", triplet=("man", "riding", "horse"), tokens=4)
RT = JudgedTriplet(hallucinated=True, part="relation", triplet=("Man", "on", "hat"), tokens=9)
TT = JudgedTriplet(hallucinated=False, triplet=("man", "in", "field"), tokens=2)
OPEN = JudgedTriplet(hallucinated=None)


def asked(image: str, *found: JudgedTriplet) -> JudgedQuestion:
    return JudgedQuestion(image=image, triplets=found)


def test_equations_1_and_2_by_hand():
    found = rates([asked("a", HT, TT), asked("a", TT), asked("b", RT, HT, TT, TT), asked("c")])
    assert found.hallu_q == pytest.approx((0.5 + 0 + 0.5) / 3)
    assert found.hallu_i == pytest.approx((0.25 + 0.5) / 2)
    assert (found.questions, found.images) == (3, 2)
    assert rates([asked("a", HT, RT, TT, TT)], "object").hallu_q == 0.25


def test_undecided_triplets():
    assert question_rate([HT, OPEN]) == 1
    assert question_rate([HT, OPEN], undecided_count=True) == 0.5
    assert question_rate([OPEN]) is None
    assert question_rate([OPEN], undecided_count=True) == 0


def test_nothing_has_no_rate():
    found = rates([])
    assert (found.hallu_q, found.hallu_i, found.questions, found.images) == (None, None, 0, 0)


@given(questions, st.booleans())
def test_bounds_and_kinds(found, counted):
    overall = rates(found, undecided_count=counted)
    by_object = rates(found, "object", undecided_count=counted)
    by_relation = rates(found, "relation", undecided_count=counted)
    for name in ("hallu_q", "hallu_i"):
        whole, first, second = (getattr(one, name) for one in (overall, by_object, by_relation))
        if whole is None:
            assert first is None
            continue
        if any(t.hallucinated and t.part is None for one in found for t in one.triplets):
            assert first is second is None, "what is left is no fair sample"
            continue
        assert 0 <= first <= whole + 1e-12 <= 1 + 2e-12
        assert first + second <= whole + 1e-12


@given(questions, st.randoms())
def test_order_does_not_matter(found, random):
    shuffled = list(found)
    random.shuffle(shuffled)
    one, other = rates(found), rates(shuffled)
    assert (one.questions, one.images) == (other.questions, other.images)
    assert one.hallu_q == (None if other.hallu_q is None else pytest.approx(other.hallu_q))
    assert one.hallu_i == (None if other.hallu_i is None else pytest.approx(other.hallu_i))


@given(questions)
def test_asking_everything_twice_changes_no_rate(found):
    once, twice = rates(found), rates(found * 2)
    assert twice.hallu_q == (None if once.hallu_q is None else pytest.approx(once.hallu_q))
    assert twice.hallu_i == (None if once.hallu_i is None else pytest.approx(once.hallu_i))


@given(questions)
def test_one_question_an_image_makes_both_rates_equal(found):
    single = [JudgedQuestion(image=str(at), triplets=one.triplets) for at, one in enumerate(found)]
    one = rates(single)
    assert one.hallu_q == (None if one.hallu_i is None else pytest.approx(one.hallu_i))


GRAPH = SceneGraph([("man", "riding", "horse"), ("hat", "on", "man")], ["field"])


@pytest.mark.parametrize(
    ("triplet", "judgement"),
    [
        (("Man", "riding", "horse"), Judgement.TRUE),
        (("man", "riding", "elephant"), Judgement.OBJECT_HALLUCINATION),
        (("dog", "riding", "horse"), Judgement.OBJECT_HALLUCINATION),
        (("dog", "eating", "elephant"), Judgement.OBJECT_HALLUCINATION),
        (("man", "feeding", "horse"), Judgement.RELATION_HALLUCINATION),
        (("horse", "feeding", "field"), Judgement.RELATION_HALLUCINATION),
        (("horse", "on", "man"), Judgement.PREDICTION_ERROR),
        (("man", "riding", "field"), Judgement.PREDICTION_ERROR),
    ],
)
def test_the_definition_of_section_3_1(triplet, judgement):
    assert GRAPH.judge(triplet) is judgement


@given(st.lists(triplets, max_size=6), triplets, st.lists(names, max_size=3))
def test_the_four_judgements_exclude_each_other(known, claim, objects):
    graph = SceneGraph(known, objects)
    found = graph.judge(claim)
    objects_known = {claim[0], claim[2]} <= {*objects, *(one for k in known for one in (k[0], k[2]))}
    relation_known = claim[1] in {relation for _, relation, _ in known}
    assert (found is Judgement.TRUE) == (claim in known)
    assert (found is Judgement.OBJECT_HALLUCINATION) == (not objects_known)
    assert (found is Judgement.RELATION_HALLUCINATION) == (objects_known and not relation_known)
    assert SceneGraph(known * 2, objects).judge(claim) is found


def test_pairs_by_synset():
    found = object_pairs(
        [asked("a", HT, RT), asked("b", HT)], lambda name: "person" if name == "man" else name
    )
    assert found[("person", "horse")] == 2
    assert object_pairs([asked("a", OPEN)]) == Counter()


def test_the_most_frequent_pairs():
    counts = Counter({("a", "b"): 5, ("c", "d"): 5, ("e", "f"): 1, ("g", "h"): 1, ("i", "j"): 1})
    assert frequent_pairs(counts) == {("a", "b")}
    assert frequent_pairs(counts, 0.4) == {("a", "b"), ("c", "d")}
    assert frequent_pairs(counts, 1) == counts.keys()
    assert frequent_pairs(Counter()) == frozenset()
    with pytest.raises(ValueError, match="share"):
        frequent_pairs(counts, 0)


@given(questions)
def test_all_pairs_keep_every_triplet_that_is_known(found):
    kept = on_pairs(found, frozenset(object_pairs(found)))
    assert sum(len(one.triplets) for one in kept) == sum(
        each.triplet is not None for one in found for each in one.triplets
    )


def test_relation_hallucination_on_frequent_pairs():
    found = [asked("a", HT, RT), asked("b", RT, TT)]
    pairs = frequent_pairs(object_pairs(found), 0.34)
    assert pairs == {("man", "hat")}
    assert rates(on_pairs(found, pairs), "relation").hallu_q == 1


def test_the_first_tokens():
    found = [asked("a", TT, HT, RT, OPEN)]
    assert [rate.hallu_q for _, rate in trend(found, (1, 2, 4, 9))] == [None, 0, 0.5, pytest.approx(2 / 3)]


@given(questions, st.integers(0, 40))
def test_more_tokens_keep_more(found, k):
    fewer, more = first_tokens(found, k), first_tokens(found, k + 1)
    assert all(set(a.triplets) <= set(b.triplets) for a, b in zip(fewer, more, strict=True))
