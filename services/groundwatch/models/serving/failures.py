"""How serving fails: by the input, for want of memory, or by the checkpoint; and how a batch survives it."""

import os
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

T = TypeVar("T")
Q = TypeVar("Q")
R = TypeVar("R")

THREADS = 8


class Refused(ValueError):
    """This input can never be answered. `reason` is a slug that the client knows."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"[{reason}] {detail}")
        self.reason = reason


class Exhausted(RuntimeError):
    """There was not enough memory, even for this input alone."""


class CheckpointError(RuntimeError):
    """The checkpoint or the parameters of a served model are wrong: it is not loaded."""


def in_batches(
    items: Sequence[T], run: Callable[[Sequence[T]], Sequence[R]], *, size: int
) -> list[R | Exception]:
    """`run` over `items`, at most `size` at once; an error stands in the place of its item's result.

    A batch that fails is halved until the item at fault is alone, so that nobody pays for another's input
    and a batch that does not fit into memory is answered in parts.
    """
    results: list[R | Exception] = []
    for start in range(0, len(items), size):
        results += _halving(items[start : start + size], run)
    return results


def in_groups(
    items: Sequence[T],
    prepare: Callable[[T], tuple[Hashable, Q]],
    run: Callable[[Sequence[Q]], Sequence[R]],
    *,
    size: int,
    threads: int = 0,
) -> list[R | Exception]:
    """`in_batches` of what may share a batch, in the order of `items`.

    `prepare` gives an item's group, and what `run` takes; what it raises stands in the place of its result.
    It is called in `threads` threads, 0 is as many as there are processors and `THREADS` at most, while what
    fills a batch already runs.
    """
    results: dict[int, R | Exception] = {}
    groups: dict[Hashable, list[tuple[int, Q]]] = defaultdict(list)

    def attempt(item: T) -> tuple[Hashable, Q] | Exception:
        try:
            return prepare(item)
        except Exception as error:
            return error

    def finish(group: list[tuple[int, Q]]) -> None:
        found = _halving([ready for _, ready in group], run)
        results.update(zip((number for number, _ in group), found, strict=True))

    several = _pool(threads).map if len(items) > 1 else map
    for number, one in enumerate(several(attempt, items)):
        if isinstance(one, Exception):
            results[number] = one
            continue
        groups[one[0]].append((number, one[1]))
        if len(groups[one[0]]) == size:
            finish(groups.pop(one[0]))
    for group in groups.values():
        finish(group)
    return [results[number] for number in range(len(items))]


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads or min(THREADS, os.cpu_count() or 1), "prepare")


def _halving(items: Sequence[T], run: Callable[[Sequence[T]], Sequence[R]]) -> list[R | Exception]:
    try:
        return list(run(items))
    except Exception as error:
        failure = _told(error) if len(items) == 1 else None
    import torch

    # Out of the handler, so that the traceback no longer holds the failed batch's tensors.
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if failure is not None:
        return [failure]
    middle = len(items) // 2
    return _halving(items[:middle], run) + _halving(items[middle:], run)


def _told(error: Exception) -> Exception:
    import torch

    text = str(error)
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in text:
        return Exhausted(f"[out_of_memory] {(text or 'no memory left').splitlines()[0][:200]}")
    return error.with_traceback(None)
