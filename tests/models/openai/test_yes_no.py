from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from tests.support.llm_server import LlmServer, running

from groundwatch.models.openai import YesNoModel, probability, read_answer
from groundwatch.models.settings import ChatSettings

SETTINGS = ChatSettings(base_url="http://localhost", model="any")


@pytest.fixture
def server() -> Iterator[LlmServer]:
    with running() as started:
        yield started


def place(**shares: float) -> list[tuple[str, float]]:
    return [(token, math.log(share)) for token, share in shares.items()]


@pytest.mark.parametrize(
    ("places", "wanted"),
    [
        ([place(Yes=0.6, No=0.2)], 0.75),
        ([place(Yes=0.3, yes=0.3, No=0.1, NO=0.1)], 0.75),
        ([place(ĠYes=0.6, ĠNo=0.2)], 0.75),
        ([[(" Yes.", math.log(0.6)), ("▁no", math.log(0.2))]], 0.75),
        ([[("\n", -0.1)], [("**", -0.1)], place(No=0.9)], 0.0),
        ([place(Yes=1.0)], 1.0),
        ([place(The=0.95, Yes=0.04, No=0.01)], None),
        ([place(Oui=0.9, Non=0.1)], None),
        ([place(是=0.9), place(Yes=0.9)], None),
        ([[("Yes", math.nan), ("No", math.log(0.5))]], 0.0),
        ([[("Yes", math.inf)]], 1.0),
        ([[]], None),
        ([], None),
        ([[(" ", 0.0)]], None),
    ],
)
def test_probability(places: list[list[tuple[str, float]]], wanted: float | None) -> None:
    assert probability(places) == (None if wanted is None else pytest.approx(wanted))


@pytest.mark.parametrize(
    "logprobs", ["null", "7", "{}", '{"content": null}', '{"content": [{"token": 3}]}', '{"tokens": ["Yes"]}']
)
def test_log_probabilities_of_another_form_leave_the_answer_alone(logprobs: str) -> None:
    body = '{"choices": [{"message": {"content": "Yes"}, "logprobs": ' + logprobs + "}]}"
    answer = read_answer(body.encode(), SETTINGS)
    assert (answer.text, answer.tokens) == ("Yes", ())


def test_the_token_that_was_taken_counts_even_when_it_is_no_alternative() -> None:
    body = (
        b'{"choices": [{"message": {"content": "Yes"}, "logprobs": {"content": '
        b'[{"token": "Yes", "logprob": -0.5, "top_logprobs": [{"token": "No", "logprob": -2.0}]}]}}]}'
    )
    answer = read_answer(body, SETTINGS)
    assert answer.tokens == ((("Yes", -0.5), ("No", -2.0)),)


async def test_a_server_that_refuses_log_probabilities_is_not_asked_for_them_again(server: LlmServer) -> None:
    model = YesNoModel(
        ChatSettings(base_url=server.base_url, model="400:logprobs,ok", first_wait=0.01, retries=0)
    )
    for _ in range(2):
        said = await model.ask(
            "Yes or no?", "<<<statement 0123456789abcdef\nx\n0123456789abcdef statement>>>"
        )
        assert said.probability is None
    await model.close()
    assert ["logprobs" in request for request in server.requests] == [True, False, False]
    assert server.requests[1]["response_format"]["json_schema"]["schema"]["properties"]["answer"]["enum"]
