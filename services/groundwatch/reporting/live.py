"""The live view in the terminal: rates per model, and the sentences that are wrong."""

from collections import deque

from groundwatch.events import LIVE, Decision, ResponseScored
from groundwatch.reporting.alarms import Alarms, Raised, tell
from groundwatch.reporting.figures import Headline, now_of, with_ranks
from groundwatch.reporting.render import counts_in_a_line, figure_tables, grid, rate_in_a_line, share
from groundwatch.reporting.sums import Sums, facts_of
from groundwatch.statistics.alarm import ALL, Rule
from groundwatch.statistics.sampling import weighted_rate
from groundwatch.terminal import Group, RenderableType, Text, styled

LATEST = 6
WIDTH = 10
RECENT = 40
BARS = " ▁▂▃▄▅▆▇█"


class ModelLine:
    """What the live table shows of one model; bounded in size."""

    def __init__(self, protocol: str) -> None:
        self.sums = Sums()
        self.headline = Headline(protocol)
        self.history: deque[tuple[int, int]] = deque(maxlen=RECENT * 10)

    def add(self, outcome: ResponseScored) -> None:
        facts = facts_of(outcome)[ALL]
        self.sums.add(outcome, facts)
        self.headline.add(outcome)
        if outcome.score is not None:
            self.history.append(facts)

    @property
    def recent_rate(self) -> float | None:
        return _rate(list(self.history)[-RECENT:])

    def sparkline(self) -> str:
        """The rate over the latest responses, oldest first; a full bar is 50 % or more."""
        steps = list(self.history)
        size = max(1, -(-len(steps) // WIDTH))
        rates = [_rate(steps[start : start + size]) for start in range(0, len(steps), size)]
        return "".join(BARS[min(8, round((rate or 0) * 16))] for rate in rates)


class LiveView:
    """Takes in outcomes; draws itself as a rich renderable. `rule` is when it raises an alarm."""

    def __init__(self, title: str = "groundwatch", rule: Rule | None = None) -> None:
        self._title = title
        self._alarms = Alarms(rule or Rule())
        self._lines: dict[tuple[str, str], ModelLine] = {}
        self._latest: deque[Text] = deque(maxlen=LATEST)
        self._figures: tuple[RenderableType, ...] = ()
        self._figures_at = 0
        self.seen = 0

    def add(self, outcome: ResponseScored) -> None:
        """Count one outcome, and keep it for show when it has a wrong fact."""
        self.seen += 1
        key = (outcome.model, outcome.protocol)
        if key not in self._lines:
            self._lines[key] = ModelLine(outcome.protocol)
        self._lines[key].add(outcome)
        self._alarms.add(outcome)
        wrong = [claim for claim in outcome.claims if claim.decision is Decision.REFUTED]
        if outcome.score is not None and wrong:
            self._latest.append(_story(outcome, wrong[0].text, wrong[0].unit))

    @property
    def alarms(self) -> tuple[Raised, ...]:
        return tuple(self._alarms.raised)

    def line(self) -> str:
        parts = [f"{self.seen:,} outcomes"]
        for (model, _), line in sorted(self._lines.items()):
            recent = line.recent_rate
            if recent is not None:
                parts.append(f"{model} {recent:.1%} of recent facts not in the image")
        return " · ".join(parts)

    def __rich__(self) -> RenderableType:
        headings = ("scored", "unsc.", "score", "not in the image", f"last {RECENT}", "cov.")
        title = f"{self._title} · {self.seen:,} outcomes"
        table = grid(title, ["model"], *headings, box=None, pad_edge=False, padding=(0, 1))
        table.columns[0].no_wrap = True
        table.add_column("trend", no_wrap=True)
        for (model, _), line in sorted(self._lines.items()):
            table.add_row(model, *_cells(line))
        below: list[RenderableType] = []
        for one in self.alarms[-LATEST:]:
            over = one.recovered_at is not None
            below.append(styled((f"⚠ {tell(one)}", "dim" if over else "bold red")))
        if self._latest:
            below += [Text(), styled(("latest facts that are not in the image", "bold")), *self._latest]
        # Last: where the screen ends too early, alarms must be on it.
        below += self._figure_tables()
        return Group(table, *below) if below else table

    def _figure_tables(self) -> tuple[RenderableType, ...]:
        """Made again when there is a twentieth more: of many images a figure takes time to compute."""
        if self.seen >= self._figures_at:
            self._figures_at = self.seen + max(1, self.seen // 20)
            several = sorted(self._lines.items())
            now = now_of(LIVE)
            figures = with_ranks([(protocol, line.headline.figures(now)) for (_, protocol), line in several])
            labels = [f"{model} · {protocol}" for (model, protocol), _ in several]
            groups = zip(labels, (line.headline.groups(now) for _, line in several), strict=True)
            told = (counts_in_a_line(f"{label}: groups", counts) for label, counts in groups if counts)
            self._figures = (*figure_tables(zip(labels, figures, strict=True)), *told)
        return self._figures


def _cells(line: ModelLine) -> list[str]:
    sums = line.sums
    recent = line.recent_rate
    return [
        f"{sums.scored:,}",
        f"{sums.unscored:,}",
        f"{sums.score.mean:.3f}" if sums.score.plain.n else "–",
        rate_in_a_line(weighted_rate(sums.facts)),
        f"{recent:.1%}" if recent is not None else "–",
        share(sums.coverage),
        line.sparkline(),
    ]


def _story(outcome: ResponseScored, fact: str, unit: int) -> Text:
    sentence = outcome.units[unit].text.strip() if unit < len(outcome.units) else ""
    story = styled(f"  {outcome.model}  ", (f"✗ {fact}", "red"), (f"  “{sentence}”", "dim"))
    story.overflow = "ellipsis"
    story.no_wrap = True
    return story


def _rate(pairs: list[tuple[int, int]]) -> float | None:
    decided = sum(decided for _, decided in pairs)
    return sum(refuted for refuted, _ in pairs) / decided if decided else None
