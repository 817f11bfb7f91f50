"""Events survive the wire, and change only by the rules of evolution."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Union

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.events import (
    Box,
    ClaimsMatched,
    ClaimsVerified,
    Event,
    Judge,
    Reference,
    ResponseRecorded,
    ResponseScored,
    Usage,
)
from groundwatch.keys import digest, response_key
from tools import schema

SAMPLES = [
    msgspec.json.decode(line, type=dict[str, msgspec.Raw]).popitem()
    for line in (Path(__file__).parent / "data" / "events-v1.jsonl").read_bytes().splitlines()
]
"""Events as version 1 wrote them, one of each or more: never edited, only added to."""

EVENTS = {event.__name__: event for event in schema.event_types()}
each_event = pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS.keys())

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
st.register_type_strategy(str, text)
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))
st.register_type_strategy(int, st.integers(-(2**63), 2**63 - 1))


share = st.floats(0, 1)
edges = st.lists(share, min_size=2, max_size=2, unique=True).map(sorted)
BOXES = st.builds(
    lambda across, down, **rest: Box(x0=across[0], x1=across[1], y0=down[0], y1=down[1], **rest),
    across=edges,
    down=edges,
    score=share,
    label=text,
    image=st.integers(0, 20),
)


def events_of(event: type[Event]) -> st.SearchStrategy[Any]:
    """Events with all fields, or only some of those that have defaults."""
    if event is Box:
        return BOXES
    required, optional = {}, {}
    for field in msgspec.structs.fields(event):
        strategy = _strategy(field.type)
        (required if field.required else optional)[field.name] = strategy
    return st.fixed_dictionaries(required, optional=optional).map(lambda given: event(**given))


def _strategy(kind: Any) -> st.SearchStrategy[Any]:
    if isinstance(kind, type) and issubclass(kind, Event):
        return events_of(kind)
    arguments = getattr(kind, "__args__", ())
    origin = getattr(kind, "__origin__", None)
    bounds = [one for one in getattr(kind, "__metadata__", ()) if isinstance(one, msgspec.Meta)]
    if origin is int and bounds:
        return st.integers(bounds[0].ge, bounds[0].le)
    if origin is float and bounds:
        return st.floats(bounds[0].ge, bounds[0].le)
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(_strategy(arguments[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(_strategy, arguments))
    if origin is dict:
        return st.dictionaries(text, _strategy(arguments[1]), max_size=2)
    if origin in (None, Union) and arguments:
        return st.one_of(*map(_strategy, arguments))
    return st.from_type(kind)


@each_event
@given(data=st.data())
def test_round_trip(event, data):
    made = data.draw(events_of(event))
    assert msgspec.json.decode(msgspec.json.encode(made), type=event) == made


@given(st.one_of(events_of(ClaimsVerified), events_of(ClaimsMatched)))
def test_judged_events_are_told_apart_by_their_tag(made):
    assert msgspec.json.decode(msgspec.json.encode(made), type=ClaimsVerified | ClaimsMatched) == made


@each_event
def test_optional_fields_have_defaults_and_are_left_out(event):
    required = {"id": "r", "model": "m", "answer": "", "text": "", "category": "", "engine": "rules"}
    required |= {"holds": True, "start": 0, "end": 0, "label": "descriptive", "decision": "refuted"}
    required |= {"kind": "reasoning", "x0": 0.1, "y0": 0.2, "x1": 0.3, "y1": 0.4, "score": 0.9}
    required |= {"unit": 0, "claim": 0, "reference": "dog", "protocol": "p", "outcome": "declined"}
    required |= {
        "reason": "refused",
        "description": "",
        "reviewer": "ada",
        "queue": "q",
        "key": "k",
        "length": 3,
        "base": 0.1,
        "after": 0.2,
    }
    required |= {"judge": {"engine": "rules"}, "response": {"id": "r", "model": "m", "answer": ""}}
    required |= {"extracted": {"response": required["response"], "protocol": "p", "judge": required["judge"]}}
    least = {field.name: required[field.name] for field in msgspec.structs.fields(event) if field.required}
    if event.__struct_config__.tag:
        least["kind"] = event.__struct_config__.tag
    made = msgspec.convert(least, event)
    assert msgspec.to_builtins(made) == least


def test_recorded_samples_still_decode_and_lose_nothing():
    again = [
        (name, msgspec.json.encode(msgspec.json.decode(raw, type=EVENTS[name]))) for name, raw in SAMPLES
    ]
    assert [(name, msgspec.json.decode(raw)) for name, raw in again] == [
        (name, msgspec.json.decode(raw)) for name, raw in SAMPLES
    ]


def test_fields_of_later_versions_are_ignored():
    later = {"field_of_version_9": {"deep": [1, 2]}}
    newer = [(name, msgspec.json.encode(msgspec.json.decode(raw) | later)) for name, raw in SAMPLES]
    assert [msgspec.json.decode(raw, type=EVENTS[name]) for name, raw in newer] == [
        msgspec.json.decode(raw, type=EVENTS[name]) for name, raw in SAMPLES
    ]


def test_samples_cover_every_event_and_every_field():
    seen: dict[str, set[str]] = {}
    for name, raw in SAMPLES:
        seen.setdefault(name, set()).update(msgspec.json.decode(raw))
    unseen = {
        name: missing
        for name, event in EVENTS.items()
        if (missing := set(event.__struct_encode_fields__) - {"run"} - seen.get(name, set()))
    }
    assert unseen == {}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (b'{"id":1,"model":"m","answer":""}', r"Expected `str`, got `int` - at `\$.id`"),
        (b'{"id":"r","model":"m"}', "missing required field `answer`"),
        (b"\xff\xfe", "invalid"),
    ],
)
def test_decoding_says_what_is_wrong(wrong, message):
    with pytest.raises(msgspec.DecodeError, match=message):
        msgspec.json.decode(wrong, type=ResponseRecorded)


@pytest.mark.parametrize(
    "wrong",
    [
        {"x0": -0.01},
        {"x1": 1.01},
        {"x0": 0.3},
        {"y0": 0.5},
        {"y1": float("nan")},
        {"x1": float("inf")},
        {"score": float("nan")},
        {"score": 1.5},
        {"image": -1},
    ],
)
def test_a_box_lies_in_its_image(wrong):
    fine = {"x0": 0.1, "y0": 0.2, "x1": 0.3, "y1": 0.4, "score": 0.9, "label": "dog"}
    assert Box(**fine).image == 0
    with pytest.raises(ValueError, match="no box in an image"):
        Box(**fine | wrong)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(fine | wrong, Box)


def test_fingerprint_depends_on_every_field_of_the_judge():
    judges = [
        Judge(engine="llm"),
        Judge(engine="llm", model="a"),
        Judge(engine="llm", prompt="a"),
        Judge(engine="llm", version="a"),
        Judge(engine="other"),
    ]
    assert len({judge.fingerprint for judge in judges}) == len(judges)
    assert all(len(judge.fingerprint) == 12 for judge in judges)


def test_fingerprints_and_keys_never_change():
    """They are in subjects and reports of running systems."""
    assert Judge(engine="reference").fingerprint == "6367396096e2"
    assert response_key("default", "r-1") == "9dede764320347e8af128406d6d3daf8"


@given(st.lists(text, max_size=4), st.lists(text, max_size=4))
def test_digest_tells_parts_apart(first, second):
    assert (digest(*first) == digest(*second)) == (first == second)


@given(tenant=st.text(max_size=8), name=st.text(max_size=8))
def test_keys_are_safe_tokens_of_a_subject(tenant, name):
    key = response_key(tenant, name)
    assert len(key) == 32
    assert set(key) <= set("0123456789abcdef")


def test_a_lone_surrogate_has_a_key():
    assert len(response_key("default", "\ud800")) == 32


def test_response_and_outcome_share_their_key():
    response = ResponseRecorded(id="r", model="m", answer="", tenant="t")
    outcome = ResponseScored(id="r", model="m", protocol="p", outcome="scored", tenant="t")
    assert response.key == outcome.key == response_key("t", "r")


def test_usage_adds_up():
    total = Usage(calls=1, input_tokens=2, output_tokens=3, cost=0.5) + Usage(calls=4, cost=0.25)
    assert total == Usage(calls=5, input_tokens=2, output_tokens=3, cost=0.75)


def test_events_do_not_change():
    with pytest.raises(AttributeError):
        Reference().complete = True


def test_defaults_are_not_shared():
    one, other = (ResponseRecorded(id=name, model="m", answer="") for name in "12")
    one.tags["a"] = "b"
    assert other.tags == {}
