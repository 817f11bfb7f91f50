"""Names of partitions: streams, subjects, keys, rights; and where a key belongs while their number grows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from groundwatch.events import ResponseRecorded
from groundwatch.keys import bare_key, in_partition, partition_of, response_key
from groundwatch.runtime.delivery.outcomes import recorded, without_score
from groundwatch.topology import CONSUMERS, STREAMS, parse_subject, subject_of
from groundwatch.topology.partitions import (
    consumers,
    consumers_of,
    kind_of,
    partition_of_stream,
    partition_of_subject,
    stream_of,
    streams,
    subjects_in,
)
from groundwatch.topology.rights import permissions, users

keys = st.text("0123456789abcdef", min_size=32, max_size=32)
partitions = st.integers(0, 63)


def test_one_partition_is_what_is_declared() -> None:
    assert tuple(streams(1)) == STREAMS
    assert tuple(consumers(1)) == CONSUMERS
    for user in users():
        assert permissions(user, 1) == permissions(user)
        assert set(permissions(user).publish) <= set(permissions(user, 3).publish)


def test_names_of_streams_and_consumers_are_told_apart() -> None:
    several = [spec.name for spec in streams(3)]
    assert len(set(several)) == len(several) == len(STREAMS) + 2 * 5
    assert {kind_of(name) for name in several} == {spec.name for spec in STREAMS}
    found = list(consumers(3))
    assert len({spec.name for spec in found}) == len(found)
    for spec in found:
        assert spec in consumers_of(spec.stream)
        assert partition_of_stream(spec.stream) == spec.partition
        assert all(partition_of_subject(one) == spec.partition for one in spec.filters)


@given(keys, partitions)
def test_a_key_takes_everything_to_its_partition(key: str, partition: int) -> None:
    own = in_partition(key, partition)
    assert (bare_key(own), partition_of(own)) == (key, partition)
    for kind, tokens in (
        ("recorded", ("live", own)),
        ("asked", ("live", "captioning", own)),
        ("chain", ("live", "captioning", "gc", own, "1")),
        ("extracted", ("live", "verification", "faithscore", own)),
        ("outcome", ("live", "faithscore", own)),
    ):
        subject = subject_of(kind, *tokens)
        address = parse_subject(subject)
        assert partition_of_subject(subject) == partition
        assert address is not None and address.key == own
        assert subjects_in([subject], partition) == (subject,)
        assert subjects_in([subject], partition + 1) == ()
    assert partition_of_subject(subject_of("dead", "scoring", "live", own)) == 0


@given(partitions)
def test_what_follows_from_a_response_keeps_its_partition(partition: int) -> None:
    response = ResponseRecorded(id="r", model="m", answer="a", partition=partition)
    outcome = without_score(response, "faithscore", "unscored", "refused")  # type: ignore[arg-type]
    assert outcome.key == response.key == response_key("default", "r", partition)
    name = stream_of("GW_RESPONSES", recorded(response).subject)
    assert partition_of_stream(name) == partition
