"""What the generator's training begins with."""

from __future__ import annotations

import pytest
import torch
from tools.miniature.generator import models

from tools.miniature import build

WORDS = build.tokenizer()


@pytest.mark.slow
def test_the_encoder_begins_near() -> None:
    torch.manual_seed(0)
    encoder, _ = models(WORDS, width=32, layers=1)
    biases = encoder.encoder.block[0].layer[0].SelfAttention.compute_bias(100, 100)[0]
    for head in biases:
        assert (head.diagonal() == 0).all()
        for at in (0, 50, 99):
            assert (head[at, at:].diff() <= 0).all()
            assert (head[at, : at + 1].diff() >= 0).all()
        assert head[0, 99] < head[0, 1] < 0
    assert (biases[0, 0, 1:] < biases[1, 0, 1:]).all()
