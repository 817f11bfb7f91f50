"""Whether the files, addresses, keys and engines that settings name are there and can be used."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from groundwatch.addresses import shown_address, shown_variable
from groundwatch.captioning import engines as captioning
from groundwatch.errors import MissingExtraError, SettingsError, UsageError
from groundwatch.extraction import engines as extraction
from groundwatch.gateway.auth import ELSEWHERE, Tokens, client_secret, cookie_secret
from groundwatch.generation import engines as generation
from groundwatch.matching import engines as matching
from groundwatch.models.settings import ChatSettings
from groundwatch.runtime.security.connecting import nats_servers, security
from groundwatch.runtime.settings import NatsSettings, Settings, StageSettings, held_at_once
from groundwatch.runtime.settings.gateway import GatewaySettings
from groundwatch.runtime.settings.judges import ASKING, CASCADE, EngineSettings
from groundwatch.runtime.settings.login import is_loopback
from groundwatch.runtime.settings.reading import Problems, with_judge, with_second_judge
from groundwatch.verification import engines as verification

if TYPE_CHECKING:
    from groundwatch.models.trial import Ability

ENGINES: dict[str, tuple[str, Callable[[Settings], Any]]] = {
    "extraction": (extraction.DEFAULT, lambda all_: extraction.build(all_.extraction)),
    "captioning": (captioning.DEFAULT, lambda all_: captioning.build(all_.captioning, triton=all_.triton)),
    "generation": (
        generation.DEFAULT,
        lambda all_: generation.build(all_.generation, images=all_.images, triton=all_.triton),
    ),
    "matching": (matching.DEFAULT, lambda all_: matching.build(all_.matching)),
    "verification": (
        "embedded",
        lambda all_: verification.build(
            all_.verification,
            load_image=_no_image,
            visual=all_.visual,
            triton=all_.triton,
            detector=all_.detector,
        ),
    ),
}
"""Each stage with engines: which one settings mean when they name none, and how it is made."""

ROUTES = ("/chat/completions", "/completions", "/embeddings", "/images/generations", "/responses")
_VERSION = re.compile(r"/v\d+[a-z0-9]*(/|$)")
_LOCAL_ENDINGS = (".local", ".internal", ".svc", ".lan", ".localhost", ".home.arpa")


async def _no_image(sha256: str) -> tuple[bytes, str]:
    raise LookupError(sha256)


def named_engine(settings: Settings, stage: str) -> str:
    return getattr(settings, stage).engine or ENGINES[stage][0]


async def check_settings(
    settings: Settings, environment: Mapping[str, str], stages: tuple[str, ...], problems: Problems
) -> None:
    """Look at everything that is named, and make each engine; no model is loaded and no server is asked."""
    _check_nats(settings.nats, problems)
    if set(stages) == set(ENGINES):
        # A container of one stage has none of the gateway's files.
        _check_access(settings.gateway, environment, problems)
    _check_folder("data_dir", settings.data_dir, problems)
    if settings.triton.tls_ca:
        _check_file("triton.tls_ca", settings.triton.tls_ca, problems)
        if not settings.triton.tls:
            problems.note("triton.tls_ca", "is not used while triton.tls is false")
    for key, chat in _endpoints(settings, stages, problems):
        _check_url(f"{key}.base_url", chat.base_url, problems)
        _check_key(f"{key}.api_key_env", chat.api_key_env, chat.base_url, environment, problems)
    images = settings.images
    if images.encoder_url and "generation" in stages:
        _check_url("images.encoder_url", images.encoder_url, problems)
        _check_key(
            "images.encoder_key_env", images.encoder_key_env, images.encoder_url, environment, problems
        )
    _check_held(settings, problems)
    await _check_engines(settings, stages, problems)


async def ask_endpoints(settings: Settings, stages: tuple[str, ...]) -> dict[str, Ability]:
    """What the models behind endpoints can, by their settings' keys: each is asked once, none for images."""
    from groundwatch.models.trial import try_out

    found = [
        (key, chat)
        for key, chat in _endpoints(settings, stages, Problems())
        if not key.startswith("generation.")
    ]
    chats = list({chat.model_dump_json(): chat for _, chat in found}.values())
    abilities = await asyncio.gather(*map(try_out, chats))
    return {key: abilities[chats.index(chat)] for key, chat in found}


def _check_access(gateway: GatewaySettings, environment: Mapping[str, str], problems: Problems) -> None:
    """Who may come in, and what that needs."""
    login, asks = gateway.login, bool(gateway.tokens_file or gateway.login.oidc)
    with _noting(problems):
        Tokens(gateway.tokens_file)
    with _noting(problems):
        cookie_secret(login, environment)
    if login.oidc is not None:
        with _noting(problems):
            client_secret(login.oidc, environment)
        if not gateway.tokens_file:
            why = "is empty: people log in with their accounts, and no program has a token to send with"
            problems.note("gateway.tokens_file", why)
    if asks and not (login.cookie_secret_file or login.cookie_secret_env):
        why = "is empty: sessions end with their gateway, and of several gateways each knows its own alone"
        problems.note("gateway.login.cookie_secret_file", why)
    if not (asks or gateway.open or is_loopback(gateway.host)):
        problems.note("gateway.open", f"is false: {ELSEWHERE}")
    elif gateway.open and not asks:
        problems.note("gateway.open", "is true: whoever reaches the gateway may do everything")


def _check_held(settings: Settings, problems: Problems) -> None:
    for stage, held in held_at_once(settings).items():
        section = getattr(settings, stage)
        if (needed := section.at_once * section.replicas) > held:
            problems.add(
                f"{stage}.max_ack_pending",
                f"{held} is below what {section.replicas} replicas ask for at once, {section.at_once} each: "
                f"set at least {needed}, or 0 to have it computed",
            )


@contextmanager
def _noting(problems: Problems) -> Iterator[None]:
    try:
        yield
    except SettingsError as error:
        problems.add_error(error)


def _endpoints(
    settings: Settings, stages: tuple[str, ...], problems: Problems
) -> Iterator[tuple[str, ChatSettings]]:
    """The OpenAI-compatible endpoints that are asked, by their keys."""
    for stage in stages:
        if stage == "captioning":
            asks = named_engine(settings, stage) == "openai"
            named = settings.captioning.models.items()
            chats = {f"{stage}.models.{name}": (one, asks) for name, one in named}
        else:
            chats = dict(_of_stage(stage, getattr(settings, stage)))
            if stage == "verification" and settings.second_opinion.judge in ASKING:
                # An engine that is named for second opinions asks what verification names.
                chats = {key: (chat, True) for key, (chat, _) in chats.items()}
        for key, (chat, asked) in chats.items():
            if asked:
                yield key, chat
            else:
                problems.note(key, "is not used by the engine that is set")
    # A container of one stage carries out no replay, and so has no keys for its judges.
    for name, tables in settings.judges.items() if set(stages) == set(ENGINES) else ():
        judge = with_judge(settings, name)
        for stage in tables.keys() & ENGINES.keys():
            known = dict(_of_stage(stage, getattr(settings, stage)))
            for key, one in _of_stage(stage, getattr(judge, stage)):
                if key not in known or one[0] != known[key][0]:
                    yield f"judges.{name}.{key}", one[0]


def _of_stage(stage: str, section: StageSettings) -> Iterator[tuple[str, tuple[ChatSettings, bool]]]:
    """The endpoints of a stage's engines by their keys, each with whether it is asked."""
    sharing = [one for one in section.protocols.values() if not one.llm]
    if section.llm:
        yield f"{stage}.llm", (section.llm, any(_asks(one, section) for one in (section, *sharing)))
    tables = {f"{stage}.protocols.{name}": one for name, one in section.protocols.items()}
    for key, one in tables.items():
        if one.llm:
            yield f"{key}.llm", (one.llm, _asks(one, section))
    for key, one in ({stage: section} | tables).items():
        for number, step in enumerate(one.cascade):
            if step.llm:
                yield f"{key}.cascade[{number}].llm", (step.llm, step.engine in ASKING)


def _asks(one: EngineSettings, section: StageSettings) -> bool:
    """Whether an engine of this table asks the endpoint in the table's own `llm`, or the stage's."""
    engine = one.engine or section.engine
    steps = (one.cascade or section.cascade) if engine == CASCADE else ()
    return any(name in ASKING for name in (engine, *(step.engine for step in steps if not step.llm)))


def _check_nats(nats: NatsSettings, problems: Problems) -> None:
    if not nats.url:
        problems.note(
            "nats.url", "is empty: groundwatch up starts a server, groundwatch serve needs one named"
        )
    with _noting(problems):
        nats_servers(nats.url)
    for keys in (
        ("tls_ca", "tls_cert", "tls_key"),
        ("nkey_seed_file",),
        ("credentials",),
        ("nkey_seed_file", "credentials"),
    ):
        with _noting(problems):
            security(NatsSettings(**{key: getattr(nats, key) for key in keys}))


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
    shown = shown_address(url)
    try:
        parts = urlsplit(url)
    except ValueError:
        problems.add(key, f"'{shown}' is no address")
        return
    path = parts.path.rstrip("/")
    if not parts.hostname:
        problems.add(key, f"'{shown}' names no host")
    elif route := next((one for one in ROUTES if path.endswith(one)), ""):
        problems.add(key, f"leave out {route}: the address ends with /v1")
    elif not path:
        problems.add(key, f"'{shown}' has no path: OpenAI-compatible endpoints end with /v1")
    elif not _VERSION.search(path):
        problems.note(key, f"'{shown}' has no version such as /v1 in it: right only for a server without one")


def _check_key(key: str, variable: str, url: str, environment: Mapping[str, str], problems: Problems) -> None:
    if environment.get(variable):
        return
    default = ChatSettings.model_fields["api_key_env"].default
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


async def _check_engines(settings: Settings, stages: tuple[str, ...], problems: Problems) -> None:
    if settings.scoring.engine:
        problems.add("scoring.engine", "scoring has no engines: leave it out")
    for stage in stages:
        await _check_engine(f"{stage}.engine", named_engine(settings, stage), stage, settings, problems)
    name = settings.second_opinion.judge
    if name and set(stages) == set(ENGINES) and not problems.found:
        second, _ = with_second_judge(settings)
        await _check_engine("second_opinion.judge", name, "verification", second, problems)


async def _check_engine(key: str, name: str, stage: str, settings: Settings, problems: Problems) -> None:
    try:
        engine = ENGINES[stage][1](settings)
    except MissingExtraError as error:
        problems.add(key, f"{name} does not run here: {error}, or choose another engine")
    except SettingsError as error:
        problems.add_error(error)
    except UsageError as error:
        problems.add(key, str(error))
    else:
        await engine.close()
