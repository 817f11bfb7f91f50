"""Models of our own Triton: what is told while they load."""

from __future__ import annotations

import io

import pytest

from groundwatch.cli.output import loading_shown
from groundwatch.runtime.local.triton_server import LoadProgress
from groundwatch.terminal import Console


def progress(model: str, loaded: bool, done: int) -> LoadProgress:
    return LoadProgress(model=model, loaded=loaded, done=done, total=2, seconds=3.2)


@pytest.mark.parametrize("terminal", (False, True))
def test_loading_is_told_model_by_model(terminal: bool) -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=terminal, width=120)
    with loading_shown(console, "starting Triton with a, b;") as tell:
        tell(progress("a", False, 0))
        tell(progress("b[/x]", False, 0))
        if terminal:
            console.print("")  # Draws the line anew.
        tell(progress("a", True, 1))
        tell(progress("b[/x]", True, 2))
    said = shown.getvalue()
    if terminal:
        assert "starting Triton with a, b;" in said
        return
    assert said.splitlines() == [
        "starting Triton with a, b;",
        "loading a…",
        "loading b[/x]…",
        "loaded a (1 of 2 models loaded after 3 s)",
        "loaded b[/x] (2 of 2 models loaded after 3 s)",
    ]
