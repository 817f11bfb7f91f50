"""A process that publishes one small message after the other into a stream and notes how long each took.

It is a process of its own, so that no other work of a benchmark's is taken for a server that lets wait.
"""

from __future__ import annotations

import multiprocessing
import secrets
import time
from multiprocessing.connection import Connection
from typing import Self

from wire.client import PlainClient

PAUSE = 0.001
"""Seconds between two messages."""


class Probe:
    """Runs while it is entered. `longest` tells what publishing took since it was asked last."""

    def __init__(self, url: str, subjects: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_publish, args=(url, subjects, theirs), daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        self.longest()
        return self

    def __exit__(self, *raised: object) -> None:
        self._ours.send(False)
        self._process.join()

    def longest(self) -> tuple[float, float]:
        """Seconds of the slowest message since the last call, and of the median one.

        The one that is on its way is waited for.
        """
        self._ours.send(True)
        slowest, median = self._ours.recv()
        return float(slowest), float(median)


def _publish(url: str, subjects: str, asked: Connection) -> None:
    taken: list[float] = []
    with PlainClient(url) as client:
        while True:
            began = time.perf_counter()
            client.create(f"{subjects}.{secrets.token_hex(16)}", b"probe")
            taken.append(time.perf_counter() - began)
            if asked.poll():
                if not asked.recv():
                    return
                taken.sort()
                asked.send((taken[-1], taken[len(taken) // 2]))
                taken.clear()
            time.sleep(PAUSE)
