"""Comparing two runs: the arithmetic, and what people are shown of it."""

from __future__ import annotations

import io
import math
import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest
from tests.reporting.conftest import BOTH, EXTRACTOR, OTHER

from groundwatch.events import Decision, Drawn, Judge, JudgedClaim, OutcomeKind, ResponseScored
from groundwatch.reporting.compare.compare import (
    Alone,
    Comparison,
    OutcomeTable,
    SectionComparison,
    bootstrap_ratios,
    changed_claims,
    mcnemar,
    sections,
    share_bins,
    sign_flip,
)
from groundwatch.reporting.compare.render import html_report, render_comparison
from groundwatch.terminal import Console

DECISIONS = {"s": Decision.SUPPORTED, "r": Decision.REFUTED, "u": Decision.UNDECIDED}
SAME = {"extraction": EXTRACTOR, "verification": OTHER}


def outcome(number: int, says: str, *, texts: str = "", **changes) -> ResponseScored:
    """One decision a letter; `texts` names the claims, a letter each."""
    claims = tuple(
        JudgedClaim(
            text=f"claim {texts[place] if texts else place}",
            category=("entity", "color")[place % 2],
            unit=0,
            decision=DECISIONS[letter],
        )
        for place, letter in enumerate(says)
    )
    decided = len(says) - says.count("u")
    return ResponseScored(
        **{
            "id": f"r{number}",
            "model": f"m{number % 2}",
            "tenant": "default",
            "protocol": "faithscore",
            "outcome": OutcomeKind.SCORED,
            "score": says.count("s") / decided if decided else None,
            "judges": BOTH,
            "claims": claims,
            "eligible": len(says),
            "decided": decided,
        }
        | changes
    )


def compared(first, second, **options) -> tuple[SectionComparison, ...]:
    """The sections of outcomes that lie beside each other."""
    sides = OutcomeTable()
    pairs: dict[str, list] = {}
    for a, b in zip(first, second, strict=True):
        pairs.setdefault(a.protocol, []).append((sides.of(a, a.key), sides.of(b, b.key)))
    return sections(pairs, sides, **({"resamples": 200} | options))


answers = st.lists(
    st.tuples(st.text("sru", min_size=1, max_size=6), st.text("sru", min_size=6, max_size=6)),
    min_size=1,
    max_size=25,
)


@settings(max_examples=40)
@given(answers)
def test_identical_runs_do_not_differ(found) -> None:
    (one,) = compared(
        [outcome(n, says) for n, (says, _) in enumerate(found)],
        [outcome(n, says, run="again") for n, (says, _) in enumerate(found)],
    )
    assert one.changed is not None and one.changed.value == 0 and one.changed.high > 0
    assert not one.most_changed and one.histogram[10] == sum(one.histogram) == len(found)
    for group in one.groups:
        assert group.verdicts is not None and group.verdicts.p_value == group.verdicts.p_units == 1
        for found_difference in (group.rate, group.score):
            if found_difference is not None:
                assert found_difference.value == 0
                assert found_difference.low in (0, None) and found_difference.high in (0, None)


@settings(max_examples=40)
@given(answers)
def test_swapping_the_runs_turns_every_sign_and_bounds_hold(found) -> None:
    first = [outcome(n, says) for n, (says, _) in enumerate(found)]
    second = [outcome(n, other[: len(says)], judges=SAME) for n, (says, other) in enumerate(found)]
    (one,), (turned,) = compared(first, second), compared(second, first)
    assert one.histogram == turned.histogram[::-1] and one.changed == turned.changed
    assert [group.name for group in one.groups] == [group.name for group in turned.groups]
    for a, b in zip(one.groups, turned.groups, strict=True):
        assert a.verdicts is not None and b.verdicts is not None
        assert a.verdicts.refuted_first == b.verdicts.refuted_second
        assert a.verdicts.p_value == pytest.approx(b.verdicts.p_value)
        assert a.verdicts.p_units == pytest.approx(b.verdicts.p_units)
        assert 0 <= a.verdicts.p_units <= 1 and 0 <= a.verdicts.p_value <= 1
        for mine, other in ((a.rate, b.rate), (a.score, b.score)):
            if mine is None or other is None:
                assert mine is other
                continue
            assert mine.value == pytest.approx(-other.value)
            assert -1 <= mine.value <= 1
            if mine.low is not None and mine.high is not None:
                assert other.low is not None and other.high is not None
                assert -1 <= mine.low <= mine.value <= mine.high <= 1
                assert mine.low == pytest.approx(-other.high) and mine.high == pytest.approx(-other.low)


@given(st.integers(0, 400), st.integers(0, 400))
def test_mcnemar_is_the_exact_binomial_test(first: int, second: int) -> None:
    expected = binomtest(first, first + second, 0.5).pvalue if first + second else 1.0
    assert mcnemar(first, second) == pytest.approx(expected, rel=1e-8)
    assert sign_flip([1] * second + [-1] * first) == pytest.approx(expected, rel=1e-8)


@given(st.lists(st.integers(-4, 4), max_size=10))
def test_the_test_by_units_counts_every_way_to_turn_signs(changes: list[int]) -> None:
    far = 0
    for turns in range(2 ** len(changes)):
        turned = sum(-one if turns >> place & 1 else one for place, one in enumerate(changes))
        far += abs(turned) >= abs(sum(changes))
    assert sign_flip(changes) == pytest.approx(far / 2 ** len(changes))


def test_the_test_by_units_is_the_same_by_fourier_transform(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = [1, 2, 3, 5] * 60 + [-1, -2, -7] * 60
    exact = sign_flip(changes)
    monkeypatch.setattr("groundwatch.reporting.compare.compare.DIRECT", 0)
    assert 0.001 < exact < 1 and sign_flip(changes) == pytest.approx(exact, rel=1e-9)


def test_claims_that_change_together_count_by_response() -> None:
    # Ten claims of one response turn: to McNemar ten witnesses, by response a single one.
    first = [outcome(0, "s" * 10), *(outcome(n, "ss") for n in range(1, 30))]
    second = [outcome(0, "r" * 10), *(outcome(n, "ss") for n in range(1, 30))]
    (one,) = compared(first, second)
    found = one.whole.verdicts
    assert found is not None and (found.claims, found.refuted_second) == (68, 10)
    assert found.p_value == pytest.approx(2 / 2**10) and found.p_units == 1


def test_rates_are_pooled_weighted_and_paired() -> None:
    drawn = {"drawn": Drawn(probability=0.25, lowest=0.25)}
    (one,) = compared(
        [outcome(0, "rrss"), outcome(1, "s", **drawn)], [outcome(0, "rsss"), outcome(1, "r", **drawn)]
    )
    assert one.whole.rate_first == pytest.approx(2 / 8) and one.whole.rate_second == pytest.approx(5 / 8)
    assert one.whole.rate is not None and one.whole.rate.value == pytest.approx(3 / 8)
    assert any("different probabilities" in note for note in one.notes)


def test_the_interval_is_that_of_a_difference_of_means() -> None:
    # One fact a response: the variance of the paired difference is known.
    units = [{0: (1.0, 1.0, 0.0, 1.0)}] * 30 + [{0: (0.0, 1.0, 1.0, 1.0)}] * 70 + [{0: (0, 1, 0, 1)}] * 300
    ((first, second, found),) = bootstrap_ratios(units, 1, resamples=4_000)
    assert (first, second) == (30 / 400, 70 / 400) and found is not None and found.low and found.high
    half = 1.96 * math.sqrt((100 / 400 - 0.1**2) / 400)
    assert found.value == pytest.approx(0.1)
    assert found.high - found.low == pytest.approx(2 * half, rel=0.06)


def test_responses_about_one_image_are_one_draw() -> None:
    first = [outcome(n, "s") for n in range(40)]
    second = [outcome(n, "r" if n < 20 else "s") for n in range(40)]
    units = {one.key: f"image {number // 4}" for number, one in enumerate(first)}
    (alone,), (together,) = compared(first, second), compared(first, second, units=units)
    assert (alone.unit, alone.units, together.unit, together.units) == ("response", 40, "image", 10)
    wide, narrow = together.whole.rate, alone.whole.rate
    assert wide and narrow and wide.value == narrow.value
    assert wide.high - wide.low > 1.3 * (narrow.high - narrow.low)
    assert together.whole.verdicts.p_units > alone.whole.verdicts.p_units


def test_what_one_run_alone_scored_is_in_coverage_and_in_no_rate() -> None:
    silent = {"outcome": OutcomeKind.UNSCORED, "reason": "timeout", "score": None, "claims": ()}
    early = {"judges": {"extraction": EXTRACTOR}, "decided": 0}
    (one,) = compared(
        [outcome(0, "rs"), outcome(1, "rr"), outcome(2, "ss")],
        [outcome(0, "rs"), outcome(1, "rr", **silent, **early), outcome(2, "ss")],
    )
    assert (one.paired, one.scored, one.scored_first, one.scored_second) == (3, 2, 1, 0)
    assert one.whole.rate_first == one.whole.rate_second == 0.25
    first, second = one.whole.first, one.whole.second
    assert first is not None and second is not None
    assert (first.scored_share, second.scored_share) == (1, pytest.approx(2 / 3))
    assert second.unscored == {"timeout": 1} and second.coverage == pytest.approx(4 / 6)


def test_judges_are_never_pooled() -> None:
    first = [outcome(n, "rs") for n in range(4)]
    second = [outcome(n, "ss", judges=SAME if n < 3 else BOTH) for n in range(4)]
    larger, smaller = compared(first, second)
    assert (larger.scored, larger.same_judges, smaller.scored, smaller.same_judges) == (3, False, 1, True)
    assert any("non-determinism" in note for note in smaller.notes)
    assert not any("non-determinism" in note for note in larger.notes)


def test_other_extraction_is_compared_by_response_only() -> None:
    other = {"extraction": Judge(engine="llm"), "verification": OTHER}
    (one,) = compared([outcome(0, "rs", texts="ab")], [outcome(0, "rs", texts="ax", judges=other)])
    assert one.whole.verdicts is None and one.whole.rate is not None
    assert (one.claims_first, one.claims_second, one.claims_matched) == (2, 2, 1)
    assert any("1 claims stand in both" in note and "Extraction differs" in note for note in one.notes)


def test_claims_of_the_same_text_are_told_apart() -> None:
    first, second = outcome(0, "rrs", texts="aba"), outcome(0, "rrr", texts="aba")
    assert [(one.text, one.first, one.second) for one in changed_claims(first, second)] == [
        ("claim a", "supported", "refuted")
    ]


def test_the_most_changed_come_first() -> None:
    first = [outcome(0, "ssss"), outcome(1, "ssss"), outcome(2, "ssss")]
    second = [outcome(0, "sssr"), outcome(1, "rrrs"), outcome(2, "ssss")]
    (one,) = compared(first, second, top=2)
    assert [(found.id, found.change) for found in one.most_changed] == [("r1", 0.75), ("r0", 0.25)]


def test_changes_fall_into_steps() -> None:
    bins = share_bins([0.0, 0.05, 0.1, 0.11, 1.0, -1.0, -0.001])
    assert (bins[10], bins[11], bins[12], bins[20], bins[0], bins[9]) == (1, 2, 1, 1, 1, 1)
    assert sum(bins) == 7 and len(bins) == 21


@pytest.fixture
def comparison() -> Comparison:
    first = [outcome(n, "rsss", tenant="a<b>&") for n in range(30)]
    second = [outcome(n, "rrss" if n % 2 else "rsss", tenant="a<b>&", judges=SAME) for n in range(30)]
    changed = [
        msgspec.structs.replace(
            section,
            most_changed=tuple(
                msgspec.structs.replace(one, claims=changed_claims(first[1], second[1]))
                for one in section.most_changed
            ),
        )
        for section in compared(first, second)
    ]
    return Comparison(
        first="live",
        second="new",
        model="",
        tenant="",
        sections=tuple(changed),
        alone={"faithscore": Alone(first=7, second=0)},
    )


def test_the_table_holds_in_eighty_columns(comparison: Comparison) -> None:
    console = Console(file=io.StringIO(), width=80)
    render_comparison(comparison, console)
    told = console.file.getvalue()
    assert "…" not in told.replace("… and", "")
    assert "+12.5" in told and "7 only in live" in told and "✓ → ✗  claim 1" in told


def test_the_report_stands_by_itself(comparison: Comparison) -> None:
    page = html_report(comparison)
    assert "a&lt;b&gt;&amp;" in page and "a<b>" not in page
    assert page.count("<svg") == page.count("</svg>") == 2 and "+12.5" in page
    assert not re.search(r"(src|href|url\(|@import)\s*=?", page.replace("url-safe", ""))


def test_long_names_and_large_numbers_keep_to_their_place() -> None:
    names = [f"an-organisation/a-very-long-family-of-models-{number}<b>" for number in range(3)]
    first = [outcome(n, "ssss", model=names[n % 3]) for n in range(3_300)]
    second = [outcome(n, "rsss" if n % 3 else "rrrr", model=names[n % 3], judges=SAME) for n in range(3_300)]
    (section,) = compared(first, second, resamples=20)
    page = html_report(
        Comparison(first="live", second="x" * 60, sections=(section,), model="", tenant="", alone={})
    )
    shown = re.findall(r'<text class="name[^>]*>([^<]*)<title>([^<]*)</title>', page)
    assert {full for _, full in shown} == {f"model {name}".replace("<b>", "&lt;b&gt;") for name in names}
    assert len({short for short, _ in shown}) == 3, "the ends tell them apart"
    assert all(len(short.replace("&lt;", "<").replace("&gt;", ">")) <= 24 for short, _ in shown)
    assert re.findall(r">([^<]*)<title>([^<]*)</title></text>", page)[-2:] == [
        ("2.2k", "2,200"),
        ("1.1k", "1,100"),
    ]


def test_json_has_all_of_it(comparison: Comparison) -> None:
    told = msgspec.json.decode(msgspec.json.encode(comparison))
    whole = told["sections"][0]["groups"][0]
    assert whole["rate"]["value"] == pytest.approx(0.125) and whole["first"]["coverage"] == 1
    assert told["alone"] == {"faithscore": {"first": 7, "second": 0, "estimated": ""}}


def test_what_was_not_counted_is_called_an_estimate(comparison: Comparison) -> None:
    alone = {"faithscore": Alone(first=4_900_000, second=12, estimated="live")}
    estimated = msgspec.structs.replace(comparison, alone=alone)
    console = Console(file=io.StringIO(), width=80)
    render_comparison(estimated, console)
    assert "about 4,900,000 only in live, 12 only in new" in console.file.getvalue()
    assert "about 4,900,000 outcomes are only in live" in html_report(estimated)
