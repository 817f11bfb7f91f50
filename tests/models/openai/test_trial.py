"""What a model can is found in its own words, in whichever it answers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.endpoints import EndpointServer

from groundwatch.models.settings import ChatSettings
from groundwatch.models.trial import try_out


@pytest.mark.parametrize(
    "text",
    [
        "{left}, {right}",
        "{left} and {right}. The left half is {left} and the right half is {right}.",
        "The right is {right}, the left is {left}.",
        "**Left: {left}**\n**Right: {right}**",
        "<answer>{left}, {right}</answer>",
    ],
)
@pytest.mark.parametrize("sees", [True, False])
async def test_colours_are_read_where_they_are_said(text: str, sees: bool) -> None:
    with EndpointServer("vllm") as server:
        answered = server._answered

        def reply(*asked: Any) -> str:
            left, right = answered(*asked).split()
            return text.format(left=left if sees else right, right=right if sees else left)

        server._answered = reply  # type: ignore[method-assign]
        found = await try_out(ChatSettings(base_url=server.base_url, model="m"))
    assert found.sees == sees and bool(found.blind) != sees
    assert not found.thinks
