"""The report as tables for people: two-line cells, so that 80 columns hold an estimate and its interval."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from groundwatch.reporting.compare.compare import Difference
from groundwatch.reporting.figures import FigureReport
from groundwatch.reporting.report import ALL, BinReport, ModelReport, Report, differences, prompts_in
from groundwatch.reporting.sums import HEDGED
from groundwatch.statistics.intervals import Interval
from groundwatch.terminal import Console, Table, Text, box, lines, styled


def number(interval: Interval | None) -> Text:
    """An estimate over its interval."""
    if interval is None:
        return lines("–")
    between = "–" if interval.low >= 0 else " to "
    return lines(f"{interval.value:.3f}", f"{interval.low:.2f}{between}{interval.high:.2f}")


def rate(interval: Interval | None) -> Text:
    if interval is None:
        return lines("–")
    return lines(f"{interval.value:.1%}", f"{100 * interval.low:.1f}–{100 * interval.high:.1f}")


def rate_in_a_line(interval: Interval | None) -> str:
    return "–" if interval is None else "{} ({})".format(*rate(interval).plain.split("\n"))


def signed(interval: Interval | Difference | None, scale: float = 1.0, digits: int = 3) -> tuple[str, str]:
    """A difference and its interval; empty without one."""
    if interval is None:
        return "–", ""
    ends = ""
    if interval.low is not None and interval.high is not None:
        ends = f"{scale * interval.low:+.{digits}f} to {scale * interval.high:+.{digits}f}"
    return f"{scale * interval.value:+.{digits}f}", ends


def share(value: float | None) -> str:
    """A share of 1 in whole percent."""
    return "–" if value is None else f"{value:.0%}"


def grid(title: str, names: Sequence[str], *headings: str, **options: Any) -> Table:
    """A table whose first columns name a row, and whose others hold numbers."""
    looks: dict[str, Any] = {"box": box.SIMPLE_HEAD, "padding": (0, 1, 0, 0)} | options
    table = Table(title=title, title_justify="left", **looks)
    for name in names:
        table.add_column(name, overflow="fold")
    for heading in headings:
        table.add_column(lines(*heading.split("\n")), justify="right", no_wrap=True)
    return table


ACROSS, FIGURES_ACROSS = 3, 6
"""As many columns of a breakdown, and of figures, as fit into 80 characters."""
Pick = Callable[[ModelReport], Sequence[BinReport]]


def render(report: Report, console: Console) -> None:
    """Print the report; without any outcome, one line that says so."""
    models = report.models()
    if not models:
        console.print("No outcomes.")
        return
    labels = _labels(models)
    console.print(_main(models, labels))
    for table in figure_tables([(label, one.figures) for one, label in zip(models, labels, strict=True)]):
        console.print(table)
    for title, value, pick in _BREAKDOWNS:
        for table in _breakdown(title, value, pick, models, labels):
            console.print(table)
    if report.by:
        for line in _differences(models, report.baseline):
            console.print(line)
    for remark in _remarks(models, labels):
        console.print(remark)


def _labels(models: Sequence[ModelReport]) -> list[str]:
    """A model's name, with what else tells rows apart where the name alone does not."""

    def same(one: ModelReport, *names: str) -> int:
        return sum(all(getattr(one, name) == getattr(other, name) for name in names) for other in models)

    labels = []
    for model in models:
        label = model.model
        for name, unnamed in (("protocol", ""), ("run", ""), ("group", "no tag")):
            if same(model, name) < len(models):
                label += f" · {getattr(model, name) or unnamed}"
        if same(model, "model", "protocol", "run", "group") > 1:
            label += f" · {model.fingerprint[:6] or 'no judge'}"
        labels.append(label)
    return labels


def _differences(models: Sequence[ModelReport], baseline: str) -> Iterator[str]:
    headings = {figure.name: figure.heading for model in models for figure in model.figures}
    for one in differences(models, baseline):
        numbers = {"score": one.score, "facts not in the image": one.hallucination_rate}
        numbers |= {headings[name]: found for name, found in one.figures.items()}
        told = [
            "{} {} ({})".format(name, *signed(interval))
            for name, interval in numbers.items()
            if interval is not None
        ]
        between = f"{one.second or 'no tag'} against {one.first or 'no tag'}"
        yield f"{one.model} · {one.protocol}: {between}: {', '.join(told) or 'nothing to compare'}"


def _main(models: Sequence[ModelReport], labels: Sequence[str]) -> Table:
    table = grid(
        "Per model, with 95 % intervals",
        ["model"],
        *("answers", "scored", "score"),
        *("facts not in\nthe image", "facts\ndecided", "mean\nwords"),
    )
    for model, label in zip(models, labels, strict=True):
        table.add_row(
            label,
            str(model.responses),
            lines(f"{model.scored}", share(model.scored_share)),
            number(model.score),
            rate(model.hallucination_rate),
            share(model.coverage),
            "–" if model.answer_words is None else f"{model.answer_words:.1f}",
        )
    return table


def figure_tables(rows: Iterable[tuple[str, Sequence[FigureReport]]]) -> Iterator[Table]:
    """The papers' figures: tables for those with the same ones, a row for each of `rows` by its label."""
    found: dict[tuple[str, ...], list[tuple[str, Sequence[FigureReport]]]] = {}
    for label, figures in rows:
        if figures:
            found.setdefault(tuple(one.heading for one in figures), []).append((label, figures))
    for headings, several in found.items():
        wrapped = [heading.replace(" ", "\n") for heading in headings]
        for at in range(0, len(wrapped), FIGURES_ACROSS):
            part = slice(at, at + FIGURES_ACROSS)
            table = grid("Figures of the paper, with 95 % intervals", [""], *wrapped[part])
            for label, figures in several:
                table.add_row(label, *map(_figure, figures[part]))
            yield table


def _figure(one: FigureReport) -> Text:
    if one.reason:
        return lines("–", one.reason)
    rested = f"n={one.value.n if one.value else 0}"
    if one.coverage is not None and one.coverage < 1:
        rested += f" {share(one.coverage)}"
    rank = [f"rank {one.rank}/{one.ranked}"] if one.ranked > 1 and one.rank else []
    return lines(*number(one.value).plain.split("\n"), rested, *rank)


def _breakdown(
    title: str,
    value: Callable[[BinReport], str],
    pick: Pick,
    models: Sequence[ModelReport],
    labels: Sequence[str],
) -> Iterator[Table]:
    found = [
        (label, {one.name: one for one in pick(model)}) for model, label in zip(models, labels, strict=True)
    ]
    found = [(label, bins) for label, bins in found if bins]
    for start in range(0, len(found), ACROSS):
        part = found[start : start + ACROSS]
        rows = {one.name: one for _, bins in part for one in bins.values()}
        table = grid(title, [""], min_width=len(title) + 2)
        for label, _ in part:
            table.add_column(label, justify="right", overflow="fold", max_width=20)
        for name in sorted(rows, key=lambda name: (rows[name].low or 0, name)):
            table.add_row(name, *(value(bins[name]) if name in bins else "" for _, bins in part))
        yield table


def counts_in_a_line(label: str, reasons: Mapping[str, int]) -> Text:
    return styled(f"{label} {', '.join(f'{number} {reason}' for reason, number in reasons.items())}")


def beside_rate(model: ModelReport) -> Iterator[str]:
    """What has to be known beside a model's rate of facts that are not in the image."""
    if any(one.name == HEDGED for one in model.categories):
        yield f"without guesses {rate_in_a_line(model.stated_rate)} of facts not in the image"
    if model.extraction_alone:
        rates = dict(model.extraction_alone)
        whole = rates.pop(ALL)
        styles = ", ".join(
            f"{style.replace('_', ' ')} {one:.1%}" for style, one in sorted(rates.items()) if one
        )
        yield f"a faultless model would show {whole:.1%} by extraction alone ({styles or 'in every style'})"


def _remarks(models: Sequence[ModelReport], labels: Sequence[str]) -> list[Text]:
    remarks = []
    for model, label in zip(models, labels, strict=True):
        kinds = {
            "unscored": model.unscored,
            "not read, by language": model.languages,
            "judged without their parts in": model.partly_read,
            "declined": model.declined,
            "groups": model.groups,
        }
        for kind, reasons in kinds.items():
            if reasons:
                remarks.append(counts_in_a_line(f"{label}: {kind}", reasons))
        remarks += [styled(f"{label}: {told}") for told in beside_rate(model)]
        if model.descriptive_share is not None:
            told = rate_in_a_line(model.descriptive_share)
            remarks.append(styled(f"{label}: {told} of sub-sentences are descriptive"))
    sets = {model.fingerprint: model.judges for model in models if model.judges}
    for fingerprint, judges in sorted(sets.items()):
        told = ", ".join(
            f"{stage} {'/'.join(filter(None, (judge['engine'], judge['model'])))}"
            for stage, judge in judges.items()
        )
        remarks.append(styled((f"judges {fingerprint}: {told}", "dim")))
    if own := prompts_in(models):
        remarks.append(styled((f"prompts: own: {', '.join(own)}", "dim")))
    if len(sets) > 1:
        remarks.append(styled(("Different judges' scores are not pooled.", "dim")))
    return remarks


def _score_of(one: BinReport) -> str:
    return "–" if one.score is None else f"{one.score.value:.3f} (n={one.score.n})"


_BREAKDOWNS: tuple[tuple[str, Callable[[BinReport], str], Pick], ...] = (
    (
        "Facts not in the image, by category",
        lambda one: rate_in_a_line(one.hallucination_rate),
        lambda model: model.categories,
    ),
    ("Score by answer length in words", _score_of, lambda model: model.by_answer_words),
    ("Score by number of entities", _score_of, lambda model: model.by_entities),
    (
        "Score by share of descriptive sub-sentences, %",
        _score_of,
        lambda model: model.by_descriptive_share,
    ),
)
