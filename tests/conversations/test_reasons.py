"""Reasons for missing images: each names a library, what it does, and what keeps the image."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import groundwatch.conversations
from groundwatch.conversations.conversation import NAMES, REASONS, placeholder, reason_by
from groundwatch.conversations.messages import read_content

LIBRARIES = {one.name for one in NAMES.library}


@pytest.mark.parametrize("name", REASONS)
def test_a_reason_is_one_line_that_says_what_helps(name):
    reason = REASONS[name]
    assert re.fullmatch(r"[a-z0-9_]{3,40}", name)
    assert reason.library
    assert reason.did
    assert reason.setting
    assert str(reason) == f"{reason.library} {reason.did}. What keeps it: {reason.setting}"
    assert "\n" not in str(reason)
    assert reason.by <= LIBRARIES
    assert reason.of <= REASONS.keys()
    assert bool(reason.of) == bool(reason.by)


def test_every_library_that_leaves_all_out_has_a_reason_of_its_own():
    named = {library for reason in REASONS.values() if "no_content" in reason.of for library in reason.by}
    assert named >= LIBRARIES - {"envoy-ai-gateway"}


def test_one_reason_only_is_meant():
    meant = [(general, library) for one in REASONS.values() for general in one.of for library in one.by]
    assert len(meant) == len(set(meant))


def test_a_reason_is_more_exact_once_the_library_is_known():
    assert reason_by("bare_image", "envoy-ai-gateway") == "envoy_bare_image"
    assert reason_by("bare_image", "openinference") == "openinference_hidden"
    assert reason_by("bare_image", "") == reason_by("bare_image", "vllm") == "bare_image"


def test_placeholders_have_reasons():
    assert {one.reason for one in NAMES.placeholder} <= REASONS.keys()
    assert placeholder("__REDACTED__") == "openinference_redacted"
    assert placeholder("A dog.") == ""


def test_reasons_that_code_names_are_there():
    """By their forms: what readers put into `left_out`."""
    forms = ("bare_", "no_input", "no_content", "cut_", "reference_", "unknown_", "genai_", "too_")
    named = {
        name
        for path in Path(groundwatch.conversations.__path__[0]).glob("*.py")
        for name in re.findall(r'"([a-z]+_[a-z_]+)"', path.read_text("utf-8"))
        if name.startswith(forms)
    }
    assert named >= {"bare_image", "no_input", "cut_attribute", "reference_unreadable", "too_many_parts"}
    assert named <= REASONS.keys()


TEXTS = ["Image: a dog", "C:\\dog.png", "dog.png", "<image>", "[image]", "image", "x" * 10_000 + "é"]


@pytest.mark.parametrize("value", TEXTS)
def test_a_text_that_is_no_image_is_told(value):
    part = {"type": "image_url", "image_url": {"url": value}}
    assert read_content([part]).left_out == ("unknown_placeholder",)


def test_an_address_without_end_is_none():
    part = {"type": "image_url", "image_url": {"url": "https://x/" + "y" * 10_000}}
    assert read_content([part]).left_out == ("unknown_placeholder",)
