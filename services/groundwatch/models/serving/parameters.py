"""Parameters of a served model, from the strings of its `config.pbtxt`."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from groundwatch.models.serving.failures import CheckpointError

TEMPLATE_FILE = "groundwatch.json"
"""A checkpoint may bring its own wording: `statement_template`, `yes` and `no` in this file; and `words`,
where it was taught no others."""

SLOT = "{statement}"
DEFAULT_TEMPLATE = Path(__file__).with_name("statement.md").read_text("utf-8").strip()
"""FaithScore's question to its verifier, for checkpoints that bring none."""

_WORD = re.compile(r"\w+")
_MATTERS = (".safetensors", ".bin", ".json", ".jinja", ".txt", ".model", ".py")


class Parameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a checkpoint is loaded and asked; in `config.pbtxt` the keys are in capitals.

    `model_id` is a folder or a name on the Hugging Face hub, `revision` its commit there;
    `weights_sha256`, when given, must be what `checkpoint_digest` finds in the folder. `dtype` half is
    bfloat16 on a GPU; `device` is auto, cpu, cuda or cuda:N. Sizes in bytes, pixels and tokens;
    `max_prompt_tokens` 0 means what the checkpoint allows, `max_tokens` bounds an answer. `max_rows` bounds
    the rows of one forward pass. `prefix` whole asks a verifier each statement in a prompt of its own, where
    statements about an image share what comes before them; auto does so where sharing is shown to be wrong.
    `yes` and `no` are spellings between commas. `pooling` and `steps` are for encoders and generators;
    `threads` 0 leaves the number of CPU threads alone.

    A detector tells boxes with a score of at least `threshold`, at most `max_boxes` for each of at most
    `max_texts` phrases; of two boxes for the same phrase whose intersection over union is more than
    `max_overlap` it tells the surer one.
    """

    model_id: str
    revision: str = ""
    weights_sha256: str = ""
    dtype: Literal["auto", "half", "float32", "bfloat16", "float16"] = "auto"
    device: str = "auto"
    max_image_bytes: int = 20 * 1024 * 1024
    max_image_pixels: int = 40_000_000
    max_images: int = 16
    max_prompt_tokens: int = 0
    max_tokens: int = 1024
    max_statements: int = 512
    max_rows: int = 32
    prefix: Literal["shared", "whole", "auto"] = "shared"
    system_prompt: str = ""
    prompt_template: str = ""
    yes: str = ""
    no: str = ""
    pooling: Literal["auto", "cls", "mean", "pooler"] = "auto"
    steps: int = 0
    image_size: int = 0
    guidance: float = -1.0
    threshold: float = 0.05
    max_boxes: int = 100
    max_texts: int = 64
    max_overlap: float = 0.5
    threads: int = 0

    @property
    def folder(self) -> Path | None:
        path = Path(self.model_id)
        return path if path.is_dir() else None


def read(strings: Mapping[str, str]) -> Parameters:
    """Parameters of Triton's configuration; empty values mean the default. Raises `CheckpointError`."""
    known = {field.name for field in msgspec.structs.fields(Parameters)}
    values = {key.lower(): value for key, value in strings.items() if value != "" and key.lower() in known}
    if not values.get("model_id"):
        raise CheckpointError("parameter MODEL_ID is empty: name a checkpoint's folder or a model on the hub")
    try:
        return msgspec.convert(values, Parameters, strict=False)
    except msgspec.ValidationError as error:
        raise CheckpointError(f"parameters of the model: {error}") from error


class Wording(msgspec.Struct, frozen=True, kw_only=True):
    """How a verifier is asked: `template` holds `{statement}`; spellings of the two answers.

    `words` are all that its statements may have, where it knows no others; empty for any.
    """

    template: str
    yes: tuple[str, ...]
    no: tuple[str, ...]
    words: frozenset[str] = frozenset()

    def unknown(self, statement: str) -> set[str]:
        """The words of a statement of which this verifier knows nothing, so that it cannot judge it."""
        return set(_WORD.findall(statement.lower())) - self.words if self.words else set()


def wording(parameters: Parameters) -> Wording:
    """From the parameters, else from the checkpoint, else the default. Raises `CheckpointError`."""
    own: dict[str, object] = {}
    folder = parameters.folder
    if folder is not None and (file := folder / TEMPLATE_FILE).is_file():
        try:
            own = msgspec.convert(json.loads(file.read_text("utf-8")), dict[str, object])
        except ValueError as error:
            raise CheckpointError(f"{file}: {error}") from error
    template = parameters.prompt_template or str(own.get("statement_template") or DEFAULT_TEMPLATE)
    if template.count(SLOT) != 1:
        raise CheckpointError(f"the statement's template must hold {SLOT} once: {template!r}")
    return Wording(
        template=template,
        yes=_spellings(parameters.yes or own.get("yes") or "yes,Yes,YES"),
        no=_spellings(parameters.no or own.get("no") or "no,No,NO"),
        words=frozenset(_spellings(own.get("words") or [])),
    )


def checkpoint_digest(folder: Path, suffixes: Sequence[str] = _MATTERS) -> str:
    """SHA-256 over the names and bytes of all files that make the checkpoint answer as it does."""
    whole = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix in suffixes:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            whole.update(f"{path.relative_to(folder).as_posix()} {digest}\n".encode())
    return whole.hexdigest()


def _spellings(value: object) -> tuple[str, ...]:
    words = value.split(",") if isinstance(value, str) else value
    return tuple(str(word).strip() for word in words) if isinstance(words, list) else ()
