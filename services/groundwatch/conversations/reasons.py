"""Why an image that was in the request is not in what was logged, and which setting keeps it."""

from groundwatch.conversations.names import NAMES, LeftOut

__all__ = ["REASONS", "LeftOut", "placeholder", "reason_by"]

REASONS: dict[str, LeftOut] = NAMES.reason
"""By their names, which are those in `Conversation.left_out`."""

_BY = {
    (general, library): name
    for name, reason in REASONS.items()
    for general in reason.of
    for library in reason.by
}
_STARTS = tuple(one.starts for one in NAMES.placeholder)


def reason_by(reason: str, library: str) -> str:
    """The reason as exactly as it is known once it shows which library logged the call."""
    return _BY.get((reason, library), reason)


def placeholder(text: str, *, said: bool = False) -> str:
    """The reason that a text stands for where an image was, or what was `said`; empty where it is none."""
    if not text.startswith(_STARTS):
        return ""
    found = next(one for one in NAMES.placeholder if text.startswith(one.starts))
    return (found.text_reason if said else "") or found.reason
