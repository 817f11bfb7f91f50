"""Removing what was found: single messages so that the server overwrites their bytes, and from export files.

A purge leaves a message's bytes in the server's block files until the server happens to compact the block;
the deletion of a single message overwrites them at once (nats-server 2.15.1, seen in its files). So messages
are deleted one by one, many at a time.
"""

import asyncio
from collections.abc import Container, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import nats.js.errors
from nats.js import JetStreamContext

from groundwatch.erasure.finding import Subject, images_in, tenant_of
from groundwatch.events import ResponseRecorded
from groundwatch.replay.files import ExportReader, ExportWriter, Manifest, Record, replacing
from groundwatch.runtime.delivery.streams import read_stream
from groundwatch.runtime.stores.cache import keys_of, scope_of
from groundwatch.runtime.stores.images import IMAGES_STREAM, image_subject
from groundwatch.topology import CACHE_BUCKET, IMAGES_BUCKET

AT_ONCE = 64

CACHE_STREAM = f"KV_{CACHE_BUCKET}"


async def overwrite(js: JetStreamContext, stream: str, sequences: Iterable[int]) -> int:
    """Delete messages with their bytes; how many were there. Raises what NATS raises."""
    rest, removed = iter(sequences), 0
    while several := list(islice(rest, AT_ONCE)):
        removed += sum(await asyncio.gather(*(_overwrite(js, stream, one) for one in several)))
    return removed


async def _overwrite(js: JetStreamContext, stream: str, sequence: int) -> bool:
    try:
        return bool(await js.delete_msg(stream, sequence))
    except nats.js.errors.NotFoundError:
        return False
    except nats.js.errors.APIError as error:
        # "no message found": somebody else came first, or its age did.
        if error.err_code in (10037, 10043, 10057) or "no message found" in str(error.description):
            return False
        raise


async def remove_image(js: JetStreamContext, sha256: str) -> int:
    """Remove an image with all its pieces; how many messages that were, 0 where it is not stored."""
    removed = 0
    # Whoever uses the image at this moment may have written anew what says where the pieces are.
    while sequences := await _of_image(js, sha256):
        # That goes last: a crash in between is mended by another erasure.
        now = await overwrite(js, IMAGES_STREAM, sorted(sequences, reverse=True))
        removed += now
        if not now:
            break
    return removed


async def _of_image(js: JetStreamContext, sha256: str) -> list[int]:
    sequences = await _on(js, IMAGES_STREAM, image_subject(sha256))
    for sequence in list(sequences):
        said = (await js.get_msg(IMAGES_STREAM, sequence)).data or b"{}"
        info: dict[str, Any] = msgspec.json.decode(said)
        if nuid := info.get("nuid"):
            sequences += await _on(js, IMAGES_STREAM, f"$O.{IMAGES_BUCKET}.C.{nuid}")
    return sequences


async def image_bytes(js: JetStreamContext, sha256: str) -> bytes:
    """The bytes of a stored image; none where it is not stored."""
    try:
        return (await (await js.object_store(IMAGES_BUCKET)).get(sha256)).data or b""
    except nats.js.errors.NotFoundError:
        return b""


async def _on(js: JetStreamContext, stream: str, subject: str) -> list[int]:
    """The sequences of all messages on a subject."""
    found, after = list[int](), 1
    while True:
        try:
            message = await js.get_msg(stream, after, subject=subject, next=True)
        except nats.js.errors.NotFoundError:
            return found
        assert message.seq is not None
        found.append(message.seq)
        after = message.seq + 1


def cache_tokens(responses: Iterable[ResponseRecorded], tenant: str = "") -> set[str]:
    """The tokens in keys of what the cache keeps of these responses, or of a whole tenant."""
    return {keys_of(one).split(".")[1] for one in responses} | ({scope_of(tenant)} if tenant else set())


async def forget_judgements(js: JetStreamContext, wanted: Container[str]) -> int:
    """Remove what the cache keeps under these tokens."""
    found = []
    try:
        async for read in read_stream(
            js, CACHE_STREAM, subjects=(f"$KV.{CACHE_BUCKET}.>",), headers_only=True
        ):
            tokens = read.subject.split(".")[2:]
            if len(tokens) > 1 and (tokens[0] in wanted or tokens[1] in wanted):
                found.append(read.sequence)
    except nats.js.errors.NotFoundError:
        return 0
    return await overwrite(js, CACHE_STREAM, found)


async def empty_cache(js: JetStreamContext) -> None:
    """Drop the whole cache with its files: bytes of entries that age or room had removed go only so."""
    state = (await js.stream_info(CACHE_STREAM)).state
    await js.purge_stream(CACHE_STREAM, seq=state.last_seq + 1)


def rewrite_export(path: Path, subject: Subject) -> tuple[int, int]:
    """Write an export file anew without the subject's events and images; how many of each were in it.

    Raises `UsageError` for a file that is none of ours or cannot be written; it is then as it was.
    """

    def unwanted(record: Record) -> bool:
        if subject.kind == "response":
            return subject.key in record.subject.split(".")
        return subject.kind == "tenant" and tenant_of(record.data) == subject.tenant

    gone, kept, mine = 0, set[str](), set[str]()
    for _, part in ExportReader(path).parts():
        for record in part if isinstance(part, list) else ():
            if unwanted(record):
                gone += 1
                mine |= images_in(record.data)
            else:
                kept |= images_in(record.data)
    without = {subject.image} if subject.kind == "image" else mine - kept
    present = {part[0] for _, part in ExportReader(path).parts() if isinstance(part, tuple)}
    removed = len(without & present)
    if not gone and not removed:
        return 0, 0
    with replacing(path) as out:
        writer = ExportWriter(out)
        for _, part in ExportReader(path).parts():
            match part:
                case list():
                    for record in part:
                        if not unwanted(record):
                            writer.event(record)
                case Manifest():
                    writer.end(
                        msgspec.structs.replace(part, events=part.events - gone, images=part.images - removed)
                    )
                case sha256, data:
                    if sha256 not in without:
                        writer.image(sha256, data)
    return gone, removed
