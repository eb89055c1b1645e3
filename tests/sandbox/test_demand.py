"""How many are worth keeping: what was missing at the worst of the last minute, within bounds."""

import pytest
from hypothesis import given, strategies as st

from tiltyard.sandbox.demand import REMEMBERED_S, Demand

WARM, WARM_MAX = 4, 32

PAUSES_S = st.one_of(st.just(0.0), st.floats(0, 0.05), st.floats(0, 2 * REMEMBERED_S))
STEPS = st.lists(st.tuples(PAUSES_S, st.sampled_from(("asked", "ended", "timed"))), max_size=120)


def fresh() -> Demand:
    return Demand(warm=WARM, warm_max=WARM_MAX)


def told(demand: Demand, steps: list[tuple[float, str]]) -> float:
    """Tells a demand what happened after which pauses, and returns the time of the last."""
    now_s = 0.0
    for pause_s, what in steps:
        now_s += pause_s
        match what:
            case "asked":
                demand.asked(now_s)
            case "ended":
                demand.ended()
            case "timed":
                demand.timed(pause_s)
    return now_s


def burst(demand: Demand, count: int, *, now_s: float) -> None:
    for _ in range(count):
        demand.asked(now_s)


@given(steps=STEPS, later_s=PAUSES_S, bounds=st.tuples(st.integers(0, 40), st.integers(0, 40)))
def test_the_target_keeps_within_its_bounds(
    steps: list[tuple[float, str]], later_s: float, bounds: tuple[int, int]
) -> None:
    warm, warm_max = sorted(bounds)
    demand = Demand(warm=warm, warm_max=warm_max)
    now_s = told(demand, steps)
    assert warm <= demand.target(now_s + later_s) <= warm_max


@given(steps=STEPS, later_s=PAUSES_S, place=st.integers(0, 120))
def test_one_more_that_asks_never_lowers_it(
    steps: list[tuple[float, str]], later_s: float, place: int
) -> None:
    fewer, more = fresh(), fresh()
    now_s = told(fewer, steps)
    assert told(more, [*steps[:place], (0.0, "asked"), *steps[place:]]) == now_s
    assert more.target(now_s + later_s) >= fewer.target(now_s + later_s)


@given(steps=STEPS, pauses_s=st.lists(PAUSES_S, max_size=10))
def test_in_silence_it_only_falls_and_when_it_said_it_would(
    steps: list[tuple[float, str]], pauses_s: list[float]
) -> None:
    demand = fresh()
    now_s = told(demand, steps)
    last = demand.target(now_s)
    for pause_s in pauses_s:
        now_s += pause_s
        falls_s = demand.falls_s
        now = demand.target(now_s)
        assert now <= last
        assert (now < last) == (falls_s is not None and falls_s <= now_s)
        last = now


@given(steps=STEPS)
def test_a_minute_of_silence_forgets_all(steps: list[tuple[float, str]]) -> None:
    demand = fresh()
    now_s = told(demand, steps)
    assert demand.target(now_s + REMEMBERED_S) == WARM
    assert demand.falls_s is None


@given(count=st.integers(0, 100), began_s=st.floats(0, 1e6))
def test_a_burst_is_remembered_whole(count: int, began_s: float) -> None:
    demand = fresh()
    burst(demand, count, now_s=began_s)
    for later_s in (0.0, REMEMBERED_S / 2, REMEMBERED_S * 0.99):
        assert demand.target(began_s + later_s) == min(max(count, WARM), WARM_MAX)


def test_a_smaller_burst_after_a_larger_one_is_remembered_longer() -> None:
    demand = fresh()
    burst(demand, 20, now_s=0.0)
    burst(demand, 10, now_s=40.0)
    assert demand.target(59.0) == 20
    assert demand.target(61.0) == 10
    assert demand.target(101.0) == WARM


@given(pauses_s=st.lists(st.floats(0, 0.01), max_size=300))
def test_one_caller_that_comes_back_at_once_asks_for_no_more(pauses_s: list[float]) -> None:
    demand = Demand(warm=1, warm_max=WARM_MAX)
    now_s = 0.0
    for pause_s in pauses_s:
        now_s += pause_s
        demand.asked(now_s)
        demand.ended()
    assert demand.target(now_s) == 1


def test_those_that_come_slower_than_one_is_made_ask_for_no_more() -> None:
    quick, slow = fresh(), fresh()
    for _ in range(50):
        quick.timed(0.001)
        slow.timed(1.0)
    for n in range(100):
        quick.asked(n * 0.01)
        slow.asked(n * 0.01)
    assert quick.target(1.0) == WARM
    assert slow.target(1.0) == WARM_MAX


@pytest.mark.parametrize("bounds", [(-1, 4), (5, 4)])
def test_bounds_that_make_no_sense_are_refused(bounds: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="warm_max"):
        Demand(warm=bounds[0], warm_max=bounds[1])
