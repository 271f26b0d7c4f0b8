"""Who gets a job: affinity, bounded load, circuits."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.backends.faults import Fault
from vivace.backends.replicas import FAILURES, LONGEST_REST, SHARE, Replica, Replicas


class Time:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def replicas(count: int) -> tuple[Replicas, Time]:
    time = Time()
    return Replicas([Replica(f"http://r{n}/v1") for n in range(count)], time), time


def test_a_key_stays_and_keys_spread() -> None:
    some, _ = replicas(4)
    homes = {key: some.choose(key, set()) for key in map(str, range(400))}
    assert all(some.choose(key, set()) is home for key, home in homes.items())
    shares = [sum(home is health for home in homes.values()) for health in some.all]
    assert min(shares) > 60, shares


def test_losing_one_moves_only_its_keys() -> None:
    some, _ = replicas(4)
    homes = {key: some.choose(key, set()) for key in map(str, range(200))}
    lost = some.all[0]
    for _ in range(FAILURES):
        lost.failed("gone")
    for key, home in homes.items():
        assert some.choose(key, set()) is (home if home is not lost else some.choose(key, {lost.replica.base_url}))


@given(st.integers(1, 5), st.lists(st.sampled_from(["a", "b", "c"]), max_size=40))
def test_no_replica_has_more_than_its_share(count: int, keys: list[str]) -> None:
    some, _ = replicas(count)
    for running, key in enumerate(keys):
        health = some.choose(key, set())
        assert health.active < math.ceil(SHARE * (running + 1) / count)
        health.active += 1


def test_the_circuit() -> None:
    some, time = replicas(1)
    health = some.all[0]
    for _ in range(FAILURES - 1):
        health.failed("no answer")
        assert some.choose("k", set()) is health
    health.failed("no answer")
    with pytest.raises(Fault, match="no answer") as raised:
        some.choose("k", set())
    assert 0 < raised.value.retry_after <= 1.2
    time.now += 1.3
    assert some.choose("k", set()) is health
    with health.job():  # half open: one may try, others wait for how it goes
        assert health.open
        health.failed("no answer")
    assert health.open
    assert health.back_in > 1.2, "the rest did not grow"
    time.now += 2.5
    with health.job():
        pass
    health.succeeded()
    with health.job():
        assert not health.open
    for _ in range(20):
        health.failed("x")
    assert health.back_in <= LONGEST_REST * 1.2


def test_a_replica_that_asks_for_rest_gets_it() -> None:
    some, time = replicas(2)
    first = some.choose("k", set())
    first.busy(3.0, "slow down")
    first.succeeded()  # a probe, or a job that was running, says nothing about the rest that it asked for
    second = some.choose("k", set())
    assert second is not first
    time.now += 3.1
    assert some.choose("k", set()) is first
    assert not some.elsewhere({first.replica.base_url, second.replica.base_url})


def test_addresses() -> None:
    assert Replica("http://host:1/v1/").root == "http://host:1"
    assert Replica("http://host:1/api").root == "http://host:1/api"
    assert Replica("http://h/v1", "k").headers() == {"authorization": "Bearer k"}
    assert "authorization" not in Replica("http://h/v1").headers()
