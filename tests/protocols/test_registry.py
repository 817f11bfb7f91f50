"""Finding protocols by name."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint

import pytest
from pydantic import ValidationError
from tests.support.registering import registered

from groundwatch.errors import UsageError
from groundwatch.protocols import registry
from groundwatch.protocols.faithscore.protocol import FaithScore
from groundwatch.runtime.settings.gateway import GatewaySettings


def test_faithscore_is_known():
    assert "faithscore" in registry.names()
    assert isinstance(registry.get("faithscore"), FaithScore)
    assert registry.get("faithscore") is registry.get("faithscore")


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(UsageError, match=r"no protocol 'faithscor'; known are .*faithscore"):
        registry.get("faithscor")


def test_where_the_others_are_is_said(monkeypatch):
    """To who had AMBER in the settings before it moved, for one."""
    monkeypatch.setitem(sys.modules, registry.BENCHMARKS, None)
    with pytest.raises(ValidationError, match=r"; groundwatch-benchmarks, which is not installed"):
        GatewaySettings(protocols=("ambr",))


@pytest.mark.parametrize("name, why", [("nobody", "no protocol 'nobody'"), ("pope", "cannot be loaded")])
def test_a_benchmark_that_cannot_be_had_is_one_line(name, why, monkeypatch):
    registry.methods()
    point = EntryPoint(name, "nowhere:BENCHMARK", registry.BENCHMARKS_GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    with pytest.raises(UsageError, match=rf"plug-in '{name}': {why}"):
        registry.benchmarks.__wrapped__()


def test_a_protocol_of_a_test_is_found_only_there():
    class Noop(FaithScore):
        name = "noop"

    with registered(Noop()) as noop:
        assert registry.get("noop") is noop
        assert "noop" in registry.names()
    assert "noop" not in registry.names()


def test_a_configured_protocol_replaces_the_default_one():
    default = registry.get("faithscore")
    heavy = FaithScore(weights={"color": 2.0})
    with registered(heavy):
        assert registry.get("faithscore") is heavy
    assert registry.get("faithscore") is default
