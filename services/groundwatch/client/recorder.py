"""`Recorder`: hands responses over to a thread that sends them to a gateway."""

from __future__ import annotations

import atexit
import itertools
import os
import secrets
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from groundwatch.client.lines import Line, held, make_line
from groundwatch.client.transport import TOKEN_VARIABLE, Connection
from groundwatch.client.worker import Buffer, Worker, waiting

MAX_BYTES = 64 * 1024 * 1024
INTERVAL = 0.1
"""Seconds that the thread sleeps where nothing is to be done."""

EXIT_SECONDS = 2.0
LOOK = 0.005


class Recorder:
    """Records responses without ever blocking, slowing or failing its caller, from any thread or task.

    What cannot be kept within `max_bytes`, or cannot be sent, is dropped and counted, and the gateway is told
    the count under the name `sender`. A process that is forked begins with an empty recorder of its own.
    """

    def __init__(
        self,
        gateway: str,
        *,
        token: str = "",
        sender: str = "",
        tenant: str = "",
        tags: Mapping[str, str] | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """`token` is that of the environment's GROUNDWATCH_TOKEN where none is given, `sender` this machine.

        `tenant` and `tags` are those of all responses that name none. Raises `ValueError` for what is no
        address or no token.
        """
        self._gateway = gateway
        self._token = token or os.environ.get(TOKEN_VARIABLE, "").strip()
        self._sender = (sender or socket.gethostname() or "unnamed")[:128]
        self._defaults = {"tenant": tenant} if tenant else {}
        self._tags = dict(tags or {})
        self._max_bytes = max_bytes
        Connection(gateway, self._token)
        self._begin()
        _RECORDERS.add(self)
        if waiting(gateway, self._token):
            self._start()

    def _begin(self) -> None:
        """Everything that belongs to one process."""
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._worker: Worker | None = None
        self._closed = False
        self._name = secrets.token_hex(8)
        self._numbers = itertools.count(1)
        self.buffer = Buffer(self._max_bytes)

    def record(
        self,
        *,
        model: str,
        answer: str,
        prompt: str = "",
        images: Sequence[Any] = (),
        id: str = "",
        tags: Mapping[str, str] | None = None,
        tenant: str = "",
        protocols: Sequence[str] = (),
        reference: Mapping[str, Any] | None = None,
    ) -> str:
        """Hand over one response, and get its id. The same id sent again counts once.

        An image is its bytes, a data URL, the address or the SHA-256 of an image, a path (read when it is
        sent), or a picture of Pillow's or an array, which is copied here and encoded later.
        """
        try:
            name = id or self.new_id()
            given = [images] if isinstance(images, str | bytes | bytearray | os.PathLike) else images
            kept = [held(image) for image in given]
            size = len(answer) + len(prompt) + sum(size for size, _ in kept)
            if not (answer.isascii() and prompt.isascii()):
                size += 3 * (len(answer) + len(prompt))
            fields = {
                "id": name,
                "model": model,
                "answer": answer,
                "prompt": prompt,
                "images": [image for _, image in kept],
                "tags": dict(tags) if tags else None,
                "tenant": tenant,
                "protocols": tuple(protocols),
                "reference": reference,
            }
        except Exception:
            self.lose("unreadable")
            return ""
        self.take(size, self.line, (fields,))
        return name

    def line(self, fields: Mapping[str, Any]) -> Line:
        """A line with this recorder's own tenant and tags; for the sending thread."""
        given = {name: value for name, value in fields.items() if value or name not in self._defaults}
        tags = {**self._tags, **(fields.get("tags") or {})}
        return make_line(**(self._defaults | given | {"tags": tags}))

    def new_id(self) -> str:
        """One that no other process and no other recorder makes."""
        return f"{self._name}-{next(self._numbers)}"

    def take(self, size: int, read: Any, arguments: tuple[Any, ...]) -> None:
        """Hand over what `read(*arguments)` makes a `Line` of, in the sending thread; or count it as lost."""
        self._do(lambda: self.buffer.put(size, read, arguments))

    def take_reserved(self, buffer: Buffer, size: int, read: Any, arguments: tuple[Any, ...]) -> None:
        """The same for what has its room in `buffer` already; nothing where that is another process's."""
        self._do(lambda: buffer is self.buffer and buffer.put_reserved(size, read, arguments))

    def lose(self, reason: str) -> None:
        """Count one response that cannot be sent."""
        self._do(lambda: self.buffer.lose(reason))

    def _do(self, work: Callable[[], bool | None]) -> None:
        """Whatever fails, the caller goes on."""
        try:
            if self._ready() and work() is not False and self._worker is None:
                self._start()
        except Exception:
            self.buffer.lose("bug")

    def _ready(self) -> bool:
        if self._pid != os.getpid():
            self._begin()
        return not self._closed

    def _start(self) -> None:
        with self._lock:
            if self._worker is not None or self._closed:
                return
            connection = Connection(self._gateway, self._token)
            worker = Worker(self.buffer, connection, self._sender, INTERVAL, self._token)
            try:
                worker.start()
            except RuntimeError:
                # No thread can be had now; the next call tries again.
                return
            self._worker = worker
            # A child of multiprocessing ends without what `atexit` would do.
            if (util := sys.modules.get("multiprocessing.util")) is not None:
                util.Finalize(self, _close, args=(weakref.ref(self),), exitpriority=10)

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until all that was recorded so far is sent or counted as lost, and the gateway knows the
        count; at most `timeout` seconds. False when that was not long enough."""
        done = self._hurry()
        for pause in _pauses(time.monotonic() + timeout, done):
            time.sleep(pause)
        return done()

    async def aflush(self, timeout: float = 5.0) -> bool:
        """The same without blocking the event loop."""
        import asyncio

        done = self._hurry()
        for pause in _pauses(time.monotonic() + timeout, done):
            await asyncio.sleep(pause)
        return done()

    def _hurry(self) -> Callable[[], bool]:
        self._ready()
        worker, buffer = self._worker, self.buffer
        target = buffer.put_in
        if worker is not None:
            worker.hurry()
        return lambda: buffer.taken_out >= target and (worker is None or worker.settled)

    def close(self, timeout: float = EXIT_SECONDS) -> None:
        """Send all, for at most `timeout` seconds; what is recorded later is dropped.

        What cannot be sent is counted, and the gateway is told; where it does not answer, at the next start.
        """
        deadline = time.monotonic() + timeout
        _wait(self._end(deadline), deadline)

    async def aclose(self, timeout: float = EXIT_SECONDS) -> None:
        """The same without blocking the event loop."""
        import asyncio

        deadline = time.monotonic() + timeout
        worker = self._end(deadline)
        if worker is not None:
            for pause in _pauses(deadline, lambda: worker.finished):
                await asyncio.sleep(pause)
            worker.abandon()

    def _end(self, deadline: float) -> Worker | None:
        self._ready()
        with self._lock:
            if not self._closed:
                self._closed = True
                if self._worker is not None:
                    self._worker.end(deadline)
            return self._worker

    @property
    def lost(self) -> dict[str, int]:
        """How many responses were lost so far, by reason.

        One that was sent at the end and not answered is among them until the gateway says that it has it.
        """
        return self.buffer.lost()

    def __del__(self) -> None:
        # Whoever lets go of a recorder without closing it leaves no thread behind.
        worker = getattr(self, "_worker", None)
        if worker is not None and self._pid == os.getpid():
            worker.end(time.monotonic() + EXIT_SECONDS)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Recorder:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


_RECORDERS: weakref.WeakSet[Recorder] = weakref.WeakSet()


def _close(reference: weakref.ref[Recorder]) -> None:
    recorder = reference()
    if recorder is not None:
        recorder.close()


def _close_all() -> None:
    """At exit: all of them end at the same time."""
    deadline = time.monotonic() + EXIT_SECONDS
    for worker in [recorder._end(deadline) for recorder in list(_RECORDERS)]:
        _wait(worker, deadline)


def _wait(worker: Worker | None, deadline: float) -> None:
    if worker is not None:
        for pause in _pauses(deadline, lambda: worker.finished):
            time.sleep(pause)
        worker.abandon()


def _pauses(deadline: float, done: Callable[[], bool]) -> Iterator[float]:
    """Seconds to sleep, again and again, until it is done or the deadline (monotonic) is over."""
    while not done() and (left := deadline - time.monotonic()) > 0:
        yield min(LOOK, left)


def _begin_all() -> None:
    """In a process that was forked: what the other had waiting is the other's to send."""
    for recorder in list(_RECORDERS):
        recorder._begin()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_all)
