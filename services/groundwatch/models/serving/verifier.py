"""The probability that statements hold for an image: all statements of a response share one prefix.

The images are prepared and encoded once and the prompt up to the statement is read once. Where a model takes
a mask of our own, all statements stand behind it in one row, each of which sees the prompt and itself alone,
and one forward pass gives all answers. Elsewhere the prompt's key-value cache is repeated for each statement
before a pass over the short rests. Either way the result is that of asking one by one, which a checkpoint
proves when it is loaded.

Verifiers of an encoder and a decoder, as BLIP-2 with Flan-T5 is, share less: the encoder reads an image's
features together with a statement, so what statements share is what makes the features, a vision tower and
what follows it (BLIP-2's Q-Former), which is most of the work.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from itertools import islice
from typing import Any

import msgspec
import numpy as np
import torch
from PIL import Image

from groundwatch.models.serving.failures import CheckpointError, Refused, in_batches, in_groups
from groundwatch.models.serving.images import check_first, decode_all, png
from groundwatch.models.serving.lvlm import Prepared, VisionLanguage
from groundwatch.models.serving.parameters import SLOT, Parameters, wording

logger = logging.getLogger("groundwatch")

_PROBES = ("a dog is red", "The 7 trees")
_DETAIL = 200
_SIZES = ((64, 64), (96, 64))
_MOST_APART = {torch.float32: 1e-3}
_MOST_APART_IN_HALF = 2e-2


class EntailmentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Statements about the same images."""

    images: tuple[bytes, ...]
    statements: tuple[str, ...]


class EntailmentResult(msgspec.Struct, frozen=True, kw_only=True):
    """P(yes) of each statement. `tokens` counts those that the model read: a shared prefix once."""

    probabilities: tuple[float, ...]
    tokens: int


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """A request as tokens: the shared prefix with its images, and the rest of each statement."""

    prefix: Prepared
    rests: list[list[int]]


class Prefilled(msgspec.Struct, frozen=True, kw_only=True):
    """What a model keeps of the prefixes of a group, a row for each: the key-value cache, by how much
    positions behind a prefix differ from its length (M-RoPE: (rows, 1)), and which tiles its last token sees
    (cross-attention: (rows, 1, images, tiles)).
    """

    cache: Any
    position_deltas: Any = None
    sees: Any = None


class Verifier:
    """A vision-language checkpoint that answers yes or no. Raises `CheckpointError` when it cannot."""

    def __init__(self, parameters: Parameters, *, checkpoint: VisionLanguage | None = None) -> None:
        self._parameters = parameters
        self._wording = wording(parameters)
        self.checkpoint = checkpoint or VisionLanguage(parameters)
        if self.checkpoint.model.config.model_type.startswith("instructblip"):
            why = "is an InstructBLIP, which reads each statement into the image: use a BLIP-2"
            raise CheckpointError(f"{parameters.model_id} {why}")
        sees_all = self.checkpoint.model.config.model_type == "paligemma"
        if parameters.prefix == "shared" and sees_all:
            why = "is a PaliGemma, whose image sees the statement, so that no prefix can be shared"
            raise CheckpointError(f"{parameters.model_id} {why}: set PREFIX to whole, or use another")
        self.yes, self.no = self._words(self._wording.yes), self._words(self._wording.no)
        if set(self.yes) & set(self.no):
            raise CheckpointError("yes and no have a token in common: set YES and NO")
        self.whole = parameters.prefix == "whole" or sees_all
        """Whether each statement is asked in a prompt of its own."""
        self.one_pass = False
        """Whether all statements go in one pass, which a checkpoint has to prove."""
        # Where every statement's own tokens begin: as far as two quite different statements agree.
        self._frame = _common(self.checkpoint.tokens([self._asked(1, one) for one in _PROBES]))

    @property
    def way(self) -> str:
        """How statements about an image are asked."""
        return "whole" if self.whole else "one pass" if self.one_pass else "rows"

    @property
    def fell_back(self) -> bool:
        """Whether whole prompts are asked though nobody set that, which makes another judge."""
        return self.whole and self._parameters.prefix == "auto"

    def warm_up(self, image: bytes) -> None:
        """Judges statements about images of two sizes, each alone and in one batch, and refuses a checkpoint
        whose answers are not those of whole prompts, or asks those, with `prefix` auto.
        """
        probes = (tuple(sorted(self._wording.words)) or _PROBES)[:2]
        dice = np.random.default_rng(0)
        noise = [png(Image.fromarray(dice.integers(0, 256, (*size, 3), np.uint8))) for size in _SIZES]
        requests = [EntailmentRequest(images=(image,), statements=probes[:1])]
        requests += [EntailmentRequest(images=(one,), statements=probes) for one in noise]
        self.one_pass = not self.whole and self._takes_mask()
        while True:
            try:
                self._prove(requests)
                break
            except CheckpointError as error:
                if not self.one_pass and (self.whole or self._parameters.prefix != "auto"):
                    raise
                self.one_pass, self.whole = False, not self.one_pass
                logger.warning("statements of a response are now asked as %s: %s", self.way, error)
        logger.info("statements of a response: %s", self.way)

    def _takes_mask(self) -> bool:
        """Whether all that its layers are told of places are a mask and positions by number."""
        model, text = self.checkpoint.model, self.checkpoint.model.config.get_text_config(decoder=True)
        layers = set(getattr(text, "layer_types", None) or ["full_attention"])
        windows = getattr(text, "sliding_window", None) and getattr(text, "use_sliding_window", True)
        return (
            not self.checkpoint.encoder_decoder
            and layers == {"full_attention"}
            and not windows
            and model.base_model is not model
            and model.get_output_embeddings() is not None
            and self.checkpoint.multimodal_positions is None
            and getattr(text, "_attn_implementation", "") in ("sdpa", "eager")
            and not hasattr(text, "cross_attention_layers")
        )

    def _prove(self, requests: Sequence[EntailmentRequest]) -> None:
        most = _MOST_APART.get(self.checkpoint.model.dtype, _MOST_APART_IN_HALF)
        alone = [self.judge([one])[0] for one in requests]
        for request, *results in zip(requests, alone, self.judge(requests), strict=True):
            for result in results:
                check_first(result, self._parameters, "judge")
            wanted = [] if self.whole else self.judge_one_by_one(request)
            told = [one.probabilities for one in results if isinstance(one, EntailmentResult) and wanted]
            for one, other in ((one, other) for row in told for one, other in zip(row, wanted, strict=True)):
                if abs(one - other) > most:
                    why = f"a shared prefix gives P(yes) {one:.4f} where the whole prompt gives {other:.4f}"
                    raise CheckpointError(
                        f"{self._parameters.model_id} cannot judge as it is served: {why}; set PREFIX to "
                        "whole or auto (statements read the image anew), or ask it behind an "
                        "OpenAI-compatible endpoint"
                    )

    def unknown(self, statement: str) -> set[str]:
        """The statement's words that keep it from being judged."""
        return self._wording.unknown(statement)

    def judge(self, requests: Sequence[EntailmentRequest]) -> list[EntailmentResult | Exception]:
        """One result for each request, in order; `Refused`, `Exhausted` or a bug in the place of one."""
        limits = self._parameters
        if self.whole:
            return in_batches(requests, self._judge_whole, size=1)
        return in_groups(requests, self._group, self._judge, size=limits.max_rows, threads=limits.threads)

    def _group(self, request: EntailmentRequest) -> tuple[Any, Ready]:
        ready = self._prepare(request)
        return (len(ready.prefix.ids), ready.prefix.shape), ready

    def judge_one_by_one(self, request: EntailmentRequest) -> list[float]:
        """The same by one forward pass for each statement, everything anew and as the checkpoint's own
        processor makes it: what `judge` must agree with.
        """
        return list(self._judge_whole([request])[0].probabilities)

    @torch.inference_mode()
    def _judge_whole(self, requests: Sequence[EntailmentRequest]) -> list[EntailmentResult]:
        results = []
        for request in requests:
            images = self._checked(request)
            probabilities: list[float] = []
            tokens = 0
            for statement in request.statements:
                asked = self.checkpoint.whole(images, self._wording.template.replace(SLOT, statement))
                probabilities += self._probabilities(self._logits(asked))
                tokens += asked["input_ids"].numel()
            results.append(EntailmentResult(probabilities=tuple(probabilities), tokens=tokens))
        return results

    def _logits(self, asked: dict[str, Any]) -> Any:
        """The first answer's, of whole prompts: (rows, vocabulary)."""
        return self.checkpoint.model(**asked, logits_to_keep=1).logits[:, -1]

    def _asked(self, images: int, statement: str) -> str:
        return self.checkpoint.rendered(images, self._wording.template.replace(SLOT, statement))

    def _words(self, spellings: Sequence[str]) -> list[int]:
        """Tokens that say one of `spellings`, alone or after a space."""
        tokenizer = self.checkpoint.tokenizer
        found = {
            ids[0]
            for word in spellings
            for text in (word, f" {word}")
            if len(ids := tokenizer(text, add_special_tokens=False)["input_ids"]) == 1
        } - {tokenizer.unk_token_id}
        if not found:
            why = f"none of {', '.join(spellings)} is one token: set YES and NO"
            raise CheckpointError(f"{self._parameters.model_id}: {why}")
        return sorted(found)

    def _checked(self, request: EntailmentRequest) -> list[Image.Image]:
        """The request's images. Raises `Refused` for what this model does not judge."""
        statements = request.statements
        if not 1 <= len(statements) <= self._parameters.max_statements:
            most = self._parameters.max_statements
            why = f"{len(statements)} statements; this model takes 1 to {most}"
            raise Refused("judge_rejected_request", why)
        if not request.images:
            raise Refused("judge_rejected_request", "statements without an image")
        if empty := [at for at, text in enumerate(statements) if not text.strip()]:
            raise Refused("judge_rejected_request", f"statement {empty[0]} is empty")
        for at, text in enumerate(statements):
            if unknown := self.unknown(text):
                why = f"statement {at} has words that this model was not taught: {', '.join(sorted(unknown))}"
                raise Refused("judge_rejected_request", why[:_DETAIL])
        if (longest := max(map(len, statements))) > 40 * self.checkpoint.limit:
            raise Refused("prompt_too_long", f"a statement of {longest} characters")
        return decode_all(request.images, self._parameters)

    def _prepare(self, request: EntailmentRequest) -> Ready:
        checkpoint = self.checkpoint
        images = self._checked(request)
        asked = [self._asked(len(images), text) for text in request.statements]
        return self._divided(images, asked, checkpoint.tokens(asked))

    def _divided(self, images: list[Image.Image], asked: list[str], rows: list[list[int]]) -> Ready:
        """Rendered prompts, whose tokens are `rows`, as what they share and the rest of each."""
        checkpoint = self.checkpoint
        frame = self._frame if len(images) == 1 else rows[0]
        shared = min(len(_common([*rows, frame])), min(map(len, rows)) - 1)
        rests = [row[shared:] for row in rows]
        whole = checkpoint.prepare(images, asked[0])
        cut = len(whole.ids) - len(rests[0])
        if whole.ids[cut:] != rests[0] or checkpoint.image_token_id in rests[0]:
            why = "the chat template puts the statement before the image"
            raise CheckpointError(f"{self._parameters.model_id}: {why}")
        checkpoint.check_length(cut + max(map(len, rests)))
        return Ready(prefix=whole.until(cut), rests=rests)

    @torch.inference_mode()
    def _judge(self, group: Sequence[Ready]) -> list[EntailmentResult]:
        if self.one_pass:
            found = self._packed(group)
        else:
            rows = [(place, rest) for place, one in enumerate(group) for rest in one.rests]
            found = self._score_all(self._prefill(group), rows)
        numbers = iter(found)
        return [
            EntailmentResult(
                probabilities=tuple(islice(numbers, len(one.rests))),
                tokens=len(one.prefix.ids) + sum(map(len, one.rests)),
            )
            for one in group
        ]

    def _packed(self, group: Sequence[Ready]) -> list[float]:
        """P(yes) of all rests, in one pass where no more than MAX_ROWS of them stand behind a prefix."""
        size = self._parameters.max_rows
        rows = [
            (one.prefix, one.rests[at : at + size]) for one in group for at in range(0, len(one.rests), size)
        ]
        found: list[float] = []
        for at in range(0, len(rows), size):
            found += self._pass(rows[at : at + size])
        return found

    def _pass(self, rows: Sequence[tuple[Prepared, list[list[int]]]]) -> list[float]:
        """Prefixes of one length with their rests behind them: a rest sees the prefix and itself, and its
        positions go on from the prefix's end.
        """
        checkpoint, begin = self.checkpoint, len(rows[0][0].ids)
        longest = begin + max(sum(map(len, rests)) for _, rests in rows)
        ids = torch.full((len(rows), longest), checkpoint.pad, dtype=torch.long)
        # What fills a row is at no place that a statement does not reach, which is all that was checked.
        reached = begin + max(len(rest) for _, rests in rows for rest in rests)
        positions = torch.arange(longest).clamp(max=reached - 1).repeat(len(rows), 1)
        # 0 is the prefix, above it each rest, -1 what fills the row.
        whose = torch.full((len(rows), longest), -1)
        ends = []
        for number, (prefix, rests) in enumerate(rows):
            ids[number, :begin] = torch.tensor(prefix.ids)
            whose[number, :begin] = 0
            at = begin
            for own, rest in enumerate(rests, 1):
                here = slice(at, at := at + len(rest))
                ids[number, here] = torch.tensor(rest)
                positions[number, here] = torch.arange(begin, begin + len(rest))
                whose[number, here] = own
                ends.append(number * longest + at - 1)
        whose = checkpoint.onto(whose)
        alike = (whose[:, None] == 0) | (whose[:, None] == whose[:, :, None])
        dtype = checkpoint.model.dtype
        hidden = torch.zeros(alike.shape, dtype=dtype, device=alike.device)
        hidden.masked_fill_(~alike.tril(), torch.finfo(dtype).min)
        states = checkpoint.model.base_model(
            input_ids=checkpoint.onto(ids),
            attention_mask=hidden[:, None],
            position_ids=checkpoint.onto(positions),
            use_cache=False,
            **checkpoint.vision([prefix for prefix, _ in rows]),
        ).last_hidden_state
        last = states.flatten(0, 1)[torch.tensor(ends, device=states.device)]
        return self._probabilities(checkpoint.model.get_output_embeddings()(last))

    def _prefill(self, group: Sequence[Ready]) -> Any:
        asked = self.checkpoint.batch([one.prefix for one in group])
        found = self.checkpoint.model(**asked, use_cache=True, logits_to_keep=1)
        multimodal = self.checkpoint.multimodal_positions
        sees = asked.get("cross_attention_mask")
        return Prefilled(
            cache=getattr(found, "language_model_outputs", found).past_key_values,
            position_deltas=None if multimodal is None else multimodal.rope_deltas,
            sees=None if sees is None else sees[:, -1:],
        )

    def _score_all(self, prefilled: Any, rows: Sequence[tuple[int, list[int]]]) -> list[float]:
        size = self._parameters.max_rows
        found: list[float] = []
        for start in range(0, len(rows), size):
            found += self._score(prefilled, rows[start : start + size], last=start + size >= len(rows))
        return found

    def _score(self, prefilled: Any, rows: Sequence[tuple[int, list[int]]], *, last: bool) -> list[float]:
        """P(yes) for rests that follow the prefixes at their places; only the last may use up the cache."""
        checkpoint = self.checkpoint
        cache = prefilled.cache if last else copy.deepcopy(prefilled.cache)
        seen = cache.get_seq_length()
        places = torch.tensor([place for place, _ in rows], device=checkpoint.device)
        cache.reorder_cache(places)
        longest = max(len(rest) for _, rest in rows)
        ids = torch.full((len(rows), longest), checkpoint.pad, dtype=torch.long)
        mask = torch.ones((len(rows), seen + longest), dtype=torch.long)
        for number, (_, rest) in enumerate(rows):
            ids[number, : len(rest)] = torch.tensor(rest)
            mask[number, seen + len(rest) :] = 0
        ends = torch.tensor([len(rest) - 1 for _, rest in rows], device=checkpoint.device)
        more: dict[str, Any] = {}
        if prefilled.position_deltas is not None:
            behind = torch.arange(seen, seen + longest, device=checkpoint.device)
            positions = behind[None] + prefilled.position_deltas[places].to(behind.device)
            more["position_ids"] = positions[None].expand(3, -1, -1)
        if prefilled.sees is not None:
            more["cross_attention_mask"] = prefilled.sees[places].expand(-1, seen + longest, -1, -1)
        logits = checkpoint.language(
            input_ids=checkpoint.onto(ids),
            attention_mask=checkpoint.onto(mask),
            past_key_values=cache,
            use_cache=True,
            **more,
        ).logits
        return self._probabilities(logits[torch.arange(len(rows), device=logits.device), ends])

    def _probabilities(self, logits: Any) -> list[float]:
        """Of yes against no, each with all its spellings."""
        yes = logits[:, self.yes].float().logsumexp(-1)
        no = logits[:, self.no].float().logsumexp(-1)
        found = torch.sigmoid(yes - no)
        if not bool(torch.isfinite(found).all()):
            raise Refused("not_finite", "the model's logits hold what is no number")
        numbers: list[float] = found.tolist()
        return numbers


def _common(rows: Sequence[list[int]]) -> list[int]:
    shortest = min(rows, key=len)
    for at, token in enumerate(shortest):
        if any(row[at] != token for row in rows):
            return shortest[:at]
    return shortest


def load_verifier(parameters: Parameters, *, checkpoint: VisionLanguage | None = None) -> Verifier:
    """The verifier that suits a checkpoint. Raises `CheckpointError` when none does."""
    checkpoint = checkpoint or VisionLanguage(parameters)
    kind = EncoderDecoderVerifier if checkpoint.encoder_decoder else Verifier
    return kind(parameters, checkpoint=checkpoint)


class EncoderDecoderVerifier(Verifier):
    """P(yes) is read off the decoder's first step that is free: some must begin with a token of their own."""

    def __init__(self, parameters: Parameters, *, checkpoint: VisionLanguage) -> None:
        super().__init__(parameters, checkpoint=checkpoint)
        model = checkpoint.model
        if not hasattr(model, "get_image_features") or checkpoint.image_token_id is None:
            why = "is an encoder-decoder that takes no image among its tokens"
            raise CheckpointError(f"{parameters.model_id} {why}")
        start = _set(checkpoint.language, "decoder_start_token_id")
        if start is None:
            raise CheckpointError(f"{parameters.model_id} does not say what its decoder starts from")
        forced = _set(checkpoint.language, "forced_bos_token_id")
        begins = [start] if forced is None else [start, forced]
        self._begins = torch.tensor([begins], device=checkpoint.device)

    def _logits(self, asked: dict[str, Any]) -> Any:
        begins = self._begins.expand(len(asked["attention_mask"]), -1)
        return self.checkpoint.model(**asked, decoder_input_ids=begins).logits[:, -1]

    def _divided(self, images: list[Image.Image], asked: list[str], rows: list[list[int]]) -> Ready:
        """Whole prompts: what the processor puts around the first one's text goes around each."""
        checkpoint = self.checkpoint
        whole = checkpoint.prepare(images, asked[0])
        ends = range(len(whole.ids), len(rows[0]) - 1, -1)
        end = next((end for end in ends if whole.ids[end - len(rows[0]) : end] == rows[0]), None)
        if end is None:
            raise CheckpointError(f"{self._parameters.model_id}: the processor rewrites the text")
        before, after = whole.ids[: end - len(rows[0])], whole.ids[end:]
        rests = [[*before, *row, *after] for row in rows]
        checkpoint.check_length(max(map(len, rests)))
        return Ready(prefix=whole.until(0), rests=rests)

    def _prefill(self, group: Sequence[Ready]) -> Any:
        """The images' features as the encoder takes them: (requests, places, width)."""
        vision = self.checkpoint.vision([one.prefix for one in group])
        return self.checkpoint.model.get_image_features(**vision).pooler_output

    def _score(self, cache: Any, rows: Sequence[tuple[int, list[int]]], *, last: bool) -> list[float]:
        """P(yes) of whole prompts about the images whose features stand at their places in `cache`."""
        checkpoint = self.checkpoint
        asked = checkpoint.batch([Prepared(ids=rest) for _, rest in rows])
        ids = asked.pop("input_ids")
        embedded = checkpoint.model.get_input_embeddings()(ids)
        features = cache[[place for place, _ in rows]].to(embedded.dtype)
        places = (ids == checkpoint.image_token_id)[..., None].expand_as(embedded)
        if int(places.sum()) != features.numel():
            why = "the processor leaves the image another number of places than the model fills"
            raise CheckpointError(f"{self._parameters.model_id}: {why}")
        found = checkpoint.language(
            inputs_embeds=embedded.masked_scatter(places, features),
            decoder_input_ids=self._begins.expand(len(rows), -1),
            **asked,
        )
        return self._probabilities(found.logits[:, -1])


def _set(model: Any, name: str) -> int | None:
    """What the checkpoint says of generation, or else of its decoder."""
    found = getattr(model.generation_config, name, None)
    return getattr(model.config.get_text_config(decoder=True), name, None) if found is None else found
