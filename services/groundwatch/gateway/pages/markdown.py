"""An answer's Markdown as people saw it: without HTML, images or addresses that run something, and with its
words marked where they stand in what was written."""

import re
from bisect import bisect_right
from collections.abc import MutableMapping, Sequence
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from markupsafe import Markup, escape

from groundwatch.gateway.pages.painting import Stretch, framed, paint
from groundwatch.gateway.pages.rendering import visible

LONGEST_MARKDOWN = 20_000
"""Characters of an answer that is shown so."""

MOST_CELLS = 10_000
"""Cells that its tables may come to: rows without any are filled up, so that few characters make many."""

_TARGET = re.compile(r"\]\([^()]*(?:\([^()]*\)[^()]*)*\)")
_LINE = re.compile(r"\r\n|\r|\n")
_SAFE = re.compile(r"(?:https?|mailto):", re.IGNORECASE)

Env = MutableMapping[str, Any]


class _Written:
    """Where in the answer one is: each piece of text that is rendered stands behind the one before."""

    def __init__(self, answer: str, stretches: Sequence[Stretch]) -> None:
        self._answer = answer
        self._stretches = stretches
        self._starts = [start for start, *_ in stretches]
        self._lines = [0, *(found.end() for found in _LINE.finditer(answer)), len(answer)]
        self._at, self._end = 0, len(answer)

    def enter(self, lines: Sequence[int]) -> None:
        """A block of these lines."""
        first, last = (self._lines[min(line, len(self._lines) - 1)] for line in lines)
        self._at, self._end = max(self._at, first), last

    def text(self, text: str, written: str = "") -> str:
        """A piece as it is shown, which is `written` otherwise."""
        start = self._answer.find(written or text, self._at, self._end)
        if start < 0 or not text:
            return str(escape(visible(text)))
        self._at = start + len(written or text)
        number, made = bisect_right(self._starts, start) - 1, Markup("")
        while number < len(self._stretches) and (written_at := self._stretches[number])[0] < self._at:
            first, last, look, facts = written_at
            piece = text if written else self._answer[max(first, start) : min(last, self._at)]
            # A sub-sentence is in many pieces here: its facts are told by their own words.
            made += framed(look._replace(title="") if look.kind == "wrong" else look, paint(piece, facts))
            # One that is written otherwise is a single sign.
            number = len(self._stretches) if written else number + 1
        return made

    def pass_target(self) -> None:
        if found := _TARGET.match(self._answer, self._at):
            self._at = found.end()


class _Renderer(RendererHTML):
    def render(self, tokens: Sequence[Token], options: OptionsDict, env: Env) -> str:
        made = ""
        for at, token in enumerate(tokens):
            if token.map:
                env["written"].enter(token.map)
            if token.type.startswith("heading"):
                token.tag = "div"
                token.attrs = {"class": "heading"} if token.nesting > 0 else {}
            # Our policy lets no element have a style of its own.
            if "right" in str(token.attrs.pop("style", "")):
                token.attrs["class"] = "number"
            if token.type == "inline":
                made += self.renderInline(token.children or [], options, env)
            elif token.type in self.rules:
                made += self.rules[token.type](tokens, at, options, env)
            else:
                made += self.renderToken(tokens, at, options, env)
        return made

    def text(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Env) -> str:
        return str(env["written"].text(tokens[idx].content))

    def text_special(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Env) -> str:
        return str(env["written"].text(tokens[idx].content, tokens[idx].markup))

    def code_inline(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Env) -> str:
        return f"<code>{self.text(tokens, idx, options, env)}</code>"

    def code_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Env) -> str:
        lines = tokens[idx].content.split("\n")
        return f"<pre>{chr(10).join(env['written'].text(line) for line in lines)}</pre>"

    fence = code_block

    def softbreak(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Env) -> str:
        return "\n"

    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Env) -> str:
        shown = self.text(tokens, idx, options, env)
        env["written"].pass_target()
        return f'<span class="chip">image: {shown}</span>'

    def link_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Env) -> str:
        tokens[idx].attrSet("rel", "noopener noreferrer nofollow")
        return self.renderToken(tokens, idx, options, env)

    def link_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Env) -> str:
        env["written"].pass_target()
        return "</a>"


_MARKDOWN = MarkdownIt("commonmark", {"html": False}, renderer_cls=_Renderer)
_MARKDOWN.enable(["table", "strikethrough"]).disable("text_join")
_MARKDOWN.validateLink = lambda url: bool(_SAFE.match(url))  # type: ignore[method-assign]
_PLAIN = {"paragraph_open", "paragraph_close", "inline", "text", "softbreak"}


def as_markdown(answer: str, stretches: Sequence[Stretch]) -> Markup | None:
    """None of an answer that is too long, whose tables may be too large, or that has no Markdown in it."""
    lines = _LINE.split(answer)
    cells = len(lines) * max(line.count("|") for line in lines)
    if len(answer) > LONGEST_MARKDOWN or cells > MOST_CELLS:
        return None
    tokens = _MARKDOWN.parse(answer)
    kinds = {one.type for token in tokens for one in (token, *(token.children or ()))}
    if kinds <= _PLAIN:
        return None
    made = _MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {"written": _Written(answer, stretches)})
    return Markup('<div class="answer-text rendered" dir="auto">{}</div>').format(Markup(made))
