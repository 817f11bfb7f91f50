"""Environments of their own, one for each emitter or a few of them, made by uv or pip, or by npm.

`GROUNDWATCH_EMITTERS` names a folder in which they are kept and found again; without it they are made anew
and thrown away. Where nothing can be installed, the test is skipped and says why.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

INSTALL_SECONDS = 280


class Environments:
    """Makes each environment once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def make(self, name: str, packages: tuple[str, ...], npm: bool = False) -> Path:
        """The folder of the environment with these packages, at their newest releases."""
        place = self._folder / name
        made = place / "packages"
        if made.exists() and made.read_text().split("\n") == list(packages):
            return place
        shutil.rmtree(place, ignore_errors=True)
        if npm:
            worse = _with_npm(place, packages)
        else:
            worse = _with_uv(place, packages) and _with_pip(place, packages)
        if worse:
            pytest.skip(f"cannot install {', '.join(packages)}: {worse}")
        made.write_text("\n".join(packages))
        return place


def _with_uv(place: Path, packages: tuple[str, ...]) -> str:
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if uv is None:
        return "no uv"
    return _run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(place)]) or _run(
        [uv, "pip", "install", "--quiet", "--python", str(place / "bin" / "python"), *packages]
    )


def _with_pip(place: Path, packages: tuple[str, ...]) -> str:
    python = str(place / "bin" / "python")
    return _run([sys.executable, "-m", "venv", "--clear", str(place)]) or _run(
        [python, "-m", "pip", "install", "--quiet", "--no-compile", *packages]
    )


def _with_npm(place: Path, packages: tuple[str, ...]) -> str:
    if (npm := shutil.which("npm")) is None:
        return "no npm"
    place.mkdir(parents=True)
    (place / "package.json").write_text("{}")
    return _run([npm, "install", "--prefix", str(place), "--no-audit", "--no-fund", "--silent", *packages])


def _run(command: list[str]) -> str:
    """What went wrong."""
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"nothing was installed within {INSTALL_SECONDS} s"
    return ended.stderr.strip()[-1000:] or "no reason given" if ended.returncode else ""


@contextlib.contextmanager
def kept() -> Iterator[Environments]:
    """Those of the named folder, or of one that is gone afterwards."""
    if folder := os.environ.get("GROUNDWATCH_EMITTERS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        yield Environments(Path(folder))
        return
    with tempfile.TemporaryDirectory(prefix="groundwatch-emitters-", ignore_cleanup_errors=True) as made:
        yield Environments(Path(made))
