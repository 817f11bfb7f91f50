"""`groundwatch validate annotators` as it is typed."""

from __future__ import annotations

import io
from itertools import product

from groundwatch.terminal import Console
from groundwatch_benchmarks.agreement.people import Annotation, agreement_table, annotator_agreement


def test_the_command_prints_both_numbers(nobody, written):
    file = written(
        *(
            {"item": item, "annotator": annotator, "label": item % 2 if annotator != "c" else item % 3 == 0}
            for item, annotator in product(range(12), "abc")
        )
    )
    found = nobody.json("validate", "annotators", file)
    assert (found["items"], found["annotators"]) == (12, 3)
    assert found["fleiss_kappa"]["n"] == found["krippendorff_alpha"]["n"] == 12
    told = nobody("validate", "annotators", file).stdout
    assert "Agreement of 3 annotators on 12 items" in told
    assert f"{found['krippendorff_alpha']['value']:.3f}" in told


def test_a_bad_line_is_one_line(nobody, written):
    file = written({"item": 1, "annotator": "a", "label": "yes"}, {"item": 1, "annotator": "b"})
    assert nobody.complaint("validate", "annotators", file) == f"{file}:2: key 'label': is missing"


def test_what_is_undefined_is_said_inside_80_columns():
    stream = io.StringIO()
    annotations = [Annotation(str(n), "a", "[red]yes[/]") for n in range(3)]
    Console(file=stream, width=80).print(agreement_table(annotator_agreement(annotations)))
    text = stream.getvalue()
    assert "undefined" in text
    assert "[red]yes[/]" in text
    assert max(map(len, text.splitlines())) <= 80
