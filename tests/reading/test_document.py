"""What of an answer is spoken about the image."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.events import Claim, LeftOutKind
from groundwatch.reading.document import keep_languages, read_document, with_places

ENGLISH = frozenset(("en",))


def words(answer: str) -> str:
    return " ".join(read_document(answer).text.split())


def kinds(answer: str) -> list[str]:
    return [part.kind.value for part in read_document(answer).left_out]


@pytest.mark.parametrize(
    "answer",
    [
        "<think>\nA horse? No.\n</think>\n\nA dog lies here.",
        "<think>A horse?</think>A dog <think>a horse</think>lies here.",
        "<THINKING>A horse?</THINKING> A dog lies here.",
        "<reasoning>A horse?</reasoning> A dog lies here.",
        "<mm:think>A horse?</mm:think> A dog lies here.",
        "[THINK]A horse?[/THINK]A dog lies here.",
        "◁think▷A horse?◁/think▷A dog lies here.",
        "<|begin_of_thought|>A horse?<|end_of_thought|>A dog lies here.",
        # Its beginning stood in the prompt.
        "A horse, maybe.\n</think>\n\nA dog lies here.",
        "A horse?</think>More of a horse.</think>A dog lies here.",
        "A dog lies here. <think>Is it a horse, or",
        "<|channel|>analysis<|message|>A horse?<|end|><|start|>assistant<|channel|>final<|message|>"
        "A dog lies here.<|return|>",
        "<|channel|>commentary<|message|>A horse?<|channel|>final<|message|>A dog lies here.",
        "<|channel>thought\nA horse?<channel|>A dog lies here.",
        "Okay, the user wants a description. Let me look. It may be a horse.\n\nA dog lies here.",
        "**Thinking:** It shows a horse.\n\nOr does it?\n\n**Answer:** A dog lies here.",
        "Thought: A horse, maybe.\nFinal answer: A dog lies here.",
        "### Rationale\nA horse is here.\n\n### The final answer is: A dog lies here.",
        '<details type="reasoning" done="true"><summary>Thought for 5 s</summary>\n> A horse?\n</details>\n'
        "A dog lies here.",
        '<tool_call>{"name": "zoom", "arguments": {"label": "a horse"}}</tool_call>A dog lies here.',
        '{"reasoning": "A horse, or is it \\"one\\"?", "answer": "A dog lies here."}',
        '```json\n{"Thought_Process": ["A horse?", "No."],\n "Final Answer": "A dog lies here."\n}\n```',
        "Hmm, I need to count. Wait, let me look again.\n\nSo I should say what I see.\n\nA dog lies here.",
    ],
)
def test_reasoning_is_kept_apart(answer: str) -> None:
    assert words(answer) == "A dog lies here."
    assert "reasoning" in kinds(answer)
    assert read_document(answer).unread is None


@pytest.mark.parametrize(
    "answer",
    [
        "<think>The dog lies on",
        "<think>The dog lies on a sofa.</think>\n",
        "◁think▷A horse",
        "<|channel|>analysis<|message|>The user wants a",
        "Okay, so the user wants me to say what the dog does. It may be a horse, or",
    ],
)
def test_an_answer_that_only_reasons_is_silent(answer: str) -> None:
    why = read_document(answer).unread
    assert why is not None and why.reason == "reasoning_only"


@pytest.mark.parametrize("answer", ["<think>A horse, or", "<|channel|>analysis<|message|>A horse, or"])
def test_reasoning_that_is_cut_off_is_so(answer: str) -> None:
    assert read_document(answer).cut
    assert not read_document(f"<think>A horse?</think>{answer.rpartition('>')[2]}").cut


def test_of_an_answer_in_json_the_value_is_spoken() -> None:
    assert words('{"answer": "B"}') == "B"
    assert words('Here it is:\n```json\n{"answer": 3}\n```') == "Here it is: 3"
    document = read_document('{"thinking": "A horse {", "answer": "red", "things": [{"name": "sofa"}]}')
    assert "".join(document.text.split()) == '{"thinking":"","answer":"red","things":[{"name":"sofa"}]}'
    for answer in ('{"answer": "red", "answer": ', '{"name": "dog"}', '{"reasoning": "There is a dog."}'):
        assert read_document(answer).text == answer


def test_what_speaks_of_thoughts_is_the_answer() -> None:
    for answer in (
        "Thought: a woman ponders.\nShe sits on a bench.",
        "Thoughts are written on a poster.\nAnswer: 42 stands below.",
    ):
        assert words(answer) == " ".join(answer.split())


def test_words_to_oneself_in_an_answer_are_the_answer() -> None:
    for answer in ("So, the user uploaded a dog.", "Let me look: two dogs lie here.", "Well, a dog."):
        assert words(answer) == answer


@pytest.mark.parametrize(
    ("answer", "said", "places"),
    [
        (
            "<|object_ref_start|>a dog<|object_ref_end|><|box_start|>(112,340),(655,498)<|box_end|> lies.",
            "a dog lies.",
            "112, 340, 655, 498",
        ),
        ("A <ref>dog</ref><box>[[10,20,30,40]]</box> lies here.", "A dog lies here.", "10, 20, 30, 40"),
        (
            "<grounding>A <phrase>dog</phrase><object><patch_index_0192><patch_index_0790></object> lies.",
            "A dog lies.",
            "0192, 0790",
        ),
        ('<point x="10.1" y="20.2" alt="dogs">dogs</point> lie here.', "dogs lie here.", "10.1, 20.2"),
        ("A dog [0.1, 0.2, 0.3, 0.45] lies here.", "A dog lies here.", "0.1, 0.2, 0.3, 0.45"),
        ('{"bbox_2d": [34, 210, 298, 402], "label": "a dog"}', '{ "label": "a dog"}', "34, 210, 298, 402"),
        ("<loc0123><loc0456><loc0789><loc0001> dog", "dog", "0123, 0456, 0789, 0001"),
        ("<p>A dog lies here.</p><br/>", "A dog lies here.", ""),
        ("A dog lies here.<|im_end|>", "A dog lies here.", ""),
    ],
)
def test_marks_are_no_words(answer: str, said: str, places: str) -> None:
    assert words(answer) == said
    left_out = read_document(answer).left_out
    assert all(part.kind is LeftOutKind.MARK for part in left_out)
    assert [part.detail for part in left_out if part.detail] == ([places] if places else [])


@pytest.mark.parametrize(
    ("answer", "places"),
    [
        (
            "A <ref>dog</ref><box>[[1,2,3,4]]</box> and a <ref>cat</ref><box>[[5,6,7,8]]</box>.",
            ["1, 2, 3, 4", "5, 6, 7, 8"],
        ),
        ("A dog [1, 2, 3, 4], a cat [5, 6, 7, 8].", ["1, 2, 3, 4", "5, 6, 7, 8"]),
        (
            "<|object_ref_start|>the dog<|object_ref_end|><|box_start|>(1,2),(3,4)<|box_end|> and a cat",
            ["1, 2, 3, 4", ""],
        ),
        (
            '[{"bbox_2d": [1, 2, 3, 4], "label": "dog"}, {"bbox_2d": [5, 6, 7, 8], "label": "a cat"}]',
            ["1, 2, 3, 4", "5, 6, 7, 8"],
        ),
        (
            "<loc0001><loc0002><loc0003><loc0004> dog ; <loc0005><loc0006><loc0007><loc0008> cat",
            ["0001, 0002, 0003, 0004", "0005, 0006, 0007, 0008"],
        ),
        ("A dog and a cat sleep on the bed [1, 2, 3, 4].", ["", ""]),
        ("A dog.\n[1, 2, 3, 4] and a cat", ["", ""]),
    ],
)
def test_a_place_that_the_model_gives_stays_with_its_words(answer: str, places: list[str]) -> None:
    claims = [
        Claim(text=f"There is a {name}.", category="entity", span=(at := answer.index(name), at + 3))
        for name in ("dog", "cat")
    ]
    unplaced = Claim(text="There is something.", category="entity")
    *placed, last = with_places([*claims, unplaced], read_document(answer))
    assert [claim.place for claim in placed] == places
    assert last == unplaced


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("A bus.\n\n```python\nprint('a red car')\n```\nA man.", "A bus. A man."),
        ("- A bus\n  ~~~{.tikz}\n  \\draw (0,0);\n  ~~~\n- A man", "- A bus - A man"),
        ("````svg\n```\n<svg/>\n````\nA man.", "A man."),
        ("Here you go:\n```js\nconst cat = 2", "Here you go:"),
        ("A bus.\n```C++:main.cpp\nint cat;\n```\nA man.", "A bus. A man."),
        ("An angle \\(f(x)\\) of $\\text{Area} = 3$ and $ABC \\sim DEF$.", "An angle of and ."),
        ("A board says $E = mc^2$ and \\[ \\int_0^1 x \\] here.", "A board says and here."),
        ("A sum: $$\nx = 3\n$$ and \\(y\\).", "A sum: and ."),
    ],
)
def test_programs_and_formulas_are_not_judged(answer: str, said: str) -> None:
    assert words(answer) == said
    assert set(kinds(answer)) == {LeftOutKind.CODE}


def test_words_that_a_formula_sets_are_said() -> None:
    answer = "There are \\(3\\) dogs: \\[ \\text{a brown} \\], or $\\textbf{B}$."
    assert words(answer) == "There are 3 dogs: {a brown} , or $ {B}$."
    assert set(kinds(answer)) == {LeftOutKind.MARK}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("There is ~~a church~~ a barn.", "There is a barn."),
        ("![a blue boat](boat.png) A [red bus](https://example.org/yellow_bus).", "A [red bus] ."),
    ],
)
def test_what_is_struck_out_and_where_links_lead_is_not_said(answer: str, said: str) -> None:
    assert words(answer) == said
    assert set(kinds(answer)) == {LeftOutKind.MARK}


@pytest.mark.parametrize(
    "answer",
    [
        '```json\n{"label": "dog"}\n```',
        "```\nA dog lies here.\n```",
        "The `code` on the screen.",
        "It costs $5, the other $10.",
        "A $20 note and a $50 note.",
        "$ here and $ there",
        "```plain\nA dog lies here.\n```",
        "```ocr\nOPEN\n```",
        "```The dog is brown\nand lies here.``` A man.",
        "The keys read '$', '%' and '$'.",
        "One place is $$ and not far, the other is $$ too.",
        "Nice view~~ and nice people~~",
        "A path (./here) is seen.",
        "Values lie in [0, 100].",
        "The clock says 12:30.",
        "a < b and c > d",
        "Seats (3, 4) are free.",
        "I <3 dogs",
    ],
)
def test_what_only_looks_like_a_mark_stays(answer: str) -> None:
    assert words(answer) == " ".join(answer.split())
    assert kinds(answer) == []


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("a a a a a a a", "a"),
        ("A dog lies here. " + "The sofa is green. " * 400, "A dog lies here. The sofa is green."),
        ("The sofa is green. " * 9 + "The sofa is", "The sofa is green."),
        ("a red cup and " * 30, "a red cup and"),
        ("A dog. " * 400, "A dog."),
        ("- car\n" * 50, "- car"),
        (
            "a man in a red shirt standing near the car, " * 100,
            "a man in a red shirt standing near the car,",
        ),
    ],
)
def test_a_loop_is_read_once(answer: str, said: str) -> None:
    assert words(answer) == said
    assert kinds(answer) == ["repetition"]


def test_what_nobody_sees_of_a_page_is_not_read() -> None:
    hidden = "<!-- a cat --><style>p {color: red}</style><script>let horse = 1</script>"
    assert words(f"A dog{hidden} runs.") == "A dog runs."
    assert kinds(f"A dog{hidden} runs.") == ["code"]


def test_what_is_said_some_times_is_no_loop() -> None:
    for answer in (
        "A dog. A dog. A dog. A dog. A dog.",
        "A cup is red. " * 3,
        "1 1 1 1 1 1 1 1",
        "no no no",
        "no\n" * 9,
        "7\n" * 20,
    ):
        assert kinds(answer) == []


GERMAN = "Auf dem Sofa liegt ein brauner Hund, daneben steht eine Lampe."


def test_a_mixed_answer_is_read_in_its_english_parts() -> None:
    answer = f"A brown dog lies on a sofa. {GERMAN}\n沙发上有一只棕色的狗。\nIt sleeps."
    document = keep_languages(read_document(answer), ENGLISH, "Describe the image.")
    assert " ".join(document.text.split()) == "A brown dog lies on a sofa. It sleeps."
    assert [(part.kind.value, part.detail) for part in document.left_out] == [
        ("language", "de"),
        ("language", "zh"),
    ]
    assert next(answer[part.start : part.end].strip() for part in document.left_out) == GERMAN


@pytest.mark.parametrize("answer", [f"A dog sits on grass. {GERMAN}", f"{GERMAN} A dog sits on grass."])
def test_of_an_answer_mostly_in_another_language_the_english_part_is_read(answer: str) -> None:
    document = keep_languages(read_document(answer), ENGLISH, "Describe the image.")
    assert " ".join(document.text.split()) == "A dog sits on grass."
    assert [part.detail for part in document.left_out] == ["de"]


@pytest.mark.parametrize(
    "foreign",
    [
        "Im Hintergrund steht ein Baum.",
        "Un chien brun dort.",
        "Da ist ein Hund.",
        "El perro duerme.",
        "Il cane dorme sul divano.",
    ],
)
def test_a_short_sentence_in_another_language_is_not_read_among_english_ones(foreign: str) -> None:
    document = keep_languages(read_document(f"A dog lies here. {foreign} It is brown."), ENGLISH, "Describe.")
    assert " ".join(document.text.split()) == "A dog lies here. It is brown."


@pytest.mark.parametrize(
    "name", ["Café de la Paix.", "Vincent van Gogh.", "Rio de Janeiro.", "Tarte au citron."]
)
def test_names_among_english_sentences_are_read(name: str) -> None:
    answer = f"A sign hangs here. {name} It is blue."
    assert keep_languages(read_document(answer), ENGLISH, "Describe.").text == answer


def test_an_engine_of_any_language_reads_all() -> None:
    document = read_document(GERMAN)
    assert keep_languages(document, None, "") is document


@pytest.mark.parametrize(
    ("answer", "prompt", "language"),
    [
        (GERMAN, "Describe the image.", "de"),
        ("Rouge.", "De quelle couleur est la voiture ?", "fr"),
        ("Une femme lit dans un parc.", "", "fr"),
        ("На фотографии женщина в красном пальто сидит на скамейке.", "", "ru"),
        ("狗在室内睡觉", "Describe.", "zh"),
        (f"<think>It is a dog.</think>{GERMAN}", "", "de"),
    ],
)
def test_another_language_is_not_read(answer: str, prompt: str, language: str) -> None:
    why = keep_languages(read_document(answer), ENGLISH, prompt).unread
    assert why is not None and (why.reason, why.detail) == ("another_language", language)


@pytest.mark.parametrize(
    "answer", ["Yes", "no.", "42", "B", "(C)", "Red", "Volvo", "STOP", "", "…", "Van Gogh"]
)
def test_single_words_take_the_language_of_the_prompt(answer: str) -> None:
    document = read_document(answer)
    assert keep_languages(document, ENGLISH, "What does the sign say?") == document


_MARKS = [
    "<think>",
    "</think>",
    "<|channel|>",
    "final",
    "<|message|>",
    "<box>",
    "(1,2),(3,4)",
    "[1, 2, 3, 4]",
]
_PIECES = st.sampled_from([*_MARKS, "```py\n", "```\n", "$$", "\\[", "\\]", "~~"])
_WORDS = st.sampled_from(
    ["a dog ", "ein Hund liegt da. ", "狗", "e\u0301", "\u200b", "İ", "okay, the user ", "\n"]
)


@given(st.lists(_PIECES | _WORDS, max_size=40).map("".join) | st.text(max_size=200))
def test_places_stay_true(answer: str) -> None:
    document = read_document(answer)
    assert len(document.text) == len(answer)
    at = 0
    for part in document.left_out:
        assert at <= part.start < part.end <= len(answer)
        assert not document.text[part.start : part.end].strip()
        at = part.end
    kept = {place for part in document.left_out for place in range(part.start, part.end)}
    assert all(document.text[at] == answer[at] for at in range(len(answer)) if at not in kept)


HOSTILE = ["$", "and ", "<think>", "</think>", "<", "[", "[1, ", '"', "1 ", "(1,2),", "<|channel|>x", "<a "]
HOSTILE += ["```\n", "```py\n", "\\[", "\\(x", "$a", "$$a", "~~a", "![", "![a](", "](http:", ">"]
HOSTILE += ["okay so ", "\n", "a\n", "a b c ", '"bbox": ', "e\u0301\u200b", "| a b c ", "[ ", "- - ", "<|"]
HOSTILE += [" \n"]


@pytest.mark.parametrize("piece", HOSTILE)
def test_time_is_linear(piece: str) -> None:
    begun = time.process_time()
    read_document(piece * (100_000 // len(piece)))
    read_document("Okay, the user asks.\n" + piece * (400_000 // len(piece)))
    # A fraction of a second; what takes quadratic time takes minutes.
    assert time.process_time() - begun < 10
