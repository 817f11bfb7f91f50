"""Images and ids that tests of conversations share."""

from __future__ import annotations

import base64
import json
from typing import Any

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGD4DwABBAEAfbLI3wAAAABJRU5ErkJggg=="
)
BASE64 = base64.b64encode(PNG).decode()
DATA_URL = f"data:image/png;base64,{BASE64}"
URL = "https://images.example.com/dog.png"
TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
RESPONSE = "chatcmpl-CfT0aJ4v0rFzkuxzNh3oiOsDz1bkp"


def genai(messages: list[dict[str, Any]], answer: str = "A dog.", **more: Any) -> dict[str, Any]:
    """The attributes of a span of GenAI's conventions."""
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "lvlm",
        "gen_ai.response.model": "lvlm-7b",
        "gen_ai.response.id": RESPONSE,
        "gen_ai.input.messages": json.dumps(messages),
        "gen_ai.output.messages": json.dumps(
            [{"role": "assistant", "parts": [{"type": "text", "content": answer}], "finish_reason": "stop"}]
        ),
        **more,
    }


def user(*parts: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "parts": list(parts)}]


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "content": content}
