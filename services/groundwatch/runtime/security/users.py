"""Users, seeds and the server's configuration as files: what `groundwatch admin auth DIR` writes.

A seed is a secret and stands in a file of its own that only its owner can read; everything else holds
public keys and names.
"""

import os
import shlex
import stat
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec
import nkeys

from groundwatch.errors import UsageError
from groundwatch.runtime.security.certificates import (
    CA_CERTIFICATE,
    SERVER_CERTIFICATE,
    SERVER_KEY,
    Change,
    certify,
)
from groundwatch.topology import COMMAND_LINE, permissions, users

AUTH_FILE = "auth.conf"
SERVER_FILE = "server.conf"
VALUES_FILE = "values-auth.yaml"
SECRETS_FILE = "secrets.sh"

SECRET_NAMES = "groundwatch-nats"
"""What the names of the Secrets begin with."""


class Wrote(msgspec.Struct, frozen=True):
    """What became of one file."""

    path: str
    change: Change


def seed_file(folder: Path, user: str) -> Path:
    """Where a user's seed is."""
    return folder / f"{user}.nk"


def write_auth(
    folder: Path, *, rotate: Collection[str] = (), retire: Collection[str] = (), hosts: Sequence[str] = ()
) -> list[Wrote]:
    """Write seeds, the server's configuration, chart values and the commands that make the Secrets.

    Safe to repeat: seeds that are there stay. Those of `rotate` are made anew, and the server goes on taking
    the former ones until they are in `retire`. `hosts` are the names and addresses of the servers, for
    certificates of an authority of our own. Raises `UsageError` naming what is wrong.
    """
    for name in (*rotate, *retire):
        if name not in users():
            raise UsageError(f"no NATS user '{name}'; there are {', '.join(users())}")
    if both := set(rotate) & set(retire):
        raise UsageError(
            f"{', '.join(sorted(both))}: retire a former seed when its services have the new one"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(stat.S_IRWXU)
        keys: dict[str, list[str]] = {}
        wrote = []
        for user in users():
            wrote += _seed(folder, user, rotate=user in rotate, retire=user in retire)
            keys[user] = [_public_key(seed_file(folder, user)), *_former(folder, user)]
        if hosts:
            wrote += [Wrote(str(path), change) for path, change in certify(folder, hosts)]
        tls = (folder / SERVER_CERTIFICATE).is_file()
        wrote.append(_put(folder / AUTH_FILE, server_users(keys)))
        wrote.append(_put(folder / SERVER_FILE, _server(folder, tls=tls)))
        wrote.append(_put(folder / VALUES_FILE, chart_values(tls=tls)))
        wrote.append(_put(folder / SECRETS_FILE, _commands(folder, tls=tls), mode=0o700))
    except OSError as error:
        raise UsageError(f"cannot write {error.filename or folder}: {error.strerror}") from error
    return wrote


def server_users(keys: dict[str, list[str]]) -> str:
    """The `authorization` block: every user with its public keys and exactly its rights."""
    blocks = [_user(user, key) for user, public in keys.items() for key in public]
    return (
        "# Written by groundwatch admin auth: public keys and rights, no secrets.\n"
        "authorization {\n  users = [\n" + "\n".join(blocks) + "\n  ]\n}\n"
    )


def chart_values(*, tls: bool) -> str:
    """Values for the chart: names of Secrets, never what is in them."""
    lines = [
        "# Written by groundwatch admin auth: names of Secrets, which secrets.sh makes.",
        "nats:",
        "  auth:",
        "    enabled: true",
        f"    serverConfigSecret: {SECRET_NAMES}-auth",
        *([f"    caSecret: {SECRET_NAMES}-ca"] if tls else []),
        "    secrets:",
        *(f"      {user}: {SECRET_NAMES}-{user}" for user in users() if user != COMMAND_LINE),
        *(["  tls:", f"    secret: {SECRET_NAMES}-tls"] if tls else []),
    ]
    return "\n".join(lines) + "\n"


def _user(user: str, key: str) -> str:
    rights = permissions(user)

    def listed(subjects: Sequence[str]) -> str:
        inner = "".join(f'\n          "{one}"' for one in subjects)
        return f"[{inner}\n        ]" if subjects else "[]"

    denied = f"\n        deny = {listed(rights.publish_denied)}" if rights.publish_denied else ""
    return (
        f"    # {user}\n"
        f"    {{\n"
        f"      nkey = {key}\n"
        f'      allowed_connection_types = ["STANDARD"]\n'
        f"      permissions = {{\n"
        f"       publish = {{\n"
        f"        allow = {listed(rights.publish)}{denied}\n"
        f"       }}\n"
        f"       subscribe = {{\n"
        f"        allow = {listed(rights.subscribe)}\n"
        f"       }}\n"
        f"      }}\n"
        f"    }}"
    )


def _server(folder: Path, *, tls: bool) -> str:
    lines = [
        "# Written by groundwatch admin auth. Include this file in the configuration of nats-server.",
        f"include ./{AUTH_FILE}",
    ]
    if tls:
        here = folder.resolve()
        lines += [
            "tls {",
            f'  cert_file: "{here / SERVER_CERTIFICATE}"',
            f'  key_file: "{here / SERVER_KEY}"',
            '  min_version: "1.2"',
            "  timeout: 5",
            "}",
        ]
    else:
        lines += [
            "# TLS: groundwatch admin auth can write certificates of an authority of its own; or name yours.",
            '# tls { cert_file: "server.crt", key_file: "server.key", min_version: "1.2" }',
        ]
    return "\n".join(lines) + "\n"


def _commands(folder: Path, *, tls: bool) -> str:
    """A script for kubectl: secrets go from the files into the cluster, and nowhere else."""
    here = shlex.quote(str(folder.resolve()))
    apply = "--dry-run=client -o yaml | kubectl apply -f -"

    def secret(name: str, *files: str) -> str:
        given = " ".join(f"--from-file={one}" for one in files)
        return f"kubectl create secret generic {SECRET_NAMES}-{name} {given} {apply}"

    lines = [
        "#!/bin/sh",
        "# Written by groundwatch admin auth. Makes the Secrets that values-auth.yaml names, in the",
        "# namespace that kubectl works in; safe to repeat.",
        "set -eu",
        f"cd {here}",
        *(secret(user, f"seed={user}.nk") for user in users() if user != COMMAND_LINE),
        secret("auth", AUTH_FILE),
    ]
    if tls:
        lines.append(secret("ca", CA_CERTIFICATE))
        named = (f"tls.crt={SERVER_CERTIFICATE}", f"tls.key={SERVER_KEY}", CA_CERTIFICATE)
        lines.append(secret("tls", *named))
    return "\n".join(lines) + "\n"


def _seed(folder: Path, user: str, *, rotate: bool, retire: bool) -> list[Wrote]:
    path, former = seed_file(folder, user), _former_file(folder, user)
    wrote = []
    if retire and former.exists():
        former.unlink()
        wrote.append(Wrote(str(former), "updated"))
    there = path.exists()
    if there and rotate:
        keys = [_public_key(path), *_former(folder, user)]
        wrote.append(_put(former, "\n".join(keys) + "\n"))
    if there and not rotate:
        path.chmod(0o600)
        return [*wrote, Wrote(str(path), "unchanged")]
    seed: bytes = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
    _put(path, seed.decode() + "\n", mode=0o600)
    return [*wrote, Wrote(str(path), "updated" if there else "created")]


def _former_file(folder: Path, user: str) -> Path:
    return folder / f"{user}.former"


def _former(folder: Path, user: str) -> list[str]:
    path = _former_file(folder, user)
    return path.read_text().split() if path.exists() else []


def _public_key(path: Path) -> str:
    """Of the seed in this file. Raises `UsageError` when it holds none."""
    try:
        key: bytes = nkeys.from_seed(bytearray(path.read_bytes().strip())).public_key
    except (nkeys.NkeysError, ValueError, TypeError) as error:
        raise UsageError(f"{path} holds no nkey seed: remove it, and a new one is made") from error
    return key.decode()


def _put(path: Path, text: str, *, mode: int = 0o644) -> Wrote:
    """Write a file in one piece, never readable by more than `mode` says."""
    there = path.exists()
    if there and path.read_text() == text and stat.S_IMODE(path.stat().st_mode) == mode:
        return Wrote(str(path), "unchanged")
    scratch = path.with_name(f".{path.name}.new")
    scratch.unlink(missing_ok=True)
    with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    scratch.chmod(mode)
    scratch.replace(path)
    return Wrote(str(path), "updated" if there else "created")
