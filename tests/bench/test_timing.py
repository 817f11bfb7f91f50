"""A verifier that tells where its time goes."""

from __future__ import annotations

from pathlib import Path

from bench.timing import TimedVerifier
from tests.support import checkpoints
from tests.support.checkpoints import picture

from groundwatch.models.serving.parameters import Parameters
from groundwatch.models.serving.verifier import EntailmentRequest


def test_it_tells_where_the_time_goes(tmp_path: Path) -> None:
    folder = checkpoints.vision_language(tmp_path / "vision_language")
    verifier = TimedVerifier(Parameters(model_id=str(folder)))
    verifier.judge([EntailmentRequest(images=(picture(),), statements=("the dog is brown", "two"))])
    assert min(verifier.prepare, verifier.prefix, verifier.statements) > 0
