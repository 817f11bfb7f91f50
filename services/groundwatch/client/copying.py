"""A call's arguments and result, copied as far as their caller may change them, and measured.

Lists and dicts are copied, objects of pydantic's become dicts. What is none of these becomes None and is
never iterated: a generator is the caller's to read.
"""

import sys
from typing import Any

import msgspec

MOST = 100_000
"""Values in one call; more of them are no conversation."""

CONTAINER = 64


class TooMuch(Exception):
    """The call holds more than a conversation does."""


def copied(value: Any) -> tuple[Any, int]:
    """The copy, which shares its texts, and about what it takes in memory, in bytes.

    Raises `TooMuch`, and what a hostile value does.
    """
    copy = msgspec.to_builtins(value, builtin_types=(bytes,), enc_hook=_fields)
    return copy, _size(copy)


def packed(value: Any) -> bytes:
    """A copy of what is small: in one step, texts and all. Raises what a hostile value does."""
    return _ENCODER.encode(value)


def unpacked(data: bytes) -> Any:
    return msgspec.msgpack.decode(data)


def _fields(value: Any) -> Any:
    try:
        extra = value.__pydantic_extra__
    except AttributeError:
        return None
    fields: dict[str, Any] = value.__dict__
    return {**extra, **fields} if extra else fields


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_fields)


def _size(copy: Any) -> int:
    size = number = 0
    left = [copy]
    while left:
        value = left.pop()
        kind = type(value)
        if kind is str or kind is bytes:
            size += sys.getsizeof(value)
        elif kind is dict:
            size += CONTAINER
            number += len(value)
            left.extend(value.values())
        elif kind is list or kind is tuple:
            size += CONTAINER
            number += len(value)
            left.extend(value)
        if number > MOST:
            raise TooMuch
    return size + 16 * number
