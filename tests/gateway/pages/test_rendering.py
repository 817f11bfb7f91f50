"""What all pages share: how numbers and hostile texts are shown, and the files that pages load."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from groundwatch.gateway.pages import rendering
from groundwatch.statistics.intervals import Interval


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (rendering.percent(0.1144), "11.4\u202f%"),
        (rendering.percent(None), "–"),
        (rendering.bounds(Interval(0.11, 0.1032, 0.1249, 9)), "10.3–12.5\u202f%"),
        (rendering.limits(Interval(0.1, -0.041, 0.314, 9)), "−0.04 to 0.31"),
        (rendering.whole(1234567), "1,234,567"),
        (rendering.dollars(0.00123), "$0.0012"),
        (rendering.dollars(12.5), "$12.50"),
        (rendering.duration(183_900), "2\u202fd 3\u202fh"),
        (rendering.size(1_234_000), "1.2\u202fMB"),
        (rendering.size(12), "12\u202fB"),
        (rendering.address("/answers", model="a b&c", verdict="", run=None), "/answers?model=a+b%26c"),
    ],
)
def test_numbers_are_shown_as_people_write_them(shown, expected):
    assert shown == expected


def test_a_moment_is_in_utc_and_readable_by_machines():
    assert rendering.moment(1_700_000_000.0) == (
        '<time datetime="2023-11-14T22:13:20Z" title="14 Nov 2023, 22:13:20 UTC" data-form="moment">'
        "14 Nov 2023, 22:13 UTC</time>"
    )
    assert rendering.moment(float("inf")).startswith('<time datetime="9999-12-31')


def test_texts_of_others_stay_texts():
    shown = rendering.isolated("<script>\x1b[31m\u202eevil\n\x00")
    assert shown == "<bdi>&lt;script&gt;␛[31m\u202eevil ␀</bdi>"
    assert "\ud800" not in rendering.cut("\ud800")


def test_a_long_text_is_cut_and_never_endless():
    shown = rendering.cut("x" * 1_000_000)
    assert len(shown) < 1.1 * rendering.MOST
    assert "<details>" in shown and "900,000 more characters" in shown
    assert len(rendering.isolated("y" * 1_000_000)) < 2_000


async def test_files_are_kept_under_their_digest_alone(gateway):
    version = rendering.StaticFiles().version
    kept = await gateway.http.get(f"/static/{version}/style.css")
    assert kept.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert kept.headers["content-type"].startswith("text/css")
    for path in ("/static/style.css", "/static/0123456789abcdef/style.css"):
        assert (await gateway.http.get(path)).headers["cache-control"] == "no-cache"
    for path in ("/static/none.css", "/static/../rendering.py", f"/static/{version}/..%2frendering.py"):
        assert (await gateway.http.get(path)).status_code == 404
    icon = await gateway.http.get("/favicon.ico", follow_redirects=True)
    assert icon.headers["content-type"] == "image/svg+xml"


def test_the_dark_changes_colors_and_nothing_else():
    """What `check_page` rests on: in the dark it asks again about colors alone."""
    style = Path(rendering.__file__).with_name("static").joinpath("style.css").read_text("utf-8")
    blocks = re.findall(r"@media \(prefers-color-scheme: dark\) \{\s*:root \{(.*?)\}\s*\}", style, re.DOTALL)
    assert len(blocks) == style.count("prefers-color-scheme") == 1
    named = dict(re.findall(r"(--[\w-]+): (#[0-9a-f]{3,6});", blocks[0]))
    assert re.sub(r"--[\w-]+: #[0-9a-f]{3,6};", "", blocks[0]).strip() == "" and named
