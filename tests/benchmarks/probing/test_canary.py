"""groundwatch probe --every: rounds on a schedule, told and measured, that end when they are told to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from tests.support.llm_server import LlmServer, picture, running
from typer.testing import CliRunner, Result

from groundwatch.cli import app
from groundwatch.errors import UsageError
from groundwatch.runtime.settings import Settings
from groundwatch.times import read_interval
from groundwatch_benchmarks.probing.probe import Canary, Plan
from groundwatch_benchmarks.probing.suites import Target, benchmark


@pytest.fixture
def server() -> Iterator[LlmServer]:
    with running() as started:
        yield started


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """POPE's questions about four images, two of which show a dog."""
    where = tmp_path / "benchmark"
    (where / "images").mkdir(parents=True)
    lines = []
    for number, words in enumerate(("dog", "cat", "dog tree", "tree"), start=1):
        (where / "images" / f"{number}.png").write_bytes(picture(words))
        label = "yes" if "dog" in words else "no"
        text = "Is there a dog in the image?"
        lines.append({"question_id": number, "image": f"{number}.png", "text": text, "label": label})
    (where / "coco_pope_random.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return where


def canary(server: LlmServer, folder: Path, model: str = "looks", *, fresh: bool = False) -> Canary:
    target = Target(url=server.base_url, model=model, retries=0, patience=0.1)
    plan = Plan(target=target, folder=folder.parent / "rounds", source="here", limit=2)
    return Canary(benchmark("pope", folder), plan, Settings(), fresh=fresh, submit="")


def typed(server: LlmServer, folder: Path, *more: str) -> Result:
    arguments = [
        "probe",
        "pope",
        "--target",
        server.base_url,
        "--model",
        "looks",
        "--benchmark",
        str(folder),
    ]
    return CliRunner().invoke(app, [*arguments, "--folder", str(folder.parent / "rounds"), *more])


def test_rounds_are_told_one_a_line(server: LlmServer, folder: Path) -> None:
    done = typed(server, folder, "--every", "0.1s", "--rounds", "2", "--limit", "2", "--json")
    assert done.exception is None
    first, second = map(json.loads, done.stdout.splitlines())
    assert (first["round"], first["questions"], first["scored"], first["score"]) == (1, 2, 2, 1.0)
    assert second["round"] == 2 and first["low"] < 1.0
    prompts = [request["messages"] for request in server.requests]
    assert len(prompts) == 4
    key = str
    assert sorted(prompts[:2], key=key) == sorted(prompts[2:], key=key), "the same sample, asked anew"


@pytest.mark.parametrize("wrong", ["", "5", "-1m", "0s", "soon", "1 week"])
def test_an_interval_that_is_none_is_one_line(wrong: str) -> None:
    with pytest.raises(UsageError, match="must be a time such as 90s, 30m, 6h or 1d"):
        read_interval(wrong, "--every")


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("1.5h", 5400), ("1d", 86400)])
def test_an_interval(text: str, seconds: float) -> None:
    assert read_interval(text, "--every") == seconds


def test_wrong_use_ends_before_the_first_round(server: LlmServer, folder: Path) -> None:
    done = typed(server, folder, "--every", "often")
    assert isinstance(done.exception, UsageError)
    assert not server.requests


async def test_a_round_that_cannot_be_done_is_counted_and_not_the_end(
    server: LlmServer, folder: Path
) -> None:
    bird = canary(server, folder, "401,looks")
    assert await bird.round() is None
    told = await bird.round()
    assert told is not None and (told.round, told.scored) == (2, 2)
    metrics = generate_latest(bird.metrics.registry).decode()
    assert 'groundwatch_canary_failed_rounds_total{model="401,looks",suite="pope"} 1.0' in metrics
    assert 'groundwatch_canary_score{model="401,looks",suite="pope"} 1.0' in metrics
    assert 'outcome="scored",suite="pope"} 2.0' in metrics


async def test_what_was_not_answered_is_told(server: LlmServer, folder: Path) -> None:
    told = await canary(server, folder, "looks,refusal").round()
    assert told is not None and (told.scored, told.unscored) == (1, {"refused": 1})


async def test_it_ends_in_the_middle_of_a_round_and_between_two(server: LlmServer, folder: Path) -> None:
    for script, said in (("looks:30", 0), ("looks", 1)):
        stopped = asyncio.Event()
        rounds: list[object] = []
        singing = asyncio.create_task(canary(server, folder, script).run(3600, None, stopped, rounds.append))
        asked = len(server.requests)
        while True:
            if len(server.requests) > asked and len(rounds) == said:
                break
            await asyncio.sleep(0.02)
        stopped.set()
        await asyncio.wait_for(singing, 60)
        assert len(rounds) == said


async def test_another_sample_each_round(server: LlmServer, folder: Path) -> None:
    bird = canary(server, folder, fresh=True)
    for _ in range(6):
        await bird.round()
    pairs = {json.dumps([server.requests[at], server.requests[at + 1]]) for at in range(0, 12, 2)}
    assert len(pairs) > 1


def test_going_on_after_a_restart_counts_on(server: LlmServer, folder: Path) -> None:
    typed(server, folder, "--every", "0.1s", "--rounds", "1", "--limit", "2")
    done = typed(server, folder, "--every", "0.1s", "--rounds", "1", "--limit", "2")
    assert done.stdout.startswith("round 2: pope of looks: 1.000 (")
