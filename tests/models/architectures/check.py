"""Whether the serving code answers and judges as transformers' own whole prompts do.

    python -m tests.models.architectures.check [NAME ...]

prints a JSON object a line for each architecture. Everything is in float32 on the CPU.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from PIL import Image
from tests.models.architectures.checkpoints import MAKERS
from tests.support.checkpoints import picture

from groundwatch.models.serving.failures import CheckpointError
from groundwatch.models.serving.lvlm import Lvlm, Question, VisionLanguage
from groundwatch.models.serving.parameters import Parameters
from groundwatch.models.serving.verifier import EntailmentRequest, EntailmentResult, Verifier, load_verifier

STATEMENTS = (
    "there is a red circle",
    "two",
    "the circle is left of the square and above the small green square in the image",
    "there is a red circle",
    "a",
)
WIDE, HIGH, SQUARE = (96, 64), (64, 128), (64, 64)
TOKENS = 12


class Reference:
    """transformers alone, as its documentation has it: a whole prompt for each question."""

    def __init__(self, folder: Path) -> None:
        self._processor = transformers.AutoProcessor.from_pretrained(folder)
        self._model = transformers.AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)
        self._model.eval()

    def _asked(self, images: Sequence[bytes], text: str) -> dict[str, Any]:
        for module in self._model.modules():
            if getattr(module, "rope_deltas", None) is not None:
                module.rope_deltas = None
        pictures = [Image.open(io.BytesIO(image)).convert("RGB") for image in images]
        if getattr(self._processor, "chat_template", None):
            content = [*({"type": "image", "image": one} for one in pictures), {"type": "text", "text": text}]
            given = self._processor.apply_chat_template(
                [{"role": "user", "content": content}],
                tokenize=True,
                add_generation_prompt=True,
                return_dict=True,
                return_tensors="pt",
            )
        else:
            mark = self._processor.image_token * len(pictures)
            given = self._processor(text=mark + text, images=pictures or None, return_tensors="pt")
        return {name: value for name, value in given.items() if name != "labels"}

    @torch.no_grad()
    def answer(self, images: Sequence[bytes], text: str) -> list[int]:
        """The tokens of a greedy answer."""
        asked = self._asked(images, text)
        made = self._model.generate(**asked, do_sample=False, max_new_tokens=TOKENS)
        tokens: list[int] = made[0, asked["input_ids"].shape[1] :].tolist()
        return tokens

    @torch.no_grad()
    def judged(self, request: EntailmentRequest, yes: list[int], no: list[int]) -> list[float]:
        found = []
        for statement in request.statements:
            logits = self._model(**self._asked(request.images, f"Statement: {statement}")).logits[:, -1]
            found.append(float(torch.sigmoid(logits[:, yes].logsumexp(-1) - logits[:, no].logsumexp(-1))))
        return found


def check(name: str, folder: Path) -> dict[str, Any]:
    """`differ` are answers that differ, `apart` by how much P(yes) does at most, in each way of asking;
    `spread` by how much statements, and images, differ; `one_pass` whether all went in one, as `together` has
    them, where `repeated` is by the cache; `refused` why the checkpoint is no verifier.
    """
    MAKERS[name](folder)
    reference = Reference(folder)
    parameters = Parameters(model_id=str(folder))
    checkpoint = VisionLanguage(parameters)
    found: dict[str, Any] = {"name": name, "differ": _answers(reference, checkpoint, parameters)}
    try:
        verifier = load_verifier(parameters, checkpoint=checkpoint)
    except CheckpointError as error:
        found["refused"] = str(error)
        whole = Parameters(model_id=str(folder), prefix="whole")
        found["apart"] = {"whole": _judged(reference, load_verifier(whole, checkpoint=checkpoint))[0]}
        return found
    verifier.warm_up(picture(0))
    together, found["spread"] = _judged(reference, verifier)
    found["one_pass"], verifier.one_pass = verifier.one_pass, False
    repeated, _ = _judged(reference, verifier)
    narrow = Verifier(Parameters(model_id=str(folder), max_rows=3), checkpoint=checkpoint)
    found["apart"] = {"together": together, "repeated": repeated, "narrow": _judged(reference, narrow)[0]}
    return found


def _answers(reference: Reference, checkpoint: VisionLanguage, parameters: Parameters) -> list[str]:
    lvlm = Lvlm(parameters, checkpoint=checkpoint)
    asked = [
        ((picture(1),), "describe the image"),
        ((picture(2, size=WIDE),), "what is it"),
        ((picture(3),), "is there a red circle and a small green square"),
        ((picture(5),), "describe the image"),
        ((picture(1), picture(2, size=WIDE)), "describe the image"),
    ]
    questions = [Question(prompt=text, images=images, max_tokens=TOKENS) for images, text in asked]
    differ = []
    for (images, text), *ways in zip(
        asked, lvlm.answer(questions), (lvlm.answer([one])[0] for one in questions), strict=True
    ):
        tokens = reference.answer(images, text)
        cut = next((at for at, token in enumerate(tokens) if token in checkpoint.ends), len(tokens))
        wanted = checkpoint.tokenizer.decode(tokens[:cut], skip_special_tokens=True).strip()
        differ += [f"{way!r} for {wanted!r}" for way in ways if getattr(way, "text", None) != wanted]
    return differ


def _judged(reference: Reference, verifier: Verifier) -> tuple[float, float]:
    """How far apart the probabilities are at most, alone and in a batch; and how far from each other."""
    requests = [
        EntailmentRequest(images=(picture(1),), statements=STATEMENTS),
        EntailmentRequest(images=(picture(2),), statements=STATEMENTS[:2]),
        EntailmentRequest(images=(picture(3, size=WIDE),), statements=STATEMENTS[1:4]),
        EntailmentRequest(images=(picture(4, size=HIGH),), statements=STATEMENTS[:1]),
        # As many tokens of an image in another shape.
        EntailmentRequest(images=(picture(8, size=WIDE[::-1]),), statements=STATEMENTS[:2]),
        EntailmentRequest(images=(picture(1), picture(2, size=WIDE)), statements=STATEMENTS[:3]),
    ]
    wanted = [reference.judged(request, verifier.yes, verifier.no) for request in requests]
    apart = 0.0
    for results in (verifier.judge(requests), [verifier.judge([request])[0] for request in requests]):
        for result, expected in zip(results, wanted, strict=True):
            if not isinstance(result, EntailmentResult):
                raise result
            apart = max(apart, *(abs(a - b) for a, b in zip(result.probabilities, expected, strict=True)))
    return apart, min(max(wanted[0]) - min(wanted[0]), abs(wanted[0][0] - wanted[1][0]))


def main() -> None:
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    for name in sys.argv[1:] or MAKERS:
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = check(name, Path(folder))
            except Exception as error:
                found = {"name": name, "error": f"{type(error).__name__}: {error}"}
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
