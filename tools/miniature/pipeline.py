"""Text to image by flow matching in pixels: a text encoder, a diffusion transformer, a scheduler.

This file is copied into the generator's checkpoint and is its pipeline: diffusers loads it from there with
`custom_pipeline`, so it must stand alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from diffusers import DiffusionPipeline
from diffusers.pipelines.pipeline_utils import ImagePipelineOutput
from PIL import Image

SMALLEST_SIGMA = 0.03
"""Velocities are divided by the share of noise; below this it counts as this."""


class MiniaturePipeline(DiffusionPipeline):
    """The transformer predicts the clean image; the scheduler steps along (noisy - clean) / sigma."""

    tokenizer: Any
    text_encoder: Any
    transformer: Any
    scheduler: Any

    def __init__(self, tokenizer: Any, text_encoder: Any, transformer: Any, scheduler: Any) -> None:
        super().__init__()
        registered: Any = self
        registered.register_modules(
            tokenizer=tokenizer, text_encoder=text_encoder, transformer=transformer, scheduler=scheduler
        )

    @torch.no_grad()
    def __call__(
        self,
        prompt: str | list[str],
        *,
        num_inference_steps: int = 16,
        guidance_scale: float = 2.0,
        generator: torch.Generator | list[torch.Generator] | None = None,
        output_type: str = "pil",
        return_dict: bool = True,
        callback_on_step_end: Callable[[int], None] | None = None,
    ) -> ImagePipelineOutput | tuple[Any]:
        """Images for prompts; `output_type` is "pil", or "np" for (B, H, W, 3) from 0 to 1."""
        prompts = [prompt] if isinstance(prompt, str) else prompt
        states, mask = self._encode([*prompts, *[""] * len(prompts)])
        side = self.transformer.config.sample_size
        shape = (3, side, side)
        dice = generator if isinstance(generator, list) else [generator] * len(prompts)
        device, dtype = self.transformer.device, self.transformer.dtype
        noisy = torch.stack([torch.randn(shape, generator=one) for one in dice]).to(device, dtype)
        self.scheduler.set_timesteps(num_inference_steps, device=device)
        for step, time in enumerate(self.scheduler.timesteps):
            sigma = max(float(self.scheduler.sigmas[step]), SMALLEST_SIGMA)
            clean = self.transformer(
                torch.cat([noisy, noisy]),
                encoder_hidden_states=states,
                encoder_attention_mask=mask,
                timestep=time.expand(2 * len(prompts)),
                added_cond_kwargs={"resolution": None, "aspect_ratio": None},
            ).sample
            given, free = clean.chunk(2)
            clean = free + guidance_scale * (given - free)
            noisy = self.scheduler.step((noisy - clean) / sigma, time, noisy).prev_sample
            if callback_on_step_end is not None:
                callback_on_step_end(step)
        values = ((noisy.float() + 1) / 2).clamp(0, 1).permute(0, 2, 3, 1).cpu().numpy()
        images: Any = values
        if output_type == "pil":
            images = [Image.fromarray((one * 255).round().astype(np.uint8)) for one in values]
        return ImagePipelineOutput(images=images) if return_dict else (images,)

    def _encode(self, prompts: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
        words = self.tokenizer(
            prompts, padding=True, truncation=True, max_length=160, padding_side="right", return_tensors="pt"
        ).to(self.text_encoder.device)
        if words.input_ids.shape[1] == 0:
            words = self.tokenizer([" "] * len(prompts), return_tensors="pt").to(self.text_encoder.device)
        mask = words.attention_mask.clone()
        mask[:, 0] = 1
        states = self.text_encoder(input_ids=words.input_ids, attention_mask=mask).last_hidden_state
        return states, mask
