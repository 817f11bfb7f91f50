"""The search for a change of rate: how often it alarms for nothing, and how near it comes."""

from __future__ import annotations

from random import Random

from groundwatch.statistics.changes import find_change


def answers(random: Random, rate: float, number: int, sharing: float = 6.0) -> list[tuple[int, int]]:
    found = []
    for _ in range(number):
        decided = random.randint(3, 12)
        own = random.betavariate(rate * sharing, (1 - rate) * sharing)
        found.append((sum(random.random() < own for _ in range(decided)), decided))
    return found


def test_no_change_is_rarely_called_one():
    random = Random(1)
    alarms = sum(
        find_change(answers(random, 0.15, 80), level=0.05, permutations=199, seed=number) is not None
        for number in range(120)
    )
    assert alarms <= 13


def test_a_doubled_rate_is_found_near_its_place():
    random = Random(2)
    distances = []
    for number in range(15):
        found = find_change(answers(random, 0.12, 75) + answers(random, 0.32, 75), seed=number)
        if found is not None:
            assert found.before < found.after
            assert found.p_value <= 0.01
            distances.append(abs(found.response - 76))
    assert len(distances) >= 14
    assert sorted(distances)[len(distances) // 2] <= 6


def test_an_improvement_is_a_change_too():
    random = Random(3)
    found = find_change(answers(random, 0.4, 60) + answers(random, 0.1, 60))
    assert found is not None
    assert found.before > found.after


def test_the_number_counts_responses_that_were_not_decided():
    steady, worse = [(0, 5)] * 30, [(4, 5)] * 30
    found = find_change([(0, 0)] * 10 + steady + [(0, 0)] * 7 + worse)
    assert found is not None
    assert found.response == 48
    assert (found.before, found.after) == (0.0, 0.8)


def test_the_same_seed_gives_the_same_answer():
    found = answers(Random(4), 0.2, 90)
    assert find_change(found, level=1.0, seed=5) == find_change(found, level=1.0, seed=5)


def test_what_is_too_short_or_without_variation_has_no_change():
    assert find_change([]) is None
    assert find_change([(0, 1)] * 7 + [(1, 1)] * 7) is None
    assert find_change([(0, 5)] * 100) is None
    assert find_change([(5, 5)] * 100) is None
    assert find_change([(0, 0)] * 100) is None


def test_long_sequences_are_searched_in_blocks():
    random = Random(6)
    found = find_change(answers(random, 0.15, 12_000) + answers(random, 0.2, 8_000), permutations=199)
    assert found is not None
    assert abs(found.response - 12_001) < 800
