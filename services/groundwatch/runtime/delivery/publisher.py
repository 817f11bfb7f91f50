"""Publishing to JetStream with many acknowledgements in the air, at little cost for each.

nats-py's `publish_async` does the same with a random token, a JSON object and a dataclass for every
message; a stage that judges nothing would spend most of its time there.
"""

import asyncio
import re
import time
from collections.abc import Generator, Iterable
from enum import Enum
from typing import Any, NamedTuple

import msgspec
import nats.errors
from nats.aio.msg import Msg

from groundwatch.errors import (
    UNDECODED,
    InputError,
    NotStored,
    TransientError,
    Unacknowledged,
    Unavailable,
    words,
)
from groundwatch.runtime.delivery.connection import Connection

SERVER_FAULT = 500
WRONG_LAST_SEQUENCE = 10071
"""JetStream's error code when the subject already holds another message than expected."""

MAX_PENDING = 4_000

HEADROOM = 4_096
"""Bytes that an event must leave free below the server's max_payload: the server counts headers, and cuts
the connection of a client that goes beyond; and its dead letter, should it need one, has longer headers."""

SWEEP_SECONDS = 1.0

REMEMBER_SECONDS = 60.0
"""So long after the last failure a stream counts as one that does not store, unless it stores again."""

PAUSE_SECONDS = 5.0
"""So long after an event went unacknowledged no other need wait for the same."""

_LIMIT = re.compile(r"maximum (bytes|messages)", re.IGNORECASE)
_NO_ROOM = re.compile(
    r"insufficient|resource|no space|jetstream not|jetstream system|disabled", re.IGNORECASE
)


class Stored(Enum):
    """What became of an event that was to be created."""

    NEW = "new"
    EXISTED = "existed"


class _Refusal(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _Ack(msgspec.Struct):
    seq: int = 0
    duplicate: bool = False
    error: _Refusal | None = None


_DECODER = msgspec.json.Decoder(_Ack)
_NOBODY = _Ack(error=_Refusal(code=503, description="no stream takes this subject"))


class Receipt:
    """An event that was sent, waiting for the stream to say that it has it. Await it, or `wait_acks` many."""

    __slots__ = ("future", "subject", "timeout")

    def __init__(self, subject: str, future: asyncio.Future[_Ack], timeout: float) -> None:
        self.subject = subject
        self.future = future
        self.timeout = timeout

    def __await__(self) -> Generator[Any, None, Stored]:
        return self._wait().__await__()

    async def _wait(self) -> Stored:
        await wait_acks([self])
        return self.result()

    def result(self) -> Stored:
        """What became of it.

        Raises `Unacknowledged` when the stream has not, or not yet, said so, `TransientError` when it
        refused.
        """
        if not self.future.done():
            raise Unacknowledged(f"no acknowledgement for {self.subject} within {self.timeout:g} s")
        ack = self.future.result()
        if ack.error is None:
            return Stored.EXISTED if ack.duplicate else Stored.NEW
        if ack.error.err_code == WRONG_LAST_SEQUENCE:
            return Stored.EXISTED
        why = f"the stream refused {self.subject}: {ack.error.description}"
        if lasting(ack.error.description):
            raise NotStored(why)
        # Without a leader is no fault of the event; anything else may be.
        raise Unavailable(why) if ack.error.code >= SERVER_FAULT else TransientError(why)


async def wait_acks(receipts: Iterable[Receipt]) -> None:
    """Wait for all of them, at most one timeout long; each then has its own `result`."""
    waiting = [receipt for receipt in receipts if not receipt.future.done()]
    if not waiting:
        return
    deadline = time.monotonic() + waiting[0].timeout
    # A stream answers in order: mostly there is only the last to wait for.
    await asyncio.wait([waiting[-1].future], timeout=waiting[0].timeout)
    if left := [receipt.future for receipt in waiting if not receipt.future.done()]:
        await asyncio.wait(left, timeout=max(0.0, deadline - time.monotonic()))


class _Sent(NamedTuple):
    """An event on its way, sent at that time of the loop, after so many reconnects."""

    at: float
    future: asyncio.Future[_Ack]
    subject: str
    reconnects: int


class Failure(msgspec.Struct, frozen=True):
    """Why events of a kind were not stored, and when that was last so. `at_limit`: the stream's own limit."""

    why: str
    at: float
    at_limit: bool = False


class StorageHealth:
    """Whether the streams store what this process publishes: the latest events of each kind.

    A nats-server whose disk was full for a moment goes on answering every question and stores nothing more
    in the streams that it could not write to, without a word, until it is restarted; so what is published
    without an acknowledgement is the one sign. A stream at its limit, and a cluster that has switched
    JetStream off, say so.
    """

    def __init__(self) -> None:
        self._failures: dict[str, Failure] = {}

    def stored(self, subject: str) -> None:
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
        failure = self._failures.get(_kind(subject)) if self._failures else None
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


class Publisher:
    """Publishes over one connection and has one inbox; `storage` is told what became of each event."""

    def __init__(self, client: Connection, *, timeout: float, storage: StorageHealth | None = None) -> None:
        self._client = client
        self._timeout = timeout
        self._storage = storage or StorageHealth()
        self._inbox = client.new_inbox()
        # By age: what was sent first stands first.
        self._pending: dict[str, _Sent] = {}
        self._room = asyncio.Semaphore(MAX_PENDING)
        self._last = 0
        self._sweeping: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        await self._client.subscribe(f"{self._inbox}.*", cb=self._acknowledged)

    async def send(
        self, subject: str, payload: bytes, headers: dict[str, str] | None, *, whole: bool = False
    ) -> Receipt:
        """Send, waiting only while too many acknowledgements are outstanding.

        `whole` lets the event take the `HEADROOM` as well. Raises `InputError` when the event is too large
        to ever fit, `Unavailable` otherwise.
        """
        self._refuse_oversize(payload, headers, HEADROOM if not whole else 0)
        if self._room.locked():
            try:
                await asyncio.wait_for(self._room.acquire(), self._timeout)
            except TimeoutError:
                raise Unavailable(f"{MAX_PENDING} events wait for acknowledgement") from None
        else:
            await self._room.acquire()
        self._last += 1
        token = str(self._last)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Ack] = loop.create_future()
        self._pending[token] = _Sent(loop.time(), future, subject, self._reconnects)
        try:
            await self._client.publish(subject, payload, f"{self._inbox}.{token}", headers)
        except (nats.errors.Error, OSError) as error:
            self._forget(token)
            raise Unavailable(f"publishing to {subject} failed: {words(error)}") from error
        except BaseException:
            self._forget(token)
            raise
        if self._sweeping is None:
            self._sweeping = loop.call_later(SWEEP_SECONDS, self._sweep)
        return Receipt(subject, future, self._timeout)

    def _refuse_oversize(self, payload: bytes, headers: dict[str, str] | None, reserved: int) -> None:
        size = len(payload) + reserved
        limit = self._client.max_payload
        if not reserved and headers:
            size += 16 + sum(len(name) + len(value.encode()) + 4 for name, value in headers.items())
        if size > limit:
            kept = f", {reserved} of which are kept for headers" if reserved else ""
            raise InputError(
                f"event of {len(payload)} bytes does not fit the server's max_payload of {limit}{kept}"
            )

    async def _acknowledged(self, message: Msg) -> None:
        sent = self._forget(message.subject.rpartition(".")[2])
        if sent is None or sent.future.done():
            return
        future = sent.future
        if not message.data:
            future.set_result(_NOBODY)
            return
        try:
            ack = _DECODER.decode(message.data)
            future.set_result(ack)
            if ack.error is None or ack.error.err_code == WRONG_LAST_SEQUENCE:
                self._storage.stored(sent.subject)
            else:
                self._storage.refused(sent.subject, ack.error.description)
        except UNDECODED as error:
            future.set_result(_Ack(error=_Refusal(description=f"unreadable acknowledgement: {error}")))

    @property
    def _reconnects(self) -> int:
        return self._client.stats["reconnects"]

    def _forget(self, token: str) -> _Sent | None:
        sent = self._pending.pop(token, None)
        if sent is None:
            return None
        self._room.release()
        return sent

    def _sweep(self) -> None:
        """Forget what was never acknowledged. One timer for all: one for each would outlive thousands."""
        loop = asyncio.get_running_loop()
        oldest = loop.time() - self._timeout - SWEEP_SECONDS
        while self._pending:
            token, sent = next(iter(self._pending.items()))
            if sent.at > oldest:
                break
            self._forget(token)
            if self._client.is_connected and sent.reconnects == self._reconnects:
                self._storage.unacknowledged(sent.subject)
        self._sweeping = loop.call_later(SWEEP_SECONDS, self._sweep) if self._pending else None
