"""An image generator and an image encoder behind OpenAI-compatible endpoints.

Images come as base64 in the reply. One that is told by its address is not fetched: a reply does not choose
what we read.
"""

import base64
import binascii

import msgspec

from groundwatch.errors import Unscorable
from groundwatch.events import Usage
from groundwatch.models.asking.retry_policy import CallKind
from groundwatch.models.openai.answers import decoded, usage_of
from groundwatch.models.openai.endpoint import Endpoint, Image, user_message
from groundwatch.models.openai.settings import ChatSettings, OnCall
from groundwatch.models.replies import encodable


class Drawn(msgspec.Struct, frozen=True):
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


class ImagesModel(Endpoint):
    """An image generator behind `/images/generations`."""

    def __init__(self, settings: ChatSettings, *, size: str = "", on_call: OnCall | None = None) -> None:
        """`size` such as 512x512; empty leaves it to the server."""
        super().__init__(settings, on_call=on_call)
        self._size = size

    @property
    def model(self) -> str:
        """The model's name, as scores carry it, with the size that it is asked for."""
        return f"{self.settings.model}/{self._size}" if self._size else self.settings.model

    async def draw(self, prompt: str) -> Drawn:
        body = {
            "model": self.settings.model,
            "prompt": encodable(prompt),
            "n": 1,
            "response_format": "b64_json",
            "size": self._size,
        }
        (data, usage), seconds = await self._post("/images/generations", body, self._read, "image")

        def check() -> bytes:
            if not data:
                raise Unscorable(CallKind.EMPTY_REPLY, "no image")
            return data

        return Drawn(self._checked(check, seconds, usage), usage)

    def _read(self, body: bytes) -> tuple[bytes, Usage]:
        read = decoded(body, _Images)
        tokens = read.usage or _Tokens()
        found = read.data[0] if read.data else _Datum()
        if found.url and not found.b64_json:
            raise ValueError("an address in place of the image: set it to answer b64_json")
        try:
            data = base64.b64decode(found.b64_json or "", validate=True)
        except binascii.Error as error:
            raise ValueError(f"the image is not base64: {error}") from error
        return data, usage_of(tokens.input_tokens, tokens.output_tokens, self.settings)


class ImageVectors(Endpoint):
    """An image encoder behind `/embeddings`, asked as vLLM serves CLIP and SigLIP: an image as a message."""

    async def encode(self, image: Image) -> list[float]:
        content = user_message("", [image])["content"]
        assert isinstance(content, list)
        body = {
            "model": self.settings.model,
            "messages": [{"role": "user", "content": content[:1]}],
            "encoding_format": "float",
        }
        (vector, usage), seconds = await self._post("/embeddings", body, _vector, "vector")
        return self._checked(lambda: vector, seconds, usage)


def _vector(body: bytes) -> tuple[list[float], Usage]:
    read = decoded(body, _Vectors)
    if len(read.data) != 1 or not read.data[0].embedding:
        raise ValueError("expected one vector")
    return read.data[0].embedding, Usage(calls=1)
