"""Export files: events of a subject are taken out of them, and the file takes the place of the old one."""

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from groundwatch.erasure.finding import images_in
from groundwatch.erasure.subject import Subject, tenant_of
from groundwatch.errors import UsageError
from groundwatch.replay.files import ExportReader, ExportWriter, Manifest, Record


def concerns(subject: Subject) -> Callable[[Record], bool]:
    """Whether a record is of the subject."""
    if subject.kind == "response":
        key = subject.key
        return lambda record: key in record.subject.split(".")
    if subject.kind == "tenant":
        return lambda record: tenant_of(record.data) == subject.tenant
    return lambda record: False


def rewrite(path: Path, subject: Subject) -> tuple[int, int]:
    """Write the file anew without the subject's events and images; how many of each were in it.

    Raises `UsageError` for a file that is none of ours or cannot be written; it is then as it was.
    """
    unwanted = concerns(subject)
    gone, kept, mine = 0, set[str](), set[str]()
    for _, part in ExportReader(path).parts():
        for record in part if isinstance(part, list) else ():
            if unwanted(record):
                gone += 1
                mine |= images_in(record.data)
            else:
                kept |= images_in(record.data)
    without = {subject.image} if subject.kind == "image" else mine - kept
    present = {part[0] for _, part in ExportReader(path).parts() if isinstance(part, tuple)}
    removed = len(without & present)
    if not gone and not removed:
        return 0, 0
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        with unfinished.open("wb") as out:
            writer = ExportWriter(out)
            for _, part in ExportReader(path).parts():
                match part:
                    case list():
                        for record in part:
                            if not unwanted(record):
                                writer.event(record)
                    case Manifest():
                        writer.end(
                            msgspec.structs.replace(
                                part, events=part.events - gone, images=part.images - removed
                            )
                        )
                    case sha256, data:
                        if sha256 not in without:
                            writer.image(sha256, data)
        unfinished.replace(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be rewritten ({error.strerror or error})") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return gone, removed


def search(path: Path, needles: Iterable[bytes]) -> bool:
    """Whether one of these byte strings is in the file, unpacked."""
    wanted = list(needles)
    for _, part in ExportReader(path).parts():
        match part:
            case list():
                texts = [text for one in part for text in (one.subject.encode(), one.data)]
            case Manifest():
                texts = [msgspec.json.encode(part)]
            case _:
                texts = [part[1]]
        if any(needle in text for text in texts for needle in wanted):
            return True
    return False
