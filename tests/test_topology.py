"""Subjects, streams and consumers fit together."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch import topology
from groundwatch.errors import InvalidName
from groundwatch.protocols import registry
from groundwatch.protocols.base import Stage
from groundwatch.runtime.delivery.connection import MAX_SUBJECTS
from groundwatch.topology import (
    ANNOTATION,
    CHANNELS,
    CONSUMERS,
    GATEWAY,
    HEADERS,
    MAX_TOKEN,
    OUTFLOW,
    SECOND_OPINION,
    STAGES,
    STREAMS,
    Address,
    ConsumerSpec,
    consumer,
    parse_subject,
    receiver_consumer,
    run_subjects,
    stream,
    subject_of,
)
from groundwatch.topology.rights import tenant_permissions

KEY = "0123456789abcdef0123456789abcdef"
RUNS = ("live", "replay-7")
PROTOCOLS = ("faithscore", "tri-he")

token = st.from_regex(r"\A[a-z][a-z0-9_-]{0,15}\Z")


def selects(pattern: str, subject: str) -> bool:
    """Whether a NATS subject pattern takes a subject."""
    wanted, given = pattern.split("."), subject.split(".")
    for place, part in enumerate(wanted):
        if part == ">":
            return len(given) > place
        if place >= len(given) or part not in ("*", given[place]):
            return False
    return len(wanted) == len(given)


def overlap(first: str, second: str) -> bool:
    """Whether some subject is taken by both patterns."""
    for one, other in zip(first.split("."), second.split("."), strict=False):
        if ">" in (one, other):
            return True
        if one != other and "*" not in (one, other):
            return False
    return len(first.split(".")) == len(second.split("."))


def all_subjects(run: str) -> list[str]:
    """One subject of every kind, stage and protocol."""
    found = [subject_of("recorded", run, KEY), subject_of("asked", run, "captioning", KEY)]
    found += [subject_of("intake", f"tenant-of-{run}")]
    for protocol in PROTOCOLS:
        found += [subject_of(kind, run, protocol, KEY) for kind in ("outcome", "alarm", "second")]
        found += [
            subject_of(kind, run, stage, protocol, KEY)
            for kind in ("extracted", "judged")
            for stage in STAGES
        ]
        found += [subject_of("chain", run, stage, protocol, KEY, step) for stage in STAGES for step in "12"]
    retried = (GATEWAY, *STAGES, OUTFLOW, SECOND_OPINION)
    found += [subject_of(kind, stage, run, KEY) for kind in ("dead", "retry") for stage in retried]
    return found


EVERYTHING = [subject for run in RUNS for subject in all_subjects(run)]


@pytest.mark.parametrize("name", ["", "x" * 129, "a.b", "a b", "a\r\nb", "ä", "*", ">", "$SYS"])
def test_what_cannot_be_part_of_a_subject_is_refused(name):
    for make in (
        lambda: subject_of("recorded", name, KEY),
        lambda: subject_of("recorded", "live", name),
        lambda: subject_of("outcome", "live", name, KEY),
        lambda: subject_of("dead", name, "live", KEY),
        lambda: run_subjects("outcome", name),
    ):
        with pytest.raises(InvalidName):
            make()
    assert parse_subject(f"gw.outcome.{name}.faithscore.{KEY}") is None


def test_the_longest_names_fit_the_line_that_nats_takes():
    longest = "x" * MAX_TOKEN
    subject = subject_of("chain", longest, longest, longest, longest, "1000")
    assert len(f"$JS.API.CONSUMER.CREATE.{longest}.{longest}.{subject}") < MAX_SUBJECTS - MAX_TOKEN
    assert parse_subject(subject) is not None


@given(tenant=token)
def test_a_tenants_subject_says_whose_it_is(tenant):
    assert parse_subject(subject_of("intake", tenant)) == Address("intake", "live", "", tenant=tenant)
    rights = tenant_permissions(tenant)
    assert (rights.publish, rights.subscribe) == ((f"gw.intake.{tenant}",), (f"_INBOX_tenant-{tenant}.>",))


@given(run=token, stage=token, protocol=token, key=token)
def test_subjects_parse_back(run, stage, protocol, key):
    assert parse_subject(subject_of("recorded", run, key)) == Address("recorded", run, key)
    assert parse_subject(subject_of("extracted", run, stage, protocol, key)) == Address(
        "extracted", run, key, stage, protocol
    )
    assert parse_subject(subject_of("judged", run, stage, protocol, key)) == Address(
        "judged", run, key, stage, protocol
    )
    assert parse_subject(subject_of("asked", run, stage, key)) == Address("asked", run, key, stage)
    assert parse_subject(subject_of("chain", run, stage, protocol, key, "7")) == Address(
        "chain", run, key, stage, protocol
    )
    assert parse_subject(subject_of("outcome", run, protocol, key)) == Address(
        "outcome", run, key, "", protocol
    )
    assert parse_subject(subject_of("dead", stage, run, key)) == Address("dead", run, key, stage)
    assert parse_subject(subject_of("retry", stage, run, key)) == Address("retry", run, key, stage)


def test_a_subject_has_all_its_tokens_and_no_more():
    for tokens in (("live",), ("live", KEY, "more")):
        with pytest.raises(ValueError, match="has 2 parts, not"):
            subject_of("recorded", *tokens)


def test_other_subjects_are_not_ours():
    others = (
        "gw",
        "gw.recorded",
        "gw.recorded.live",
        "gw.recorded.live.a.b",
        "gw.other.live.a",
        "a.b.c.d.e.f.g",
    )
    assert [subject for subject in ("", *others) if parse_subject(subject) is not None] == []


def test_every_subject_is_kept_by_exactly_one_stream():
    kept = {
        subject: [spec.name for spec in STREAMS if any(selects(one, subject) for one in spec.subjects)]
        for subject in EVERYTHING
    }
    channels = {channel.name: channel.stream for channel in CHANNELS}
    assert kept == {subject: [channels[parse_subject(subject).kind]] for subject in EVERYTHING}


def test_no_two_streams_overlap():
    patterns = [(spec.name, subject) for spec in STREAMS for subject in spec.subjects]
    for place, (first, one) in enumerate(patterns):
        for second, other in patterns[place + 1 :]:
            assert not overlap(one, other), (first, second)


def test_consumers_select_exactly_their_stages_subjects():
    taken = {
        spec.name: {subject for subject in EVERYTHING if any(selects(one, subject) for one in spec.filters)}
        for spec in CONSUMERS
    }
    assert taken == {spec.name: wanted(spec) for spec in CONSUMERS}
    assert all(taken.values())


def wanted(spec: ConsumerSpec) -> set[str]:
    kinds = {channel.name for channel in CHANNELS if channel.stream == spec.stream}
    return {
        subject
        for subject in EVERYTHING
        if (address := parse_subject(subject)) is not None
        and address.kind in kinds
        and address.stage in ("", spec.stage)
        and (address.kind == "retry" or address.run == "live")
    }


def test_consumers_of_a_work_queue_do_not_share_messages():
    retries = [spec for spec in CONSUMERS if stream(spec.stream).work_queue]
    for place, one in enumerate(retries):
        assert not any(overlap(one.filters[0], other.filters[0]) for other in retries[place + 1 :])


def test_every_stage_has_a_consumer_and_one_for_retries():
    stages = (GATEWAY, *STAGES, SECOND_OPINION)
    retried = (*stages, OUTFLOW)
    assert {spec.name for spec in CONSUMERS} == {*stages, *(f"{one}-retry" for one in retried)}
    assert {spec.stage for spec in CONSUMERS} == set(retried)
    assert {spec.service for spec in CONSUMERS} == {GATEWAY, *STAGES, ANNOTATION, OUTFLOW}


def test_a_receivers_consumer_takes_live_outcomes_or_alarms_alone():
    for kind in ("outcome", "alarm"):
        spec = receiver_consumer("a-name", kind)
        taken = {subject for subject in EVERYTHING if selects(spec.filters[0], subject)}
        assert taken == {
            subject
            for subject in EVERYTHING
            if (address := parse_subject(subject)) and (address.kind, address.run) == (kind, "live")
        }
        assert taken


def test_stages_are_those_that_routes_name():
    assert set(STAGES) == {stage.value for stage in Stage}
    for name in registry.names():
        assert all(stage.value in STAGES for stage in registry.get(name).route)


def test_channels_are_written_as_subjects_are_made():
    made = {}
    for channel in CHANNELS:
        tokens = re.findall(r"{(\w+)}", channel.address)
        made[channel.name] = subject_of(channel.name, *tokens)
        assert stream(channel.stream).name == channel.stream
        assert set(channel.headers) | set(channel.optional_headers) <= HEADERS.keys()
    assert made == {channel.name: re.sub(r"{(\w+)}", r"\1", channel.address) for channel in CHANNELS}


def test_every_header_is_declared_and_explained():
    named = {value for name, value in vars(topology).items() if re.fullmatch(r"HEADER_\w+", name)}
    assert named == HEADERS.keys()


def test_names_find_their_declarations():
    assert [stream(spec.name) for spec in STREAMS] == list(STREAMS)
    assert [consumer(spec.name) for spec in CONSUMERS] == list(CONSUMERS)


def test_a_stage_may_look_up_what_it_writes() -> None:
    """What comes again is looked up before anybody is asked for it again."""
    for channel in CHANNELS:
        if channel.name in ("extracted", "chain", "judged", "recorded", "outcome"):
            writing = {user for user in channel.publishers if user in STAGES}
            assert writing <= {*channel.lookups}, channel.name
