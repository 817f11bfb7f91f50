"""The demo's application sends by the client, as its user would: each answer with its picture, in order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from groundwatch.demo import application
from groundwatch.demo.application import Application, Sent, asked_about
from groundwatch.errors import UsageError
from groundwatch.miniature import language
from groundwatch.miniature.world import KINDS
from groundwatch.reading.document import read_document
from tools.miniature import answers


class Models:
    """Answers at once, in the place of served models."""

    def __init__(self, text: str = "There is a red ball.") -> None:
        self._text = text

    async def lvlm(self, images: Any, prompt: str, **options: Any) -> Any:
        return SimpleNamespace(text=self._text)


async def test_every_answer_is_recorded_with_its_picture(gateway: Any) -> None:
    application = Application(Models(), gateway.service.url)  # type: ignore[arg-type]
    told: list[Sent] = []
    questions = asked_about(12)
    await application.serve(iter(questions[:6]), told.append)
    events = await gateway.events()
    assert sorted(event.id for event in events) == sorted(one.id for one in told)
    application.deployed["osprey"] = "2"
    await application.serve(iter(questions[6:]), told.append)
    await application.close()
    events = await gateway.events()
    assert {event.id for event in events} == {one.id for one in told} == application.sent.keys()
    assert all(len(event.images) == 1 and event.answer == "There is a red ball." for event in events)
    assert [event.tags["version"] for event in events if event.model == "osprey"] == ["1"] * 3 + ["2"] * 3


async def test_an_answer_that_the_gateway_refuses_is_told(gateway_factory: Any) -> None:
    gateway = await gateway_factory(intake={"max_line": 60})
    application = Application(Models(), gateway.service.url)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="the gateway has not taken all answers: 2 too_large"):
        await application.serve(iter(asked_about(2)), lambda sent: None)
    await application.close()


def test_every_other_description_is_a_list_in_markdown_that_denies_or_finds_a_thing() -> None:
    asked = [kind for turn in range(180) if (kind := application.asked_for(turn))]
    assert len(asked) == 15 and set(asked) == set(KINDS)
    (_, shown), *_ = application.asked_about(1)
    absent = next(kind for kind in KINDS if not shown.of_kind(kind))
    answer, said = application.listed(answers.answer(shown, 0), absent, there=False)
    assert f"- There is **no** {absent}." in answer and "##" in answer
    document = read_document(answer)
    assert [part.kind.value for part in document.left_out] == ["reasoning"]
    # Its truth is that of its plain words, the denial among them.
    assert language.truth(said, shown).rate == 0.0
    false, denied = application.listed("", shown.things[0].kind, there=False)
    assert "**no**" in false and language.truth(denied, shown).rate == 1.0
