"""A real server with the generated users: each may do its own work, and nothing that is another's."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from tests.support.secured import Secured, secured

from groundwatch.events import LIVE
from groundwatch.runtime.security.users import CA_CERTIFICATE, seed_file
from groundwatch.topology import (
    BUCKETS,
    CHANNELS,
    COMMAND_LINE,
    CONSUMERS,
    DEAD,
    GATEWAY,
    INTAKE,
    OUTCOMES,
    OUTFLOW,
    PROVISIONER,
    STAGES,
    STREAMS,
)
from groundwatch.topology.rights import (
    NEVER_LIVE,
    ONLY_LIVE,
    OTHERWISE,
    SEES_BACKLOG,
    inbox_prefix,
    permissions,
    users,
)

USERS = users()
RUNS = (LIVE, "replay-1")
VIOLATION = re.compile(r'permissions violation for (publish|subscription) to "([^"]+)"')


@pytest.fixture(scope="module")
def server() -> Iterator[Secured]:
    """One for all these tests: what is allowed here may do damage."""
    with (
        tempfile.TemporaryDirectory(prefix="groundwatch-users-", ignore_cleanup_errors=True) as folder,
        secured(Path(folder)) as started,
    ):
        yield started


class Client:
    """A user's bare connection, which hears what it is refused."""

    def __init__(self) -> None:
        self.connection: Any = None
        self._heard: list[str] = []
        self._awake = asyncio.Event()
        self._count = 0

    async def hear(self, error: Exception) -> None:
        """What the client library is told."""
        self._heard.append(str(error).lower())
        self._awake.set()

    async def refused(self, *, publish: Iterable[str] = (), subscribe: Iterable[str] = ()) -> set[str]:
        """Which of these subjects the server refuses. It refuses in order, and nobody may write the last."""
        self._heard.clear()
        wanted = {
            (kind, one.lower()): one
            for kind, many in (("publish", publish), ("subscription", subscribe))
            for one in many
        }
        for kind, one in wanted.items():
            if kind[0] == "publish":
                await self.connection.publish(one, b"")
            else:
                await self.connection.subscribe(one)
        self._count += 1
        last = f'publish to "sentinel.{self._count}"'
        await self.connection.publish(f"sentinel.{self._count}", b"")
        async with asyncio.timeout(20):
            while not any(last in one for one in self._heard):
                self._awake.clear()
                await self._awake.wait()
        found = (VIOLATION.search(one) for one in self._heard)
        return {wanted[one[1], one[2]] for one in found if one is not None and (one[1], one[2]) in wanted}


@contextlib.asynccontextmanager
async def connected(server: Secured, user: str) -> AsyncIterator[Client]:
    client = Client()
    client.connection = await nats.connect(
        server.url,
        nkeys_seed=str(seed_file(server.auth, user)),
        tls=ssl.create_default_context(cafile=str(server.auth / CA_CERTIFICATE)),
        inbox_prefix=inbox_prefix(user),
        error_cb=client.hear,
        allow_reconnect=False,
    )
    try:
        yield client
    finally:
        await client.connection.close()


def events() -> dict[str, frozenset[str]]:
    """Every subject of events in two runs, on its way to and from each stage, with who may write it."""
    found: dict[str, frozenset[str]] = {}
    for channel in CHANNELS:
        family = channel.address.partition("{")[0]
        reads = [one for spec in CONSUMERS for one in spec.filters if one.startswith(family)]
        for run in RUNS:
            for stage in (GATEWAY, *STAGES, OUTFLOW) if "{stage}" in channel.address else ("",):
                tokens = {"run": run, "stage": stage, "protocol": "p", "key": "k", "step": "1", "tenant": "t"}
                tokens |= {"reviewer": "r"}
                subject = channel.address.format(**tokens)
                writers = set(channel.publishers)
                if channel.name == "dead":
                    writers &= {stage}
                elif stage and channel.name != "retry":
                    # On the way to a stage that reads such events, and not back to the writer.
                    writers -= {stage}
                    if not any(f".{stage}." in one for one in reads):
                        writers = set()
                writers -= set(ONLY_LIVE) if run != LIVE else set(NEVER_LIVE)
                found[subject] = frozenset(writers)
    return found


def calls() -> dict[str, frozenset[str]]:
    """JetStream's calls on every stream and consumer of ours, with who may make them."""
    found: dict[str, frozenset[str]] = {}
    everybody = frozenset(USERS)
    readers = {
        spec.name: frozenset(
            user
            for channel in CHANNELS
            if channel.stream == spec.name
            for user in channel.readers
            if user not in channel.lookups
        )
        for spec in STREAMS
    }
    for spec in CONSUMERS:
        owner, at = frozenset({spec.service}), f"{spec.stream}.{spec.name}"
        asks = frozenset(SEES_BACKLOG)
        found[f"$JS.API.CONSUMER.MSG.NEXT.{at}"] = owner
        found[f"$JS.ACK.{at}.1.1.1.1700000000000000000.0"] = owner
        found[f"$JS.API.CONSUMER.INFO.{at}"] = owner | asks | {PROVISIONER}
        found[f"$JS.API.CONSUMER.DELETE.{at}"] = frozenset()
        found[f"$JS.API.CONSUMER.CREATE.{at}.{spec.filters[0]}"] = frozenset()
        found[f"$JS.API.CONSUMER.CREATE.{at}"] = frozenset()
        found[f"$JS.API.CONSUMER.DURABLE.CREATE.{at}"] = frozenset({PROVISIONER})
        found[f"$JS.API.CONSUMER.PAUSE.{at}"] = frozenset()
        found[f"$JS.API.CONSUMER.UNPIN.{at}"] = frozenset()
        found[f"$JS.API.CONSUMER.LEADER.STEPDOWN.{at}"] = frozenset()
    for name in (spec.name for spec in STREAMS):
        lookups = {u for one in CHANNELS if one.stream == name for u in one.lookups}
        concerned = {spec.service for spec in CONSUMERS if spec.stream == name}
        for channel in CHANNELS:
            if channel.stream == name:
                concerned |= {*channel.publishers, *channel.readers, *channel.lookups}
        found[f"$JS.API.STREAM.INFO.{name}"] = frozenset(concerned | {PROVISIONER})
        found[f"$JS.API.CONSUMER.MSG.NEXT.{name}.any"] = readers[name]
        found[f"$JS.API.CONSUMER.CREATE.{name}"] = frozenset()
        found[f"$JS.API.CONSUMER.CREATE.{name}.any"] = frozenset()
        found[f"$JS.API.CONSUMER.NAMES.{name}"] = frozenset()
        found[f"$JS.API.CONSUMER.LIST.{name}"] = frozenset()
        found[f"$JS.API.STREAM.MSG.GET.{name}"] = readers[name] | lookups
        found[f"$JS.API.DIRECT.GET.{name}"] = readers[name]
        for call in ("DELETE", "PURGE", "MSG.DELETE", "SNAPSHOT", "RESTORE", "LEADER.STEPDOWN"):
            found[f"$JS.API.STREAM.{call}.{name}"] = frozenset()
        for call in ("CREATE", "UPDATE"):
            found[f"$JS.API.STREAM.{call}.{name}"] = frozenset({PROVISIONER})
    for bucket in BUCKETS:
        writers = frozenset(bucket.writers)
        reading = writers | frozenset(bucket.readers)
        for one in ("$O.{}.C.piece", "$O.{}.M.name") if bucket.kind == "objects" else ("$KV.{}.some.key",):
            found[one.format(bucket.name)] = writers
        found[f"$JS.API.STREAM.PURGE.{bucket.stream}"] = writers
        found[f"$JS.API.STREAM.MSG.GET.{bucket.stream}"] = reading
        found[f"$JS.API.CONSUMER.CREATE.{bucket.stream}"] = reading
        found[f"$JS.API.STREAM.DELETE.{bucket.stream}"] = frozenset()
        found[f"$JS.API.STREAM.UPDATE.{bucket.stream}"] = frozenset({PROVISIONER})
    for call in ("INFO", "STREAM.LIST", "ACCOUNT.PURGE.x", "STREAM.CREATE.MINE", "META.LEADER.STEPDOWN"):
        found[f"$JS.API.{call}"] = frozenset()
    for subject in ("$SYS.REQ.SERVER.PING", "gw.other.live.k", "anything", "_INBOX.x", "_R_.x", "$JSC.R.x"):
        found[subject] = frozenset()
    for user in USERS:
        found[f"{inbox_prefix(user)}.x"] = frozenset()
    for user, subjects in OTHERWISE.items():
        for subject in subjects:
            found[subject] = found.get(subject, frozenset()) | {user}
    assert everybody >= frozenset().union(*found.values())
    return found


@pytest.mark.parametrize("user", USERS)
async def test_may_write_exactly_what_is_its_own(server: Secured, user: str) -> None:
    """Every subject of every other user is tried."""
    rights = events() | calls()
    async with connected(server, user) as client:
        refused = await client.refused(publish=rights)
    mine = {subject for subject, who in rights.items() if user in who}
    assert sorted(refused & mine) == [], "refused, and needed"
    assert sorted(rights.keys() - refused - mine) == [], "allowed, and another's"
    assert mine, "a user without work"


async def test_a_tenant_may_publish_its_responses_and_nothing_else(server: Secured) -> None:
    everything = [*events(), *calls(), "gw.intake.other", "gw.intake.acme.more", "gw.intake"]
    async with connected(server, "tenant-acme") as client:
        assert await client.refused(publish=["gw.intake.acme"]) == set()
        refused = await client.refused(publish=[one for one in everything if one != "gw.intake.acme"])
        assert sorted({*everything} - {"gw.intake.acme"} - refused) == []
        heard = ["gw.intake.acme", "gw.intake.>", "gw.>", ">", "_INBOX.>", "_INBOX_tenant-other.>"]
        assert await client.refused(subscribe=heard) == {*heard}
        assert await client.refused(subscribe=["_INBOX_tenant-acme.x"]) == set()
        stored = await client.connection.jetstream().publish("gw.intake.acme", b"{}")
        assert stored.stream == INTAKE


@pytest.mark.parametrize("user", USERS)
async def test_may_do_everything_that_the_table_gives(server: Secured, user: str) -> None:
    rights = permissions(user)
    concrete = [re.sub(r">$", "x.y", one).replace("*", "x") for one in rights.publish]
    allowed = [one for one in concrete if not any(_covers(no, one) for no in rights.publish_denied)]
    async with connected(server, user) as client:
        assert await client.refused(publish=allowed) == set()
        denied = [re.sub(r">$", "x.y", one).replace("*", "x") for one in rights.publish_denied]
        assert await client.refused(publish=denied) == set(denied)


@pytest.mark.parametrize("user", USERS)
async def test_hears_nobody_but_itself(server: Secured, user: str) -> None:
    others = [f"{inbox_prefix(other)}.{rest}" for other in USERS if other != user for rest in (">", "*", "x")]
    wide = [">", "*", "*.>", "*.*", "gw.>", "gw.recorded.>", "_INBOX.>", "$JS.>", "$JS.API.>", "$JS.ACK.>"]
    wide += ["$JS.EVENT.ADVISORY.>", "$SYS.>", "$O.>", "$KV.>", f"{inbox_prefix(user)}"]
    async with connected(server, user) as client:
        assert await client.refused(subscribe=[*others, *wide]) == {*others, *wide}
        assert (
            await client.refused(subscribe=[f"{inbox_prefix(user)}.>", f"{inbox_prefix(user)}.a.*"]) == set()
        )


async def test_a_refused_event_is_in_no_stream(server: Secured) -> None:
    subject = "gw.outcome.live.p.intruder"
    async with connected(server, GATEWAY) as client:
        with pytest.raises(TimeoutError):
            await client.connection.jetstream(timeout=0.3).publish(subject, b"forged")
    async with connected(server, COMMAND_LINE) as client:
        with pytest.raises(nats.js.errors.NotFoundError):
            await client.connection.jetstream().get_last_msg(OUTCOMES, subject)


async def test_a_request_cannot_say_otherwise_than_its_subject(server: Secured) -> None:
    """The server sees the rights in the subject; what the body asks for must be the same."""
    subject = f"$JS.API.CONSUMER.CREATE.{OUTCOMES}.mine.gw.outcome.>"
    for config in (
        {"name": "mine", "filter_subject": "gw.>"},
        {"name": "mine", "filter_subjects": ["gw.outcome.>", "gw.alarm.>"]},
        {"name": "mine", "durable_name": "other", "filter_subject": "gw.outcome.>"},
    ):
        body = {"stream_name": OUTCOMES, "config": config | {"ack_policy": "none"}}
        async with connected(server, GATEWAY) as client:
            answer = json.loads((await client.connection.request(subject, json.dumps(body).encode(), 5)).data)
            assert "error" in answer, config
    body = {"stream_name": DEAD, "config": {"name": "mine", "filter_subject": "gw.outcome.>"}}
    async with connected(server, GATEWAY) as client:
        answer = json.loads((await client.connection.request(subject, json.dumps(body).encode(), 5)).data)
        assert "error" in answer


async def test_nobody_without_a_seed(server: Secured) -> None:
    context = ssl.create_default_context(cafile=str(server.auth / CA_CERTIFICATE))
    with pytest.raises(nats.errors.Error, match=r"(?i)authorization violation"):
        await nats.connect(server.url, tls=context, allow_reconnect=False, error_cb=_silent)


def test_all_that_topology_names_have_a_user() -> None:
    assert {GATEWAY, COMMAND_LINE, PROVISIONER, *STAGES} <= set(USERS)
    assert {spec.service for spec in CONSUMERS} <= set(USERS)
    for user in USERS:
        rights = permissions(user)
        assert rights.subscribe == (f"_INBOX_{user}.>",)
        forbidden = {">", "$JS.>", "$JS.API.>", "$JS.ACK.>", "gw.>", "_INBOX.>", "$O.>", "$KV.>"}
        assert not forbidden & {*rights.publish, *rights.subscribe}
    with pytest.raises(ValueError, match="no NATS user 'nobody'"):
        permissions("nobody")


def _covers(pattern: str, subject: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", "[^.]+").replace(r">", ".+"), subject) is not None


async def _silent(error: Exception) -> None:
    await asyncio.sleep(0)


def test_the_page_shows_every_users_rights() -> None:
    page = (Path(__file__).parents[3] / "docs" / "security.md").read_text("utf-8")
    table = page.partition("| user | writes |")[2].partition("\n\n")[0]
    shown = [line for line in table.splitlines() if line.startswith("| `")]
    assert shown == [_row(user) for user in USERS]


def _row(user: str) -> str:
    """A user in the table of docs/security.md."""

    def listed(names: Iterable[str]) -> str:
        return ", ".join(f"`{one}`" for one in dict.fromkeys(names)) or "–"

    own = [one.name for one in CHANNELS if user in one.publishers]
    consumers = [one.name for one in CONSUMERS if one.service == user]
    reads = [one.name for one in CHANNELS if user in one.readers and user not in one.lookups]
    looks = [one.name for one in CHANNELS if user in one.lookups]
    buckets = [f"`{one.name}` (writes)" for one in BUCKETS if user in one.writers]
    buckets += [f"`{one.name}`" for one in BUCKETS if user in one.readers]
    cells = (listed(own), listed(consumers), listed(reads), listed(looks), ", ".join(buckets) or "–")
    return f"| `{user}` | {' | '.join(cells)} |"
