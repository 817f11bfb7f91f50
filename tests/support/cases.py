"""Literal cases of tests: each a line of a data file, all asked by one test that tells every miss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


def cases(test: str) -> Any:
    """What `data/NAME.yaml` beside `test_NAME.py` holds; `test` is that file's `__file__`."""
    path = Path(test)
    name = path.stem.removeprefix("test_")
    return yaml.safe_load(path.with_name("data").joinpath(f"{name}.yaml").read_text("utf-8"))
