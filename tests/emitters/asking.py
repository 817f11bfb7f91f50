"""How applications of each framework ask a model; imported in the environment that has it alone."""

from __future__ import annotations

import base64
from typing import Any

from calls import MODEL, Call


def _content(call: Call) -> Any:
    image = {"type": "image_url", "image_url": {"url": call.image}}
    return [{"type": "text", "text": call.prompt}, image] if call.image else call.prompt


def _bytes(call: Call) -> bytes:
    return base64.b64decode(call.image.partition(",")[2])


def langchain(call: Call) -> str:
    from langchain_core.messages import HumanMessage
    from langchain_openai import ChatOpenAI

    messages = [HumanMessage(_content(call))]
    model = ChatOpenAI(model=MODEL)
    if call.stream:
        return "".join(str(chunk.content) for chunk in model.stream(messages))
    return str(model.invoke(messages).content)


def dspy(call: Call) -> str:
    import dspy

    model = dspy.LM(f"openai/{MODEL}", cache=False)
    return str(model(messages=[{"role": "user", "content": _content(call)}])[0])


def agents(call: Call) -> str:
    from agents import Agent, OpenAIChatCompletionsModel, Runner
    from openai import AsyncOpenAI

    content: Any = [{"type": "input_text", "text": call.prompt}]
    if call.image:
        content.append({"type": "input_image", "image_url": call.image, "detail": "auto"})
    chat = OpenAIChatCompletionsModel(MODEL, AsyncOpenAI())
    agent = Agent(name="looker", model=chat if call.api == "chat" else MODEL)
    return str(Runner.run_sync(agent, [{"role": "user", "content": content}]).final_output)


def pydantic_ai(call: Call) -> str:
    from pydantic_ai import Agent, BinaryContent, ImageUrl
    from pydantic_ai.models.openai import OpenAIChatModel

    asked: list[Any] = [call.prompt]
    if call.image.startswith("data:"):
        asked.append(BinaryContent(_bytes(call), media_type="image/png"))
    elif call.image:
        asked.append(ImageUrl(call.image))
    agent = Agent(OpenAIChatModel(MODEL))
    return str(agent.run_sync(asked).output)


def llama_index(call: Call) -> str:
    from llama_index.core.llms import ChatMessage, ImageBlock, TextBlock
    from llama_index.llms.openai import OpenAI

    blocks: list[Any] = [TextBlock(text=call.prompt)]
    if call.image.startswith("data:"):
        blocks.append(ImageBlock(image=_bytes(call), image_mimetype="image/png"))
    elif call.image:
        blocks.append(ImageBlock(url=call.image))
    messages = [ChatMessage(role="user", blocks=blocks)]
    model = OpenAI(model=MODEL)
    if call.stream:
        return "".join(chunk.delta or "" for chunk in model.stream_chat(messages))
    return str(model.chat(messages).message.content)
