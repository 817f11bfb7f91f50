"""Annotated answers as graphs: what comes back from the graph is what was annotated."""

from __future__ import annotations

import pytest

pytest.importorskip("lemminflect")

from tools.reader.labelling import label
from tools.reader.notation import Item, read

from groundwatch.reading.sentences import facts_of

ITEMS = r"""
### prose_caption
P: Describe it.
A<<
Two sisters sit on a bench. The other is taller than the first, and one of them isn't wearing a hat.
>>
F:
@ Two sisters
e | sisters
n | Two | sisters
e | bench
r | sisters | sit on | bench
@ The other
r | other sister{other} | is taller than | first sister{first}
-r | one sister{one of them} | is wearing{isn't wearing} | hat

### short_vqa
P: Is the gate open?
A<<
No.
>>
F:
@ No
-o | open{} | gate{}

### ocr
P: What does the sign say?
A<<
The sign says "No Entry". It is made of tin.
>>
F:
@ The sign
e | sign
t | sign | No Entry
@ It is made
o | made of tin | sign{It}

### prose_caption
P: Describe it.
A<<
A bowl with three cracks. The bowl is a wooden one; both its handles are gone.
>>
F:
@ A bowl
e | bowl
e | cracks
n | three | cracks
r | bowl | has{with} | cracks
@ both its
~e | handles
o | gone | handles
"""


def written(item: Item) -> list[str]:
    return [fact.text for fact in facts_of(*label(item), least=0)]


def test_parts_of_a_group_are_named_after_it() -> None:
    item = read(ITEMS, "x")[0]
    assert written(item) == [
        "There are two sisters.",
        "There are sisters.",
        "The sisters sit on the bench.",
        "There is a bench.",
        "The other sister is taller than the first sister.",
        "One sister is not wearing the hat.",
    ]


def test_what_a_reply_denies_stands_in_the_question() -> None:
    assert written(read(ITEMS, "x")[1]) == ["The gate is not open."]


def test_a_text_keeps_the_words_that_would_deny_a_predicate() -> None:
    assert written(read(ITEMS, "x")[2]) == [
        "There is a sign.",
        'The sign says "No Entry".',
        "The sign is made of tin.",
    ]


def test_words_that_stand_for_a_verb_become_it() -> None:
    assert written(read(ITEMS, "x")[3]) == [
        "There is a bowl.",
        "The bowl has the cracks.",
        "There are three cracks.",
        "There are cracks.",
        "There are handles.",
        "The handles are gone.",
    ]


OF_THINGS = r"""
### prose_caption
P: Describe it.
A<<
Icicles hang from the roof of a barn. Rows of bushes stand by the left wall, between a cat and a dog.
One of the three eggs is broken.
>>
F:
@ Icicles
e | icicles
e | roof
e | barn
r | icicles | hang from | roof of a barn
@ Rows
e | bushes
e | wall
r | rows of bushes | stand by | left wall
@ between
e | cat
e | dog
r | bushes | between | cat and a dog
@ One of
e | eggs
n | three | eggs
o | broken | one egg{One of the three eggs}
"""


def test_a_thing_that_is_named_within_a_longer_name_is_a_thing() -> None:
    """A word has one label: the longer name would leave the reader without the roof and the barn."""
    (item,) = read(OF_THINGS, "x")
    _, graph = label(item)
    taken = [at for first, last in graph.mentions for at in range(first, last + 1)]
    assert len(taken) == len(set(taken))
    assert set(written(item)) == {
        "There are icicles.",
        "The icicles hang from the roof.",
        "There is a roof.",
        "There is a barn.",
        "The rows stand by the wall.",
        "There are bushes.",
        "There is a wall.",
        "The bushes are between the cat.",
        "The bushes are between the dog.",
        "There is a cat.",
        "There is a dog.",
        "One egg is broken.",
        "There are three eggs.",
        "There are eggs.",
    }
