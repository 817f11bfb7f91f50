"""Files, addresses and keys that settings name: whether they are there and can be what they should be."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from groundwatch.addresses import shown_address, shown_variable
from groundwatch.cli.config_engines import ENGINES, named_engine
from groundwatch.cli.config_reading import Problems
from groundwatch.errors import SettingsError
from groundwatch.models.openai.settings import ChatSettings
from groundwatch.runtime.security.connecting import security
from groundwatch.runtime.services.judges import with_judge
from groundwatch.runtime.settings.nats_addresses import nats_servers
from groundwatch.runtime.settings.tree import NatsSettings, Settings

ASKING = ("llm", "visual", "openai")
"""Engines that ask the endpoint in their stage's `llm`."""

ROUTES = ("/chat/completions", "/completions", "/embeddings", "/images/generations", "/responses")
_VERSION = re.compile(r"/v\d+[a-z0-9]*(/|$)")
_LOCAL_ENDINGS = (".local", ".internal", ".svc", ".lan", ".localhost", ".home.arpa")


def place_problems(
    settings: Settings, environment: Mapping[str, str], stages: tuple[str, ...], problems: Problems
) -> None:
    """Look at everything that is named; nothing is asked over the network."""
    _check_nats(settings.nats, problems)
    _check_folder("data_dir", settings.data_dir, problems)
    if settings.triton.tls_ca:
        _check_file("triton.tls_ca", settings.triton.tls_ca, problems)
        if not settings.triton.tls:
            problems.note("triton.tls_ca", "is not used while triton.tls is false")
    for key, chat, used in _endpoints(settings, stages):
        if not used:
            problems.note(key, "is not used by the engine that is set")
            continue
        _check_url(f"{key}.base_url", chat.base_url, problems)
        _check_key(f"{key}.api_key_env", chat.api_key_env, chat.base_url, environment, problems)
    # A container of one stage carries out no replay, and so has no keys for its judges.
    for key, chat in _of_judges(settings) if set(stages) == set(ENGINES) else ():
        _check_url(f"{key}.base_url", chat.base_url, problems)
        _check_key(f"{key}.api_key_env", chat.api_key_env, chat.base_url, environment, problems)
    images = settings.images
    if images.encoder_url and "generation" in stages:
        _check_url("images.encoder_url", images.encoder_url, problems)
        _check_key(
            "images.encoder_key_env", images.encoder_key_env, images.encoder_url, environment, problems
        )


def _endpoints(settings: Settings, stages: tuple[str, ...]) -> Iterator[tuple[str, ChatSettings, bool]]:
    for stage in stages:
        if stage == "captioning":
            used = named_engine(settings, stage) == "openai"
            for name, model in settings.captioning.models.items():
                yield f"captioning.models.{name}", model, used
        elif (chat := getattr(settings, stage).llm) is not None:
            yield f"{stage}.llm", chat, named_engine(settings, stage) in ASKING


def _of_judges(settings: Settings) -> Iterator[tuple[str, ChatSettings]]:
    """The endpoints that named judges have of their own."""
    for name, tables in settings.judges.items():
        judge = with_judge(settings, name)
        for stage in tables:
            chat = getattr(getattr(judge, stage), "llm", None)
            if chat is not None and "llm" in tables[stage]:
                yield f"judges.{name}.{stage}.llm", chat


def _check_nats(nats: NatsSettings, problems: Problems) -> None:
    if not nats.url:
        problems.note(
            "nats.url", "is empty: groundwatch up starts a server, groundwatch serve needs one named"
        )
    try:
        nats_servers(nats.url)
    except SettingsError as error:
        problems.add_error(error)
    empty = NatsSettings()
    alone = (
        msgspec.structs.replace(empty, tls_ca=nats.tls_ca, tls_cert=nats.tls_cert, tls_key=nats.tls_key),
        msgspec.structs.replace(empty, nkey_seed_file=nats.nkey_seed_file),
        msgspec.structs.replace(empty, credentials=nats.credentials),
        msgspec.structs.replace(empty, nkey_seed_file=nats.nkey_seed_file, credentials=nats.credentials),
    )
    for part in alone:
        try:
            security(part)
        except SettingsError as error:
            problems.add_error(error)


def _check_file(key: str, path: str, problems: Problems) -> None:
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        problems.add(key, f"{path} cannot be read: {error.strerror}")


def _check_folder(key: str, path: str, problems: Problems) -> None:
    if not path:
        return
    folder = Path(path).expanduser()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        problems.add(key, f"{path} cannot be written: {folder} is no folder that this user may write to")


def _check_url(key: str, url: str, problems: Problems) -> None:
    told = shown_address(url)
    try:
        parts = urlsplit(url)
    except ValueError:
        problems.add(key, f"'{told}' is no address")
        return
    path = parts.path.rstrip("/")
    if not parts.hostname:
        problems.add(key, f"'{told}' names no host")
    elif route := next((one for one in ROUTES if path.endswith(one)), ""):
        problems.add(key, f"leave out {route}: the address ends with /v1")
    elif not path:
        problems.add(key, f"'{told}' has no path: OpenAI-compatible endpoints end with /v1")
    elif not _VERSION.search(path):
        problems.note(
            key,
            f"'{told}' has no version such as /v1 in it: right only for a server without one",
        )


def _check_key(key: str, variable: str, url: str, environment: Mapping[str, str], problems: Problems) -> None:
    if environment.get(variable):
        return
    default = ChatSettings(base_url="http://localhost", model="-").api_key_env
    if variable != default or not is_local(urlsplit(url).hostname or ""):
        name = shown_variable(variable)
        problems.add(
            key, f"the variable {name} is not set or empty, and holds the key for {shown_address(url)}"
        )


def is_local(host: str) -> bool:
    """Whether a host is this machine's or this network's, where servers often take no key."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "." not in host or host.endswith(_LOCAL_ENDINGS)
    return address.is_private or address.is_loopback or address.is_link_local
