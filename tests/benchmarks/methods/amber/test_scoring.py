"""AMBER's numbers: by hand, and against the paper's equations written here once more."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.cases import cases

from groundwatch.errors import Unscorable
from groundwatch.events import ResponseRecorded
from groundwatch_benchmarks.methods.amber.scoring import (
    DESCRIPTION,
    DISCRIMINATIVE,
    EXISTENCE,
    Annotation,
    Sums,
    amber_score,
    annotation_of,
    count,
)

CASES = cases(__file__)
APART = ("dog", "tree", "piano", "bridge", "cloud", "lamp")
"""Words of which none means another."""

ASSOCIATED = {"person": ("man", "woman"), "car": ("wheel", "door"), "bicycle": ("wheel",), "man": ("person",)}
OTHERS = {"dog", "tree", "cat", "piano", "light", "sun", "sofa", "couch", "automobile", "boat"}
LISTS = Annotation(
    associated=ASSOCIATED,
    listed=frozenset(ASSOCIATED).union(OTHERS, *ASSOCIATED.values()),
    safe=frozenset({"light"}),
)
COUNTS = ("mentioned", "hallucinated", "covered", "targets_named", "target_mentions")


def counted(known: Annotation, nouns: list[str]) -> dict[str, int]:
    return count(nouns, known.matches(nouns), known)


def test_descriptions_by_hand() -> None:
    missed = []
    for there, hallu, nouns, expected in CASES["descriptions"]:
        found = counted(LISTS.about(there, hallu), nouns)
        whole = {"annotated": len(there), "targets": len(hallu), "answers": 1, "hal": int(expected[1] > 0)}
        if found != dict(zip(COUNTS, expected, strict=True)) | whole:
            missed.append((there, hallu, nouns, found))
    assert missed == []


def test_questions_by_hand() -> None:
    missed = []
    for cells, expected in CASES["questions"]:
        sums = Sums()
        sums.add(EXISTENCE, "1.png", cells)
        found: Any = sums.measure()["discriminative"]
        values = [found[name] and found[name].value for name in DISCRIMINATIVE]
        if values != pytest.approx(expected):
            missed.append((cells, values))
        assert all(found[name] == found["existence"][name] for name in DISCRIMINATIVE)
    assert missed == []


words = st.lists(st.sampled_from(APART), max_size=6)
described = st.lists(
    st.tuples(st.sets(st.sampled_from(APART)), st.sets(st.sampled_from(APART)), words), min_size=1, max_size=5
)


@given(described, st.sets(st.sampled_from(APART), max_size=1))
def test_the_papers_equations(answers: list[tuple[set[str], set[str], list[str]]], safe: set[str]) -> None:
    """CHAIR = 1 - |R' ∩ A| / |R'|, Cover = |R' ∩ A| / |A|, Hal = CHAIR > 0, Cog = |R' ∩ H| / |R'|."""
    sums = Sums()
    for at, (there, hallu, nouns) in enumerate(answers):
        known = Annotation(
            truth=tuple(there), hallu=tuple(hallu), listed=frozenset(APART), safe=frozenset(safe)
        )
        sums.add(DESCRIPTION, str(at), counted(known, nouns))
    found: Any = sums.measure()["generative"]
    said = sum(len(nouns) for _, _, nouns in answers)
    right = sum(noun in there or noun in safe for there, _, nouns in answers for noun in nouns)
    covered = sum(len((set(nouns) - safe) & there) for there, _, nouns in answers)
    thought_of = [(hallu - there - safe, nouns) for there, hallu, nouns in answers]
    expected = {
        "chair": (said - right, said),
        "cover": (covered, sum(len(there) for there, _, _ in answers)),
        "hal": (sum(bool(set(nouns) - there - safe) for there, _, nouns in answers), len(answers)),
        "cog": (
            sum(len(set(nouns) & targets) for targets, nouns in thought_of),
            sum(len(hallu) for _, hallu, _ in answers),
        ),
        "cog_by_mentions": (sum(noun in targets for targets, nouns in thought_of for noun in nouns), said),
    }
    for name, (of, over) in expected.items():
        assert (found[name] and found[name].value) == (pytest.approx(of / over) if over else None), name


@given(st.lists(st.tuples(st.sampled_from(["yes", "no", ""]), st.sampled_from(["yes", "no"])), min_size=1))
def test_no_is_the_positive_class(replies: list[tuple[str, str]]) -> None:
    """Counted as the published code does, without its rounding and its thousandths below the line."""
    sums = Sums()
    for said, true in replies:
        cell = ("t" if said == true else "f") + ("p" if said == "yes" else "n") if said else f"unread_{true}"
        sums.add(EXISTENCE, "1.png", {cell: 1})
    found: Any = sums.measure()["discriminative"]
    right = sum(said == true == "no" for said, true in replies)
    answered = sum(said == "no" for said, _ in replies)
    asked = sum(true == "no" for _, true in replies)
    precision = right / answered if answered else None
    recall = right / asked if asked else None
    f1 = 0.0 if not right else 2 * precision * recall / (precision + recall) if precision and recall else None
    read = [said == true for said, true in replies if said]
    expected = {
        "accuracy_read": sum(read) / len(read) if read else None,
        "accuracy": sum(said == true for said, true in replies) / len(replies),
        "precision": precision,
        "recall": recall,
        "f1": f1 if answered or asked else None,
    }
    assert {name: found[name] and found[name].value for name in expected} == pytest.approx(expected)


def test_the_amber_score() -> None:
    assert 100 * amber_score(0.078, 0.747) == pytest.approx((100 - 7.8 + 74.7) / 2)
    sums = Sums()
    sums.add(DESCRIPTION, "1.png", {"hallucinated": 1, "mentioned": 4, "answers": 1})
    assert "amber_score" not in sums.measure()
    sums.add(EXISTENCE, "1.png", {"tn": 1, "fp": 1})
    found: Any = sums.measure()["amber_score"]
    assert found.value == pytest.approx((1 - 1 / 4 + 2 / 3) / 2)


some = st.lists(st.sampled_from(sorted(LISTS.listed)), max_size=5)


@given(some, some, some)
def test_a_response_carries_all_that_it_is_judged_by(
    there: list[str], hallu: list[str], nouns: list[str]
) -> None:
    known = LISTS.about(there, hallu)
    response = ResponseRecorded(id="1", model="m", answer="", reference=known.reference())
    if there or hallu:
        assert annotation_of(response) == known
        assert counted(annotation_of(response), nouns) == counted(known, nouns)
    else:
        with pytest.raises(Unscorable, match="no_reference"):
            annotation_of(response)


def test_without_lists_the_annotations_own_words_are_listed() -> None:
    bare = Annotation(truth=("person",), hallu=("dog",), associated={"person": ("man",)})
    known = annotation_of(ResponseRecorded(id="1", model="m", answer="", reference=bare.reference()))
    assert known.listed == {"person", "man", "dog"}
    assert [known.mention(word) for word in ("men", "dogs", "tree")] == ["man", "dog", ""]
