"""`groundwatch admin models`: a repository of models for a Triton elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from groundwatch.cli.options import ModelsOption
from groundwatch.cli.output import say
from groundwatch.models.repository import write_repository
from groundwatch.system.models import named_models


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
