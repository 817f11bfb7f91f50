"""Which language a text is in: hardly any English one is turned away, and no foreign one becomes English."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from groundwatch.reading.language import language_of

CAPTIONS = Path(__file__).parents[3] / "shared" / "data" / "pope" / "captions"
ANSWERS = Path(__file__).parents[3] / "shared" / "data" / "faithscore" / "annotation.jsonl"

ENGLISH = """
A red bus.
Two dogs on a sofa.
There is no cat in the image, only a dog.
Yes, there is.
Croissants, muffins, espresso machine
Dog sleeping indoors
Twenty-five past four.
A plate of jalapeño quesadillas and a café latte.
""".strip().splitlines()

OTHERS = {
    "de": ["Ein roter Bus.", "Das Auto ist rot.", "Hund schläft drinnen", "Drei Radfahrer fahren bergauf."],
    "fr": ["Un bus rouge.", "La voiture est rouge.", "Chien endormi dedans", "Oui, il y en a un."],
    "es": ["Un autobús rojo.", "El coche es rojo.", "Perro durmiendo dentro"],
    "it": ["Un autobus rosso.", "Cane che dorme dentro", "La macchina è rossa."],
    "pt": ["Um ônibus vermelho.", "Cachorro dormindo dentro"],
    "nl": ["Een rode bus.", "Hond slaapt binnen"],
    "pl": ["Czerwony autobus.", "Pies śpi w domu"],
    "ru": ["Красный автобус.", "Собака спит дома"],
    "zh": ["一辆红色的公共汽车。", "狗在室内睡觉"],
    "ja": ["赤いバスです。", "犬が寝ている"],
    "ar": ["حافلة حمراء."],
    "hi": ["कुत्ता सो रहा है।"],
}


@pytest.mark.parametrize("text", ENGLISH)
def test_english(text: str) -> None:
    assert language_of(text, "en") == "en"


@pytest.mark.parametrize("text", [text for texts in OTHERS.values() for text in texts])
def test_others_are_not_english(text: str) -> None:
    assert language_of(text, "en") != "en"


def test_the_language_is_named() -> None:
    named = [language_of(text) == language for language, texts in OTHERS.items() for text in texts]
    assert sum(named) >= 0.8 * len(named)


def test_without_words_it_is_what_is_asked_in() -> None:
    assert language_of("42", "de") == "de"
    assert language_of("…") == ""


@pytest.mark.skipif(not CAPTIONS.exists(), reason="POPE's captions are not in this checkout")
def test_at_most_one_of_two_hundred_english_answers_is_turned_away() -> None:
    texts = [
        json.loads(line)["text"]
        for path in sorted(CAPTIONS.glob("*.jsonl"))
        for line in path.read_text("utf-8").splitlines()
    ]
    texts += [json.loads(line)["answer"] for line in ANSWERS.read_text("utf-8").splitlines()]
    assert len(texts) > 6_000
    turned_away = [text for text in texts if language_of(text, "en") != "en"]
    assert len(turned_away) <= 0.005 * len(texts), turned_away[:20]
