"""Models served on this machine: which they are, a Triton for them, and settings that point to it."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import groundwatch
from groundwatch.errors import UsageError
from groundwatch.models.repository import (
    ServedModel,
    found_in,
    missing_checkpoints,
    read_manifest,
)
from groundwatch.runtime.local.triton_server import OnProgress, TritonServer
from groundwatch.runtime.services.tasks import SupervisedTask
from groundwatch.runtime.settings import Settings

MINIATURE = Path(groundwatch.__file__).with_name("miniature") / "checkpoints"


def named_models(name: str) -> dict[str, ServedModel]:
    """What a user names; nothing for an empty name. Raises `UsageError`."""
    if not name:
        return {}
    place = MINIATURE if name == "miniature" else Path(name)
    models = found_in(place) if place.is_dir() else read_manifest(place) if place.exists() else {}
    if not models:
        raise UsageError(f"no models at {place}: name a TOML file, a folder of checkpoints, or miniature")
    if absent := missing_checkpoints(models):
        raise UsageError(f"{place}: there is no checkpoint {absent[0]}")
    return models


@contextlib.asynccontextmanager
async def serving(
    models: Mapping[str, ServedModel],
    settings: Settings,
    folder: Path,
    on_progress: OnProgress | None = None,
) -> AsyncIterator[tuple[Settings, TritonServer | None]]:
    """Our own Triton while the block runs, looked after, and settings that use it; neither without models."""
    if not models:
        yield settings, None
        return
    server = TritonServer(folder / "triton", models)
    await server.start(on_progress=on_progress)
    guard = SupervisedTask("triton-guard", server.look_after)
    guard.start()
    try:
        yield with_triton(settings, server.url, models), server
    finally:
        await guard.stop()
        await server.stop()


def with_triton(settings: Settings, url: str, models: Mapping[str, ServedModel]) -> Settings:
    """Settings whose services ask the models at `url`, each stage that names no engine of its own.

    The verifier judges the protocols whose papers let a model look, unless settings name who judges them.
    """
    served: dict[str, list[str]] = {}
    for name, model in models.items():
        served.setdefault(model.kind, []).append(name)
    named = {kind: names[0] for kind, names in served.items() if getattr(settings.triton, kind) not in names}
    settings = settings.model_copy(
        update={"triton": settings.triton.model_copy(update={"url": url, **named})}
    )
    changes: dict[str, object] = {}
    captioning = settings.captioning
    if "lvlm" in served and not captioning.engine and not captioning.models:
        changes["captioning"] = captioning.model_copy(
            update={
                "engine": "triton",
                "served": captioning.served or {name: name for name in served["lvlm"]},
            }
        )
    if not settings.generation.engine and {"generator", "image_encoder"} <= served.keys():
        changes["generation"] = settings.generation.with_engine("triton")
    if not settings.verification.engine and "verifier" in served:
        changes["verification"] = settings.verification.with_served("triton")
    return settings.model_copy(update={**changes})
