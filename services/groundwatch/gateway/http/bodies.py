"""Reading request bodies without ever holding more than is allowed."""

from collections.abc import AsyncIterator, Callable, Iterator

import msgspec


class TooLarge(msgspec.Struct, frozen=True):
    """A body, or a line of one, beyond its limit in bytes."""

    limit: int


async def read_body(
    chunks: AsyncIterator[bytes], limit: int, hold: Callable[[int], None]
) -> bytes | TooLarge:
    """The whole body, or that it is too large, told as soon as it is known. `hold` is told what is held."""
    held: list[bytes] = []
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > limit:
            return TooLarge(limit)
        hold(size)
        held.append(chunk)
    return b"".join(held)


class Lines:
    """Cuts a stream of chunks into lines, numbered from 1; blank ones are left out but counted.

    Of a line beyond the limit nothing is kept: it is told once and the rest of it skipped.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: list[bytes] = []
        self._size = 0
        self._skipping = False
        self.number = 0

    @property
    def held(self) -> int:
        """Bytes of the line that has not ended yet."""
        return 0 if self._skipping else self._size

    def feed(self, chunk: bytes) -> Iterator[tuple[int, bytes | TooLarge]]:
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            yield from self._end(piece)
        if rest:
            self._hold(rest)

    def finish(self) -> Iterator[tuple[int, bytes | TooLarge]]:
        if self._size or self._skipping:
            yield from self._end(b"")

    def _hold(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit:
            self._skipping = True
            self._held.clear()
        elif not self._skipping:
            self._held.append(piece)

    def _end(self, piece: bytes) -> Iterator[tuple[int, bytes | TooLarge]]:
        self._hold(piece)
        self.number += 1
        skipped, line = self._skipping, b"".join(self._held)
        self._held.clear()
        self._size, self._skipping = 0, False
        if skipped:
            yield self.number, TooLarge(self._limit)
            return
        if self.number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if line.strip():
            yield self.number, line
