"""erase and retention as an operator types them, against a running system with its archive."""

from __future__ import annotations

import time

import pytest


@pytest.fixture
def recorded(up, written, answer):
    """A judged response of a tenant of its own, which is in the archive too."""

    def record(tenant: str) -> None:
        before = up.json("audit")["recorded"]
        up.json(
            "submit", written(answer("e1", tenant=tenant, answer=f"A heron of {tenant} stands on a box."))
        )
        up.settled(before + 1)

    return record


def test_a_response_is_erased_and_the_proof_holds(up, recorded, tmp_path):
    recorded("erasable")
    whose = ("--response", "e1", "--tenant", "erasable")
    file = tmp_path / "export.gwx"
    up.json("replay", "export", "--out", file, "--tenant", "erasable")
    looked = up.json("admin", "erase", *whose, "--dry-run")
    assert looked["counts"]["GW_RESPONSES"] == looked["counts"]["GW_OUTCOMES"] == 1
    done = up.json("admin", "erase", *whose, "--verify", "--yes")
    assert done["counts"]["GW_RESPONSES"] == done["counts"]["export records"] == 1
    assert (done["proof"]["found"], done["proof"]["unseen"]) == ([], [])
    # The archive writes what it holds within half a minute: it leaves this out.
    files = (up.folder / "nats", up.folder / "archive")
    needle = b"A heron of erasable"
    for one in (each for folder in files for each in folder.rglob("*") if each.is_file()):
        assert needle not in one.read_bytes(), one
    ledger = up.json("audit")
    assert ledger["balanced"] and ledger["erased"] >= 1
    again = up("admin", "erase", *whose, "--yes")
    assert (again.returncode, "it had been erased before" in again.stdout) == (0, True)


def test_what_was_erased_is_refused_until_it_is_lifted(up, recorded, written, answer):
    recorded("lifted")
    assert up("admin", "erase", "--tenant", "lifted", "--yes").returncode == 0
    line = written(answer("e2", tenant="lifted"))
    deadline = time.monotonic() + 30
    while up("submit", line).returncode == 0:
        assert time.monotonic() < deadline
    refused = up("submit", line)
    assert "was erased" in refused.stdout + refused.stderr
    assert up("admin", "erase", "--tenant", "lifted", "--lift").returncode == 0
    while up("submit", line).returncode != 0:
        assert time.monotonic() < deadline


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        ((), 2, "say what to erase"),
        (("--response", "r"), 2, "say --yes"),
        (("--response", ""), 2, "this one is empty"),
        (("--image", "abc", "--yes"), 2, "64 hex digits"),
        (("--image", "a" * 64, "--tenant", "t"), 2, "belongs to no tenant (--image)"),
        (("--response", "nobody-has-this", "--yes"), 1, "nothing found of response 'nobody-has-this'"),
        (("--response", "nobody-has-this", "--lift"), 1, "has no tombstone"),
    ],
)
def test_misuse_is_one_line(up, arguments, status, says):
    done = up("admin", "erase", *arguments)
    assert done.returncode == status
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_retention_tells_what_it_removed(up):
    assert up.json("admin", "retention") == {"expired": {}, "resurrected": {}, "dry_run": False}
    wrong = up("admin", "retention", "--every", "soon")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
