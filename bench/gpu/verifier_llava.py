"""A verifier shaped as LLaVA-1.5-7B on a GPU: facts per second, time in the prefix, peak memory.

Weights are random, since only shapes decide the time: a CLIP ViT-L/14-336 (576 image tokens) in front of a
LLaMA of 32 layers and width 4096, in bfloat16, 14 GB. Run it in a checkout on a machine with a GPU:

    python bench/gpu/verifier_llava.py --json
    python bench/gpu/verifier_llava.py --tiny --device cpu     # the same code, small: does it run at all
"""

from __future__ import annotations

import argparse
import io
import json
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "services"), str(ROOT)]

from bench.timing import TimedVerifier  # noqa: E402

from groundwatch.models.serving.lvlm import VisionLanguage  # noqa: E402
from groundwatch.models.serving.parameters import Parameters  # noqa: E402
from groundwatch.models.serving.verifier import EntailmentRequest  # noqa: E402

CHAT = (
    "{% for m in messages %}USER: {% for c in m['content'] %}{% if c['type']=='image' %}<image>\n"
    "{% else %}{{ c['text'] }}{% endif %}{% endfor %} {% endfor %}ASSISTANT:"
)
FACTS = (
    "There is a woman in the image.",
    "The horse is brown and it is standing on the sand.",
    "There are waves behind the rider.",
    "The sky above the beach is clear and blue.",
    "A dog runs to the left of the horse.",
    "The woman wears a wide white hat with a ribbon.",
)


def tokenizer(size: int) -> Any:
    """Words as tokens: about as many for a fact as LLaMA's own makes."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "<s>", "</s>", "<unk>", "<image>", "yes", "no"]
    seen = pre_tokenizers.Whitespace().pre_tokenize_str(
        " ".join(FACTS)
        + " Is this statement right according to the image Please answer or USER ASSISTANT : ? ."
    )
    words += [word for word, _ in seen if word not in words]
    words += [f"w{number}" for number in range(size - len(set(words)))]
    raw = Tokenizer(
        models.WordLevel({word: at for at, word in enumerate(dict.fromkeys(words))}, unk_token="<unk>")
    )
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=raw,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        additional_special_tokens=["<image>"],
    )


class RandomLlava(VisionLanguage):
    """LLaVA-1.5 with random weights, made where it is used: 14 GB need not pass through a file."""

    def __init__(self, parameters: Parameters, device: str, dtype: torch.dtype, *, tiny: bool) -> None:
        from transformers import (
            CLIPImageProcessorPil,
            LlavaConfig,
            LlavaForConditionalGeneration,
            LlavaProcessor,
        )

        self.parameters = parameters
        vocabulary = 500 if tiny else 32_064
        words = tokenizer(vocabulary)
        side, patch = (56, 14) if tiny else (336, 14)
        vision = {"image_size": side, "patch_size": patch, "model_type": "clip_vision_model"} | (
            {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
            if tiny
            else {
                "hidden_size": 1024,
                "intermediate_size": 4096,
                "num_hidden_layers": 24,
                "num_attention_heads": 16,
            }
        )
        language = {"model_type": "llama", "vocab_size": vocabulary, "max_position_embeddings": 4096} | (
            {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
            if tiny
            else {
                "hidden_size": 4096,
                "intermediate_size": 11008,
                "num_hidden_layers": 32,
                "num_attention_heads": 32,
            }
        )
        config = LlavaConfig(
            vision_config=vision,
            text_config=language,
            image_token_id=words.convert_tokens_to_ids("<image>"),
            image_seq_length=(side // patch) ** 2,
        )
        processor = LlavaProcessor(
            image_processor=CLIPImageProcessorPil(
                size={"shortest_edge": side}, crop_size={"height": side, "width": side}
            ),
            tokenizer=words,
            patch_size=patch,
            vision_feature_select_strategy="default",
            num_additional_image_tokens=1,
            chat_template=CHAT,
        )
        torch.manual_seed(0)
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            with torch.device(device):
                model = LlavaForConditionalGeneration(config)
        finally:
            torch.set_default_dtype(before)
        self._adopt(processor, model.eval().requires_grad_(False))


def picture(number: int) -> bytes:
    """A JPEG of 640 by 480."""
    dice = random.Random(number)
    image = Image.new("RGB", (16, 12))
    image.putdata([tuple(dice.randrange(256) for _ in range(3)) for _ in range(16 * 12)])
    out = io.BytesIO()
    image.resize((640, 480), Image.Resampling.BICUBIC).save(out, "JPEG")
    return out.getvalue()


def measure(*, device: str, dtype: str, facts: int, batch: int, rounds: int, tiny: bool) -> dict[str, Any]:
    """Medians of `rounds`: one answer's facts at a time, one by one, and `batch` answers at once."""
    parameters = Parameters(model_id="random-llava-1.5-7b", max_rows=max(32, facts))
    checkpoint = RandomLlava(parameters, device, getattr(torch, dtype), tiny=tiny)
    verifier = TimedVerifier(parameters, checkpoint=checkpoint)

    def inquiry(number: int) -> EntailmentRequest:
        return EntailmentRequest(
            images=(picture(number),), statements=tuple(FACTS[n % len(FACTS)] for n in range(facts))
        )

    def seconds(work: Any) -> tuple[float, Any]:
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        began = time.perf_counter()
        found = work()
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        return time.perf_counter() - began, found

    found: dict[str, list[float]] = {"shared": [], "alone": [], "batched": []}
    difference = 0.0
    for number in range(rounds + 1):
        one = inquiry(number)
        many = [inquiry(1000 * number + n) for n in range(batch)]
        if number == 1:
            verifier.prepare = verifier.prefix = verifier.statements = 0.0
        shared, finding = seconds(lambda one=one: verifier.judge([one])[0])
        spent = (verifier.prepare, verifier.prefix, verifier.statements)
        alone, separate = seconds(lambda one=one: verifier.judge_one_by_one(one))
        batched, all_ = seconds(lambda many=many: verifier.judge(many))
        verifier.prepare, verifier.prefix, verifier.statements = spent
        for result in (finding, *all_):
            if isinstance(result, Exception):
                raise result
        if number:
            difference = max(
                difference, *(abs(a - b) for a, b in zip(separate, finding.probabilities, strict=True))
            )
            for name, value in (("shared", shared), ("alone", alone), ("batched", batched)):
                found[name].append(value)
    median = {name: statistics.median(values) for name, values in found.items()}
    whole = verifier.prepare + verifier.prefix + verifier.statements
    return {
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else device,
        "dtype": dtype,
        "parameters_million": round(sum(w.numel() for w in checkpoint.model.parameters()) / 1e6),
        "image_tokens": checkpoint.processor.image_processor.crop_size["height"] ** 2
        // checkpoint.processor.patch_size**2,
        "facts": facts,
        "speedup": round(median["alone"] / median["shared"], 2),
        "shared_prefix_ms": round(median["shared"] * 1000, 2),
        "one_by_one_ms": round(median["alone"] * 1000, 2),
        "facts_per_second": round(facts / median["shared"], 1),
        "facts_per_second_batched": round(facts * batch / median["batched"], 1),
        "batch": batch,
        "prepare_fraction": round(verifier.prepare / whole, 3),
        "prefix_fraction": round(verifier.prefix / whole, 3),
        "max_probability_difference": difference,
        "peak_memory_gib": round(torch.cuda.max_memory_allocated(device) / 2**30, 2)
        if device.startswith("cuda")
        else None,
    }


def main() -> None:
    """Read the options, measure, print."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--device", default="cuda")
    options.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    options.add_argument("--facts", type=int, default=12)
    options.add_argument("--batch", type=int, default=8)
    options.add_argument("--rounds", type=int, default=20)
    options.add_argument("--tiny", action="store_true", help="a small model of the same shape")
    options.add_argument("--json", action="store_true")
    chosen = vars(options.parse_args())
    as_json = chosen.pop("json")
    found = measure(**chosen)
    print(json.dumps(found) if as_json else "\n".join(f"{key:<28} {value}" for key, value in found.items()))


if __name__ == "__main__":
    main()
