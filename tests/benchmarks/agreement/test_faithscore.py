"""How agreement with people is counted."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

# To import it takes seconds, in every process that collects tests.
if find_spec("sentence_transformers") is None:
    pytest.skip("needs sentence_transformers", allow_module_level=True)
pytest.importorskip("lemminflect")

from tools.reader.descriptive import cross_validate

from groundwatch.errors import UsageError
from groundwatch.events import Label
from groundwatch.extraction.engines.reader import shipped_reader
from groundwatch.models.embeddings import SentenceEmbedder
from groundwatch_benchmarks.agreement.faithscore import (
    facts_agreement,
    labelled_units,
    labels_agreement,
    pair_facts,
    read,
)
from groundwatch_benchmarks.methods.faithscore.suite import AnnotatedAnswer, read_annotations

ANNOTATION = Path(__file__).parents[4] / "shared" / "data" / "faithscore" / "annotation.jsonl"
needs_annotation = pytest.mark.skipif(not ANNOTATION.exists(), reason=f"no annotated answers at {ANNOTATION}")


@pytest.fixture(scope="module")
def embedder() -> SentenceEmbedder:
    return SentenceEmbedder(cached=20_000)


def answers() -> list[AnnotatedAnswer]:
    things = ["fox", "lamp", "bridge", "piano", "tent", "whale"]
    return [
        AnnotatedAnswer(
            image=str(number % 3),
            answer=f"There is a {thing} on a hill, which suggests that somebody might enjoy it.",
            labels={
                f"There is a {thing} on a hill": Label.DESCRIPTIVE,
                "which suggests that somebody might enjoy it": Label.ANALYTICAL,
            },
            facts={f"There is a {thing}.": True, "There is a hill.": True},
        )
        for number, thing in enumerate(things)
    ]


def test_pairs_are_one_to_one(embedder: SentenceEmbedder) -> None:
    pairs = pair_facts(
        ["There is a cat.", "There is a cat."], ["There is a cat.", "The sky is blue."], embedder
    )
    assert len(pairs) == 1
    assert pairs[0][1] == 0
    assert pair_facts([], ["There is a cat."], embedder) == []


def test_precision_recall_and_f1_are_pooled(embedder: SentenceEmbedder) -> None:
    facts = facts_agreement(answers(), [list(one.facts) for one in answers()], embedder)
    assert facts["expected"] == 12
    assert facts["recall"] == facts["precision"] == 1.0
    more = facts_agreement(answers(), [[*one.facts, "The sky is blue."] for one in answers()], embedder)
    assert (more["matched"], more["found"], more["precision"]) == (12, 18, 12 / 18)
    assert facts_agreement([], [], embedder)["f1"] == 0.0


def test_facts_are_those_of_what_people_call_descriptive() -> None:
    """An answer's facts each once, and none of a sub-sentence that people call analytical."""
    cats = AnnotatedAnswer(
        image="1",
        answer="There is a cat. There is a cat, which wears a hat",
        labels={
            "There is a cat.": Label.DESCRIPTIVE,
            "There is a cat": Label.DESCRIPTIVE,
            "which wears a hat": Label.ANALYTICAL,
        },
        facts={"There is a cat.": False},
    )
    ((labels, facts),) = read([cats])
    assert len(labels) == 3 and facts == ["There is a cat."]


def test_labels_need_an_answer() -> None:
    with pytest.raises(UsageError, match="no labelled sub-sentences"):
        labels_agreement([], [])
    right = [list(annotated.labels.values()) for annotated in answers()]
    assert labels_agreement(answers(), right)["accuracy"] == 1.0


@needs_annotation
def test_units_people_labelled_are_found_in_their_answers() -> None:
    for annotated in read_annotations(ANNOTATION):
        units, labels = labelled_units(annotated)
        assert [annotated.answer[unit.start : unit.end] for unit in units] == list(annotated.labels)
        assert list(labels) == list(annotated.labels.values())


@needs_annotation
@pytest.mark.slow
def test_the_reader_agrees_with_people(embedder: SentenceEmbedder) -> None:
    answers = read_annotations(ANNOTATION)
    readings = read(answers)
    assert labels_agreement(answers, [labels for labels, _ in readings])["accuracy"] >= 0.92
    # The labels were fitted on these very answers: those of images that were held out are the measure.
    assert cross_validate(shipped_reader().model, answers) >= 0.92
    assert facts_agreement(answers, [facts for _, facts in readings], embedder)["f1"] >= 0.71
