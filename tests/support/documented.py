"""What the pages tell to type: their fenced blocks of shell, and each command of them as words."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from typer._click.exceptions import UsageError as ClickUsageError

from groundwatch.errors import UsageError

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "docker" / "README.md",
    *sorted((ROOT / "deploy").rglob("*.md")),
]
SHELL = ("sh", "bash", "shell", "console")
BETWEEN = ";&|\n()"
"""What ends a command."""


class Block(NamedTuple):
    """A fenced block: its page, its language, its text."""

    page: str
    language: str
    text: str


class Command(NamedTuple):
    """One command, without its variables and redirections."""

    page: str
    words: list[str]
    variables: dict[str, str]


def blocks(pages: list[Path] = PAGES) -> list[Block]:
    return [
        Block(str(page.relative_to(ROOT)), language, text)
        for page in pages
        for language, text in re.findall(r"^```([\w-]*)\n(.*?)^```", page.read_text(), re.M | re.S)
    ]


def commands(pages: list[Path] = PAGES) -> list[Command]:
    """Of all blocks of shell."""
    return [
        command
        for block in blocks(pages)
        if block.language in SHELL
        for command in _commands(block.page, block.text)
    ]


def _commands(page: str, text: str) -> Iterator[Command]:
    text = re.sub(r"(<<'?(\w+)'?[^\n]*\n).*?^\2$", r"\1", text, flags=re.M | re.S).replace("\\\n", " ")
    # Before words are told apart: comments have apostrophes.
    text = re.sub(r"(^|\s)# .*$", r"\1", text, flags=re.M)
    lexer = shlex.shlex(text, posix=True, punctuation_chars=BETWEEN + "<>")
    lexer.whitespace, lexer.whitespace_split = " \t", True
    words: list[str] = []
    tokens = iter(lexer)
    lexer.commenters = ""
    for token in tokens:
        if token and not set(token) - set("<>&"):
            if "<" in token or ">" in token:
                next(tokens, None)
            else:
                yield from _command(page, words)
                words = []
        elif token and not set(token) - set(BETWEEN + "<>"):
            yield from _command(page, words)
            words = []
        elif token not in ("do", "done", "then", "fi", "{", "}"):
            words.append(token)
    yield from _command(page, words)


def _command(page: str, words: list[str]) -> Iterator[Command]:
    words = words[1:] if words and words[0] in ("export", "sudo", "env") else list(words)
    variables = {}
    while words and (found := re.fullmatch(r"([A-Z_][A-Z0-9_]*)=(.*)", words[0], re.S)):
        variables[found[1]] = found[2]
        words.pop(0)
    if words:
        words[0] = words[0].removeprefix(".venv/bin/")
    if words or variables:
        yield Command(page, words, variables)


def ours(command: Command) -> list[str] | None:
    """What is typed to `groundwatch` by this command, if anything is: also in a pod, or in a container."""
    words = command.words
    if words and words[0] == "groundwatch":
        return words[1:]
    if words[:1] == ["kubectl"] and "--" in words:
        return ours(next(_command(command.page, words[words.index("--") + 1 :])))
    if words[:2] == ["docker", "run"] and "groundwatch" in words:
        return words[words.index("groundwatch") + 1 :]
    return None


def misuse(words: list[str], known: dict[str, Any]) -> str:
    """What is wrong with what is typed to `groundwatch`; empty where nothing is."""
    name = next((one for n in (3, 2, 1) if (one := " ".join(words[:n])) in known), None)
    if name is None:
        return "no such command"
    options = {text: one for one in known[name].params for text in (*one.opts, *one.secondary_opts)}
    most = sum(
        one.nargs if one.nargs > 0 else 1000 for one in known[name].params if not one.opts[0].startswith("-")
    )
    given = words[len(name.split()) :]
    arguments, rest = 0, iter(given)
    for word in rest:
        option, equals, _ = word.partition("=")
        if word.startswith("-") and word != "-":
            if option not in options:
                return f"no option {option}"
            if not equals and not getattr(options[option], "is_flag", False):
                next(rest, None)
        elif word not in ("…", "|"):
            arguments += 1
    if arguments > most:
        return "too many arguments"
    return "" if any(map(PLACEHOLDER.search, given)) else _unfit(known[name], name, given)


PLACEHOLDER = re.compile(r"…|\||^\$|[A-Z]{3,}|^[A-Z]$")


def _unfit(command: Any, name: str, given: list[str]) -> str:
    """What the command line itself finds wrong with values, but for files that are not here."""
    try:
        command.make_context(name, list(given))
    except (UsageError, ClickUsageError) as error:
        return "" if "exist" in str(error) else f"{type(error).__name__}: {error}"
    return ""
