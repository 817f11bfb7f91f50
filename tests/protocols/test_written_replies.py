"""Replies in the papers' own formats, to the papers' own words: as `prompts.folder` has them."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from tests.support.llm_server import running

from groundwatch.events import Claim, ClaimsExtracted, Decision, Judge, Reference, ResponseRecorded
from groundwatch.extraction.engines import build
from groundwatch.models.replies import last_valid
from groundwatch.models.settings import ChatSettings
from groundwatch.protocols import prompts, registry
from groundwatch.protocols.base import EvaluationProtocol, Extracted
from groundwatch.protocols.prompts import Step
from groundwatch.protocols.triplets import blamed, claim_of
from groundwatch.protocols.written_replies import facts, triplets
from groundwatch.runtime.settings import ExtractionSettings


@pytest.fixture(autouse=True)
def own_words(tmp_path: Path):
    """Every judge's prompt in other words, with the placeholders of ours."""
    for name in ("faithscore", "tri-he", "valor-object-existence"):
        own = registry.get(name).package.rpartition(".")[2]
        for path in (Path(registry.protocols.__path__[0]) / own / "prompts").glob("*.md"):
            slots = sorted(set(re.findall(r"\{\{\w+\}\}", path.read_text())))
            if "# Instructions" not in path.read_text():
                continue
            text = "# Instructions\nDo as the paper says.\n# Question\n" + "\n".join(slots)
            place = tmp_path / name.split("-object")[0] / path.name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
    prompts.use(registry.own_prompts(str(tmp_path)))
    yield
    prompts.use({})


def extracted(name: str, answer: str, *replies: str) -> Extracted:
    protocol: EvaluationProtocol = registry.get(name)
    response = ResponseRecorded(id="1", model="m", answer=answer)
    units, claims = (), ()
    for index, reply in enumerate(replies):
        step = protocol.extraction_step(index, response, units)
        assert step is not None
        units, claims = protocol.read_extraction(index, read(step, reply), response, units)
    return units, claims


def read(step: Step, reply: str) -> object:
    return last_valid(reply, step.form, step.written)


@pytest.mark.parametrize(
    ("subset", "reply", "texts"),
    [
        ("object-existence", {"objects": ["dog", "field"]}, ["dog", "field"]),
        ("relation-positional", {"relations": ["cup on the left of plate"]}, ["cup on the left of plate"]),
        ("relation-comparative", {"2": "cup", "1": "table", "10": "pea"}, ["table", "cup", "pea"]),
        (
            "attribute-object",
            {"total num of objects": "(2, cup)", "objects": {"1": "(red, cup)", "2": "(light blue, cup)"}},
            ["(red, cup)", "(light blue, cup)"],
        ),
        (
            "attribute-people",
            {
                "total num of people": "(1, man)",
                "clothes": {"1": {"person": "man", "object": "(red, shirt)", "action": "running"}},
            },
            ["(red, shirt)"],
        ),
    ],
)
def test_valors_extraction(subset: str, reply: object, texts: list[str]) -> None:
    _, claims = extracted(f"valor-{subset}", "Words.", f"Here it is: {json.dumps(reply)}")
    assert [claim.text for claim in claims] == texts


@pytest.mark.parametrize(
    ("subset", "claims", "annotated", "reply", "kinds"),
    [
        (
            "object-existence",
            ("couch", "person", "cat"),
            ("sofa", "woman"),
            {"matched-objects": {"Couch": "sofa"}, "broader-concept": {"person": "woman"}},
            {0: ("sofa", "matched"), 1: ("woman", "broader")},
        ),
        (
            "attribute-object",
            ("(red, cup)", "(blue, bag)"),
            ("(red, mug)", "(black, bag), (blue, bag)"),
            {
                "broader-concept": {},
                "matched-att-obj": {"1": {"(red, cup)": "(red, mug)"}, "2": {"(blue,bag)": "(blue, bag)"}},
            },
            {0: ("(red, mug)", "matched"), 1: ("(black, bag), (blue, bag)", "matched")},
        ),
    ],
)
def test_valors_matching(
    subset: str,
    claims: tuple[str, ...],
    annotated: tuple[str, ...],
    reply: object,
    kinds: dict[int, tuple[str, str]],
) -> None:
    protocol = registry.get(f"valor-{subset}")
    response = ResponseRecorded(id="1", model="m", answer="Words.", reference=Reference(objects=annotated))
    event = ClaimsExtracted(
        response=response,
        protocol=protocol.name,
        judge=Judge(engine="t"),
        claims=tuple(Claim(text=text, category="object") for text in claims),
    )
    matches = protocol.read_matching(read(protocol.matching_step(event), json.dumps(reply)), event)
    assert {one.claim: (one.reference, one.kind) for one in matches} == kinds
    with pytest.raises(ValueError, match="none of the listed items"):
        read(protocol.matching_step(event), json.dumps({"matched-objects": {"zebra": annotated[0]}}))


ANSWER = "The image features a red couch with a cat lying on it. It is likely a home, and two cups are there."


def test_faithscores_labels_and_facts() -> None:
    labelled = (
        "Labeled text: The image features a red couch with a cat lying on it. [D] It is likely a home, [A] "
        "and two cups are there. [D]"
    )
    facts = (
        "Entities: There is a couch. There is a cat. There are cups.\nRelations: A cat is lying on a couch.\n"
        "Colors: There is a red couch.\nCounting: There are two cups.\nOther attributes:\n"
    )
    units, claims = extracted("faithscore", ANSWER, labelled, facts)
    assert [unit.label.value for unit in units] == ["descriptive", "analytical", "descriptive"]
    assert [(claim.category, claim.unit, claim.text) for claim in claims] == [
        ("entity", 0, "There is a couch."),
        ("entity", 0, "There is a cat."),
        ("relation", 0, "A cat is lying on a couch."),
        ("color", 0, "There is a red couch."),
        ("entity", 2, "There are cups."),
        ("count", 2, "There are two cups."),
    ]


def test_tri_hes_triplets_and_judgements() -> None:
    reply = '("couch", "is", "red")\n("cat", "lying on", "couch")\n("image", "has", "two cups")\n<Done>'
    _, claims = extracted("tri-he", ANSWER, f'<think>("dog", "on", "cat")</think>{reply}')
    assert [(claim.unit, claim.parts) for claim in claims] == [
        (0, ("couch", "is", "red")),
        (0, ("cat", "lying on", "couch")),
        (2, ("image", "has", "two cups")),
    ]


@pytest.mark.parametrize(
    "reply",
    [
        "yes\nno, object2",
        "0: Yes.\n1: No. The error is related to 'object2'.",
        'My answer is "yes".\n\nMy answer is \'no\'. No reference.\nThe error is related to "object 2".',
        "<think>no, relation</think>\nTask 1: yes\nTask 1: no\nTask 2: object2",
    ],
)
def test_tri_hes_judge_says_yes_or_no_with_a_part(reply: str) -> None:
    claims = claim_of(("man", "on", "horse")), claim_of(("man", "has", "cat"))
    response = ResponseRecorded(
        id="1", model="m", answer="x", reference=Reference(triplets=(("a", "b", "c"),))
    )
    protocol = registry.get("tri-he")
    verdicts = protocol.read_verification(read(protocol.verification_step(response, claims), reply), claims)
    assert [one.decision for one in verdicts] == [Decision.SUPPORTED, Decision.REFUTED]
    assert [blamed(one) for one in verdicts] == [None, "object2"]


@pytest.mark.parametrize("piece", ['("a","a",', '("', '"a" , ', "( ", "' "])
def test_triplets_without_end_are_looked_for_once(piece: str) -> None:
    begun = time.process_time()
    with pytest.raises(ValueError, match="expected lines of"):
        triplets({0: "a"}, piece * (100_000 // len(piece)))
    # A fraction of a second; what tries each end of each part anew takes years.
    assert time.process_time() - begun < 10


def test_a_line_may_hold_several_triplets_and_other_brackets() -> None:
    said = """1. ("man's hat", "is on", "head") and (“dog”, “beside”, “"old" cat”), ("a", "b"), ("""
    said += "'x', 'y', 'z', 'w')"
    found = [
        (one["object1"], one["relation"], one["object2"]) for one in triplets({0: "a"}, said)["triplets"]
    ]
    assert found == [
        ("man's hat", "is on", "head"),
        ("dog", "beside", '"old" cat'),
        ("x", "y", "z', 'w"),
    ]


def test_blanks_in_facts_take_no_long_time() -> None:
    begun = time.process_time()
    read = facts({0: "a"}, f"Entities: There is a cat.{' ' * 100_000} There is a dog.{' ' * 100_000}")
    assert [one["text"] for one in read["facts"]] == ["There is a cat.", "There is a dog."]
    assert time.process_time() - begun < 10


def first(name: str) -> Step:
    response = ResponseRecorded(id="1", model="m", answer=ANSWER)
    step = registry.get(name).extraction_step(0, response, ())
    assert step is not None
    return step


@pytest.mark.parametrize(
    ("name", "reply", "told"),
    [
        ("valor-object-existence", "dog, cat", "no JSON object"),
        ("valor-object-existence", '{"things": ["dog"]}', "list of objects or relations"),
        (
            "valor-attribute-object",
            '{"objects": {"1": "red cup"}}',
            "at each number",
        ),
        ("faithscore", "The image features a dog. [D]", "words of the answer with"),
        ("faithscore", "Sorry, I cannot.", "words of the answer with"),
        ("tri-he", "cat on couch", "subject"),
    ],
)
def test_anything_else_is_no_reply(name: str, reply: str, told: str) -> None:
    step = first(name)
    with pytest.raises(ValueError, match=told):
        read(step, reply)


def test_our_own_words_take_our_form_alone() -> None:
    prompts.use({})
    step = first("valor-object-existence")
    assert step.written is None
    with pytest.raises(ValueError, match="unknown field `objects`"):
        read(step, '{"objects": ["dog"]}')


async def test_a_server_that_constrains_nothing_is_sent_the_papers_words_alone() -> None:
    with running() as server:
        chat = ChatSettings(base_url=server.base_url, model='echo:{"objects": ["dog"]}', structured="none")
        engine = build(ExtractionSettings(engine="llm", llm=chat))
        response = ResponseRecorded(id="1", model="m", answer="A dog.")
        (found,) = await engine.extract([response], registry.get("valor-object-existence"))
        await engine.close()
    assert [claim.text for claim in found.claims] == ["dog"]
    assert "JSON Schema" not in json.dumps(server.requests)
