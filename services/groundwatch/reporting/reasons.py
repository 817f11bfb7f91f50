"""What the reason of an outcome without a score means, for people, and what mends it."""

from importlib import resources

import msgspec

from groundwatch.conversations.conversation import REASONS as LEFT_OUT

REASONS: dict[str, str] = msgspec.toml.decode(
    resources.files(__package__).joinpath("reasons.toml").read_bytes(), type=dict[str, str]
)
"""Every reason that an outcome can have, besides those of `conversations.conversation`."""


def explain(reason: str, *, declined: bool = False) -> str:
    """In a sentence or two; empty for a reason of another version. `declined`: nobody was to judge it."""
    left_out = LEFT_OUT.get(reason)
    if left_out is None or (reason in REASONS and not declined):
        return REASONS.get(reason, "")
    told = f"{left_out.library} {left_out.did}; what keeps it: {left_out.setting}."
    return told[0].upper() + told[1:]
