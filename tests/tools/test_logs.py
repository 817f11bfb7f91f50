"""The page of log events is what the code logs."""

from __future__ import annotations

from tools import logs


def test_every_event_that_is_logged_is_on_its_page() -> None:
    assert logs.PAGE.read_text("utf-8") == logs.page(), "run `python -m tools.logs`"


def test_names_with_parts_that_are_filled_in_are_there_too() -> None:
    found = {(one.event, one.level): one.tells for one in logs.logged()}
    assert found["….away", "warning"][:1] == ("stage",)
    assert found["gateway.listening", "info"] == ("url",)
    assert len(found) > 100
