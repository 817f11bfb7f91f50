"""What the gateway asks of whoever keeps the replays: they are no business of its own.

The command line brings the two together.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, Protocol

import msgspec

from groundwatch.events import LIVE, Usage

OVER = ("done", "cancelled")

ReplayStatus = Literal["importing", "running", "paused", "done", "cancelled", "deleting"]


Amount = Annotated[float, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=0)]


class Wanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A replay to begin, as `groundwatch replay start` takes it.

    `source` is the run whose events are judged again, beginning at `stage`. `since` and `until` bound
    `recorded_at` (seconds since the epoch, 0: no bound, `until` exclusive); empty `models`, `tenants`, `ids`
    and `protocols` mean all. `speed` is in times of the recorded pace, 0: as fast as possible. `max_tokens`
    and `max_cost` (US dollars) end in a pause; 0: no bound. `keep` writes the claims and judgements on the
    way into the streams too, so that another replay can begin there. With `allow_gap` what is left is taken
    where retention has removed a part. `judge` is one that the settings name; empty: the judges in use.
    """

    run: str
    source: str = LIVE
    stage: str = "extraction"
    since: Amount = 0.0
    until: Amount = 0.0
    models: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    sample: Count = 0
    seed: Count = 0
    speed: Amount = 0.0
    max_tokens: Count = 0
    max_cost: Amount = 0.0
    keep: bool = False
    allow_gap: bool = False
    judge: str = ""


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """A replay and how far it is. `share` is 0 to 1, times are in seconds since the epoch."""

    run: str
    source: str
    stage: str
    status: ReplayStatus
    reason: str = ""
    tenants: tuple[str, ...] = ()
    share: float = 0.0
    events: int = 0
    responses: int = 0
    scored: int = 0
    unscored: int = 0
    declined: int = 0
    usage: Usage = Usage()
    workers: int = 0
    created_at: float = 0.0
    updated_at: float = 0.0
    seconds_left: float | None = None


class Replays(Protocol):
    """Whoever keeps the replays. Everything raises `UsageError` in one line, `TransientError` for later."""

    async def start(self, wanted: Wanted) -> Replay: ...

    async def find(self, run: str) -> Replay | None: ...

    async def list(self) -> Sequence[Replay]:
        """Every run, the newest first."""
        ...

    async def pause(self, run: str) -> Replay: ...

    async def resume(self, run: str) -> Replay: ...

    async def cancel(self, run: str) -> Replay: ...

    async def close(self) -> None:
        """Let go of connections and processes: what they work at goes on elsewhere, or later."""
        ...
