#!/usr/bin/env python3
"""Writes groundwatch.rules.yaml changed: times compressed, or runbooks at another address. Needs no library.

python rules.py --scale 120 > fast.rules.yaml                 # an hour becomes half a minute
python rules.py --machines 120 > fast.rules.yaml              # the same for alerts about the pipeline
python rules.py --runbooks https://wiki.example/runbooks/ > groundwatch.rules.yaml
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

SOURCE = Path(__file__).with_name("groundwatch.rules.yaml")
RUNBOOKS = "docs/runbooks/"
OWN_SPEED = "groundwatch-pipeline-alerts"
"""The last group, about what machines do at a speed of their own: `--machines` is its scale."""

MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}

_DURATION = r"\d+(?:ms|[smhdw])"
_WINDOW = re.compile(rf"\[({_DURATION})(?::({_DURATION}))?\]")
_OFFSET = re.compile(rf"(\boffset )({_DURATION})")
_FIELD = re.compile(rf"^(\s+(?:- )?(?:for|interval): )({_DURATION})$", re.MULTILINE)


def scaled(text: str, factor: float, machines: float = 1) -> str:
    """The rules with every window, offset, `for` and `interval` divided by `factor`.

    Labels keep their names, and numbers in expressions their values: 50 answers stay 50 answers. The alerts
    about the pipeline have their times divided by `machines`, and their interval by whichever is more: a
    process works no faster because traffic does.
    """
    traffic, mark, machine = text.partition(f"  - name: {OWN_SPEED}\n")
    interval, rest, alerts = machine.partition("    rules:\n")
    return (
        _divided(traffic, factor)
        + mark
        + _divided(interval, max(factor, machines))
        + rest
        + _divided(alerts, machines)
    )


def _divided(text: str, factor: float) -> str:
    if factor == 1:
        return text

    def shorter(duration: str) -> str:
        found = re.fullmatch(r"(\d+)(\D+)", duration)
        assert found is not None
        return f"{max(1, round(int(found[1]) * MILLISECONDS[found[2]] / factor))}ms"

    def window(found: re.Match[str]) -> str:
        return f"[{shorter(found[1])}{':' + shorter(found[2]) if found[2] else ''}]"

    after: Callable[[re.Match[str]], str] = lambda found: found[1] + shorter(found[2])  # noqa: E731
    return _FIELD.sub(after, _OFFSET.sub(after, _WINDOW.sub(window, text)))


def main() -> None:
    """The changed rules on standard output."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(".", 1)[0])
    parser.add_argument(
        "--scale", type=float, default=1.0, help="divide the times of rules about traffic by this"
    )
    parser.add_argument(
        "--machines", type=float, default=1.0, help="divide the times of alerts about the pipeline by this"
    )
    parser.add_argument("--runbooks", default=RUNBOOKS, help="address in front of the pages' names")
    options = parser.parse_args()
    for name in ("scale", "machines"):
        if not 0 < getattr(options, name) < 10_000:
            parser.error(f"--{name}: must be above 0 and below 10,000")
    text = SOURCE.read_text(encoding="utf-8").replace(RUNBOOKS, options.runbooks)
    sys.stdout.write(scaled(text, options.scale, options.machines))


if __name__ == "__main__":
    main()
