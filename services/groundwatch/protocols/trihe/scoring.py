"""Tri-HE's arithmetic over the triplets of one response (section 3.1). Pure."""

from collections.abc import Iterable
from typing import Literal

import msgspec

from groundwatch.protocols.triplets import Part, Triplet

Kind = Literal["object", "relation"]


class JudgedTriplet(msgspec.Struct, frozen=True, kw_only=True):
    """A triplet of a response as it was judged.

    `hallucinated` is None where the judge did not decide; `part` is None where it named none. `tokens` is
    how many tokens of the response were needed to say it, None where that is not known.
    """

    hallucinated: bool | None
    part: Part | None = None
    triplet: Triplet | None = None
    tokens: int | None = None

    @property
    def kind(self) -> Kind | None:
        if not self.hallucinated or self.part is None:
            return None
        return "relation" if self.part == "relation" else "object"


def question_rate(
    triplets: Iterable[JudgedTriplet], kind: Kind | None = None, *, undecided_count: bool = False
) -> float | None:
    """# HT / # TT of one response; None without triplets. With `kind`, only hallucinations of that kind.

    Undecided triplets are left out, or with `undecided_count` counted as total but not as hallucinated, as
    the published script does with replies that it cannot read.
    """
    total = wrong = 0
    for one in triplets:
        if one.hallucinated is None and not undecided_count:
            continue
        total += 1
        wrong += bool(one.hallucinated) and (kind is None or one.kind == kind)
    return wrong / total if total else None
