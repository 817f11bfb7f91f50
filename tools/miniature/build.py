"""A small Idefics3 from nothing: tokenizer of the world's own words, processor, random weights."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from tools.miniature.answers import answer
from tools.miniature.texts import pairs, questions, reference
from transformers import (
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    Idefics3ImageProcessorPil,
    Idefics3Processor,
    PreTrainedTokenizerFast,
)

from groundwatch.miniature.language import PROMPTS
from groundwatch.miniature.world import SIDE, changed, scenes
from groundwatch_benchmarks.miniature_facts import pair_questions

CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' if m['role'] == 'user' else '' }}"
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for c in m['content'] %}"
    "{% if c['type'] == 'image' %}<image>{% elif c['type'] == 'text' %}{{ c['text'] }}{% endif %}"
    "{% endfor %}{% endif %}{{ '<|im_end|>' }}{% endfor %}"
)
"""The user's images and text, closed; the answer follows directly and ends with the same token."""

MARKS = ("<|im_start|>", "<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>")
PATCH = 8
SCALE_FACTOR = 2
IMAGE_TOKENS = (SIDE // PATCH // SCALE_FACTOR) ** 2


def texts(number: int) -> Iterator[str]:
    """What the tokenizer learns from: everything that is said in this world."""
    random = Random(0)
    drawn = scenes(0)
    for _ in range(number):
        shown = next(drawn)
        yield from (answer(shown, manner) for manner in range(len(PROMPTS)))
        yield reference(shown, random)
        for _, (right, wrong) in pairs(shown, random, 6):
            yield from (right, wrong)
        yield from (question for question, _ in questions(shown, random, 4))
        other = changed(shown, 1, random)
        yield from (question for question, _ in pair_questions(shown, other, random, 4))
    for prompts in PROMPTS:
        yield from prompts
    yield from ("yes", "no")


def tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE: the world's words are one token each, and any other text still has tokens."""
    specials = ["<pad>", "<s>", "</s>", "<unk>", "<|im_start|>", "<|im_end|>", *MARKS[1:]]
    words = Tokenizer(models.BPE())
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1000, special_tokens=specials, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())
    )
    words.train_from_iterator(texts(1500), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="<|im_end|>",
        unk_token="<unk>",
        padding_side="left",
        additional_special_tokens=list(MARKS),
    )


def processor() -> Any:
    """Images as they are, 64 by 64, and the chat template."""
    images = Idefics3ImageProcessorPil(
        size={"longest_edge": SIDE}, max_image_size={"longest_edge": SIDE}, do_image_splitting=False
    )
    both = Idefics3Processor(image_processor=images, tokenizer=tokenizer(), image_seq_len=IMAGE_TOKENS)
    both.chat_template = CHAT_TEMPLATE
    return both


def model(
    words: PreTrainedTokenizerFast, *, width: int = 128, layers: int = 3, vision_layers: int = 3
) -> Any:
    """Random weights; about 1.5 million at the default width."""
    shape = {"hidden_size": width, "intermediate_size": 3 * width, "num_attention_heads": 4}
    config: Any = Idefics3Config(
        vision_config={**shape, "num_hidden_layers": vision_layers, "image_size": SIDE, "patch_size": PATCH},
        text_config={
            **shape,
            "model_type": "llama",
            "vocab_size": len(words),
            "num_hidden_layers": layers,
            "num_key_value_heads": 4,
            "max_position_embeddings": 1024,
            "pad_token_id": words.pad_token_id,
            "bos_token_id": words.bos_token_id,
            "eos_token_id": words.eos_token_id,
            "tie_word_embeddings": True,
        },
        scale_factor=SCALE_FACTOR,
        tie_word_embeddings=True,
    )
    config.image_token_id = words.convert_tokens_to_ids("<image>")
    config.pad_token_id = words.pad_token_id
    return Idefics3ForConditionalGeneration(config)
