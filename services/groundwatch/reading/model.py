"""The network: an encoder over the words of passages, and heads that find mentions, statements and links.

Each layer (mentions, and statements by kind) labels words as outside, begin, inside. From the spans so found
come properties of each, and scores of links: statement to subject, relation to object, mention to the
mention that names it. Links are scored by a biaffine product, and by a small network that sees how many
words, mentions, sentences and lines lie between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModel, AutoTokenizer

from groundwatch.reading.graph import FORMS, Kind, Naming
from groundwatch.reading.words import LINE_BREAK, Passage, Span

LAYERS = ("mention", *Kind)
SUBJECT, OBJECT, NAME = range(3)
LINKS = 3

ENTITY, DENIED, HEDGED, OPTIONAL = range(4)
MARKS = 4
"""Properties that are yes or no; only a mention can be an entity."""

_PIECES = 512
_PIECES_A_WORD = 8
_HIDDEN = 192
_BIAFFINE = 128
_ADDITIVE = 64
_WORDS, _RANKS, _SENTENCES, _LINES = 41, 21, 9, 9
"""How many distances are told apart, to both sides of zero."""


@dataclass(slots=True)
class Spans:
    """Spans of several passages in one row: `of` says whose each is, `layer` which layer's."""

    passage: list[int]
    span: list[Span]
    layer: list[int]

    def __len__(self) -> int:
        return len(self.span)


class ReaderModel(nn.Module):
    def __init__(self, encoder: Path, dropout: float = 0.2) -> None:
        super().__init__()
        self._tokenizer: Any = AutoTokenizer.from_pretrained(encoder)
        self.encoder: Any = AutoModel.from_pretrained(
            encoder, add_pooling_layer=False, attention_probs_dropout_prob=0.0
        )
        self._line_break = cast("int", self._tokenizer.convert_tokens_to_ids("[unused1]"))
        self._ids = lru_cache(maxsize=50_000)(self._word_ids)
        for parameter in self.encoder.embeddings.parameters():
            parameter.requires_grad = False
        width = self.encoder.config.hidden_size
        self.dropout = nn.Dropout(dropout)
        self.side = nn.Embedding(2, width)
        self.mix = nn.Parameter(torch.tensor([0.05, 0.05, 0.1, 0.2, 0.25, 0.35]))
        self.tags = _perceptron(width, _HIDDEN, 3 * len(LAYERS), dropout)
        self.says = _perceptron(width, 64, 1, 0.0)
        self.describes = nn.Linear(width, 1)
        self.layer = nn.Embedding(len(LAYERS), 2 * width)
        self.marks = _perceptron(2 * width, _HIDDEN, MARKS + len(Naming) + len(FORMS), dropout)
        self.source = nn.ModuleList(_projection(2 * width, dropout) for _ in range(LINKS))
        self.target = nn.ModuleList(_projection(2 * width, dropout) for _ in range(LINKS))
        self.biaffine = nn.Parameter(torch.randn(LINKS, _BIAFFINE + 1, _BIAFFINE + 1) * 0.02)
        self.add_source = nn.ModuleList(nn.Linear(2 * width, _ADDITIVE) for _ in range(LINKS))
        self.add_target = nn.ModuleList(nn.Linear(2 * width, _ADDITIVE, bias=False) for _ in range(LINKS))
        self.distances = nn.ModuleList(
            nn.Embedding(LINKS * size, _ADDITIVE) for size in (_WORDS, _RANKS, _SENTENCES, _LINES)
        )
        self.add = nn.Parameter(torch.randn(LINKS, _ADDITIVE) * 0.3)
        self.prior = nn.Embedding(len(LAYERS) * 2 * _RANKS, 1)
        for part in (self.side, self.layer, self.prior, self.describes):
            nn.init.zeros_(part.weight)
        # Until it is fitted to people's labels, a sub-sentence describes where facts are read in it.
        nn.init.constant_(self.describes.bias, -1.0)

    def states(self, passages: Sequence[Passage]) -> Tensor:
        """One state for each word: [passages, words, width]."""
        rows, ends = zip(*map(self._pieces, passages), strict=True)
        length = min(_PIECES, max(map(len, rows)))
        pieces = torch.zeros(len(rows), length, dtype=torch.long)
        sides = torch.zeros_like(pieces)
        mask = torch.zeros(len(rows), 1, 1, length, dtype=torch.bool)
        first = torch.zeros(len(rows), max(len(end) for end in ends), dtype=torch.long)
        last = torch.zeros_like(first)
        for at, (row, end, passage) in enumerate(zip(rows, ends, passages, strict=True)):
            row = row[:length]
            pieces[at, : len(row)] = torch.tensor(row)
            mask[at, ..., : len(row)] = True
            if passage.split < len(end):
                sides[at, end[passage.split][0] : len(row)] = 1
            if end:
                first[at, : len(end)], last[at, : len(end)] = torch.tensor(end).clamp(max=length - 1).T
        hidden = self._encode(self.encoder.embeddings(input_ids=pieces) + self.side(sides), mask)
        width = hidden.shape[-1]
        return (
            hidden.gather(1, first[..., None].expand(-1, -1, width))
            + hidden.gather(1, last[..., None].expand(-1, -1, width))
        ) / 2

    def label_words(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of each word: [..., layers, outside-begin-inside], and that its sentence says something."""
        states = self.dropout(states)
        tags = self.tags(states)
        return tags.view(*tags.shape[:-1], len(LAYERS), 3), self.says(states)[..., 0]

    def represent(self, states: Tensor, spans: Spans) -> Tensor:
        passage = torch.tensor(spans.passage, dtype=torch.long)
        first, last = torch.tensor(spans.span, dtype=torch.long).view(-1, 2).T
        layer = torch.tensor(spans.layer, dtype=torch.long)
        ends = torch.cat([states[passage, first], states[passage, last]], -1)
        out: Tensor = self.dropout(ends + self.layer(layer))
        return out

    def properties(self, spans: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits of marks, of how a mention is named, and of a statement's form."""
        marks, naming, form = self.marks(spans).split([MARKS, len(Naming), len(FORMS)], -1)
        return marks, naming, form

    def link(
        self,
        kind: int,
        passages: Sequence[Passage],
        sources: Spans,
        source: Tensor,
        targets: Spans,
        target: Tensor,
    ) -> list[Tensor]:
        """Logits of links for each passage: [its sources, its mentions]."""
        ones = source.new_ones
        bilinear_source = torch.cat([self.source[kind](source), ones(len(source), 1)], -1)
        bilinear_source = bilinear_source @ self.biaffine[kind]
        bilinear_target = torch.cat([self.target[kind](target), ones(len(target), 1)], -1)
        additive_source, additive_target = self.add_source[kind](source), self.add_target[kind](target)
        scores = []
        source_of, target_of = sources.passage, targets.passage
        first_source = first_target = 0
        for at, passage in enumerate(passages):
            end_source = first_source + source_of.count(at)
            end_target = first_target + target_of.count(at)
            own, its = slice(first_source, end_source), slice(first_target, end_target)
            distances = between(passage, sources.span[own], targets.span[its])
            hidden = additive_source[own][:, None] + additive_target[its][None]
            for table, size, distance in zip(
                self.distances, (_WORDS, _RANKS, _SENTENCES, _LINES), distances, strict=True
            ):
                hidden = hidden + 3 * table(distance + size * kind)
            score = bilinear_source[own] @ bilinear_target[its].T
            score = score + functional.gelu(hidden) @ self.add[kind]
            if kind != NAME:
                layer = torch.tensor(sources.layer[own], dtype=torch.long)[:, None]
                score = score + 20 * self.prior((layer * 2 + kind) * _RANKS + distances[1])[..., 0]
            scores.append(score)
            first_source, first_target = end_source, end_target
        return scores

    def _pieces(self, passage: Passage) -> tuple[list[int], list[tuple[int, int]]]:
        """Word pieces of a passage, and the first and last of each word."""
        row: list[int] = [self._tokenizer.cls_token_id]
        ends = []
        for at, word in enumerate(passage.words):
            if at == passage.split:
                row.append(self._tokenizer.sep_token_id)
            first = len(row)
            row.extend(self._ids(word.text))
            ends.append((first, len(row) - 1))
        row.append(self._tokenizer.sep_token_id)
        return row, ends

    def _word_ids(self, word: str) -> list[int]:
        if word == LINE_BREAK:
            return [self._line_break]
        word = word.encode("utf-8", "replace").decode("utf-8")
        ids: list[int] = self._tokenizer(word, add_special_tokens=False)["input_ids"][:_PIECES_A_WORD]
        return ids or [int(self._tokenizer.unk_token_id)]

    def _encode(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """The encoder's layers, mixed by learned weights."""
        mixed = torch.zeros_like(hidden)
        batch, length, width = hidden.shape
        for at, layer in enumerate(self.encoder.encoder.layer):
            attention = layer.attention.self
            heads = attention.num_attention_heads
            query, key, value = (
                project(hidden).view(batch, length, heads, -1).transpose(1, 2)
                for project in (attention.query, attention.key, attention.value)
            )
            context = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
            hidden = layer.attention.output(context.transpose(1, 2).reshape(batch, length, width), hidden)
            hidden = layer.output(layer.intermediate(hidden), hidden)
            mixed = mixed + self.mix[at] * hidden
        return mixed


def between(
    passage: Passage, sources: Sequence[Span], targets: Sequence[Span]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """How many words (in steps that grow), mentions, sentences and lines lie between, as rows of tables."""
    source = torch.tensor(sources, dtype=torch.long).view(-1, 2)
    target = torch.tensor(targets, dtype=torch.long).view(-1, 2)
    words = target[None, :, 1] - source[:, None, 1]
    steps = words.sign() * ((words.abs().float() + 1).log2() * 2.5).round().long().clamp(max=_WORDS // 2)
    before = (target[None, :, 0] < source[:, None, 0]).sum(1)
    rank = torch.arange(len(targets))[None] - before[:, None]
    sentence = torch.tensor([word.text in ".!?;|\n" for word in passage.words]).cumsum(0)
    line = torch.tensor([word.text == LINE_BREAK for word in passage.words]).cumsum(0)
    sentences, lines = (
        count[target[None, :, 1]] - count[source[:, None, 1]] if len(targets) and len(sources) else words
        for count in (sentence, line)
    )
    return (
        steps + _WORDS // 2,
        _centred(rank, _RANKS),
        _centred(sentences, _SENTENCES),
        _centred(lines, _LINES),
    )


def _centred(distance: Tensor, size: int) -> Tensor:
    return distance.clamp(-(size // 2), size // 2) + size // 2


def _perceptron(width: int, hidden: int, out: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Dropout(dropout), nn.Linear(hidden, out))


def _projection(width: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, _BIAFFINE), nn.GELU(), nn.Dropout(dropout))
