"""What a tally is: the arithmetic of a protocol over a file of recorded judgements, with no judge at all.

A method that has one describes it as a `TALLY` in its own `tally.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from groundwatch.errors import UsageError

Result = dict[str, object]
"""Numbers by name, as `--json` prints them: a number that does not exist is None, never 0."""


class TallyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to count: the file, and the options that were given; None stands for an absent one.

    `subset` is the part of a benchmark that the file belongs to, `t` the length of a chain, `labels` the
    file of labels beside a file of answers.
    """

    file: Path
    subset: str | None = None
    t: int | None = None
    labels: Path | None = None

    @property
    def given(self) -> dict[str, object]:
        """The options that are there, by name."""
        options = {"subset": self.subset, "t": self.t, "labels": self.labels}
        return {name: value for name, value in options.items() if value is not None}


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """One protocol's tally.

    `compute` reads the request's file and counts; it raises `FileFormatError` naming file, line and key.
    `needs` maps the options that must be there to what to say of them, `takes` those that may be.
    `tell` puts the result into words for people; None prints the names with their numbers.
    """

    compute: Callable[[TallyRequest], Result]
    needs: Mapping[str, str] = {}
    takes: frozenset[str] = frozenset()
    tell: Callable[[Result], str] | None = None

    def run(self, name: str, request: TallyRequest) -> Result:
        """The result; raises `UsageError` for an option that is missing or that this tally does not take."""
        for option in request.given:
            if option not in self.takes and option not in self.needs:
                raise UsageError(f"groundwatch tally {name} takes no option --{option}")
        for option, meaning in self.needs.items():
            if option not in request.given:
                raise UsageError(f"groundwatch tally {name} needs --{option}: {meaning}")
        return self.compute(request)
