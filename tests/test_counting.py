"""What is counted of a text or a message before it is read."""

from __future__ import annotations

import json
import random

import pytest
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from groundwatch.counting import count_fields, has_more_values
from groundwatch.errors import InputError
from tests.gateway.otlp.made import said, span, traces

SPANS, SPAN = ExportTraceServiceRequest.DESCRIPTOR, Span.DESCRIPTOR


def test_values_are_counted_and_what_strings_hold_is_not():
    text = json.dumps({"a": [1, 2, {}], "b": "x,:[{" * 100, '"\\': '\\",[' * 50})
    assert not has_more_values(text, 10)
    assert has_more_values(text, 9)
    assert has_more_values(text.encode(), 9)


@pytest.mark.parametrize("seed", range(30))
def test_a_count_does_not_depend_on_where_pieces_end(seed):
    chance = random.Random(seed)
    texts = ["".join(chance.choices('\\"\\,:[{ab', k=chance.randrange(40_000))) for _ in range(12)]
    text = json.dumps(texts)
    commas = len(texts) - 1
    assert not has_more_values(text, commas + 1)
    assert has_more_values(text, commas)


def test_fields_and_items_of_a_message_are_counted():
    data = traces(span({}, name=""), span({}, name="")).SerializeToString()
    # A resource's spans, its scope, that one's name, two spans with trace, id and time each.
    fields, items = count_fields(data, SPANS, SPAN, 100)
    assert items == 2
    assert fields == 1 + 1 + 1 + 2 * 4
    assert count_fields(data, SPANS, SPAN, 5)[0] == 6


@pytest.mark.parametrize("seed", range(200))
def test_what_protobuf_reads_was_counted(seed):
    chance = random.Random(seed)
    data = bytearray(traces(span(said("a" * 20)), span(said("b" * 20))).SerializeToString())
    for _ in range(chance.randrange(1, 4)):
        data[chance.randrange(60)] = chance.randrange(256)
    try:
        read = ExportTraceServiceRequest.FromString(bytes(data))
        _, items = count_fields(bytes(data), SPANS, SPAN, 10_000)
    except (DecodeError, InputError):
        return
    assert items == sum(len(scope.spans) for one in read.resource_spans for scope in one.scope_spans)


@pytest.mark.parametrize(
    "data",
    [b"\x0a\x05\x12", b"\x0a" + b"\xff" * 11, b"\x80" * 1_000_000, b"\x0b\x0c", b"\x0a\x02\x12\x05aaaaa"],
    ids=["cut", "length", "tag", "group", "beyond"],
)
def test_damage_ends_in_a_line(data):
    with pytest.raises(InputError):
        count_fields(data, SPANS, SPAN, 1_000)
