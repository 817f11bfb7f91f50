"""Comparing runs over a real server: live traffic and replays of it by other judges."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from tests.replay.conftest import Replays, outcomes, record, replays, response, settings_of
from typer.testing import CliRunner

from groundwatch.cli import app
from groundwatch.errors import UsageError
from groundwatch.gateway import comparing
from groundwatch.gateway.comparing import compare
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.outcomes import outgoing

__all__ = ["replays"]

IMAGES = ("a" * 64, "b" * 64, "c" * 64)


async def copied(bus: Bus, run: str, name: str, ids: tuple[str, ...] | None, **changes) -> None:
    """The outcomes of a run, or some of them, as those of another."""
    for one in (await outcomes(bus, run)).values():
        if ids is None or one.id in ids:
            await bus.create(outgoing(msgspec.structs.replace(one, run=name, **changes)))


@pytest.fixture
async def two_runs(replays: Replays, bus: Bus) -> Bus:
    """`rules` by rules that refute the blue ball, `kind` by a judge that believes everything."""
    answers = ("A dog sits beside a blue ball.", "A dog sits beside a red ball.")
    await record(
        bus,
        *(
            response(
                f"r{number}",
                answer=answers[number % 2],
                model=("heron", "osprey")[number % 2],
                images=(IMAGES[number % 3],),
            )
            for number in range(24)
        ),
        response("elsewhere", tenant="other"),
    )
    rules = settings_of(bus, extraction="reader", verification="reference")
    await replays.done("rules", rules)
    await replays.done("kind", settings_of(bus, extraction="reader", verification="noop"))
    for name, kept in (("again", None), ("few", ("r0", "r2")), ("others", ("elsewhere",))):
        await copied(bus, "rules", name, kept)
    await copied(bus, "kind", "older", None, images=())
    return bus


async def test_another_verifier_is_told_with_its_claims(two_runs: Bus) -> None:
    found = await compare(two_runs, "rules", "kind", tenant="default")
    (one,) = found.sections
    assert (one.paired, one.scored, one.unit, one.units) == (24, 24, "image", 3)
    assert not one.same_judges and one.claims_first == one.claims_matched == one.claims_second
    whole = one.whole
    assert whole.rate_first > 0 and whole.rate_second == 0 and whole.rate.value == -whole.rate_first
    assert whole.verdicts.refuted_first == 12 and whole.verdicts.refuted_second == 0
    assert whole.verdicts.p_value == pytest.approx(2 / 2**12)
    heron, osprey = (
        next(group for group in one.groups if (group.dimension, group.name) == ("model", name))
        for name in ("heron", "osprey")
    )
    assert heron.rate.value < 0 and osprey.rate.value == 0
    assert {changed.model for changed in one.most_changed} == {"heron"} and len(one.most_changed) == 12
    (claim,) = [claim for claim in one.most_changed[0].claims if claim.first != claim.second]
    assert (claim.first, claim.second) == ("refuted", "supported") and "blue" in claim.text


@pytest.mark.parametrize("runs", [("rules", "older"), ("older", "rules")])
async def test_images_that_one_run_alone_tells_make_the_draws(two_runs: Bus, runs: tuple[str, str]) -> None:
    """Outcomes of an earlier version do not say what their answers were about."""
    (one,) = (await compare(two_runs, *runs, tenant="default")).sections
    assert (one.unit, one.units) == ("image", 3)


async def test_the_same_judges_do_not_differ(two_runs: Bus) -> None:
    (one,) = (await compare(two_runs, "rules", "again")).sections
    assert one.same_judges and one.changed.value == 0 and one.whole.rate.value == 0
    assert one.whole.verdicts.p_value == 1 and "non-determinism" in one.notes[0]


async def test_a_small_run_is_looked_up_and_tells_the_same(
    two_runs: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = await compare(two_runs, "few", "kind")
    assert (read.sections[0].paired, read.alone["faithscore"].second) == (2, 23)
    monkeypatch.setattr(comparing, "LOOKED_UP", 1)
    assert await compare(two_runs, "few", "kind") == read
    turned = await compare(two_runs, "kind", "few", model="heron")
    assert turned.alone["faithscore"].first is None and turned.sections[0].paired == 2


REFUSED = [
    ("rules", "nowhere", {}, "no run 'nowhere'; there are: live, kind, rules"),
    ("rules", "rules", {}, "beside itself"),
    ("live", "rules", {}, "run live has no outcome"),
    ("few", "others", {}, "not comparable: no response"),
    ("rules", "kind", {"model": "x"}, "has no outcome of model x"),
    ("rules", "kind", {"protocol": "pope"}, "run rules has no outcome of protocol pope"),
    ("rules", "a.b", {}, "letters, digits"),
    ("rules", "kind", {"limit": 3}, "both runs have more than 3 outcomes"),
]


async def test_what_cannot_be_compared_is_refused(two_runs: Bus) -> None:
    for first, second, options, told in REFUSED:
        with pytest.raises(UsageError, match=told):
            await compare(two_runs, first, second, **options)


async def test_another_protocol_is_refused(two_runs: Bus) -> None:
    await copied(two_runs, "rules", "objects", None, protocol="chair")
    with pytest.raises(UsageError, match="judged by"):
        await compare(two_runs, "rules", "objects")


async def test_the_command_writes_tables_json_and_a_report(two_runs: Bus, tmp_path: Path) -> None:
    import asyncio

    nats = ["--nats", two_runs._settings.url]
    page = tmp_path / "report.html"

    def call(*words: str):
        return CliRunner().invoke(app, ["compare", *words, *nats])

    shown = await asyncio.to_thread(call, "rules", "kind", "--out", str(page))
    assert shown.exit_code == 0, shown.output
    assert "McNemar" in shown.stdout and "report with plots" in shown.stdout
    assert "<svg" in page.read_text() and "blue" in page.read_text()
    found = json.loads((await asyncio.to_thread(call, "rules", "kind", "--json")).stdout)
    assert found["sections"][0]["groups"][0]["verdicts"]["refuted_first"] == 13
    refused = await asyncio.to_thread(call, "rules", "kind", "--out", str(tmp_path / "no" / "x.html"))
    assert isinstance(refused.exception, UsageError) and "there is no folder" in str(refused.exception)
