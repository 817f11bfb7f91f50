"""What a package says it exports, it exports, and nothing hidden among it."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import groundwatch

MODULES = sorted(
    found.name
    for found in pkgutil.walk_packages(groundwatch.__path__, "groundwatch.")
    if not found.name.endswith("__main__")
)


@pytest.mark.parametrize("name", MODULES)
def test_exported_members(name):
    module = importlib.import_module(name)
    exported = getattr(module, "__all__", None)
    if exported is None:
        return
    assert len(exported) == len(set(exported))
    for member in exported:
        assert hasattr(module, member), f"{name} exports {member} and has none"
        assert not member.startswith("_") or member == "__version__"


@pytest.mark.parametrize("name", MODULES)
def test_packages_that_export_say_what(name):
    """A package whose `__init__` brings names up from inside lists them: its surface is a decision."""
    module = importlib.import_module(name)
    if not hasattr(module, "__path__"):
        return
    brought = {
        member
        for member, value in vars(module).items()
        if not member.startswith("_")
        and isinstance(getattr(value, "__module__", None), str)
        and value.__module__.startswith(f"{name}.")
    }
    assert brought <= set(getattr(module, "__all__", brought))
