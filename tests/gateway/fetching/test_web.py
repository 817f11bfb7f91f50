"""Fetching from a real server of HTTP that misbehaves."""

from __future__ import annotations

import asyncio
import ssl

import pytest
import trustme
from tests.gateway.fetching.conftest import Names
from tests.support.image_server import BODY, BOMB, endless, endless_head, endless_hints, silent, slow

from groundwatch.errors import InputError, TransientError

MOST = 1_000_000


@pytest.fixture
def fetch(server, fetcher_factory):
    """Fetches a path of the server, under any name at its port."""

    async def run(path="/a.png", host="images.test", most=MOST, resolve=None, **settings):
        settings = {"allow": (f"http://*.test:{server.port}/",)} | settings
        fetcher = fetcher_factory(resolve, **settings)
        return await fetcher.fetch(f"http://{host}:{server.port}{path}", "tenant a", most=most)

    return run


async def test_what_is_there_is_fetched_under_its_name(server, fetch):
    server.reply("/a%20b/c.png")
    assert await fetch("/x/../a%20b/c.png?w=1") == BODY
    ((_, path, headers),) = server.asked
    assert path == "/a%20b/c.png?w=1"
    assert headers["Host"] == f"images.test:{server.port}"
    assert headers["Accept-Encoding"] == "identity"
    assert not {"Authorization", "Cookie", "Referer"} & headers.keys()


async def test_no_proxy_of_the_environment_is_asked(server, fetch, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.9:9")
    server.reply("/a.png")
    assert await fetch() == BODY


async def test_a_name_is_resolved_once_and_that_is_connected_to(server, fetch):
    names = Names(images_test=[["127.0.0.1"], ["127.0.0.2"]])
    server.reply("/a.png")
    assert await fetch(resolve=names) == BODY
    assert names.asked == ["images.test"]
    assert server.connections == ["127.0.0.1"]


async def test_a_name_that_leads_inside_the_second_time_is_refused_then(server, fetch):
    names = Names(images_test=[["127.0.0.1"], ["127.0.0.2"]])
    server.redirect("/a.png", "/b.png")
    server.reply("/b.png")
    with pytest.raises(InputError, match=r"not public.*gateway\.fetch\.networks"):
        await fetch(resolve=names)
    assert server.connections == ["127.0.0.1"]


@pytest.mark.parametrize(
    "addresses",
    [["127.0.0.2"], ["127.0.0.1", "127.0.0.2"], ["169.254.169.254"], ["::ffff:169.254.169.254"], ["::1"]],
)
async def test_a_name_with_an_address_that_is_not_public_is_not_connected_to(server, fetch, addresses):
    with pytest.raises(InputError, match="not public") as raised:
        await fetch(resolve=Names(images_test=[addresses]))
    assert server.connections == []
    assert not any(address in str(raised.value) for address in addresses)


async def test_addresses_in_digits_are_looked_at_like_names(server, fetcher_factory):
    for host in ("127.0.0.2", "2130706434", "0x7f.2", "127.2", "0177.0.0.2", "[::ffff:127.0.0.2]"):
        # It is the machine that makes an address of such a name.
        fetcher = fetcher_factory(own_names=False, allow=(f"http://{host}:{server.port}/",))
        with pytest.raises((InputError, TransientError)):
            await fetcher.fetch(f"http://{host}:{server.port}/a.png", "", most=MOST)
    assert server.connections == []


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest/meta-data/iam/security-credentials/",
        "http://[fd00:ec2::254]/latest/",
        "http://evil.example/a.png",
        "//evil.example/a.png",
        "https://images.test/a.png",
        "file:///etc/passwd",
        "s3://bucket/key",
        "gopher://images.test/",
        "http://user@images.test/",
        "",
        "http://images.test:{port}/..%2f..%2fsecret",
        "http://[",
    ],
)
async def test_a_redirect_out_of_the_list_is_not_followed(server, fetch, location):
    server.redirect("/a.png", location.format(port=server.port))
    with pytest.raises(InputError) as told:
        await fetch(
            allow=(f"http://*.test:{server.port}/", "s3://bucket/", "file:///etc/"),
            options={"s3": {"region": "eu-west-1"}},
        )
    assert len(server.connections) == 1
    assert "leads on" in str(told.value)
    inner = ("169.254", "fd00", "evil", "passwd", "key", "secret")
    assert not any(word in str(told.value) for word in inner)


async def test_a_redirect_to_a_listed_metadata_service_is_not_followed(server, fetch):
    server.redirect("/a.png", "http://169.254.169.254/latest/")
    names = Names(**{"169_254_169_254": [["169.254.169.254"]]})
    with pytest.raises(InputError, match="not public"):
        await fetch(
            resolve=names,
            allow=(f"http://*.test:{server.port}/", "http://169.254.169.254/"),
            networks=("0.0.0.0/0",),
        )


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 T", "308 P"])
async def test_a_redirect_within_the_list_is_followed(server, fetch, status):
    server.redirect("/a.png", f"http://other.test:{server.port}/b.png", status)
    server.redirect("/b.png", "c/d.png?x=1")
    server.reply("/c/d.png")
    names = Names()
    assert await fetch(resolve=names) == BODY
    assert names.asked == ["images.test", "other.test", "other.test"]


async def test_a_loop_of_redirects_ends(server, fetch):
    server.redirect("/a.png", "/b.png")
    server.redirect("/b.png", "/a.png")
    with pytest.raises(InputError, match="more than 3 times"):
        await fetch()
    assert len(server.asked) == 4


async def test_with_no_redirects_allowed_none_is_followed(server, fetch):
    server.redirect("/a.png", "/b.png")
    with pytest.raises(InputError, match="more than 0 times"):
        await fetch(max_redirects=0)
    assert len(server.asked) == 1


async def test_what_is_too_long_is_not_read_to_its_end(server, fetch):
    server.reply("/long.png", b"x", Content_Length=str(100 * 1024 * 1024))
    server.reply("/longer.png", b"x", Content_Length="9" * 18)
    server.reply("/just.png", b"x" * MOST)
    server.answers["/endless.png"] = endless
    for path in ("/long.png", "/longer.png", "/endless.png"):
        with pytest.raises(InputError, match="more than 1000000 bytes"):
            await fetch(path)
    assert len(await fetch("/just.png")) == MOST


async def test_a_hundred_megabytes_are_cut_at_the_bound(server, fetch):
    sent = 0

    async def large(reader, writer, path):
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(100):
            writer.write(bytes(1024 * 1024))
            await writer.drain()
            sent += 1

    server.answers["/large.png"] = large
    with pytest.raises(InputError, match="more than 1000000 bytes"):
        await fetch("/large.png")
    assert sent < 50


@pytest.mark.parametrize("handler", [slow, silent, endless_hints])
async def test_what_takes_too_long_is_given_up(server, fetch, handler):
    server.answers["/a.png"] = handler
    with pytest.raises(TransientError, match=r"not there within 0\.5 s"):
        await fetch(seconds=0.5)


async def test_a_name_server_that_is_silent_is_given_up(server, fetch):
    async def never(host, port):
        await asyncio.Event().wait()

    with pytest.raises(TransientError, match=r"not there within 0\.2 s"):
        await fetch(resolve=never, seconds=0.2)


async def test_a_head_without_end_is_given_up(server, fetch):
    server.answers["/a.png"] = endless_head
    with pytest.raises(TransientError):
        await fetch()


async def test_what_is_packed_is_refused_and_not_unpacked(server, fetch):
    for coding in ("gzip", "deflate", "br", "GZIP", "gzip, identity"):
        server.reply("/a.png", BOMB, Content_Encoding=coding)
        with pytest.raises(InputError, match="is sent as"):
            await fetch()
    server.reply("/a.png", BODY, Content_Encoding="identity")
    assert await fetch() == BODY


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x00" * 1000,
    ],
    ids=range(8),
)
async def test_what_is_cut_off_or_no_answer_may_be_tried_again(server, fetch, answer):
    async def say(reader, writer, path):
        writer.write(answer)

    server.answers["/a.png"] = say
    with pytest.raises(TransientError, match="cannot be fetched now"):
        await fetch()


async def test_what_is_behind_the_length_is_not_read(server, fetch):
    server.reply("/a.png", BODY + b"more", Content_Length=str(len(BODY)))
    assert await fetch() == BODY


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((f"{status} X", InputError) for status in (201, 204, 206, 304, 400, 401, 403, 404, 410, 451)),
        *((f"{status} X", TransientError) for status in (408, 425, 429, 500, 502, 503, 504)),
    ],
)
async def test_statuses(server, fetch, status, kind):
    server.reply("/a.png", b"", status, Content_Length="")
    with pytest.raises(kind, match=status.split()[0]) as raised:
        await fetch("/a.png?X-Amz-Signature=secret")
    assert "secret" not in str(raised.value)


async def test_nobody_there(server, fetch):
    with pytest.raises(TransientError, match="cannot be fetched now"):
        # Nothing listens at this address of the machine.
        await fetch(networks=("127.0.0.0/8",), resolve=Names(images_test=[["127.0.0.3"]]))


async def test_the_next_address_is_tried_where_one_does_not_answer(server, fetch):
    server.reply("/a.png")
    names = Names(images_test=[["127.0.0.3", "127.0.0.1"]])
    assert await fetch(networks=("127.0.0.0/8",), resolve=names) == BODY


async def test_a_name_that_nobody_has(server, fetcher_factory):
    fetcher = fetcher_factory(own_names=False, allow=("http://nobody.invalid/",))
    with pytest.raises((InputError, TransientError), match=r"nobody\.invalid"):
        await fetcher.fetch("http://nobody.invalid/a.png", "", most=MOST)


async def test_a_certificate_must_be_of_the_name_and_not_of_the_address(
    server, fetcher_factory, monkeypatch, tmp_path
):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    names = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("images.test").configure_cert(context)
    context.sni_callback = lambda _, name, __: names.append(name)
    tls = await asyncio.start_server(server.take, "127.0.0.1", 0, ssl=context)
    port = tls.sockets[0].getsockname()[1]
    server.reply("/a.png")
    fetcher = fetcher_factory(allow=(f"https://*.test:{port}/",))
    assert await fetcher.fetch(f"https://images.test:{port}/a.png", "", most=MOST) == BODY
    assert names == ["images.test"]
    with pytest.raises(InputError, match="its certificate does not hold"):
        await fetcher.fetch(f"https://other.test:{port}/a.png", "", most=MOST)
    monkeypatch.delenv("SSL_CERT_FILE")
    stranger = fetcher_factory(allow=(f"https://*.test:{port}/",))
    with pytest.raises(InputError, match="its certificate does not hold"):
        await stranger.fetch(f"https://images.test:{port}/a.png", "", most=MOST)
    tls.close()
