"""How applications of each framework ask a model; imported in the environment that has it alone."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

from calls import BEDROCK, CLAUDE, GEMINI, MODEL, Call


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


def anthropic(call: Call) -> str:
    from anthropic import Anthropic

    content: Any = [{"type": "text", "text": call.prompt}]
    if call.image.startswith("data:"):
        data = call.image.partition(",")[2]
        source = {"type": "base64", "media_type": "image/png", "data": data}
        content.insert(0, {"type": "image", "source": source})
    elif call.image:
        content.insert(0, {"type": "image", "source": {"type": "url", "url": call.image}})
    asked = {"model": CLAUDE, "max_tokens": 100, "messages": [{"role": "user", "content": content}]}
    client = Anthropic()
    if call.stream:
        events = client.messages.create(**asked, stream=True)
        return "".join(event.delta.text for event in events if event.type == "content_block_delta")
    return str(client.messages.create(**asked).content[0].text)


def google(call: Call) -> str:
    from google import genai
    from google.genai import types

    parts = [types.Part.from_text(text=call.prompt)]
    if call.image.startswith("data:"):
        parts.append(types.Part.from_bytes(data=_bytes(call), mime_type="image/png"))
    elif call.image:
        parts.append(types.Part.from_uri(file_uri=call.image, mime_type="image/png"))
    contents = [types.Content(role="user", parts=parts)]
    client = genai.Client()
    if call.stream:
        chunks = client.models.generate_content_stream(model=GEMINI, contents=contents)
        return "".join(chunk.text or "" for chunk in chunks)
    return str(client.models.generate_content(model=GEMINI, contents=contents).text)


def _converse(call: Call) -> Any:
    image = {"image": {"format": "png", "source": {"bytes": _bytes(call)}}} if call.image else None
    return [{"text": call.prompt}, *([image] if image else [])]


def bedrock(call: Call) -> str:
    import boto3

    client = boto3.client("bedrock-runtime")
    asked = {"modelId": BEDROCK, "messages": [{"role": "user", "content": _converse(call)}]}
    if call.stream:
        events = client.converse_stream(**asked)["stream"]
        deltas = [event["contentBlockDelta"]["delta"] for event in events if "contentBlockDelta" in event]
        return "".join(delta["text"] for delta in deltas)
    return str(client.converse(**asked)["output"]["message"]["content"][0]["text"])


def strands(call: Call) -> str:
    from strands import Agent
    from strands.models import BedrockModel

    agent = Agent(model=BedrockModel(model_id=BEDROCK), callback_handler=None)
    return str(agent(_converse(call))).strip()


def agent_framework(call: Call) -> str:
    from agent_framework import Agent, Content, Message
    from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient

    contents: list[Any] = [Content.from_text(call.prompt)]
    if call.image:
        contents.append(Content.from_uri(call.image, media_type="image/png"))
    client = (OpenAIChatCompletionClient if call.api == "chat" else OpenAIChatClient)(model=MODEL)
    agent = Agent(client=client)
    return str(asyncio.run(agent.run(Message(role="user", contents=contents))).text)


def semantic_kernel(call: Call) -> str:
    from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion, OpenAIChatPromptExecutionSettings
    from semantic_kernel.contents import ChatHistory, ChatMessageContent, ImageContent, TextContent

    items: list[Any] = [TextContent(text=call.prompt)]
    if call.image.startswith("data:"):
        items.append(ImageContent(data_uri=call.image))
    elif call.image:
        items.append(ImageContent(uri=call.image))
    history = ChatHistory(messages=[ChatMessageContent(role="user", items=items)])
    service = OpenAIChatCompletion(ai_model_id=MODEL)
    settings = OpenAIChatPromptExecutionSettings()

    async def ask() -> str:
        if not call.stream:
            return str(await service.get_chat_message_content(history, settings))
        chunks = service.get_streaming_chat_message_content(history, settings)
        return "".join([str(chunk) async for chunk in chunks])

    return asyncio.run(ask())
