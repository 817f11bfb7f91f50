"""Stand-ins for the servers that people run, which answer over HTTP as their documentation has it.

vLLM 0.2x (Reasoning Outputs, OpenAI-Compatible Server): thoughts in `reasoning`, or in the text where no
parser is set; log-probabilities of all tokens, thoughts too, at most 20 for a place; `chat_template_kwargs`.
SGLang (Separate reasoning; issue 25055): thoughts in `reasoning_content`, log-probabilities of all tokens.
Ollama (OpenAI compatibility): `max_tokens` and `reasoning_effort` are its names; older ones have no
log-probabilities. OpenAI: reasoning models refuse `max_tokens`, temperature and log-probabilities, and think
out of sight; at effort `none` they tell five alternatives.
"""

from __future__ import annotations

import io
import json
import math
import re
from typing import Any, Literal

from PIL import Image
from tests.support.llm_server import LlmServer, Reply, _json, _read

Kind = Literal["vllm", "sglang", "ollama", "openai"]

THOUGHTS = [
    "<think>",
    "\n",
    "Is",
    " it",
    "?",
    " Yes",
    " or",
    " no",
    ",",
    " let",
    " me",
    " see",
    ".",
    "</think>",
    "\n\n",
]
_COLORS = {"red": (1, 0, 0), "green": (0, 1, 0), "blue": (0, 0, 1), "yellow": (1, 1, 0)}


class EndpointServer(LlmServer):
    """`thinks`: the model does unless it is asked not to. `parser`: vLLM's, for its thoughts."""

    def __init__(
        self,
        kind: Kind,
        *,
        thinks: bool = False,
        sees: bool = True,
        parser: bool = True,
        logprobs: bool = True,
    ) -> None:
        super().__init__()
        self.kind, self.thinks, self.sees = kind, thinks, sees
        self.parser, self.logprobs = parser, logprobs

    def _reply(
        self, request: dict[str, Any], behaviour: str, argument: str, headers: dict[str, str]
    ) -> Reply:
        question, images = _read(request)
        thinks = self.thinks and self._may_think(request)
        if refused := self._refused(request, thinks, bool(images)):
            return refused
        answer = _pieces(self._answered(question, images, request))
        written = [*(THOUGHTS if thinks else ()), *answer]
        names = ("max_tokens",) if self.kind == "ollama" else ("max_completion_tokens", "max_tokens")
        limit = next((request[name] for name in names if request.get(name)), 4096)
        cut, written = len(written) > limit, written[:limit]
        if cut and thinks and self.kind == "openai" and limit <= len(THOUGHTS):
            why = "Could not finish the message because max_tokens or model output limit was reached."
            return _refusal(why)
        thoughts, said = _split(written)
        message: dict[str, Any] = {"role": "assistant", "content": said or None}
        shown = written
        if not self.parser:
            message["content"] = "".join(written)
        elif self.kind == "openai":
            shown = written[len(THOUGHTS) :] if thinks else written
        elif thoughts:
            message["reasoning_content" if self.kind == "sglang" else "reasoning"] = thoughts
        choice: dict[str, Any] = {
            "index": 0,
            "message": message,
            "finish_reason": "length" if cut else "stop",
        }
        if request.get("logprobs") and self.logprobs:
            choice["logprobs"] = {
                "content": [_place(token, request.get("top_logprobs", 0)) for token in shown]
            }
        usage: dict[str, Any] = {"prompt_tokens": 100, "completion_tokens": len(written)}
        if self.kind == "openai":
            usage["completion_tokens_details"] = {"reasoning_tokens": len(THOUGHTS) if thinks else 0}
        return _json(200, {"object": "chat.completion", "choices": [choice], "usage": usage})

    def _may_think(self, request: dict[str, Any]) -> bool:
        if self.kind in ("vllm", "sglang"):
            return request.get("chat_template_kwargs", {}).get("enable_thinking", True)
        return request.get("reasoning_effort") != "none"

    def _refused(self, request: dict[str, Any], thinks: bool, images: bool) -> Reply | None:
        top = request.get("top_logprobs") or 0
        if images and not self.sees:
            whose = {"ollama": "this model does not support image input"}
            return _refusal(whose.get(self.kind, f"{request['model']} is not a multimodal model"))
        if self.kind == "vllm" and top > 20:
            return _refusal(f"Requested sample logprobs of {top}, which is greater than max allowed: 20")
        if self.kind == "ollama" and "reasoning_effort" in request and not self.thinks:
            return _refusal(f'"{request["model"]}" does not support thinking')
        if self.kind != "openai" or not self.thinks:
            return None
        if "max_tokens" in request:
            why = "Unsupported parameter: 'max_tokens' is not supported with this model."
            return _refusal(why, "unsupported_parameter", "max_tokens")
        if thinks and request.get("temperature", 1) != 1:
            why = "Unsupported value: 'temperature' does not support 0.0 with this model."
            return _refusal(why, "unsupported_value", "temperature")
        if thinks and request.get("logprobs"):
            return _refusal("You are not allowed to request logprobs from this model", status=403)
        if top > 5:
            why = (
                f"Invalid 'top_logprobs': integer above maximum value. Expected a value <= 5, but got {top}."
            )
            return _refusal(why, "integer_above_max_value", "top_logprobs")
        return None

    def _answered(self, question: str, images: list[bytes], request: dict[str, Any]) -> str:
        if "two colours" in question:
            return " ".join(map(_color_at, images[:1] * 2, (0.25, 0.75))).title() or "Nothing."
        blocks = dict(re.findall(r"<<<(\w+) \w+\n(.*?)\n\w+ \1>>>", question, re.DOTALL))
        if "statements" in blocks:
            found = []
            for line in blocks["statements"].splitlines():
                index, _, text = line.partition(": ")
                one = f"<<<statement 0123456789abcdef\n{json.loads(text)}\n0123456789abcdef statement>>>"
                found.append({"index": int(index), **self._judge.answer(one, images)})
            return json.dumps({"answers": found})
        reply = self._judge.answer(question, images)
        formed = "response_format" in request or "answer" not in reply
        return json.dumps(reply) if formed else reply["answer"].title()


def _pieces(text: str) -> list[str]:
    return re.findall(r"\w+|[^\w]+", text)


def _split(tokens: list[str]) -> tuple[str, str]:
    """What was thought and what was said, as a parser has them."""
    text = "".join(tokens)
    if not text.startswith("<think>"):
        return "", text
    thoughts, _, said = text.removeprefix("<think>").partition("</think>")
    return thoughts.strip(), said.strip()


def _place(token: str, top: int) -> dict[str, Any]:
    """A yes is 0.9 likely, and so is a no; everything else is certain."""
    other = {"yes": "no", "no": "yes", "Yes": "No", "No": "Yes"}.get(token.strip())
    likely = [(token, 0.9), (other, 0.1)] if other else [(token, 1.0)]
    told = [{"token": word, "logprob": math.log(share), "bytes": None} for word, share in likely]
    return {**told[0], "top_logprobs": told[:top]}


def _color_at(image: bytes, place: float) -> str:
    shown = Image.open(io.BytesIO(image)).convert("RGB")
    pixel = shown.getpixel((int(shown.width * place), shown.height // 2))
    assert isinstance(pixel, tuple)
    seen = tuple(int(value > 127) for value in pixel)
    return next((name for name, color in _COLORS.items() if color == seen), "grey")


def _refusal(message: str, code: str | None = None, param: str | None = None, status: int = 400) -> Reply:
    return _json(status, {"error": {"message": message, "type": "error", "code": code, "param": param}})
