"""Which outcome another one takes the place of, where its stream may have let go of it.

While the stream holds an outcome that only stands for a dead letter, it is replaced by compare-and-set. What
has left the stream can be compared with no more. So a dead letter that is sent again names these outcomes,
what follows from it carries that on, and who archives the new outcome removes the old one.
"""

from collections.abc import Mapping
from typing import NamedTuple

from groundwatch.topology import HEADER_EXPECT_SEQUENCE, HEADER_SUPERSEDES, number_in, parse_subject


class Superseded(NamedTuple):
    """An outcome that only stood for a dead letter: its sequence, and its reason."""

    sequence: int
    reason: str


def header_of(several: Mapping[str, Superseded]) -> dict[str, str]:
    """These outcomes, by protocol, as a header; none where there are none."""
    if not several:
        return {}
    listed = (f"{name}:{one.sequence}:{one.reason}" for name, one in several.items())
    return {HEADER_SUPERSEDES: ",".join(listed)}


def named_in(headers: Mapping[str, str]) -> dict[str, Superseded]:
    """Those that a message names, by protocol. What is not of this form names none."""
    several = {}
    for part in headers.get(HEADER_SUPERSEDES, "").split(","):
        match part.split(":"):
            case [name, text, reason] if sequence := number_in(text):
                several[name] = Superseded(sequence, reason)
    return several


def superseded_by(subject: str, headers: Mapping[str, str]) -> int:
    """The sequence of the message whose place one on this subject takes, 0 for none."""
    if expected := number_in(headers.get(HEADER_EXPECT_SEQUENCE, "")):
        return expected
    address = parse_subject(subject)
    if address is None or address.kind != "outcome":
        return 0
    one = named_in(headers).get(address.protocol)
    return one.sequence if one is not None else 0
