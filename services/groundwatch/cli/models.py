"""Models served on this machine: which they are, a Triton for them, and settings that point to it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

import groundwatch
from groundwatch.cli.output import say
from groundwatch.errors import UsageError
from groundwatch.models.repository import (
    ServedModel,
    found_in,
    missing_checkpoints,
    read_manifest,
    write_repository,
)
from groundwatch.runtime.local.triton_server import LoadProgress, OnProgress, TritonServer
from groundwatch.runtime.services.tasks import SupervisedTask
from groundwatch.runtime.settings import Settings
from groundwatch.terminal import Console, styled

MINIATURE = Path(groundwatch.__file__).with_name("miniature") / "checkpoints"

ModelsOption = Annotated[
    str,
    typer.Option(
        "--models",
        metavar="miniature|FILE|FOLDER",
        help="Serve these models with a Triton of our own: those of the miniature world, those that a TOML "
        "file names, or the checkpoints in a folder.",
        show_default=False,
    ),
]


def named_models(name: str) -> dict[str, ServedModel]:
    """What `--models` names; nothing for an empty name. Raises `UsageError`."""
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


@contextlib.contextmanager
def loading_shown(console: Console, words: str) -> Iterator[OnProgress]:
    """`words` while the block runs, and which models load: a line each, or one that changes at a terminal."""
    loading: set[str] = set()

    def tell(progress: LoadProgress) -> None:
        (loading.discard if progress.loaded else loading.add)(progress.model)
        count = f"{progress.done} of {progress.total} models loaded after {progress.seconds:.0f} s"
        if status is not None:
            status.update(styled(f"{words} {count}; loading {', '.join(sorted(loading)) or 'none'}"))
        elif progress.loaded:
            console.print(f"loaded {progress.model} ({count})", soft_wrap=True)
        else:
            console.print(f"loading {progress.model}…", soft_wrap=True)

    if console.is_terminal:
        with console.status(styled(words)) as status:
            yield tell
    else:
        status = None
        console.print(words, soft_wrap=True)
        yield tell


def with_triton(settings: Settings, url: str, models: Mapping[str, ServedModel]) -> Settings:
    """Settings whose services ask the models at `url`, each stage that names no engine of its own."""
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
    needed = {"verification": ("verifier",), "generation": ("generator", "image_encoder")}
    for stage, kinds in needed.items():
        section = getattr(settings, stage)
        if not section.engine and all(kind in served for kind in kinds):
            changes[stage] = section.model_copy(update={"engine": "triton"})
    return settings.model_copy(update=changes)


def repository(
    folder: Annotated[Path, typer.Argument(help="Where the model repository is written.")],
    models: ModelsOption,
) -> None:
    """Write a Triton model repository for a Triton that runs elsewhere."""
    found = named_models(models)
    write_repository(folder, found)
    for name, model in found.items():
        say(f"{name:<16} {model.kind:<14} {model.checkpoint}")


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("repository")(repository)
