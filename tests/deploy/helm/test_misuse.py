"""Every misuse of the values ends at rendering, with a sentence that names the value."""

from __future__ import annotations

import pytest
from tests.deploy.helm.charts import LLM, STORED, template
from tests.deploy.helm.misuses import MISSPELLED, UNFIT, over

pytestmark = pytest.mark.slow


MISUSES = MISSPELLED | UNFIT


@pytest.mark.parametrize("misuse", MISUSES)
def test_misuse_is_refused_by_name(misuse: str) -> None:
    values, named, why = MISUSES[misuse]
    done = template((), over(LLM, values))
    assert done.returncode != 0
    assert not done.stdout
    assert any(named in line and why in line for line in done.stderr.splitlines()), done.stderr


def test_production_asks_who_comes_unless_it_is_said_that_nobody_is() -> None:
    values = {key: value for key, value in STORED.items() if key != "gateway"}
    refused = template(("production",), values)
    assert refused.returncode != 0 and "gateway.open: is false" in refused.stderr
    assert template(("production",), values | {"gateway": {"open": True}}).returncode == 0
