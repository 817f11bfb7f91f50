"""An application that asks a model about pictures: `python application.py SETUP CALL …`.

SETUP is a file with the lines that an emitter's page tells one to write, run first; `-` for none. What they
name decides whom the application asks: `litellm` that library, `OpenAI` that class, else the OpenAI client.
`ASKS` in its environment is a function of `asking`, which asks in their place.
"""

import os
import pathlib
import runpy
import sys
from typing import Any

from calls import CALLS, MODEL, Call


def content(call: Call) -> Any:
    chat = call.api == "chat"
    if not call.image:
        return call.prompt
    text = {"type": "text" if chat else "input_text", "text": call.prompt}
    if chat:
        return [text, {"type": "image_url", "image_url": {"url": call.image}}]
    return [text, {"type": "input_image", "image_url": call.image}]


def text_of(call: Call, reply: Any) -> str:
    if call.api == "chat":
        if not call.stream:
            return reply.choices[0].message.content
        return "".join(chunk.choices[0].delta.content or "" for chunk in reply if chunk.choices)
    if not call.stream:
        return reply.output_text
    events = list(reply)
    return "".join(event.delta for event in events if event.type == "response.output_text.delta")


def answer_by(setup: dict[str, Any], call: Call) -> str:
    if asks := os.environ.get("ASKS"):
        import asking

        return getattr(asking, asks)(call)
    if "litellm" in setup:
        complete, respond, prefix = setup["litellm"].completion, setup["litellm"].responses, "openai/"
    else:
        from openai import OpenAI

        client = setup.get("client") or setup.get("OpenAI", OpenAI)()
        complete, respond, prefix = client.chat.completions.create, client.responses.create, ""
    messages = [{"role": "user", "content": content(call)}]
    kwargs: dict[str, Any] = {"model": prefix + MODEL}
    if call.stream:
        kwargs["stream"] = True
    if call.api == "chat":
        return text_of(call, complete(messages=messages, **kwargs))
    return text_of(call, respond(input=messages, **kwargs))


def main() -> None:
    setup, *names = sys.argv[1:]
    named = {} if setup == "-" else runpy.run_path(str(pathlib.Path(setup).resolve()), run_name="__setup__")
    for name in names:
        call = CALLS[name]
        answer = answer_by(named, call)
        if answer != call.answer:
            raise SystemExit(f"{name}: {answer!r}")
    if recorder := named.get("recorder"):
        # At exit it sends for 2 s at most, which a busy machine may not have.
        recorder.flush(60)


main()
