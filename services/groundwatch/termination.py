"""What SIGTERM does, from the first line of ours that Python runs.

Until a command says otherwise, SIGTERM ends it as Ctrl-C does: what it had begun is cleaned up. A service has
then done what it was told and ends with 0; any other command with 143, since its work is not done.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SERVICES = ("serve", "up")
"""Commands that run until they are told to stop."""

ENDLESS = "--every"
"""The option that makes others do so."""

STATUS = 128 + signal.SIGTERM

_listeners: list[Callable[[], object]] = []
_begun = False
_came = False


def install() -> None:
    """Handle SIGTERM from now on; once for a process, and only where nobody else does."""
    ours = threading.current_thread() is threading.main_thread()
    if ours and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _received)


def begin() -> None:
    """From now on there may be something to clean up."""
    global _begun
    _begun = True


def status() -> int:
    """The exit status of a command that SIGTERM has ended."""
    named = next((one for one in sys.argv[1:] if not one.startswith("-")), "")
    runs_on = named in SERVICES or any(one.partition("=")[0] == ENDLESS for one in sys.argv)
    return 0 if runs_on else STATUS


def came() -> bool:
    return _came


def listen(listener: Callable[[], object]) -> Callable[[], None]:
    """Call `listener`, in the main thread and between any two of its steps, in place of ending.

    What comes back ends that; of several the last one is called.
    """
    install()
    _listeners.append(listener)
    return lambda: _listeners.remove(listener)


def tell() -> None:
    """The one line of a command that SIGTERM has ended."""
    sys.stderr.write("groundwatch: ended by SIGTERM\n")
    sys.stderr.flush()


@contextmanager
def calling(listener: Callable[[], object]) -> Iterator[None]:
    """`listen` while the block runs."""
    stop = listen(listener)
    try:
        yield
    finally:
        stop()


def _received(*_: object) -> None:
    global _came
    _came = True
    if _listeners:
        _listeners[-1]()
        return
    tell()
    if not _begun:
        # Half-loaded libraries take an exception badly.
        os._exit(status())
    raise SystemExit(status())
