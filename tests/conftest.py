"""What every test may use: the shared cases, and plain words for what is skipped.

A skip says what is missing and is counted in the closing lines, so that a machine without
sandboxes, or without a fuzzer for their programs, does not look green; `--require-sandbox` turns
those skips into failures. Tests marked `long` are left out unless `-m` names that marker: of each
there is a sample that is not.
"""

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from chosen import SHARED_CASES
from tiltyard.core.execution import Enforcement, Limit
from tiltyard.sandbox.native.provider import NativeProvider

REPOSITORY = Path(__file__).resolve().parents[1]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tiltyard")
    group.addoption(
        "--require-sandbox",
        action="store_true",
        help="fail the sandbox tests where this machine gives no sandboxes, and those of the "
        "C programs where it lacks a compiler or fuzzer for them, instead of skipping",
    )
    group.addoption(
        "--soak-s",
        type=float,
        default=3.0,
        help="how long each soak test repeats its crashes, in seconds",
    )
    group.addoption(
        "--soak-cycles",
        type=int,
        default=300,
        help="how many sandboxes the soak test makes and destroys",
    )
    group.addoption(
        "--verify-repeats",
        type=int,
        default=0,
        help="how often every measured program of a collection is measured; 0: a few, once",
    )


def sandbox_refusal() -> str | None:
    """Why this machine gives no sandboxes, in one sentence; None when it gives them."""
    if importlib.util.find_spec("tiltyard.sandbox") is None:
        return "the package has no sandbox room."
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not re.search(r"\blong\b", config.getoption("markexpr")):
        put_off = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=put_off)
        items[:] = [item for item in items if not item.get_closest_marker("long")]
    wanting = [item for item in items if item.get_closest_marker("sandbox")]
    refusal = sandbox_refusal() if wanting else None
    if refusal is None:
        return
    if config.getoption("--require-sandbox"):
        raise pytest.UsageError(f"--require-sandbox, but this machine gives none: {refusal}")
    for item in wanting:
        item.add_marker(pytest.mark.skip(reason=f"no sandboxes here: {refusal}"))


@pytest.fixture(scope="session")
def lacking(pytestconfig: pytest.Config) -> Callable[[str], NoReturn]:
    """Ends a test of the C programs for want of a tool, which must not look green either."""

    def end(what: str) -> NoReturn:
        if pytestconfig.getoption("--require-sandbox"):
            pytest.fail(f"--require-sandbox, but {what}", pytrace=False)
        pytest.skip(what)

    return end


@pytest.fixture
def soak_s(request: pytest.FixtureRequest) -> float:
    """How many seconds a soak test goes on: a few in the ordinary suite, many in `make soak`."""
    return float(request.config.getoption("--soak-s"))


@pytest.fixture
def verify_repeats(request: pytest.FixtureRequest) -> int:
    """How often all programs of a collection are measured; 0 in the ordinary suite: some, once."""
    return int(request.config.getoption("--verify-repeats"))


@pytest.fixture
def soak_cycles(request: pytest.FixtureRequest) -> int:
    """How many times a soak test that counts goes round."""
    return int(request.config.getoption("--soak-cycles"))


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checked-out repository."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared_cases() -> Path:
    """The directory of cases that is kept beside the repository, in `../shared/cases`."""
    if not SHARED_CASES.is_dir():
        pytest.skip(f"the shared cases are not beside the repository (looked in {SHARED_CASES})")
    return SHARED_CASES


@pytest.fixture
def by_cgroup(provider: NativeProvider) -> bool:
    """Whether cgroups hold and count what the test's `provider` makes, or only limits of each
    process."""
    return provider.enforced[Limit.MEMORY] is Enforcement.CGROUP
