"""The papers' figures: one arithmetic, whoever asks, against the protocols' own over the same outcomes."""

from __future__ import annotations

import io
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from statistics import fmean

import msgspec
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from groundwatch.archive.outcomes import Archive, Row
from groundwatch.archive.query import Session, break_down
from groundwatch.errors import FileFormatError, Unscorable
from groundwatch.events import (
    ChainAdvanced,
    ChainStep,
    Claim,
    ClaimsExtracted,
    ClaimsMatched,
    ClaimsVerified,
    Decision,
    Drawn,
    Judge,
    KnownFact,
    Label,
    Match,
    OutcomeKind,
    Reference,
    ResponseRecorded,
    ResponseScored,
    SubSentence,
    Verdict,
)
from groundwatch.protocols import registry
from groundwatch.protocols.base import Figure
from groundwatch.protocols.chair.protocol import Caption, chair
from groundwatch.protocols.method import Benchmark, Question
from groundwatch.protocols.questions import read_claim
from groundwatch.reporting import figures
from groundwatch.reporting.figures import FigureReport, FigureSums, Headline
from groundwatch.reporting.live import LiveView
from groundwatch.reporting.render import figure_tables
from groundwatch.reporting.report import Report
from groundwatch.runtime.delivery.outcomes import outcome_of, unscored
from groundwatch.statistics.intervals import Interval
from groundwatch.terminal import Console
from groundwatch_benchmarks.json_files import Place
from groundwatch_benchmarks.methods.genception.suite import figures as chain_figures
from groundwatch_benchmarks.methods.vlm2.suite import score_outcomes, tally

JUDGE = Judge(engine="test")
IMAGES = tuple(f"{number:064x}" for number in range(7))
OBJECTS = ("dog", "cat", "chair", "bus")


def response(protocol: str, number: int, **changes) -> ResponseRecorded:
    values = {"id": str(number), "model": "m", "answer": "A dog.", "images": (IMAGES[number % 7],)}
    return ResponseRecorded(**(values | {"protocols": (protocol,), "recorded_at": 1.7e9 + number} | changes))


def extracted(asked: ResponseRecorded, claims: Sequence[Claim]) -> ClaimsExtracted:
    unit = SubSentence(start=0, end=6, text="A dog.", label=Label.DESCRIPTIVE)
    return ClaimsExtracted(
        response=asked, protocol=asked.protocols[0], judge=JUDGE, units=(unit,), claims=tuple(claims)
    )


def verified(asked: ResponseRecorded, claims: Sequence[Claim], verdicts: Sequence[Verdict]) -> ClaimsVerified:
    return ClaimsVerified(extracted=extracted(asked, claims), judge=JUDGE, verdicts=tuple(verdicts))


def tri_he(random: Random, number: int) -> ClaimsVerified:
    found = [random.choice(("true", "object1", "relation")) for _ in range(random.randint(0, 5))]
    claims = [Claim(text="dog on mat", category="relation", parts=("dog", "on", "mat")) for _ in found]
    return verified(
        response("tri-he", number),
        claims,
        [
            Verdict(decision=Decision.SUPPORTED)
            if one == "true"
            else Verdict(decision=Decision.REFUTED, evidence=f"wrong: {one}")
            for one in found
        ],
    )


def pope(random: Random, number: int) -> ClaimsVerified:
    said, holds = random.choice(("yes", "no")), random.random() < 0.4
    asked = response(
        "pope", number, prompt="A dog?", reference=Reference(facts=(KnownFact(text="A dog?", holds=holds),))
    )
    right = (said == "yes") == holds
    claim = Claim(text="A dog?", category=said, parts=("A dog?", said))
    verdict = Verdict(decision=Decision.SUPPORTED if right else Decision.REFUTED)
    return verified(asked, [claim], [verdict])


def matched(protocol: str, random: Random, number: int, category: str) -> ClaimsMatched:
    named = random.sample(OBJECTS, random.randint(0, 3))
    there = random.sample(OBJECTS, random.randint(1, 3))
    asked = response(protocol, number, reference=Reference(objects=tuple(there)))
    claims = [Claim(text=name, category=category, parts=(name,)) for name in named]
    matches = tuple(Match(claim=at, reference=name) for at, name in enumerate(named) if name in there)
    return ClaimsMatched(extracted=extracted(asked, claims), judge=JUDGE, matches=matches)


def vlm2(random: Random, number: int) -> ClaimsVerified:
    """A coarse question and three fine ones for each sequence; every fifth lacks its last answer."""
    sequence, question = divmod(number, 4)
    tags = {"task": "t", "sequence": str(sequence), "level": "fine" if question else "coarse", "truth": "yes"}
    if sequence % 5 == 0:
        tags["questions"] = "5"
    elif sequence % 2:
        tags["questions"] = "4"
    answer = random.choice(("Yes", "Yes", "Yes", "No", "Hard to say."))
    return verified(response("vlm2", number, answer=answer, tags=tags), [], [])


def genception(random: Random, number: int) -> ChainAdvanced:
    length = random.choice((1, 3))
    steps = tuple(ChainStep(description="A dog.", similarity=random.uniform(-1, 1)) for _ in range(length))
    return ChainAdvanced(
        response=response("genception", number), protocol="genception", length=length, steps=steps
    )


def faithscore(random: Random, number: int) -> ClaimsVerified:
    found = [random.choice((Decision.SUPPORTED, Decision.REFUTED)) for _ in range(random.randint(0, 4))]
    claims = [Claim(text=str(at), category="entity") for at in range(len(found))]
    return verified(response("faithscore", number), claims, [Verdict(decision=one) for one in found])


MAKERS: dict[str, Callable[[Random, int], ClaimsVerified | ClaimsMatched | ChainAdvanced]] = {
    "tri-he": tri_he,
    "pope": pope,
    "valor-object-existence": lambda random, n: matched("valor-object-existence", random, n, "object"),
    "chair": lambda random, n: matched("chair", random, n, "object"),
    "vlm2": vlm2,
    "genception": genception,
    "faithscore": faithscore,
}


def outcomes(protocol: str, number: int = 120, seed: int = 3) -> list[tuple[object, ResponseScored]]:
    """Judged responses with their outcomes, by the protocol's own arithmetic; answers not judged beside."""
    random = Random(seed)
    judged = [MAKERS[protocol](random, at) for at in range(number)]
    return [(one, outcome_of(one, registry.get(protocol))) for one in judged]


def offline(protocol: str, judged: list[tuple[object, ResponseScored]]) -> dict[str, float | None]:
    """What the protocol's commands over files and suites say of the same."""
    pairs = []
    for one, outcome in judged:
        asked = one.response if isinstance(one, ChainAdvanced) else one.extracted.response  # type: ignore[attr-defined]
        question = Question(
            id=asked.id,
            protocol=protocol,
            prompt="",
            images=(),
            reference=asked.reference,
            tags={"task": "conversation"} if protocol == "faithscore" else {},
            unit=asked.images[0],
        )
        pairs.append((question, outcome))
    benchmark = registry.benchmarks().get(registry.method(protocol).name, Benchmark())
    found = benchmark.figures(pairs)
    match protocol:
        case "tri-he":
            kinds = {
                f"{name}.{kind}": value
                for kind, rates in found["by_kind"].items()  # type: ignore[attr-defined]
                for name, value in rates.items()
            }
            # Without a scene graph nobody knows what is a prediction error.
            kinds["prediction_error"] = None
            return {name: found[name] for name in ("hallu_q", "hallu_i")} | kinds  # type: ignore[return-value]
        case "pope":
            read = {name: found[name] for name in ("accuracy", "precision", "recall", "f1", "yes_ratio")}
            # Here all are read; what is not counts as wrong in the first alone.
            return {"accuracy": read["accuracy"], "accuracy_read": read.pop("accuracy"), **read}  # type: ignore[return-value]
        case "valor-object-existence":
            subset = found["object-existence"]
            return {name: subset[name] for name in ("faithfulness", "coverage")}  # type: ignore[index]
        case "vlm2":
            read = [outcome.score for _, outcome in judged if outcome.score is not None]
            return {"score": found["score_mean"], "score_read": found["read_mean"], "right": fmean(read)}  # type: ignore[dict-item]
        case "genception":
            chains = [one for one, _ in judged]
            return {f"gc{t}": chain_figures(chains, t)["gc"] for t in (1, 3, 5)}  # type: ignore[misc, arg-type]
        case "chair":
            captions = [
                Caption(
                    mentioned=frozenset(claim.text for claim in one.extracted.claims),  # type: ignore[attr-defined]
                    present=frozenset(one.extracted.response.reference.objects),  # type: ignore[attr-defined]
                )
                for one, _ in judged
            ]
            return {name: chair(captions)[name] for name in ("chair_i", "chair_s")}
        case "faithscore":
            whole = found["overall"]
            return {name: whole[name].value for name in ("faithscore", "sentence_level")}  # type: ignore[index]
    raise AssertionError(f"nothing counts {protocol} offline")


@pytest.mark.parametrize("protocol", MAKERS)
def test_report_archive_and_offline_command_say_the_same(protocol: str, tmp_path: Path):
    judged = outcomes(protocol)
    report = Report()
    archive = Archive(str(tmp_path / "archive"))
    rows = []
    for number, (_, outcome) in enumerate(judged, start=1):
        report.add(outcome)
        rows.append(Row(event=outcome, key=outcome.key, stream=1, sequence=number))
    archive.add(rows, created=1, position=len(rows))
    (row,) = (one for one in report.models() if one.scored)
    told = {one.name: one for one in row.figures}
    assert {name: one.value and one.value.value for name, one in told.items()} == {
        name: value and pytest.approx(value) for name, value in offline(protocol, judged).items()
    }
    with Session(archive.snapshot()) as session:
        (archived,) = break_down(session, ("model",)).rows()
    assert len(archived.figures) == len(row.figures)
    for one, other in zip(archived.figures, row.figures, strict=True):
        assert (one.name, one.coverage) == (other.name, other.coverage)
        assert (one.value is None) == (other.value is None)
        if one.value is not None and other.value is not None:
            assert msgspec.structs.astuple(one.value) == pytest.approx(msgspec.structs.astuple(other.value))
            assert one.value.low <= one.value.value <= one.value.high


def test_every_protocol_says_its_figures():
    assert {name for name in registry.names() if not registry.get(name).headline} == set()
    for name in registry.names():
        figures = registry.get(name).headline
        assert len({one.name for one in figures}) == len(figures)


def test_more_figures_than_fit_into_80_columns_are_told_in_two_tables():
    value = Interval(0.123, 0.101, 0.456, 1234)
    figures = [
        FigureReport(name=one.name, heading=one.heading, meaning="", value=value, coverage=0.5)
        for one in registry.get("tri-he").headline
    ]
    stream = io.StringIO()
    tables = list(figure_tables([("a-model-of-some-length", figures)]))
    for table in tables:
        Console(file=stream, width=80).print(table)
    assert len(figures) > 6 and len(tables) == 2
    assert stream.getvalue().count("0.123") == len(figures)
    assert "…" not in stream.getvalue()


def test_a_chain_below_zero_lies_in_its_interval():
    report = Report()
    report.add(
        ResponseScored(
            id="1",
            model="m",
            protocol="genception",
            outcome=OutcomeKind.SCORED,
            score=-0.13,
            values={"s1": -0.13, "gc1": -0.13},
            answer_words=3,
        )
    )
    (row,) = report.models()
    for found in (row.score, row.figures[0].value, row.by_answer_words[0].score):
        assert found is not None
        assert -1 < found.low < -0.5 and 0.3 < found.high < 1 and found.value == -0.13


def test_old_outcomes_and_judged_ones_without_values_are_lacking():
    report = Report()
    (_, new), *_ = outcomes("pope", 1)
    report.add(new)
    report.add(msgspec.structs.replace(new, id="old", values={"accuracy": 1.0}))
    report.add(unscored(response("pope", 9), "pope", Unscorable("unsure_reply"), judges=new.judges))
    (row,) = report.models()
    assert [one.coverage for one in row.figures] == [pytest.approx(share / 3) for share in (2, 1, 1, 1, 1, 1)]
    again = msgspec.json.decode(msgspec.json.encode(row.figures), type=tuple[figures.FigureReport, ...])
    assert again == row.figures


@pytest.mark.parametrize("protocol", ["pope", "dash-b", "amber-existence"])
def test_a_reply_that_cannot_be_read_is_wrong_and_beside_that_stands_the_figure_of_those_read(protocol: str):
    report = Report()
    (_, right), *_ = [(one, outcome) for one, outcome in outcomes("pope") if outcome.score == 1]
    report.add(msgspec.structs.replace(right, protocol=protocol))
    with pytest.raises(Unscorable) as unread:
        read_claim(response(protocol, 9, answer="Hard to say.", prompt="A dog?"))
    report.add(unscored(response(protocol, 9), protocol, unread.value, judges=right.judges))
    (row,) = report.models()
    figures = {figure.name: figure.value for figure in row.figures}
    assert figures["accuracy"] is not None and (figures["accuracy"].value, figures["accuracy"].n) == (0.5, 2)
    assert figures["accuracy_read"] is not None and figures["accuracy_read"].value == 1.0


def test_models_have_ranks_among_those_of_the_same_judges():
    report = Report(most=3)
    for model, score in (("a", 0.2), ("b", 0.9), ("c", 0.5), ("c", 0.5), ("b", 0.9)):
        report.add(
            ResponseScored(
                id=model,
                model=model,
                protocol="genception",
                outcome=OutcomeKind.SCORED,
                values={"gc1": score},
                # A chain's judges name who described: the model under test.
                judges={
                    "captioning": Judge(engine="openai", model=model, prompt="p"),
                    "generation": Judge(engine="triton"),
                },
            )
        )
    found = {row.model: (row.figures[0].rank, row.figures[0].ranked) for row in report.models()}
    assert found == {"a": (3, 3), "b": (1, 3), "c": (2, 3)}
    assert all(figure.rank == 0 for row in report.models() for figure in row.figures[1:])


MEAN = Figure(name="mean", heading="", meaning="", of=("x",))
POOLED = Figure(name="pooled", heading="", meaning="", of=("n",), over=("n", "d"))
BY_UNIT = Figure(name="unit", heading="", meaning="", of=("x",), per_unit=True)
GATED = Figure(name="gated", heading="", meaning="", of=("x",), per_unit=True, gate="gate")
VALUES = st.fixed_dictionaries(
    {},
    optional={
        "x": st.integers(0, 4).map(lambda quarters: quarters / 4),
        "n": st.integers(0, 5).map(float),
        "d": st.integers(0, 5).map(float),
        "gate": st.sampled_from((0.0, 1.0)),
    },
)
ANSWERS = st.lists(st.tuples(VALUES, st.sampled_from("abc"), st.sampled_from((1.0, 4.0))), max_size=12)


def summed(figure: Figure, answers) -> FigureSums:
    sums = FigureSums(figure)
    for values, unit, each in answers:
        sums.add(values, unit, each)
    return sums


def expected(figure: Figure, answers) -> float | None:
    """The figure by its definition: lists instead of sums."""
    if figure is POOLED:
        both = [(v["n"], v["n"] + v["d"], w) for v, _, w in answers if "n" in v and "d" in v]
        whole = sum(w * over for _, over, w in both)
        return sum(w * of for of, _, w in both) / whole if whole else None
    units = defaultdict(list)
    for at, (values, unit, each) in enumerate(answers):
        units[unit if figure.per_unit else at].append((values, each))
    means = []
    for several in units.values():
        scores = [(v["x"], w) for v, w in several if "x" in v]
        gates = [v["gate"] for v, _ in several if "gate" in v]
        there = [w for v, w in several if "x" in v or figure.gate in v]
        if figure.gate and not gates:
            continue
        if figure.gate and min(gates) < 1:
            means.append((0.0, fmean(there)))
        elif scores:
            means.append((sum(x * w for x, w in scores) / sum(w for _, w in scores), fmean(there)))
    weights = sum(w for _, w in means)
    return sum(x * w for x, w in means) / weights if weights else None


@pytest.mark.parametrize("figure", [MEAN, POOLED, BY_UNIT, GATED], ids=lambda one: one.name)
@settings(max_examples=30)
@given(answers=ANSWERS, cut=st.integers(0, 12))
def test_sums_are_the_definition_and_parts_merge_to_the_whole(figure: Figure, answers, cut: int):
    whole, part, rest = (summed(figure, some) for some in (answers, answers[:cut], answers[cut:]))
    part.merge(rest)
    twice, both = summed(figure, [*answers, *answers]), summed(figure, answers)
    both.merge(both)
    for one, other in (
        (whole, answers),
        (part, answers),
        (twice, [*answers, *answers]),
        (both, [*answers, *answers]),
    ):
        found, wanted = one.interval((0.0, 1.0)), expected(figure, other)
        assert (found is None) == (wanted is None)
        if found is not None:
            assert found.value == pytest.approx(wanted)
            assert 0 <= found.low <= found.value <= found.high <= 1
    assert both.answers == twice.answers == 2 * part.answers
    if (found := both.interval((0.0, 1.0))) is not None:
        assert msgspec.structs.astuple(found) == pytest.approx(
            msgspec.structs.astuple(twice.interval((0.0, 1.0)))
        )


def test_a_mean_of_survivors_is_no_figure():
    """Answers whose wrong parts are not named lack the value: the others are without fault."""
    figure = Figure(name="k", heading="K", meaning="", of=("x",), all_of="n", lacking="part_not_named")
    sums, more = (summed(figure, [({"x": 0.0, "n": 0.0}, "", 1.0)]) for _ in range(2))
    assert sums.interval((0.0, 1.0)).value == 0.0 and sums.reason == ""
    more.add({"n": 1.0}, "", 1.0)
    sums.merge(more)
    restored = msgspec.msgpack.decode(msgspec.msgpack.encode(sums), type=FigureSums)
    for one in (more, sums, restored):
        assert (one.interval((0.0, 1.0)), one.reason) == (None, "part_not_named")


def test_images_that_are_remembered_are_bounded(monkeypatch):
    monkeypatch.setattr(figures, "UNITS", 5)
    sums = FigureSums(BY_UNIT)
    for number in range(100):
        sums.add({"x": number % 2}, f"image {number // 2}", 1.0)
    assert len(sums.units) == 5
    found = sums.interval((0.0, 1.0))
    assert found is not None and (found.value, found.n) == (0.5, 50)


ROUNDS = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.integers(0, 3).map(lambda hours: 3000.0 * hours),
        st.lists(st.sampled_from(("Yes.", "No.", "Hard to say.", None)), min_size=3, max_size=3),
        st.lists(st.integers(0, 8000).map(float), min_size=3, max_size=3),
    ),
    max_size=5,
)
"""Of a sequence: when it was asked, what was said to each question (None: nothing), and how much later."""


@settings(max_examples=60)
@given(rounds=ROUNDS, random=st.randoms(), cut=st.integers(0, 15))
def test_live_traffic_a_replay_and_a_file_have_the_same_groups(rounds, random: Random, cut: int):
    found = [
        in_sequence(sequence, at, said, began + delay)
        for sequence, began, answers, delays in rounds
        for at, (said, delay) in enumerate(zip(answers, delays, strict=True))
        if said is not None
    ]
    place = Place(Path("live"), 1)
    try:
        told = tally(score_outcomes([(place, one) for one in found], 3600.0))
    except FileFormatError:
        reject()
    live, replay, begun, rest = Report(), Report(), Headline("vlm2"), Headline("vlm2")
    for one in found:
        live.add(one)
    for one in random.sample(found, len(found)):
        replay.add(msgspec.structs.replace(one, run="again"))
    for at, one in enumerate(found):
        (begun if at < cut else rest).add(one)
    begun.merge(rest)
    rows = [*live.models(), *replay.models()]
    for figures_of, groups in ((row.figures, row.groups) for row in rows):
        score, read, _ = (one.value and pytest.approx(one.value.value) for one in figures_of)
        assert (told["score_mean"], told["read_mean"]) == (score, read)
        complete = told["sequences"] - told["unscored"]
        reasons = told["unscored_by_reason"] | ({"complete": complete} if complete else {})
        assert groups == begun.groups() == reasons
    assert len(rows) == (2 if found else 0)


def in_sequence(sequence: str, question: int, said: str, recorded_at: float, of: int = 3) -> ResponseScored:
    tags = {"task": "t", "sequence": sequence, "level": "fine" if question else "coarse", "truth": "yes"}
    asked = response(
        "vlm2", question, answer=said, tags=tags | {"questions": str(of)}, recorded_at=recorded_at
    )
    return outcome_of(verified(asked, [], []), registry.get("vlm2"))


def test_a_live_group_waits_for_its_time_and_a_replays_does_not():
    report = Report()
    for run in ("live", "again"):
        one = in_sequence("s", 0, "Yes.", time.time())
        report.add(msgspec.structs.replace(one, run=run))
    assert {row.run: row.groups for row in report.models()} == {
        "live": {"group_waiting: 1 of 3 came": 1},
        "again": {"group_timed_out: 1 of 3 came": 1},
    }


def test_watching_shows_how_many_groups_are_complete():
    view, stream = LiveView(), io.StringIO()
    for sequence, number in (("s", 3), ("t", 2)):
        for question in range(number):
            view.add(in_sequence(sequence, question, "Yes.", time.time()))
    Console(file=stream, width=100, force_terminal=False).print(view)
    assert "· vlm2: groups 1 complete, 1 group_waiting: 2 of 3 came" in stream.getvalue()


def test_models_and_tenants_have_groups_of_their_own():
    report = Report(most=1)
    for at, (model, tenant) in enumerate((("a", "x"), ("a", "y"), ("b", "x"))):
        one = in_sequence("s", at, "Yes.", 1.0)
        report.add(msgspec.structs.replace(one, model=model, tenant=tenant))
    assert {row.model: row.groups for row in report.models()} == {
        "other": {"group_timed_out: 1 of 3 came": 2},
        "b": {"group_timed_out: 1 of 3 came": 1},
    }


def test_groups_that_are_remembered_are_bounded(monkeypatch):
    nightly = Headline("vlm2")
    for night in range(1000):
        for question in range(3):
            nightly.add(in_sequence("s", question, "Yes.", 86_400.0 * night + question))
    assert sum(map(len, nightly.open.values())) < 150
    assert nightly.groups() == {"complete": 1000}
    assert [one.value and (one.value.value, one.value.n) for one in nightly.figures()[:2]] == [
        (1.0, 1000)
    ] * 2
    monkeypatch.setattr(figures, "UNITS", 5)
    many = Headline("vlm2")
    for sequence in range(20):
        for question in range(2 + sequence % 2):
            many.add(in_sequence(str(sequence), question, "Yes.", float(sequence)))
    assert len(many.open) == 5
    assert many.groups() == {"complete": 10, "group_pushed_out": 8, "group_timed_out: 2 of 3 came": 2}


def test_counts_of_groups_are_bounded():
    headline = Headline("vlm2")
    for of in range(2, 60):
        headline.add(in_sequence(str(of), 0, "Yes.", 1.0, of=of))
    groups = headline.groups()
    assert len(groups) == figures.REASONS + 1 and groups["group_timed_out"] == 58 - figures.REASONS


def test_an_answer_weighs_what_it_stands_for():
    report = Report()
    for (_, one), probability in zip(outcomes("pope", 40), [1.0, 0.25] * 20, strict=True):
        report.add(msgspec.structs.replace(one, drawn=Drawn(probability=probability, lowest=probability)))
    (row,) = report.models()
    each = [
        (one.score or 0.0, weight) for (_, one), weight in zip(outcomes("pope", 40), [1, 4] * 20, strict=True)
    ]
    assert row.figures[0].value is not None
    assert row.figures[0].value.value == pytest.approx(sum(s * w for s, w in each) / 100)
