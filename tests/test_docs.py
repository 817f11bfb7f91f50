"""The pages say what the code does: settings, metrics, links, reasons."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.metrics import MetricWrapperBase
from tools.settings import settings_of

from groundwatch.gateway.refusals import STATUS
from groundwatch.runtime.security.same_origin import STATUS as FOREIGN
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import STREAMS
from tests.support.command_tree import leaves
from tests.support.documented import SHELL, Block, blocks, commands, misuse, ours
from tools import settings

OF_GRPC = {"deadline", "message_too_large", "streams"}
ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
METRIC = r"\bgroundwatch_[a-z_]+"
NO_SETTINGS = {
    "GROUNDWATCH_TOKEN": "of `submit`, `probe` and the SDK",
    "GROUNDWATCH_URL": "of the SDK",
    "GROUNDWATCH_AUTHORIZATION": "of an example for LiteLLM",
}
"""Variables that are no settings of a service."""
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]


def rows(page: str, *, starting: str) -> list[list[str]]:
    """Cells of the table rows whose first cell begins with `starting`."""
    found = []
    for line in (DOCS / page).read_text().splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]
        if line.startswith("|") and cells[0].startswith(starting):
            found.append(cells)
    return found


def test_every_setting_is_told_with_its_default():
    text = settings.PAGE.read_text("utf-8")
    assert text == settings.page(text), "run `python -m tools.settings`"
    assert f"| {settings.UNWRITTEN} |" not in text, "say what it means"


def test_the_page_of_settings_follows_the_code():
    text = settings.PAGE.read_text("utf-8")
    other = re.sub(r"^\| `alarm.learn` .*\n", "", text, flags=re.M)
    other = other.replace("| `alarm.margin` | `0.2` |", "| `alarm.margin` | `0.3` |")
    other = other.replace("| `alarm.margin` |", "| `alarm.nonsense` | `1` | gone |\n| `alarm.margin` |")
    mended = settings.page(other)
    assert other != text
    assert re.sub(r"(`alarm.learn` .*)\| \? \|", "", mended) == re.sub(r"(`alarm.learn` .*)\|.*\|", "", text)


def test_every_metric_is_told_with_its_labels():
    made = Metrics()
    known = {
        f"{metric._name}{'_total' if metric._type == 'counter' else ''}": (metric._type, metric._labelnames)
        for metric in (*vars(made).values(), *vars(made.replay).values(), *vars(made.nats).values())
        if isinstance(metric, MetricWrapperBase)
    }
    told = {
        name.strip("`"): (kind, tuple(filter(None, labels.split(", "))))
        for name, kind, labels, _ in (
            row for row in rows("metrics.md", starting="`groundwatch_") if len(row) == 4
        )
    }
    assert told == known


def test_metrics_that_pages_name_exist():
    known = set(re.findall(r"`(groundwatch_[a-z_]+)`", (DOCS / "metrics.md").read_text()))
    named = {(page.name, name) for page in PAGES for name in re.findall(METRIC, page.read_text())}
    assert {(page, name) for page, name in named if name not in known} == set()


def test_every_refusal_is_told_with_its_status():
    told = {
        (int(status), reason.strip("`"))
        for status, reason, _ in rows("ingestion.md", starting=("2"))
        if reason
    } | {
        (int(cells[0]), cells[1].strip("`"))
        for start in ("4", "5")
        for cells in rows("ingestion.md", starting=start)
        if cells[1]
    }
    over_http = {reason: status.http for reason, status in STATUS.items() if reason not in OF_GRPC}
    assert told == {(status, reason) for reason, status in (over_http | FOREIGN).items()}


def test_every_stream_is_told():
    told = {cells[1].strip("`") for cells in rows("architecture.md", starting="`gw.")}
    assert told == {spec.name for spec in STREAMS}


def test_links_lead_somewhere():
    assert [f"{page.name}: {target}" for page in PAGES for target in broken_links(page)] == []


def broken_links(page: Path) -> Iterator[str]:
    """Targets of a page's links that are no file of ours, or no heading of theirs."""
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        path, _, heading = target.partition("#")
        if path.startswith("http"):
            continue
        file = (page.parent / path) if path else page
        if not file.exists():
            yield target
        elif heading:
            headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
            if heading not in {re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in headings}:
                yield target


def test_commands_that_pages_name_can_be_typed():
    known = dict(leaves())
    named = [
        (page.name, command)
        for page in PAGES
        for command in (
            *re.findall(r"^    groundwatch (.+)$", page.read_text(), re.MULTILINE),
            *(one for one in _inline(page.read_text(), known) if re.search(r" --|\b[A-Z]{2,}", one)),
        )
    ]
    assert len(named) > 100
    assert [(*one, why) for one in named if (why := wrong(one[1], known))] == []


def test_each_table_and_figure_of_a_paper_has_a_command_or_a_reason():
    known = dict(leaves())
    papers = {page.name: page.read_text().partition("The paper's tables and figures\n") for page in PAGES}
    told = {
        f"{name}: {row[1]}": row[2]
        for name, (_, title, text) in papers.items()
        if title
        for line in text.partition("\n#")[0].splitlines()[1:]
        if line.startswith("| ") and (row := [cell.strip() for cell in line.split("|")])[1] not in ("---", "")
    }
    pages = {"faithscore", "valor", "tri-he", "genception", "pope", "vlm2", "dash-b"}
    assert pages <= {name.partition(".")[0] for name in told}
    bare = [
        row
        for row, cell in told.items()
        if not _inline(cell, known) and not re.match(r"none: \w{3}", cell) and cell != "command"
    ]
    assert bare == []


def _inline(text: str, known: dict[str, Any]) -> list[str]:
    first = {name.split()[0] for name in known}
    return [one for one in re.findall(r"`([^`\n]+)`", text) if one.split()[0] in first]


def wrong(command: str, known: dict[str, Any]) -> str:
    """What is wrong with a command as pages write it in a line: `[--option]`, `A|B`, or a part."""
    found = misuse(re.sub(r"[][]", " ", command.partition("#")[0]).split(), known)
    return "" if re.match("Missing|BadOptionUsage", found) else found


def test_fenced_commands_can_be_typed():
    known = dict(leaves())
    typed = [(command.page, words) for command in commands() if (words := ours(command)) is not None]
    assert len(typed) > 90
    assert [(*one, why) for one in typed if (why := misuse(one[1], known))] == []


def test_arguments_that_a_page_gives_to_a_job_can_be_typed():
    """The image's entry point is `groundwatch`."""
    known = dict(leaves())
    given = [
        (command.page, json.loads(text))
        for command in commands()
        for word in command.words
        for text in re.findall(r"\.args = (\[.*?\])", word)
    ]
    assert given
    assert [(*one, why) for one in given if (why := misuse(one[1], known))] == []


@pytest.mark.parametrize(
    "block", [one for one in blocks() if one.language in SHELL], ids=lambda one: one.page
)
def test_fenced_shell_is_shell(block: Block):
    done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_can_be_typed_is_fenced_as_shell():
    bare = [one for one in blocks() if one.language not in SHELL]
    starts = r"^(\.venv/bin/)?(groundwatch|kubectl|helm|curl|make|nats|docker) "
    assert [(one.page, found[0]) for one in bare if (found := re.search(starts, one.text, re.M))] == []


def test_fenced_variables_are_settings():
    known = {name for name, _ in settings_of(Settings)}
    named = [
        (command.page, name)
        for command in commands()
        for name in command.variables
        if name.startswith("GROUNDWATCH_") and name not in NO_SETTINGS
    ]
    assert named
    keys = ((page, name.removeprefix("GROUNDWATCH_").replace("__", ".").lower()) for page, name in named)
    assert [one for one in keys if one[1] not in known] == []


def test_fenced_modules_and_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    absent = []
    for command in commands():
        match command.words:
            case ["python", "-m", "bench", name, *_] if not (ROOT / "bench" / f"{name}.py").exists():
                absent.append((command.page, f"bench {name}"))
            case ["python", "-m", module, *_] if module != "bench" and not find_spec(module):
                absent.append((command.page, module))
            case ["make", target, *_] if not re.search(rf"^{target}:", makefile, re.M):
                absent.append((command.page, f"make {target}"))
    assert absent == []
