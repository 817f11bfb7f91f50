"""The demo as a newcomer runs it: with the real nats-server, the real Triton and the world's checkpoints."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import time
from itertools import islice
from pathlib import Path
from random import Random

import psutil
import pytest
from tests.support.command_line import environment
from tools.miniature.answers import answer
from tools.miniature.texts import with_partners

from groundwatch.cli import up as command
from groundwatch.demo import live as demo_live
from groundwatch.demo.application import PRODUCTS, Sent, asked_about, prompt_of
from groundwatch.demo.findings import LiveFindings, Rollout, Watched
from groundwatch.errors import UsageError
from groundwatch.events import Decision, Judge, JudgedClaim, Label, OutcomeKind, ResponseScored, SubSentence
from groundwatch.ledger.ledger import Ledger
from groundwatch.miniature.language import PROMPTS
from groundwatch.miniature.world import missing_partners, scenes
from groundwatch.system.up import MINIATURE

LONG = 900

LEDGER = Ledger(
    run="live",
    responses=2,
    recorded=2,
    scored=2,
    unscored=0,
    declined=0,
    in_flight=0,
    lost=0,
    orphans=0,
    expired=0,
    foreign=0,
    dead_letters=0,
    reasons={},
    in_flight_at={},
    balanced=True,
)

needs_checkpoints = pytest.mark.skipif(
    not all((MINIATURE / name).is_dir() for name in ("lvlm_good", "lvlm_biased", "verifier")),
    reason=f"no checkpoints in {MINIATURE}",
)


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch) -> Path:
    """The folder that the demo is typed in, where it keeps its streams."""
    folder = tmp_path / "place"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def typed(nobody, line: str) -> str:
    """What a line that the demo printed says, typed in the same folder; nothing else on standard error."""
    done = subprocess.run(
        line, shell=True, capture_output=True, text=True, timeout=LONG, env=environment(nobody.folder)
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@needs_checkpoints
@pytest.mark.slow
@pytest.mark.timeout(LONG)
def test_it_asks_judges_rolls_out_and_tells_the_truth_beside(nobody, place):
    running = nobody.start("demo", "--answers", 16, "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    told, complaints = running.communicate(timeout=LONG - 30)
    assert (running.returncode, complaints) == (0, "")
    found = json.loads(told)
    assert (found["mode"], found["answers"]) == ("live", 16)
    audit = found["audit"]
    assert audit["balanced"]
    assert (audit["recorded"], audit["in_flight"], audit["declined"]) == (16, 0, 0)
    assert audit["scored"] + audit["unscored"] == 16
    assert audit["scored"] > 0
    assert sorted(found["models"]) == sorted(PRODUCTS)
    versions = {
        (product, version): one
        for product, model in found["models"].items()
        for version, one in model["versions"].items()
    }
    assert {key: one["responses"] for key, one in versions.items()} == {
        ("heron", "1"): 8,
        ("osprey", "1"): 4,
        ("osprey", "2"): 4,
    }
    assert all(0 <= one["true_rate"] <= 1 for one in versions.values() if one["true_rate"] is not None)
    assert (found["rollout"]["model"], found["rollout"]["response"]) == ("osprey", 5)
    assert all(0 <= one["probability"] < 0.5 and one["fact"] and one["shown"] for one in found["worst"])
    # The first answer in Markdown that denies something: its denial is no claim, and its marks are told.
    denial = found["denial"]
    assert denial["decision"] == "supported" and denial["left_out"]
    assert re.search(r"\b(no|not)\b", denial["fact"]) and "**" in denial["answer"]
    assert found["alarms"] == []
    assert {"start", "traffic", "total"} <= found["seconds"].keys()

    # The replay that it proposes has another model judge, on a Triton that is started for it.
    again = json.loads(typed(nobody, f"{found['next']['replay']} --json"))
    assert (again["run"], again["status"], again["share"]) == ("by-osprey", "done", 1.0)
    assert again["counts"]["outcomes"] == again["counts"]["scored"] == 16
    beside = json.loads(typed(nobody, f"{found['next']['compare']} --json"))
    assert (beside["first"], beside["second"]) == ("live", "by-osprey")
    (section,) = beside["sections"]
    assert (section["scored"], section["same_judges"]) == (16, False)
    assert section["groups"][0]["rate_first"] != section["groups"][0]["rate_second"]
    for run in ("live", "by-osprey"):
        ledger = nobody.json("audit", "--run", run, "--folder", ".groundwatch/demo")
        assert ledger["balanced"] and ledger["recorded"] == ledger["scored"] == 16
    assert not (place / ".groundwatch/demo/triton").exists()


@needs_checkpoints
@pytest.mark.slow
@pytest.mark.timeout(LONG)
@pytest.mark.parametrize("stage", ["starting", "asking"])
def test_ctrl_c_leaves_nothing_behind(nobody, tmp_path, monkeypatch, stage, place):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    with (tmp_path / "told").open("w+") as told:
        # As a terminal does it: Ctrl-C goes to every process of the group.
        running = nobody.start("demo", "--answers", 360, stdout=told, stderr=told, start_new_session=True)
        started = psutil.Process(running.pid)
        deadline = time.monotonic() + LONG - 60
        path = Path(told.name)
        while stage not in path.read_text():
            assert running.poll() is None, path.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        while not (children := started.children(recursive=True)):
            assert running.poll() is None, path.read_text()
            time.sleep(0.05)
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(timeout=60) == 130, path.read_text()
        _, alive = psutil.wait_procs(children, timeout=20)
        assert [one for one in alive if one.status() != psutil.STATUS_ZOMBIE] == []
        assert "Traceback" not in path.read_text()
    assert [*temporary.glob("groundwatch-*"), *place.iterdir()] == []


@pytest.mark.slow
@pytest.mark.timeout(LONG)
def test_the_recorded_demo_finds_where_the_planted_change_is(nobody, place):
    found = nobody.json("demo", "--recorded", "--rate", 200)
    assert found["mode"] == "recorded"
    assert found["audit"]["balanced"]
    assert found["audit"]["scored"] == 360
    assert {one["alarm"]["model"] for one in found["alarms"]} == {"osprey-13b"}
    # Outcomes of neighbours overtake each other: a category may turn a response before all facts do.
    (alarm,) = [one["alarm"] for one in found["alarms"] if one["alarm"]["category"] == "all"]
    assert abs(alarm["since_response"] - 91) <= 5
    assert found["models"]["osprey-13b"]["rate"] > found["models"]["heron-7b"]["rate"]

    # The next one takes its place, and its last lines can be typed as they stand.
    done = nobody("demo", "--recorded", "--rate", 200)
    assert (done.returncode, done.stderr) == (0, "")
    assert "⚠ osprey-13b · faithscore: " in done.stdout
    assert 'groundwatch_alarm_raised{category="all",' in done.stdout
    told_metrics = [line for line in done.stdout.splitlines() if line.startswith("  groundwatch_")]
    assert told_metrics and max(map(len, told_metrics)) < 140
    commands = [line.strip() for line in done.stdout.splitlines() if line.startswith("  ")]
    replay, compare = commands[-2:]
    assert (replay, compare) == (found["next"]["replay"], found["next"]["compare"])
    typed(nobody, replay)
    assert "360 of 360 responses in both were scored in both" in typed(nobody, compare)
    here = ("--folder", ".groundwatch/demo")
    shown = nobody.json("replay", "show", "again", *here)
    assert (shown["status"], shown["counts"]["scored"]) == ("done", 360)
    assert shown["changed"] == {"pairs": 360, "same_judges": 360, "changed": 0, "share": 0.0}
    for run in ("live", "again"):
        ledger = nobody.json("audit", "--run", run, *here)
        assert ledger["balanced"] and ledger["recorded"] == ledger["scored"] == 360
    told = nobody.complaint(*shlex.split(replay)[3:])
    assert "run 'again' exists already (done)" in told
    assert told.endswith("here with --folder .groundwatch/demo")
    assert {one.name for one in (place / ".groundwatch/demo").iterdir()} == {
        ".gitignore",
        "demo.json",
        "nats",
    }


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("--rate 5", "--rate is for --recorded"),
        ("--recorded --rate 0", "--rate: must be above 0"),
        ("--recorded --answers 10", "--answers is not for --recorded"),
        ("--answers 3", "--answers: must be at least 8"),
    ],
)
def test_options_that_do_not_fit_are_one_line(nobody, arguments, told):
    assert told in nobody.complaint("demo", *arguments.split())


def test_without_triton_or_checkpoints_it_names_the_recorded_demo(monkeypatch, tmp_path):
    def absent() -> Path:
        raise UsageError("the embedded Triton needs Python 3.11 or 3.12")

    monkeypatch.setattr(demo_live, "find_distribution", absent)
    with pytest.raises(UsageError, match=r"3\.12.*groundwatch demo --recorded"):
        command._models_needed()
    monkeypatch.setattr(demo_live, "find_distribution", lambda: tmp_path)
    monkeypatch.setattr(demo_live, "MINIATURE", tmp_path / "none")
    with pytest.raises(UsageError, match=r"no checkpoint .*lvlm_good; .*groundwatch demo --recorded"):
        command._models_needed()


def test_the_questions_are_the_same_every_time_and_tempt():
    first = asked_about(40)
    assert first == asked_about(40)
    assert all(missing_partners(shown) for _, shown in first)
    prompts = [prompt_of(number) for number in range(len(PROMPTS) * 4)]
    assert {prompt for manner in PROMPTS for prompt in manner} == set(prompts)


def test_findings_hold_estimates_beside_the_truth():
    shown, other = islice(scenes(5, apart=True), 2)
    wrong = answer(with_partners(other, Random(1)), 4)
    watched = Watched()
    sent = {}
    for name, version, scene, text in (("a", "1", shown, answer(shown, 4)), ("b", "2", other, wrong)):
        sent[name] = Sent(id=name, product="osprey", version=version, prompt="?", answer=text, shown=scene)
        refuted = name == "b"
        watched.add(
            ResponseScored(
                id=name,
                model="osprey",
                protocol="faithscore",
                outcome=OutcomeKind.SCORED,
                score=0.5 if refuted else 1.0,
                judges={"verification": Judge(engine="triton", model="v", version="1")},
                units=(SubSentence(start=0, end=len(text), text=text, label=Label.DESCRIPTIVE),),
                claims=(
                    JudgedClaim(
                        text="There is a thing.",
                        category="entity",
                        unit=0,
                        decision=Decision.REFUTED if refuted else Decision.SUPPORTED,
                        probability=0.03 if refuted else 0.98,
                    ),
                ),
                eligible=1,
                decided=1,
                tags={"version": version},
            )
        )
    findings = LiveFindings(
        watched=watched,
        sent=sent,
        ledger=LEDGER,
        metrics=[],
        alarms=[],
        seconds={"total": 1.0},
        rollout=Rollout(model="osprey", version="2", time=0.0, response=2),
    )
    first, second = findings.compared()
    assert (first.version, first.true) == ("1", 0.0)
    assert second.version == "2"
    assert second.true is not None and second.true > 0
    assert second.estimated is not None and second.estimated.value == 1.0
    (worst,) = findings.worst()
    assert (worst.id, worst.version, worst.probability) == ("b", "2", 0.03)
    assert worst.sentence == wrong
    assert all(thing.kind in worst.shown for thing in other.things)
