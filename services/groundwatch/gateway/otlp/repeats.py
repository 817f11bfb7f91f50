"""One call that several spans tell of: which of them is recorded."""

from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from groundwatch.conversations.conversation import Conversation, repeat_key

REMEMBERED = 20_000
"""Calls whose repeats under another id are known when they come in a later request."""


class _Told(msgspec.Struct, frozen=True):
    """A span that tells of a call, and whether it has the server's id of the answer.

    The id itself may be as long as its sender likes, and so may not be remembered.
    """

    span_id: str
    named: bool


class Repeats:
    """Calls that were recorded, by what two spans of one call have in common.

    A repeat under the same id is known to the stream of responses itself, for ever.
    """

    def __init__(self) -> None:
        self._recorded: OrderedDict[tuple[str, str], _Told] = OrderedDict()

    def kept(self, calls: Sequence[Conversation], tenant: str) -> list[Conversation]:
        """One conversation of each call: the one with the most images, and with the server's id of it."""
        ids: set[str] = set()
        keys: dict[str, _Told] = {}
        best: list[Conversation] = []
        for call in sorted(calls, key=_worth, reverse=True):
            key, told = repeat_key(call), _told(call)
            known = keys.get(key) or self._recorded.get((tenant, key))
            if (call.id and call.id in ids) or (key and known is not None and _is_repeat(told, known)):
                continue
            ids.add(call.id)
            keys.setdefault(key, told)
            best.append(call)
        return best

    def recorded(self, call: Conversation, tenant: str) -> None:
        if key := repeat_key(call):
            self._recorded[(tenant, key)] = _told(call)
            if len(self._recorded) > REMEMBERED:
                self._recorded.popitem(last=False)


def _told(call: Conversation) -> _Told:
    return _Told(call.span_id, bool(call.response_id))


def _is_repeat(told: _Told, known: _Told) -> bool:
    """Whether both tell of one call: not the same span again, and not two answers of the server."""
    return told.span_id != known.span_id and not (told.named and known.named)


def _worth(call: Conversation) -> tuple[bool, int, bool]:
    return not call.left_out, len(call.images), bool(call.response_id)
