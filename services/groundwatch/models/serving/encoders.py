"""Vectors of images and of texts."""

import importlib
from collections.abc import Sequence
from typing import Any

import torch

from groundwatch.models.serving.failures import CheckpointError, Refused, in_batches
from groundwatch.models.serving.images import decode
from groundwatch.models.serving.loading import device_of, dtype_of, in_place, loading, source
from groundwatch.models.serving.parameters import Parameters

Vector = tuple[float, ...]


class ImageEncoder:
    """A checkpoint that AutoImageProcessor and AutoModel load: ViT, DINOv2, CLIP and their like.

    Its vector is, by `pooling`: the class token after the last layer (`cls`, as GenCeption does with
    ViT), the `mean` over places, or what the model's own `pooler` gives; `auto` is a projection into the
    space shared with texts where the model has one, else cls.
    """

    def __init__(self, parameters: Parameters) -> None:
        transformers: Any = importlib.import_module("transformers")
        self._parameters = parameters
        with loading(parameters):
            self._processor = transformers.AutoImageProcessor.from_pretrained(
                parameters.model_id, **source(parameters)
            )
            model = transformers.AutoModel.from_pretrained(
                parameters.model_id, dtype=dtype_of(parameters), **source(parameters)
            )
            self._model = in_place(model, parameters)

    def warm_up(self, image: bytes) -> None:
        """One vector, so that the first user does not wait; refuses a checkpoint that gives none."""
        if isinstance(found := self.encode([image])[0], Exception):
            raise CheckpointError(f"{self._parameters.model_id} cannot encode: {found}")

    def encode(self, images: Sequence[bytes]) -> list[Vector | Exception]:
        """One vector for each image, in order; an error in the place of one."""
        return in_batches(images, self._encode, size=self._parameters.max_rows)

    @torch.inference_mode()
    def _encode(self, images: Sequence[bytes]) -> list[Vector]:
        opened = [decode(data, self._parameters) for data in images]
        asked = self._processor(images=opened, return_tensors="pt")
        pixels = {
            name: value.to(self._model.device, self._model.dtype if value.is_floating_point() else None)
            for name, value in asked.items()
        }
        return _finite(self._pooled(pixels).float())

    def _pooled(self, pixels: dict[str, Any]) -> Any:
        pooling = self._parameters.pooling
        if pooling == "auto" and hasattr(self._model, "get_image_features"):
            found = self._model.get_image_features(**pixels)
            return found if isinstance(found, torch.Tensor) else found.pooler_output
        found = self._model(**pixels)
        if pooling == "pooler":
            return found.pooler_output
        return found.last_hidden_state.mean(1) if pooling == "mean" else found.last_hidden_state[:, 0]


class TextEncoder:
    """A checkpoint that sentence-transformers loads: one with its own pooling, or any encoder, by mean."""

    def __init__(self, parameters: Parameters) -> None:
        from sentence_transformers import SentenceTransformer

        self._parameters = parameters
        with loading(parameters):
            dtype = dtype_of(parameters)
            model: Any = SentenceTransformer(
                parameters.model_id,
                device=device_of(parameters),
                model_kwargs={"dtype": dtype},
                **source(parameters),
            )
            self._model = in_place(model, parameters)

    def warm_up(self, image: bytes) -> None:
        """One vector, so that the first user does not wait; refuses a checkpoint that gives none."""
        if isinstance(found := self.encode(["a"])[0], Exception):
            raise CheckpointError(f"{self._parameters.model_id} cannot encode: {found}")

    def encode(self, texts: Sequence[str]) -> list[Vector | Exception]:
        """One vector for each text, in order; what a model cannot read of a long text is not in it."""
        return in_batches(texts, self._encode, size=self._parameters.max_rows)

    @torch.inference_mode()
    def _encode(self, texts: Sequence[str]) -> list[Vector]:
        found = self._model.encode(
            list(texts), batch_size=len(texts), convert_to_tensor=True, show_progress_bar=False
        )
        return _finite(found.float())


def _finite(rows: Any) -> list[Vector]:
    if not bool(torch.isfinite(rows).all()):
        raise Refused("not_finite", "the vector holds what is no number")
    return [tuple(row) for row in rows.tolist()]
