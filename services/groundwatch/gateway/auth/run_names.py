"""Runs by the names that callers give them: each tenant has names of its own.

A tenant's run is kept under its name and a mark of the tenant, so that a name which another has used tells
nobody anything: it is neither taken nor found.
"""

import msgspec

from groundwatch.events import LIVE, digest
from groundwatch.gateway.auth.callers import Caller
from groundwatch.gateway.replays import Replay

LONGEST = 48
"""Characters of a tenant's name for a run: with the mark it is a run's name like any other."""


class RunNames:
    """One caller's names. Somebody who may act for all tenants calls every run by its full name."""

    def __init__(self, caller: Caller) -> None:
        self._mark = "" if caller.only is None else f"-t{digest(caller.only)[:12]}"

    @property
    def longest(self) -> int | None:
        """How many characters a name may have, None where only that of the run itself counts."""
        return LONGEST if self._mark else None

    def full(self, name: str) -> str:
        """The run's own name; live traffic, and no name, are everybody's."""
        return name if name in ("", LIVE) else name + self._mark

    def given(self, text: str) -> str:
        """A run's name, or a sentence with some, in the caller's words."""
        return text.replace(self._mark, "") if self._mark else text

    def of(self, state: Replay) -> Replay:
        """A replay in the caller's words."""
        return msgspec.structs.replace(
            state,
            run=self.given(state.run),
            source=self.given(state.source),
            reason=self.given(state.reason),
        )
