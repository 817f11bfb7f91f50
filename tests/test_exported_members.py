"""What a package says it exports, it exports, and nothing hidden among it."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

import pytest

import groundwatch


@pytest.fixture(scope="module")
def modules() -> dict[str, ModuleType]:
    """Every module by its name."""
    return {
        found.name: importlib.import_module(found.name)
        for found in pkgutil.walk_packages(groundwatch.__path__, "groundwatch.")
        if not found.name.endswith("__main__")
    }


def test_what_is_exported_is_there_once_and_public(modules):
    wrong = []
    for name, module in modules.items():
        exported = getattr(module, "__all__", ())
        wrong += [
            f"{name}: {one}" for one in set(exported) if not hasattr(module, one) or one.startswith("_")
        ]
        wrong += [f"{name}: {one} twice" for one in set(exported) if exported.count(one) > 1]
    assert wrong == []


def test_packages_that_export_say_what(modules):
    """A package whose `__init__` brings names up from inside lists them: its surface is a decision."""
    unsaid = [
        f"{name}: {member}"
        for name, module in modules.items()
        if hasattr(module, "__path__") and hasattr(module, "__all__")
        for member, value in vars(module).items()
        if not member.startswith("_")
        and str(getattr(value, "__module__", "")).startswith(f"{name}.")
        and member not in module.__all__
    ]
    assert unsaid == []
