"""What an application records its responses with: `Recorder`, and `wrap_openai` for clients of OpenAI's API.

It needs httpx and msgspec, and imports neither httpx nor anything else of weight before a recorder is made.
"""

from groundwatch.client.openai import wrap_openai
from groundwatch.client.recorder import Recorder

__all__ = ["Recorder", "wrap_openai"]
