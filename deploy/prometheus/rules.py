#!/usr/bin/env python3
"""Writes groundwatch.rules.yaml changed: thresholds, alerts left out, runbooks elsewhere, other times.

python rules.py --set NatsStorageFull.warning=0.7 --without AuditOverdue > groundwatch.rules.yaml

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

THRESHOLD = re.compile(r"\b([0-9.]+) # ([A-Z][A-Za-z]+\.[A-Za-z0-9]+)$", re.MULTILINE)
_ALERT = re.compile(r"^      - alert: Groundwatch(\w+)\n(?:^(?!      - |  - )(?! *#).*\n?)*", re.MULTILINE)

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


def thresholds(text: str) -> dict[str, float]:
    """Every threshold that can be set, with its value."""
    return {name: float(value) for value, name in THRESHOLD.findall(text)}


def alerts(text: str) -> list[str]:
    """Every alert that can be left out, without the prefix that all have."""
    return sorted({found[1] for found in _ALERT.finditer(text)})


def set_thresholds(text: str, values: dict[str, float]) -> str:
    """The rules with other thresholds."""

    def changed(found: re.Match[str]) -> str:
        return f"{values[found[2]]:g} # {found[2]}" if found[2] in values else found[0]

    return THRESHOLD.sub(changed, text)


def left_out(text: str, names: list[str]) -> str:
    """The rules without alerts of these names."""
    return _ALERT.sub(lambda found: "" if found[1] in names else found[0], text)


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
    parser.add_argument(
        "--set", action="append", default=[], metavar="ALERT.NAME=NUMBER", help="change a threshold"
    )
    parser.add_argument("--without", action="append", default=[], metavar="ALERT", help="leave an alert out")
    options = parser.parse_args()
    text = SOURCE.read_text(encoding="utf-8")
    for name in ("scale", "machines"):
        if not 0 < getattr(options, name) < 10_000:
            parser.error(f"--{name}: must be above 0 and below 10,000")
    known, values = thresholds(text), {}
    for one in options.set:
        name, _, value = one.partition("=")
        if name not in known:
            parser.error(f"--set: there is no threshold {name!r}; there are {', '.join(sorted(known))}")
        try:
            values[name] = float(value)
        except ValueError:
            parser.error(f"--set: {value!r} is no number, such as {name}={known[name]:g}")
    without = [name.removeprefix("Groundwatch") for name in options.without]
    for name in without:
        if name not in alerts(text):
            parser.error(f"--without: there is no alert {name!r}; there are {', '.join(alerts(text))}")
    text = left_out(set_thresholds(text, values), without).replace(RUNBOOKS, options.runbooks)
    sys.stdout.write(scaled(text, options.scale, options.machines))


if __name__ == "__main__":
    main()
