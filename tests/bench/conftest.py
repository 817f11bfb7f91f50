"""The benchmarks are scripts of the checkout, not of the package: found as `groundwatch bench` finds them."""

from __future__ import annotations

import sys

from groundwatch.cli.bench import FOLDER

sys.path.insert(0, str(FOLDER))
