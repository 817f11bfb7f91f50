"""What the archive's tests share: outcomes as scoring makes them, and a real S3 server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from groundwatch.archive.outcomes import Archive, Row
from groundwatch.events import (
    Box,
    Decision,
    Drawn,
    Judge,
    JudgedClaim,
    Label,
    LeftOut,
    LeftOutKind,
    OutcomeKind,
    ResponseScored,
    SubSentence,
    Usage,
)

SERVER = """
import time
import boto3
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
url = "http://{}:{}".format(*server.get_host_and_port())
boto3.client("s3", endpoint_url=url).create_bucket(Bucket="bucket")
print(url, flush=True)
time.sleep(3600)
"""

DAY = 1_772_323_200.0
"""2026-03-01, midnight UTC."""

STREAM = 1_772_000_000_000_000
CATEGORIES = ("entity", "color", "count")
DRAWN = (
    Drawn(),
    Drawn(),
    Drawn(probability=0.25, lowest=0.25, stratum="ordinary", budget="thrifty"),
    Drawn(probability=0.7, lowest=0.25, stratum="suspicious", budget="thrifty"),
)


BOXES = (
    Box(x0=0.1, y0=0.2, x1=0.3, y1=0.4, score=0.9, label="a dog’s"),
    Box(x0=0, y0=0, x1=1, y1=1, score=0.5, label="mat", image=1),
)


def outcome(number: int, **changes: object) -> ResponseScored:
    """An outcome with claims that its number decides; every seventh is unscored."""
    scored = number % 7 != 0
    decisions = [tuple(Decision)[(number + at) % 3] for at in range(number % 5)]
    values = {
        "id": f"response-{number}",
        "tenant": f"tenant-{number % 2}",
        "model": f"model-{number % 3}",
        "protocol": "faithscore",
        "outcome": OutcomeKind.SCORED if scored else OutcomeKind.UNSCORED,
        "reason": "" if scored else "refused",
        "score": (number % 11) / 10 if scored else None,
        "values": {"faithscore.color": 0.5, "entities": 3.0} if scored else {},
        "judges": {"extraction": Judge(engine="rules"), "verification": Judge(engine="llm", model="judge")},
        "units": (SubSentence(start=0, end=7, text="A dog’s", label=Label.DESCRIPTIVE, confidence=0.9),),
        "claims": tuple(
            JudgedClaim(
                text=f"There is thing {number}-{at}.",
                category=CATEGORIES[(number + at) % 3],
                unit=0,
                decision=decision,
                probability=at / 10 if at else None,
                evidence="seen" if at % 2 else "",
                parts=("a", "b")[:at],
                boxes=BOXES[:at],
                span=(at, at + 2) if at % 2 else None,
                hedged=at == 2,
                place="12, 30, 45, 61" if at == 1 else "",
            )
            for at, decision in enumerate(decisions)
        ),
        "eligible": len(decisions),
        "decided": sum(decision is not Decision.UNDECIDED for decision in decisions),
        "answer_words": number,
        "usage": Usage(calls=2, input_tokens=100, output_tokens=10, cost=0.001),
        "drawn": DRAWN[number % len(DRAWN)],
        "tags": {"version": "7", "strategy": f"s{number % 2}"} if number % 3 else {},
        "recorded_at": DAY + 3_600.0 * number + 0.123456,
        "scored_at": DAY + 3_600.0 * number + 2.5,
        "left_out": (LeftOut(start=0, end=5, kind=LeftOutKind.LANGUAGE, detail="de"),) * (number % 2),
    }
    return ResponseScored(**(values | changes))


def row(number: int, *, supersedes: int = 0, sequence: int = 0, **changes: object) -> Row:
    """The outcome of this number at the stream's place of this number."""
    event = outcome(number, **changes)
    return Row(
        event=event,
        key=event.key,
        stream=STREAM,
        sequence=sequence or number,
        stored_at=event.scored_at,
        supersedes=supersedes,
    )


def rows(first: int, end: int) -> list[Row]:
    """Several of them, `end` excluded."""
    return [row(number) for number in range(first, end)]


def add(archive: Archive, several: Sequence[Row]) -> None:
    """Write them, up to the last one."""
    archive.add(several, created=STREAM, position=several[-1].sequence)


@pytest.fixture(scope="session")
def s3() -> Iterator[dict[str, object]]:
    """Options of a real S3-compatible server of this test process, with a bucket `bucket`."""
    keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_DEFAULT_REGION": "us-east-1"}
    before = {name: os.environ.get(name) for name in keys}
    os.environ.update(keys)
    # In a process of its own: delta-rs keeps all others of ours waiting at times, and so it would the server.
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert server.stdout is not None
        yield {"endpoint_url": server.stdout.readline().strip(), "allow_http": True}
    finally:
        server.terminate()
        server.wait()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@pytest.fixture(params=["folder", "s3"])
def open_archive(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Archive]:
    """Opens one place anew, as another process would."""
    if request.param == "folder":
        return partial(Archive, str(tmp_path / "archive"))
    return partial(Archive, f"s3://bucket/{tmp_path.name}", request.getfixturevalue("s3"))
