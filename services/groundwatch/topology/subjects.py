"""Subjects, built and read."""

from __future__ import annotations

import msgspec

from groundwatch.topology.names import PREFIX


def recorded_subject(run: str, key: str) -> str:
    """Where a recorded response goes."""
    return f"{PREFIX}.recorded.{run}.{key}"


def asked_subject(run: str, stage: str, key: str) -> str:
    """Where a question goes on its way to `stage`."""
    return f"{PREFIX}.asked.{run}.{stage}.{key}"


def chain_subject(run: str, stage: str, protocol: str, key: str, step: int) -> str:
    """Where a chain goes on its way to `stage` in round `step`, counted from 1."""
    return f"{PREFIX}.chain.{run}.{stage}.{protocol}.{key}.{step}"


def extracted_subject(run: str, stage: str, protocol: str, key: str) -> str:
    """Where extracted claims go on their way to `stage`."""
    return f"{PREFIX}.extracted.{run}.{stage}.{protocol}.{key}"


def judged_subject(run: str, stage: str, protocol: str, key: str) -> str:
    """Where judged claims go on their way to `stage`."""
    return f"{PREFIX}.judged.{run}.{stage}.{protocol}.{key}"


def outcome_subject(run: str, protocol: str, key: str) -> str:
    """Where the outcome goes."""
    return f"{PREFIX}.outcome.{run}.{protocol}.{key}"


def alarm_subject(run: str, protocol: str, key: str) -> str:
    """Where an alarm goes."""
    return f"{PREFIX}.alarm.{run}.{protocol}.{key}"


def dead_subject(stage: str, run: str, key: str) -> str:
    """Where an event goes that `stage` could not process."""
    return f"{PREFIX}.dead.{stage}.{run}.{key}"


def retry_subject(stage: str, run: str, key: str) -> str:
    """Where a dead letter goes when it is sent again."""
    return f"{PREFIX}.retry.{stage}.{run}.{key}"


class Address(msgspec.Struct, frozen=True):
    """What a subject says: readable even when the event under it is not."""

    kind: str
    run: str
    key: str
    stage: str = ""
    protocol: str = ""


def is_token(text: str) -> bool:
    """Whether the text can stand between two dots of a subject, as every protocol's name must."""
    return bool(text) and text.isascii() and text.replace("-", "").replace("_", "").isalnum()


def parse_subject(subject: str) -> Address | None:
    """Read a subject of ours; None when it is not one."""
    match subject.split("."):
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
