"""Any verdicts and any weights, for properties of rewards."""

from types import MappingProxyType

from hypothesis import strategies as st

from tiltyard.core.verdict import Check, CheckStatus, Component, Gap, Outcome, Verdict
from tiltyard.core.weights import Bounds, ComponentWeight, Unresolved, Weights

NAMES = ("style", "growth", "leaks")
QUANTA = st.sampled_from([0.0, 1.0, 0.5, 0.25, 0.1, 0.05, 0.01])
SHARES = st.floats(0, 1)
NUMBERS = st.floats(-1e6, 1e6)


def some_weights(*, bounds: bool = True) -> st.SearchStrategy[Weights]:
    pairs = st.tuples(NUMBERS, NUMBERS).filter(lambda pair: pair[0] != pair[1])
    some_bounds = st.builds(
        lambda pair, relative: Bounds(best=pair[0], worst=pair[1], relative=relative),
        pairs,
        st.booleans(),
    )
    weight = st.builds(
        ComponentWeight,
        weight=st.floats(0, 10),
        bounds=st.none() | some_bounds if bounds else st.none(),
        quantum=QUANTA,
        unresolved=st.sampled_from(Unresolved),
    )
    return st.builds(
        Weights,
        tests=st.floats(0.01, 10),
        partial=st.booleans(),
        gate=st.booleans(),
        quantum=QUANTA,
        components=st.dictionaries(st.sampled_from(NAMES), weight).map(MappingProxyType),
    )


def component(name: str, share: float) -> Component:
    return Component(name=name, raw=share, normalised=share, reference=1.0)


@st.composite
def some_components(draw: st.DrawFn, *, odd: bool = True) -> tuple[Component, ...]:
    made = []
    for name in draw(st.sets(st.sampled_from(NAMES))):
        gap = draw(st.sampled_from([None, None, *Gap])) if odd else None
        value = draw(st.floats() if odd else SHARES)
        made.append(
            Component(name=name, raw=None, gap=gap)
            if gap
            else Component(name=name, raw=value, normalised=value, reference=draw(NUMBERS))
        )
    return tuple(made)


CHECKS = st.lists(
    st.builds(
        Check,
        id=st.text(max_size=3),
        status=st.sampled_from(CheckStatus) | st.just(CheckStatus.PASSED),
        weight=st.floats(0, 10),
    ),
    max_size=5,
).map(tuple)


def some_verdicts(
    outcomes: st.SearchStrategy[Outcome] = st.just(Outcome.GRADED),  # noqa: B008 - a constant
) -> st.SearchStrategy[Verdict]:
    return st.builds(
        Verdict,
        outcome=outcomes,
        checks=CHECKS,
        tamper=st.sampled_from([(), (), ("a conftest",)]),
        detail=st.text(max_size=5),
        components=some_components(),
        baseline=st.floats(0, 1),
    )
