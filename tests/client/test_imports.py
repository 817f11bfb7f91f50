"""What a recorder imports, and when."""

from __future__ import annotations

import subprocess
import sys

MADE = """
import sys
from groundwatch.client import Recorder

recorder = Recorder("http://127.0.0.1:9")
print("httpx" in sys.modules)
"""


def test_httpx_is_there_once_a_recorder_is_made() -> None:
    """OpenAI's client 3.54 takes a half imported httpx for a whole one, so no thread may import it later."""
    done = subprocess.run([sys.executable, "-c", MADE], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["True"], done.stderr
