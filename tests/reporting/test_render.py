"""The tables: inside 80 columns without a terminal, and complete."""

from __future__ import annotations

import io

from groundwatch.events import OutcomeKind
from groundwatch.reporting.live import LiveView
from groundwatch.reporting.render import render
from groundwatch.reporting.report import Report
from groundwatch.terminal import Console


def text_of(report: Report) -> str:
    stream = io.StringIO()
    render(report, Console(file=stream, width=80, force_terminal=False))
    return stream.getvalue()


def test_nothing_is_said_of_nothing(make):
    assert text_of(Report()) == "No outcomes.\n"


def test_watching_shows_no_score_where_none_was_given(make):
    view, stream = LiveView(), io.StringIO()
    view.add(make.scored(1, 1, 1, score=None, values={}))
    console = Console(file=stream, width=100, force_terminal=False)
    console.print(view)
    assert "0.000" not in stream.getvalue()
    view.add(make.scored(2, 1, 1))
    console.print(view)
    assert "0.500" in stream.getvalue()


def test_a_report_fits_80_columns(make):
    report = Report()
    for n in range(120):
        late = n >= 60
        report.add(
            make.scored(
                n,
                3 if late else 0,
                4,
                model="llava-1.5-13b-preview",
                answer_words=7 * n % 330,
                values={"faithscore.entity": 0.5, "sentence_level": 0.5, "entities": float(n % 14)},
            )
        )
        report.add(make.scored(n, 0, 4, model="steady"))
    report.add(make.ended(OutcomeKind.UNSCORED, "nothing_to_verify", model="steady", judges=make.early))
    report.add(make.ended(OutcomeKind.DECLINED, "sampled_out", model="steady"))
    text = text_of(report)
    assert max(len(line) for line in text.splitlines()) <= 80
    flat = " ".join(text.split())
    assert "steady: unscored 1 nothing_to_verify" in flat
    assert "steady: declined 1 sampled_out" in flat
    assert "extraction reader, verification reference" in flat
    for title in ("Per model", "by category", "by answer length", "by number of entities"):
        assert title in flat


def test_judges_tell_rows_of_one_model_apart(make):
    report = Report()
    report.add(make.scored(1, 0, 1))
    report.add(make.scored(1, 0, 1, judges=make.other))
    text = text_of(report)
    for judges in (make.other, make.both):
        row = Report()
        row.add(make.scored(1, 0, 1, judges=judges))
        assert row.models()[0].fingerprint[:6] in text
    assert "not pooled" in text


def test_names_with_brackets_are_printed_as_they_are(make):
    report = Report()
    report.add(make.scored(1, 0, 1, model="[red]m[/]"))
    assert "[red]m[/]" in text_of(report)


def test_groups_are_named_and_compared(make):
    report = Report(by="strategy")
    for number in range(10):
        report.add(make.scored(number, 2, 2, tags={"strategy": "direct"}))
        report.add(make.scored(number, number % 2, 4, tags={"strategy": "triplets-first"}))
    told = text_of(report)
    assert "m · direct" in told and "m · triplets-first" in told
    assert "triplets-first against direct: score +" in told and "facts not in the image -" in told
