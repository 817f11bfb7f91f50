"""Checkpoints with random weights, tiny, in Hugging Face format: what serving code can be tested on.

`vision_language`, `blip2`, `florence2`, `image_encoder`, `text_encoder`, `generator`, `owl` and
`grounding_dino` write one into a folder and give the folder back. All but `blip2`, `florence2` and
`grounding_dino` are shaped as the miniature world's are.
"""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any, Literal

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


def _byte_tokenizer(**settings: Any) -> Any:
    """A byte-level BPE with the chat's marks, as of LLaMA, OPT and BART."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    special = ["<pad>", "<s>", "</s>", "<unk>", "<|im_end|>", *MARKS]
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    raw.train_from_iterator([WORDS, *WORDS.split()] * 50, trainer)
    common = {"pad_token": "<pad>", "bos_token": "<s>", "unk_token": "<unk>", "padding_side": "left"}
    return PreTrainedTokenizerFast(tokenizer_object=raw, **common | settings)


def _piece_tokenizer() -> Any:
    """A unigram model of words and letters that puts </s> behind a text, as T5's does."""
    from transformers import T5Tokenizer

    letters = [(chr(code), -9.0) for code in range(33, 127)]
    words = [(f"▁{word}", -3.0) for word in sorted({*WORDS.split(), "Yes", "No"})]
    vocab = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -4.0), *letters, *words]
    return T5Tokenizer(vocab=vocab, extra_ids=0, model_max_length=512)


def _save(folder: Path, model: Any, processor: Any, *, louder: float = 4.0) -> Path:
    # Fresh weights are so small that every image and every statement would give the same answer.
    with torch.no_grad():
        for weights in model.parameters():
            if weights.ndim > 1:
                weights.mul_(louder)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    (folder / "groundwatch.json").write_text(json.dumps({"statement_template": "{statement}"}))
    return folder


def blip2(folder: Path, *, decoder: bool = False, places: int = 4, instruct: bool = False) -> Path:
    """A BLIP-2 with a T5, or with an OPT that has only a `decoder`; its image takes `places` tokens.

    An InstructBLIP where it is to `instruct` its Q-Former.
    """
    import transformers
    from tokenizers.processors import TemplateProcessing
    from transformers import BlipImageProcessorPil, OPTConfig, T5Config

    kind = "InstructBlip" if instruct else "Blip2"

    tokenizer = _byte_tokenizer(eos_token="</s>") if decoder else _piece_tokenizer()
    if decoder:
        begins = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
        tokenizer.backend_tokenizer.post_processor = begins
    processor = getattr(transformers, f"{kind}Processor")(
        image_processor=BlipImageProcessorPil(size={"height": 32, "width": 32}),
        tokenizer=tokenizer,
        num_query_tokens=places,
        **({"qformer_tokenizer": _byte_tokenizer(eos_token="</s>")} if instruct else {}),
    )
    layers = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "initializer_range": 0.02}
    text: Any = T5Config(
        vocab_size=len(tokenizer),
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        feed_forward_proj="gated-gelu",
        decoder_start_token_id=0,
    )
    if decoder:
        text = OPTConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            word_embed_proj_dim=32,
            ffn_dim=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=512,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        )
    config = getattr(transformers, f"{kind}Config")(
        vision_config={**layers, "intermediate_size": 64, "image_size": 32, "patch_size": 8},
        qformer_config={**layers, "intermediate_size": 64, "vocab_size": 400},
        text_config=text.to_dict(),
        num_query_tokens=4,
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
    )
    torch.manual_seed(0)
    return _save(folder, getattr(transformers, f"{kind}ForConditionalGeneration")(config), processor)


def florence2(folder: Path) -> Path:
    """A Florence-2: a BART with image features among its tokens; an answer begins with a token of its own."""
    from transformers import (
        BartConfig,
        CLIPImageProcessorPil,
        Florence2Config,
        Florence2ForConditionalGeneration,
        Florence2Processor,
    )

    tokenizer = _byte_tokenizer(eos_token="</s>", extra_special_tokens={"image_token": "<image>"})
    square = {"height": 32, "width": 32}
    pictures = CLIPImageProcessorPil(size=square, crop_size=square, do_center_crop=False)
    pictures.image_seq_length = 17
    text = BartConfig(
        vocab_size=len(tokenizer),
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_position_embeddings=512,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=2,
    )
    config = Florence2Config(
        vision_config={
            "depths": (1, 1),
            "patch_size": (7, 3),
            "patch_stride": (4, 2),
            "patch_padding": (3, 1),
            "patch_prenorm": (False, True),
            "embed_dim": (16, 32),
            "num_heads": (2, 4),
            "num_groups": (2, 4),
            "window_size": 4,
            "projection_dim": 32,
        },
        text_config=text.to_dict(),
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
    )
    torch.manual_seed(0)
    model = Florence2ForConditionalGeneration(config)
    model.generation_config.forced_bos_token_id = 1
    processor = Florence2Processor(image_processor=pictures, tokenizer=tokenizer)
    return _save(folder, model, processor, louder=10.0)


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
    from transformers import (
        Idefics3Config,
        Idefics3ForConditionalGeneration,
        Idefics3ImageProcessorPil,
        Idefics3Processor,
    )

    tokenizer = _byte_tokenizer(eos_token="<|im_end|>", additional_special_tokens=MARKS)
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
    return _save(folder, Idefics3ForConditionalGeneration(config), processor)


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


def owl(folder: Path, *, version: Literal["owlvit", "owlv2"] = "owlv2") -> Path:
    """An OWLv2 or OWL-ViT: 8 by 8 places, texts of at most 14 tokens."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = ["<pad>", "<unk>", "<s>", *WORDS.split(), "</s>"]
    raw = Tokenizer(models.WordLevel({word: at for at, word in enumerate(words)}, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    raw.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 2), ("</s>", len(words) - 1)]
    )
    marks = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=raw, model_max_length=16, **marks)
    shape = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    ends = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": len(words) - 1}
    names = {"owlv2": "Owlv2", "owlvit": "OwlViT"}
    parts: Any = [
        getattr(transformers, names[version] + what)
        for what in ("Config", "ForObjectDetection", "ImageProcessorPil", "Processor")
    ]
    config, model, images, processor = parts
    torch.manual_seed(0)
    made = model(
        config(
            vision_config={**shape, "image_size": 64, "patch_size": 8},
            text_config={**shape, **ends, "vocab_size": len(words), "max_position_embeddings": 16},
            projection_dim=32,
        )
    )
    with torch.no_grad():
        # Fresh weights are so small that all places and phrases would be as good, but for those of the heads:
        # they are so large that scores are 0 or 1.
        for name, weights in made.named_parameters():
            if weights.ndim > 1:
                weights.mul_(0.2 if "_head" in name else 4.0)
    made.save_pretrained(folder)
    processor(images(size={"height": 64, "width": 64}), tokenizer).save_pretrained(folder)
    return folder


def grounding_dino(folder: Path) -> Path:
    """A Grounding DINO whose text holds 24 tokens; its marks are where BERT's vocabulary has them."""
    from transformers import (
        BertTokenizer,
        GroundingDinoConfig,
        GroundingDinoForObjectDetection,
        GroundingDinoImageProcessorPil,
        GroundingDinoProcessor,
    )

    vocabulary = {f"[unused{at}]": at for at in range(1100)}
    marks = {"[PAD]": 0, "[UNK]": 100, "[CLS]": 101, "[SEP]": 102, "[MASK]": 103, ".": 1012, "?": 1029}
    known = marks | {word: 1030 + at for at, word in enumerate(WORDS.split())}
    words = {at: word for word, at in vocabulary.items()} | {at: word for word, at in known.items()}
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    swin = {"embed_dim": 8, "depths": [1, 1, 1, 1], "num_heads": [1, 1, 2, 2], "window_size": 2}
    model = GroundingDinoForObjectDetection(
        GroundingDinoConfig(
            backbone_config={"model_type": "swin", "image_size": 64, "out_indices": [2, 3, 4], **swin},
            text_config={"model_type": "bert", "vocab_size": len(words), **shape},
            num_queries=12,
            d_model=32,
            encoder_layers=1,
            encoder_ffn_dim=32,
            encoder_attention_heads=4,
            decoder_layers=2,
            decoder_ffn_dim=32,
            decoder_attention_heads=4,
            max_text_len=24,
        )
    )
    model.save_pretrained(folder)
    edges = {"shortest_edge": 96, "longest_edge": 160}
    tokenizer = BertTokenizer(vocab={word: at for at, word in sorted(words.items())})
    GroundingDinoProcessor(GroundingDinoImageProcessorPil(size=edges), tokenizer).save_pretrained(folder)
    return folder


def text_encoder() -> Path:
    """The packaged MiniLM, whose weights are real."""
    from groundwatch.models.embeddings import encoder_folder

    return encoder_folder()


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
