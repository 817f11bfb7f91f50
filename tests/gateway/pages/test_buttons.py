"""Buttons are for those alone who may press them."""

from __future__ import annotations

import pytest

from groundwatch.gateway.replays import Wanted
from groundwatch.replay.service import ReplayManager
from groundwatch.runtime.settings import ExtractionSettings, Settings, StageSettings
from groundwatch.runtime.settings.gateway import GatewaySettings

ROLES = ("viewer", "reviewer", "operator")


@pytest.mark.parametrize("role", ROLES)
async def test_a_run_is_changed_by_operators(gateway_factory, bus, response, tmp_path, monkeypatch, role):
    monkeypatch.delenv("GROUNDWATCH_CONFIG", raising=False)
    tokens = tmp_path / "tokens"
    tokens.write_text("".join(f"* {one}-token-0123456789 {one} {one[0]}\n" for one in ROLES))
    manager = ReplayManager(
        Settings(
            nats=bus._settings,
            gateway=GatewaySettings(replays=0),
            extraction=ExtractionSettings(engine="noop"),
            verification=StageSettings(engine="noop"),
        )
    )
    gateway = await gateway_factory(replays=manager, tokens_file=str(tokens))
    gateway.http.headers["Authorization"] = "Bearer operator-token-0123456789"
    await gateway.post(response())
    await manager.start(Wanted(run="again"))
    gateway.http.headers["Authorization"] = f"Bearer {role}-token-0123456789"
    for path in ("/runs", "/runs/again"):
        shown = await gateway.http.get(path)
        assert shown.status_code == 200
        assert ("Cancel" in shown.text) is (role == "operator")
    done = await gateway.http.post("/runs/again/cancel")
    assert done.status_code == (303 if role == "operator" else 403)
