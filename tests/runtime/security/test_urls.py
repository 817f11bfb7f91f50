"""Addresses that others name: one form, compared exactly."""

from __future__ import annotations

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.errors import InputError
from groundwatch.runtime.security.urls import AllowList, read_location, read_pattern, read_url, shown

LIST = AllowList(
    [
        "https://images.example.com/public/",
        "http://images.example.com:8080/",
        "https://*.cdn.example.com/",
        "https://[2001:db8::1]/",
        "s3://bucket/prefix/",
        "gs://other_bucket/",
        "file:///data/images/",
    ]
)


@pytest.mark.parametrize(
    "url",
    [
        "https://images.example.com/public/cat.png",
        "HTTPS://Images.Example.COM:443/public/cat.png?size=1&sig=%2F#part",
        "https://images.example.com/other/../public/cat.png",
        "https://images.example.com/%70ublic/cat.png",
        "https://images.example.com/public/кот.png",
        "https://images.example.com/public/a%2Fb.png",
        "https://images.example.com/public/100%25.png",
        "http://images.example.com:8080/anything",
        "https://a.cdn.example.com/x",
        "https://a.b.cdn.example.com/x",
        "https://[2001:DB8:0::1]/x",
        "s3://bucket/prefix/a b/cat%20.png",
        "gs://other_bucket/cat.png",
        "file:///data/images/cat%20.png",
        "file://localhost/data/images/cat.png",
    ],
)
def test_what_is_below_a_listed_folder_is_covered(url):
    assert LIST.covers(read_url(url))


@pytest.mark.parametrize(
    "url",
    [
        "http://images.example.com/public/cat.png",
        "https://images.example.com:8443/public/cat.png",
        "https://images.example.com/publicity/cat.png",
        "https://images.example.com/public",
        "https://images.example.com/public/../private/cat.png",
        "https://images.example.com/public/%2e%2E/private/cat.png",
        "https://images.example.com/public/.%2e/private/cat.png",
        "https://images.example.com/public/..",
        "https://images.example.com.evil.example/public/cat.png",
        "https://evilimages.example.com/public/cat.png",
        "https://cdn.example.com/x",
        "https://evilcdn.example.com/x",
        "https://.cdn.example.com/x",
        "https://images.example.com@evil.example/public/cat.png",
        "https://evil.example/https://images.example.com/public/",
        "https://evil.example#@images.example.com/public/",
        "https://evil.example?@images.example.com/public/",
        "s3://bucket/prefixed/cat.png",
        "s3://bucket/prefix",
        "s3://Bucket/prefix/cat.png",
        "gs://bucket/prefix/cat.png",
        "file:///data/images",
        "file:///data/other/cat.png",
    ],
)
def test_all_else_is_not(url):
    try:
        read = read_url(url)
    except InputError:
        return
    assert not LIST.covers(read)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "cat.png",
        "//images.example.com/public/cat.png",
        "https:/images.example.com/public/cat.png",
        "https:images.example.com",
        "https://",
        "https:///public/cat.png",
        "ftp://images.example.com/cat.png",
        "javascript://images.example.com/%0aalert(1)",
        "https://user@images.example.com/public/cat.png",
        "https://user:secret@images.example.com/public/cat.png",
        "https://images.example.com\\@evil.example/public/cat.png",
        "https://images.example.com/public\\..\\private",
        "https://images.example.com/pub\tlic/cat.png",
        "https://images.example.com/public/\r\nHost: evil",
        " https://images.example.com/public/cat.png",
        "https://images.example.com/public/a cat.png",
        "https://images.example.com/public/..%2fprivate",
        "https://images.example.com/public/%2e%2e%2fprivate",
        "https://images.example.com/public/%252e%252e/private",
        "https://images.example.com/public/%252e%252e%252fprivate",
        "https://images.example.com/public/..;/private",
        "https://images.example.com/public/..%5cprivate",
        "https://images.example.com/public/%00",
        "https://images.example.com/public/%0d%0aHost:%20evil",
        "https://images.example.com/public/%2525252525252e",
        "https://images.example.com:0/public/",
        "https://images.example.com:65536/public/",
        "https://images.example.com:/public/",
        "https://images.example.com:443:443/public/",
        "https://*.example.com/public/",
        "https://images.example.com./public/cat.png",
        "https://bücher.example/cat.png",
        "https://images%2eexample.com/public/",
        "https://[::1/cat.png",
        "https://[fe80::1%25eth0]/cat.png",
        "https://[1.2.3.4]/cat.png",
        "s3:///prefix/cat.png",
        "s3://user@bucket/prefix/cat.png",
        "s3://bucket/prefix/../cat.png",
        "s3://bucket/prefix//cat.png",
        "s3://bucket/prefix/cat.png?versionId=1",
        "s3://bucket/prefix/\x00",
        "file://host/data/images/cat.png",
        "file:///data/images/../cat.png",
        "file:///data/images/%2e%2e/cat.png",
        "file:///data/images/%2e%2e%2fcat.png",
        "file:///data/images/%00",
        "file:///data/images/%ff",
        "https://images.example.com/" + "a" * 9000,
    ],
)
def test_what_could_be_read_in_two_ways_is_refused_in_one_line(url):
    with pytest.raises(InputError) as raised:
        read_url(url)
    assert len(str(raised.value)) < 1000
    assert "secret" not in str(raised.value)
    assert str(raised.value).isprintable()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("https://images.example.com/public", "does not end with /"),
        ("https://images.example.com/?a=b", "does not end with /"),
        ("images.example.com/", "no address"),
        ("https://a*.example.com/", "no name of a host"),
        ("https://*example.com/", "no name of a host"),
        ("https://*.*.example.com/", "no name of a host"),
        ("s3://*/", "no bucket"),
        ("file://data/", "names a host"),
        ("ftp://images.example.com/", "is not fetched"),
    ],
)
def test_an_entry_that_is_none_is_told(text, words):
    with pytest.raises(InputError, match=words):
        read_pattern(text)


def test_a_star_is_every_host_at_the_port_of_its_scheme():
    everywhere = AllowList(["https://*/"])
    assert everywhere.covers(read_url("https://images.example.com/cat.png"))
    assert not everywhere.covers(read_url("https://images.example.com:8443/cat.png"))
    assert not everywhere.covers(read_url("http://images.example.com/cat.png"))


def test_without_an_entry_nothing_is_covered():
    assert not AllowList([]).covers(read_url("https://images.example.com/cat.png"))


def test_keys_in_an_address_are_not_shown():
    url = "https://images.example.com/cat.png?X-Amz-Signature=abc&X-Amz-Security-Token=def&w=1"
    assert read_url(url).text == url
    assert "abc" not in shown(url)
    assert "def" not in read_url(url).shown


_PIECES = "/ .. . %2e %2E %2f %5c %25 %252e ; ? # @ : \\ a public private // % %c0%ae é [ ] * .com"
PIECES = st.sampled_from([*_PIECES.split(" "), " ", "\n", "\x00"])


@given(st.lists(PIECES, max_size=14).map("".join))
def test_what_is_covered_leads_nowhere_else_however_often_it_is_decoded(tail):
    try:
        url = read_url("https://images.example.com/public/" + tail)
    except InputError:
        return
    assert read_url(url.text) == url
    path = url.path
    for _ in range(6):
        parts = path.replace("\\", "/").split("/")
        assert not {".", ".."} & {part.partition(";")[0] for part in parts}
        path = unquote(path)
    assert url.target.isascii() and url.target.isprintable() and " " not in url.target
    assert LIST.covers(url) == url.path.startswith("/public/")


@given(st.text(max_size=60))
def test_any_text_is_an_address_or_refused(text):
    for url in (text, f"https://{text}", f"https://images.example.com/{text}", f"s3://bucket/{text}"):
        try:
            read = read_url(url)
        except InputError as error:
            assert str(error)
            continue
        assert read_url(read.text) == read or read.scheme == "file"


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("https://b.example.com/x?y", "https://b.example.com/x?y"),
        ("//b.example.com/x", "https://b.example.com/x"),
        ("/x", "https://a.example.com:8443/x"),
        ("x/../y", "https://a.example.com:8443/p/y"),
        ("../../x", "https://a.example.com:8443/x"),
        ("?z", "https://a.example.com:8443/p/q?z"),
        ("mailto:x", "https://a.example.com:8443/p/mailto:x"),
    ],
)
def test_where_a_server_says_that_something_is(location, target):
    base = read_url("https://a.example.com:8443/p/q?r")
    assert read_location(base, location).text == target


@given(st.text(max_size=40) | st.lists(PIECES, max_size=8).map("".join))
def test_any_location_leads_somewhere_or_is_refused(location):
    base = read_url("https://images.example.com/public/cat.png")
    try:
        read = read_location(base, location)
    except InputError:
        return
    assert read.scheme == "file" or read_url(read.text) == read
