"""The names that libraries give to things: `conversations.toml`."""

from importlib import resources

import msgspec


class Parts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What parts of a message are called, and where in them things are: paths with dots."""

    text: frozenset[str]
    image: frozenset[str]
    tool_call: frozenset[str]
    tool_result: frozenset[str]
    inside: tuple[str, ...]
    image_keys: tuple[str, ...]
    payload: tuple[str, ...]
    media: tuple[str, ...]
    file: tuple[str, ...]


class Placeholder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a text begins that stands where an image was, and the reason of that; another one for a text."""

    starts: str
    reason: str
    text_reason: str = ""


class Dialect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Attributes of a span. `kind` says what it is of: `calls` are of a model, `others` are not.

    `flat_input` and `flat_output` are prefixes. `plain`: a text that holds no messages is one itself; `text`
    is always one. Only a call that has ended has one of `marks`.
    """

    kind: tuple[str, ...]
    calls: frozenset[str]
    others: frozenset[str]
    model: tuple[str, ...]
    id: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    body: tuple[str, ...] = ()
    input: tuple[str, ...] = ()
    output: tuple[str, ...] = ()
    plain: bool = False
    text: tuple[str, ...] = ()
    flat_input: str = ""
    flat_output: str = ""
    input_reference: tuple[str, ...] = ()
    output_reference: tuple[str, ...] = ()


class Library(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    scopes: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()


class LeftOut(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why an image is not there: `library` did `did`, and with `setting` it is there.

    It stands for the reasons `of` where one of the libraries `by` logged the call.
    """

    library: str
    did: str
    setting: str
    of: frozenset[str] = frozenset()
    by: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.library} {self.did}. What keeps it: {self.setting}"


class Events(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names of log records and events: messages with their role, answers, and whole calls (`details`)."""

    inputs: dict[str, str]
    outputs: frozenset[str]
    details: frozenset[str]
    names: tuple[str, ...]
    bodies: tuple[str, ...]


class LiteLlm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`others` are calls of no language model; `tags` are paths of fields and the tags that they become."""

    others: frozenset[str]
    tags: dict[str, str]


class _Names(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    parts: Parts
    placeholder: tuple[Placeholder, ...]
    dialect: dict[str, Dialect]
    events: Events
    litellm: LiteLlm
    tags: dict[str, str]
    library: tuple[Library, ...]
    reason: dict[str, LeftOut]


NAMES = msgspec.toml.decode(
    resources.files("groundwatch.conversations").joinpath("conversations.toml").read_bytes(), type=_Names
)
