"""Where an image shows what phrases name, by an open-vocabulary detector.

Each phrase gets all boxes that fit it, whatever the others get: a red ball is a "ball" and a "red ball". That
is why transformers' own post-processing is not used: it gives a box to its best phrase alone, or to words of
the text that name no phrase.
"""

import importlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import torch
from PIL import Image

from groundwatch.models.replies import Detection
from groundwatch.models.serving.failures import CheckpointError, Refused, in_groups
from groundwatch.models.serving.images import check_first, decode, dtype_of, in_place, loading, onto, source
from groundwatch.models.serving.parameters import Parameters

_OWL = ("owlvit", "owlv2")
_GROUNDING = ("grounding-dino", "mm-grounding-dino")
_CHARACTERS_IN_A_TOKEN = 40
_LONGEST = 20
"""An image's longer side over its shorter one, for Grounding DINO: it fills nothing up, and a strip has fewer
places than it asks for."""

_SENTENCE_ENDS = re.compile(r"[.?!]+")
"""They would part a phrase in two: Grounding DINO reads a text as phrases that end so."""


class DetectionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Phrases that are looked for in one image."""

    image: bytes
    texts: tuple[str, ...]


class _Ready(msgspec.Struct, frozen=True, kw_only=True):
    """A request as tensors and token ids. `scale`: widths and heights of the image in the model's frame."""

    pixels: dict[str, Any]
    phrases: list[list[int]]
    scale: tuple[float, float]


class _Scored(msgspec.Struct, frozen=True, kw_only=True):
    """Boxes (q, 4) as center, width and height from 0 to 1 of the model's frame; scores (q, phrases)."""

    boxes: Any
    scores: Any


class Detector:
    """A checkpoint that AutoModelForZeroShotObjectDetection loads: OWL-ViT, OWLv2 or Grounding DINO.

    OWLv2 (Minderer et al. 2023) gives each place of its grid a score for each phrase. Grounding DINO (Liu et
    al. 2024) scores tokens of one text; a phrase's score is the mean over its tokens, as its authors'
    evaluation on COCO has it. Raises `CheckpointError` for what is neither.
    """

    def __init__(self, parameters: Parameters) -> None:
        transformers: Any = importlib.import_module("transformers")
        self._parameters = parameters
        with loading(parameters):
            processor = transformers.AutoProcessor.from_pretrained(parameters.model_id, **source(parameters))
            model = transformers.AutoModelForZeroShotObjectDetection.from_pretrained(
                parameters.model_id, dtype=dtype_of(parameters), **source(parameters)
            )
            self._adopt(processor, in_place(model, parameters))

    def _adopt(self, processor: Any, model: Any) -> None:
        self._model, self._images, tokenizer = model, processor.image_processor, processor.tokenizer
        config = model.config
        if config.model_type not in (*_OWL, *_GROUNDING):
            raise CheckpointError(f"{self._parameters.model_id}: a {config.model_type} cannot be asked here")
        self._grounding = config.model_type in _GROUNDING
        # OWLv2 alone fills the image up to a square, at the right or below.
        self._square = config.model_type == "owlv2"
        most = config.max_text_len - 3 if self._grounding else config.text_config.max_position_embeddings - 2
        self._limit = min(most, self._parameters.max_prompt_tokens or most)
        self._largest = 2 * max(int(value) for _, value in self._images.size)
        self._tokenizer, self._marks = tokenizer, tokenizer.all_special_tokens
        self._unknown = tokenizer.unk_token_id
        self._pad = tokenizer.pad_token_id or 0
        self._stop = tokenizer.convert_tokens_to_ids(".")
        first, last = tokenizer.bos_token_id, tokenizer.eos_token_id
        self._frame = (tokenizer.cls_token_id, tokenizer.sep_token_id) if self._grounding else (first, last)

    def warm_up(self, image: bytes) -> None:
        check_first(self.detect([DetectionRequest(image=image, texts=("a",))])[0], self._parameters, "detect")

    def detect(self, requests: Sequence[DetectionRequest]) -> list[tuple[Detection, ...] | Exception]:
        """What each request's image shows, by phrase, the surest box first; an error in the place of it."""
        limits = self._parameters
        return in_groups(requests, self._prepare, self._detect, size=limits.max_rows, threads=limits.threads)

    def _prepare(self, request: DetectionRequest) -> tuple[Any, _Ready]:
        limits = self._parameters
        if not 1 <= len(request.texts) <= limits.max_texts:
            why = f"{len(request.texts)} phrases; this model takes 1 to {limits.max_texts}"
            raise Refused("judge_rejected_request", why)
        phrases = [self._tokens(at, text) for at, text in enumerate(request.texts)]
        image = decode(request.image, limits)
        if self._grounding and max(image.size) > _LONGEST * min(image.size):
            raise Refused(
                "unreadable_image", f"{image.width}×{image.height} pixels: too narrow to be searched"
            )
        # What is larger by far than the model sees would only cost memory: the processor computes in floats.
        image.thumbnail((self._largest, self._largest), Image.Resampling.BOX)
        given = self._images(images=image, return_tensors="pt")
        side = max(image.size) if self._square else 0
        scale = (side / image.width, side / image.height) if side else (1.0, 1.0)
        ready = _Ready(pixels=dict(given), phrases=phrases, scale=scale)
        shapes = tuple(tuple(value.shape) for value in given.values())
        return object() if self._grounding else shapes, ready

    def _tokens(self, at: int, text: str) -> list[int]:
        limit = self._limit
        if len(text) > _CHARACTERS_IN_A_TOKEN * limit:
            raise Refused("prompt_too_long", f"phrase {at} has {len(text)} characters")
        for mark in self._marks:
            text = text.replace(mark, " ")
        words = " ".join(_SENTENCE_ENDS.sub(" ", text).lower().split())
        ids: list[int] = self._tokenizer(words, add_special_tokens=False)["input_ids"]
        if not ids:
            raise Refused("judge_rejected_request", f"phrase {at} is empty")
        if self._unknown in ids:
            raise Refused("judge_rejected_request", f"phrase {at} has a word that this model does not know")
        if len(ids) > limit:
            raise Refused("prompt_too_long", f"phrase {at} has {len(ids)} tokens; this model takes {limit}")
        return ids

    @torch.inference_mode()
    def _detect(self, group: Sequence[_Ready]) -> list[tuple[Detection, ...]]:
        if self._grounding:
            return [self._told(list(self._grounded(one)), one.scale) for one in group]
        return [self._told([part], one.scale) for part, one in zip(self._owl(group), group, strict=True)]

    def _owl(self, group: Sequence[_Ready]) -> list[_Scored]:
        """All phrases of all images in one pass, each a text of its own; 0 in front of one says that an image
        has no phrase there."""
        first, last = self._frame
        most = max(len(one.phrases) for one in group)
        rows = [
            [first, *one.phrases[at], last] if at < len(one.phrases) else [0]
            for one in group
            for at in range(most)
        ]
        longest = max(map(len, rows))
        found = self._asked(
            {name: [one.pixels[name] for one in group] for name in group[0].pixels},
            [row + [self._pad] * (longest - len(row)) for row in rows],
            [[1] * len(row) + [0] * (longest - len(row)) for row in rows],
        )
        scores = _chances(found.logits)
        return [
            _Scored(boxes=boxes, scores=row[:, : len(one.phrases)])
            for boxes, row, one in zip(found.pred_boxes, scores, group, strict=True)
        ]

    def _grounded(self, one: _Ready) -> Iterator[_Scored]:
        """As many phrases in one text as it holds; where each stands in it is known by counting."""
        waiting = list(one.phrases)
        while waiting:
            first, last = self._frame
            text, spans = [first], []
            while waiting and len(text) + len(waiting[0]) + 2 <= self._model.config.max_text_len:
                ids = waiting.pop(0)
                spans.append(slice(len(text), len(text) + len(ids)))
                text += [*ids, self._stop]
            text.append(last)
            pixels = {name: [value] for name, value in one.pixels.items()}
            found = self._asked(pixels, [text], [[1] * len(text)])
            scores = torch.stack([_chances(found.logits[0, :, span]).mean(-1) for span in spans], -1)
            yield _Scored(boxes=found.pred_boxes[0], scores=scores)

    def _asked(self, pixels: dict[str, list[Any]], ids: list[list[int]], mask: list[list[int]]) -> Any:
        model = self._model
        return model(
            **{name: onto(model, parts) for name, parts in pixels.items()},
            input_ids=torch.tensor(ids, device=model.device),
            attention_mask=torch.tensor(mask, device=model.device),
        )

    def _told(self, parts: Sequence[_Scored], scale: tuple[float, float]) -> tuple[Detection, ...]:
        told: list[Detection] = []
        before = 0
        for part in parts:
            boxes = corners(part.boxes.float().cpu(), scale)
            scores = part.scores.cpu()
            if not bool(torch.isfinite(boxes).all()):
                raise Refused("not_finite", "the model's boxes hold what is no number")
            seen = (boxes[:, 2:] > boxes[:, :2]).all(-1)
            for at in range(scores.shape[1]):
                told += self._best(before + at, boxes[seen], scores[seen, at])
            before += scores.shape[1]
        return tuple(told)

    def _best(self, text: int, boxes: Any, scores: Any) -> Iterator[Detection]:
        limits = self._parameters
        order = scores.argsort(descending=True, stable=True)
        order = order[scores[order] >= limits.threshold][: limits.max_boxes]
        for place in order[distinct(boxes[order], limits.max_overlap)].tolist():
            x0, y0, x1, y1 = boxes[place].tolist()
            yield Detection(text, (x0, y0, x1, y1), float(scores[place]))


def _chances(logits: Any) -> Any:
    if not bool(torch.isfinite(logits).all()):
        raise Refused("not_finite", "the model's logits hold what is no number")
    return logits.float().sigmoid()


def corners(boxes: Any, scale: tuple[float, float] = (1.0, 1.0)) -> Any:
    """(q, 4) as center, width and height of a frame → x0, y0, x1, y1 of the image, cut off at its edges.

    `scale`: widths and heights of the image in the frame, whose upper left corner is the image's.
    """
    middle, size = boxes[:, :2], boxes[:, 2:]
    edges = torch.cat([middle - size / 2, middle + size / 2], -1)
    return (edges * edges.new_tensor([*scale, *scale])).clamp(0, 1)


def overlaps(boxes: Any, others: Any) -> Any:
    """(n, 4) and (m, 4), x0, y0, x1, y1 → (n, m): intersection over union; 0 where both are empty."""
    low = torch.maximum(boxes[:, None, :2], others[None, :, :2])
    high = torch.minimum(boxes[:, None, 2:], others[None, :, 2:])
    both = (high - low).clamp(min=0).prod(-1)
    areas = [(one[:, 2:] - one[:, :2]).clamp(min=0).prod(-1) for one in (boxes, others)]
    return both / (areas[0][:, None] + areas[1][None] - both).clamp(min=1e-12)


def distinct(boxes: Any, most: float) -> list[int]:
    """Places of the boxes (n, 4), best first, that overlap no better one by more than `most`."""
    near = (overlaps(boxes, boxes) > most).tolist()
    kept: list[int] = []
    for at, row in enumerate(near):
        if not any(row[better] for better in kept):
            kept.append(at)
    return kept
