"""Names inside subjects: digests of what they stand for, safe whatever characters that has."""

import hashlib
from functools import lru_cache


def digest(*parts: str) -> str:
    """SHA-256 over the parts with unambiguous borders, in hex."""
    joined = bytearray()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        joined += len(data).to_bytes(8, "big")
        joined += data
    return hashlib.sha256(joined).hexdigest()


@lru_cache(maxsize=8_192)
def response_key(tenant: str, response_id: str, partition: int = 0) -> str:
    """Name a response inside subjects: 32 hex digits, safe whatever characters the id has.

    Behind them stands the partition, if it is not the first: `-p3`.
    """
    return in_partition(digest(tenant, response_id)[:32], partition)


@lru_cache(maxsize=1_024)
def reviewer_key(name: str, objection: bool = False) -> str:
    """Name a reviewer, or one as who objects, inside subjects: 16 hex digits, whatever the name has in it."""
    return digest("objection" if objection else "reviewer", name)[:16]


def in_partition(key: str, partition: int) -> str:
    """The key of the same response in a partition."""
    bare = bare_key(key)
    return f"{bare}-p{partition}" if partition else bare


def bare_key(key: str) -> str:
    """A response's key without its partition."""
    return key.partition("-p")[0]


def partition_of(key: str) -> int:
    """The partition that a response's key names."""
    number = key.partition("-p")[2]
    return int(number) if number.isdecimal() else 0


def home_of(key: str, partitions: int) -> int:
    """In which of so many partitions a response belongs: the same for everybody and for ever."""
    # The first digits decide which traces are kept.
    return int(key[8:16], 16) % partitions if partitions > 1 else 0


def home_key(key: str, partitions: int) -> str:
    """The key of the same response where it belongs, of so many partitions."""
    return in_partition(key, home_of(key, partitions))


@lru_cache(maxsize=1_024)
def fingerprint_of(*names: str) -> str:
    """Twelve hex digits over all of them."""
    return digest(*names)[:12]
