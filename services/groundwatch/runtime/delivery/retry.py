"""When to try again, and when to give up."""

import random

from groundwatch.errors import Unavailable
from groundwatch.runtime.settings import RetrySettings


def delay(attempt: int, settings: RetrySettings, error: Exception | None = None) -> float:
    """Seconds to wait after delivery number `attempt` (from 1) failed.

    Doubles from `first_delay` up to `max_delay`, with jitter between half and the whole of it, so that
    what failed together does not return together. An endpoint that named a time is taken at its word.
    """
    backoff = min(settings.max_delay, settings.first_delay * 2.0 ** min(attempt - 1, 30))
    jittered = backoff * random.uniform(0.5, 1.0)
    if isinstance(error, Unavailable) and error.retry_after is not None:
        return max(jittered, min(error.retry_after, settings.max_delay))
    return jittered
