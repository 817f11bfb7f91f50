"""The secrets of receivers: from a file or a variable, read anew for each request, since they are changed."""

import base64
import binascii
import os
from pathlib import Path

from groundwatch.addresses import shown_variable
from groundwatch.errors import SettingsError
from groundwatch.runtime.settings.outflow import ReceiverSettings

PREFIX = "whsec_"
KEY_BYTES = range(24, 65)
"""As Standard Webhooks has it."""

MAX_BYTES = 64 * 1024


def read_secret(name: str, settings: ReceiverSettings) -> str:
    """What the receiver knows us by; empty where settings name none. Raises `SettingsError`."""
    where = f"setting 'outflow.receivers.{name}."
    if settings.secret_env:
        secret = os.environ.get(settings.secret_env, "").strip()
        if not secret:
            told = shown_variable(settings.secret_env)
            raise SettingsError(f"{where}secret_env': the variable {told} is not set")
        return secret
    if not settings.secret_file:
        return ""
    try:
        with Path(settings.secret_file).open("rb") as file:
            secret = file.read(MAX_BYTES).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is no text"
        raise SettingsError(f"{where}secret_file': {settings.secret_file}: {why}") from error
    if not secret:
        raise SettingsError(f"{where}secret_file': {settings.secret_file} is empty")
    return secret


def signing_keys(name: str, secret: str) -> list[bytes]:
    """The keys of a webhook, one a line: the first is in use, others are on their way out or in."""
    found = []
    for line in secret.splitlines():
        try:
            key = base64.b64decode(line.strip().removeprefix(PREFIX), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) not in KEY_BYTES:
            raise SettingsError(
                f"setting 'outflow.receivers.{name}': a key of a webhook is {PREFIX} and 24 to 64 random "
                f"bytes in base64: echo {PREFIX}$(openssl rand -base64 32)"
            )
        found.append(key)
    return found


def user_and_password(name: str, secret: str) -> tuple[str, str]:
    """Both keys of Langfuse, with a colon between."""
    user, colon, password = secret.partition(":")
    if not (user and colon and password) or "\n" in secret:
        raise SettingsError(
            f"setting 'outflow.receivers.{name}': the secret of Langfuse is its public and its secret key, "
            "with a colon between: pk-lf-…:sk-lf-…"
        )
    return user, password


def headers(name: str, secret: str) -> dict[str, str]:
    """Headers as OTEL_EXPORTER_OTLP_HEADERS has them: name=value, by commas; the names in lower case."""
    found = {}
    for pair in filter(None, (one.strip() for one in secret.replace("\n", ",").split(","))):
        key, equals, value = pair.partition("=")
        key, value = key.strip().lower(), value.strip()
        if not equals or not key.isascii() or not value.isascii() or not value.isprintable() or " " in key:
            raise SettingsError(
                f"setting 'outflow.receivers.{name}': the secret of a collector is a header, such as "
                "authorization=Bearer …; several by commas"
            )
        found[key] = value
    return found
