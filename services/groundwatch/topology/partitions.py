"""Partitions: each stream of `ARCHIVED` once for each, so that JetStream can place them on different servers.

Intake picks one by the response's key; all that follows from a response stays in its partition, since the key
names it. The first partition has the names that there are without partitions. Code says `RESPONSES` for the
streams of all partitions together; positions and sequences are those of one of them.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from groundwatch.topology import (
    ARCHIVED,
    CONSUMERS,
    PARTITIONED,
    PREFIX,
    STREAMS,
    ConsumerSpec,
    StreamSpec,
    prefix_of,
)


def stream_in(stream: str, partition: int) -> str:
    """The name of a partition's stream of a kind."""
    return f"{stream}_{partition}" if partition else stream


def streams_of_kind(stream: str, partitions: int) -> tuple[str, ...]:
    """The streams of all partitions; of a kind that is not partitioned, its one."""
    if stream not in ARCHIVED:
        return (stream,)
    return tuple(stream_in(stream, partition) for partition in range(partitions))


def stream_of(stream: str, subject: str) -> str:
    """The stream of this kind that holds a subject without wildcards."""
    return stream_in(stream, partition_of_subject(subject)) if stream in ARCHIVED else stream


def kind_of(stream: str) -> str:
    """The name that a partition's stream has in the first."""
    kind, _, number = stream.rpartition("_")
    return kind if kind in ARCHIVED and number.isdecimal() else stream


def partition_of_stream(stream: str) -> int:
    return int(stream.rpartition("_")[2]) if kind_of(stream) != stream else 0


def partition_of_subject(subject: str) -> int:
    """The partition that a subject, which may have wildcards, belongs to."""
    number = subject.partition(".")[0].removeprefix(PREFIX)
    return int(number) if number.isdecimal() else 0


def subjects_in(subjects: Iterable[str], partition: int) -> tuple[str, ...]:
    """Those of these filters that a partition's streams can have subjects of, as they are there.

    One with wildcards is of every partition, one without of its own.
    """
    found = []
    for subject in subjects:
        if "*" in subject or ">" in subject:
            found.append(_moved(subject, partition))
        elif partition_of_subject(subject) == partition:
            found.append(subject)
    return tuple(found)


def _moved(subject: str, partition: int) -> str:
    first, dot, rest = subject.partition(".")
    kind = rest.partition(".")[0]
    return f"{prefix_of(partition)}{dot}{rest}" if first == PREFIX and kind in PARTITIONED else subject


def streams(partitions: int) -> Iterator[StreamSpec]:
    """Every declared stream, in each partition."""
    for spec in STREAMS:
        for partition, name in enumerate(streams_of_kind(spec.name, partitions)):
            subjects = tuple(_moved(one, partition) for one in spec.subjects)
            yield msgspec.structs.replace(spec, name=name, subjects=subjects)


def consumers(partitions: int) -> Iterator[ConsumerSpec]:
    """Every declared consumer, in each partition."""
    for spec in CONSUMERS:
        yield from consumers_in(spec, partitions)


def consumers_in(spec: ConsumerSpec, partitions: int) -> Iterator[ConsumerSpec]:
    """A consumer, in each partition."""
    for partition, stream in enumerate(streams_of_kind(spec.stream, partitions)):
        if not partition:
            yield spec
            continue
        yield msgspec.structs.replace(
            spec,
            name=f"{spec.name}-p{partition}",
            stream=stream,
            filters=tuple(_moved(one, partition) for one in spec.filters),
            partition=partition,
        )


def consumers_of(stream: str) -> list[ConsumerSpec]:
    """Every declared consumer of one stream."""
    kind, partition = kind_of(stream), partition_of_stream(stream)
    declared = [spec for spec in CONSUMERS if spec.stream == kind]
    return [list(consumers_in(spec, partition + 1))[partition] for spec in declared]


def rights_in_all(rights: Iterable[str], partitions: int) -> Iterator[str]:
    """Subjects that a user of NATS may publish to, calls of JetStream's API too, in each partition."""
    durables = {spec.name for spec in CONSUMERS}
    for right in rights:
        yield right
        tokens = right.split(".")
        for partition in range(1, partitions):
            moved = _right(tokens, partition, durables)
            if moved != tokens:
                yield ".".join(moved)


def _right(tokens: Sequence[str], partition: int, durables: set[str]) -> list[str]:
    if tokens[0] == PREFIX:
        return _moved(".".join(tokens), partition).split(".")
    streams = [at for at, token in enumerate(tokens) if token in ARCHIVED]
    moved = list(tokens)
    for at in streams:
        moved[at] = stream_in(tokens[at], partition)
        if at + 1 < len(tokens) and tokens[at + 1] in durables:
            moved[at + 1] = f"{tokens[at + 1]}-p{partition}"
    return moved
