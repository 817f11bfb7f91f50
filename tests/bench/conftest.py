"""The benchmarks are scripts of the checkout, not of the package: found as `python -m bench` finds them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
