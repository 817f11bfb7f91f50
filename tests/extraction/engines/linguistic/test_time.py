"""Texts that were made to take long: each protocol reads an answer in time that grows as its length."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from groundwatch.errors import Unscorable
from groundwatch.events import ResponseRecorded
from groundwatch.extraction.engines.linguistic import engine as linguistic
from groundwatch.language.nouns import compare_attribute
from groundwatch.protocols import registry
from groundwatch.protocols.base import EvaluationProtocol

np = pytest.importorskip("numpy")

SHORT, TIMES = 2_000, 6
SLOWER = 15.0
"""What grows as the square takes 36 times as long for a text of six times the length."""

NOTICED = 0.2
"""Seconds: what is read sooner is quick enough, whatever a busy machine adds to it."""

TEXTS: dict[str, Callable[[int], str]] = {
    "dollars": lambda size: "$" * size,
    "marks": lambda size: ".,;:!?" * (size // 6),
    "stars and lines": lambda size: "*_- \n" * (size // 5),
    "and": lambda size: "and " * (size // 4),
    "a dog and": lambda size: "a dog and " * (size // 10),
    "which": lambda size: "which " * (size // 6),
    "commas": lambda size: "dog, " * (size // 5),
    "a number of commas": lambda size: "1," * (size // 2) + "1-a",
    "dots": lambda size: "1." * (size // 2),
    "hyphens": lambda size: "a-" * (size // 2),
    "apostrophes": lambda size: "a'" * (size // 2),
    "quotes": lambda size: '"(' * (size // 4) + ')"' * (size // 4),
    "brackets": lambda size: "(" * (size // 2) + ")" * (size // 2),
    "nested list": lambda size: "".join(" " * (at % 40) + "- a dog\n" for at in range(size // 28)),
    "table": lambda size: "| dog | red |\n" * (size // 14),
    "spaces": lambda size: "There is" + " " * size + "x",
    "a word": lambda size: "There is a " + "a" * size + " on the mat.",
    "places": lambda size: "on the left of the dog " * (size // 23),
    "comparisons": lambda size: "a dog is larger than a cat. " * (size // 28),
    "yes or": lambda size: "yes or " * (size // 7),
    "triplets": lambda size: "(a, b, c) " * (size // 10),
}

PROTOCOLS = [one for one in map(registry.get, registry.names()) if one.rules is not None]


class NoVectors:
    """Embeds nothing: that takes a time that is linear already."""

    def encode(self, texts):
        return np.zeros((len(texts), 384), dtype=np.float32)


@pytest.fixture(scope="module")
def engine() -> linguistic.LinguisticEngine:
    return linguistic.LinguisticEngine(NoVectors())


def response(answer: str, prompt: str = "Is there a dog in the image?") -> ResponseRecorded:
    return ResponseRecorded(id="r", model="m", answer=answer, prompt=prompt)


async def seconds(engine, protocol: EvaluationProtocol, *answered: str) -> float:
    start = time.process_time()
    await engine.extract([response(*answered)], protocol)
    return time.process_time() - start


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=[one.name for one in PROTOCOLS])
async def test_time_grows_as_the_length(engine, protocol):
    await seconds(engine, protocol, "A dog sits on a red mat, and a cat that is larger lies near it.")
    for name, text in TEXTS.items():
        taken = await seconds(engine, protocol, text(SHORT * TIMES))
        if taken > NOTICED:
            # What is loaded at its first use is loaded now.
            taken = await seconds(engine, protocol, text(SHORT * TIMES))
        if taken > NOTICED:
            short = await seconds(engine, protocol, text(SHORT))
            assert taken < SLOWER * short, (
                f"{name}: {short:.3f} s, and {taken:.3f} s of {TIMES} times as much"
            )


async def test_a_prompt_takes_no_longer(engine):
    for protocol in PROTOCOLS:
        for prompt in ("is there " + " " * 20_000 + "x", "is there a" + " in" * 7_000 + "\n\nyes"):
            assert await seconds(engine, protocol, "It is there.", prompt) < 1.0, protocol.name


def test_an_attribute_takes_no_longer():
    start = time.process_time()
    compare_attribute("a" + " " * 30_000 + "b", "red and green")
    assert time.process_time() - start < 1.0


async def test_an_answer_that_takes_too_long_is_not_scored(engine, monkeypatch):
    monkeypatch.setattr(linguistic, "SECONDS", 0.0)
    (found,) = await engine.extract([response("A dog sits on a mat.")], registry.get("faithscore"))
    assert isinstance(found, Unscorable) and found.reason == "took_too_long"
