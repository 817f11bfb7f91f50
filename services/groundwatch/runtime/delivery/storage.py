"""Whether the streams store what this process publishes.

A nats-server whose disk was full for a moment goes on answering every question and stores nothing more in the
streams that it could not write to, without a word, until it is restarted; so what is published without an
acknowledgement is the one sign. A stream at its limit, and a cluster that has switched JetStream off, say so.
"""

import re
import time

import msgspec

REMEMBER_SECONDS = 60.0
"""So long after the last failure a stream counts as one that does not store, unless it stores again."""

PAUSE_SECONDS = 5.0
"""So long after an event went unacknowledged no other need wait for the same."""

_LIMIT = re.compile(r"maximum (bytes|messages)", re.IGNORECASE)
_NO_ROOM = re.compile(
    r"insufficient|resource|no space|jetstream not|jetstream system|disabled", re.IGNORECASE
)


class Failure(msgspec.Struct, frozen=True):
    """Why events of a kind were not stored, and when that was last so. `at_limit`: the stream's own limit."""

    why: str
    at: float
    at_limit: bool = False


class StorageHealth:
    """What became of the latest events of each kind that this process published."""

    def __init__(self) -> None:
        self._failures: dict[str, Failure] = {}

    def stored(self, subject: str) -> None:
        """An event of this kind is in its stream."""
        if self._failures:
            self._failures.pop(_kind(subject), None)

    def refused(self, subject: str, description: str) -> None:
        """A stream has refused an event for want of room; another reason is no matter here."""
        if _LIMIT.search(description):
            self._failures[_kind(subject)] = Failure(description, time.monotonic(), at_limit=True)
        elif _NO_ROOM.search(description):
            self._failures[_kind(subject)] = Failure(description, time.monotonic())

    def unacknowledged(self, subject: str) -> None:
        """An event was sent over a connection that held, and nothing came back."""
        self._failures[_kind(subject)] = Failure("no acknowledgement", time.monotonic())

    def forget(self) -> None:
        """Another server, or the same one after a restart, may well store."""
        self._failures.clear()

    def pausing(self, subject: str) -> str:
        """Why it is not worth waiting for an event of this kind now; empty when it is."""
        failure = self._failures.get(_kind(subject))
        if failure is None or failure.at_limit or time.monotonic() - failure.at > PAUSE_SECONDS:
            return ""
        return _told(_kind(subject), failure)

    def problems(self) -> list[str]:
        """One line for each kind of event that is not stored, with what to do."""
        return [_told(kind, failure) for kind, failure in self._recent().items()]

    @property
    def needs_restart(self) -> bool:
        """Whether a stream has gone silent, which on a single server only its restart mends."""
        return any(not failure.at_limit for failure in self._recent().values())

    def _recent(self) -> dict[str, Failure]:
        since = time.monotonic() - REMEMBER_SECONDS
        self._failures = {kind: one for kind, one in self._failures.items() if one.at > since}
        return self._failures


def lasting(description: str) -> bool:
    """Whether a refusal would be the same a moment later."""
    return bool(_LIMIT.search(description) or _NO_ROOM.search(description))


def _kind(subject: str) -> str:
    return subject.split(".", 2)[1] if subject.count(".") else subject


def _told(kind: str, failure: Failure) -> str:
    if failure.at_limit:
        return (
            f"the stream of '{kind}' events is at its limit ({failure.why}): remove what is not needed, or "
            "raise the limit"
        )
    return (
        f"the stream of '{kind}' events does not store them ({failure.why}): the disk of its NATS server is "
        "full or was; free space, then restart that server (groundwatch up restarts its own)"
    )
