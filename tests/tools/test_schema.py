"""The generated documents: current, well formed, and true of what really travels."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from faststream.specification.asyncapi.v3_0_0.schema import ApplicationSchema

from groundwatch import topology
from tools import openapi, schema

ROOT = Path(__file__).parents[2]
SAMPLES = Path(__file__).parents[1] / "data" / "events-v1.jsonl"

REFERENCE = {
    "type": "object",
    "required": ["$ref"],
    "properties": {"$ref": {"type": "string", "pattern": "^#/"}},
    "additionalProperties": False,
}
BINDINGS = {
    "type": "object",
    "properties": {
        "nats": {
            "type": "object",
            "properties": {"queue": {"type": "string", "maxLength": 255}, "bindingVersion": {}},
            "patternProperties": {"^x-": {}},
            "additionalProperties": False,
        }
    },
    "additionalProperties": False,
}
ASYNCAPI_3 = {
    "type": "object",
    "required": ["asyncapi", "info"],
    "additionalProperties": False,
    "properties": {
        "asyncapi": {"const": "3.0.0"},
        "defaultContentType": {"type": "string"},
        "info": {"type": "object", "required": ["title", "version"]},
        "servers": {
            "additionalProperties": {"type": "object", "required": ["host", "protocol"]},
        },
        "channels": {
            "additionalProperties": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "address": {"type": "string"},
                    "title": {"type": "string"},
                    "servers": {"type": "array", "items": REFERENCE, "uniqueItems": True},
                    "messages": {"additionalProperties": REFERENCE},
                    "parameters": {"additionalProperties": {"required": ["description"]}},
                },
                "patternProperties": {"^x-": {}},
            }
        },
        "operations": {
            "additionalProperties": {
                "type": "object",
                "required": ["action", "channel"],
                "additionalProperties": False,
                "properties": {
                    "action": {"enum": ["send", "receive"]},
                    "title": {"type": "string"},
                    "description": {"type": "string"},
                    "channel": REFERENCE,
                    "messages": {"type": "array", "items": REFERENCE},
                    "tags": {"items": {"required": ["name"]}},
                    "bindings": BINDINGS,
                },
            }
        },
        "components": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "messages": {
                    "additionalProperties": {
                        "type": "object",
                        "additionalProperties": False,
                        "properties": {
                            "name": {"type": "string"},
                            "title": {"type": "string"},
                            "contentType": {"type": "string"},
                            "headers": {"properties": {"type": {"const": "object"}}, "required": ["type"]},
                            "correlationId": {
                                "required": ["location"],
                                "properties": {
                                    "location": {"pattern": r"^\$message\.(header|payload)#(/[^/]+)*$"}
                                },
                            },
                            "payload": {"type": "object"},
                        },
                    }
                },
                "schemas": {"propertyNames": {"pattern": r"^[\w.-]+$"}},
            },
        },
    },
}
"""The part of AsyncAPI 3.0.0 that the document uses, closed, so that a misspelled key is found."""


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return schema.asyncapi()


def references(node: Any) -> Iterator[str]:
    """Every `$ref` below a node."""
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def resolve(document: dict[str, Any], reference: str) -> Any:
    """What a reference into the same document points at."""
    assert reference.startswith("#/")
    found: Any = document
    for token in reference[2:].split("/"):
        found = found[token.replace("~1", "/").replace("~0", "~")]
    return found


@pytest.mark.parametrize("name", [schema.EVENTS_FILE, schema.ASYNCAPI_FILE, openapi.FILE])
def test_committed_documents_are_what_the_code_generates(name):
    committed = (ROOT / schema.FOLDER / name).read_bytes()
    assert committed == schema.documents()[name], "run: python -m tools.schema"


def test_write_makes_both_files(tmp_path):
    schema.write(tmp_path / "deep" / "schema")
    written = {path.name: path.read_bytes() for path in (tmp_path / "deep" / "schema").iterdir()}
    assert written == schema.documents()


@pytest.mark.parametrize("make", [schema.events_schema, schema.asyncapi])
def test_all_references_resolve(make):
    document = make()
    found = set(references(document))
    assert found
    for reference in found:
        assert resolve(document, reference) is not None


def test_every_event_is_described():
    definitions = schema.events_schema()["$defs"]
    for event in schema.event_types():
        described = definitions[event.__name__]
        assert described["description"].startswith((event.__doc__ or "").split("\n")[0].split(". ")[0])
        assert "\n  " not in described["description"]
        assert set(described["properties"]) >= set(event.__struct_encode_fields__)


def test_recorded_events_meet_both_schemas(document):
    samples = [json.loads(line).popitem() for line in SAMPLES.read_text().splitlines()]
    whole, older = schema.events_schema(), {"components": document["components"]}
    checks = {
        name: (
            jsonschema.Draft202012Validator(whole | {"$ref": f"#/$defs/{name}"}),
            jsonschema.Draft7Validator(older | {"allOf": [{"$ref": f"#/components/schemas/{name}"}]}),
        )
        for name, _ in samples
    }
    wrong = [
        (name, error.message)
        for name, event in samples
        for check in checks[name]
        for error in check.iter_errors(event)
    ]
    assert wrong == []


def test_schema_refuses_what_the_decoder_refuses():
    whole = schema.events_schema()
    validator = jsonschema.Draft202012Validator(whole | {"$ref": "#/$defs/Reference"})
    assert validator.is_valid({"triplets": [["ball", "is", "red"]]})
    assert not validator.is_valid({"triplets": [["ball", "is"]]})
    assert not validator.is_valid({"triplets": [["ball", "is", "red", "today"]]})
    older = schema.asyncapi()["components"]["schemas"]["Reference"]["properties"]["triplets"]
    assert jsonschema.Draft7Validator(older).is_valid([["ball", "is", "red"]])
    assert not jsonschema.Draft7Validator(older).is_valid([["ball", "is"]])
    assert not jsonschema.Draft7Validator(older).is_valid([["ball", "is", "red", "today"]])


def test_asyncapi_has_the_structure_of_version_3(document):
    jsonschema.Draft202012Validator(ASYNCAPI_3).validate(document)
    # FastStream's model asks for a path on every server, which the specification does not.
    ApplicationSchema.model_validate({key: value for key, value in document.items() if key != "servers"})


def test_asyncapi_operations_use_messages_of_their_channel(document):
    for name, operation in document["operations"].items():
        channel = operation["channel"]["$ref"]
        assert operation["messages"], name
        for message in operation["messages"]:
            assert message["$ref"].startswith(f"{channel}/messages/"), name


def test_asyncapi_parameters_are_those_of_the_address(document):
    for channel in document["channels"].values():
        assert set(re.findall(r"{(\w+)}", channel["address"])) == set(channel["parameters"])


def test_every_stream_and_consumer_is_bound(document):
    channels, operations = document["channels"].values(), document["operations"].values()
    assert {one["x-stream"] for one in channels} == {one.name for one in topology.STREAMS}
    bound = {one["bindings"]["nats"]["queue"] for one in operations if "bindings" in one}
    assert bound == {one.name for one in topology.CONSUMERS}


def test_every_channel_is_sent_to_and_read(document):
    for name in document["channels"]:
        actions = {
            operation["action"]
            for operation in document["operations"].values()
            if operation["channel"]["$ref"] == f"#/channels/{name}"
        }
        assert actions == {"send", "receive"}, name
