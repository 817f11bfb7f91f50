"""Every error groundwatch raises on purpose, in one place.

GroundwatchError
├── UsageError            the user must fix something: one line, exit status 2, no traceback
│   ├── SettingsError     a setting is wrong; names the key
│   ├── FileFormatError   a file is wrong; names file, line and key
│   ├── MissingExtraError an optional dependency is not installed
│   ├── UnknownName       nothing has the name that was given
│   ├── HeldByOthers      somebody else works at it at this moment
│   ├── OpenedFolderError it holds for the streams that were opened in a folder
│   └── ProvisionRefused  a change to streams or consumers would drop data
├── CheckFailed           the thing checked does not hold: exit status 1
├── InputError            an event can never succeed: dead letter at once
│   ├── ImageError        an image that is not taken, with the reason that a logged call has then
│   ├── DecodeError       the bytes are not the event they claim to be
│   └── InvalidName       a name that cannot be part of a subject; also a UsageError
├── ConnectionLost        the connection to NATS was closed for good: the process ends, exit status 1
├── WorkTimeout           handling one event took longer than its stage allows: a failed attempt, as a bug is
├── EngineBug             an engine broke over one event: tried again a few times
├── Unscorable            a judge could not judge: an *unscored* outcome with its reason, not a failure
└── TransientError        try again later: a failed attempt, negative acknowledgement with a delay
    └── Unavailable       the judge or NATS answers nobody: no attempt of this event; it is waited for
        ├── RateLimited   the judge asked us to wait; carries for how long
        ├── NotStored     a stream has no room: another try at once ends the same
        └── Unacknowledged an event was sent, and nobody knows whether the stream has it
"""

import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

UNDECODED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that are not what they claim to be; the last for nesting without end."""


class GroundwatchError(Exception):
    """Base of all errors that groundwatch raises on purpose."""


class UsageError(GroundwatchError):
    """The user must fix something. Shown as one line without a traceback; exit status 2.

    `parameters` are what is wrong, or what would help, as whatever was called names it: the command line says
    which of its options these are.
    """

    def __init__(self, message: str, *parameters: str) -> None:
        super().__init__(message)
        self.parameters = parameters


class SettingsError(UsageError):
    """Settings are missing or wrong: a line for each, which names the key."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@contextmanager
def told_to_user(what: str) -> Iterator[None]:
    """An `OSError` in the block becomes a `UsageError`: `what`, such as "x: cannot be read", and why."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{what} ({error.strerror or error})") from error


class FileFormatError(UsageError):
    """A file does not have the expected format. The message names file, line and key."""

    def __init__(self, path: object, message: str, *, line: int | None = None) -> None:
        where = f"{path}:{line}" if line is not None else f"{path}"
        super().__init__(f"{where}: {message}")


def check_regular(path: Path) -> None:
    """Raises `FileFormatError` for what has no end or cannot be read twice, as a device and a pipe have."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise FileFormatError(path, f"cannot be read ({error.strerror or error})") from error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise FileFormatError(path, "cannot be read: it is a device or a pipe; write its content to a file")


class MissingExtraError(UsageError):
    """An optional part of groundwatch is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} is not installed: run pip install 'groundwatch[{extra}]'")


class UnknownName(UsageError):
    """There is nothing of the name that was given."""


class HeldByOthers(UsageError):
    """What was to be changed is somebody else's at this moment, or has changed meanwhile."""


PROVISION = "run groundwatch admin provision first"
"""How an error ends that says that streams are not there."""


class OpenedFolderError(UsageError):
    """Something is wrong with streams that a command opened in `folder`, where nobody else runs."""

    def __init__(self, message: str, folder: Path) -> None:
        super().__init__(message)
        self.folder = folder


class CheckFailed(GroundwatchError):
    """The thing that was checked does not hold; exit status 1."""


class ProvisionRefused(UsageError):
    """Provisioning would drop recorded data, so nothing was changed."""


class InputError(GroundwatchError):
    """This event can never be processed; it goes to the dead letters at once."""


class DecodeError(InputError):
    """The bytes of an event do not decode; carries the decoder's message."""


class InvalidName(UsageError, InputError):
    """A name that cannot be part of a NATS subject, whoever gave it."""


class ConnectionLost(GroundwatchError):
    """The connection to NATS was closed for good. Nothing over it will work again; exit status 1."""


class ImageError(InputError):
    """An image that is not taken; `reason` is why a logged call is recorded without it."""

    def __init__(
        self,
        message: str,
        reason: Literal["image_format", "image_too_large", "image_unreadable"] = "image_unreadable",
    ) -> None:
        super().__init__(message)
        self.reason = reason


class Unscorable(GroundwatchError):
    """A judge could not judge this response. It becomes *unscored* with this reason.

    `reason` is one of a bounded set of slugs (it becomes a metric label); `detail` is free text. `values` are
    numbers that there are all the same: an image of which nothing is said has features that were not covered.
    """

    def __init__(self, reason: str, detail: str = "", values: Mapping[str, float] | None = None) -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail
        self.values = values or {}


class WorkTimeout(GroundwatchError):
    """Handling one event took longer than its stage allows. Counts as a bug does: few attempts."""


class EngineBug(GroundwatchError):
    """An engine broke over one event in a way that nobody foresaw: a bug, tried again a few times."""


class TransientError(GroundwatchError):
    """A fault that passes. The event is handed back and tried again after a delay.

    `kind` is a bounded slug of how the last request ended, where it was one to a model.
    """

    kind: str = ""


class Unavailable(TransientError):
    """Whoever the event needs, a judge or NATS, answers nobody for now. It says nothing about the event.

    `judge` names the model, empty where it is not one. `retry_after` is in seconds, None when nobody said.
    `trial`: this very event was let through to find out whether the judge is back. `wakes`: somebody else's
    success is a reason to ask again at once.
    """

    wakes = True

    def __init__(
        self, message: str, *, judge: str = "", retry_after: float | None = None, trial: bool = False
    ) -> None:
        super().__init__(message)
        self.judge = judge
        self.retry_after = retry_after
        self.trial = trial


class RateLimited(Unavailable):
    """A judge's endpoint asked us to slow down."""

    wakes = False


class NotStored(Unavailable):
    """A stream refused an event for want of room: another try at once would end the same."""


class Unacknowledged(Unavailable):
    """An event was sent, and the stream has not said whether it has it. Sending the same again is safe."""


def words(error: BaseException) -> str:
    """What an error says, for a sentence that people read: its kind too where it is none of ours or of NATS,
    and its kind in words where it says nothing."""
    # NATS' API errors write all their fields, and have a sentence, or nothing.
    api, kind = hasattr(error, "err_code"), type(error).__name__
    said = str(getattr(error, "description", None) or ("" if api else error))
    if not said:
        return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind.removesuffix("Error") or kind).lower()
    if isinstance(error, GroundwatchError) or said.startswith("nats: "):
        return said.removeprefix("nats: ")
    return f"{said} ({kind})"
