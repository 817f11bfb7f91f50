"""Reading a run's source page by page."""

from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable

import nats.js.errors
from nats.js import JetStreamContext

from groundwatch.errors import TransientError
from groundwatch.runtime.delivery.streams import FAULTS, Read, read_batches


class PagedReader:
    """Reads page after page; one that begins where the last ended by the same consumer.

    For each new consumer the server counts everything behind its start, at 400,000 subjects for 0.1 s, and
    whoever writes to the stream waits meanwhile: live traffic would notice each page.
    """

    def __init__(
        self, js: JetStreamContext, stream: str, subjects: str, last: int, *, most: Callable[[], int]
    ) -> None:
        """`last` is the end of all pages; `most` as for `read_batches`."""
        self._js = js
        self._stream = stream
        self._subjects = subjects
        self._last = last
        self._most = most
        self._reading: AsyncGenerator[list[Read]] | None = None
        self._ahead: list[Read] = []
        self._at = 0
        self._dry = last + 1

    async def page(self, first: int, last: int) -> AsyncGenerator[list[Read]]:
        """What there is at sequences `first` to `last`.

        Raises `TransientError` when the server goes away, `nats.js.errors.NotFoundError` when there is no
        such stream.
        """
        if first >= self._dry:
            return
        if self._reading is None or self._at != first:
            await self.close()
            self._reading = read_batches(
                self._js,
                self._stream,
                subjects=(self._subjects,),
                start_sequence=first,
                last_sequence=self._last,
                most=self._most,
                timeout=0.0,
            )
        self._at = first
        while self._at <= last:
            messages, self._ahead = self._ahead, []
            if not messages:
                try:
                    messages = await anext(self._reading)
                except StopAsyncIteration:
                    self._reading, self._dry = None, self._at
                    return
                except BaseException as error:
                    self._reading = None
                    if isinstance(error, FAULTS) and not isinstance(error, nats.js.errors.NotFoundError):
                        raise TransientError(repr(error)) from error
                    raise
            inside = bisect_right(messages, last, key=lambda one: one.sequence)
            self._ahead = messages[inside:]
            self._at = messages[inside - 1].sequence + 1 if inside and not self._ahead else last + 1
            if inside:
                yield messages[:inside]

    async def close(self) -> None:
        reading, self._reading = self._reading, None
        self._ahead = []
        if reading is not None:
            await reading.aclose()
