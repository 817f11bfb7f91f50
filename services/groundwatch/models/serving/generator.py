"""Images from texts, by any pipeline that diffusers loads, the checkpoint's own among them."""

import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import torch
from PIL import Image

from groundwatch.models.serving.failures import CheckpointError, Refused, in_groups
from groundwatch.models.serving.images import png
from groundwatch.models.serving.loading import device_of, dtype_of, loading, source
from groundwatch.models.serving.parameters import Parameters

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
            self._refuse_broken()

    def _refuse_broken(self) -> None:
        for part, module in self._pipeline.components.items():
            if isinstance(module, torch.nn.Module):
                module.eval().requires_grad_(False)
                for name, weights in module.named_parameters():
                    if not bool(torch.isfinite(weights).all()):
                        raise CheckpointError(
                            f"{self._parameters.model_id}: weights '{part}.{name}' hold what is no number: "
                            "the checkpoint is broken"
                        )

    def warm_up(self, image: bytes) -> None:
        """One image in two steps, so that the first user does not wait; refuses a checkpoint without one."""
        if isinstance(found := self.draw([GenerationRequest(prompt="a", steps=2)])[0], Exception):
            raise CheckpointError(f"{self._parameters.model_id} cannot draw: {found}")

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
