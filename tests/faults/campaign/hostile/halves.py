"""Halves of logged calls that nobody sends who means well: spans, log records, CloudEvents, from a seed."""

from __future__ import annotations

import gzip
import json
import random
from typing import Any

from tests.faults.campaign.hostile import texts
from tests.gateway.otlp.made import PROTOBUF, logs, record, said, span, traces

SETTINGS = {
    "GROUNDWATCH_GATEWAY__LOGGED_CALLS__JOIN_WAIT": "0.5",
    "GROUNDWATCH_GATEWAY__LOGGED_CALLS__JOIN_TIMEOUT": "5",
    "GROUNDWATCH_GATEWAY__CLOUD_EVENTS__WAIT": "5",
}
CALLS = 12
"""So few that hostile halves meet good ones."""

MANY = 400_000


def request(chance: random.Random) -> tuple[str, dict[str, str], bytes]:
    """Path, headers and body of a request of OTLP."""
    ids = {"trace_id": bytes([chance.randrange(CALLS)]) * chance.choice((16, 16, 16, 16, 0, 3, 400))}
    if chance.random() < 0.4:
        attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
        if chance.random() < 0.3:
            attributes |= said(_name(chance), answer=_name(chance))
        for _ in range(chance.randrange(3)):
            attributes[chance.choice(list(attributes))] = _content(chance)
        path, body = "/v1/traces", traces(span(attributes, **ids)).SerializeToString()
    else:
        names = ("gen_ai.user.message", "gen_ai.choice", "gen_ai.client.inference.operation.details")
        records = [
            record(chance.choice(names), _content(chance), **ids) for _ in range(chance.choice((1, 2, 6)))
        ]
        path, body = "/v1/logs", logs(*records).SerializeToString()
    headers = dict(PROTOBUF)
    if chance.random() < 0.5:
        body = gzip.compress(body, 1)
        headers["content-encoding"] = "gzip"
    return path, headers, texts.spoiled(chance, body) if chance.random() < 0.2 else body


def event(chance: random.Random) -> tuple[dict[str, str], bytes]:
    """Headers and body of an event as KServe's logger sends it."""
    asked = {"model": "m", "messages": [{"role": "user", "content": _content(chance)}]}
    message = {"role": "assistant", "content": _content(chance)}
    answered = {"id": "x", "model": "m", "choices": [{"index": 0, "message": message}]}
    stream = b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n' * chance.choice((1, 1_000, 40_000))
    side = chance.choice(("request", "response"))
    plain = json.dumps(asked if side == "request" else answered, default=repr).encode("utf-8", "replace")
    body = chance.choice((plain, plain, stream, b"\n" * 1_000_000, _json(chance).encode()))
    headers = {
        "ce-specversion": "1.0",
        "ce-id": f"hostile {chance.randrange(CALLS)}",
        "ce-type": f"org.kubeflow.serving.inference.{side}",
        "content-type": "application/json",
    }
    return headers, texts.spoiled(chance, body) if chance.random() < 0.2 else body


def _content(chance: random.Random) -> Any:
    """What stands where messages are expected."""
    return chance.choice(
        (
            "A dog.",
            {"content": "A dog."},
            {"index": 0, "message": {"role": "assistant", "content": "A dog."}},
            {"index": 2**40, "message": [{"role": 7, "content": [{"type": "image_url", "image_url": 1}]}]},
            _json(chance),
            _tree(chance),
        )
    )


def _json(chance: random.Random) -> str:
    """A text that is JSON, or nearly."""
    return chance.choice(
        (
            "[" + "{}," * chance.choice((10, MANY)) + "{}]",
            "[" * 5_000,
            '{"index": 1234567890123456789012, "message": {"role": "assistant", "content": "\\ud800"}}',
            "1\n" * MANY,
            '{"messages": [' + "[]," * MANY + "1]}",
            json.dumps([{"role": "user", "content": "x" * 100_000}] * 3),
            '{"role": "user", "parts": [' + '{"type": "text"},' * 20_000 + "{}]}",
        )
    )


def _tree(chance: random.Random) -> Any:
    """Protobuf has no numbers as large as those of `texts`."""
    return json.loads(json.dumps(texts.tree(chance)), parse_int=float)


def _name(chance: random.Random) -> str:
    return texts.name(chance).encode("utf-8", "replace").decode()
