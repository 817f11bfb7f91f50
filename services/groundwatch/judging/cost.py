"""What watching costs, and how well it tells: GPU-seconds, money, and the width of the interval.

Seconds are measured, in `cost.toml` with their card and date; money is by the settings' prices. What an
endpoint takes is counted in tokens, of which its server says more than we can know.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from groundwatch import toml
from groundwatch.errors import UsageError
from groundwatch.models.settings import ChatSettings
from groundwatch.runtime.settings import Settings
from groundwatch.statistics.prediction_powered import expected_reach

DAY = 86_400


class Measured(msgspec.Struct, frozen=True):
    """Seconds of one GPU: for an answer, and for each of its facts."""

    answer: float
    fact: float
    shape: str


class Tokens(msgspec.Struct, frozen=True):
    image: int
    instructions: int
    fact: int


class Figures(msgspec.Struct, frozen=True):
    answering: float
    seconds: dict[str, Measured]
    tokens: Tokens


FIGURES = msgspec.convert(toml.read(Path(__file__).with_suffix(".toml")), Figures)
ENDPOINTS = ("visual", "together", "llm")
ENGINES = (*FIGURES.seconds, *ENDPOINTS)
SHARES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


class Price(msgspec.Struct, frozen=True):
    """Of one answer by one engine: seconds of a GPU, and US dollars."""

    seconds: float
    dollars: float


class Watching(msgspec.Struct, frozen=True, kw_only=True):
    """What it costs when a share of the answers gets a second opinion.

    `seconds` are those of a GPU an answer, `gpus` how many that keeps busy, `of_answering` the share of what
    answering takes, `dollars` a day's. `points`: the rate of a day is known within so many percentage points,
    by 95 %; None without a second opinion, since nothing then tells how far the first judge is wrong.
    """

    share: float
    seconds: float
    gpus: float
    of_answering: float
    dollars: float
    opinions: float
    points: float | None


def price(engine: str, facts: float, settings: Settings, chat: ChatSettings | None) -> Price:
    """Raises `UsageError` for an engine that nobody measured."""
    if engine in FIGURES.seconds:
        measured = FIGURES.seconds[engine]
        seconds = measured.answer + measured.fact * facts
        return Price(seconds, seconds / 3600 * settings.triton.gpu_price)
    if engine not in ENDPOINTS:
        raise UsageError(f"no cost of '{engine}' is known; there are {', '.join(ENGINES)}")
    tokens, requests = FIGURES.tokens, facts if engine == "visual" else 1
    asked = requests * (tokens.image + tokens.instructions) + facts * tokens.fact
    answered = facts * (1 if engine == "visual" else 9)
    dollars = (asked * chat.input_price + answered * chat.output_price) / 1e6 if chat else 0.0
    return Price(0.0, dollars)


def watching(
    first: Price,
    second: Price,
    shares: Sequence[float],
    *,
    rate: float,
    facts: float,
    wrong: float,
    right: float,
    alike: float,
) -> list[Watching]:
    """For each share; `rate` answers a second with so many facts.

    A share `wrong` of the facts does not hold, and the first judge is right about a share `right` of them;
    `alike` is how far facts of one answer resemble each other (0: not at all; 1: all alike).
    """
    answers = rate * DAY
    found = []
    for share in shares:
        seconds = first.seconds + share * second.seconds
        opinions = share * answers
        reach = None
        if opinions:
            reach = expected_reach(answers, opinions, facts=facts, wrong=wrong, right=right, alike=alike)
        found.append(
            Watching(
                share=share,
                seconds=seconds,
                gpus=seconds * rate,
                of_answering=seconds / FIGURES.answering,
                dollars=answers * (first.dollars + share * second.dollars),
                opinions=opinions,
                points=None if reach is None else 100 * reach,
            )
        )
    return found


def engine_in_use(settings: Settings, name: str) -> str:
    """Which cost that of a verification engine is; a verifier on Triton is taken for the papers' of 7B."""
    known = {"triton": "verifier-7b", "detector": "detector", "llm": "llm"}
    if name == "visual":
        return "together" if settings.visual.together else "visual"
    return known.get(name, "none")
