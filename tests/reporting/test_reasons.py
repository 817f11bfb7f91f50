"""Every reason that an outcome can have is explained on its page, and no other."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import get_args

from groundwatch.conversations.conversation import REASONS as LEFT_OUT
from groundwatch.events import DEAD_LETTER, UNDECODABLE
from groundwatch.gateway.budgets import OVER_BUDGET, SAMPLED_OUT
from groundwatch.gateway.intake.logged import NOT_LOST, SETTLED
from groundwatch.gateway.refusals import STATUS, Reason
from groundwatch.models.asking import CallKind
from groundwatch.models.triton import OF_THE_INPUT
from groundwatch.protocols import questions as yes_no
from groundwatch.reporting.reasons import REASONS, explain

ROOT = Path(__file__).parents[2] / "services"
ELSEWHERE = {
    "work.event.unanswered.reason": set(),
    "kind": {CallKind.JUDGE_REJECTED_REQUEST},
    "reason": {*OF_THE_INPUT, DEAD_LETTER, UNDECODABLE},
    "reading.reason": set(yes_no.REASONS),
}
"""Reasons that come in a variable, by how that is written: what they can be. Of a model under test that did
not answer it is one that another `Unscorable` had."""

OF_NO_LOGGED_CALL = {"unknown_protocol", "image_missing", "image_not_allowed", "image_not_fetched"}
"""Refusals of who sends on purpose; a logged call is recorded without such an image."""


def written(name: str) -> tuple[set[str], set[str]]:
    """The first arguments of all calls of `name`, and those that are no constants, as they are written."""
    found, others = set(), set()
    for path in sorted(ROOT.glob("groundwatch/**/*.py")):
        # The evaluations of judges themselves end in no outcome.
        if path.is_relative_to(ROOT / "groundwatch" / "evaluation"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == name:
                text = ast.unparse(node.args[0])
                module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
                try:
                    found.add(str(eval(text, vars(module))))
                except (NameError, AttributeError):
                    others.add(text)
    return found, others


def test_every_reason_that_can_occur_is_explained_and_no_other() -> None:
    unscored, variable = written("Unscorable")
    assert variable == ELSEWHERE.keys()
    unscored.update(*ELSEWHERE.values())
    unreadable, variable = written("Unreadable")
    assert variable == {"f'no_{missing}'", "reason"}
    unreadable |= {"no_request", "no_response", "no_span"}
    # What names no call is refused, and is no half of one.
    declined = {SAMPLED_OUT, OVER_BUDGET, "no_model", "no_answer", *(unreadable - NOT_LOST - {"no_ids"})}
    lasting = {reason for reason in get_args(Reason) if STATUS[reason].http not in (429, 503)}
    declined |= lasting - SETTLED - OF_NO_LOGGED_CALL
    assert sorted(unscored | declined) == sorted(REASONS)
    assert all(explain(reason) for reason in REASONS.keys() | LEFT_OUT.keys())


def test_the_same_word_for_who_judges_and_for_what_was_logged() -> None:
    assert "prompt_too_long" in REASONS.keys() & LEFT_OUT.keys()
    assert "gateway.intake.max_prompt" in explain("prompt_too_long", declined=True)
    assert "gateway.intake" not in explain("prompt_too_long")
    assert explain("openinference_redacted").startswith("OpenInference replaced an image")
    assert explain("of another version") == ""
