"""People's verdicts beside the judge's."""

from __future__ import annotations

from pathlib import Path

import pytest

from groundwatch.errors import GroundwatchError
from groundwatch.events import Decision, JudgedClaim, OutcomeKind, ResponseScored
from groundwatch.protocols.published import Place
from groundwatch.protocols.verdicts import PersonsVerdict, decision_on, read_verdicts, verdict_agreement

LINE = '{"id": "r1", "protocol": "faithscore", "claim": "There is a dog.", "holds": false}\n'


def verdict(name: str, holds: bool, claim: str | int = 0) -> PersonsVerdict:
    return PersonsVerdict(
        id=name, tenant="default", protocol="faithscore", claim=claim, holds=holds, place=Place(Path("f"), 1)
    )


def test_a_line(tmp_path: Path) -> None:
    file = tmp_path / "verdicts.jsonl"
    file.write_text(LINE + LINE.replace('"There is a dog."', "3").replace("{", '{"tenant": "acme", ', 1))
    first, second = read_verdicts(file)
    assert (first.id, first.tenant, first.claim, first.holds) == ("r1", "default", "There is a dog.", False)
    assert (second.tenant, second.claim) == ("acme", 3)


@pytest.mark.parametrize(
    ("line", "key"),
    (
        (LINE.replace("false", '"no"'), "holds"),
        (LINE.replace('"There is a dog."', "true"), "claim"),
        (LINE.replace('"There is a dog."', "1.5"), "claim"),
        (LINE.replace('"r1"', "7"), "id"),
        (LINE.replace('"protocol"', '"protocl"'), "protocol"),
    ),
)
def test_what_is_wrong_is_named(tmp_path: Path, line: str, key: str) -> None:
    file = tmp_path / "verdicts.jsonl"
    file.write_text(LINE + line)
    with pytest.raises(GroundwatchError, match=rf"verdicts\.jsonl.*2.*'{key}'"):
        read_verdicts(file)


def test_a_claim_by_text_or_number() -> None:
    outcome = ResponseScored(
        id="r",
        model="m",
        protocol="faithscore",
        outcome=OutcomeKind.SCORED,
        claims=(
            JudgedClaim(text="a", category="entity", unit=0, decision=Decision.SUPPORTED),
            JudgedClaim(text="b", category="entity", unit=0, decision=Decision.REFUTED),
        ),
    )
    assert decision_on(verdict("r", True, 1), outcome) is Decision.REFUTED
    assert decision_on(verdict("r", True, "a"), outcome) is Decision.SUPPORTED
    assert decision_on(verdict("r", True, -1), outcome) is None
    assert decision_on(verdict("r", True, "c"), outcome) is None


def test_agreement_and_kappa() -> None:
    # Cohen's kappa by hand: 0.7 observed, 0.5 by chance.
    pairs = (
        [(True, Decision.SUPPORTED)] * 35
        + [(False, Decision.SUPPORTED)] * 15
        + [(True, Decision.REFUTED)] * 15
        + [(False, Decision.REFUTED)] * 35
        + [(False, Decision.UNDECIDED)] * 7
    )
    judged = [(verdict(f"r{number}", holds), decision) for number, (holds, decision) in enumerate(pairs)]
    found = verdict_agreement(judged)["faithscore"]
    assert found.agreement is not None
    assert found.agreement.value == pytest.approx(0.7)
    assert found.agreement.low < 0.7 < found.agreement.high
    assert found.kappa == pytest.approx(0.4)
    assert (found.verdicts, found.undecided) == (107, 7)
    assert found.counts["refuted"] == {"supported": 15, "refuted": 35, "undecided": 7}


def test_nothing_decided_is_no_agreement() -> None:
    found = verdict_agreement([(verdict("r", True), Decision.UNDECIDED)])["faithscore"]
    assert (found.agreement, found.kappa) == (None, None)


def test_one_answer_alone_has_no_kappa() -> None:
    found = verdict_agreement([(verdict("r", True), Decision.SUPPORTED)])["faithscore"]
    assert found.kappa is None
