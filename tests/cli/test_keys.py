"""Waiting for a key on a terminal."""

from __future__ import annotations

import asyncio
import os
import pty
import sys
import termios

import pytest

from groundwatch.cli.up import has_keys, wait_key


@pytest.mark.parametrize("key", [b"q", b"\x03", b"\x1b[A"])
async def test_any_key_ends_it_and_the_terminal_is_as_before(monkeypatch, key):
    master, slave = pty.openpty()
    try:
        with os.fdopen(slave, closefd=False) as terminal:
            monkeypatch.setattr(sys, "stdin", terminal)
            before = termios.tcgetattr(slave)
            waiting = asyncio.create_task(wait_key())
            await asyncio.sleep(0.1)
            assert not waiting.done()
            os.write(master, key)
            await asyncio.wait_for(waiting, 5)
            assert termios.tcgetattr(slave) == before
    finally:
        os.close(master)
        os.close(slave)


def test_nobody_sits_before_a_file(monkeypatch, tmp_path):
    (tmp_path / "in").write_text("x")
    with (tmp_path / "in").open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert not has_keys()
