"""The papers' tables as they ship: complete, sourced, and saying how we make the same number."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean

import pytest

from groundwatch.protocols import registry
from groundwatch.statistics.intervals import mean_ranks
from groundwatch_benchmarks import methods
from groundwatch_benchmarks.published import PublishedTable, tables

KEYS = [(table.protocol, table.source.table) for table in tables()]
BY_KEY = dict(zip(KEYS, tables(), strict=True))

each_table = pytest.mark.parametrize(
    "table", tables(), ids=lambda table: f"{table.protocol}-{table.source.table}"
)


def number(protocol: str, table: str, model: str, column: str) -> float | None:
    found = BY_KEY[protocol, table]
    at = [one.name for one in found.columns].index(column)
    return next(row.values[at] for row in found.rows if row.model == model)


def test_the_tables_are_those_of_the_papers():
    sizes = {key: (len(table.columns), len(table.rows)) for key, table in BY_KEY.items()}
    assert sizes == {
        ("faithscore", "4"): (5, 6),
        ("faithscore", "5"): (5, 6),
        ("faithscore", "10"): (1, 8),
        ("genception", "2"): (2 + 4 + 3 + 1 + 10 * 4 + 4 * 3, 4),
        ("tri-he", "2"): (8, 7),
        ("valor", "3"): (12, 10),
    }


@pytest.mark.parametrize(
    ("protocol", "table", "model", "column", "value"),
    [
        ("faithscore", "4", "mPLUG-Owl", "mscoco-cap", 0.8546),
        ("faithscore", "4", "Multimodal-GPT", "conversation", 0.5321),
        ("faithscore", "5", "LLaVA", "detailed-description", 0.6979),
        ("faithscore", "10", "Gemini", "overall", 0.8865),
        ("genception", "2", "GPT-4V", "visual.gc5", 0.335),
        ("genception", "2", "mPLUG-Owl2", "ocr.gc3", 0.276),
        ("genception", "2", "LLaVA-7B", "celebrity.gc1", 0.263),
        ("genception", "2", "LLaVA-7B", "celebrity.acc", None),
        ("genception", "2", "LLaVA-13B", "gc_rank", 2.62),
        ("tri-he", "2", "LLaMA-3.2", "gpt-4.relation.hallu_q", 17.87),
        ("tri-he", "2", "MiniGPT-4", "nli.overall.hallu_i", 55.61),
        ("valor", "3", "Emu2", "attribute-people.coverage", 1.9),
        ("valor", "3", "GPT-4V", "relation-comparative.faithfulness", 51.6),
    ],
)
def test_some_numbers(protocol: str, table: str, model: str, column: str, value: float | None):
    assert number(protocol, table, model, column) == value


@each_table
def test_every_table_names_its_source_and_fits_together(table: PublishedTable):
    assert len(table.source.paper) > 20 and table.source.table.isdigit()
    assert table.title and table.unit and table.judge and table.data
    names = [column.name for column in table.columns]
    assert len(set(names)) == len(names)
    for row in table.rows:
        assert len(row.values) == len(names), row.model
    for group in table.groups:
        assert {group.headline, *group.columns} <= set(names)
        assert group.headline in group.columns
        assert len(group.columns) <= 6, "more do not fit into 80 columns"
    for column in table.columns:
        assert column.heading and column.meaning
        assert not (column.of and column.average) and bool(column.of) >= bool(column.over)
        assert set(column.average) <= set(names)
        values = [row.values[names.index(column.name)] for row in table.rows]
        low, high = (0, 100) if "percent" in (column.unit or table.unit) else (-1, 10)
        assert all(value is None or low <= value <= high for value in values)


def test_every_file_is_read():
    shipped = list(Path(methods.__path__[0]).glob("*/table-*.json"))
    assert len(shipped) == len(tables())
    for one in shipped:
        found = json.loads(one.read_text("utf-8"))
        assert one.name == f"table-{found['source']['table']}.json"


def test_protocols_are_those_that_run():
    for table in tables():
        assert table.protocols <= {*registry.names(), "tri-he"}


def test_valors_averages_are_those_of_its_columns():
    table = BY_KEY["valor", "3"]
    names = [column.name for column in table.columns]
    for row in table.rows:
        values = dict(zip(names, row.values, strict=True))
        for column in table.columns:
            if column.average:
                mean = fmean(values[name] or 0.0 for name in column.average)
                assert mean == pytest.approx(values[column.name], abs=0.005), row.model


def test_derived_numbers_and_ranks_follow_from_the_printed_ones():
    names = [column.name for column in BY_KEY["genception", "2"].columns]
    rows = {row.model: dict(zip(names, row.values, strict=True)) for row in BY_KEY["genception", "2"].rows}
    for values in rows.values():
        for gc in ("gc1", "gc3"):
            expected = (10 * (values[f"visual.{gc}"] or 0) + 4 * (values[f"textual.{gc}"] or 0)) / 14
            assert values[f"all.{gc}"] == pytest.approx(expected, abs=5e-5)
    (rank,) = [column for column in BY_KEY["genception", "2"].columns if column.ranks]
    scorings = [
        (weight / len(names), {model: values[name] or 0.0 for model, values in rows.items()})
        for weight, names in rank.ranks
        for name in names
    ]
    for model, found in mean_ranks(scorings).items():
        assert found == pytest.approx(rows[model]["gc_rank"], abs=0.01)
