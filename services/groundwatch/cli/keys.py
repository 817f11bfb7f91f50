"""Waiting until somebody presses a key."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Iterator


def has_keys() -> bool:
    """Whether somebody sits before it: standard input and output are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


async def wait_key() -> None:
    """Return when a key is pressed on standard input, which is a terminal; Ctrl-C is one like any other."""
    loop = asyncio.get_running_loop()
    pressed = asyncio.Event()
    descriptor = sys.stdin.fileno()
    with _each_key(descriptor):
        loop.add_reader(descriptor, pressed.set)
        try:
            await pressed.wait()
            os.read(descriptor, 1024)
        finally:
            loop.remove_reader(descriptor)


@contextlib.contextmanager
def _each_key(descriptor: int) -> Iterator[None]:
    """Keys are read one by one, without their echo, while the block runs."""
    import termios

    before = termios.tcgetattr(descriptor)
    changed = termios.tcgetattr(descriptor)
    changed[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG)
    termios.tcsetattr(descriptor, termios.TCSADRAIN, changed)
    try:
        termios.tcflush(descriptor, termios.TCIFLUSH)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
