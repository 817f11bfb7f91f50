"""Whether the engines that settings name can be made here, as their services would make them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from groundwatch.captioning import engines as captioning
from groundwatch.cli.config_reading import Problems
from groundwatch.errors import MissingExtraError, SettingsError, UsageError
from groundwatch.extraction import engines as extraction
from groundwatch.generation import engines as generation
from groundwatch.matching import engines as matching
from groundwatch.runtime.settings.tree import Settings
from groundwatch.verification import engines as verification

Make = Callable[[Settings], Any]

ENGINES: dict[str, tuple[str, Make]] = {
    "extraction": (extraction.DEFAULT, lambda all_: extraction.build(all_.extraction)),
    "captioning": (
        captioning.DEFAULT,
        lambda all_: captioning.build(all_.captioning, triton=all_.triton),
    ),
    "generation": (
        generation.DEFAULT,
        lambda all_: generation.build(all_.generation, images=all_.images, triton=all_.triton),
    ),
    "matching": (matching.DEFAULT, lambda all_: matching.build(all_.matching)),
    "verification": (
        verification.DEFAULT,
        lambda all_: verification.build(
            all_.verification, load_image=_no_image, visual=all_.visual, triton=all_.triton
        ),
    ),
}
"""Each stage with engines: which one settings mean when they name none, and how it is made."""


async def _no_image(sha256: str) -> tuple[bytes, str]:
    raise LookupError(sha256)


def named_engine(settings: Settings, stage: str) -> str:
    """The engine that a stage would use."""
    return getattr(settings, stage).engine or ENGINES[stage][0]


async def engine_problems(settings: Settings, stages: tuple[str, ...], problems: Problems) -> None:
    """Make each stage's engine and let go of it; no model is loaded and no server is asked."""
    if settings.scoring.engine:
        problems.add("scoring.engine", "scoring has no engines: leave it out")
    for stage in stages:
        name = named_engine(settings, stage)
        key = f"{stage}.engine"
        try:
            engine = ENGINES[stage][1](settings)
        except MissingExtraError as error:
            problems.add(key, f"{name} does not run here: {error}, or choose another engine")
            continue
        except SettingsError as error:
            problems.add_error(error)
            continue
        except UsageError as error:
            problems.add(key, str(error))
            continue
        await engine.close()
