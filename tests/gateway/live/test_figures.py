"""The figures of the protocols' papers as metrics: those of the report."""

from __future__ import annotations

import asyncio

from groundwatch.gateway.live import live


async def test_the_metrics_are_the_figures_of_the_report(gateway_factory, publish, monkeypatch):
    monkeypatch.setattr(live, "FIGURE_SECONDS", 0.05)
    gateway = await gateway_factory()
    for number in range(8):
        values = {"hallu": number / 10, "hallu.object": 0.0, "hallu.relation": number / 10}
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
