from __future__ import annotations

import json
from importlib.util import find_spec

import pytest
from typer.testing import CliRunner, Result

from groundwatch.cli import app
from groundwatch.errors import UsageError
from groundwatch.events import Reference
from groundwatch.protocols import registry
from groundwatch.protocols.planted import Kind
from groundwatch_benchmarks import planted

# To import it takes seconds, in every process that collects tests.
if find_spec("sentence_transformers") is None:
    pytest.skip("needs sentence_transformers", allow_module_level=True)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_what_it_plants_is_the_same_each_time():
    first = planted.planted_answers(10)
    assert first == planted.planted_answers(10) != planted.planted_answers(10, seed=8)
    assert all(one.reference.complete for one in first)
    assert not any(fact.holds is False for one in first for fact in one.reference.facts)


def test_chair_finds_the_objects_that_are_not_there():
    done = run("validate", "planted", "--protocol", "chair", "--answers", 40, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["answers"] == 40
    (row,) = found["found"]
    assert (row["protocol"], row["kind"]) == ("chair", Kind.OBJECT)
    assert row["recall"]["n"] == found["planted"]["object"] > 10
    assert row["recall"]["value"] > 0.9
    assert row["false_alarms"]["n"] == found["untouched"]
    assert row["false_alarms"]["value"] < 0.1


def test_exchanged_sizes_are_found_in_whole_answers():
    rankings = planted.planted_rankings(20)
    assert rankings == planted.planted_rankings(20)
    assert sum(one.exchanged is not None for one in rankings) == 10
    done = run("validate", "planted", "--protocol", "valor-relation-comparative", "--answers", 20, "--json")
    assert done.exit_code == 0, done.output
    (row,) = json.loads(done.stdout)["found"]
    assert (row["kind"], row["recall"]["n"], row["false_alarms"]["n"]) == (Kind.COMPARISON, 10, 10)
    assert row["recall"]["value"] > 0.8
    assert row["false_alarms"]["value"] < 0.2


@pytest.mark.slow
def test_every_protocol_is_told_by_kind():
    done = run("validate", "planted", "--answers", 4)
    assert done.exit_code == 0, done.output
    for name in planted.chosen():
        assert name in done.stdout


def test_wrong_use_is_told():
    for arguments, told in (
        (["validate", "planted", "--protocol", "nonsense"], "no protocol 'nonsense'"),
        (["validate", "planted", "--protocol", "genception"], "claims to see"),
    ):
        done = run(*arguments)
        assert isinstance(done.exception, UsageError) and told in str(done.exception)


def test_a_reference_reads_as_each_protocol_wants_it():
    reference = Reference(
        objects=("dog",),
        triplets=(("dogs", "count", "two"), ("dogs", "is", "black"), ("dogs", "behind", "bench")),
        complete=True,
    )
    objects = {
        name: planted.reference_for(registry.get(name), reference).objects for name in planted.chosen()
    }
    assert objects["chair"] == ("dog", "dogs", "bench")
    assert objects["valor-attribute-object"] == ("(black, dogs)", "(black, dogs)")
    assert objects["valor-relation-positional"] == ("dogs is behind bench",)
    assert planted.reference_for(registry.get("faithscore"), reference) is reference
