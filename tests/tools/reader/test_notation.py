"""The notation of annotated answers, and the answers of the repository."""

from __future__ import annotations

import pytest
from tools.reader.labelling import sentence
from tools.reader.notation import NotationError, read, read_files

ITEM = """
### prose_caption
P: Describe it.
A<<
A ginger cat sleeps. It isn't on the rug, and there is no lamp.
>>
F:
@ A ginger
e | cat
c | ginger | cat
@ It isn't
~-r | cat{It} | on | rug
-?e | lamp
"""


def test_a_fact_stands_where_its_words_do() -> None:
    [item] = read(ITEM, "one")
    entity, color, relation, lamp = item.facts
    assert [item.answer[slice(*part.place)] for part in color.parts if part.place] == ["ginger", "cat"]
    assert [item.answer[slice(*part.place)] for part in relation.parts if part.place] == ["It", "on", "rug"]
    assert (entity.denied, relation.denied, relation.optional) == (False, True, True)
    assert (lamp.denied, lamp.hedged) == (True, True)
    assert [sentence(fact) for fact in item.facts] == [
        "There is a cat.",
        "The cat is ginger.",
        "The cat is not on the rug.",
        "There is no lamp.",
    ]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("e | dog", "'dog' is not in the answer"),
        ("c | ginger", "no fact: 'c | ginger'"),
        ("@ A dog\ne | cat", "not in the answer: '@ A dog'"),
        ("", "no facts, and no reason why not"),
    ],
)
def test_what_is_wrong_names_its_item(wrong: str, told: str) -> None:
    with pytest.raises(NotationError, match="one-001") as refused:
        read(ITEM.partition("F:\n")[0] + "F:\n" + wrong + "\n", "one")
    assert told in str(refused.value)


def test_words_of_a_key_are_words() -> None:
    [item] = read('### tables_json\nP: ?\nA<<\n{"doors_open": false}\n>>\nF:\n-o | open | doors\n', "one")
    assert [part.place for part in item.facts[0].parts] == [(8, 12), (2, 7)]


def test_the_answers_of_the_repository_are_in_the_notation() -> None:
    items = read_files()
    assert len(items) == 4511
    assert sum(len(item.facts) for item in items) == 86_724
    assert len({item.id for item in items}) == len(items)
