"""A user's models in the published tables: the right cell, the right order, and said what differs."""

from __future__ import annotations

import io
from statistics import fmean

import pytest

from groundwatch.errors import UsageError
from groundwatch.events import Drawn, Judge, OutcomeKind, ResponseScored
from groundwatch.terminal import Console
from groundwatch_benchmarks.published import ComparedRow, ComparedTable, PublishedComparison, render_published

LINGUISTIC = Judge(engine="reader")
SEMANTIC = {"extraction": LINGUISTIC, "matching": Judge(engine="semantic", model="MiniLM")}
REFERENCE = {"extraction": LINGUISTIC, "verification": Judge(engine="reference")}
SIMILARITY = {"extraction": LINGUISTIC, "verification": Judge(engine="similarity")}
LLM = {"extraction": LINGUISTIC, "verification": Judge(engine="llm", model="big")}
SUBSETS = (
    "object-existence",
    "attribute-object",
    "attribute-people",
    "relation-positional",
    "relation-comparative",
)


def outcome(protocol: str, number: int, values: dict[str, float], **changes) -> ResponseScored:
    return ResponseScored(
        **{
            "id": str(number),
            "model": "heron",
            "protocol": protocol,
            "outcome": OutcomeKind.SCORED,
            "score": 0.5,
            "values": values,
            "judges": REFERENCE,
        }
        | changes
    )


def valor(subset: str, number: int, faithful: int, covered: int, **changes) -> ResponseScored:
    values = {"faithful": faithful, "generated": 4, "covered": covered, "reference": 10}
    judges = SEMANTIC | {"matching": Judge(engine="semantic", model="MiniLM", prompt=subset)}
    return outcome(f"valor-{subset}", number, values, judges=judges, **changes)


def placed(protocol: str, *events: ResponseScored) -> tuple[ComparedTable, ...]:
    found = PublishedComparison(protocol)
    for event in events:
        found.add(event)
    return found.tables()


def mine(table: ComparedTable, group: int = 0) -> list[ComparedRow]:
    return [row for row in table.groups[group].rows if not row.published]


def text_of(tables: tuple[ComparedTable, ...]) -> str:
    stream = io.StringIO()
    render_published(tables, Console(file=stream, width=80, force_terminal=False))
    return stream.getvalue()


def test_valor_pools_each_subset_and_averages_all_five():
    events = [
        valor(subset, n, faithful=(n + at) % 5, covered=n % 3)
        for at, subset in enumerate(SUBSETS)
        for n in range(20)
    ]
    (table,) = placed("valor", *events)
    (row,) = mine(table)
    each = [row.cells[f"{subset}.faithfulness"].value for subset in SUBSETS]
    assert each == [pytest.approx(50.0)] * 5
    average = row.cells["average.faithfulness"]
    assert average.value == pytest.approx(fmean(each))
    one = row.cells["object-existence.faithfulness"]
    assert one.n == 20 and one.low is not None and average.low is not None
    assert one.low < average.low < 50.0
    assert [group.sorted_by for group in table.groups] == ["average.faithfulness", "average.coverage"]
    values = [row.cells["average.faithfulness"].value for row in table.groups[0].rows]
    assert values == sorted(values, reverse=True)
    assert len(values) == 11


def test_one_subset_is_sorted_by_its_own_column_and_told_apart():
    events = [valor("attribute-people", n, 2, 1) for n in range(5)]
    (table,) = placed("valor-attribute-people", *events, valor("object-existence", 9, 4, 4))
    (row,) = mine(table)
    assert set(row.cells) == {"attribute-people.faithfulness", "attribute-people.coverage"}
    assert table.groups[0].sorted_by == "attribute-people.faithfulness"


def test_faithscore_has_three_tables_and_tags_choose_the_column():
    values = {"faithscore": 0.9, "sentence_level": 0.6}
    tables = placed(
        "faithscore",
        outcome("faithscore", 1, values, tags={"task": "Conversation"}),
        outcome("faithscore", 2, {"faithscore": 0.5}, tags={}),
        outcome("faithscore", 3, {"faithscore": 0.1}, tags={"dataset": "mscoco-cap"}),
        outcome("other", 4, values),
    )
    assert [table.table for table in tables] == ["4", "5", "10"]
    cells = [mine(table)[0].cells for table in tables]
    assert {name: (cell.value, cell.n) for name, cell in cells[0].items()} == {
        "conversation": (pytest.approx(0.9), 1),
        "overall": (pytest.approx(0.7), 2),
        "mscoco-cap": (pytest.approx(0.1), 1),
    }
    assert cells[1]["overall"].value == pytest.approx(0.6)
    assert cells[2]["overall"].n == 2


def test_answers_without_facts_count_beside_as_the_authors_code_counts_them():
    values = {"faithscore": 0.9, "sentence_level": 0.6}
    silent = {"outcome": OutcomeKind.UNSCORED, "score": None}
    tables = placed(
        "faithscore",
        outcome("faithscore", 1, values),
        outcome("faithscore", 2, {}, **silent, reason="nothing_to_verify"),
        outcome("faithscore", 3, {}, **silent, reason="refused"),
        outcome("faithscore", 4, values, model="plover"),
        outcome("faithscore", 5, {}, **silent, reason="refused", model="plover"),
    )
    found = [{row.model: row.cells["overall"].value for row in mine(table)} for table in tables]
    wanted = {"heron": 0.9, "heron, as published": 0.45, "plover": 0.9}
    assert found[0] == found[2] == pytest.approx(wanted)
    assert found[1] == pytest.approx({"heron": 0.6, "heron, as published": 0.8, "plover": 0.6})
    assert "unscored here" in " ".join(text_of(tables).split())


def test_tri_he_stands_under_its_judge_and_lower_is_better():
    def asked(number: int, hallu: float, **changes) -> ResponseScored:
        values = {"hallu": hallu, "hallu.object": hallu / 2, "hallu.relation": hallu / 2}
        return outcome("tri-he", number, values, **changes)

    by_llm = [
        asked(n, 0.2 * n, judges=LLM, tags={"image_id": "a"} if n < 3 else {"image": "b"}) for n in range(4)
    ]
    (table,) = placed("tri-he", *by_llm)
    (row,) = mine(table)
    assert row.cells["gpt-4.overall.hallu_q"].value == pytest.approx(30.0)
    assert row.cells["gpt-4.overall.hallu_i"].value == pytest.approx(40.0)
    assert (row.cells["gpt-4.overall.hallu_q"].n, row.cells["gpt-4.overall.hallu_i"].n) == (4, 2)
    assert not any(name.startswith("nli") for name in row.cells)
    values = [one.cells["gpt-4.overall.hallu_i"].value for one in table.groups[0].rows]
    assert values == sorted(values)
    (embedded,) = placed("tri-he", asked(1, 0.5, judges=SIMILARITY))
    assert [group.title for group in embedded.groups] == ["NLI judge"]
    assert embedded.groups[0].sorted_by == "nli.overall.hallu_q", "without the tag there is no Hallu_I"
    for engine in ("triton", "visual", "reference"):
        (other,) = placed("tri-he", asked(1, 0.5, judges={"verification": Judge(engine=engine)}))
        assert not mine(other)[0].cells, f"{engine} is neither of the paper's judges"
        assert f"verification {engine}" in other.differs[0]


def test_an_answer_weighs_what_it_stands_for():
    rare = Drawn(probability=0.1, lowest=0.1)
    (plain, *_) = placed(
        "faithscore",
        *(outcome("faithscore", n, {"faithscore": 0.9}) for n in range(10)),
        *(outcome("faithscore", n, {"faithscore": 0.1}, drawn=rare) for n in range(10, 20)),
    )
    cell = mine(plain)[0].cells["overall"]
    assert cell.value == pytest.approx((0.9 + 10 * 0.1) / 11)
    assert (cell.n, cell.low < cell.value < cell.high) == (20, True)
    events = [
        valor("object-existence", 1, 4, 10),
        valor("object-existence", 2, 0, 0, drawn=rare),
    ]
    cells = mine(placed("valor-object-existence", *events)[0])[0].cells
    assert {name: cell.value for name, cell in cells.items()} == pytest.approx(
        dict.fromkeys(cells, 100 * 1 / 11)
    )

    def asked(number: int, hallu: float, image: str, drawn: Drawn) -> ResponseScored:
        return outcome(
            "tri-he", number, {"hallu": hallu}, tags={"image_id": image}, drawn=drawn, judges=SIMILARITY
        )

    (table,) = placed(
        "tri-he",
        *(asked(n, 0.5, "often", Drawn()) for n in range(3)),
        asked(3, 0.1, "rare", rare),
    )
    (row,) = mine(table)
    assert row.cells["nli.overall.hallu_i"].value == pytest.approx(100 * (0.5 + 10 * 0.1) / 11)
    assert row.cells["nli.overall.hallu_q"].value == pytest.approx(100 * (3 * 0.5 + 10 * 0.1) / 13)
    assert row.cells["nli.overall.hallu_i"].n == 2


def test_genception_by_category():
    (table,) = placed(
        "genception",
        outcome("genception", 1, {"gc1": 0.5, "gc3": 0.4}, tags={"category": "Count"}),
        outcome("genception", 2, {"gc1": 0.3}, tags={"category": "my own"}),
    )
    (row,) = mine(table)
    assert row.cells["all.gc1"].value == pytest.approx(0.4)
    assert row.cells["count.gc3"].value == row.cells["visual.gc3"].value == pytest.approx(0.4)
    assert "gc_rank" not in row.cells and "ocr.gc3" not in row.cells
    assert [group.title for group in table.groups] == ["Means over categories", "Visual categories, GC@3"]


def test_a_category_that_the_table_does_not_have_is_told():
    """A chain of it counts under all alone, which a wrong spelling should not go unnoticed for."""
    names = ("numerical calculations", "Numerical_Calculation", "posters", "", "numerical calculations")
    (table,) = placed(
        "genception",
        *(
            outcome("genception", at, {"gc1": 0.5}, tags={"category": name} if name else {})
            for at, name in enumerate(names)
        ),
    )
    (told,) = [one for one in table.differs if "are in no column" in one]
    assert told.startswith("2 with the tag category 'numerical calculations' are in no column by category: ")
    assert "poster," in told and "posters" not in told and "ocr" in told


def test_a_gc_rank_is_among_the_models_of_the_same_judges():
    """The four models of the paper's table, with its two means as their chains' own, come out as printed."""
    (printed,) = placed("genception", outcome("genception", 0, {"gc1": 0.5}, judges=LLM))
    rows = {row.model: row.cells for row in printed.groups[0].rows if row.published}
    chains = [
        outcome(
            "genception",
            number,
            {t: cells[f"{group}.{t}"].value for t in ("gc1", "gc3", "gc5") if f"{group}.{t}" in cells},
            model=f"mine-{model}",
            tags={"category": category},
            judges={"captioning": Judge(engine="openai", model=model, prompt="p"), **REFERENCE},
        )
        for number, (model, cells) in enumerate(rows.items())
        for group, category in (("visual", "count"), ("textual", "ocr"))
    ]
    alone = {"gc1": 0.1, "gc3": 0.1, "gc5": 0.1}
    others = [
        outcome("genception", 9, alone, tags={"category": name}, judges=LLM) for name in ("ocr", "count")
    ]
    (table,) = placed("genception", *chains, *others, outcome("genception", 8, alone, model="half"))
    found = {row.model: row.cells.get("gc_rank") for row in mine(table)}
    assert {name: cell and round(cell.value, 2) for name, cell in found.items()} == {
        **{f"mine-{model}": cells["gc_rank"].value for model, cells in rows.items()},
        "heron": 1.0,
        "half": None,
    }


def test_different_judges_have_rows_of_their_own():
    values = {"faithscore": 0.5}
    other = REFERENCE | {"verification": Judge(engine="reference", version="2")}
    tables = placed(
        "faithscore",
        outcome("faithscore", 1, values),
        outcome("faithscore", 1, values, judges=LLM),
        outcome("faithscore", 1, values, judges=other),
    )
    assert [row.cells["overall"].n for row in mine(tables[0])] == [1, 1, 1]
    assert "llm/big" in text_of(tables)


def test_what_has_no_number_is_told():
    with pytest.raises(UsageError, match="no published table of 'pope'; there are tables of faithscore, gen"):
        PublishedComparison("pope")
    unscored = outcome("tri-he", 1, {}, outcome=OutcomeKind.UNSCORED, score=None, reason="no_triplets")
    with pytest.raises(UsageError, match=r"no scored outcome of protocol 'tri-he' .*\(1 unscored\)"):
        placed("tri-he", unscored)
    (table,) = placed("tri-he", unscored, outcome("tri-he", 2, {"hallu": 0.5}))
    assert "In no number: 1 unscored." in table.differs


def test_the_tables_fit_80_columns_and_say_what_differs():
    long = {"model": "heron-7b-instruct-preview-[2]"}
    events = [valor(subset, n, n % 5, n % 3, **long) for subset in SUBSETS for n in range(40)]
    text = text_of(placed("valor", *events))
    assert max(map(len, text.splitlines())) <= 80
    flat = " ".join(text.split())
    assert "▶heron-7b" in text and " InternLM-XComposer2 " in text
    assert "n=40" in text and "n=200" in text
    assert "Not the same measurement." in flat
    assert "yours extraction reader, matching semantic/MiniLM" in flat
    assert "The paper's: GPT-4" in flat
    faith = text_of(placed("faithscore", outcome("faithscore", 1, {"faithscore": 0.5}, **long)))
    assert max(map(len, faith.splitlines())) <= 80
    assert "heron-7b-instruct-preview-[2]"[:20] in faith
