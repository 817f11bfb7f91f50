"""How a connection proves who it is, and what to say when NATS will not have it."""

import contextlib
import logging
import re
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from groundwatch.addresses import shown_address
from groundwatch.errors import SettingsError
from groundwatch.runtime.delivery.direct import pattern_of
from groundwatch.runtime.settings import NatsSettings
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.topology.rights import permissions, users

FORGET_SECONDS = 120.0
"""A refusal that has not come again for so long no longer keeps a service from being ready."""

NATS_SCHEMES = ("nats", "tls", "ws", "wss")
_WEBSOCKET = ("ws", "wss")

_VIOLATION = re.compile(r'permissions violation for (publish|subscription) to "([^"]+)"', re.IGNORECASE)


class Refusals:
    """What NATS has refused this user since it connected."""

    def __init__(self, user: str, partitions: int = 1) -> None:
        self._user = user
        self._partitions = partitions
        self._seen: dict[str, float] = {}
        self._listeners: list[Callable[[], object]] = []

    def add(self, error: str) -> bool:
        """Note a permission violation; False when the error is none. Logs each subject once."""
        found = _VIOLATION.search(error)
        if found is None:
            return False
        why = explain(self._user, found[1].lower(), found[2], self._partitions)
        if why not in self._seen:
            logger.error("nats.refused", user=self._user, problem=why)
        self._seen[why] = time.monotonic()
        while self._listeners:
            self._listeners.pop()()
        return True

    def problems(self) -> list[str]:
        since = time.monotonic() - FORGET_SECONDS
        self._seen = {why: when for why, when in self._seen.items() if when > since}
        return list(self._seen)

    def clear(self) -> None:
        """Forget everything: a new connection may have other rights."""
        self._seen.clear()

    @contextlib.contextmanager
    def telling(self, listener: Callable[[], object]) -> Iterator[None]:
        """Call `listener` at the first refusal within the block."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            if listener in self._listeners:
                self._listeners.remove(listener)


def explain(user: str, action: str, subject: str, partitions: int = 1) -> str:
    """One line: what was refused to whom, and what to do. The client library lowers the subject's case."""
    subject = _as_declared(subject, partitions)
    verb = "publish to" if action == "publish" else "subscribe to"
    refused = f"NATS does not let this user {verb} {subject}"
    if user not in users():
        return f"{refused}: {user} is none of the users that groundwatch admin auth makes"
    rights = permissions(user, partitions)
    allowed = rights.publish if action == "publish" else rights.subscribe
    if any(covers(one, subject) for one in allowed):
        return (
            f"{refused}, which is among the rights of {user}: is nats.nkey_seed_file the seed of {user}, and "
            f"does the server have what groundwatch admin auth writes in this version{_counted(partitions)}?"
        )
    why = f"which does not belong to the rights of {user}: its service must not need it; report it"
    return f"{refused}, {why}"


def covers(pattern: str, subject: str) -> bool:
    """Whether a subject with wildcards covers another; the case of letters is no matter."""
    return re.fullmatch(pattern_of(pattern), subject, re.IGNORECASE) is not None


def _counted(partitions: int) -> str:
    return f", for {partitions} partitions" if partitions > 1 else ""


def _as_declared(subject: str, partitions: int) -> str:
    for user in users():
        rights = permissions(user, partitions)
        for pattern in (*rights.publish, *rights.subscribe):
            if covers(pattern, subject):
                given, wanted = subject.split("."), pattern.split(".")
                pairs = zip(wanted, given, strict=False)
                declared = [mine if one in ("*", ">") else one for one, mine in pairs]
                return ".".join([*declared, *given[len(wanted) :]])
    return subject


def why_not_connected(settings: NatsSettings, trouble: str) -> str:
    """One line on a connection that did not come about; `trouble` is the last that the client heard."""
    address = shown_address(settings.url) or "the default address"
    server = f"the NATS server at {address}"
    said = trouble.lower()
    if "authorization violation" in said or "user authentication" in said:
        if settings.nkey_seed_file:
            return (
                f"{server} does not know the user of nats.nkey_seed_file ({settings.nkey_seed_file}): give "
                "it the configuration that groundwatch admin auth wrote, and reload it"
            )
        if settings.credentials:
            return f"{server} refuses nats.credentials ({settings.credentials}): name one of its users' files"
        return (
            f"{server} wants to know who this is: set nats.nkey_seed_file (GROUNDWATCH_NATS__NKEY_SEED_FILE) "
            "to a seed that groundwatch admin auth wrote; where it is that of groundwatch up, name its "
            "data folder and no address"
        )
    if "certificate required" in said or "bad certificate" in said:
        return f"{server} wants a certificate of ours: set nats.tls_cert and nats.tls_key"
    if "unable to get local issuer" in said or "self-signed" in said or "self signed" in said:
        if settings.tls_ca:
            return (
                f"{server} has a certificate that nats.tls_ca ({settings.tls_ca}) did not sign: name who did"
            )
        return (
            f"{server} has a certificate of an authority that this machine does not know: set nats.tls_ca "
            "(GROUNDWATCH_NATS__TLS_CA) to that authority's certificate"
        )
    if "certificate" in said:
        return f"{server} has a certificate that does not hold ({trouble}): mend it, or reach it by its name"
    why = f" ({trouble})" if trouble else ""
    return f"no NATS server answers at {address}{why}: start one, or set nats.url (GROUNDWATCH_NATS__URL)"


def security(settings: NatsSettings) -> dict[str, Any]:
    """The broker's arguments for TLS and identity. Raises `SettingsError` naming the file that is wrong."""
    from faststream.nats.security import NatsCredentials, NatsNKey
    from faststream.security import BaseSecurity

    context = tls_context(settings)
    options: dict[str, Any] = {"ssl_context": context, "use_ssl": context is not None}
    if settings.nkey_seed_file and settings.credentials:
        raise SettingsError("setting 'nats.credentials': not beside nats.nkey_seed_file; set one of them")
    if "@" in settings.url and (settings.nkey_seed_file or settings.credentials):
        other = "nats.nkey_seed_file" if settings.nkey_seed_file else "nats.credentials"
        raise SettingsError(
            f"setting 'nats.url': names a user or a token, and so does {other}: leave one of them out"
        )
    if settings.nkey_seed_file:
        # Read once: a reconnect with a file that was exchanged would sign with one key for another.
        seed = _seed(Path(settings.nkey_seed_file))
        return {"security": NatsNKey.from_seed(seed, **options)}
    if settings.credentials:
        _read(Path(settings.credentials), "nats.credentials")
        return {"security": NatsCredentials(settings.credentials, **options)}
    return {"security": BaseSecurity(**options)} if context else {}


def tls_context(settings: NatsSettings) -> ssl.SSLContext | None:
    """Whom we trust and who we are; None where settings say neither. Raises `SettingsError`."""
    if bool(settings.tls_cert) != bool(settings.tls_key):
        missing = "nats.tls_key" if settings.tls_cert else "nats.tls_cert"
        raise SettingsError(f"setting '{missing}': a certificate and its key go together")
    if not settings.tls_ca and not settings.tls_cert:
        return None
    if settings.tls_ca:
        _read(Path(settings.tls_ca), "nats.tls_ca")
    try:
        context = ssl.create_default_context(cafile=settings.tls_ca or None)
    except ssl.SSLError as error:
        raise SettingsError(f"setting 'nats.tls_ca': {settings.tls_ca} is no certificate in PEM") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    logging.getLogger("asyncio").addFilter(_no_word_of_eof)
    if settings.tls_cert:
        _read(Path(settings.tls_cert), "nats.tls_cert")
        _read(Path(settings.tls_key), "nats.tls_key")
        try:
            context.load_cert_chain(settings.tls_cert, settings.tls_key)
        except ssl.SSLError as error:
            raise SettingsError(
                f"setting 'nats.tls_cert': {settings.tls_cert} and {settings.tls_key} are no certificate and "
                f"its key in PEM ({error.reason})"
            ) from error
    return context


def _no_word_of_eof(record: logging.LogRecord) -> bool:
    """Every connection that the client library has upgraded to TLS ends with this, to no effect."""
    return not record.getMessage().startswith("returning true from eof_received() has no effect")


def _seed(path: Path) -> str:
    import nkeys

    seed = _read(path, "nats.nkey_seed_file").strip()
    try:
        pair = nkeys.from_seed(bytearray(seed))
        valid = pair.public_key.startswith(b"U")
        pair.wipe()
    except (nkeys.NkeysError, ValueError, TypeError) as error:
        raise SettingsError(f"setting 'nats.nkey_seed_file': {path} holds no nkey seed") from error
    if not valid:
        raise SettingsError(f"setting 'nats.nkey_seed_file': {path} holds a seed, but not of a user")
    return seed.decode()


def _read(path: Path, setting: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        reason = "no file" if isinstance(error, FileNotFoundError) else f"cannot read ({error.strerror})"
        raise SettingsError(f"setting '{setting}': {reason} at {path}") from error


def nats_servers(url: str) -> list[str]:
    """The addresses in the setting `nats.url`, in its order; any of them can be connected to.

    Raises `SettingsError` for one that is none, and where WebSocket and other addresses are mixed.
    """
    found = [one.strip() for one in url.split(",") if one.strip()]
    schemes = set()
    for one in found:
        try:
            parts = urlsplit(one if "://" in one else f"nats://{one}")
            right = parts.scheme in NATS_SCHEMES and bool(parts.hostname) and parts.port != 0
        except ValueError:
            right = False
        if not right:
            # A comma may belong to a password.
            shown = shown_address(url if "@" in url else one)
            raise SettingsError(f"setting 'nats.url': '{shown}' is no address such as nats://host:4222")
        schemes.add(parts.scheme in _WEBSOCKET)
    if len(schemes) > 1:
        raise SettingsError("setting 'nats.url': addresses with ws:// or wss:// do not go with others")
    return found
