"""How much a text of JSON or a message of protobuf holds, counted before anything is built of it.

Forty kilobytes can become gigabytes of objects; a count costs a pass over the bytes.
"""

from typing import TYPE_CHECKING

from groundwatch.errors import InputError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

MOST_VALUES = 200_000
"""Values of one text of JSON: of a response, of a call's messages."""

FIELD_BYTES = 64
"""What a field, or a value of JSON, takes of memory beside its content."""

_PIECE = 64 * 1024
_SEPARATORS = (b",", b":", b"[", b"{")

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10
_DEEPEST = 100
"""Messages within messages, as many as protobuf reads."""


class TooLong(InputError):
    """A body that is larger, or holds more, than it may."""


_Table = dict[int, "_Table"]
"""The fields that are messages, by their tags, each with its own."""

_tables: dict[str, _Table] = {}


def has_more_values(text: bytes | str, most: int = MOST_VALUES) -> bool:
    """Whether a text of JSON has more than `most` values and keys; what stands inside of strings is none."""
    if len(text) <= 2 * most:
        return False
    return count_values(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text, most) > most


def count_values(data: bytes, most: int) -> int:
    """How many values and keys a text of JSON has, no further than a little beyond `most`.

    Below `most` what stands inside of strings may be counted too.
    """
    count = sum(map(data.count, _SEPARATORS))
    if count <= most:
        return count
    count = start = 0
    quoted = 0
    while start < len(data):
        # Without what a backslash hides, each quotation mark begins or ends a string.
        piece = data[start : start + _PIECE].replace(b"\\\\", b"")
        start += _PIECE
        if piece.endswith(b"\\"):
            start += 1
        parts = piece.replace(b'\\"', b"").split(b'"')
        outside = b"".join(parts[quoted::2])
        quoted ^= (len(parts) - 1) % 2
        count += sum(map(outside.count, _SEPARATORS))
        if count > most:
            break
    return count


def count_fields(data: bytes, form: "Descriptor", items: "Descriptor", most: int) -> tuple[int, int]:
    """How many fields a message of protobuf has, in all that it holds, and how many of its messages are
    `items`; no further than to `most` fields.

    Raises `InputError` for what is no message.
    """
    wanted, table = _table(items), _table(form)
    fields = found = at = 0
    end = len(data)
    outer: list[tuple[int, _Table]] = []
    try:
        while True:
            if at >= end:
                if at > end:
                    raise InputError("a field of it ends behind its end")
                if not outer:
                    return fields, found
                end, table = outer.pop()
                continue
            fields += 1
            if fields > most:
                return fields, found
            tag = data[at]
            at += 1
            if tag > 127:
                tag, at = varint(data, at - 1)
            kind = tag & 7
            if kind == _LENGTH:
                length = data[at]
                at += 1
                if length > 127:
                    length, at = varint(data, at - 1)
                inner = table.get(tag)
                if inner is None:
                    at += length
                    continue
                found += inner is wanted
                outer.append((end, table))
                if at + length > end or len(outer) > _DEEPEST:
                    raise InputError("a field of it ends behind its end, or is nested too deeply")
                end, table = at + length, inner
            elif kind == _VARINT:
                while data[at] > 127:
                    at += 1
                at += 1
            elif kind == _FIXED64:
                at += 8
            elif kind == _FIXED32:
                at += 4
            else:
                raise InputError(f"has a field of the kind {kind}, which is not read")
    except IndexError as error:
        raise InputError("is cut off") from error


def varint(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """The number that begins there, and where it ends. Raises `IndexError` for one that is cut off."""
    value = 0
    for shift in range(0, 7 * _LONGEST_VARINT, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise InputError("has a number that does not end")


def _table(form: "Descriptor") -> _Table:
    if form.full_name not in _tables:
        table = _tables[form.full_name] = {}
        for field in form.fields:
            if field.message_type is not None:
                table[field.number << 3 | _LENGTH] = _table(field.message_type)
    return _tables[form.full_name]
