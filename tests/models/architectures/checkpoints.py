"""Tiny checkpoints with random weights of the architectures that people serve today.

Each is what transformers itself makes of a configuration, with a tokenizer of its own. They need torchvision.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tests.models.architectures.operators  # noqa: F401  (before transformers looks for torchvision)
import torch
import transformers as hf

WORDS = (
    "yes no Yes No there is a the are two red green blue circle square left of above image describe and "
    "small user assistant system Statement what big horse on in it USER ASSISTANT model"
)

TEXT: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
}
SIGLIP: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 64,
    "patch_size": 16,
}
SIDE = {"height": 64, "width": 64}
PINPOINTS = [[64, 128], [128, 64], [128, 128]]
ROPE = {"rope_type": "default", "rope_theta": 10000.0}

MAKERS: dict[str, Callable[[Path], None]] = {}


def architecture(make: Callable[[Path], None]) -> Callable[[Path], None]:
    MAKERS[make.__name__] = make
    return make


def tokenizer(
    marks: Sequence[str],
    *,
    pad: str = "<pad>",
    bos: str | None = "<s>",
    eos: str = "</s>",
    add_bos: bool = False,
    **named: str,
) -> Any:
    """A byte-level BPE in which the words above are tokens. `named` are special tokens with a role."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from tokenizers.processors import TemplateProcessing

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    special = list(dict.fromkeys([one for one in (pad, bos, eos, "<unk>") if one] + list(marks)))
    trainer = trainers.BpeTrainer(
        vocab_size=420 + len(special),
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    raw.train_from_iterator([WORDS, *WORDS.split(), *(f" {word}" for word in WORDS.split())] * 50, trainer)
    if add_bos:
        begins = [(bos, special.index(str(bos)))]
        raw.post_processor = TemplateProcessing(single=f"{bos} $A", special_tokens=begins)
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=raw,
        pad_token=pad,
        bos_token=bos,
        eos_token=eos,
        unk_token="<unk>",
        additional_special_tokens=[one for one in special if one not in (pad, bos, eos, "<unk>")],
        **({"extra_special_tokens": named} if named else {}),
    )


def chat(
    image: str,
    user: tuple[str, str] = ("<|im_start|>user\n", "<|im_end|>\n"),
    answer: str = "<|im_start|>assistant\n",
    before: str = "",
) -> str:
    """A chat template: what stands for an image, around what a user says, and before an answer."""
    parts = (
        f"{{% for c in m['content'] %}}{{% if c['type']=='image' %}}{image}"
        "{% elif c['type']=='text' %}{{ c['text'] }}{% endif %}{% endfor %}"
    )
    turns = f"{{% for m in messages %}}{user[0]}{parts}{user[1]}{{% endfor %}}"
    return f"{before}{turns}{{% if add_generation_prompt %}}{answer}{{% endif %}}"


LLAVA_CHAT = chat("<image>\n", ("USER: ", " "), "ASSISTANT:")


def ids(words: Any, **names: str) -> dict[str, int]:
    return {name: words.convert_tokens_to_ids(mark) for name, mark in names.items()}


def ends(words: Any) -> dict[str, int | None]:
    return {
        "vocab_size": len(words),
        "pad_token_id": words.pad_token_id,
        "bos_token_id": words.bos_token_id,
        "eos_token_id": words.eos_token_id,
    }


def save(folder: Path, config: Any, processor: Any, *, louder: float = 3.0, prepare: Any = None) -> None:
    """Fresh weights are so small that every image and every statement would give the same answer."""
    torch.manual_seed(0)
    model = hf.AutoModelForImageTextToText.from_config(config)
    if prepare is not None:
        prepare(model)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if weights.ndim > 1 and "norm" not in name:
                weights.mul_(louder)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    (folder / "groundwatch.json").write_text(json.dumps({"statement_template": "Statement: {statement}"}))


@architecture
def llava(folder: Path) -> None:
    words = tokenizer(["<image>"], add_bos=True)
    config = hf.LlavaConfig(
        vision_config={**SIGLIP, "model_type": "clip_vision_model"},
        text_config={**TEXT, **ends(words), "model_type": "llama"},
        image_seq_length=16,
        **ids(words, image_token_id="<image>"),
    )
    processor = hf.LlavaProcessor(
        image_processor=hf.CLIPImageProcessor(size={"shortest_edge": 64}, crop_size=SIDE),
        tokenizer=words,
        patch_size=16,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=LLAVA_CHAT,
    )
    save(folder, config, processor)


@architecture
def llava_next(folder: Path) -> None:
    words = tokenizer(["<image>"], add_bos=True)
    config = hf.LlavaNextConfig(
        vision_config={**SIGLIP, "model_type": "clip_vision_model"},
        text_config={**TEXT, **ends(words), "model_type": "llama"},
        image_grid_pinpoints=PINPOINTS,
        image_seq_length=16,
        **ids(words, image_token_id="<image>"),
    )
    pictures = hf.LlavaNextImageProcessor(
        size={"shortest_edge": 64}, crop_size=SIDE, image_grid_pinpoints=PINPOINTS
    )
    processor = hf.LlavaNextProcessor(
        image_processor=pictures,
        tokenizer=words,
        patch_size=16,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=LLAVA_CHAT,
    )
    save(folder, config, processor)


@architecture
def llava_onevision(folder: Path) -> None:
    words = tokenizer(
        ["<|im_start|>", "<|im_end|>", "<image>", "<video>"], pad="<|end|>", bos=None, eos="<|im_end|>"
    )
    config = hf.LlavaOnevisionConfig(
        vision_config={**SIGLIP, "model_type": "siglip_vision_model"},
        text_config={**TEXT, **ends(words), "model_type": "qwen2"},
        image_grid_pinpoints=PINPOINTS,
        vision_aspect_ratio="anyres_max_9",
        **ids(words, image_token_id="<image>", video_token_id="<video>"),
    )
    processor = hf.LlavaOnevisionProcessor(
        image_processor=hf.LlavaOnevisionImageProcessor(size=SIDE, image_grid_pinpoints=PINPOINTS),
        tokenizer=words,
        video_processor=hf.LlavaOnevisionVideoProcessor(size=SIDE),
        num_image_tokens=16,
        vision_feature_select_strategy="full",
        chat_template=chat("<image>\n"),
    )
    save(folder, config, processor)


def _pixtral(folder: Path, *, merging: bool) -> None:
    words = tokenizer(["[INST]", "[/INST]", "[IMG]", "[IMG_BREAK]", "[IMG_END]"], add_bos=True)
    vision = {
        "model_type": "pixtral",
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "image_size": 128,
        "patch_size": 16,
        "head_dim": 16,
    }
    text = {**TEXT, **ends(words), "model_type": "mistral", "head_dim": 16, "sliding_window": None}
    token = ids(words, image_token_id="[IMG]")
    if merging:
        config = hf.Mistral3Config(vision_config=vision, text_config=text, spatial_merge_size=2, **token)
    else:
        config = hf.LlavaConfig(
            vision_config=vision,
            text_config=text,
            vision_feature_layer=-1,
            vision_feature_select_strategy="full",
            image_seq_length=1,
            **token,
        )
    processor = hf.PixtralProcessor(
        image_processor=hf.PixtralImageProcessor(
            size={"longest_edge": 128}, patch_size={"height": 16, "width": 16}
        ),
        tokenizer=words,
        patch_size=16,
        **({"spatial_merge_size": 2} if merging else {}),
        chat_template=chat("[IMG]", ("[INST]", "[/INST]"), "", "{{ bos_token }}"),
    )
    save(folder, config, processor)


@architecture
def pixtral(folder: Path) -> None:
    _pixtral(folder, merging=False)


@architecture
def mistral3(folder: Path) -> None:
    _pixtral(folder, merging=True)


@architecture
def internvl(folder: Path) -> None:
    marks = ["<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>", "<video>"]
    words = tokenizer(
        marks,
        pad="<|end|>",
        bos=None,
        eos="<|im_end|>",
        start_image_token="<img>",
        end_image_token="</img>",
        context_image_token="<IMG_CONTEXT>",
        video_token="<video>",
    )
    vision = {**SIGLIP, "image_size": [56, 56], "patch_size": [14, 14]}
    config = hf.InternVLConfig(
        vision_config=vision,
        text_config={**TEXT, **ends(words), "model_type": "qwen2", "tie_word_embeddings": False},
        image_seq_length=4,
        downsample_ratio=0.5,
        **ids(words, image_token_id="<IMG_CONTEXT>"),
    )
    size = {"height": 56, "width": 56}
    processor = hf.InternVLProcessor(
        image_processor=hf.GotOcr2ImageProcessor(
            size=size, crop_to_patches=True, min_patches=1, max_patches=4
        ),
        tokenizer=words,
        video_processor=hf.InternVLVideoProcessor(size=size),
        image_seq_length=4,
        chat_template=chat("<IMG_CONTEXT>\n"),
    )
    save(folder, config, processor)


QWEN_MARKS = (
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
QWEN_IDS = {
    "image_token_id": "<|image_pad|>",
    "video_token_id": "<|video_pad|>",
    "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
}
QWEN_CHAT = chat("<|vision_start|><|image_pad|><|vision_end|>")


def _qwen2(folder: Path, kind: Any, vision: dict[str, Any], processing: Any) -> None:
    words = tokenizer(QWEN_MARKS, pad="<|end|>", bos=None, eos="<|im_end|>")
    text = {
        **TEXT,
        **ends(words),
        "rope_parameters": {**ROPE, "mrope_section": [2, 3, 3]},
        "tie_word_embeddings": False,
    }
    config = kind(text_config=text, vision_config=vision, **ids(words, **QWEN_IDS))
    size = {"shortest_edge": 28 * 28 * 4, "longest_edge": 28 * 28 * 64}
    processor = processing(
        image_processor=hf.Qwen2VLImageProcessor(patch_size=14, merge_size=2, size=size),
        tokenizer=words,
        video_processor=hf.Qwen2VLVideoProcessor(patch_size=14),
        chat_template=QWEN_CHAT,
    )
    save(folder, config, processor)


@architecture
def qwen2_vl(folder: Path) -> None:
    vision = {
        "depth": 2,
        "embed_dim": 32,
        "hidden_size": 64,
        "num_heads": 4,
        "mlp_ratio": 2,
        "patch_size": 14,
    }
    _qwen2(folder, hf.Qwen2VLConfig, vision, hf.Qwen2VLProcessor)


@architecture
def qwen2_5_vl(folder: Path) -> None:
    vision = {
        "depth": 2,
        "hidden_size": 32,
        "num_heads": 4,
        "intermediate_size": 64,
        "out_hidden_size": 64,
        "patch_size": 14,
        "window_size": 56,
        "fullatt_block_indexes": [1],
    }
    _qwen2(folder, hf.Qwen2_5_VLConfig, vision, hf.Qwen2_5_VLProcessor)


def _qwen3(folder: Path, kind: Any, *, deep: bool = True, **text: Any) -> None:
    words = tokenizer(QWEN_MARKS, pad="<|end|>", bos=None, eos="<|im_end|>")
    rope = {**ROPE, "mrope_section": [4, 2, 2], "mrope_interleaved": True}
    of_text = {
        **TEXT,
        **ends(words),
        "head_dim": 16,
        "rope_parameters": rope | text.pop("rope", {}),
        "tie_word_embeddings": False,
        **text,
    }
    vision = {
        "depth": 3,
        "hidden_size": 32,
        "num_heads": 4,
        "intermediate_size": 64,
        "out_hidden_size": 64,
        "patch_size": 16,
        "num_position_embeddings": 64,
        **({"deepstack_visual_indexes": [0, 1]} if deep else {}),
    }
    config = kind(text_config=of_text, vision_config=vision, **ids(words, **QWEN_IDS))
    size = {"shortest_edge": 32 * 32 * 4, "longest_edge": 32 * 32 * 64}
    processor = hf.Qwen3VLProcessor(
        image_processor=hf.Qwen2VLImageProcessor(patch_size=16, merge_size=2, size=size),
        tokenizer=words,
        video_processor=hf.Qwen3VLVideoProcessor(patch_size=16),
        chat_template=QWEN_CHAT,
    )
    save(folder, config, processor)


@architecture
def qwen3_vl(folder: Path) -> None:
    _qwen3(folder, hf.Qwen3VLConfig)


@architecture
def qwen3_vl_moe(folder: Path) -> None:
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    _qwen3(folder, hf.Qwen3VLMoeConfig, **experts)


@architecture
def qwen3_5(folder: Path) -> None:
    """Linear attention beside full attention."""
    linear = {
        "num_hidden_layers": 4,
        "layer_types": ["linear_attention"] * 3 + ["full_attention"],
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "linear_conv_kernel_dim": 4,
        "rope": {"partial_rotary_factor": 1.0},
    }
    _qwen3(folder, hf.Qwen3_5Config, deep=False, **linear)


def _glm(folder: Path, config_kind: Any, processing: Any, pictures: Any, videos: Any, **kinds: str) -> None:
    marks = [
        *("<|user|>", "<|assistant|>", "<|begin_of_image|>", "<|end_of_image|>", "<|image|>"),
        *("<|begin_of_video|>", "<|end_of_video|>", "<|video|>", "[gMASK]", "<sop>"),
    ]
    words = tokenizer(marks, pad="<|endoftext|>", bos=None, eos="<|user|>")
    rope = {**ROPE, "mrope_section": [2, 1, 1], "partial_rotary_factor": 0.5}
    text = {**TEXT, **ends(words), "rope_parameters": rope}
    vision = {
        "depth": 2,
        "hidden_size": 32,
        "num_heads": 4,
        "intermediate_size": 64,
        "out_hidden_size": 64,
        "patch_size": 14,
        "image_size": 112,
    }
    if kinds:
        text["model_type"], vision["model_type"] = kinds["text"], kinds["vision"]
    config = config_kind(
        text_config=text,
        vision_config=vision,
        **ids(
            words,
            image_token_id="<|image|>",
            video_token_id="<|video|>",
            image_start_token_id="<|begin_of_image|>",
            image_end_token_id="<|end_of_image|>",
            video_start_token_id="<|begin_of_video|>",
            video_end_token_id="<|end_of_video|>",
        ),
    )
    size = {"shortest_edge": 28 * 28 * 4, "longest_edge": 28 * 28 * 64}
    image = "<|begin_of_image|><|image|><|end_of_image|>"
    processor = processing(
        image_processor=pictures(patch_size=14, size=size),
        tokenizer=words,
        video_processor=videos(patch_size=14),
        chat_template=chat(image, ("<|user|>\n", ""), "<|assistant|>\n", "[gMASK]<sop>"),
    )
    save(folder, config, processor)


@architecture
def glm4v(folder: Path) -> None:
    _glm(folder, hf.Glm4vConfig, hf.Glm4vProcessor, hf.Glm4vImageProcessor, hf.Glm4vVideoProcessor)


@architecture
def glm46v(folder: Path) -> None:
    parts = (hf.Glm46VConfig, hf.Glm46VProcessor, hf.Glm46VImageProcessor, hf.Glm46VVideoProcessor)
    _glm(folder, *parts, text="glm4v_text", vision="glm4v_vision")


GEMMA_TURNS = (("<start_of_turn>user\n", "<end_of_turn>\n"), "<start_of_turn>model\n", "{{ bos_token }}")


def _gemma3(folder: Path, window: int) -> None:
    """An image's tokens see each other in both directions, by `token_type_ids`."""
    marks = [
        "<start_of_turn>",
        "<end_of_turn>",
        "<start_of_image>",
        "<end_of_image>",
        "<image_soft_token>",
    ]
    words = tokenizer(
        marks,
        bos="<bos>",
        eos="<eos>",
        add_bos=True,
        boi_token="<start_of_image>",
        eoi_token="<end_of_image>",
        image_token="<image_soft_token>",
    )
    text = {
        **TEXT,
        **ends(words),
        "head_dim": 16,
        "sliding_window": window,
        "layer_types": ["sliding_attention", "full_attention"],
        "query_pre_attn_scalar": 16,
    }
    config = hf.Gemma3Config(
        text_config=text,
        vision_config=SIGLIP,
        mm_tokens_per_image=4,
        **ids(
            words,
            boi_token_index="<start_of_image>",
            eoi_token_index="<end_of_image>",
            image_token_index="<image_soft_token>",
        ),
    )
    processor = hf.Gemma3Processor(
        image_processor=hf.Gemma3ImageProcessor(size=SIDE),
        tokenizer=words,
        image_seq_length=4,
        chat_template=chat("<start_of_image>", *GEMMA_TURNS),
    )

    def seeing(model: Any) -> None:
        # Zero when new: blind.
        model.model.multi_modal_projector.mm_input_projection_weight.data.normal_(0, 0.3)

    save(folder, config, processor, prepare=seeing)


@architecture
def gemma3(folder: Path) -> None:
    _gemma3(folder, 16)


@architecture
def gemma3_wide(folder: Path) -> None:
    _gemma3(folder, 512)


@architecture
def gemma4(folder: Path) -> None:
    marks = [
        *("<|turn>", "<turn|>", "<|image|>", "<|image>", "<image|>"),
        *("<|audio|>", "<|audio>", "<audio|>", "<|video|>"),
    ]
    words = tokenizer(
        marks,
        bos="<bos>",
        eos="<eos>",
        add_bos=True,
        image_token="<|image|>",
        boi_token="<|image>",
        eoi_token="<image|>",
        audio_token="<|audio|>",
        boa_token="<|audio>",
        eoa_token="<audio|>",
    )
    text = {
        **TEXT,
        **ends(words),
        "head_dim": 16,
        "global_head_dim": 16,
        "vocab_size_per_layer_input": len(words),
        "hidden_size_per_layer_input": 8,
        "sliding_window": 16,
        "num_hidden_layers": 4,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_kv_shared_layers": 2,
        "use_bidirectional_attention": "vision",
    }
    vision = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 8,
        "pooling_kernel_size": 3,
        "patch_size": 16,
        "position_embedding_size": 64,
    }
    config = hf.Gemma4Config(
        text_config=text,
        vision_config=vision,
        audio_config=None,
        **ids(
            words,
            image_token_id="<|image|>",
            boi_token_id="<|image>",
            eoi_token_id="<image|>",
            video_token_id="<|video|>",
            audio_token_id="<|audio|>",
        ),
    )
    processor = hf.Gemma4Processor(
        feature_extractor=hf.Gemma4AudioFeatureExtractor(),
        image_processor=hf.Gemma4ImageProcessor(max_soft_tokens=70),
        tokenizer=words,
        video_processor=hf.Gemma4VideoProcessor(),
        chat_template=chat("<|image|>", ("<|turn>user\n", "<turn|>\n"), "<|turn>model\n", "{{ bos_token }}"),
    )
    save(folder, config, processor)


@architecture
def paligemma(folder: Path) -> None:
    """The whole prompt is seen in both directions, so that the image sees the statement."""
    words = tokenizer(["<image>"], bos="<bos>", eos="<eos>")
    text = {
        **TEXT,
        **ends(words),
        "head_dim": 16,
        "model_type": "gemma2",
        "sliding_window": 4096,
        "query_pre_attn_scalar": 16,
    }
    pictures = hf.SiglipImageProcessor(size=SIDE)
    pictures.image_seq_length = 16
    config = hf.PaliGemmaConfig(
        text_config=text,
        vision_config={**SIGLIP, "model_type": "siglip_vision_model", "projection_dim": 64},
        projection_dim=64,
        hidden_size=64,
        **ids(words, image_token_index="<image>"),
    )
    save(folder, config, hf.PaliGemmaProcessor(image_processor=pictures, tokenizer=words))


@architecture
def mllama(folder: Path) -> None:
    """Llama-3.2-Vision: text looks at an image's tiles by cross-attention."""
    marks = [
        *("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|start_header_id|>"),
        *("<|end_header_id|>", "<|image|>", "<|python_tag|>", "<|finetune_right_pad_id|>"),
    ]
    words = tokenizer(
        marks, pad="<|finetune_right_pad_id|>", bos="<|begin_of_text|>", eos="<|eot_id|>", add_bos=True
    )
    text = {
        **TEXT,
        **ends(words),
        "vocab_size": len(words) - 1,
        "num_hidden_layers": 4,
        "cross_attention_layers": [1, 3],
        "rope_parameters": ROPE,
    }
    vision = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_global_layers": 1,
        "attention_heads": 4,
        "image_size": 64,
        "patch_size": 16,
        "max_num_tiles": 4,
        "supported_aspect_ratios": [[1, 1], [1, 2], [1, 3], [1, 4], [2, 1], [2, 2], [3, 1], [4, 1]],
        "intermediate_layers_indices": [0, 1],
        "vision_output_dim": 96,
    }
    config = hf.MllamaConfig(
        vision_config=vision, text_config=text, **ids(words, image_token_index="<|image|>")
    )
    header = "<|start_header_id|>{}<|end_header_id|>\n\n"
    turns = ((header.format("user"), "<|eot_id|>"), header.format("assistant"), "{{ bos_token }}")
    processor = hf.MllamaProcessor(
        image_processor=hf.MllamaImageProcessor(size=SIDE, max_image_tiles=4),
        tokenizer=words,
        chat_template=chat("<|image|>", *turns),
    )

    def open_gates(model: Any) -> None:
        for name, weights in model.named_parameters():
            if name.endswith(("gate", "cross_attn_attn_gate", "cross_attn_mlp_gate")):
                weights.data.fill_(0.8)

    save(folder, config, processor, prepare=open_gates)


@architecture
def deepseek_vl(folder: Path) -> None:
    mark = "<image_placeholder>"
    words = tokenizer([mark], add_bos=True, image_token=mark)
    config = hf.DeepseekVLConfig(
        vision_config={**SIGLIP, "model_type": "siglip_vision_model"},
        text_config={**TEXT, **ends(words), "model_type": "llama"},
        **ids(words, image_token_id=mark),
    )
    processor = hf.DeepseekVLProcessor(
        image_processor=hf.DeepseekVLImageProcessor(size=SIDE),
        tokenizer=words,
        num_image_tokens=16,
        chat_template=chat(mark, ("USER: ", "\n\n"), "ASSISTANT:"),
    )
    save(folder, config, processor)


@architecture
def lfm2_vl(folder: Path) -> None:
    """Convolutions beside attention."""
    parts = [f"<|img_row_{row}_col_{column}|>" for row in range(1, 4) for column in range(1, 4)]
    marks = [
        *("<|im_start|>", "<|im_end|>", "<image>", "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>"),
        *parts,
    ]
    words = tokenizer(
        marks,
        pad="<|pad|>",
        bos="<|startoftext|>",
        eos="<|im_end|>",
        image_token="<image>",
        image_start_token="<|image_start|>",
        image_end_token="<|image_end|>",
        image_thumbnail_token="<|img_thumbnail|>",
    )
    text = {
        **TEXT,
        **ends(words),
        "model_type": "lfm2",
        "num_hidden_layers": 4,
        "layer_types": ["conv", "conv", "full_attention", "conv"],
        "conv_L_cache": 3,
        "block_auto_adjust_ff_dim": False,
    }
    vision = {**SIGLIP, "model_type": "siglip2_vision_model", "num_patches": 64}
    del vision["image_size"]
    config = hf.Lfm2VlConfig(
        text_config=text,
        vision_config=vision,
        projector_hidden_size=64,
        downsample_factor=2,
        **ids(words, image_token_id="<image>"),
    )
    pictures = hf.Lfm2VlImageProcessor(
        tile_size=128,
        max_image_tokens=16,
        min_image_tokens=4,
        max_num_patches=64,
        encoder_patch_size=16,
        do_image_splitting=False,
    )
    processor = hf.Lfm2VlProcessor(
        image_processor=pictures, tokenizer=words, chat_template=chat("<image>", before="{{ bos_token }}")
    )
    save(folder, config, processor)


@architecture
def aya_vision(folder: Path) -> None:
    marks = [
        *("<image>", "<|START_OF_IMG|>", "<|END_OF_IMG|>", "<|IMG_PATCH|>", "<|IMG_LINE_BREAK|>"),
        *("TILE", "TILE_GLOBAL"),
    ]
    words = tokenizer(marks, add_bos=True)
    text = {
        **TEXT,
        **ends(words),
        "model_type": "cohere2",
        "head_dim": 16,
        "sliding_window": 16,
        "layer_types": ["sliding_attention", "full_attention"],
    }
    config = hf.AyaVisionConfig(
        vision_config={**SIGLIP, "model_type": "siglip_vision_model"},
        text_config=text,
        downsample_factor=2,
        adapter_layer_norm_eps=1e-6,
        **ids(words, image_token_id="<|IMG_PATCH|>"),
    )
    processor = hf.AyaVisionProcessor(
        image_processor=hf.GotOcr2ImageProcessor(
            size=SIDE, crop_to_patches=True, min_patches=1, max_patches=4
        ),
        tokenizer=words,
        patch_size=16,
        img_size=64,
        downsample_factor=2,
        chat_template=chat("<image>", ("USER: ", " "), "ASSISTANT:", "{{ bos_token }}"),
    )
    save(folder, config, processor)
