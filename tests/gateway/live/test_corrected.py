"""Corrected rates in the gateway's report: beside the others."""

from __future__ import annotations

import asyncio

from groundwatch.gateway.live import live
from groundwatch.reporting.corrected import CorrectedRow
from groundwatch.reviews.corrected import CorrectedRates, write_corrected
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.statistics.intervals import Interval


async def test_the_report_has_the_corrected_rates_that_were_computed_last(
    gateway_factory, bus: Bus, monkeypatch
) -> None:
    monkeypatch.setattr(live, "CORRECTED_SECONDS", 0.0)
    gateway = await gateway_factory()
    assert (await gateway.http.get("/v1/report")).json()["corrected"] == []
    row = CorrectedRow(
        queue="q",
        model="heron-7b",
        version="",
        protocol="faithscore",
        fingerprint="abc",
        category="all",
        by="people",
        judged=Interval(0.2, 0.19, 0.21, 900),
        corrected=Interval(0.12, 0.1, 0.14, 90),
        labels_alone=Interval(0.13, 0.08, 0.18, 90),
        opinions=90,
        for_half=400,
    )
    assert await write_corrected(bus, CorrectedRates(at=1.0, rows=(row,)))
    for _ in range(100):
        told = (await gateway.http.get("/v1/report")).json()["corrected"]
        if told:
            break
        await asyncio.sleep(0.05)
    assert told[0]["corrected"] == {"value": 0.12, "low": 0.1, "high": 0.14, "n": 90}
    assert (told[0]["judged"]["value"], told[0]["for_half"]) == (0.2, 400)
