"""Secrets that settings name: by the file that holds one, or by the variable."""

import os
from collections.abc import Mapping
from pathlib import Path

from groundwatch.addresses import shown_variable
from groundwatch.errors import SettingsError

MAX_BYTES = 64 * 1024


def read_secret(setting: str, *, file: str, env: str, environment: Mapping[str, str] | None = None) -> str:
    """The secret that `SETTING_file` or `SETTING_env` names; empty where neither does. Raises
    `SettingsError`."""
    if env:
        secret = (os.environ if environment is None else environment).get(env, "").strip()
        if not secret:
            told = shown_variable(env)
            raise SettingsError(f"setting '{setting}_env': the variable {told} is not set or empty")
        return secret
    if not file:
        return ""
    try:
        with Path(file).open("rb") as opened:
            secret = opened.read(MAX_BYTES).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise SettingsError(f"setting '{setting}_file': cannot read {file} ({why})") from error
    if not secret:
        raise SettingsError(f"setting '{setting}_file': {file} is empty")
    return secret
