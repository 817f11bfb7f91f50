"""The measurement as tables for a terminal."""

from typing import Any

from groundwatch.terminal import Group, Table, box, styled
from groundwatch_benchmarks.miniature.cascading import rows


def show(found: dict[str, Any]) -> Group:
    gc = found["genception"]["gc_at_3"]
    models = _table("model", "facts not in the image: true", "estimated", "error (95 %)", "r", "GC@3")
    for name, one in found["faithscore"]["by_model"].items():
        error, r = one["error"], one["pearson"]
        models.add_row(
            name,
            f"{one['true']:.2%}",
            f"{one['estimated']:.2%}",
            f"{error['value']:+.2%} ({error['low']:+.2%} to {error['high']:+.2%})",
            f"{r['value']:.3f}" if r else "–",
            f"{gc[name]:.3f}",
        )
    responses = _table("per response, all models", "Pearson (95 %)", "Spearman", "Kendall", "n")
    for name, one in (
        ("FaithScore", found["faithscore"]["per_response"]),
        ("VALOR faithfulness", found["valor"]["faithfulness"]),
        ("VALOR coverage", found["valor"]["coverage"]),
        ("Tri-HE", found["tri_he"]["per_response"]),
    ):
        r = one["pearson"]
        responses.add_row(
            name,
            f"{r['value']:.3f} ({r['low']:.3f} to {r['high']:.3f})" if r else "–",
            *(f"{one[key]['value']:.3f}" if one[key] else "–" for key in ("spearman", "kendall")),
            str(one["n"]),
        )
    detector = _table("detector, by boxes", "statements", "undecided", "right of the others", "Brier", "ECE")
    for name, one in found["detector"].items():
        shares = (f"{one['undecided']:.1%}", f"{one['right']:.3f}" if one["right"] is not None else "–")
        off = (f"{one['brier']:.4f}", f"{one['calibration_error']:.4f}")
        detector.add_row(name, str(one["statements"]), *shares, *off)
    cascade = _table(
        "judges in a row, of the same facts", "true", "cascade", "wrong", "last judge alone", "wrong"
    )
    for row in rows(found["cascade"]):
        cascade.add_row(*row)
    promises = _table("promise", "wanted", "found", "holds")
    for name, one in found["promises"].items():
        value = one["found"]
        shown = f"{value:.3f}" if isinstance(value, float) else str(value)
        holds = "yes" if one["holds"] else styled(("no", "red"))
        promises.add_row(name.replace("_", " "), one["promised"], shown, holds)
    title = f"The monitor against the known truth of {found['scenes']} scenes for each model"
    return Group(title, "", models, responses, detector, cascade, promises, f"{found['seconds']:.0f} s")


def _table(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table
