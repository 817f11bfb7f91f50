"""`submit`'s own sending: nothing that a gateway puts off is lost, and nothing comes twice."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from groundwatch.client import transport
from groundwatch.client.files import submitting
from groundwatch.client.files.submitting import Sent, Submission
from groundwatch.errors import UsageError


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "FIRST_PAUSE", 0.02)
    monkeypatch.setattr(transport, "BUSY_SECONDS", 0.05)


def lines(folder: Path, number: int, **changes: Any) -> Path:
    path = folder / "answers.jsonl"
    records = ({"id": f"r{one}", "model": "m", "answer": f"Answer {one}."} | changes for one in range(number))
    path.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))
    return path


def submit(url: str, path: Path, told: list[str] | None = None) -> Sent:
    submission = Submission(url, path, tell=(told if told is not None else []).append)
    with contextlib.closing(submission):
        done = list(submission.send())
    assert done[-1] == submission.total
    return submission.result


@pytest.mark.parametrize("named", [True, False])
async def test_what_a_full_gateway_puts_off_is_sent_until_it_is_taken(
    named: bool, gateway_factory: Any, tmp_path: Path
) -> None:
    gateway = await gateway_factory(admission={"rate": 150.0, "burst": 40})
    path = lines(tmp_path, 300)
    if not named:
        path.write_text('{"model": "m", "answer": "The same."}\n' * 300)
    told: list[str] = []
    sent = await asyncio.to_thread(submit, gateway.service.url, path, told)
    assert (sent.accepted, sent.refused, sent.errors) == (300, 0, [])
    assert len(await gateway.events()) == 300
    assert any("may send 150 responses a second" in one for one in told)
    again = await asyncio.to_thread(submit, gateway.service.url, path)
    assert (again.accepted, again.duplicates) == (0, 300)


@pytest.mark.parametrize("script", ["503:0 ok", "500 ok", "ok close ok", "ok taken ok", "ok 502 ok"])
def test_faults_on_the_way_lose_and_double_nothing(script: str, bad_gateway: Any, tmp_path: Path) -> None:
    gateway = bad_gateway(*script.split())
    sent = submit(gateway.url, lines(tmp_path, 250))
    assert sent.refused == 0 and sent.accepted + sent.duplicates == 250
    assert set(gateway.ids) == {f"r{one}" for one in range(250)}


def test_who_gives_up_says_why_and_what_to_do(
    bad_gateway: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submitting, "FULL_SECONDS", 0.2)
    with pytest.raises(UsageError, match=r"has taken nothing for .* Run the same command again"):
        submit(bad_gateway("503:0").url, lines(tmp_path, 3))
    with pytest.raises(UsageError, match="answered 404"):
        submit(bad_gateway("404").url, lines(tmp_path, 3))


def test_a_response_that_the_gateway_fails_of_is_named_and_the_others_taken(
    bad_gateway: Any, tmp_path: Path
) -> None:
    gateway = bad_gateway("500", *["500"] * transport.MOST_ATTEMPTS, "ok")
    sent = submit(gateway.url, lines(tmp_path, 5))
    assert (sent.accepted, sent.refused, sent.errors[0].line) == (4, 1, 1)
    assert "after 5 attempts" in sent.errors[0].error
