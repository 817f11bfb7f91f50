"""What `nats account backup` and `nats account restore` do, by the same calls of the server's API."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import nats
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

PIECE = 128 * 1024
API = "$JS.API.STREAM"
SECONDS = 60.0


async def back_up(url: str, folder: Path, *, streams: Sequence[str] = (), consumers: bool = True) -> None:
    """Write a snapshot of these streams of a running server, or of all, one after the other."""
    client = await nats.connect(url)
    try:
        names = streams or (await client.jetstream()._api_request(f"{API}.NAMES"))["streams"] or []
        for name in names:
            place = folder / name
            place.mkdir(parents=True)
            told, data = await _snapshot(client, name, consumers)
            (place / "backup.json").write_bytes(msgspec.json.encode(told))
            (place / "stream.tar.s2").write_bytes(data)
    finally:
        await client.close()


async def restore(url: str, folder: Path, *, replicas: int = 0, without: tuple[str, ...] = ()) -> None:
    """Bring every stream of a backup back to a server that has none of the name.

    With `replicas` on so many servers; `without` these metadata, as of a version that knew none.
    """
    client = await nats.connect(url)
    try:
        for place in sorted(folder.iterdir()):  # noqa: ASYNC240
            told = msgspec.json.decode((place / "backup.json").read_bytes())
            if replicas:
                told["config"]["num_replicas"] = replicas
            for name in without:
                told["config"].get("metadata", {}).pop(name, None)
            await _restore(client, place.name, told, (place / "stream.tar.s2").read_bytes())
    finally:
        await client.close()


async def _snapshot(client: Client, name: str, consumers: bool) -> tuple[dict[str, Any], bytes]:
    pieces: list[bytes] = []
    ended = asyncio.Event()

    async def take(message: Msg) -> None:
        if not message.data:
            ended.set()
            return
        pieces.append(message.data)
        if message.reply:
            await client.publish(message.reply)

    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox, cb=take)
    wanted = {"deliver_subject": inbox, "chunk_size": PIECE, "no_consumers": not consumers}
    told = await _request(client, f"{API}.SNAPSHOT.{name}", wanted)
    await asyncio.wait_for(ended.wait(), SECONDS)
    await subscription.unsubscribe()
    return {"config": told["config"], "state": told["state"]}, b"".join(pieces)


async def _restore(client: Client, name: str, told: dict[str, Any], data: bytes) -> None:
    begun = await _request(client, f"{API}.RESTORE.{name}", told)
    for start in range(0, len(data), PIECE):
        answer = await _asked(client, begun["deliver_subject"], data[start : start + PIECE])
        assert not answer.data, answer.data
    await _request(client, begun["deliver_subject"], None)


async def _request(client: Client, subject: str, wanted: object) -> dict[str, Any]:
    body = msgspec.json.encode(wanted) if wanted is not None else b""
    answer: dict[str, Any] = msgspec.json.decode((await _asked(client, subject, body)).data)
    assert "error" not in answer, answer
    return answer


async def _asked(client: Client, subject: str, body: bytes) -> Msg:
    """In a cluster another server may listen, of which ours has yet to hear."""
    async with asyncio.timeout(SECONDS):
        while True:
            with contextlib.suppress(nats.errors.NoRespondersError):
                return await client.request(subject, body, timeout=SECONDS)
            await asyncio.sleep(0.05)
