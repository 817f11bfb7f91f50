"""The contract as documents, generated from the code: JSON Schema of every event, AsyncAPI, and OpenAPI.

`python -m tools.schema` rewrites them under `docs/schema`; a test fails when what is committed there
is not what the code says.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from tools.openapi import flowing

from groundwatch import __version__, events
from groundwatch.events import Event
from groundwatch.gateway.intake.submissions import Sent
from groundwatch.topology import (
    ANNOTATION,
    CHANNELS,
    COMMAND_LINE,
    CONSUMERS,
    GATEWAY,
    HEADER_MESSAGE_ID,
    HEADERS,
    IMAGES_BUCKET,
    OUTFLOW,
    STAGES,
    ChannelSpec,
    ConsumerSpec,
    stream,
)
from tools import openapi

FOLDER = Path("docs/schema")
EVENTS_FILE = "events.schema.json"
ASYNCAPI_FILE = "asyncapi.json"

ABOUT = (
    "Recorded answers of vision-language models become claims, verdicts and scores. Every channel is a "
    "family of NATS subjects kept by one JetStream stream, and every stage a durable pull consumer of it. "
    f"Images are in the object store `{IMAGES_BUCKET}`, by SHA-256 of their bytes."
)

PARAMETERS = {
    "tenant": "The tenant whose response it is; its users may publish on no other subject",
    "run": "The run: `live`, or the name of a replay",
    "stage": "The service that the event is on its way to, or that could not process it",
    "protocol": "The evaluation protocol",
    "step": "The round of a chain, from 1",
    "reviewer": "16 hex digits over the name of who gave the opinion",
    "key": "32 hex digits over tenant and id of the response; of a dead letter, over stream and sequence; "
    "of an alarm, over model, category and judges",
}
"""What the variable tokens of subjects mean."""

TENANTS = "tenant"
"""Who publishes what no service does: users of tenants, which `groundwatch admin auth --tenant` makes."""

CORRELATION = {
    "description": "Repeats of one event have the same id",
    "location": f"$message.header#/{HEADER_MESSAGE_ID}",
}


def event_types() -> tuple[type[Event], ...]:
    """Every event of `groundwatch.events`, in the order of the file."""
    return tuple(
        found
        for found in vars(events).values()
        if isinstance(found, type) and issubclass(found, Event) and found is not Event
    )


def events_schema() -> dict[str, Any]:
    """One JSON Schema document with every event under `$defs`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "groundwatch events",
        "description": "What travels between the services of groundwatch, as JSON. Unknown fields are "
        "ignored, absent ones have their defaults.",
        "$defs": _components("#/$defs/{name}", event_types()),
    }


def asyncapi() -> dict[str, Any]:
    """The AsyncAPI 3.0 document: channels, who sends and receives on them, and what."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "groundwatch",
            "version": __version__,
            "description": ABOUT,
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "servers": {
            "nats": {
                "host": "127.0.0.1:4222",
                "protocol": "nats",
                "description": "The setting `nats.url`; `groundwatch up` starts a server of its own.",
            }
        },
        "channels": {channel.name: _channel(channel) for channel in CHANNELS},
        "operations": dict(_operations()),
        "components": {
            "messages": {name: one for channel in CHANNELS for name, one in _messages(channel).items()},
            "schemas": _draft7(_components("#/components/schemas/{name}", (*event_types(), Sent))),
        },
    }


def documents() -> dict[str, bytes]:
    """Every document as the bytes of its file."""
    made = {EVENTS_FILE: events_schema(), ASYNCAPI_FILE: asyncapi(), openapi.FILE: openapi.document()}
    return {
        name: msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
        for name, document in made.items()
    }


def write(folder: Path = FOLDER) -> None:
    """Write them into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in documents().items():
        (folder / name).write_bytes(content)


def _components(template: str, types: tuple[type[msgspec.Struct], ...]) -> dict[str, Any]:
    _, found = msgspec.json.schema_components(types, ref_template=template)
    for schema in found.values():
        if "description" in schema:
            schema["description"] = flowing(schema["description"])
    order = [kind.__name__ for kind in types]
    return {name: found[name] for name in (*order, *sorted(set(found) - set(order)))}


def _draft7(schema: Any) -> Any:
    """The same schema in the older draft that AsyncAPI builds on, where tuples are written differently."""
    if isinstance(schema, list):
        return [_draft7(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    renamed = {"prefixItems": "items", "items": "additionalItems"} if "prefixItems" in schema else {}
    return {renamed.get(key, key): _draft7(value) for key, value in schema.items()}


def _channel(channel: ChannelSpec) -> dict[str, Any]:
    kept = stream(channel.stream)
    return {
        "address": channel.address,
        "title": channel.description,
        "servers": [{"$ref": "#/servers/nats"}],
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in _messages(channel)},
        "parameters": {
            name: {"description": PARAMETERS[name]} for name in re.findall(r"{(\w+)}", channel.address)
        },
        "x-stream": kept.name,
        "x-stream-subjects": list(kept.subjects),
    }


def _messages(channel: ChannelSpec) -> dict[str, dict[str, Any]]:
    """The channel's messages by name; headers belong to the channel, so no two channels share one."""
    shared: dict[str, Any] = {"headers": _headers(channel)}
    if HEADER_MESSAGE_ID in channel.headers:
        shared["correlationId"] = CORRELATION
    if not channel.events:
        return {
            f"{channel.name.capitalize()}Event": {
                "name": f"{channel.name.capitalize()}Event",
                "title": channel.description,
                "contentType": "application/octet-stream",
                **shared,
                "payload": {"description": "The bytes of the original event, decodable or not"},
            }
        }
    return {
        name: {
            "name": name,
            "title": flowing(getattr(events, name, Sent).__doc__ or "").partition("\n")[0],
            "contentType": "application/json",
            **shared,
            "payload": {"$ref": f"#/components/schemas/{name}"},
        }
        for name in channel.events
    }


def _headers(channel: ChannelSpec) -> dict[str, Any]:
    ours = [name for name in channel.headers if name.startswith("Gw-")]
    named = (*channel.headers, *channel.optional_headers)
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: {"type": "string", "description": HEADERS[name]} for name in named},
    }
    return schema | ({"required": ours} if ours else {})


def _operations() -> Iterator[tuple[str, dict[str, Any]]]:
    """What each service does on each channel, service by service; and tenants, on theirs."""
    for channel in CHANNELS:
        if not channel.publishers:
            yield f"{TENANTS}.send.{channel.name}", _operation(TENANTS, "send", channel, "Sends")
    for service in (GATEWAY, *STAGES, OUTFLOW, ANNOTATION, COMMAND_LINE):
        for channel in CHANNELS:
            for consumer in CONSUMERS:
                if consumer.service == service and _selects(consumer, channel):
                    yield f"{service}.receive.{channel.name}", _received(service, channel, consumer)
            if service in channel.readers:
                yield f"{service}.read.{channel.name}", _read(service, channel)
            if service in channel.publishers:
                yield f"{service}.send.{channel.name}", _operation(service, "send", channel, "Sends")


def _selects(consumer: ConsumerSpec, channel: ChannelSpec) -> bool:
    family = channel.address.partition("{")[0]
    return consumer.stream == channel.stream and any(one.startswith(family) for one in consumer.filters)


def _received(service: str, channel: ChannelSpec, consumer: ConsumerSpec) -> dict[str, Any]:
    binding = {
        "queue": consumer.name,
        "x-stream": consumer.stream,
        "x-durable-consumer": consumer.name,
        "x-filters": list(consumer.filters),
        "x-ack-wait-seconds": consumer.ack_wait,
    }
    operation = _operation(service, "receive", channel, "Receives")
    return operation | {"description": consumer.description, "bindings": {"nats": binding}}


def _read(service: str, channel: ChannelSpec) -> dict[str, Any]:
    operation = _operation(service, "receive", channel, "Reads")
    return operation | {"description": "Looks without a durable consumer: takes nothing away from anybody"}


def _operation(service: str, action: str, channel: ChannelSpec, verb: str) -> dict[str, Any]:
    return {
        "action": action,
        "title": f"{service}: {verb.lower()} {channel.name}",
        "channel": {"$ref": f"#/channels/{channel.name}"},
        "messages": [{"$ref": f"#/channels/{channel.name}/messages/{name}"} for name in _messages(channel)],
        "tags": [{"name": service}],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    write(parser.parse_args().folder)
