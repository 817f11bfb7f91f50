"""Verifiers of an encoder and a decoder, as BLIP-2 with Flan-T5 is: an image is encoded once for all
statements.

The encoder reads an image's features together with a statement, so statements share no prefix. They share
what makes the features, a vision tower and what follows it (BLIP-2's Q-Former): most of the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from PIL import Image

from groundwatch.models.serving.failures import CheckpointError
from groundwatch.models.serving.lvlm import Prepared, VisionLanguage
from groundwatch.models.serving.parameters import Parameters
from groundwatch.models.serving.verifier import Ready, Verifier


def load_verifier(parameters: Parameters, *, checkpoint: VisionLanguage | None = None) -> Verifier:
    """The verifier that suits a checkpoint. Raises `CheckpointError` when none does."""
    checkpoint = checkpoint or VisionLanguage(parameters)
    kind = EncoderDecoderVerifier if checkpoint.encoder_decoder else Verifier
    return kind(parameters, checkpoint=checkpoint)


class EncoderDecoderVerifier(Verifier):
    """P(yes) is read off the decoder's first step that is free: some must begin with a token of their own."""

    def __init__(self, parameters: Parameters, *, checkpoint: VisionLanguage) -> None:
        super().__init__(parameters, checkpoint=checkpoint)
        model = checkpoint.model
        if not hasattr(model, "get_image_features") or checkpoint.image_token_id is None:
            why = "is an encoder-decoder that takes no image among its tokens"
            raise CheckpointError(f"{parameters.model_id} {why}")
        start = _set(checkpoint.language, "decoder_start_token_id")
        if start is None:
            raise CheckpointError(f"{parameters.model_id} does not say what its decoder starts from")
        forced = _set(checkpoint.language, "forced_bos_token_id")
        begins = [start] if forced is None else [start, forced]
        self._begins = torch.tensor([begins], device=checkpoint.device)

    def _logits(self, asked: dict[str, Any]) -> Any:
        begins = self._begins.expand(len(asked["attention_mask"]), -1)
        return self.checkpoint.model(**asked, decoder_input_ids=begins).logits[:, -1]

    def _divided(self, images: list[Image.Image], asked: list[str], rows: list[list[int]]) -> Ready:
        """Whole prompts: what the processor puts around the first one's text goes around each."""
        checkpoint = self.checkpoint
        whole = checkpoint.prepare(images, asked[0])
        ends = range(len(whole.ids), len(rows[0]) - 1, -1)
        end = next((end for end in ends if whole.ids[end - len(rows[0]) : end] == rows[0]), None)
        if end is None:
            raise CheckpointError(f"{self._parameters.model_id}: the processor rewrites the text")
        before, after = whole.ids[: end - len(rows[0])], whole.ids[end:]
        rests = [[*before, *row, *after] for row in rows]
        checkpoint.check_length(max(map(len, rests)))
        return Ready(prefix=whole.until(0), rests=rests)

    def _prefill(self, group: Sequence[Ready]) -> Any:
        """The images' features as the encoder takes them: (requests, places, width)."""
        vision = self.checkpoint.vision([one.prefix for one in group])
        return self.checkpoint.model.get_image_features(**vision).pooler_output

    def _score(self, cache: Any, rows: Sequence[tuple[int, list[int]]], *, last: bool) -> list[float]:
        """P(yes) of whole prompts about the images whose features stand at their places in `cache`."""
        checkpoint = self.checkpoint
        asked = checkpoint.batch([Prepared(ids=rest) for _, rest in rows])
        ids = asked.pop("input_ids")
        embedded = checkpoint.model.get_input_embeddings()(ids)
        features = cache[[place for place, _ in rows]].to(embedded.dtype)
        places = (ids == checkpoint.image_token_id)[..., None].expand_as(embedded)
        if int(places.sum()) != features.numel():
            why = "the processor leaves the image another number of places than the model fills"
            raise CheckpointError(f"{self._parameters.model_id}: {why}")
        found = checkpoint.language(
            inputs_embeds=embedded.masked_scatter(places, features),
            decoder_input_ids=self._begins.expand(len(rows), -1),
            **asked,
        )
        return self._probabilities(found.logits[:, -1])


def _set(model: Any, name: str) -> int | None:
    """What the checkpoint says of generation, or else of its decoder."""
    found = getattr(model.generation_config, name, None)
    return getattr(model.config.get_text_config(decoder=True), name, None) if found is None else found
