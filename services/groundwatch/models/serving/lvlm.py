"""A vision-language checkpoint: how a question becomes tensors, and answers about images.

Answers are greedy by default, so that a question has one.
"""

import importlib
import inspect
import threading
from collections.abc import Sequence
from typing import Any

import msgspec
import torch
from PIL import Image

from groundwatch.models.serving.failures import CheckpointError, Refused, in_groups
from groundwatch.models.serving.images import (
    check_first,
    decode_all,
    dtype_of,
    in_place,
    loading,
    onto,
    source,
)
from groundwatch.models.serving.parameters import Parameters

_TEXT = ("input_ids", "attention_mask")
_OF_TOKENS = ("token_type_ids", "mm_token_type_ids", "cross_attention_mask")
"""What processors say of each token beside its id: tensors of (1, tokens, …)."""
_TEXT_HERE = "text-of-the-question"
_CHARACTERS_IN_A_TOKEN = 40
_UNBOUNDED = 1 << 20
_PLACES_IMAGE_ITSELF = ("blip-2", "instructblip", "florence2")
"""Types of model whose processor puts an image's tokens around each text by itself: one image, no marks."""


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """One question as the model takes it: token ids with the images' places, tensors with an entry for each
    token, and the images' tensors.
    """

    ids: list[int]
    of_tokens: dict[str, Any] = {}
    vision: dict[str, Any] = {}

    def until(self, tokens: int) -> "Prepared":
        """The question's first `tokens` tokens, with all its images."""
        of_tokens = {name: value[:, :tokens] for name, value in self.of_tokens.items()}
        return Prepared(ids=self.ids[:tokens], of_tokens=of_tokens, vision=self.vision)

    @property
    def shape(self) -> tuple[Any, ...]:
        """What must be equal for two questions to share a batch."""
        of_tokens = ((name, tuple(value.shape[2:])) for name, value in sorted(self.of_tokens.items()))
        return (*of_tokens, *((name, tuple(value.shape)) for name, value in sorted(self.vision.items())))


class VisionLanguage:
    """A checkpoint that AutoProcessor and AutoModelForImageTextToText load. Raises `CheckpointError`."""

    def __init__(self, parameters: Parameters) -> None:
        transformers: Any = importlib.import_module("transformers")
        self.parameters = parameters
        with loading(parameters):
            processor = transformers.AutoProcessor.from_pretrained(parameters.model_id, **source(parameters))
            try:
                model = transformers.AutoModelForImageTextToText.from_pretrained(
                    parameters.model_id, dtype=dtype_of(parameters), **source(parameters)
                )
            except ValueError as error:
                if "Unrecognized configuration class" not in str(error):
                    raise
                raise CheckpointError(
                    f"{parameters.model_id}: transformers has no AutoModelForImageTextToText for it: serve "
                    "it behind an OpenAI-compatible endpoint, which engine = visual asks as a judge"
                ) from error
            self._adopt(processor, in_place(model, parameters))

    def _adopt(self, processor: Any, model: Any) -> None:
        self.processor = processor
        self.model = model
        self.tokenizer: Any = getattr(processor, "tokenizer", None)
        if self.tokenizer is None:
            raise CheckpointError(f"{self.parameters.model_id} has no tokenizer")
        self.tokenizer.padding_side = "left"
        _lock(self.tokenizer)
        # A BLIP-2 takes no text without an image: what follows the image's features is asked alone.
        language = getattr(model, "language_model", model)
        self.language: Any = model if language.get_output_embeddings() is None else language
        config = model.config
        text = config.get_text_config(decoder=True)
        bound = getattr(text, "max_position_embeddings", 0) or min(
            self.tokenizer.model_max_length, _UNBOUNDED
        )
        self.limit: int = min(bound, self.parameters.max_prompt_tokens or bound)
        self.image_token_id = getattr(config, "image_token_id", None) or getattr(
            config, "image_token_index", None
        )
        # Text tokenizers give token types to models that know none.
        taken = inspect.signature(model.forward).parameters
        self._not_taken = {"labels", *({"token_type_ids"} - set(taken))}
        # An answer that is cut off must not look like one that ended.
        model.generation_config.forced_eos_token_id = None
        self.encoder_decoder = bool(config.is_encoder_decoder)
        self._places_itself = config.model_type in _PLACES_IMAGE_ITSELF
        ends = getattr(model.generation_config, "eos_token_id", None) or self.tokenizer.eos_token_id
        self.ends: list[int] = [ends] if isinstance(ends, int) else list(ends or ())
        self.pad: int = next((one for one in (self.tokenizer.pad_token_id, *self.ends) if one is not None), 0)
        self._chat = bool(
            getattr(processor, "chat_template", None) or getattr(self.tokenizer, "chat_template", None)
        )
        self._frames: dict[int, list[str]] = {}
        """By the number of images, what the chat template puts before a text and behind it."""
        marks = {
            str(token.content)
            for token in self.tokenizer.added_tokens_decoder.values()
            if len(token.content) > 1 and (token.special or token.content[0] in "<[")
        }
        for tasks in ("task_prompts_without_inputs", "task_prompts_with_input"):
            marks.update(getattr(processor, tasks, ()))
        self._marks = sorted(marks, key=len, reverse=True)

    @property
    def device(self) -> Any:
        return self.model.device

    @property
    def multimodal_positions(self) -> Any:
        """The module that counts positions by height and width of images (M-RoPE), and keeps by how much
        those behind the last questions differ from their number of tokens; None without one.
        """
        return next((module for module in self.model.modules() if "rope_deltas" in vars(module)), None)

    def harmless(self, text: str) -> str:
        """`text` without marks of the chat template: what is asked or judged must not speak for the frame."""
        for mark in self._marks:
            if mark in text:
                text = text.replace(mark, f"{mark[0]} {mark[1:]}")
        return text

    def rendered(self, images: int, text: str) -> str:
        """A question with `images` images in front of `text`, up to where the answer begins."""
        text = self.harmless(text)
        images = 0 if self._places_itself else images
        if not self._chat:
            mark = str(getattr(self.processor, "image_token", "") or "")
            return f"{mark * images}{text}"
        # The template itself takes longer than all else that is done for a statement.
        if images not in self._frames:
            self._frames[images] = self._framed(images, _TEXT_HERE).split(_TEXT_HERE)
        frame = self._frames[images]
        return text.join(frame) if len(frame) == 2 and text == text.strip() else self._framed(images, text)

    def _framed(self, images: int, text: str) -> str:
        messages = self._messages([{"type": "image"}] * images, text)
        found: str = self.processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        return found

    def _messages(self, images: list[dict[str, Any]], text: str) -> list[dict[str, Any]]:
        messages = [{"role": "user", "content": [*images, {"type": "text", "text": text}]}]
        if system := self.parameters.system_prompt:
            messages.insert(0, {"role": "system", "content": [{"type": "text", "text": system}]})
        return messages

    def whole(self, images: Sequence[Image.Image], text: str) -> dict[str, Any]:
        """The model's arguments for a question with nothing shared, as its own processor makes them.

        What is made for many questions at once must answer as this does. Raises `Refused` for one that is
        too long.
        """
        if self._chat and not self._places_itself:
            shown = [{"type": "image", "image": image} for image in images]
            given: Any = self.processor.apply_chat_template(
                self._messages(shown, self.harmless(text)),
                add_generation_prompt=True,
                tokenize=True,
                return_dict=True,
                return_tensors="pt",
            )
        else:
            given = self.processor(
                text=[self.rendered(len(images), text)], images=[list(images)], return_tensors="pt"
            )
        self.check_length(given["input_ids"].shape[1])
        return {name: self.onto(value) for name, value in given.items() if name not in self._not_taken}

    def tokens(self, rendered: Sequence[str]) -> list[list[int]]:
        """Token ids of rendered questions, with one token in each image's place."""
        found: list[list[int]] = self.tokenizer(list(rendered), add_special_tokens=False)["input_ids"]
        return found

    def prepare(self, images: Sequence[Image.Image], rendered: str) -> Prepared:
        """A rendered question with its images as tensors. Raises `Refused` for one that is too long."""
        if len(rendered) > _CHARACTERS_IN_A_TOKEN * self.limit:
            why = f"{len(rendered)} characters; this model takes {self.limit} tokens"
            raise Refused("prompt_too_long", why)
        if self._places_itself and len(images) != 1:
            raise Refused("judge_rejected_request", f"{len(images)} images; this model takes one")
        bos = self.tokenizer.bos_token
        named: dict[str, Any] = {"images": [list(images)]} if images else {}
        if not self._places_itself:
            named["add_special_tokens"] = not (self._chat and bos and rendered.startswith(bos))
        given: Any = self.processor(text=[rendered], **named, return_tensors="pt")
        given = {name: value for name, value in given.items() if name not in self._not_taken}
        ids: list[int] = given["input_ids"][0].tolist()
        of_tokens = {name: given[name] for name in _OF_TOKENS if name in given}
        vision = {name: value for name, value in given.items() if name not in (*_TEXT, *of_tokens)}
        if self._places_itself and self.image_token_id not in ids:
            why = "the processor leaves no place for the image: take the checkpoint's newest revision"
            raise CheckpointError(f"{self.parameters.model_id}: {why}")
        self.check_length(len(ids))
        return Prepared(ids=ids, of_tokens=of_tokens, vision=vision)

    def check_length(self, tokens: int) -> None:
        """Raises `Refused` for a prompt of more tokens than the model takes."""
        if tokens >= self.limit:
            raise Refused("prompt_too_long", f"{tokens} tokens; this model takes fewer than {self.limit}")

    def batch(self, rows: Sequence[Prepared]) -> dict[str, Any]:
        """Rows of one shape as the model's arguments, padded where nothing is read on: before, or after for
        an encoder, whose positions may count from its first token.
        """
        longest = max(len(row.ids) for row in rows)
        ids = torch.full((len(rows), longest), self.pad, dtype=torch.long)
        mask = torch.zeros((len(rows), longest), dtype=torch.long)
        for number, row in enumerate(rows):
            start = 0 if self.encoder_decoder else longest - len(row.ids)
            ids[number, start : start + len(row.ids)] = torch.tensor(row.ids)
            mask[number, start : start + len(row.ids)] = 1
        of_tokens = {}
        for name in rows[0].of_tokens:
            values = [row.of_tokens[name] for row in rows]
            padded = values[0].new_zeros((len(rows), longest, *values[0].shape[2:]))
            for number, value in enumerate(values):
                start = 0 if self.encoder_decoder else longest - value.shape[1]
                padded[number, start : start + value.shape[1]] = value[0]
            of_tokens[name] = self.onto(padded)
        tokens = {"input_ids": self.onto(ids), "attention_mask": self.onto(mask)}
        return {**tokens, **of_tokens, **self.vision(rows)}

    def vision(self, rows: Sequence[Prepared]) -> dict[str, Any]:
        """The images of rows of one shape as the model's arguments."""
        return {name: onto(self.model, [row.vision[name] for row in rows]) for name in rows[0].vision}

    def onto(self, tensor: Any) -> Any:
        """The tensor on the model's device, pixels in the model's type of number."""
        return onto(self.model, [tensor])


def _lock(tokenizer: Any) -> None:
    """Has threads take turns: a tokenizer notes in itself how the call in hand pads."""
    lock, kind = threading.RLock(), type(tokenizer)

    def call(self: Any, *given: Any, **named: Any) -> Any:
        with lock:
            return kind.__call__(self, *given, **named)

    tokenizer.__class__ = type(kind.__name__, (kind,), {"__call__": call})


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
        found = self.answer([Question(prompt="a", images=(image,), max_tokens=2)])[0]
        check_first(found, self._parameters, "answer")

    def answer(self, questions: Sequence[Question]) -> list[Answer | Exception]:
        """One answer for each question, in order; `Refused`, `Exhausted` or a bug in the place of one."""
        limits = self._parameters
        return in_groups(
            questions, self._prepare, self._generate, size=limits.max_rows, threads=limits.threads
        )

    def _prepare(self, question: Question) -> tuple[Any, tuple[Question, Prepared]]:
        if not question.prompt.strip() and not question.images:
            raise Refused("judge_rejected_request", "neither a prompt nor an image")
        if not 1 <= question.max_tokens <= self._parameters.max_tokens:
            most = self._parameters.max_tokens
            why = f"max_tokens is {question.max_tokens}; this model takes 1 to {most}"
            raise Refused("judge_rejected_request", why)
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
        room = checkpoint.limit - (0 if checkpoint.encoder_decoder else start)
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
        if checkpoint.encoder_decoder:
            made = made[:, 1:]  # what a decoder starts from may be the token that ends
        elif made.shape[1] >= start and torch.equal(made[:, :start], asked["input_ids"]):
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
