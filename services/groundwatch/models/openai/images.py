"""An image generator and an image encoder behind OpenAI-compatible endpoints.

Images come as base64 in the reply. One that is told by its address is not fetched: a reply does not choose
what we read.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping

import msgspec

from groundwatch.errors import Unscorable
from groundwatch.events import Usage
from groundwatch.models.asking.retry_policy import CallKind
from groundwatch.models.openai.endpoint import Endpoint, Image, said_by_user
from groundwatch.models.openai.settings import ChatSettings, OnCall
from groundwatch.models.replies import encodable


class Drawn(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes of an image, unchecked."""

    data: bytes
    usage: Usage


class _Datum(msgspec.Struct):
    b64_json: str | None = None
    url: str | None = None


class _Tokens(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None


class _Images(msgspec.Struct):
    data: list[_Datum]
    usage: _Tokens | None = None


class _Vector(msgspec.Struct):
    embedding: list[float]


class _Vectors(msgspec.Struct):
    data: list[_Vector]


class ImagesModel:
    """An image generator behind `/images/generations`; one for each endpoint and loop."""

    def __init__(
        self,
        settings: ChatSettings,
        *,
        size: str = "",
        on_call: OnCall | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`size` such as 512x512; empty leaves it to the server."""
        self._settings = settings
        self._size = size
        self._endpoint = Endpoint(settings, on_call=on_call, environment=environment)

    @property
    def model(self) -> str:
        """The model's name, as scores carry it, with the size that it is asked for."""
        return f"{self._settings.model}/{self._size}" if self._size else self._settings.model

    async def draw(self, prompt: str) -> Drawn:
        """The image of a prompt.

        Raises `Unscorable` (refused, empty_reply, judge_rejected_request), `RateLimited` with the wait asked
        for, or `TransientError`, also for a reply that holds no image.
        """
        body = {
            "model": self._settings.model,
            "prompt": encodable(prompt),
            "n": 1,
            "response_format": "b64_json",
            "size": self._size,
        }
        body = {name: value for name, value in body.items() if value and name not in self._settings.omit}
        endpoint = self._endpoint
        drawn, seconds = await endpoint.post(
            "/images/generations", body, self._read, endpoint.patience(), "image"
        )
        if not drawn.data:
            endpoint.tell(CallKind.EMPTY_REPLY, seconds, drawn.usage)
            raise Unscorable(CallKind.EMPTY_REPLY, "no image")
        endpoint.tell(CallKind.OK, seconds, drawn.usage)
        return drawn

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoint.close()

    def _read(self, body: bytes) -> Drawn:
        try:
            read = msgspec.convert(json.loads(body), _Images)
        except (msgspec.ValidationError, RecursionError) as error:
            raise ValueError(str(error)) from error
        tokens = read.usage or _Tokens()
        asked, told = max(0, tokens.input_tokens or 0), max(0, tokens.output_tokens or 0)
        cost = (asked * self._settings.input_price + told * self._settings.output_price) / 1_000_000
        usage = Usage(calls=1, input_tokens=asked, output_tokens=told, cost=cost)
        found = read.data[0] if read.data else _Datum()
        if found.url and not found.b64_json:
            raise ValueError("an address in place of the image: set it to answer b64_json")
        try:
            data = base64.b64decode(found.b64_json or "", validate=True)
        except binascii.Error as error:
            raise ValueError(f"the image is not base64: {error}") from error
        return Drawn(data=data, usage=usage)


class ImageVectors:
    """An image encoder behind `/embeddings`, asked as vLLM serves CLIP and SigLIP: an image as a message."""

    def __init__(
        self,
        settings: ChatSettings,
        *,
        on_call: OnCall | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._settings = settings
        self._endpoint = Endpoint(settings, on_call=on_call, environment=environment)

    @property
    def model(self) -> str:
        """The model's name, as scores carry it."""
        return self._settings.model

    async def encode(self, image: Image) -> list[float]:
        """The image's vector.

        Raises `Unscorable` (judge_rejected_request), `RateLimited` with the wait asked for, or
        `TransientError`, also for a reply that holds no vector.
        """
        content = said_by_user("", [image])["content"]
        assert isinstance(content, list)
        body = {
            "model": self._settings.model,
            "messages": [{"role": "user", "content": content[:1]}],
            "encoding_format": "float",
        }
        endpoint = self._endpoint
        vector, seconds = await endpoint.post("/embeddings", body, _vector, endpoint.patience(), "vector")
        endpoint.tell(CallKind.OK, seconds, Usage(calls=1))
        return vector

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoint.close()


def _vector(body: bytes) -> list[float]:
    try:
        read = msgspec.convert(json.loads(body), _Vectors)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ValueError(str(error)) from error
    if len(read.data) != 1 or not read.data[0].embedding:
        raise ValueError("expected one vector")
    return read.data[0].embedding
