"""Subjects, built and read."""

import re

import msgspec

from groundwatch.errors import InvalidName
from groundwatch.topology.names import PREFIX

MAX_TOKEN = 128
"""Characters of one part of a subject. NATS hangs up on a client whose line, subjects and all, is longer
than 4,096 bytes; no subject of ours has more than seven parts."""


_TOKEN = r"[_-]*[A-Za-z0-9][\w-]*"
_is_plain_token = re.compile(_TOKEN, re.ASCII).fullmatch
_is_plain = re.compile(rf"{_TOKEN}(?:\.{_TOKEN})*", re.ASCII).fullmatch


def is_token(text: str) -> bool:
    """Whether the text can stand between two dots of a subject, as every protocol's name must."""
    return len(text) <= MAX_TOKEN and _is_plain_token(text) is not None


def subject(*tokens: str) -> str:
    """A subject of ours. Raises `InvalidName` for what cannot be part of one."""
    name = ".".join((PREFIX, *tokens))
    if _is_subject(name) and name.count(".") == len(tokens):
        return name
    token = next(token for token in tokens if not is_token(token))
    shown = token if len(token) <= MAX_TOKEN else f"{token[:32]}…"
    raise InvalidName(
        f"'{shown}' cannot be part of a subject: use letters, digits, - and _, at most {MAX_TOKEN}"
    )


def _is_subject(name: str) -> bool:
    """All at once: every event on its way makes and reads several."""
    if _is_plain(name) is None:
        return False
    return len(name) <= MAX_TOKEN or all(len(token) <= MAX_TOKEN for token in name.split("."))


def run_subjects(kind: str, run: str | None, *tokens: str) -> str:
    """Every subject of a kind, such as `outcome`, of one run, or of all; `tokens` narrow it."""
    if run is None:
        return f"{PREFIX}.{kind}.*.>"
    return f"{subject(kind, run, *tokens)}.>"


def recorded_subject(run: str, key: str) -> str:
    """Where a recorded response goes."""
    return subject("recorded", run, key)


def asked_subject(run: str, stage: str, key: str) -> str:
    """Where a question goes on its way to `stage`."""
    return subject("asked", run, stage, key)


def chain_subject(run: str, stage: str, protocol: str, key: str, step: int) -> str:
    """Where a chain goes on its way to `stage` in round `step`, counted from 1."""
    return subject("chain", run, stage, protocol, key, str(step))


def extracted_subject(run: str, stage: str, protocol: str, key: str) -> str:
    """Where extracted claims go on their way to `stage`."""
    return subject("extracted", run, stage, protocol, key)


def judged_subject(run: str, stage: str, protocol: str, key: str) -> str:
    """Where judged claims go on their way to `stage`."""
    return subject("judged", run, stage, protocol, key)


def outcome_subject(run: str, protocol: str, key: str) -> str:
    """Where the outcome goes."""
    return subject("outcome", run, protocol, key)


def alarm_subject(run: str, protocol: str, key: str) -> str:
    """Where an alarm goes."""
    return subject("alarm", run, protocol, key)


def dead_subject(stage: str, run: str, key: str) -> str:
    """Where an event goes that `stage` could not process."""
    return subject("dead", stage, run, key)


def retry_subject(stage: str, run: str, key: str) -> str:
    """Where a dead letter goes when it is sent again."""
    return subject("retry", stage, run, key)


class Address(msgspec.Struct, frozen=True):
    """What a subject says: readable even when the event under it is not."""

    kind: str
    run: str
    key: str
    stage: str = ""
    protocol: str = ""


def parse_subject(subject: str) -> Address | None:
    """Read a subject of ours; None when it is not one, or has parts that none of ours has."""
    return _parse(subject.split(".")) if _is_subject(subject) else None


def stage_of(subject: str) -> str:
    """The stage that a subject of claims, of a chain or of a question leads to."""
    return subject.split(".", 4)[3]


def _parse(parts: list[str]) -> Address | None:
    match parts:
        case [_, "recorded", run, key]:
            return Address("recorded", run, key)
        case [_, ("extracted" | "judged") as kind, run, stage, protocol, key]:
            return Address(kind, run, key, stage, protocol)
        case [_, "asked", run, stage, key]:
            return Address("asked", run, key, stage)
        case [_, "chain", run, stage, protocol, key, _]:
            return Address("chain", run, key, stage, protocol)
        case [_, "outcome", run, protocol, key]:
            return Address("outcome", run, key, "", protocol)
        case [_, "alarm", run, protocol, key]:
            return Address("alarm", run, key, "", protocol)
        case [_, ("dead" | "retry") as kind, stage, run, key]:
            return Address(kind, run, key, stage)
    return None
