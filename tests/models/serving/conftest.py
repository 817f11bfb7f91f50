"""Tiny random-weight checkpoints, made once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.support import checkpoints

from groundwatch.models.serving.lvlm import Lvlm, VisionLanguage
from groundwatch.models.serving.parameters import Parameters
from groundwatch.models.serving.verifier import Verifier


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Two cores are shared with whatever else is tested."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vision-language checkpoint; not to be changed."""
    return checkpoints.vision_language(tmp_path_factory.mktemp("checkpoints") / "vision_language")


@pytest.fixture(scope="session")
def checkpoint(folder: Path) -> VisionLanguage:
    """The same, loaded."""
    return VisionLanguage(Parameters(model_id=str(folder)))


@pytest.fixture(scope="session")
def verifier(folder: Path, checkpoint: VisionLanguage) -> Verifier:
    """A verifier on it."""
    return Verifier(Parameters(model_id=str(folder)), checkpoint=checkpoint)


@pytest.fixture(scope="session")
def lvlm(folder: Path, checkpoint: VisionLanguage) -> Lvlm:
    """An LVLM on it."""
    return Lvlm(Parameters(model_id=str(folder), max_tokens=32), checkpoint=checkpoint)


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Callable[[], Path]:
    """A copy of the checkpoint that a test may spoil."""

    def make() -> Path:
        return Path(shutil.copytree(folder, tmp_path / "copy"))

    return make
