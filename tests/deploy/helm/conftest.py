"""The chart's tests need a real helm: absent on a user's machine they are skipped, in CI they fail."""

from __future__ import annotations

import os

import pytest
from tests.deploy.helm.charts import find_helm


@pytest.fixture(autouse=True, scope="session")
def _helm() -> None:
    if find_helm() is None:
        why = "no helm: put one on PATH, or run `python tests/deploy/helm/fetch_helm.py .venv/bin`"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(why)
