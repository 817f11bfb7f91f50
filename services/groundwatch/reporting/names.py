"""Names that callers invent: how many are told apart, and which ones."""

import hashlib
from collections.abc import Callable, Collection, Container

OTHER = "other"
"""The name under which all are counted that are not told apart."""

KEPT_SHARE = 0.75
"""When there are too many, so many of the allowed ones stay: folding is then rare."""

REMEMBERED = 100_000
"""Folded names that are remembered, by a hash each; later ones are not counted any more."""


class Names:
    """Which names are told apart: at most `most`, those that come most often, and always those in `kept`.

    A name that was folded is told apart again when it comes again, and is `partial` from then on: what was
    counted of it before stays with the others. So names that are invented once each never keep out one that
    is in use, whichever came first.
    """

    def __init__(self, most: int | None = None, kept: Callable[[], Container[str]] = tuple) -> None:
        self._most = most
        self._kept = kept
        self._counts: dict[str, int] = {}
        self._folded: set[int] = set()

    def add(self, name: str) -> Collection[str]:
        """Count a name; the names that must be folded now, never this one."""
        count = self._counts.pop(name, 0)
        # The last to come stands last: among equally frequent ones it stays.
        self._counts[name] = count + 1
        if self._most is None or count or len(self._counts) <= self._most:
            return ()
        return self._fold(self._most, name)

    def remove(self, name: str) -> None:
        if name in self._counts:
            self._counts[name] -= 1
            if not self._counts[name]:
                del self._counts[name]

    @property
    def folded(self) -> int:
        """How many names were ever folded, as far as they are remembered."""
        return len(self._folded)

    def partial(self, name: str) -> bool:
        """Whether some of what was counted of a name that is told apart is with the others."""
        return bool(self._folded) and name != OTHER and _hash(name) in self._folded

    def _fold(self, most: int, latest: str) -> Collection[str]:
        kept = self._kept()
        surplus = len(self._counts) - max(1, int(most * KEPT_SHARE))
        least = sorted(self._counts, key=self._counts.__getitem__)
        folded = [one for one in least if one not in (OTHER, latest) and one not in kept][:surplus]
        for name in folded:
            del self._counts[name]
            if len(self._folded) < REMEMBERED:
                self._folded.add(_hash(name))
        return folded


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest())
