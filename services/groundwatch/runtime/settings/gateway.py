"""What can be set of the gateway: its doors, what it accepts, and which share is judged."""

import ipaddress
import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from groundwatch.errors import InputError
from groundwatch.protocols import registry
from groundwatch.runtime.security.urls import read_pattern, read_url
from groundwatch.runtime.settings.login import LoginSettings
from groundwatch.section import AtLeastOne, Count, NotNegative, Port, Positive, Section, wrong

_HOST = re.compile(r"\*|(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?", re.IGNORECASE)
"""A name, `*.` and a name, or `*`."""


def _host(name: str) -> str:
    if not _HOST.fullmatch(name):
        raise ValueError(
            f"'{name}' is no name of a host: write gateway.example.com, *.example.com or *, without a port"
        )
    return name


def _protocol(name: str) -> str:
    if name and name not in registry.names():
        raise ValueError(registry.unknown(name))
    return name


def _fetchable(pattern: str) -> str:
    try:
        read_pattern(pattern)
    except InputError as error:
        raise ValueError(str(error)) from error
    return pattern


def _network(text: str) -> str:
    try:
        ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f"'{text[:64]}' is no network such as 10.1.0.0/16 ({error})") from error
    return text


_PAGES = {"alarms", "answers", "compare", "connect", "health", "login", "logout", "models", "queues"}
_PAGES |= {"review", "runs", "wall"}
_OWN = _PAGES | {"api", "favicon.ico", "healthz", "images", "metrics", "pulse", "readyz", "static", "v1"}
"""With what the addresses of the gateway itself begin."""


def _upstream_name(name: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,31}", name) or name in _OWN:
        own = f", and none of the gateway's own ({', '.join(sorted(_OWN))})"
        raise ValueError(f"'{name[:64]}' is no name of an upstream: it has a-z, 0-9 and -, as openai{own}")
    return name


def _upstream(url: str) -> str:
    try:
        found = read_url(url)
    except InputError as error:
        raise ValueError(str(error)) from error
    if found.scheme not in ("http", "https") or found.query is not None:
        raise ValueError(f"'{url[:300]}' is no address such as https://api.openai.com")
    return url


Hosts = tuple[Annotated[str, AfterValidator(_host)], ...]
UpstreamName = Annotated[str, AfterValidator(_upstream_name)]
Upstream = Annotated[str, AfterValidator(_upstream)]
Protocol = Annotated[str, AfterValidator(_protocol)]


class SamplingRule(Section):
    """Which share (0 to 1) of matching responses is judged. Empty fields match everything."""

    rate: Annotated[float, Field(ge=0, le=1)]
    tenant: str = ""
    model: str = ""
    protocol: Protocol = ""
    salt: str = ""


class IntakeSettings(Section):
    """What the gateway accepts. Sizes in bytes, `answer` and `prompt` in characters.

    `max_image_seconds` is of the processor, for decoding one image.
    """

    max_answer: AtLeastOne = 200_000
    max_prompt: AtLeastOne = 50_000
    max_line: AtLeastOne = 20 * 1024 * 1024
    max_image_bytes: AtLeastOne = 10 * 1024 * 1024
    max_image_pixels: AtLeastOne = 40_000_000
    max_image_seconds: Annotated[float, Field(ge=1)] = 10.0
    max_images: Count = 16
    max_reference_items: AtLeastOne = 2_000
    max_backlog: AtLeastOne = 1_000_000
    in_flight: AtLeastOne = 256


class GrpcSettings(Section):
    """The gRPC door beside HTTP; files by their paths.

    `calls` is how many are under way at once that bring responses, since each may have us hold
    `gateway.intake.max_line` bytes.
    """

    tls_cert: str = ""
    tls_key: str = ""
    watchers: Count = 500
    deadline: Positive = 60.0
    calls: AtLeastOne = 64

    @model_validator(mode="after")
    def _check(self) -> Self:
        if bool(self.tls_cert) != bool(self.tls_key):
            raise wrong("tls_key", "a certificate (gateway.grpc.tls_cert) and its key go together")
        return self


class HttpSettings(Section):
    """Bounds of connections and requests. Times in seconds, sizes in bytes.

    A request's head must be there after `head_timeout` and have at most `max_head`. A body must bring
    `min_rate` bytes a second, and a reader take as much, each measured over `body_timeout`. `max_receiving`
    bounds what all requests together hold that are being received or worked at. `watchers` and `comparisons`
    are how many are served at once.
    """

    max_connections: AtLeastOne = 800
    max_head: Annotated[int, Field(ge=1024)] = 64 * 1024
    head_timeout: Positive = 10.0
    body_timeout: Positive = 30.0
    min_rate: Count = 1024
    max_receiving: AtLeastOne = 128 * 1024 * 1024
    watchers: Count = 500
    comparisons: AtLeastOne = 2


class LoggedCallsSettings(Section):
    """Calls that other systems log and send here. Times in seconds, sizes in bytes.

    A request may have `max_batch` where it is read in parts, as OTLP in protobuf over HTTP; any other is held
    whole, and has at most 64 MiB, or half of `gateway.http.max_receiving` where that is more.
    `without_image` says what becomes of a call whose image the logging library left out: `decline` records it
    with every protocol declined, its reason that of the library; `record` judges what can be judged.
    `judged_images` says which images an answer is about: those of the user's `last_turn`, and of all turns
    where that has none; or those of `all`.
    Of a call whose messages are logged apart from its span, more is waited for until `join_wait` after the
    last part when it is whole, and until `join_timeout` after the first when it is not.
    """

    without_image: Literal["decline", "record"] = "decline"
    judged_images: Literal["last_turn", "all"] = "last_turn"
    max_batch: AtLeastOne = 256 * 1024 * 1024
    join_wait: Positive = 10.0
    join_timeout: Positive = 600.0


class FetchSettings(Section):
    """What the gateway fetches by its address, for whoever names it. Times in seconds.

    `allow` lists folders below which all may be fetched: `https://images.example.com/path/`,
    `https://*.example.com/`, `s3://bucket/prefix/`, `gs://bucket/`, `file:///folder/`; without an entry
    nothing is. `networks` are those that are not public and may be connected to all the same. `options` are
    those of obstore for each kind of store.
    """

    allow: tuple[Annotated[str, AfterValidator(_fetchable)], ...] = ()
    networks: tuple[Annotated[str, AfterValidator(_network)], ...] = ()
    options: dict[Literal["s3", "gs"], dict[str, Any]] = Field(default_factory=dict)
    seconds: Annotated[float, Field(gt=0, le=8)] = 5.0
    max_redirects: Annotated[int, Field(ge=0, le=20)] = 3
    at_once: AtLeastOne = 8


class CloudEventsSettings(Section):
    """Requests and responses that KServe logs apart. `wait` is how many seconds one waits for the other."""

    wait: Annotated[float, Field(ge=1)] = 600.0


class DynamoSettings(Section):
    """NVIDIA Dynamo's request trace; nothing is read without a `stream`.

    Empty `url`: the stream is on the NATS server of `nats`. `durable` is the consumer's name, shared by all
    gateways; it is made where there is none.
    """

    url: str = ""
    credentials: str = ""
    stream: str = ""
    subject: str = "dynamo.request_trace.v1"
    durable: str = "groundwatch"
    tenant: str = ""


class ProxySettings(Section):
    """Calls that are passed on to the API of a model, and recorded on their way. Times in seconds.

    `upstreams` names each: with `openai = "https://api.openai.com"` what is sent to `/openai/v1/…` here goes
    to `https://api.openai.com/v1/…`. Of an answer something must come every `timeout` seconds. Copies of
    calls that are under way hold at most `gateway.http.max_receiving`, apart from other requests.
    """

    upstreams: dict[UpstreamName, Upstream] = Field(default_factory=dict)
    timeout: Positive = 600.0


class TenantRate(Section):
    """`rate` responses a second, and `burst` at once; `burst` 0: as many as come in 10 seconds."""

    rate: Positive
    burst: Count = 0

    @property
    def most(self) -> int:
        return self.burst or max(1, round(10 * self.rate))


class AdmissionSettings(Section):
    """How many responses of each tenant this gateway takes; several take as many times more.

    `rate` and `burst` hold for each tenant that is not in `tenants`; `rate` 0: without limit.
    """

    rate: NotNegative = 0.0
    burst: Count = 0
    tenants: dict[str, TenantRate] = Field(default_factory=dict)


class GatewaySettings(Section):
    """Where the gateway listens. Port 0 takes a free one; with `grpc_port` -1 there is no gRPC.

    `hosts` are the names under which it is reached over HTTP, `*.example.com` for all below one; those of
    this machine and addresses in digits need not be there, and `*` is every name.
    `tokens_file`, for both doors, has a line `TENANT TOKEN [ROLE] [NAME]` for each token, with `*` for the
    tenant of one that is good for all; empty: without `login.oidc` nobody is asked who they are, and only
    this machine is answered, unless the gateway is `open` to others too.
    The live report is written down every `snapshot_every` seconds: a gateway that starts goes on from there.
    Told to stop, a gateway says so by `/readyz` and serves on for `drain_delay` seconds, in which load
    balancers take it out.
    `replays` is how many processes for replays that were begun here this gateway runs at once, and
    `replay_nkey_seed_file` says who these are to NATS.
    """

    host: str = "127.0.0.1"
    port: Port = 8787
    grpc_port: Annotated[int, Field(ge=-1, le=65535)] = -1
    hosts: Hosts = ()
    tokens_file: str = ""
    open: bool = False
    login: LoginSettings = LoginSettings()
    snapshot_every: Positive = 300.0
    drain_delay: Annotated[float, Field(ge=0, le=600)] = 0.0
    replays: Count = 1
    replay_nkey_seed_file: str = ""
    http: HttpSettings = HttpSettings()
    grpc: GrpcSettings = GrpcSettings()
    protocols: tuple[Protocol, ...] = ("faithscore",)
    intake: IntakeSettings = IntakeSettings()
    fetch: FetchSettings = FetchSettings()
    logged_calls: LoggedCallsSettings = LoggedCallsSettings()
    cloud_events: CloudEventsSettings = CloudEventsSettings()
    dynamo: DynamoSettings = DynamoSettings()
    proxy: ProxySettings = ProxySettings()
    admission: AdmissionSettings = AdmissionSettings()
    sampling: tuple[SamplingRule, ...] = ()

    @property
    def max_whole(self) -> int:
        """Bytes of one request with logged calls that is held whole while it is read."""
        return min(self.logged_calls.max_batch, max(64 * 1024 * 1024, self.http.max_receiving // 2))

    @model_validator(mode="after")
    def _check(self) -> Self:
        least = 2 * max(self.intake.max_line, self.intake.max_image_bytes)
        if self.http.max_receiving < least:
            raise wrong(
                "http.max_receiving",
                f"must be at least {least}, twice the largest of gateway.intake.max_line and "
                "gateway.intake.max_image_bytes",
            )
        return self
