"""Two versions side by side, as people read them."""

from __future__ import annotations

import io

import msgspec

from groundwatch.reporting.compare.render import VersionComparison, notes, render_versions
from groundwatch.reporting.corrected import VersionDifference
from groundwatch.reporting.trends import Trend, VersionReport
from groundwatch.statistics.intervals import Interval
from groundwatch.terminal import Console


def version(name: str, rate: float) -> VersionReport:
    return VersionReport(
        model="heron-7b",
        protocol="faithscore",
        fingerprint="abc",
        version=name,
        scored=1_200,
        coverage=0.9,
        cost=0.0,
        first=1.0,
        last=2.0,
        hallucination_rate=Interval(rate, rate - 0.01, rate + 0.01, 4_000),
        trend=Trend(),
    )


def corrected(category: str) -> VersionDifference:
    return VersionDifference(
        category=category,
        by="people",
        queues=("first-look", "only-b"),
        opinions=(1_100, 90),
        judged=(Interval(0.2, 0.19, 0.21, 100), Interval(0.3, 0.29, 0.31, 100)),
        judged_difference=Interval(0.1, 0.08, 0.12, 100),
        corrected=(Interval(0.12, 0.1, 0.14, 100), Interval(0.15, 0.12, 0.18, 90)),
        difference=Interval(0.03, -0.007, 0.067, 90),
        labels_alone=Interval(0.03, -0.02, 0.08, 90),
    )


FOUND = VersionComparison(
    model="heron-7b",
    protocol="faithscore",
    fingerprint="abc",
    first=version("1.0", 0.25),
    second=version("1.1", 0.375),
    difference=Interval(0.125, 0.1, 0.15, 4_000),
    corrected=(corrected("all"), corrected("color")),
)


def test_each_difference_stands_beside_the_corrected_one() -> None:
    out = io.StringIO()
    render_versions([FOUND], Console(file=out, width=80))
    shown = [line.rstrip() for line in out.getvalue().splitlines()]
    (whole,) = [number for number, line in enumerate(shown) if line.startswith(" all ")]
    assert shown[whole].split() == ["all", "1,100", "25.0%", "+12.5", "12.0%", "+3.0"]
    assert shown[whole + 1].split("  ")[-1].strip() == "-0.7 to +6.7"
    assert any(line.split()[:3] == ["color", "1,100", "20.0%"] for line in shown)
    assert "Corrected by people: queue first-look and only-b." in out.getvalue()
    assert max(map(len, shown)) <= 80


def test_the_reason_for_no_number_is_told() -> None:
    reason = "no second opinion about 1.1: make a queue of its answers and review it"
    none = msgspec.structs.replace(corrected("all"), difference=None, reason=reason)
    assert list(notes(msgspec.structs.replace(FOUND, corrected=(none,)))) == [
        "No second opinion about 1.1: make a queue of its answers and review it."
    ]


def test_json_has_no_rates_over_time() -> None:
    told = FOUND.to_dict()
    assert "trend" not in told["first"] and told["second"]["version"] == "1.1"
    assert told["corrected"][1]["difference"]["value"] == 0.03
