"""Sending a file of recorded responses to a gateway, with its images, patiently."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec

from groundwatch.addresses import shown_address
from groundwatch.client.files import AnswerFile, Record
from groundwatch.client.files.calls import Told, WithoutImage
from groundwatch.errors import UNDECODED, InputError, UsageError
from groundwatch.events import ResponseRecorded
from groundwatch.image_files import ImageFolders
from groundwatch.records import Refusal

BATCH = 250

MAX_IMAGE_BYTES = 10 * 1024 * 1024
TOKEN_VARIABLE = "GROUNDWATCH_TOKEN"
PATIENCE = 60.0
"""Seconds to keep trying while the gateway says that it is full."""

_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_URL = re.compile(r"data:|[a-z][a-z0-9+.-]{1,20}://", re.IGNORECASE)
_ENCODER = msgspec.json.Encoder()


class LineError(msgspec.Struct, kw_only=True):
    line: int
    id: str = ""
    field: str = ""
    error: str = ""


class Sent(msgspec.Struct, kw_only=True):
    accepted: int = 0
    duplicates: int = 0
    refused: int = 0
    errors: list[LineError] = []


class Sender:
    """Sends one file in batches. Lines go as they are; what is wrong with one, the gateway says."""

    def __init__(
        self,
        gateway: str,
        path: Path,
        *,
        model: str = "",
        tenant: str = "",
        images: Sequence[Path] = (),
        max_image_bytes: int = MAX_IMAGE_BYTES,
        published: Sequence[ResponseRecorded] | None = None,
        without_image: WithoutImage = "decline",
    ) -> None:
        """`published` and `without_image` are those of `AnswerFile`."""
        self._file = AnswerFile(
            path, model=model, tenant=tenant, published=published, without_image=without_image
        )
        self._images = ImageFolders([self._file.path.parent, *images], max_bytes=max_image_bytes)
        self._max_image_bytes = max_image_bytes
        self._shown = shown_address(gateway)
        self.total = self._file.count()
        self.result = Sent(errors=[])
        try:
            self._http = httpx.AsyncClient(
                base_url=gateway, timeout=httpx.Timeout(120.0, connect=5.0), headers=_who_asks()
            )
        except httpx.InvalidURL as error:
            raise UsageError(f"{shown_address(gateway)} is not an address") from error
        self._uploaded: dict[Path, str] = {}
        self._stored: set[str] = set()
        self._met = False

    async def __aenter__(self) -> Sender:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    @property
    def told(self) -> Told:
        """What was not in the file, once it was sent."""
        return self._file.told

    async def send(self) -> AsyncIterator[int]:
        batch: list[tuple[int, bytes]] = []
        done = 0
        for number, record in self._file:
            ready = await self._prepared(number, record)
            done += 1
            if isinstance(ready, LineError):
                self.result.refused += 1
                self.result.errors.append(ready)
            else:
                batch.append((number, ready))
            if len(batch) == BATCH:
                await self._post(batch)
                batch = []
                yield done
        if batch:
            await self._post(batch)
        yield done

    async def _prepared(self, number: int, record: Record) -> bytes | LineError:
        """The line of a record, once the images that it names by file or holds are uploaded."""
        if isinstance(record, Refusal):
            return LineError(line=number, id=record.id, field=record.field, error=record.message)
        if isinstance(record, bytes):
            if b'"images"' not in record:
                return record
            try:
                values = msgspec.json.decode(record)
            except UNDECODED:
                return record
            if not isinstance(values, dict):
                return record
            record = values
        name = str(record.get("id", ""))[:256]
        given = record.get("images")
        images: list[Any] = given if isinstance(given, list) else []
        for index, image in enumerate(images):
            try:
                if isinstance(image, bytes):
                    images[index] = await self._upload(image, f"the image of {len(image)} bytes")
                elif _names_file(image):
                    images[index] = await self._upload_file(image)
            except InputError as error:
                return LineError(line=number, id=name, field=f"images[{index}]", error=str(error))
        return _ENCODER.encode(record)

    async def _upload_file(self, name: str) -> str:
        """Raises `InputError` when it cannot be read or the gateway does not take it."""
        path = self._images.find(name)
        if path not in self._uploaded:
            try:
                data = await asyncio.to_thread(self._images.read, name)
            except FileNotFoundError as error:
                raise InputError(f"{name[:300]} cannot be read ({error.strerror})") from error
            self._uploaded[path] = await self._upload(data, name)
        return self._uploaded[path]

    async def _upload(self, data: bytes, name: str) -> str:
        if len(data) > self._max_image_bytes:
            raise InputError(f"{name} is larger than {self._max_image_bytes} bytes")
        digest = hashlib.sha256(data).hexdigest()
        if digest not in self._stored:
            reply = await self._request("/v1/images", data, "application/octet-stream")
            if reply.status_code >= 400:
                raise InputError(f"{name}: {_told(reply)}")
            self._stored.add(digest)
        return digest

    async def _post(self, batch: list[tuple[int, bytes]]) -> None:
        body = b"\n".join(line for _, line in batch) + b"\n"
        reply = await self._request("/v1/responses", body, "application/x-ndjson")
        if reply.status_code != 200:
            raise UsageError(f"{self._shown} answered {reply.status_code}: {reply.text[:300]}")
        told: dict[str, Any] = reply.json()
        self.result.accepted += told["accepted"]
        self.result.duplicates += told["duplicates"]
        self.result.refused += told["refused"]
        for problem in msgspec.convert(told["errors"], list[LineError]):
            problem.line = batch[problem.line - 1][0]
            self.result.errors.append(problem)

    async def _request(self, path: str, body: bytes, media_type: str) -> httpx.Response:
        """Post, waiting while the gateway is full or restarting. Sending twice is safe: ids are."""
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while True:
            try:
                reply = await self._http.post(path, content=body, headers={"content-type": media_type})
                self._met = True
                if reply.status_code == 401:
                    raise UsageError(
                        f"the gateway at {self._shown} does not let this command in: {_told(reply)}; "
                        f"set {TOKEN_VARIABLE} to a token of its gateway.tokens_file"
                    )
                if reply.status_code != 503:
                    return reply
                wait = float(reply.headers.get("retry-after", "1"))
                why = reply.text
            except httpx.TransportError as error:
                if not self._met:
                    raise UsageError(f"no gateway answers at {self._shown} ({error})") from error
                wait, why = 1.0, repr(error)
            if asyncio.get_running_loop().time() > deadline:
                raise UsageError(f"the gateway at {self._shown} does not take anything: {why[:300]}")
            await asyncio.sleep(wait)


def _who_asks() -> dict[str, str]:
    """The headers that say to a gateway who this is: the token of `GROUNDWATCH_TOKEN`, where there is one."""
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not token:
        return {}
    if not (token.isascii() and token.isprintable()):
        raise UsageError(f"{TOKEN_VARIABLE} holds what no token can: letters, digits and signs of one line")
    return {"Authorization": f"Bearer {token}"}


def _told(reply: httpx.Response) -> str:
    """What an error reply says; a proxy in between may not speak JSON."""
    try:
        return str(reply.json()["error"])
    except (ValueError, KeyError, TypeError):
        return f"{reply.status_code}: {reply.text[:300]}"


def _names_file(image: object) -> bool:
    return isinstance(image, str) and not _DIGEST.match(image) and not _URL.match(image)
