"""A request of OTLP in protobuf, cut into smaller ones as it comes: little of it is held at a time."""

import zlib
from collections.abc import Iterator

from groundwatch.counting import TooLong, varint
from groundwatch.errors import InputError

PART = 8 * 1024 * 1024
"""Bytes that are held before what is whole of them is cut off."""

PIECE = 64 * 1024
MEMBERS = 1_000
"""Parts of a compressed body, each of which may be empty."""

MOST_ITEMS = 50_000
"""Spans, or log records, of a request."""

MANY = f"holds more than {MOST_ITEMS:,} spans or log records: send smaller batches"

_WINDOW = zlib.MAX_WBITS | 32
"""Of gzip and zlib alike."""

_VARINT, _LENGTH, _FIXED = 0, 2, {1: 8, 5: 4}
_INNER = (1 << 3 | _LENGTH, 2 << 3 | _LENGTH, 2 << 3 | _LENGTH)
"""The tags of what a request, a resource's part of it and a scope's part of that have many of: of spans as of
log records, which are the last."""


class Decompressor:
    """Of gzip or deflate, which may be several one behind the other."""

    def __init__(self) -> None:
        self._reader = zlib.decompressobj(_WINDOW)
        self._members = 1
        self._begun = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What comes out, in pieces of at most `PIECE` bytes. Raises `InputError`."""
        try:
            # A piece at a time: what is left over is copied each time.
            for rest in (data[start : start + PIECE] for start in range(0, len(data), PIECE)):
                while rest:
                    if self._reader.eof:
                        self._reader = zlib.decompressobj(_WINDOW)
                        self._members += 1
                        if self._members > MEMBERS:
                            raise InputError(f"the compressed body has more than {MEMBERS:,} parts")
                    self._begun = True
                    yield self._reader.decompress(rest, PIECE)
                    rest = self._reader.unused_data if self._reader.eof else self._reader.unconsumed_tail
        except zlib.error as error:
            raise InputError(f"does not decompress: {error}") from error

    def finish(self) -> None:
        """Raises `InputError` where there should be more."""
        if self._begun and not self._reader.eof:
            raise InputError("the compressed body is cut off")


class Parts:
    """Requests that together are the one which is fed, each of some bytes or with one item alone."""

    def __init__(self, limit: int, largest: int, decompressor: Decompressor | None, enough: int) -> None:
        """The whole may have `limit` bytes, when it is decompressed, and one item `largest`. What is whole is
        cut off from so many bytes as are `enough`."""
        self._limit = limit
        self._largest = largest
        self._decompressor = decompressor
        self._held = bytearray()
        self._least = self._enough = enough
        self._size = self._walked = 0
        self.fields = 0
        """What was counted of them by who reads them."""

    @property
    def held(self) -> int:
        return len(self._held)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Those that are there with this. Raises `InputError`, `TooLong`."""
        for piece in self._decompressor.feed(data) if self._decompressor is not None else (data,):
            self._size += len(piece)
            if self._size > self._limit:
                when = " when it is decompressed" if self._decompressor is not None else ""
                raise TooLong(f"has more than {self._limit} bytes{when}")
            self._held += piece
            if len(self._held) >= self._enough:
                whole, head, at = self._cut(0, 2 * self._limit, 0)
                self._held[:at] = head
                if len(self._held) > self._largest:
                    raise TooLong(f"has a span or a log record of more than {self._largest} bytes")
                self._enough = max(self._least, min(2 * len(self._held), self._largest + 1))
                yield whole

    def finish(self) -> bytes:
        """The last one. Raises `InputError` where there should be more."""
        if self._decompressor is not None:
            self._decompressor.finish()
        rest = bytes(self._held)
        self._held.clear()
        return rest

    def _cut(self, at: int, end: int, depth: int) -> tuple[bytes, bytes, int]:
        """What is whole of the message from `at` to `end`, which may be beyond what is held; how one with its
        other items begins; where these are.

        Raises `InputError` for what is no such message, `TooLong` for one that holds too much.
        """
        data, first, beside = self._held, at, bytearray()
        while at < len(data):
            self._walked += 1
            if self._walked > MOST_ITEMS:
                raise TooLong(MANY)
            try:
                tag, start = varint(data, at)
                length = _FIXED.get(tag & 7, 0)
                if tag & 7 in (_VARINT, _LENGTH):
                    length, start = varint(data, start)
            except IndexError:
                break
            stop = start + (length if tag & 7 != _VARINT else 0)
            if stop > end or tag & 7 not in (_VARINT, _LENGTH, *_FIXED):
                raise InputError("is no request of OTLP")
            if stop > len(data):
                if tag != _INNER[depth] or depth == len(_INNER) - 1:
                    break
                whole, inner, rest = self._cut(start, stop, depth + 1)
                beside += _field(tag, len(inner) + stop - rest) + inner
                return bytes(data[first:at]) + _field(tag, len(whole)) + whole, bytes(beside), rest
            if tag != _INNER[depth]:
                beside += data[at:stop]
            at = stop
        return bytes(data[first:at]), bytes(beside), at


def _field(tag: int, length: int) -> bytes:
    """The beginning of a field with so many bytes."""
    written = bytearray((tag,))
    while length > 127:
        written.append(length & 127 | 128)
        length >>= 7
    return bytes(written) + bytes((length,))
