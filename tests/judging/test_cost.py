"""What watching costs, by the settings' prices and the table of what was measured."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from groundwatch.cli import app
from groundwatch.errors import UsageError
from groundwatch.judging.cost import FIGURES, SHARES, price, watching
from groundwatch.models.settings import ChatSettings, TritonSettings
from groundwatch.runtime.settings import Settings

CHAT = ChatSettings(base_url="http://localhost/v1", model="m", input_price=2.0, output_price=8.0)


def told(*options: object, **variables: str) -> Any:
    done = CliRunner().invoke(app, ["admin", "cost", *map(str, options), "--json"], env=variables)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_gpus_cost_by_the_hour_and_endpoints_by_tokens() -> None:
    settings = Settings(triton=TritonSettings(gpu_price=3.6))
    seven = price("verifier-7b", 10, settings, None)
    assert seven.seconds == pytest.approx(0.0377 + 0.023)
    assert seven.dollars == pytest.approx(seven.seconds / 1000)
    each, together = (price(name, 10, settings, CHAT) for name in ("visual", "together"))
    assert each.seconds == together.seconds == 0
    assert each.dollars == pytest.approx((2 * (10 * 860 + 270) + 8 * 10) / 1e6)
    assert together.dollars == pytest.approx((2 * (860 + 270) + 8 * 90) / 1e6)
    with pytest.raises(UsageError, match="there are detector, verifier-2b"):
        price("eyes", 10, settings, None)


def test_a_share_costs_more_and_tells_more() -> None:
    first, second = (price(one, 12, Settings(), None) for one in ("detector", "verifier-7b"))
    rows = watching(first, second, SHARES, rate=2, facts=12, wrong=0.12, right=0.95, alike=0.1)
    assert rows[0].points is None and rows[0].seconds == FIGURES.seconds["detector"].answer
    reach = [row.points for row in rows[1:]]
    assert reach == sorted(reach, reverse=True)
    assert [row.seconds for row in rows] == sorted(row.seconds for row in rows)
    assert rows[-1].gpus == pytest.approx(2 * (first.seconds + second.seconds))
    assert rows[4].of_answering == pytest.approx(0.32, abs=0.01)


def test_engines_are_those_of_the_settings() -> None:
    assert [told()[key] for key in ("first", "second")] == ["none", "verifier-7b"]
    found = told(GROUNDWATCH_VERIFICATION__ENGINE="detector", GROUNDWATCH_SECOND_OPINION__JUDGE="triton")
    assert (found["first"], found["second"]) == ("detector", "verifier-7b")
    found = told("--first", "together", "--share", 0.5, "--facts", 6, "--rate", 3)
    (row,) = found["rows"]
    assert (found["first"], row["share"], row["opinions"]) == ("together", 0.5, 3 * 86400 / 2)


@pytest.mark.parametrize(
    ("options", "wrong"),
    [(("--share", "1.5"), "must be from 0 to 1"), (("--first", "eyes"), "no cost of 'eyes' is known")],
)
def test_what_cannot_be_told_is_one_line(options: tuple[str, ...], wrong: str) -> None:
    done = CliRunner().invoke(app, ["admin", "cost", *options])
    assert isinstance(done.exception, UsageError) and wrong in str(done.exception)


def test_the_table_is_told_with_its_shares() -> None:
    done = CliRunner().invoke(app, ["admin", "cost", "--first", "detector"], env={"COLUMNS": "120"})
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert "detector judges all, verifier-7b the share" in lines[0]
    assert len(lines) == 2 + len(SHARES) and "unknown" in lines[2] and "points" in lines[-1]


def test_it_is_told_where_the_gateway_judges_nothing() -> None:
    assert told(GROUNDWATCH_GATEWAY__PROTOCOLS="[]")["first"] == "none"


def test_a_second_judge_without_an_endpoint_has_no_price() -> None:
    detector = {"GROUNDWATCH_VERIFICATION__ENGINE": "detector"}
    done = CliRunner().invoke(app, ["admin", "cost", "--second", "visual", "--json"], env=detector)
    assert isinstance(done.exception, UsageError)
    assert str(done.exception).startswith("--second visual: no endpoint is set")
    llm = {
        "GROUNDWATCH_VERIFICATION__LLM__BASE_URL": "http://localhost/v1",
        "GROUNDWATCH_VERIFICATION__LLM__MODEL": "m",
    }
    assert told("--second", "visual", **detector, **llm)["second"] == "visual"


def test_no_price_is_no_sum() -> None:
    options = ["admin", "cost", "--first", "detector"]
    done = CliRunner().invoke(app, options, env={"COLUMNS": "120"})
    assert "0.00 " not in done.stdout.replace("0.0000", "") and "–" in done.stdout.splitlines()[2]
    priced = {"COLUMNS": "120", "GROUNDWATCH_TRITON__GPU_PRICE": "3"}
    assert "–" not in CliRunner().invoke(app, options, env=priced).stdout
