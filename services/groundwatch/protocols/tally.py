"""What a tally is: the arithmetic of a protocol over a file of recorded judgements, with no judge at all.

A method that has one describes it as a `TALLY` in its own `tally.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from groundwatch.errors import UsageError

if TYPE_CHECKING:
    from groundwatch.terminal import RenderableType

Result = dict[str, object]
"""Numbers by name, as `--json` prints them: a number that does not exist is None, never 0."""


class TallyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to count: the file, and what else was given; None stands for what was not.

    `subset` is the part of a benchmark that the file belongs to, `t` the length of a chain, `labels` the
    file of labels beside a file of answers. `share` and `tokens` ask where the hallucinations are: on this
    share of object pairs, and within the first tokens of an answer.
    """

    file: Path
    subset: str | None = None
    t: int | None = None
    labels: Path | None = None
    share: float | None = None
    tokens: tuple[int, ...] | None = None

    @property
    def given(self) -> dict[str, object]:
        """What is there beside the file, by name."""
        fields = msgspec.structs.asdict(self)
        return {name: value for name, value in fields.items() if name != "file" and value is not None}


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """One protocol's tally.

    `compute` reads the request's file and counts; it raises `FileFormatError` naming file, line and key.
    `needs` maps what must be given to what to say of it, `takes` is what may be. `tell` shows the result to
    people; without it, or where it gives None, the names are printed with their numbers.
    """

    compute: Callable[[TallyRequest], Result]
    needs: Mapping[str, str] = {}
    takes: frozenset[str] = frozenset()
    tell: Callable[[Result], RenderableType | None] | None = None

    def run(self, name: str, request: TallyRequest) -> Result:
        """The result; raises `UsageError` for what is missing or what this tally does not take."""
        for given in request.given:
            if given not in self.takes and given not in self.needs:
                raise UsageError(f"recorded judgements of {name} take no {given}", given)
        for needed, meaning in self.needs.items():
            if needed not in request.given:
                raise UsageError(f"recorded judgements of {name} need {needed}: {meaning}", needed)
        return self.compute(request)
