"""Prompt files, the fence around what is judged, and the form of replies: what every LLM protocol shares.

A judge's prompt is a reviewed Markdown file with two parts: `# Instructions`, which the judge obeys, and
`# Question`, whose `{{slots}}` take the judged data. Data comes from whoever talks to the LVLMs, so it may
hold instructions, forged fences or a chat template's own tokens; `fence` is why none of that gets out. What
a model under test or a generator is asked is a file without parts, which is asked as it stands.

A user's own files can stand in place of the package's; a digest of prompts then says of which.
"""

import functools
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from typing import TypeVar

import msgspec

from groundwatch.events import OWN_PROMPTS, Reference
from groundwatch.keys import digest

T = TypeVar("T")

_PARTS = re.compile(r"\A# Instructions\n(?P<system>.*?)^# Question\n(?P<user>.*)\Z", re.DOTALL | re.MULTILINE)
HEADINGS = ("# Instructions", "# Question")
_SLOT = re.compile(r"\{\{(\w+)\}\}")
_OPENS = re.compile(
    r"[<＜](?=[<＜|｜/!?_]|[^\W\d]|0x)"  # <|im_start|>, </s>, <image>, <<SYS>>, <用户>, <0x0A>
    r"|[\[［](?=/?(?:[A-Z][A-Z0-9_]+|[gs]MASK|control_\d+)[\]］]|[|｜])"  # [/INST], [IMG], [gMASK], [|user|]
)
_CLOSES = re.compile(r"[>＞](?=[>＞])")
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
NOTHING_KNOWN = "(nothing: look at what is attached)"

FENCE = "2"
"""Raised when the same text would stand otherwise in a prompt: it is part of each prompt's digest."""

_SCHEMA_NOTES = ("title", "description", "default")


class Form(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of the forms of replies: strict, as their schemas are."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One question to an LLM: its prompt, already filled in, and the form that its reply must have.

    `system` holds the instructions; `user` holds the data that is judged, fenced by the prompt file so
    that it cannot be mistaken for instructions. `images` says whether the response's images go along.
    `written` reads a reply in the paper's own format, from its text and the JSON values in it; it is there
    where the words are the user's own.
    """

    name: str
    system: str
    user: str
    form: type[Form]
    images: bool = True
    written: Callable[[str, Sequence[object]], object] | None = None

    @property
    def schema(self) -> dict[str, object]:
        """The form as JSON Schema."""
        return reply_schema(self.form)


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt file. `digest` is over its bytes and the fence: another wording is another judge.

    `own` names the user's own file, such as `valor/match-names`; it is empty for the package's.
    """

    name: str
    system: str
    user: str
    digest: str
    own: str = ""

    @property
    def slots(self) -> list[str]:
        return sorted({f"{{{{{name}}}}}" for name in _SLOT.findall(self.user)})

    def fill(self, **data: str) -> str:
        """The question with each slot taken by its data, fenced. Raises `KeyError` for a slot without data.

        Filled in one pass, so that data which looks like a slot stays as it is.
        """
        return _SLOT.sub(lambda slot: fence(slot[1], data[slot[1]]), self.user)

    def step(
        self,
        form: type[Form],
        written: Callable[[str, Sequence[object]], object] | None = None,
        **data: str,
    ) -> Step:
        return Step(
            name=self.name,
            system=self.system,
            user=self.fill(**data),
            form=form,
            written=written if self.own else None,
        )


_QUESTION = "{{question}}"

_own: dict[tuple[str, str], Prompt] = {}


def use(own: Mapping[tuple[str, str], Prompt]) -> None:
    """Let `load` find these, by package and name, in place of the packages' own."""
    global _own
    _own = dict(own)


def load(package: str, name: str) -> Prompt:
    """The user's own prompt of this name, or `prompts/<name>.md` of a protocol's package."""
    return _own.get((package, name)) or _packaged(package, name)


@functools.cache
def _packaged(package: str, name: str) -> Prompt:
    try:
        return _read(name, resources.files(package).joinpath("prompts", f"{name}.md").read_bytes())
    except ValueError as error:
        raise ValueError(f"prompt '{name}' of {package} {error}") from error


def packaged_names(package: str) -> list[str]:
    """The prompts that a package brings."""
    folder = resources.files(package).joinpath("prompts")
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(one.name.removesuffix(".md") for one in found if one.name.endswith(".md"))


def read_own(raw: bytes, package: str, name: str, own: str) -> Prompt:
    """A user's file in place of a package's. Raises `ValueError` for one that cannot take its place."""
    ours, found = _packaged(package, name), _read(name, raw, own)
    if found.digest == ours.digest:
        return ours
    if bool(ours.system) != bool(found.system):
        parts = " and then ".join(HEADINGS)
        raise ValueError(f"needs {parts}" if ours.system else f"is asked as it stands: leave out {parts}")
    # A judge has the question as context alone: some of the papers' prompts do without it.
    needed = [slot for slot in ours.slots if not (ours.system and slot == _QUESTION)]
    if not set(needed) <= set(found.slots) <= set(ours.slots) or _SLOT.search(found.system):
        slots = " and ".join(needed) or "no placeholder"
        where = " behind '# Question'" if ours.system else ""
        other = "no other" if needed == ours.slots else f"no other but {_QUESTION}"
        raise ValueError(f"must hold {slots}{where} and {other}, and holds {' '.join(found.slots) or 'none'}")
    return found


def _read(name: str, raw: bytes, own: str = "") -> Prompt:
    text = raw.decode("utf-8-sig").replace("\r\n", "\n").strip()
    if not text:
        raise ValueError("is empty")
    parts = _PARTS.match(text)
    if parts is None and text.startswith(HEADINGS):
        raise ValueError(f"needs {' and then '.join(HEADINGS)}")
    return Prompt(
        name=name,
        system=parts["system"].strip() if parts else "",
        user=parts["user"].strip() if parts else text,
        digest=hashlib.sha256(raw + f"\nfence {FENCE}".encode()).hexdigest(),
        own=own,
    )


def combined_digest(prompts: Sequence[Prompt]) -> str:
    """One digest for the prompts that a stage uses, in order, as `marked` writes it."""
    return marked(digest(*(prompt.digest for prompt in prompts)), prompts)


def marked(hex_digest: str, prompts: Iterable[Prompt]) -> str:
    """Sixteen digits of a digest, followed by the names of those prompts that are the user's own."""
    names = [prompt.own for prompt in prompts if prompt.own]
    return f"{hex_digest[:16]}{OWN_PROMPTS}{' '.join(names)}" if names else hex_digest[:16]


def spoken(text: str) -> list[Prompt]:
    """The user's own prompts that are asked as they stand, and are these words, but for what is filled in."""
    return [one for one in _own.values() if not one.system and _SLOT.sub("", one.user) == text]


def own_tags(text: str) -> dict[str, str]:
    """The tag of an answer to these words where they are the user's own: their file, and its digest."""
    own = "".join(f"{one.own} {one.digest[:8]}" for one in spoken(text))
    return {"prompt": own} if own else {}


def asked_digest(text: str) -> str:
    """Digest of what a model under test or a generator is asked, as `combined_digest` writes one."""
    return marked(digest(text), spoken(text))


def fence(name: str, text: str) -> str:
    """Put `text` between two lines that it cannot contain.

    The lines carry a seal computed from the text itself, so that no text can hold its own; a judge that
    does not compare seals is helped by taking apart what looks like a fence or like a chat template's
    token, which some servers would obey wherever it stands.
    """
    body = _CONTROLS.sub("\ufffd", taken_apart(text))
    seal = digest(name, body)[:16]
    return f"<<<{name} {seal}\n{body}\n{seal} {name}>>>"


def taken_apart(text: str) -> str:
    """The text with a space in every structural token of a chat template: `< |im_end|>`, `[ /INST]`.

    All else stays: `a < b`, `[1]`, `[a dog]`.
    """
    return _CLOSES.sub(lambda found: f"{found[0]} ", _OPENS.sub(lambda found: f"{found[0]} ", text))


def numbered(texts: Iterable[tuple[int, str]]) -> str:
    """A list with its numbers, each text on one line as a JSON string, so that no text can forge an item."""
    return "\n".join(f"{index}: {quoted(text)}" for index, text in texts) or "(none)"


def quoted(text: str) -> str:
    return json.dumps(" ".join(text.split()), ensure_ascii=False)


def described(reference: Reference | None) -> str:
    """The reference line by line, its texts as JSON strings, so that none can pass for another line."""
    if reference is None:
        return NOTHING_KNOWN
    lines = [f"complete: {'yes' if reference.complete else 'no'}"]
    lines += [f"{'true' if fact.holds else 'false'}: {quoted(fact.text)}" for fact in reference.facts]
    lines += [f"object: {quoted(name)}" for name in reference.objects]
    lines += [f"triplet: {' '.join(map(quoted, triplet))}" for triplet in reference.triplets]
    return "\n".join(lines)


def account(what: str, given: list[int], number: int) -> None:
    """Raises `ValueError` unless each index below `number` is given exactly once."""
    expected = set(range(number))
    for indexes, fault in (
        (set(given) - expected, "does not exist"),
        ({index for index, times in Counter(given).items() if times > 1}, "is there twice"),
        (expected.difference(given), "is missing"),
    ):
        if indexes:
            raise ValueError(f"{what} {min(indexes)} {fault} ({len(indexes)} such)")


def reply_schema(form: type[msgspec.Struct]) -> dict[str, object]:
    """The JSON Schema of a reply, as strict structured output demands it.

    Strict mode takes no reference at the top, wants every property required, no others allowed, and a type
    beside every enumeration.
    """
    schema = msgspec.json.schema(form)
    resolved = _resolve(schema, schema.get("$defs", {}))
    assert isinstance(resolved, dict)
    return resolved


def read_reply(reply: object, form: type[T]) -> T:
    try:
        return msgspec.convert(reply, form)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error


def _resolve(node: object, definitions: dict[str, object]) -> object:
    if isinstance(node, list):
        return [_resolve(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _resolve(definitions[node["$ref"].rpartition("/")[2]], definitions)
    properties = node.get("properties")
    plain = {
        key: _resolve(value, definitions)
        for key, value in node.items()
        if key not in (*_SCHEMA_NOTES, "$defs", "properties")
    }
    if isinstance(properties, dict):
        plain["properties"] = {name: _resolve(value, definitions) for name, value in properties.items()}
        plain["required"] = list(properties)
        plain["additionalProperties"] = False
    choices = plain.get("enum")
    if isinstance(choices, list) and all(isinstance(choice, str) for choice in choices):
        plain = {"type": "string", **plain}
    return plain
