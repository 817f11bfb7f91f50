"""Vectors of images and of texts, and images from texts."""

import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import torch
from PIL import Image

from groundwatch.models.serving.failures import Refused, in_batches, in_groups
from groundwatch.models.serving.loading import (
    check_first,
    decode,
    device_of,
    dtype_of,
    in_place,
    loading,
    png,
    ready,
    source,
)
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
        check_first(self.encode([image])[0], self._parameters, "encode")

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
        check_first(self.encode(["a"])[0], self._parameters, "encode")

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


MAX_STEPS = 1000
_CHARACTERS = 20_000


class GenerationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be drawn. `steps` 0: as many as the served model is set to."""

    prompt: str
    seed: int = 0
    steps: int = 0


class Generator:
    """A pipeline; a file `pipeline.py` in the checkpoint's folder is its code.

    The code of a folder that the operator named runs as theirs; code from the hub never does.
    """

    def __init__(self, parameters: Parameters) -> None:
        diffusers: Any = importlib.import_module("diffusers")
        self._parameters = parameters
        folder = parameters.folder
        own = folder is not None and (folder / "pipeline.py").is_file()
        with loading(parameters):
            dtype = dtype_of(parameters)
            pipeline = diffusers.DiffusionPipeline.from_pretrained(
                parameters.model_id,
                **({"custom_pipeline": str(folder), "trust_remote_code": True} if own else {}),
                **({"dtype": dtype} if isinstance(dtype, torch.dtype) else {}),
                low_cpu_mem_usage=importlib.util.find_spec("accelerate") is not None,
                **source(parameters),
            )
            self._pipeline = pipeline.to(device_of(parameters))
            self._pipeline.set_progress_bar_config(disable=True)
            for part, module in self._pipeline.components.items():
                if isinstance(module, torch.nn.Module):
                    ready(module, parameters, f"{part}.")

    def warm_up(self, image: bytes) -> None:
        check_first(self.draw([GenerationRequest(prompt="a", steps=2)])[0], self._parameters, "draw")

    def draw(self, requests: Sequence[GenerationRequest]) -> list[bytes | Exception]:
        """One PNG for each request, in order; an error in the place of one."""
        return in_groups(requests, self._group, self._draw, size=self._parameters.max_rows)

    def _group(self, request: GenerationRequest) -> tuple[int, GenerationRequest]:
        if not request.prompt.strip() or not 0 <= request.steps <= MAX_STEPS:
            raise Refused("judge_rejected_request", f"a prompt and 0 to {MAX_STEPS} steps are needed")
        if len(request.prompt) > _CHARACTERS:
            raise Refused("prompt_too_long", f"{len(request.prompt)} characters")
        return request.steps, request

    @torch.inference_mode()
    def _draw(self, requests: Sequence[GenerationRequest]) -> list[bytes]:
        parameters = self._parameters
        options: dict[str, Any] = {}
        if steps := requests[0].steps or parameters.steps:
            options["num_inference_steps"] = steps
        if parameters.image_size:
            options |= {"height": parameters.image_size, "width": parameters.image_size}
        if parameters.guidance >= 0:
            options["guidance_scale"] = parameters.guidance
        made = self._pipeline(
            prompt=[request.prompt for request in requests],
            # Each has its own dice, on the CPU: up to rounding the same image in any batch, on any device.
            generator=[torch.Generator("cpu").manual_seed(request.seed) for request in requests],
            output_type="np",
            **options,
        )
        if any(getattr(made, "nsfw_content_detected", None) or ()):
            raise Refused("refused", "the generator's safety checker withheld the image")
        return [png(_picture(image)) for image in made.images]


def _picture(image: Any) -> Image.Image:
    """Pipelines give numbers from 0 to 1, but a folder's own may know only pictures."""
    if isinstance(image, Image.Image):
        return image
    values = np.asarray(image, dtype=np.float32)
    if not np.isfinite(values).all():
        raise Refused("not_finite", "the image holds what is no number")
    return Image.fromarray((values.clip(0, 1) * 255).round().astype(np.uint8))
