"""What is shipped of WordNet is what `tools/wordnet.py` derives."""

from __future__ import annotations

import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

WORDNET = Path("/usr/share/wordnet")
SCRIPT = Path(__file__).parents[2] / "tools" / "wordnet.py"


@pytest.mark.skipif(not WORDNET.exists(), reason="needs Debian's package wordnet-base")
def test_the_data_is_what_the_script_derives(tmp_path: Path) -> None:
    derived = tmp_path / "wordnet.json"
    subprocess.run([sys.executable, SCRIPT, WORDNET, derived], check=True)
    assert (
        derived.read_bytes()
        == resources.files("groundwatch.language.nouns").joinpath("wordnet.json").read_bytes()
    )
