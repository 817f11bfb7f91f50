"""Checkpoints with random weights, tiny, in Hugging Face format: what serving code can be tested on.

`vision_language`, `image_encoder`, `text_encoder` and `generator` write one into a folder and give the
folder back. They are shaped as the miniature world's checkpoints are.
"""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import torch
from PIL import Image

CHAT = (
    "{% for m in messages %}{{ '<|im_start|>' if m['role']=='user' else '' }}"
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for c in m['content'] %}"
    "{% if c['type']=='image' %}<image>{% elif c['type']=='text' %}{{ c['text'] }}{% endif %}{% endfor %}"
    "{% endif %}{{ '<|im_end|>' }}{% endfor %}"
)
MARKS = ["<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>", "<|im_start|>"]
WORDS = "yes no there is a the are two red green blue circle square left of above image describe and small"

PIPELINE = '''
"""A generator that a checkpoint brings along: noise, shifted by its prompt."""

import numpy as np
import torch
from diffusers import DiffusionPipeline
from diffusers.pipelines.pipeline_utils import ImagePipelineOutput


class MiniaturePipeline(DiffusionPipeline):
    def __init__(self, unet, scheduler):
        super().__init__()
        self.register_modules(unet=unet, scheduler=scheduler)

    @torch.no_grad()
    def __call__(self, prompt, generator=None, num_inference_steps=4, output_type="pil", **_):
        x = torch.cat([torch.randn((1, 3, 16, 16), generator=one) for one in generator])
        x = x + torch.tensor([(sum(map(ord, text)) % 97) / 97 for text in prompt])[:, None, None, None]
        self.scheduler.set_timesteps(num_inference_steps)
        for t in self.scheduler.timesteps:
            x = self.scheduler.step(self.unet(x, t).sample, t, x).prev_sample
        images = (x / 2 + 0.5).clamp(0, 1).permute(0, 2, 3, 1).numpy()
        return ImagePipelineOutput(images=images)
'''


def picture(number: int = 0, *, size: tuple[int, int] = (64, 64), kind: str = "PNG") -> bytes:
    """An image of coloured blocks; another number, another image."""
    dice = random.Random(number)
    image = Image.new("RGB", (4, 4))
    image.putdata([tuple(dice.randrange(256) for _ in range(3)) for _ in range(16)])
    out = io.BytesIO()
    image.resize(size, Image.Resampling.NEAREST).save(out, kind)
    return out.getvalue()


def vision_language(
    folder: Path,
    *,
    width: int = 32,
    layers: int = 2,
    heads: int = 4,
    ratio: int = 3,
    positions: int = 512,
    patch: int = 8,
    side: int = 64,
    chat: str = CHAT,
) -> Path:
    """An Idefics3 with its processor: `<image>` becomes (side / patch / 2)² tokens and three marks."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import (
        Idefics3Config,
        Idefics3ForConditionalGeneration,
        Idefics3ImageProcessorPil,
        Idefics3Processor,
        PreTrainedTokenizerFast,
    )

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    special = ["<pad>", "<s>", "</s>", "<unk>", "<|im_end|>", *MARKS]
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    raw.train_from_iterator([WORDS, *WORDS.split()] * 50, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="<|im_end|>",
        unk_token="<unk>",
        padding_side="left",
        additional_special_tokens=MARKS,
    )
    config = Idefics3Config(
        vision_config={
            "hidden_size": width,
            "intermediate_size": width * ratio,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "image_size": side,
            "patch_size": patch,
        },
        text_config={
            "model_type": "llama",
            "vocab_size": len(tokenizer),
            "hidden_size": width,
            "intermediate_size": width * ratio,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": heads,
            "max_position_embeddings": positions,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": tokenizer.eos_token_id,
            "tie_word_embeddings": True,
        },
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        scale_factor=2,
        pad_token_id=0,
        tie_word_embeddings=True,
    )
    edge = {"longest_edge": side}
    processor = Idefics3Processor(
        image_processor=Idefics3ImageProcessorPil(size=edge, max_image_size=edge, do_image_splitting=False),
        tokenizer=tokenizer,
        image_seq_len=(side // patch // 2) ** 2,
    )
    processor.chat_template = chat
    torch.manual_seed(0)
    model = Idefics3ForConditionalGeneration(config)
    # Fresh weights are so small that every image and every statement would give the same answer.
    with torch.no_grad():
        for weights in model.parameters():
            if weights.ndim > 1:
                weights.mul_(4.0)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    (folder / "groundwatch.json").write_text(json.dumps({"statement_template": "{statement}"}))
    return folder


def image_encoder(folder: Path) -> Path:
    """A ViT."""
    from transformers import ViTConfig, ViTImageProcessorPil, ViTModel

    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=64,
        patch_size=16,
    )
    ViTModel(config).save_pretrained(folder)
    ViTImageProcessorPil(size={"height": 64, "width": 64}).save_pretrained(folder)
    return folder


def text_encoder() -> Path:
    """The packaged MiniLM, whose weights are real."""
    from groundwatch.models.embeddings import _model_folder

    return _model_folder()


def generator(folder: Path) -> Path:
    """A diffusers checkpoint that brings its own pipeline."""
    from diffusers import DDIMScheduler, UNet2DModel

    torch.manual_seed(0)
    folder.mkdir(parents=True, exist_ok=True)
    UNet2DModel(
        sample_size=16,
        block_out_channels=(8, 16),
        layers_per_block=1,
        norm_num_groups=4,
        down_block_types=("DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"),
    ).save_pretrained(folder / "unet")
    DDIMScheduler().save_pretrained(folder / "scheduler")
    index = {
        "_class_name": ["pipeline", "MiniaturePipeline"],
        "_diffusers_version": "0.35.0",
        "unet": ["diffusers", "UNet2DModel"],
        "scheduler": ["diffusers", "DDIMScheduler"],
    }
    (folder / "model_index.json").write_text(json.dumps(index))
    (folder / "pipeline.py").write_text(PIPELINE)
    return folder


def spoil(folder: Path, *, file: str = "model.safetensors", nan: bool = False) -> None:
    """Break a checkpoint: cut its weights off in the middle, or make one of its tensors NaN."""
    from safetensors.torch import load_file, save_file

    path = folder / file
    if not nan:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        return
    tensors: dict[str, Any] = load_file(path)
    name = next(iter(tensors))
    tensors[name] = tensors[name] * float("nan")
    save_file(tensors, path, metadata={"format": "pt"})
