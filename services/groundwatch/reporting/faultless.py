"""What extraction alone would make of a faultless model, as measured on the project's annotated answers.

A fact that is read wrongly counts as hallucinated whatever the model said: a rate is to be read beside this.
`groundwatch validate extraction FILE --out services/groundwatch/reporting/faultless.json` measures it.
"""

from collections.abc import Mapping
from functools import cache
from importlib import resources

import msgspec

from groundwatch.events import Judge
from groundwatch.protocols.base import Stage

OTHER_LANGUAGE = "other_language"
"""The style of answers that an engine for English is not to read; they are left out of its figures."""

ALL = "all"


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Decided facts of faultless answers, and those of them that are refuted since they were read wrongly."""

    refuted: int
    decided: int


class Faultless(msgspec.Struct, frozen=True, kw_only=True):
    """The counts by style of answers, for a protocol's facts as this engine reads them."""

    protocol: str
    judge: Judge
    styles: dict[str, Counts]


@cache
def shipped() -> Faultless:
    file = resources.files(__package__).joinpath("faultless.json")
    return msgspec.json.decode(file.read_bytes(), type=Faultless)


def extraction_alone(protocol: str, judges: Mapping[str, Judge]) -> dict[str, float]:
    """The rate that a faultless model would have, of `all` answers and by style; empty where not measured."""
    measured = shipped()
    extraction = judges.get(Stage.EXTRACTION.value)
    if extraction is None or (protocol, extraction.engine) != (measured.protocol, measured.judge.engine):
        return {}
    styles = measured.styles
    whole = sum(one.refuted for one in styles.values()) / sum(one.decided for one in styles.values())
    return {ALL: whole, **{style: one.refuted / one.decided for style, one in styles.items()}}
