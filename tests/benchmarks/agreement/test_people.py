from __future__ import annotations

import json
from pathlib import Path

import pytest

from groundwatch.errors import FileFormatError, GroundwatchError
from groundwatch.events import Decision, JudgedClaim, OutcomeKind, ResponseScored
from groundwatch_benchmarks.agreement.people import (
    Annotation,
    PersonsVerdict,
    annotator_agreement,
    decision_on,
    read_annotators,
    verdict_agreement,
)
from groundwatch_benchmarks.json_files import read_lines


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def row(item: object = 1, annotator: object = "a", label: object = "yes") -> dict[str, object]:
    return {"item": item, "annotator": annotator, "label": label}


def test_names_and_labels_of_several_kinds_are_read(tmp_path: Path):
    file = write(tmp_path / "a.jsonl", row(), row(annotator=7, label=1), "", row(item="x", label=True))
    assert read_annotators(file) == [
        Annotation("1", "a", "yes"),
        Annotation("1", "7", "1"),
        Annotation("x", "a", "true"),
    ]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("{", "a.jsonl:2: not JSON"),
        ([], "a.jsonl:2: expected a JSON object"),
        ({"item": 1, "annotator": "b"}, "a.jsonl:2: key 'label': is missing"),
        (row(annotator="b", label=0.5), "a.jsonl:2: key 'label': expected `bool | int | str`"),
        (row(item=None), "a.jsonl:2: key 'item': expected `int | str`"),
        (row(annotator=" "), "a.jsonl:2: key 'annotator': is empty"),
        (row(label="no"), "a.jsonl:2: key 'annotator': 'a' labelled item '1' in line 1 already"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, wrong: object, message: str):
    with pytest.raises(FileFormatError) as found:
        read_annotators(write(tmp_path / "a.jsonl", row(), wrong))
    assert message in str(found.value)


def test_an_empty_file_is_told(tmp_path: Path):
    with pytest.raises(FileFormatError, match="is empty"):
        read_annotators(write(tmp_path / "a.jsonl"))


def test_kappa_takes_the_items_with_the_commonest_number_of_labels():
    said = {"p": "yes yes yes", "q": "no no no", "r": "yes no no", "s": "yes yes", "t": "no"}
    found = annotator_agreement(
        [
            Annotation(item, f"a{index}", label)
            for item, labels in said.items()
            for index, label in enumerate(labels.split())
        ],
        resamples=50,
    )
    assert (found.items, found.annotators, found.annotations) == (5, 3, 12)
    assert (found.fleiss_items, found.fleiss_labels) == (3, 3)
    assert found.labels == {"no": 6, "yes": 6}
    assert found.fleiss_kappa is not None and found.fleiss_kappa.n == 3
    assert found.krippendorff_alpha is not None and found.krippendorff_alpha.n == 4


def test_one_annotator_agrees_with_nobody():
    found = annotator_agreement([Annotation("1", "a", "yes"), Annotation("2", "a", "no")])
    assert (found.fleiss_kappa, found.krippendorff_alpha) == (None, None)
    assert (found.fleiss_items, found.fleiss_labels) == (0, 0)


LINE = '{"id": "r1", "protocol": "faithscore", "claim": "There is a dog.", "holds": false}\n'


def verdict(name: str, holds: bool, claim: str | int = 0) -> PersonsVerdict:
    return PersonsVerdict(id=name, protocol="faithscore", claim=claim, holds=holds)


def test_a_line(tmp_path: Path) -> None:
    file = tmp_path / "verdicts.jsonl"
    file.write_text(LINE + LINE.replace('"There is a dog."', "3").replace("{", '{"tenant": "acme", ', 1))
    first, second = (one for _, one in read_lines(file, PersonsVerdict))
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
def test_what_is_wrong_in_a_verdict_is_named(tmp_path: Path, line: str, key: str) -> None:
    file = tmp_path / "verdicts.jsonl"
    file.write_text(LINE + line)
    with pytest.raises(GroundwatchError, match=rf"verdicts\.jsonl.*2.*'{key}'"):
        list(read_lines(file, PersonsVerdict))


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
