"""The committed dashboards are what the code builds, and every query of theirs has an answer."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from deploy.grafana.asking import Board, Clock, Prometheus, Question, escaped
from deploy.grafana.build import FOLDER, built
from tests.deploy.grafana.live import SCRAPE, Watched

NAMES = sorted(path.name for path in FOLDER.glob("*.json"))
ROOT = Path(__file__).parents[3]
# Half a minute where nobody else works; its first test waits for the whole system.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def server(observed: Watched) -> Prometheus:
    return Prometheus(observed.prometheus)


@pytest.fixture(scope="module")
def clock(observed: Watched, server: Prometheus) -> Clock:
    """From the first scrape until everything had its outcome, and a scrape of every target was in time: they
    share one process, and Prometheus waits no longer than a second."""
    for _ in range(120):
        now = time.time()
        if server.instant("min(up) == 1", now):
            return Clock(observed.start, now, SCRAPE)
        time.sleep(SCRAPE)
    raise TimeoutError("some scrape is never answered")


def complaints(board: Board, questions: list[Question], server: Prometheus, clock: Clock) -> list[str]:
    """The queries that fail or have no answer, one line each."""
    found = []
    for question in questions:
        several = board.choices[question.repeat] if question.repeat else [""]
        for value in several:
            more = {question.repeat: escaped(value)} if value else {}
            try:
                if not board.answers(question, server, clock, **more):
                    found.append(f"{question.where} {value} is empty: {board.filled(question.expr, **more)}")
            except ValueError as error:
                found.append(f"{question.where} {value} fails: {error}")
    return found


def test_the_committed_dashboards_are_what_the_code_builds() -> None:
    committed = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.json")}
    assert committed == built(), "run python -m deploy.grafana.build"


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_query_has_an_answer(name: str, server: Prometheus, clock: Clock) -> None:
    board = Board(FOLDER / name)
    board.open(server, clock)
    questions = list(board.questions())
    assert len(questions) >= 10
    assert complaints(board, questions, server, clock) == []


@pytest.mark.slow
def test_an_empty_and_a_failing_query_are_found(server: Prometheus, clock: Clock) -> None:
    board = Board(FOLDER / "models.json")
    board.open(server, clock)
    questions = [
        Question("good", 'sum(groundwatch_claims_total{model=~"$model"})'),
        Question("empty", "groundwatch_no_such_metric"),
        Question("nan", "sum(groundwatch_claims_total) * 0 / 0", instant=True),
        Question("broken", "sum by (", instant=True),
    ]
    found = complaints(board, questions, server, clock)
    assert [line.split()[0] for line in found] == ["empty", "nan", "broken"]


@pytest.mark.slow
def test_an_interval_holds_its_rate_and_many_facts_narrow_it(server: Prometheus, clock: Clock) -> None:
    board = Board(FOLDER / "models.json")
    board.open(server, clock)
    panel = next(one for one in board.panels() if one["title"] == "Versions side by side")
    columns = {
        question.ref: {
            (series.labels["model"], series.labels.get("version", "")): series.points[0][1]
            for series in board.answers(question, server, clock)
        }
        for question in board.of(panel)
    }
    rate, low, high, facts = (columns[ref] for ref in "ABCD")
    assert {("heron-7b", "1.0"), ("osprey-13b", "1.0"), ("osprey-13b", "2.0")} <= rate.keys()
    for who, value in rate.items():
        assert 0 <= low[who] < value < high[who] < 1
        assert high[who] - low[who] > 2 * 1.9 * (value * (1 - value) / (facts[who] + 4)) ** 0.5
    assert low["osprey-13b", "2.0"] > high["osprey-13b", "1.0"], "the new version is clearly worse"


def test_every_metric_is_documented() -> None:
    documented = set(re.findall(r"groundwatch_\w+", (ROOT / "docs" / "metrics.md").read_text("utf-8")))
    documented |= set(re.findall(r"groundwatch_\w+", (ROOT / "docs" / "probe.md").read_text("utf-8")))
    for name in NAMES:
        asked = {
            word
            for one in Board(FOLDER / name).questions()
            for word in re.findall(r"groundwatch_\w+", one.expr)
        }
        unknown = {re.sub(r"_(bucket|sum|count)$", "", word) for word in asked} - documented
        assert not unknown, name


def test_the_links_lead_to_the_dashboards_that_there_are() -> None:
    uids = {Board(FOLDER / name).json["uid"] for name in NAMES}
    assert uids == {f"groundwatch-{Path(name).stem}" for name in NAMES}
    assert all("groundwatch" in Board(FOLDER / name).json["tags"] for name in NAMES)
