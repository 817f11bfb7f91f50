"""Watching and answering on a GPU: the time of an answer, by the shapes of LLaVA-1.5-7B and OWLv2-base.

Weights are random, since only shapes decide the time: a CLIP ViT-L/14-336 (576 image tokens) in front of a
LLaMA of 32 layers and width 4096, 14 GB in bfloat16. `python -m bench gpu --json` needs a GPU; with `--tiny`
the same code runs small, on a CPU in float32.

`verifying` has the ms of an answer by its facts and by how many are judged at once: a request for each fact,
the cache repeated, and one pass, with how far P(yes) is from whole prompts. `answering` holds `Lvlm.answer`
against transformers' `generate` with the same tokens, `detecting` the ms of an image. `watching` is what of
`generate`'s time watching takes: by the detector alone, with the verifier on a tenth, and by the verifier
alone. `ok`: all ways of judging agree.
"""

from __future__ import annotations

import io
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from PIL import Image

from groundwatch.errors import UsageError
from groundwatch.models.serving.detector import DetectionRequest, Detector
from groundwatch.models.serving.lvlm import Lvlm, Question, VisionLanguage
from groundwatch.models.serving.parameters import Parameters
from groundwatch.models.serving.verifier import EntailmentRequest, Verifier

MOST_APART = {torch.float32: 1e-3}
MOST_APART_IN_HALF = 3e-2
PHRASES = ("woman", "horse", "waves", "sky", "dog", "hat", "ribbon", "beach")
TOKENS = 100

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
        self._adopt(processor, made(lambda: LlavaForConditionalGeneration(config), device, dtype))


def picture(number: int) -> bytes:
    """A JPEG of 640 by 480."""
    dice = random.Random(number)
    image = Image.new("RGB", (16, 12))
    image.putdata([tuple(dice.randrange(256) for _ in range(3)) for _ in range(16 * 12)])
    out = io.BytesIO()
    image.resize((640, 480), Image.Resampling.BICUBIC).save(out, "JPEG")
    return out.getvalue()


class RandomOwl(Detector):
    """OWLv2-base/16 with random weights, of which no box passes: what is measured is looking."""

    def __init__(self, device: str, dtype: torch.dtype, *, tiny: bool) -> None:
        from transformers import (
            Owlv2Config,
            Owlv2ForObjectDetection,
            Owlv2ImageProcessor,
            Owlv2ImageProcessorPil,
            Owlv2Processor,
        )
        from transformers.utils import is_torchvision_available

        self._parameters = Parameters(model_id="random-owlv2", threshold=1.0)
        words = tokenizer(500 if tiny else 49_408)
        side, layers = (64, 2) if tiny else (960, 12)
        small = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}
        vision = small if tiny else {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12}
        text = small if tiny else {"hidden_size": 512, "intermediate_size": 2048, "num_attention_heads": 8}
        text |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "max_position_embeddings": 16}
        config = Owlv2Config(
            vision_config={**vision, "image_size": side, "patch_size": 16, "num_hidden_layers": layers},
            text_config={**text, "num_hidden_layers": layers, "vocab_size": len(words)},
            projection_dim=32 if tiny else 512,
        )
        kind = Owlv2ImageProcessor if is_torchvision_available() else Owlv2ImageProcessorPil
        processor = Owlv2Processor(kind(size={"height": side, "width": side}), words)
        self._adopt(processor, made(lambda: Owlv2ForObjectDetection(config), device, dtype))


def made(build: Callable[[], Any], device: str, dtype: torch.dtype) -> Any:
    """A model with random weights where it is used, in its type of number."""
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            return build().eval().requires_grad_(False)
    finally:
        torch.set_default_dtype(before)


class Timer:
    """Milliseconds of some work, when the device has done it: the median of rounds, the first left out."""

    def __init__(self, device: str, rounds: int) -> None:
        self._device, self._rounds = device, rounds

    def __call__(self, work: Callable[[], Any]) -> float:
        spent = []
        for _ in range(self._rounds + 1):
            began = self._now()
            work()
            spent.append(self._now() - began)
        return round(statistics.median(spent[1:]) * 1000, 3)

    def _now(self) -> float:
        if self._device.startswith("cuda"):
            torch.cuda.synchronize()
        return time.perf_counter()


def verifying(verifier: Verifier, timer: Timer, facts: int, answers: int) -> dict[str, Any]:
    """ms an answer in each way of judging; `apart` is the most that P(yes) is from whole prompts."""
    asked = [
        EntailmentRequest(
            images=(picture(number),), statements=tuple(FACTS[at % len(FACTS)] for at in range(facts))
        )
        for number in range(answers)
    ]
    whole = [verifier.judge_one_by_one(one) for one in asked]
    found: dict[str, Any] = {"facts": facts, "answers": answers}
    apart = 0.0
    for name, one_pass in (("cache_ms", False), ("one_pass_ms", True)):
        verifier.one_pass = one_pass
        for row, result in zip(whole, verifier.judge(asked), strict=True):
            if isinstance(result, Exception):
                raise result
            apart = max(apart, *(abs(a - b) for a, b in zip(row, result.probabilities, strict=True)))
        found[name] = round(timer(lambda: verifier.judge(asked)) / answers, 3)
    found["prepare_ms"] = round(timer(lambda: [verifier._prepare(one) for one in asked]) / answers, 3)
    if answers == 1:
        found["one_by_one_ms"] = timer(lambda: verifier.judge_one_by_one(asked[0]))
    return found | {"apart": apart}


def answering(checkpoint: VisionLanguage, timer: Timer, answers: int, tokens: int) -> dict[str, Any]:
    """ms an answer of as many tokens each, by the serving code and by transformers alone."""
    checkpoint.ends = []
    lvlm = Lvlm(Parameters(model_id="random", max_tokens=tokens, max_rows=answers), checkpoint=checkpoint)
    asked = [
        Question(prompt="describe the image", images=(picture(number),), max_tokens=tokens)
        for number in range(answers)
    ]
    ready = [lvlm._prepare(one)[1][1] for one in asked]
    given = checkpoint.batch(ready)
    settings = {"do_sample": False, "min_new_tokens": tokens, "max_new_tokens": tokens}
    return {
        "answers": answers,
        "tokens": tokens,
        "served_ms": round(timer(lambda: lvlm.answer(asked)) / answers, 3),
        "generate_ms": round(
            timer(lambda: checkpoint.model.generate(**given, **settings, pad_token_id=checkpoint.pad))
            / answers,
            3,
        ),
    }


def detecting(detector: Detector, timer: Timer, images: int) -> dict[str, Any]:
    asked = [DetectionRequest(image=picture(number), texts=PHRASES) for number in range(images)]
    for result in detector.detect(asked):
        if isinstance(result, Exception):
            raise result
    return {
        "images": images,
        "phrases": len(PHRASES),
        "ms": round(timer(lambda: detector.detect(asked)) / images, 3),
    }


async def measure(tiny: int = 0, rounds: int = 5) -> dict[str, Any]:
    """All of it, in bfloat16 on the GPU. Raises `UsageError` where there is none, unless it is `tiny`."""
    if not tiny and not torch.cuda.is_available():
        raise UsageError("there is no GPU here: --tiny runs the same code small, on a CPU")
    device, dtype = ("cpu", torch.float32) if tiny else ("cuda", torch.bfloat16)
    timer = Timer(device, 1 if tiny else rounds)
    parameters = Parameters(model_id="random-llava-1.5-7b", max_rows=32)
    checkpoint = RandomLlava(parameters, device, dtype, tiny=bool(tiny))
    verifier = Verifier(parameters, checkpoint=checkpoint)
    verifier.warm_up(picture(0))
    sizes = ((3, 1), (3, 2)) if tiny else ((4, 8), (12, 1), (12, 8), (12, 32), (30, 8))
    rows = [verifying(verifier, timer, *one) for one in sizes]
    told = [
        answering(checkpoint, timer, one, 4 if tiny else TOKENS) for one in ((2,) if tiny else (1, 8, 64))
    ]
    peak = round(torch.cuda.max_memory_allocated() / 2**30, 2) if device == "cuda" else None
    detector = RandomOwl(device, dtype, tiny=bool(tiny))
    seen = [detecting(detector, timer, one) for one in ((2,) if tiny else (1, 8, 32))]
    usual = rows[1] if tiny else rows[3]
    generate, looking, judging = told[-1]["generate_ms"], seen[-1]["ms"], usual["one_pass_ms"]
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "dtype": str(dtype).removeprefix("torch."),
        "parameters_million": round(sum(one.numel() for one in checkpoint.model.parameters()) / 1e6, 1),
        "verifying": rows,
        "answering": told,
        "detecting": seen,
        "watching": {
            "detector": round(looking / generate, 3),
            "detector_and_verifier_on_a_tenth": round((looking + judging / 10) / generate, 3),
            "verifier": round(judging / generate, 3),
        },
        "peak_memory_gib": peak,
        "ok": max(one["apart"] for one in rows) <= MOST_APART.get(dtype, MOST_APART_IN_HALF),
    }
