"""One training loop for the language models: a minute budget, a cosine, losses by role."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from tools.miniature.packing import ANSWER, CAPTION, PREDICATE, Batch, Packer, forward
from torch.nn import functional

Report = Callable[[str], None]


def clock() -> float:
    """Seconds of processor time for each thread: a budget in it means the same on a busy machine."""
    return time.process_time() / torch.get_num_threads()


def optimizer(model: torch.nn.Module, rate: float, decay: float) -> torch.optim.AdamW:
    """AdamW; biases and norms do not decay."""
    matrices = [weight for weight in model.parameters() if weight.ndim > 1]
    rest = [weight for weight in model.parameters() if weight.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": decay}, {"params": rest, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.98))


def train(
    model: Any,
    packer: Packer,
    batches: Iterable[Batch],
    *,
    minutes: float,
    rate: float,
    decay: float = 0.02,
    warm_up: int = 100,
    weights: tuple[float, float, float] = (1.0, 0.5, 1.0),
    groups: int = 1,
    on_accuracy: Callable[[list[float]], None] = lambda _: None,
    on_interval: Callable[[float, int], None] = lambda _minutes, _step: None,
    interval: float = 2.0,
    report: Report = print,
) -> int:
    """Train for `minutes` of `clock`; returns the number of steps.

    `weights` are those of the losses on answers, predicates and captions. `on_accuracy` is told the running
    accuracy of each group of answers; `on_interval` is called every `interval` minutes, outside the budget.
    """
    update = optimizer(model, rate, decay)
    running = [0.5] * groups
    started, spent, step, due = clock(), 0.0, 0, interval
    model.train()
    for batch in batches:
        elapsed = (clock() - started - spent) / 60
        if elapsed >= minutes:
            break
        scale = min(1.0, (step + 1) / warm_up) * (0.49 * (1 + math.cos(math.pi * elapsed / minutes)) + 0.02)
        for group in update.param_groups:
            group["lr"] = rate * scale
        trained = forward(model, batch)
        losses = functional.cross_entropy(trained.logits, trained.labels, reduction="none")
        total = torch.zeros(())
        parts = {}
        for role, weight in zip((ANSWER, PREDICATE, CAPTION), weights, strict=True):
            chosen = losses[trained.roles == role]
            if weight > 0 and len(chosen):
                mean = chosen.mean()
                total = total + weight * mean
                parts[role] = float(mean.detach())
        answers = trained.roles == ANSWER
        if answers.any():
            logits = trained.logits[answers].detach()
            right = (logits[:, packer.yes] > logits[:, packer.no]) == (trained.labels[answers] == packer.yes)
            found = trained.groups[answers]
            for group_number in found.unique().tolist():
                share = float(right[found == group_number].float().mean())
                running[group_number] += 0.02 * (share - running[group_number])
            on_accuracy(running)
        update.zero_grad(set_to_none=True)
        total.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        update.step()
        step += 1
        if elapsed >= due or step in (10, 50):
            due += interval if elapsed >= due else 0
            shown = " ".join(f"{loss:.3f}" for loss in parts.values())
            report(
                f"{elapsed:6.1f} min, step {step}, losses {shown}, answers "
                + " ".join(f"{accuracy:.3f}" for accuracy in running)
            )
            if step > 50:
                paused = clock()
                model.eval()
                on_interval(elapsed, step)
                model.train()
                spent += clock() - paused
    model.eval()
    return step


def save(model: Any, processor: Any, folder: Path) -> None:
    """Write a checkpoint in Hugging Face format, weights in half precision; training goes on in full."""
    halved = {name: value.detach().half() for name, value in model.state_dict().items()}
    kept = model.dtype
    model.config.dtype = torch.float16
    model.save_pretrained(folder, state_dict=halved)
    model.config.dtype = kept
    processor.save_pretrained(folder)
