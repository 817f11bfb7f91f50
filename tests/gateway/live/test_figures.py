"""The figures of the protocols' papers as metrics: those of the report."""

from __future__ import annotations

import asyncio

from groundwatch.events import OutcomeKind
from groundwatch.gateway.live import live


async def test_the_metrics_are_the_figures_of_the_report(gateway_factory, publish, monkeypatch):
    monkeypatch.setattr(live, "FIGURE_SECONDS", 0.05)
    gateway = await gateway_factory()
    for number in range(8):
        values = {"hallu": number / 10, "hallu.object": 0.0, "hallu.relation": number / 10}
        values["prediction_error"] = 0.0
        await publish(f"r{number}", protocol="tri-he", values=values, images=(f"{number // 4}" * 64,))
    for _ in range(300):
        (row, *_) = (await gateway.http.get("/v1/report")).json()["models"] or [None]
        shown = {}
        if row is not None:
            who = {"model": "heron-7b", "protocol": "tri-he", "judges": row["fingerprint"]}
            for one in row["figures"]:
                shown[one["name"]] = {
                    number: gateway.count("groundwatch_figure", **who, figure=one["name"], number=number)
                    for number in ("value", "low", "high", "n", "coverage")
                }
            if row["responses"] == 8 and shown["hallu_q"]["n"] == 8:
                break
        await asyncio.sleep(0.05)
    assert shown == {one["name"]: {**one["value"], "coverage": 1.0} for one in row["figures"]}
    assert shown["hallu_i"]["n"] == 2


async def test_groups_go_on_over_a_restart_and_are_metrics(gateway_factory, publish, monkeypatch):
    monkeypatch.setattr(live, "FIGURE_SECONDS", 0.05)

    async def answer(sequence: str, number: int, recorded_at: float) -> None:
        level = "fine" if number else "coarse"
        await publish(
            f"{sequence}-{number}",
            protocol="vlm2",
            outcome=OutcomeKind.SCORED,
            claims=(),
            values={level: 1.0, f"{level}_read": 1.0, "right": 1.0, "part": 1 / 3},
            tags={"task": "t", "sequence": sequence, "level": level, "questions": "3", "truth": "yes"},
            recorded_at=recorded_at,
        )

    for sequence, number in (("a", 0), ("a", 1), ("b", 0), ("b", 1)):
        await answer(sequence, number, 1000.0)
    first = await gateway_factory()
    await answer("a", 2, 4600.0)
    await answer("b", 2, 4601.0)
    again = await gateway_factory()
    for gateway in (first, again):
        for _ in range(300):
            (row, *_) = (await gateway.http.get("/v1/report")).json()["models"] or [{"responses": 0}]
            who = {"model": "heron-7b", "protocol": "vlm2", "judges": row.get("fingerprint", "")}
            reasons = ("complete", "group_timed_out", "group_late")
            counted = [gateway.count("groundwatch_groups", **who, reason=reason) for reason in reasons]
            if row["responses"] == 6 and sum(counted) == 3:
                break
            await asyncio.sleep(0.05)
        assert row["groups"] == {
            "complete": 1,
            "group_late: 1 of 3 came": 1,
            "group_timed_out: 2 of 3 came": 1,
        }
        assert counted == [1, 1, 1]
