"""TOML that others wrote."""

from __future__ import annotations

import pytest

from groundwatch.toml import NotToml, parse, read

BAD = {
    "deep": b"a = " + b"[" * 100_000,
    "deep keys": b".".join([b"a"] * 3_000) + b" = 1",
    "digits": b"a = " + b"9" * 5_000,
    "bytes": b'a = "\xff"',
    "nul": b"a\x00 = 1",
    "no TOML": b"{}",
}


@pytest.mark.parametrize("name", BAD)
def test_whatever_is_wrong_is_one_error(name, tmp_path):
    file = tmp_path / "x.toml"
    file.write_bytes(BAD[name])
    with pytest.raises(NotToml):
        read(file)


def test_what_is_right_is_read():
    assert parse("[a.b.c.d]\ne = [[1], [2]]") == {"a": {"b": {"c": {"d": {"e": [[1], [2]]}}}}}
