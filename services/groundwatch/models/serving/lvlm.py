"""Answers about images: greedy by default, so that a question has one answer."""

from collections.abc import Sequence
from typing import Any

import msgspec
import torch

from groundwatch.models.serving.conversation import Prepared, VisionLanguage
from groundwatch.models.serving.failures import CheckpointError, Refused, in_groups
from groundwatch.models.serving.images import decode_all
from groundwatch.models.serving.parameters import Parameters

MAX_TEMPERATURE = 10.0


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt with images in front of it. `temperature` 0 is greedy; else `seed` decides."""

    prompt: str
    images: tuple[bytes, ...] = ()
    max_tokens: int = 256
    temperature: float = 0.0
    seed: int = 0


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What was said. `finish` is stop, or length when the tokens ran out."""

    text: str
    finish: str
    input_tokens: int
    output_tokens: int


class Lvlm:
    """A vision-language checkpoint that answers. Raises `CheckpointError` when it cannot be loaded."""

    def __init__(self, parameters: Parameters, *, checkpoint: VisionLanguage | None = None) -> None:
        self._parameters = parameters
        self.checkpoint = checkpoint or VisionLanguage(parameters)

    def warm_up(self, image: bytes) -> None:
        """One short answer, so that the first user does not wait; refuses a checkpoint that gives none."""
        found = self.answer([Question(prompt="a", images=(image,), max_tokens=2)])[0]
        if isinstance(found, Exception):
            raise CheckpointError(f"{self._parameters.model_id} cannot answer: {found}")

    def answer(self, questions: Sequence[Question]) -> list[Answer | Exception]:
        """One answer for each question, in order; `Refused`, `Exhausted` or a bug in the place of one."""
        return in_groups(questions, self._prepare, self._generate, size=self._parameters.max_rows)

    def _prepare(self, question: Question) -> tuple[Any, tuple[Question, Prepared]]:
        if not question.prompt.strip() and not question.images:
            raise Refused("judge_rejected_request", "neither a prompt nor an image")
        if not 1 <= question.max_tokens <= self._parameters.max_tokens:
            raise Refused(
                "judge_rejected_request",
                f"max_tokens is {question.max_tokens}; this model takes 1 to {self._parameters.max_tokens}",
            )
        if not 0 <= question.temperature <= MAX_TEMPERATURE:
            raise Refused("judge_rejected_request", f"temperature is {question.temperature}")
        images = decode_all(question.images, self._parameters)
        prepared = self.checkpoint.prepare(images, self.checkpoint.rendered(len(images), question.prompt))
        # Sampled answers are made alone: their dice must not depend on who else is asking.
        alone = object() if question.temperature > 0 else None
        return (alone, prepared.shape), (question, prepared)

    @torch.inference_mode()
    def _generate(self, group: Sequence[tuple[Question, Prepared]]) -> list[Answer]:
        from transformers import LogitsProcessorList

        checkpoint = self.checkpoint
        asked = checkpoint.batch([prepared for _, prepared in group])
        start = asked["input_ids"].shape[1]
        first = group[0][0]
        room = checkpoint.limit - start
        watch = _NumbersOnly(len(group))
        dice: dict[str, Any] = {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
        if first.temperature > 0:
            dice = {"do_sample": True, "temperature": first.temperature, "top_p": 1.0, "top_k": 0}
        with torch.random.fork_rng(devices=[checkpoint.device] if checkpoint.device.type == "cuda" else []):
            torch.manual_seed(first.seed)
            made = checkpoint.model.generate(
                **asked,
                **dice,
                num_beams=1,
                max_new_tokens=min(room, max(question.max_tokens for question, _ in group)),
                eos_token_id=checkpoint.ends or None,
                pad_token_id=checkpoint.pad,
                logits_processor=LogitsProcessorList([watch]),
            )
        if made.shape[1] >= start and torch.equal(made[:, :start], asked["input_ids"]):
            made = made[:, start:]
        watch.check()
        return [
            self._read(row, question, prepared)
            for row, (question, prepared) in zip(made.tolist(), group, strict=True)
        ]

    def _read(self, row: list[int], question: Question, prepared: Prepared) -> Answer:
        ends = set(self.checkpoint.ends)
        told = next((at for at, token in enumerate(row) if token in ends), len(row))
        stopped = told < len(row) and told < question.max_tokens
        kept = row[: min(told, question.max_tokens)]
        text: str = self.checkpoint.tokenizer.decode(kept, skip_special_tokens=True)
        return Answer(
            text=text.strip(),
            finish="stop" if stopped else "length",
            input_tokens=len(prepared.ids),
            output_tokens=len(kept),
        )


class _NumbersOnly:
    """Notices logits that are no numbers: an argmax over them would be taken for an answer."""

    def __init__(self, rows: int) -> None:
        self._broken = torch.zeros(rows, dtype=torch.bool)

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        broken = torch.isnan(scores)
        self._broken = self._broken.to(scores.device) | broken.any(-1)
        return scores.masked_fill(broken, -1e4)

    def check(self) -> None:
        if bool(self._broken.any()):
            raise Refused("not_finite", "the model's logits hold what is no number")
