"""Trains the reader: fine-tunes the encoder's layers, and fits the heads, on annotated answers.

The schedule is fixed by the data and the seed. After each epoch all that training needs to go on is written
beside the result, so that a run that was stopped goes on where it was.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tools.reader.labelling import label
from tools.reader.notation import Item
from torch import Tensor
from torch.nn import functional

from groundwatch.reading.graph import FORMS, Graph, Kind, Mention, Naming, Statement
from groundwatch.reading.model import (
    DENIED,
    ENTITY,
    LAYERS,
    NAME,
    OBJECT,
    OPTIONAL,
    SUBJECT,
    ReaderModel,
    Spans,
)
from groundwatch.reading.words import Passage

LONGEST = 330
"""Words of the longest answer to train on."""

_REPORT = 50
_POOL = 8
"""Batches that are sorted by length together."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    epochs: int = 8
    batch: int = 8
    seed: int = 1
    encoder_rate: float = 2e-4
    head_rate: float = 1e-3
    warm_up: float = 0.08
    weight_decay: float = 0.01


@dataclass(slots=True)
class Example:
    """A passage with its graph; the label of each word in each layer, whether its sentence says something."""

    passage: Passage
    graph: Graph
    tags: Tensor
    says: Tensor


def examples(items: Sequence[Item]) -> list[Example]:
    short = [item for item in items if len(item.answer.split()) < LONGEST]
    labelled = [example(*label(item)) for item in short]
    return [one for one in labelled if one.passage.split < len(one.passage.words)]


def example(passage: Passage, graph: Graph) -> Example:
    tags = torch.zeros(len(passage.words), len(LAYERS), dtype=torch.long)
    spans = [(0, mention.span) for mention in graph.mentions.values()]
    spans += [(LAYERS.index(statement.kind), statement.span) for statement in graph.statements]
    for layer, (first, last) in sorted(spans, key=lambda entry: (entry[1][0] - entry[1][1], entry[1])):
        if not tags[first : last + 1, layer].any():
            tags[first : last + 1, layer] = 2
            tags[first, layer] = 1
    stated = {mention.span[1] for mention in graph.mentions.values() if mention.entity}
    stated |= {statement.span[1] for statement in graph.statements}
    says = torch.zeros(len(passage.words))
    says[: passage.split] = 1
    for first, last in passage.sentences():
        says[first : last + 1] = float(any(first <= at <= last for at in stated))
    return Example(passage, graph, tags, says)


def loss(model: ReaderModel, batch: Sequence[Example]) -> Tensor:
    """The sum over all labels, for each word."""
    passages = [one.passage for one in batch]
    states = model.states(passages)
    logits, says = model.label_words(states)
    known = torch.zeros(says.shape, dtype=torch.bool)
    for at, one in enumerate(batch):
        known[at, : len(one.tags)] = True
    total = functional.cross_entropy(
        logits[known].view(-1, 3), torch.cat([one.tags for one in batch]).view(-1), reduction="sum"
    )
    total = total + 0.3 * functional.binary_cross_entropy_with_logits(
        says[known], torch.cat([one.says for one in batch]), reduction="sum"
    )
    mentions = [(at, mention) for at, one in enumerate(batch) for mention in one.graph.mentions.values()]
    statements = [(at, statement) for at, one in enumerate(batch) for statement in one.graph.statements]
    if mentions:
        total = total + 0.7 * _graph_loss(model, batch, states, mentions, statements)
    return total / known.sum()


def _graph_loss(
    model: ReaderModel,
    batch: Sequence[Example],
    states: Tensor,
    mentions: Sequence[tuple[int, Mention]],
    statements: Sequence[tuple[int, Statement]],
) -> Tensor:
    passages = [one.passage for one in batch]
    graphs = [one.graph for one in batch]
    targets = _spans(mentions, [0] * len(mentions))
    target = model.represent(states, targets)
    marks, naming, _ = model.properties(target)
    total = _sure(marks[:, ENTITY], [mention.entity for _, mention in mentions])
    entities = [at for at, (_, mention) in enumerate(mentions) if mention.entity]
    total = total + _sure(
        marks[entities, DENIED : OPTIONAL + 1], [_marks(mentions[at][1]) for at in entities]
    )
    names = torch.tensor([list(Naming).index(mention.naming) for _, mention in mentions])
    total = total + functional.cross_entropy(naming, names, reduction="sum")
    links = model.link(NAME, passages, targets, target, targets, target)
    for scores, graph in zip(links, graphs, strict=True):
        places = {span: at for at, span in enumerate(graph.mentions)}
        named = [places[mention.other or mention.span] for mention in graph.mentions.values()]
        if named:
            total = total + functional.cross_entropy(scores, torch.tensor(named), reduction="sum")
    if not statements:
        return total
    sources = _spans(statements, [LAYERS.index(statement.kind) for _, statement in statements])
    source = model.represent(states, sources)
    marks, _, form = model.properties(source)
    total = total + _sure(marks[:, DENIED : OPTIONAL + 1], [_marks(statement) for _, statement in statements])
    formed = [at for at, (_, one) in enumerate(statements) if one.kind in (Kind.RELATION, Kind.QUALITY)]
    forms = torch.tensor([FORMS.index(statements[at][1].form) for at in formed], dtype=torch.long)
    total = total + functional.cross_entropy(form[formed], forms, reduction="sum")
    subjects = model.link(SUBJECT, passages, sources, source, targets, target)
    for scores, graph in zip(subjects, graphs, strict=True):
        total = total + _link_loss(
            scores, [[span in s.subjects for span in graph.mentions] for s in graph.statements]
        )
    relations = [at for at, (_, statement) in enumerate(statements) if statement.kind is Kind.RELATION]
    of_relations = _spans([statements[at] for at in relations], [sources.layer[at] for at in relations])
    objects = model.link(OBJECT, passages, of_relations, source[relations], targets, target)
    for scores, graph in zip(objects, graphs, strict=True):
        related = [statement for statement in graph.statements if statement.kind is Kind.RELATION]
        total = total + _link_loss(scores, [[span in s.objects for span in graph.mentions] for s in related])
    return total


def _spans(of: Sequence[tuple[int, Mention]] | Sequence[tuple[int, Statement]], layers: list[int]) -> Spans:
    return Spans([passage for passage, _ in of], [one.span for _, one in of], layers)


def _marks(of: Mention | Statement) -> list[float]:
    return [float(of.denied), float(of.hedged), float(of.optional)]


def _sure(logits: Tensor, labels: Sequence[Any]) -> Tensor:
    wanted = torch.tensor(labels, dtype=logits.dtype).view_as(logits)
    return functional.binary_cross_entropy_with_logits(logits, wanted, reduction="sum")


def _link_loss(scores: Tensor, labels: list[list[bool]]) -> Tensor:
    """Each link for itself, and one of the right ones before all others."""
    if not labels or not labels[0]:
        return scores.sum()
    wanted = torch.tensor(labels, dtype=scores.dtype)
    some = wanted.any(1)
    best = (scores.logsumexp(1) - (scores + (wanted - 1) * 1e4).logsumexp(1))[some].sum()
    return functional.binary_cross_entropy_with_logits(scores, wanted, reduction="sum") + best


def train(
    model: ReaderModel,
    data: Sequence[Example],
    schedule: Schedule,
    checkpoint: Path,
    report: Callable[[str], None],
) -> None:
    """Trains the model in place; goes on from the checkpoint where one is there."""
    torch.manual_seed(schedule.seed)
    encoder = [p for name, p in model.named_parameters() if p.requires_grad and name.startswith("encoder.")]
    heads = [p for name, p in model.named_parameters() if p.requires_grad and not name.startswith("encoder.")]
    optimizer = torch.optim.AdamW(
        [{"params": encoder, "lr": schedule.encoder_rate}, {"params": heads, "lr": schedule.head_rate}],
        weight_decay=schedule.weight_decay,
    )
    steps = schedule.epochs * math.ceil(len(data) / schedule.batch)
    warm = schedule.warm_up * steps
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm, max(0.02, (steps - step) / (steps - warm)))
    )
    done = 0
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        done = int(state["epochs"])
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        rate.load_state_dict(state["rate"])
        torch.set_rng_state(state["random"])
    for epoch in range(done, schedule.epochs):
        start, total = time.monotonic(), 0.0
        model.train()
        for batch in batches(data, schedule.batch, random.Random(schedule.seed * 1000 + epoch)):
            step_loss = loss(model, batch)
            optimizer.zero_grad()
            step_loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            rate.step()
            total += step_loss.item() * len(batch)
            if rate.last_epoch % _REPORT == 0:
                report(f"step {rate.last_epoch} of {steps}: loss {step_loss.item():.4f}")
        state = {
            "epochs": epoch + 1,
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "rate": rate.state_dict(),
            "random": torch.get_rng_state(),
        }
        unfinished = checkpoint.with_suffix(".unfinished")
        torch.save(state, unfinished)
        unfinished.replace(checkpoint)
        report(
            f"epoch {epoch + 1} of {schedule.epochs}: loss {total / len(data):.4f},"
            f" {time.monotonic() - start:.0f} s"
        )
    model.eval()


def batches(data: Sequence[Example], size: int, draw: random.Random) -> list[list[Example]]:
    """All examples in a drawn order, those of like length together."""
    order = list(data)
    draw.shuffle(order)
    cut: list[list[Example]] = []
    for start in range(0, len(order), size * _POOL):
        pool = sorted(order[start : start + size * _POOL], key=lambda one: len(one.passage.words))
        cut += [pool[at : at + size] for at in range(0, len(pool), size)]
    draw.shuffle(cut)
    return cut
