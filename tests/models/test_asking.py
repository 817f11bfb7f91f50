"""The breaker: open after faults in a row, one trial after the pause."""

from __future__ import annotations

from groundwatch.models.asking import ASKED_FOR, FACTOR, Breaker


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def opened(clock: Clock) -> Breaker:
    breaker = Breaker(failures=3, pause=10.0, clock=clock)
    for _ in range(3):
        assert breaker.enter() == 0
        breaker.failed("down")
    return breaker


def test_it_opens_after_faults_in_a_row_only():
    breaker = Breaker(failures=2, pause=10.0, clock=Clock())
    for _ in range(5):
        breaker.failed("down")
        breaker.succeeded()
    assert breaker.enter() == 0 and breaker.why == ""


def test_one_call_tries_after_the_pause():
    clock = Clock()
    breaker = opened(clock)
    assert breaker.enter() == 10 and breaker.why == "down"
    clock.now = 10.0
    assert breaker.enter() == 0
    assert breaker.enter() > 0, "only one at a time"
    breaker.succeeded()
    assert breaker.enter() == 0 and breaker.why == ""


def test_a_failed_trial_doubles_the_pause_up_to_a_bound():
    clock = Clock()
    breaker = opened(clock)
    waits = []
    for _ in range(6):
        clock.now += breaker.enter()
        assert breaker.enter() == 0
        breaker.failed("still down")
        waits.append(breaker.enter())
    assert waits == [20, 40, 80, 10 * FACTOR, 10 * FACTOR, 10 * FACTOR]


def test_a_cancelled_trial_lets_the_next_one_try():
    clock = Clock()
    breaker = opened(clock)
    clock.now = 10.0
    assert breaker.enter() == 0
    breaker.left()
    assert breaker.enter() == 0


def test_stragglers_of_before_do_not_prolong_the_pause():
    clock = Clock()
    breaker = opened(clock)
    clock.now = 5.0
    breaker.failed("one that had begun before")
    assert breaker.enter() == 5


def test_one_event_alone_never_opens_it_two_do():
    breaker = Breaker(failures=3, pause=10.0, clock=Clock())
    ASKED_FOR.set("one")
    for _ in range(10):
        breaker.failed("down")
    assert breaker.enter() == 0 and not breaker.is_open
    ASKED_FOR.set("two")
    breaker.failed("down")
    assert breaker.is_open
    ASKED_FOR.set("")


def test_what_is_away_for_certain_is_away_at_once():
    clock = Clock()
    breaker = Breaker(failures=3, pause=10.0, clock=clock)
    breaker.away("connection refused")
    assert (breaker.is_open, breaker.why, breaker.enter()) == (True, "connection refused", 10)
    breaker.away("connection refused")
    assert breaker.enter() == 10, "no trial was made"
    clock.now = 10.0
    breaker.away("connection refused")
    assert breaker.enter() == 20
    breaker.succeeded()
    assert not breaker.is_open and breaker.remaining == 0
