"""Ids of responses and questions that were recorded, as the archive has them: a gateway knows by them what
the streams hold no more.

An entry has 16 bytes: 96 bits of `keys.response_key` and 32 of the digest of what the caller sent. Those of a
file of the archive are two columns of unsigned 64-bit numbers in the machine's own form: the high 64 bits of
the keys, in order, and behind all of them the other 32 bits of each key with the digest.
"""

import mmap
import tempfile
from bisect import bisect_left
from collections.abc import Sequence

import msgspec

from groundwatch.topology import ASKED, RESPONSES

KINDS = {RESPONSES: "recorded", ASKED: "asked"}
"""The streams whose ids are known, with the kind of event that has them."""

ENTRY_BYTES = 16

HOLD_SECONDS = 120.0
"""Nothing leaves a stream before its ids have been in the archive for so long."""

CURRENT_SECONDS = 45.0
"""A gateway that has not looked for so long takes nothing. What it has looked up is sent within the rest of
the hold time, or not any more: no request takes so long."""

_HALF = 32
DIGEST_BITS = (1 << _HALF) - 1


class IdFile(msgspec.Struct, frozen=True):
    """A file of the archive with ids of a stream, up to the sequence `last`. What is in it never changes."""

    path: str
    last: int


def entry_of(key: str, digest: str) -> tuple[int, int]:
    """What stands in the two columns; `digest` is that of what the caller sent, empty where none is known."""
    return int(key[:16], 16), int(key[16:24], 16) << _HALF | int(digest[:8] or "0", 16)


class Ids:
    """The entries of one file, mapped into memory from a file that goes with them."""

    def __init__(self, data: bytes) -> None:
        with tempfile.TemporaryFile() as file:
            file.write(data)
            file.flush()
            mapped = mmap.mmap(file.fileno(), len(data), access=mmap.ACCESS_READ) if data else b""
        self._length = len(data) // ENTRY_BYTES
        numbers = memoryview(mapped).cast("Q")
        self._high, self._rest = numbers[: self._length], numbers[self._length :]

    def __len__(self) -> int:
        return self._length

    def digests(self, high: int, rest: int) -> Sequence[int]:
        """The digests, 32 bits each, under the key of an entry; mostly none, which is to cost little."""
        place = bisect_left(self._high, high)
        if place == self._length or self._high[place] != high:
            return ()
        found = []
        while place < self._length and self._high[place] == high:
            if self._rest[place] >> _HALF == rest >> _HALF:
                found.append(self._rest[place] & DIGEST_BITS)
            place += 1
        return found
