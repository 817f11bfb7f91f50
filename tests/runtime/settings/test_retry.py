"""When to try again."""

from __future__ import annotations

import pytest

from groundwatch.errors import RateLimited, TransientError
from groundwatch.runtime.settings import RetrySettings

SETTINGS = RetrySettings(attempts=20, first_delay=1.0, max_delay=60.0)


@pytest.mark.parametrize(
    ("attempt", "most"), ((1, 1.0), (2, 2.0), (3, 4.0), (6, 32.0), (7, 60.0), (1_000_000, 60.0))
)
def test_doubles_up_to_the_largest_with_jitter(attempt: int, most: float) -> None:
    found = [SETTINGS.delay(attempt) for _ in range(200)]
    assert min(found) >= most / 2
    assert max(found) <= most
    assert max(found) - min(found) > most / 10


@pytest.mark.parametrize(
    ("retry_after", "least", "most"),
    ((30.0, 30.0, 30.0), (0.1, 0.5, 1.0), (10_000.0, 60.0, 60.0), (None, 0.5, 1.0)),
)
def test_an_endpoint_that_named_a_time_is_taken_at_its_word(
    retry_after: float | None, least: float, most: float
) -> None:
    found = SETTINGS.delay(1, RateLimited("slow down", retry_after=retry_after))
    assert least <= found <= most


def test_other_faults_wait_as_usual() -> None:
    assert 0.5 <= SETTINGS.delay(1, TransientError("x")) <= 1.0
