"""Facts in words: forms of verbs and nouns, articles, denial."""

from __future__ import annotations

import pytest

pytest.importorskip("lemminflect")

from groundwatch.reading.graph import Graph, Kind, Mention, Naming, Statement
from groundwatch.reading.names import compose
from groundwatch.reading.sentences import facts_of, predicate, read, write
from groundwatch.reading.words import Passage, Span, passages


@pytest.mark.parametrize(
    ("words", "subject", "affirmed", "denied"),
    [
        ("on", "cat", "is on", "is not on"),
        ("on", "cats", "are on", "are not on"),
        ("wearing", "man", "is wearing", "is not wearing"),
        ("stands near", "horse", "stands near", "does not stand near"),
        ("stands near", "horses", "stand near", "do not stand near"),
        ("stood near", "horses", "stand near", "do not stand near"),
        ("isn't holding", "boy", "is holding", "is not holding"),
        ("does not have", "bus", "has", "does not have"),
        ("have", "bus", "has", "does not have"),
        ("has stopped at", "cyclist", "has stopped at", "has not stopped at"),
        ("can be seen behind", "tree", "can be seen behind", "can not be seen behind"),
        ("brass", "handle", "is brass", "is not brass"),
        ("open", "doors", "are open", "are not open"),
        ("carries", "woman", "carries", "does not carry"),
        ("lit", "lamp", "is lit", "is not lit"),
    ],
)
def test_predicates(words: str, subject: str, affirmed: str, denied: str) -> None:
    assert predicate(words, subject, verb=words == "have") == affirmed
    assert predicate(words, subject, denied=True, verb=words == "have") == denied


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cat", "There is a cat."),
        ("owl", "There is an owl."),
        ("unicorn", "There is a unicorn."),
        ("sunglasses", "There are sunglasses."),
        ("taxis", "There are taxis."),
        ("reeds", "There are reeds."),
        ("tongs", "There are tongs."),
        ("lens", "There is a lens."),
        ("bus", "There is a bus."),
        ("water", "There is water."),
        ("Big Ben", "There is Big Ben."),
        ("men in suits", "There are men in suits."),
    ],
)
def test_entities(name: str, text: str) -> None:
    assert write(None, name) == text


def test_denials_and_texts() -> None:
    assert write(None, "cats", denied=True) == "There are no cats."
    assert write(Kind.COUNT, "cats", "three", denied=True) == "There are not three cats."
    assert write(Kind.TEXT, "signs", "Exit") == 'The signs say "Exit".'
    assert write(Kind.VALUE, "Total", "$12") == "Total is $12."


@pytest.mark.parametrize(
    ("own", "noun", "naming", "name"),
    [
        ("other", "two sisters", Naming.OWN_AND_SINGULAR, "other two sister"),
        ("other", "sisters", Naming.OWN_AND_SINGULAR, "other sister"),
        ("taller one", "men", Naming.OWN_AND_SINGULAR, "taller man"),
        ("others", "cups", Naming.OWN_AND_PLURAL, "other cups"),
        ("the others", "cup", Naming.OWN_AND_PLURAL, "the other cups"),
        ("white ones", "shirt", Naming.OWN_AND_PLURAL, "white shirts"),
        ("two on the left", "cups", Naming.OWN_AND_PLURAL, "two cups on the left"),
        ("one of them", "dogs", Naming.OWN_AND_SINGULAR, "one dog"),
        ("it", "dog", Naming.OTHER, "dog"),
    ],
)
def test_names_of_parts(own: str, noun: str, naming: Naming, name: str) -> None:
    assert compose(own, noun, naming) == name


def _span(passage: Passage, words: str) -> Span:
    """Where these words stand in a passage, the last time they do."""
    texts = [word.text for word in passage.words]
    parts = words.split()
    first = max(at for at in range(len(texts)) if texts[at : at + len(parts)] == parts)
    return first, first + len(parts) - 1


def test_what_an_earlier_mention_calls_by_the_same_noun_needs_no_other_name() -> None:
    """The reader may take the box for one of the objects: it is "the box" all the same."""
    (passage,) = passages("", "There are two objects. One box is here. The box is red. It is old.")
    objects, earlier, box, pronoun = (_span(passage, words) for words in ("objects", "One box", "box", "It"))
    graph = Graph(
        {
            objects: Mention(objects),
            earlier: Mention(earlier),
            box: Mention(box, naming=Naming.OTHER, other=objects),
            pronoun: Mention(pronoun, naming=Naming.OTHER, other=box),
        },
        [
            Statement(Kind.COUNT, _span(passage, "two"), {objects: 1.0}),
            Statement(Kind.COLOR, _span(passage, "red"), {box: 1.0}),
            Statement(Kind.QUALITY, _span(passage, "old"), {pronoun: 1.0}),
        ],
    )
    texts = [fact.text for fact in facts_of(passage, graph)]
    assert texts == ["There are two objects.", "The box is red.", "The box is old."]


def test_words_of_a_relation_bring_no_second_article() -> None:
    (passage,) = passages("", "A ball lies in the top corner.")
    ball, corner = _span(passage, "ball"), _span(passage, "top corner")
    relation = Statement(Kind.RELATION, _span(passage, "in the"), {ball: 1.0}, {corner: 1.0})
    graph = Graph({ball: Mention(ball), corner: Mention(corner)}, [relation])
    assert [fact.text for fact in facts_of(passage, graph)] == ["The ball is in the top corner."]


def _texts(answer: str, things: list[str], *statements: tuple[Kind, str, str, str, str]) -> list[str]:
    """What is written of a graph; a statement is (kind, words, subject, object or nothing, form)."""
    (passage,) = passages("", answer)
    spans = {words: _span(passage, words) for words in things}
    graph = Graph(
        {span: Mention(span) for span in sorted(spans.values())},
        [
            Statement(
                kind,
                _span(passage, words),
                {spans[subject]: 1.0},
                {spans[target]: 1.0} if target else {},
                form=form,
            )
            for kind, words, subject, target, form in statements
        ],
    )
    return [fact.text for fact in facts_of(passage, graph)]


def test_what_is_done_to_a_thing_on_the_way_to_another_is_a_relation_too() -> None:
    assert _texts(
        "A cook stirs a thick soup with a ladle.",
        ["cook", "soup", "ladle"],
        (Kind.RELATION, "stirs a thick soup with", "cook", "ladle", "*"),
        (Kind.QUALITY, "thick", "soup", "", "*"),
    ) == ["The cook stirs the soup.", "The cook stirs a thick soup with the ladle.", "The soup is thick."]
    assert _texts(
        "A jug is to the left side of the plate near a cup.",
        ["jug", "side", "cup"],
        (Kind.RELATION, "to the left side of the plate near", "jug", "cup", "*"),
    ) == ["The jug is to the left side of the plate near the cup."]


def test_a_posture_is_read_only_where_its_verb_stands() -> None:
    shelf = (Kind.RELATION, "On", "jug", "shelf", "stand *")
    assert _texts("On a shelf stand a jug and a bowl.", ["shelf", "jug"], shelf) == [
        "The jug stands on the shelf."
    ]
    assert _texts("On a shelf we see a jug. A man stands.", ["shelf", "jug"], shelf) == [
        "The jug is on the shelf."
    ]


def test_no_quality_ends_in_the_preposition_of_what_follows() -> None:
    assert _texts(
        "Two girls are watching from across the road; a lamp is turned on.",
        ["girls", "lamp"],
        (Kind.QUALITY, "watching from", "girls", "", "*"),
        (Kind.QUALITY, "turned on", "lamp", "", "*"),
    ) == ["The girls are watching.", "The lamp is turned on."]
    assert _texts(
        "The book is for children; a lamp is on.",
        ["book", "lamp"],
        (Kind.QUALITY, "for", "book", "", "*"),
        (Kind.QUALITY, "on", "lamp", "", "*"),
    ) == ["The lamp is on."]


def test_of_several_texts_on_several_things_each_stands_on_one() -> None:
    assert _texts(
        'Two keys read "Esc" and "Tab".',
        ["keys"],
        (Kind.TEXT, "Esc", "keys", "", "*"),
        (Kind.TEXT, "Tab", "keys", "", "*"),
    ) == ['One key says "Esc".', 'One key says "Tab".']
    assert _texts('Two keys read "Esc".', ["keys"], (Kind.TEXT, "Esc", "keys", "", "*")) == [
        'The keys say "Esc".'
    ]


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        ("One can see a church.", ["church"]),
        ("One sees a church.", ["church"]),
        ("One is near a church.", ["one", "church"]),
    ],
)
def test_whoever_looks_is_no_thing(answer: str, names: list[str]) -> None:
    (passage,) = passages("", answer)
    mentions = {span: Mention(span) for span in ((0, 0), (len(passage.words) - 2, len(passage.words) - 2))}
    assert [thing.name for thing in read(passage, Graph(mentions, []))[1]] == names


@pytest.mark.parametrize(("confidence", "denied"), [(0.5, False), (0.7, True)])
def test_a_denial_in_doubt_is_none_of_what_something_is_said_about(confidence: float, denied: bool) -> None:
    (passage,) = passages("", "The cup is under the man.")
    cup, man = (1, 1), (5, 5)
    mentions = {cup: Mention(cup), man: Mention(man, entity=True, denied=True, confidence=confidence)}
    said = Statement(Kind.RELATION, (3, 3), subjects={cup: 1.0}, objects={man: 1.0})
    assert [thing.denied for thing in read(passage, Graph(mentions, [said]))[1]] == [False, denied]
    alone = [thing.denied for thing in read(passage, Graph(mentions, []))[1]]
    assert alone == [False, True]
