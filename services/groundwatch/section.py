"""What a section of the settings is made of: frozen, with no unknown keys, every value within its bounds."""

import re
from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

Key = tuple[str | int, ...]
"""Where a setting stands: names of tables and numbers in lists, from the outermost."""

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]
AtLeastOne = Annotated[int, Field(ge=1)]
Port = Annotated[int, Field(ge=0, le=65535)]
Named = Annotated[str, Field(min_length=1)]


def _http_address(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ValueError("must be an http(s) address")
    return url


HttpAddress = Annotated[
    str, AfterValidator(_http_address), Field(json_schema_extra={"pattern": "^https?://"})
]

NO_SUCH = "no such setting"

_WORDS = {
    "extra_forbidden": NO_SUCH,
    "missing": "is missing",
    "model_type": "is a value, not a section",
    "dict_type": "is a value, not a section",
    "tuple_type": "must be a list",
    "string_too_short": "must be named",
}


class Section(BaseModel):
    """Base of all settings: a misspelled key is an error, not a default; no error shows a value."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)


def wrong(key: str, why: str) -> PydanticCustomError:
    """What a section's check of several keys raises; `key` is the one to change, below that section."""
    return PydanticCustomError("setting", "{why}", {"key": key, "why": why})


def explained(error: ValidationError) -> Iterator[tuple[Key, str]]:
    """Every key that is wrong, and why, without its value."""
    for one in error.errors(include_url=False, include_input=False):
        key = one["ctx"]["key"].split(".") if one["type"] == "setting" else ()
        inner = (int(part) if part.isdigit() else part for part in key)
        why = re.sub(r"^(Input|String|Value error,) ?(should)?", "", one["msg"])
        why = f"must{why}" if " should " in one["msg"] else why.strip()
        why = why.partition(", unable")[0]
        why = why.replace("greater than or equal to", "at least").replace("less than or equal to", "at most")
        yield (*(part for part in one["loc"] if part != "[key]"), *inner), _WORDS.get(one["type"], why)


def dotted(key: Key) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key).lstrip(".")


def in_words(error: ValidationError) -> str:
    return "; ".join(f"{dotted(key)} {why}".strip() for key, why in explained(error))
