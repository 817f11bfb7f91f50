"""Writes a Triton model repository: which checkpoints are served under which names, from the templates.

A served model's version in Triton is made from its files and parameters. So a response that was cached for
one checkpoint is never given for another that was loaded under the same name later.
"""

import hashlib
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from groundwatch import toml
from groundwatch.errors import FileFormatError, UsageError
from groundwatch.models.serving.parameters import checkpoint_digest

TEMPLATES = Path(__file__).with_name("triton_models")
PRESETS = Path(__file__).with_name("presets")
"""Files of served models that can be named without their path: checkpoints on the hub, by their commits."""

KINDS = ("lvlm", "verifier", "image_encoder", "text_encoder", "generator", "detector")

HUB_TIMEOUT = 10.0
"""Seconds until a hub that does not answer is taken for absent."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_PARAMETER = re.compile(r'^parameters \{ key: "(\w+)" value \{ string_value: "(.*)" \} \}\n?', re.MULTILINE)


class ServedModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A checkpoint under a name. `kind` is a template; `parameters` are its, in capitals or not.

    `checkpoint` is a folder or a name on the Hugging Face hub. `memory` and `licence` are for who reads them.
    """

    kind: str
    checkpoint: str
    parameters: dict[str, str | int | float] = {}
    memory: str = ""
    licence: str = ""

    @property
    def told(self) -> str:
        """What is served, in a line."""
        revision = str(self.parameters.get("revision", ""))[:8]
        where = f"{self.checkpoint} {revision}".rstrip()
        return ", ".join(filter(None, (where, self.memory, self.licence)))


def read_manifest(path: Path) -> dict[str, ServedModel]:
    """Served models by name, from a TOML file with one table for each.

    A checkpoint that begins with `./` or `../` is looked for beside the file. Raises `FileFormatError`.
    """
    try:
        found = msgspec.convert(toml.read(path), dict[str, ServedModel])
    except OSError as error:
        raise FileFormatError(path, f"cannot be read: {error.strerror}") from error
    except toml.NotToml as error:
        raise FileFormatError(path, f"is not TOML: {error}") from error
    except msgspec.ValidationError as error:
        raise FileFormatError(path, str(error)) from error
    if not found:
        raise FileFormatError(path, "names no model")
    return {
        name: msgspec.structs.replace(one, checkpoint=str((path.parent / one.checkpoint).resolve()))
        if one.checkpoint.startswith(("./", "../"))
        else one
        for name, one in found.items()
    }


def found_in(folder: Path) -> dict[str, ServedModel]:
    """The checkpoints in a folder's subfolders, each under its folder's name.

    A file `served.toml` in the folder says it all instead. Else what a checkpoint is, its files tell; a
    vision-language one is a detector when its architecture is one, a verifier when its name begins so, and
    LVLM otherwise. One thread each: the processes of several small models would else fight for the cores.
    """
    if (manifest := folder / "served.toml").is_file():
        return read_manifest(manifest)
    found = {}
    for path in sorted(folder.iterdir()):
        if path.is_dir() and (kind := _kind_of(path)):
            where = str(path.resolve())
            found[path.name] = ServedModel(kind=kind, checkpoint=where, parameters={"threads": 1})
    return found


def write_repository(folder: Path, models: Mapping[str, ServedModel], *, paths: Sequence[str] = ()) -> None:
    """Make `folder` a repository of exactly `models`. Raises `UsageError` naming what is wrong.

    `paths` are for a Triton whose Python would not find this package and its dependencies by itself.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, model in models.items():
        write_model(folder, name, model, paths=paths)
    for path in folder.iterdir():
        if path.is_dir() and path.name not in models and (path / "config.pbtxt").is_file():
            shutil.rmtree(path)


def write_model(folder: Path, name: str, model: ServedModel, *, paths: Sequence[str] = ()) -> int:
    if not _NAME.fullmatch(name):
        raise UsageError(f"model name '{name}': letters, digits, '_', '-' and '.' only")
    if model.kind not in KINDS:
        raise UsageError(f"model '{name}': no kind '{model.kind}'; there are {', '.join(KINDS)}")
    template = TEMPLATES / model.kind
    text = (template / "config.pbtxt").read_text("utf-8")
    stated = {key.upper(): str(value) for key, value in model.parameters.items()}
    parameters = dict(_PARAMETER.findall(text)) | stated | {"MODEL_ID": model.checkpoint}
    checkpoint = Path(model.checkpoint)
    if checkpoint.is_dir():
        parameters["WEIGHTS_SHA256"] = checkpoint_digest(checkpoint)
    elif checkpoint.is_absolute():
        raise UsageError(f"model '{name}': there is no checkpoint {checkpoint}")
    version = _version(template, parameters)
    policy = f"version_policy {{ specific {{ versions: [ {version} ] }} }}"
    config = f"{_PARAMETER.sub('', text).rstrip()}\n\n{policy}\n\n{_as_text(parameters)}"
    target = folder / name
    place = target / str(version)
    place.mkdir(parents=True, exist_ok=True)
    for path in (template / "1").iterdir():
        if path.is_file():
            shutil.copyfile(path, place / path.name)
    if paths:
        code = (place / "model.py").read_text("utf-8")
        (place / "model.py").write_text(f"import sys\n\nsys.path[:0] = {list(paths)!r}\n\n{code}", "utf-8")
    (target / "config.pbtxt").write_text(config, "utf-8")
    for path in target.iterdir():
        if path.is_dir() and path != place:
            shutil.rmtree(path)
    return version


def missing_checkpoints(models: Mapping[str, ServedModel]) -> Sequence[str]:
    return [
        one.checkpoint
        for one in models.values()
        if Path(one.checkpoint).is_absolute() and not Path(one.checkpoint).is_dir()
    ]


def not_to_be_had(models: Mapping[str, ServedModel]) -> str:
    """Why the first checkpoint that is neither in the hub's cache nor to be had from it cannot be served.

    Empty where all can, and where the library for the hub is not installed.
    """
    try:
        from huggingface_hub import HfApi, try_to_load_from_cache
    except ImportError:
        return ""
    for name, one in models.items():
        revision = str(one.parameters.get("revision", "")) or None
        if Path(one.checkpoint).is_absolute() or isinstance(
            try_to_load_from_cache(one.checkpoint, "config.json", revision=revision), str
        ):
            continue
        try:
            HfApi().model_info(one.checkpoint, revision=revision, timeout=HUB_TIMEOUT)
        except Exception as error:
            why = str(error).strip().partition("\n")[0][:200] or type(error).__name__
            return (
                f"model '{name}': {one.checkpoint} is not in the hub's cache here, and the hub does not give "
                f"it ({why}): fetch it where the hub can be reached, and name its folder in a TOML file"
            )
    return ""


def _kind_of(checkpoint: Path) -> str:
    if (checkpoint / "model_index.json").is_file():
        return "generator"
    if (checkpoint / "modules.json").is_file():
        return "text_encoder"
    if not (checkpoint / "config.json").is_file():
        return ""
    if (checkpoint / "tokenizer.json").is_file() or (checkpoint / "tokenizer_config.json").is_file():
        if 'ForObjectDetection"' in (checkpoint / "config.json").read_text("utf-8", "replace"):
            return "detector"
        return "verifier" if checkpoint.name.startswith("verifier") else "lvlm"
    return "image_encoder" if (checkpoint / "preprocessor_config.json").is_file() else ""


def _version(template: Path, parameters: Mapping[str, Any]) -> int:
    """A positive number of 31 bits over everything that decides what the model answers."""
    code = "".join(path.read_text("utf-8") for path in sorted((template / "1").glob("*.py")))
    whole = hashlib.sha256(f"{code}\n{_as_text(parameters)}".encode()).digest()
    return int.from_bytes(whole[:4], "big") % 0x7FFFFFFE + 1


def _as_text(parameters: Mapping[str, Any]) -> str:
    return "".join(
        f'parameters {{ key: "{key}" value {{ string_value: "{_quoted(str(value))}" }} }}\n'
        for key, value in sorted(parameters.items())
    )


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
