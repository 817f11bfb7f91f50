"""Recorded events, whether a stream still holds them (hot) or the archive alone does (cold).

What leaves a stream is in the archive first. So of a stream that begins at sequence n, everything below n is
read from the archive, as it is after the stream was asked, and everything else from the stream. While the
stream is read it is asked again for every batch: where it begins later by then, what it gave may have a gap,
and reading goes on in the archive from there.

A stream that was made anew counts from 1 again. Its sequences are not those of the old one, and only the
present one's events have a place in what is read.
"""

import contextlib
import time
from asyncio import gather
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import date
from functools import partial
from typing import Protocol

import msgspec
from nats.js import JetStreamContext

from groundwatch.errors import TransientError
from groundwatch.events import REPLACEABLE
from groundwatch.runtime.delivery.lookups import Count, count_messages, newest_message, next_message
from groundwatch.runtime.delivery.streams import (
    FAULTS,
    MOST,
    RESUME_SECONDS,
    Batch,
    Position,
    Read,
    follow_stream,
    last_message,
    position_of,
    read_batches,
    until_there,
)
from groundwatch.topology import HEADER_REASON, OUTCOMES
from groundwatch.topology.partitions import kind_of


class LostFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that the archive should have and has not, or that is damaged: it held events of this stream that
    were stored on this day, of the sequences `first` to `last`, of which other files may have others."""

    path: str
    stream: str
    day: date
    first: int
    last: int


class Cold(Protocol):
    """The archive's part of a stream, which `created` (µs since the epoch) tells from others of its name.

    `subjects` are filters as a stream takes them, with wildcards; none means all. Sequences are `first` to
    `last`, both included. Everything raises `TransientError` when the archive does not answer,
    `MissingExtraError` without what reading it takes.
    """

    def read(
        self,
        stream: str,
        created: int,
        *,
        subjects: Sequence[str],
        first: int,
        last: int,
        headers_only: bool = False,
    ) -> AsyncGenerator[list[Read]]:
        """The events in the order of their sequences."""
        ...

    async def last_of_each(
        self, stream: str, created: int, subjects: Sequence[str], last: int
    ) -> dict[str, Read]:
        """The last event, up to sequence `last`, of each of these subjects that has one."""
        ...

    async def count(
        self, stream: str, created: int, *, subjects: Sequence[str], first: int, last: int
    ) -> int:
        """How many events that are."""
        ...

    async def lost_files(self) -> list[LostFile]:
        """Files of the archive that are lost or damaged: all of them are read whole."""
        ...

    def without_lost(self, on_lost: Callable[[LostFile], None]) -> "Cold":
        """The same, without what was in files that are lost, each of which `on_lost` is told once."""
        ...


class History:
    """Events of one server's streams, and of their archive where there is one."""

    def __init__(self, js: JetStreamContext, cold: Cold | None = None) -> None:
        self.js = js
        self._cold = cold

    @property
    def partitions(self) -> int:
        """How many streams a name of `ARCHIVED` means."""
        return 1

    @property
    def of_one_partition(self) -> "History":
        """The same where each name of a stream is that of one partition's."""
        return self

    async def read(
        self,
        stream: str,
        *,
        subjects: Sequence[str] = (),
        headers_only: bool = False,
        start_sequence: int = 1,
        last_sequence: int | None = None,
    ) -> AsyncGenerator[Read]:
        """`batches`, event by event."""
        reading = self.batches(
            stream,
            subjects=subjects,
            headers_only=headers_only,
            start_sequence=start_sequence,
            last_sequence=last_sequence,
        )
        async with contextlib.aclosing(reading):
            async for several in reading:
                for one in several:
                    yield one

    async def batches(
        self,
        stream: str,
        *,
        subjects: Sequence[str] = (),
        headers_only: bool = False,
        start_sequence: int = 1,
        last_sequence: int | None = None,
        most: Callable[[], int] = lambda: MOST,
        timeout: float = RESUME_SECONDS,
    ) -> AsyncGenerator[list[Read]]:
        """Every event from `start_sequence` up to what is recorded now (or `last_sequence`), in order: each
        once, however much of it leaves the stream meanwhile. Arguments and errors are those of
        `read_batches`."""
        reading = partial(
            read_batches,
            self.js,
            stream,
            subjects=subjects,
            headers_only=headers_only,
            most=most,
            timeout=timeout,
        )
        if self._cold is None:
            alone = reading(start_sequence=start_sequence, last_sequence=last_sequence)
            async with contextlib.aclosing(alone):
                async for several in alone:
                    yield several
            return
        held = begun = await self._position(stream)
        last = held.last if last_sequence is None else min(held.last, last_sequence)
        position = max(start_sequence, 1)
        while position <= last:
            if position < held.first:
                until = min(last, held.first - 1)
                cold = self._cold.read(
                    stream,
                    held.created,
                    subjects=subjects,
                    first=position,
                    last=until,
                    headers_only=headers_only,
                )
                async with contextlib.aclosing(cold):
                    async for several in cold:
                        if standing := await self._standing(stream, held, several):
                            yield standing
                position = until + 1
                continue
            hot = reading(start_sequence=position, last_sequence=last)
            async with contextlib.aclosing(hot):
                async for several in hot:
                    held = await self._position(stream, begun, timeout)
                    if held.first > position:
                        # What came may lack what has just left.
                        break
                    yield several
                    position = several[-1].sequence + 1
                else:
                    held = await self._position(stream, begun, timeout)
                    if held.first <= position:
                        return

    async def follow(
        self,
        stream: str,
        *,
        subjects: Sequence[str] = (),
        start_sequence: int = 1,
        on_fault: Callable[[str], None] | None = None,
    ) -> AsyncGenerator[Batch]:
        """`follow_stream`, from what has left the stream on. Until it has come to the end for the first time,
        nothing is missed that leaves meanwhile."""
        position = max(start_sequence, 1)
        behind = self._cold is not None
        while True:
            held = await self._position(stream) if behind else None
            if held is not None and position < held.first and position <= held.last:
                reading = self.batches(
                    stream, subjects=subjects, start_sequence=position, last_sequence=held.first - 1
                )
                async with contextlib.aclosing(reading):
                    async for several in reading:
                        # That there is no more is for the stream to say.
                        yield Batch(several, held.last + 1 - several[-1].sequence)
                position = held.first
                continue
            following = follow_stream(
                self.js, stream, subjects=subjects, start_sequence=position, on_fault=on_fault
            )
            async with contextlib.aclosing(following):
                async for batch in following:
                    if behind and (await self._position(stream)).first > position:
                        # What came may lack what has just left.
                        break
                    if batch.messages:
                        position = batch.messages[-1].sequence + 1
                    behind = behind and batch.pending > 0
                    yield batch
                else:
                    return

    async def last(self, stream: str, subject: str) -> Read | None:
        """The last event on this subject, which may have wildcards; None where there is none."""
        found = await newest_message(self.js, stream, subject)
        if found is not None or self._cold is None:
            return found
        return (await self._cold_last(stream, [subject])).get(subject)

    async def last_of_each(self, stream: str, subjects: Sequence[str]) -> list[Read | None]:
        """The last event on each of these subjects, together: in the archive they are looked for at once."""
        found = await gather(*(last_message(self.js, stream, subject) for subject in subjects))
        missing = [subject for subject, one in zip(subjects, found, strict=True) if one is None]
        if not missing or self._cold is None:
            return found
        cold = await self._cold_last(stream, missing)
        return [one or cold.get(subject) for subject, one in zip(subjects, found, strict=True)]

    async def next(self, stream: str, subject: str, sequence: int) -> Read | None:
        """The first event on this subject, which may have wildcards, at or behind a sequence."""
        if self._cold is None:
            return await next_message(self.js, stream, subject, sequence)
        while True:
            held = await self._position(stream)
            if sequence < held.first:
                reading = self._cold.read(
                    stream, held.created, subjects=(subject,), first=sequence, last=held.first - 1
                )
                async with contextlib.aclosing(reading):
                    async for several in reading:
                        if standing := await self._standing(stream, held, several):
                            return standing[0]
                sequence = held.first
            found = await next_message(self.js, stream, subject, sequence)
            if (await self._position(stream)).first <= sequence:
                return found

    async def count(self, stream: str, subject: str) -> Count:
        """How many events there are on this subject, which may have wildcards: see `count_messages`.

        Of outcomes that were replaced when they were cold already, both are counted.
        """
        while True:
            held = await self._position(stream)
            hot = await count_messages(self.js, stream, subject)
            if self._cold is None or held.first <= 1:
                return hot
            cold = await self._cold.count(
                stream, held.created, subjects=(subject,), first=1, last=held.first - 1
            )
            if (await self._position(stream)).first == held.first:
                return Count(hot.number + cold, hot.exact)

    async def first_sequence(self, stream: str) -> int:
        """The sequence of the oldest event; one behind the newest where there is none."""
        oldest = await self.next(stream, ">", 1)
        return oldest.sequence if oldest is not None else (await position_of(self.js, stream)).last + 1

    async def _cold_last(self, stream: str, subjects: Sequence[str]) -> dict[str, Read]:
        """Of subjects on which the stream held nothing a moment ago."""
        assert self._cold is not None
        held = await self._position(stream)
        if held.first <= 1:
            return {}
        return await self._cold.last_of_each(stream, held.created, subjects, held.first - 1)

    async def _standing(self, stream: str, held: Position, several: list[Read]) -> list[Read]:
        """Without outcomes that stood for a dead letter and were replaced when they had left the stream: of
        those, nobody but the reader can tell."""
        if kind_of(stream) != OUTCOMES:
            return several
        stood = {one.subject for one in several if one.headers.get(HEADER_REASON) in REPLACEABLE}
        if not stood:
            return several
        newest = await self.last_of_each(stream, list(stood))
        replaced = {one.subject: one.sequence for one in newest if one is not None}
        return [one for one in several if one.sequence >= replaced.get(one.subject, 0)]

    async def _position(self, stream: str, begun: Position | None = None, timeout: float = 0.0) -> Position:
        """What the stream holds now, where it is the one that was begun with.

        Raises `TransientError` for another one, and when the server stays away for `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while True:
            try:
                now = await position_of(self.js, stream)
            except FAULTS as error:
                if begun is None:
                    raise
                if time.monotonic() >= deadline:
                    raise TransientError(f"reading {stream} broke off: {error!r}") from error
                await until_there(self.js, stream, deadline)
                continue
            if begun is not None and now.created != begun.created:
                raise TransientError(f"{stream} was made anew while it was read: begin again")
            return now
