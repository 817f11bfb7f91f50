"""Every alert fires when it must, and keeps silent when it must."""

from __future__ import annotations

import pytest
from tests.deploy.prometheus.cases import models, pipeline, services
from tests.deploy.prometheus.conftest import Check

pytestmark = pytest.mark.slow

FIRES = models.FIRES | pipeline.FIRES | services.FIRES
SILENT = models.SILENT | pipeline.SILENT | services.SILENT


def test_each_case_has_a_name_of_its_own() -> None:
    rooms = (models, pipeline, services)
    assert len(FIRES) == sum(len(room.FIRES) for room in rooms)
    assert len(SILENT) == sum(len(room.SILENT) for room in rooms)


@pytest.mark.parametrize("name", FIRES)
def test_fires(promtool: Check, name: str) -> None:
    found = promtool(FIRES[name])
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("name", SILENT)
def test_keeps_silent(promtool: Check, name: str) -> None:
    assert not SILENT[name].fires
    found = promtool(SILENT[name])
    assert found.returncode == 0, found.stdout + found.stderr
