"""`score`, with recorded judgements and without, and `validate`, as somebody at the terminal meets them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from groundwatch.cli import app
from groundwatch.errors import FileFormatError, TransientError, Unscorable, UsageError
from groundwatch.events import (
    Claim,
    Decision,
    Judge,
    Label,
    OutcomeKind,
    ResponseScored,
    SubSentence,
    Verdict,
)
from groundwatch.extraction import service as extraction
from groundwatch.extraction.engines.base import Extraction
from groundwatch.verification import service as verification
from groundwatch.verification.engines.base import Verification

SHARED = Path(__file__).parents[3] / "shared" / "data" / "faithscore" / "annotation.jsonl"
ANNOTATED = (
    {
        "id": "7",
        "answer": "A cat sits, on a mat.",
        "stage 1": {"A cat sits": 1, " on a mat": 1},
        "stage 2": {"There is a cat.": 1, "There is a mat.": 0},
    },
    {"id": "7", "answer": "It may rain.", "stage 1": {"It may rain": 0}, "stage 2": {}},
    {"id": "8", "answer": "A dog.", "stage 1": {"A dog": 1}, "stage 2": {"There is a dog.": 1}},
)
RECORDS = (
    {"id": "1", "model": "good", "answer": "a cat", "reference": {"objects": ["cat"]}},
    {"id": "2", "model": "bad", "answer": "a dog", "reference": {"objects": ["cat"]}},
    {"id": "3", "model": "bad", "answer": "refuse", "reference": {"objects": ["cat"]}},
    {"id": "4", "model": "bad", "answer": "flaky", "reference": {"objects": ["flaky"]}},
    {"id": "5", "model": "bad", "answer": "", "unknown": True},
)


class Finder:
    """Every answer is one sub-sentence with one fact; the words `refuse` and `flaky` do as they say."""

    batch = 2
    languages = None

    def __init__(self) -> None:
        self.closed = False
        self.asked: list[str] = []

    def judge(self, protocol) -> Judge:
        return Judge(engine="finder")

    async def extract(self, responses, protocol):
        assert len(responses) <= self.batch
        self.asked += [response.answer for response in responses]
        return [self._one(response.answer) for response in responses]

    def _one(self, answer: str):
        if answer == "refuse":
            return Unscorable("refused", "no")
        if answer == "flaky" and self.asked.count("flaky") < 2:
            return TransientError("later")
        if not answer:
            return Extraction()
        unit = SubSentence(start=0, end=len(answer), text=answer, label=Label.DESCRIPTIVE)
        return Extraction(units=(unit,), claims=(Claim(text=answer, category="entity"),))

    async def close(self) -> None:
        self.closed = True


class Looker:
    """A fact holds when its last word is an object or a true fact of the reference."""

    batch = 1

    def judge(self, protocol) -> Judge:
        return Judge(engine="looker")

    async def verify(self, extracted, protocol):
        return [
            Verification(verdicts=tuple(Verdict(decision=self._one(event, claim)) for claim in event.claims))
            for event in extracted
        ]

    def _one(self, event, claim: Claim) -> Decision:
        reference = event.response.reference
        known = [*reference.objects, *(fact.text for fact in reference.facts if fact.holds)]
        held = any(claim.text.strip(".").split()[-1] in text for text in known)
        return Decision.SUPPORTED if held else Decision.REFUTED

    async def close(self) -> None:
        return None


@pytest.fixture
def finder(monkeypatch: pytest.MonkeyPatch) -> Finder:
    found = Finder()
    monkeypatch.setattr(extraction, "build", lambda settings, **_: found)
    monkeypatch.setattr(verification, "build", lambda settings, **_: Looker())
    monkeypatch.setenv("GROUNDWATCH_RETRY__FIRST_DELAY", "0.001")
    return found


@pytest.fixture
def run() -> Callable[..., Result]:
    def call(*arguments: object) -> Result:
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    return call


def write(path: Path, rows: Sequence[object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def test_tally_is_the_mean_over_answers_with_facts(run, tmp_path: Path):
    done = run("score", "faithscore", write(tmp_path / "a.jsonl", ANNOTATED), "--recorded", "--json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert (found["faithscore"], found["answers"], found["unscored"]) == (0.75, 3, 1)
    assert (found["scored"], found["facts"], found["hallucinated"]) == (2, 3, 1)


def test_tally_of_nothing_is_no_number(run, tmp_path: Path):
    done = run("score", "faithscore", write(tmp_path / "a.jsonl", ANNOTATED[1:2]), "--recorded", "--json")
    assert json.loads(done.stdout)["faithscore"] is None
    told = run("score", "faithscore", tmp_path / "a.jsonl", "--recorded").stdout
    assert "answers 1 scored 0 unscored 1" in " ".join(told.split())


def test_score_prints_one_json_object(run, finder: Finder, tmp_path: Path):
    out = tmp_path / "out.jsonl"
    done = run("score", "faithscore", write(tmp_path / "r.jsonl", RECORDS), "--json", "--out", out)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["protocol"] == "faithscore"
    bad, good = found["models"]
    assert (good["model"], good["score"]["value"], good["responses"]) == ("good", 1.0, 1)
    assert (bad["model"], bad["score"]["value"], bad["scored"]) == ("bad", 0.5, 2)
    assert bad["unscored"] == {"nothing_to_verify": 1, "refused": 1}
    assert bad["hallucination_rate"]["value"] == 0.5
    outcomes = [msgspec.json.decode(line, type=ResponseScored) for line in out.read_bytes().splitlines()]
    assert [outcome.id for outcome in outcomes] == ["1", "2", "3", "4", "5"]
    assert [outcome.outcome for outcome in outcomes[2:4]] == [OutcomeKind.UNSCORED, OutcomeKind.SCORED]
    assert outcomes[0].claims[0].decision is Decision.SUPPORTED
    assert outcomes[0].judges["verification"].engine == "looker"
    assert finder.closed and finder.asked.count("flaky") == 2


def test_score_shows_a_table(run, finder: Finder, tmp_path: Path):
    done = run("score", "faithscore", write(tmp_path / "r.jsonl", RECORDS))
    assert done.exit_code == 0
    assert "good" in done.stdout and "bad: unscored" in done.stdout
    assert "judging" not in done.stdout


def test_score_reads_annotations_with_peoples_facts_as_reference(run, finder: Finder, tmp_path: Path):
    out = tmp_path / "out.jsonl"
    done = run("score", "faithscore", write(tmp_path / "a.jsonl", ANNOTATED), "--json", "--out", out)
    assert done.exit_code == 0, done.output
    outcomes = [msgspec.json.decode(line, type=ResponseScored) for line in out.read_bytes().splitlines()]
    assert [outcome.id for outcome in outcomes] == ["7-1", "7-2", "8-3"]
    assert [outcome.score for outcome in outcomes] == [0.0, 0.0, 1.0]
    assert outcomes[0].tags == {"image": "7"}


def test_what_stays_unreachable_is_unscored_as_in_the_system(
    run, finder: Finder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Finder, "_one", lambda self, answer: TransientError("down"))
    done = run("score", "faithscore", write(tmp_path / "r.jsonl", RECORDS[:1]), "--json")
    (model,) = json.loads(done.stdout)["models"]
    assert model["unscored"] == {"dead_letter": 1}
    assert model["score"] is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "2", "model": "m", "answer": 5}', "r.jsonl:2: key 'answer': Expected `str`, got `int`"),
        ('{"id": "2", "answer": "a"}', "r.jsonl:2: key 'model': is missing"),
        ('{"id": "2", "model": "m", "ans', "r.jsonl:2: not JSON"),
    ],
)
def test_a_wrong_record_names_file_line_and_key(run, finder: Finder, tmp_path: Path, line: str, message: str):
    path = write(tmp_path / "r.jsonl", RECORDS[:1])
    path.write_text(path.read_text() + line + "\n")
    done = run("score", "faithscore", path, "--json")
    assert isinstance(done.exception, FileFormatError)
    assert message in str(done.exception)
    assert done.stdout == "" and finder.asked == []


@pytest.mark.parametrize("command", ["score", "score --recorded", "validate"])
@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": "7", "answer": "a", "stage 1": {}}, "a.jsonl:4: key 'stage 2'"),
        ({"id": "7", "answer": "a", "stage 1": {"a": 2}, "stage 2": {}}, "a.jsonl:4: key 'stage 1', 'a'"),
        ({"id": 7, "answer": "a", "stage 1": {}, "stage 2": {}}, "a.jsonl:4: key 'id'"),
    ],
)
def test_a_wrong_annotation_names_file_line_and_key(
    run, finder: Finder, tmp_path: Path, command: str, row: dict[str, object], message: str
):
    name, *options = command.split()
    done = run(name, "faithscore", write(tmp_path / "a.jsonl", [*ANNOTATED, row]), *options)
    assert isinstance(done.exception, FileFormatError)
    assert message in str(done.exception)


def test_wrong_use_is_told(run, tmp_path: Path):
    path = write(tmp_path / "a.jsonl", ANNOTATED)
    for options in ((), ("--recorded",)):
        unknown = run("score", "faithscor", path, *options)
        assert isinstance(unknown.exception, UsageError) and "faithscore, " in str(unknown.exception)
        absent = run("score", "faithscore", tmp_path / "nowhere.jsonl", *options)
        assert isinstance(absent.exception, FileFormatError) and "cannot be read" in str(absent.exception)
    unknown = run("validate", "faithscor", path)
    assert unknown.exit_code == 2 and "No such command 'faithscor'" in unknown.output
    absent = run("validate", "faithscore", tmp_path / "nowhere.jsonl")
    assert isinstance(absent.exception, FileFormatError) and "cannot be read" in str(absent.exception)


def test_options_of_judging_and_of_counting_are_told_apart(run, tmp_path: Path):
    path = write(tmp_path / "a.jsonl", ANNOTATED)
    for typed, told in (
        (("--recorded", "--engine", "llm"), "--engine does not go with --recorded"),
        (("--recorded", "--published"), "--published does not go with --recorded"),
        (("--t", 3), "--t goes with --recorded"),
        (("--recorded", "--t", 3), "recorded judgements of faithscore take no t (--t)"),
    ):
        done = run("score", "faithscore", path, *typed)
        assert isinstance(done.exception, UsageError) and str(done.exception) == told
    done = run("score", "genception", path, "--recorded")
    assert str(done.exception).startswith("recorded judgements of genception need t: how many iterations")
    assert str(done.exception).endswith("(--t)")


def test_an_outcome_file_that_cannot_be_written_is_told(run, finder: Finder, tmp_path: Path):
    records = write(tmp_path / "r.jsonl", RECORDS)
    done = run("score", "faithscore", records, "--out", tmp_path / "no" / "out.jsonl")
    assert isinstance(done.exception, UsageError) and "cannot be written" in str(done.exception)
    assert not finder.asked


def test_a_judge_that_cannot_serve_is_told(run, tmp_path: Path):
    for engine in ("triton", "visual"):
        done = run("score", "tri-he", write(tmp_path / "r.jsonl", RECORDS), "--judge", engine)
        told = f"{engine} cannot judge tri-he: use calibrated or similarity or llm or reference (--judge)"
        assert isinstance(done.exception, UsageError) and str(done.exception) == told


def test_an_unknown_engine_is_told(run, tmp_path: Path):
    records = write(tmp_path / "r.jsonl", RECORDS)
    done = run("score", "faithscore", records, "--engine", "psychic")
    assert isinstance(done.exception, UsageError) and "reader" in str(done.exception)


@pytest.mark.skipif(not SHARED.exists(), reason=f"needs {SHARED}")
def test_tally_of_the_published_annotations(run):
    found = json.loads(run("score", "faithscore", SHARED, "--recorded", "--json").stdout)
    assert (found["answers"], found["unscored"], found["facts"]) == (120, 9, 937)
    assert found["faithscore"] == pytest.approx(0.8537956654)


def test_an_answer_without_facts_counts_as_published(run, tmp_path: Path):
    """The authors' code takes 0 for it; here it is unscored, and the mean is over the others."""
    facts = ({"A dog.": 1, "A cat.": 0}, {"A horse.": 1}, {}, {})
    lines = [
        {"id": str(at), "answer": "x", "stage 1": {}, "stage 2": one} for at, one in enumerate(facts, start=1)
    ]
    found = json.loads(
        run("score", "faithscore", write(tmp_path / "a.jsonl", lines), "--recorded", "--json").stdout
    )
    assert (found["answers"], found["scored"], found["unscored"]) == (4, 2, 2)
    assert found["faithscore"] == 0.75
    assert found["as_published"] == 0.375
    none = write(tmp_path / "none.jsonl", lines[2:])
    found = json.loads(run("score", "faithscore", none, "--recorded", "--json").stdout)
    assert (found["faithscore"], found["as_published"]) == (None, 0.0)


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.exists(), reason=f"needs {SHARED}")
def test_agreement_on_the_published_annotations(run, tmp_path: Path):
    file = tmp_path / "annotation.jsonl"
    file.write_text("".join(SHARED.read_text("utf-8").splitlines(keepends=True)[:30]), "utf-8")
    done = run("validate", "faithscore", file, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["answers"] == 30
    assert found["recogniser"]["accuracy"] > 0.9
    assert all(0.8 < value < 1 for value in found["recogniser"]["f1"].values())
    decomposer = found["decomposer"]
    expected = sum(len(json.loads(line)["stage 2"]) for line in file.read_text("utf-8").splitlines())
    assert decomposer["expected"] == expected
    assert decomposer["precision"] == decomposer["matched"] / decomposer["found"]
    assert decomposer["recall"] == decomposer["matched"] / expected
    for group in (found["table_8"], found["likert"]):
        for name in ("pearson", "spearman", "kendall"):
            assert group[name]["low"] < group[name]["value"] < group[name]["high"]
            assert group[name]["n"] == found["compared"]


@pytest.mark.slow
def test_outcomes_that_were_written_are_reported_as_when_they_were_judged(
    run, finder: Finder, tmp_path: Path
):
    records = [{**one, "tags": {"category": one["model"]}} for one in RECORDS[:3]]
    file, out = write(tmp_path / "in.jsonl", records), tmp_path / "out.jsonl"
    judged = run("score", "faithscore", file, "--out", out, "--by", "category", "--json")
    again = run("score", "faithscore", out, "--recorded", "--by", "category", "--json")
    assert again.exit_code == 0, again.output
    assert json.loads(again.stdout) == json.loads(judged.stdout)
    assert json.loads(again.stdout)["models"][0]["descriptive_share"]["value"] == 1.0
    assert "sub-sentences are descriptive" in run("score", "faithscore", out, "--recorded").stdout
    annotated = write(tmp_path / "annotated.jsonl", ANNOTATED)
    wrong = run("score", "faithscore", annotated, "--recorded", "--by", "category")
    assert "--by needs outcomes" in str(wrong.exception)


@pytest.mark.skipif(not SHARED.exists(), reason=f"needs {SHARED}")
def test_the_published_annotations_are_scored_by_the_shipped_engines(run):
    (model,) = json.loads(run("score", "faithscore", SHARED, "--json").stdout)["models"]
    assert model["responses"] == 120
    assert model["scored"] + sum(model["unscored"].values()) == 120
    assert 0.6 < model["score"]["value"] < 1


def test_a_protocol_that_matches_is_judged_by_its_reference(run, tmp_path: Path):
    pytest.importorskip("sentence_transformers")
    records = [
        {"id": "1", "model": "m", "answer": "A puppy and a cat.", "reference": {"objects": ["dog"]}},
        {"id": "2", "model": "m", "answer": "A sunny day.", "reference": {"objects": ["dog"]}},
        {"id": "3", "model": "m", "answer": "A dog."},
    ]
    out = tmp_path / "out.jsonl"
    found = run("score", "chair", write(tmp_path / "a.jsonl", records), "--out", out, "--json")
    assert found.exit_code == 0, found.output
    scored, *rest = (msgspec.json.decode(line, type=ResponseScored) for line in out.read_bytes().splitlines())
    assert (scored.score, scored.values["chair_i"]) == (0.5, 0.5)
    assert scored.judges["matching"].engine == "chair"
    assert [one.reason for one in rest] == ["nothing_to_verify", "no_reference"]
    named = run("score", "chair", tmp_path / "a.jsonl", "--judge", "psychic")
    assert isinstance(named.exception, UsageError) and "matching.engine" in str(named.exception)


def test_groups_are_compared_with_the_baseline(run, tmp_path: Path):
    rows = [
        {"id": f"{tag}-{at}", "model": "m", "answer": answer, "reference": {"objects": ["dog", "cup"]}}
        | {"tags": {"selection": tag}}
        for tag, answer in (("random", "A dog and a cup."), ("chosen", "A dog and a cat."))
        for at in range(3)
    ]
    file = write(tmp_path / "r.jsonl", rows)
    asked = ("score", "chair", file, "--by", "selection", "--baseline", "random", "--json")
    (told,) = json.loads(run(*asked).stdout)["differences"]
    assert (told["first"], told["second"], told["figures"]["chair_i"]["value"]) == ("random", "chosen", 0.5)
    done = run("score", "chair", file, "--baseline", "random")
    assert isinstance(done.exception, UsageError) and "needs a tag" in str(done.exception)
