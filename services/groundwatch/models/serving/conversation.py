"""A vision-language checkpoint: processor, chat template and model, and how a question becomes tensors."""

import importlib
from collections.abc import Sequence
from typing import Any

import msgspec
import torch
from PIL import Image

from groundwatch.models.serving.failures import CheckpointError, Refused
from groundwatch.models.serving.loading import dtype_of, in_place, loading, source
from groundwatch.models.serving.parameters import Parameters

_TEXT = ("input_ids", "attention_mask")
_CHARACTERS_IN_A_TOKEN = 40
_UNBOUNDED = 1 << 20


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """One question as the model takes it: token ids with the images' places, and the images' tensors."""

    ids: list[int]
    vision: dict[str, Any]

    @property
    def shape(self) -> tuple[Any, ...]:
        """What must be equal for two questions to share a batch."""
        return tuple((name, tuple(value.shape)) for name, value in sorted(self.vision.items()))


class VisionLanguage:
    """A checkpoint that AutoProcessor and AutoModelForImageTextToText load. Raises `CheckpointError`."""

    def __init__(self, parameters: Parameters) -> None:
        transformers: Any = importlib.import_module("transformers")
        self.parameters = parameters
        with loading(parameters):
            processor = transformers.AutoProcessor.from_pretrained(parameters.model_id, **source(parameters))
            model = transformers.AutoModelForImageTextToText.from_pretrained(
                parameters.model_id, dtype=dtype_of(parameters), **source(parameters)
            )
            self._adopt(processor, in_place(model, parameters))

    def _adopt(self, processor: Any, model: Any) -> None:
        self.processor = processor
        self.model = model
        self.tokenizer: Any = getattr(processor, "tokenizer", None)
        if self.tokenizer is None:
            raise CheckpointError(f"{self.parameters.model_id} has no tokenizer")
        self.tokenizer.padding_side = "left"
        config = model.config
        text = config.get_text_config(decoder=True)
        bound = getattr(text, "max_position_embeddings", 0) or _UNBOUNDED
        self.limit: int = min(bound, self.parameters.max_prompt_tokens or bound)
        self.image_token_id = getattr(config, "image_token_id", None) or getattr(
            config, "image_token_index", None
        )
        ends = getattr(model.generation_config, "eos_token_id", None) or self.tokenizer.eos_token_id
        self.ends: list[int] = [ends] if isinstance(ends, int) else list(ends or ())
        self.pad: int = next((one for one in (self.tokenizer.pad_token_id, *self.ends) if one is not None), 0)
        self._chat = bool(
            getattr(processor, "chat_template", None) or getattr(self.tokenizer, "chat_template", None)
        )
        self._marks = sorted(
            {
                str(token.content)
                for token in self.tokenizer.added_tokens_decoder.values()
                if len(token.content) > 1 and (token.special or token.content[0] in "<[")
            },
            key=len,
            reverse=True,
        )

    @property
    def device(self) -> Any:
        return self.model.device

    def harmless(self, text: str) -> str:
        """`text` without marks of the chat template: what is asked or judged must not speak for the frame."""
        for mark in self._marks:
            if mark in text:
                text = text.replace(mark, f"{mark[0]} {mark[1:]}")
        return text

    def rendered(self, images: int, text: str) -> str:
        """A question with `images` images in front of `text`, up to where the answer begins."""
        text = self.harmless(text)
        if not self._chat:
            mark = str(getattr(self.processor, "image_token", "") or "")
            return f"{mark * images}{text}"
        content: list[dict[str, str]] = [{"type": "image"}] * images
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": [*content, {"type": "text", "text": text}]}
        ]
        if system := self.parameters.system_prompt:
            messages.insert(0, {"role": "system", "content": [{"type": "text", "text": system}]})
        found: str = self.processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        return found

    def tokens(self, rendered: Sequence[str]) -> list[list[int]]:
        """Token ids of rendered questions, with one token in each image's place."""
        found: list[list[int]] = self.tokenizer(list(rendered), add_special_tokens=False)["input_ids"]
        return found

    def prepare(self, images: Sequence[Image.Image], rendered: str) -> Prepared:
        """A rendered question with its images as tensors. Raises `Refused` for one that is too long."""
        if len(rendered) > _CHARACTERS_IN_A_TOKEN * self.limit:
            raise Refused(
                "prompt_too_long", f"{len(rendered)} characters; this model takes {self.limit} tokens"
            )
        bos = self.tokenizer.bos_token
        given: Any = self.processor(
            text=[rendered],
            **({"images": [list(images)]} if images else {}),
            add_special_tokens=not (self._chat and bos and rendered.startswith(bos)),
            return_tensors="pt",
        )
        vision = {name: value for name, value in given.items() if name not in (*_TEXT, "token_type_ids")}
        ids: list[int] = given["input_ids"][0].tolist()
        self.check_length(len(ids))
        return Prepared(ids=ids, vision=vision)

    def check_length(self, tokens: int) -> None:
        """Raises `Refused` for a prompt of more tokens than the model takes."""
        if tokens >= self.limit:
            raise Refused("prompt_too_long", f"{tokens} tokens; this model takes fewer than {self.limit}")

    def batch(self, rows: Sequence[Prepared]) -> dict[str, Any]:
        """Rows of one shape as the model's arguments, padded on the left."""
        longest = max(len(row.ids) for row in rows)
        ids = torch.full((len(rows), longest), self.pad, dtype=torch.long)
        mask = torch.zeros((len(rows), longest), dtype=torch.long)
        for number, row in enumerate(rows):
            ids[number, longest - len(row.ids) :] = torch.tensor(row.ids)
            mask[number, longest - len(row.ids) :] = 1
        vision = {name: self.onto(torch.cat([row.vision[name] for row in rows])) for name in rows[0].vision}
        return {"input_ids": self.onto(ids), "attention_mask": self.onto(mask), **vision}

    def onto(self, tensor: Any) -> Any:
        """The tensor on the model's device, pixels in the model's type of number."""
        if tensor.is_floating_point():
            return tensor.to(self.device, self.model.dtype)
        return tensor.to(self.device)
