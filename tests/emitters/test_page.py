"""docs/connect.md as a page: its table and its sections fit each other, and what it names is there."""

from __future__ import annotations

import re
import tomllib

import yaml
from tests.emitters import page
from tests.emitters.emitters import EMITTERS

from groundwatch.runtime.settings.gateway import GatewaySettings

ABOUT = {"Batches", "What can go wrong"}
"""Sections that are about no way in."""


def anchor(heading: str) -> str:
    return re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")


def test_each_row_has_its_section_and_each_section_its_row() -> None:
    rows = re.findall(r"^\| \[[^\]]+\]\(#([^)]+)\)", page.PAGE.read_text(), re.MULTILINE)
    assert rows == [anchor(heading) for heading in page.sections() if heading not in ABOUT]


def test_each_row_has_its_four_cells() -> None:
    table = [line for line in page.PAGE.read_text().splitlines() if line.startswith("| [")]
    assert {len(line.strip("|").split("|")) for line in table} == {4}


def test_each_block_that_sends_spans_sets_the_sizes_of_batch_and_queue() -> None:
    sending = [
        text
        for heading in page.sections()
        for language in ("sh", "yaml")
        for text in page.blocks(heading, language)
        if re.search("OTLP_(TRACES_)?ENDPOINT|TRACELOOP_BASE_URL|OTEL_BSP", text)
        or "LANGFUSE_SECRET_KEY" in text
    ]
    assert len(sending) > 5
    for text in sending:
        assert re.search(r"(BATCH_SIZE(=|, value: \")|FLUSH_AT=)16\b", text), text
        assert re.search(r"QUEUE_SIZE(=|, value: \")\d+", text), text


def test_the_blocks_of_yaml_are_yaml() -> None:
    held = [yaml.safe_load(text) for heading in page.sections() for text in page.blocks(heading, "yaml")]
    assert len(held) >= 3 and all(isinstance(one, dict) for one in held)


def test_the_addresses_are_the_gateways() -> None:
    """Those that somebody copies are of one gateway as it starts, at a path that it has."""
    text = page.PAGE.read_text()
    standard = GatewaySettings()
    paths = set()
    for host, port, path in re.findall(r"http://([\w.-]+):(\d+)(/[\w/]*)?", text):
        assert (host, int(port)) in {
            (standard.host, standard.port),
            ("groundwatch-gateway", standard.port),
        }
        paths.add(path)
    assert paths <= {"", "/v1/litellm", "/v1/cloudevents", "/v1/responses/ID", "/v1/traces"} | proxied()


def proxied() -> set[str]:
    """Below the upstreams that the page names; OpenAI's client wants its version in the address."""
    (text,) = page.blocks("Through the gateway", "toml")
    settings = GatewaySettings(**tomllib.loads(text)["gateway"])
    return {f"/{name}" for name in settings.proxy.upstreams} | {"/openai/v1"}


def test_each_emitter_is_installed_by_a_section() -> None:
    for name, emitter in EMITTERS.items():
        assert emitter.packages, name
        assert any(package.startswith(emitter.package) for package in emitter.packages), name
