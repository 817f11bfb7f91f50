from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.cases import cases

from groundwatch.errors import FileFormatError, Unscorable
from groundwatch.events import (
    ClaimsExtracted,
    ClaimsVerified,
    Judge,
    OutcomeKind,
    ResponseRecorded,
    ResponseScored,
)
from groundwatch.protocols import registry
from groundwatch.protocols.method import TallyRequest
from groundwatch.protocols.vlm2.protocol import Vlm2, is_right, read_choice, read_number
from groundwatch_benchmarks.methods.vlm2.suite import TALLY

CASES = cases(__file__)


def test_reading() -> None:
    assert [[reply, truth, is_right(reply, truth)] for reply, truth, _ in CASES["replies"]] == CASES[
        "replies"
    ]


@given(st.text(max_size=120), st.sampled_from(["yes", "no", "3", "B", "red"]))
def test_any_text_is_read_without_fail(reply, truth):
    assert is_right(reply, truth) in (True, False, None)


@given(st.integers(0, 20))
def test_numbers_come_back(number):
    assert read_number(f"I count {number} of them.") == number


@given(st.sampled_from("ABCDEFGH"))
def test_choices_come_back(letter):
    assert read_choice(f"({letter})") == letter.casefold()
    assert read_choice(f"{letter}.") == letter.casefold()


TAGS = {"sequence": "1", "task": "count", "level": "fine", "truth": "yes"}


def judged(answer, **tags):
    response = ResponseRecorded(
        id="1", model="m", answer=answer, tags={k: v for k, v in (TAGS | tags).items() if v is not None}
    )
    event = ClaimsExtracted(response=response, protocol="vlm2", judge=Judge(engine="t"))
    return ClaimsVerified(extracted=event, judge=Judge(engine="t"))


def test_it_is_registered():
    assert isinstance(registry.get("vlm2"), Vlm2)


@pytest.mark.parametrize(
    ("answer", "tags", "score"),
    [("Yes", {}, 1), ("No.", {}, 0), ("Four of them", {"truth": "4", "level": "coarse"}, 1)],
)
def test_right_or_wrong(answer, tags, score):
    assert Vlm2().score(judged(answer, **tags)).score == score


@pytest.mark.parametrize(
    ("answer", "tags", "reason"),
    [
        ("Hm", {}, "unreadable_reply"),
        ("Yes", {"truth": None}, "no_truth"),
        ("Yes", {"sequence": None}, "no_sequence"),
        ("Yes", {"level": "middle"}, "no_sequence"),
    ],
)
def test_what_cannot_be_scored(answer, tags, reason):
    with pytest.raises(Unscorable, match=reason):
        Vlm2().score(judged(answer, **tags))


def outcome(name, score, *, sequence="1", level="fine", task="count", reason="", protocol="vlm2"):
    return ResponseScored(
        id=name,
        model="m",
        protocol=protocol,
        outcome=OutcomeKind.UNSCORED if reason else OutcomeKind.SCORED,
        score=None if reason else float(score),
        reason=reason,
        tags={"sequence": sequence, "task": task, "level": level},
    )


@pytest.fixture
def tally(tmp_path):
    def run(*outcomes):
        path = tmp_path / "out.jsonl"
        path.write_bytes(b"\n".join(map(msgspec.json.encode, outcomes)))
        return TALLY.run("vlm2", TallyRequest(file=path))

    return run


def test_outcomes_make_sequences(tally):
    found = tally(
        outcome("a", 1, level="coarse"),
        outcome("b", 1),
        outcome("c", 0),
        outcome("d", None, reason="unreadable_reply"),
        outcome("e", None, reason="dead_letter"),
        outcome("f", 0, sequence="2", level="coarse"),
        outcome("g", 1, sequence="2"),
        outcome("h", 1, sequence="3", task="match"),
        outcome("i", None, sequence="4", task="match", level="coarse", reason="unreadable_reply"),
    )
    assert found["score_sum"] == pytest.approx(1 / 3)
    assert (found["score_mean"], found["sequences"]) == (pytest.approx(1 / 9), 4)
    assert found["unscored_by_reason"] == {"no_coarse_question": 1}
    assert found["unread"] == 2
    assert found["read_mean"] == 0.25
    assert found["by_task"]["match"]["score_mean"] == 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (outcome("b", 1, protocol="pope"), "out.jsonl:2: key 'protocol': expected vlm2, not pope"),
        (outcome("b", 1, level="x"), "out.jsonl:2: key 'level'"),
        (outcome("b", 1, level="coarse"), "key 'sequence': 1 has two coarse questions"),
    ],
)
def test_wrong_outcomes_are_told(tally, wrong, message):
    with pytest.raises(FileFormatError, match=message):
        tally(outcome("a", 1, level="coarse"), wrong)


CHOICES = """(B)
**B**
Answer: B
{"answer": "B"}
{"answer": "B", "why": "A is wrong"}
\\boxed{B}
$\\boxed{\\text{B}}$
<think>A or C? Maybe A.</think> B
**Answer: (B)** a dog
I choose B
[B]
The answer is \\(B\\).
\\(B\\)
$B$
$\\textbf{B}$"""


@pytest.mark.parametrize("reply", [*CHOICES.splitlines(), "```answer\nB\n```"])
def test_a_choice_is_read_however_it_is_wrapped(reply):
    assert is_right(reply, "B") is True
    assert is_right(reply, "C") is False


@pytest.mark.parametrize(
    "reply", ['{"count": 3}', "\\boxed{3}", "<think>2 or 4?</think>3", "**three**", "\\(3\\)"]
)
def test_a_number_is_read_however_it_is_wrapped(reply):
    assert is_right(reply, "3") is True
