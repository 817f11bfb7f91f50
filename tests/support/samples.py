"""The answers that README and the first page show to be sent, as they stand there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from groundwatch.gateway.pages.first_steps import SAMPLE

_ROOT = Path(__file__).parents[2]


def _only(pattern: str, path: Path) -> dict[str, Any]:
    (text,) = re.findall(pattern, path.read_text(), re.MULTILINE)
    found = json.loads(text)
    assert isinstance(found, dict)
    return found


SAMPLES = {
    "readme": _only(r"^```json\n(.*)\n```$", _ROOT / "README.md"),
    "page": SAMPLE,
}
