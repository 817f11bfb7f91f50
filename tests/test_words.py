"""One vocabulary: what is wrong in an answer is *not in the image*, wherever people read of it.

Names of metrics stay as the papers have them: hallucination rate of Tri-HE, CHAIR's hallucinated objects.
"""

from __future__ import annotations

import re
from pathlib import Path

import groundwatch

ROOT = Path(__file__).parents[1]
SOURCE = Path(groundwatch.__file__).parent
OTHER_WORDS = re.compile(
    r"hal-|facts? (?:were |was |are |is )?hallucinated|hallucinated facts?|hallucinated by", re.I
)
READ = (
    *(SOURCE / "cli").glob("*.py"),
    *(SOURCE / "reporting").rglob("*.py"),
    *(SOURCE / "gateway").rglob("*.html"),
    *(SOURCE / "gateway").rglob("*.js"),
    *(ROOT / "deploy").rglob("*.json"),
    *(ROOT / "deploy").rglob("*.y*ml"),
    ROOT / "README.md",
    *(
        path
        for path in (ROOT / "docs").glob("*.md")
        if path.name not in ("chair.md", "faithscore.md", "tri-he.md")
    ),
)


def test_facts_are_in_the_image_or_not():
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
        for path in READ
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if OTHER_WORDS.search(line)
    ]
    assert found == []
