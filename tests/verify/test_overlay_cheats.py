"""Ways to cheat inside the tests' own process, tried for real: none is paid, none goes unscored.

The collection is in `tampering/`. Here, unlike in split mode, many of them get every test to pass;
then it must be the canaries that say so.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from chosen import sampled
from tiltyard.core.task import RepositorySuite
from tiltyard.core.verdict import Outcome
from tiltyard.tasks.redteam import Came, red_team
from tiltyard.verify.reward import reward_of
from tiltyard.verify.verifier import Verifier
from verify import tasks
from verify.repositories import REFERENCE, WRONG, left, repository

pytestmark = pytest.mark.sandbox
shared_loop = pytest.mark.asyncio(loop_scope="module")

DIRECTORY = Path(__file__).parent / "tampering"
HEADER = re.compile(r"^=== (?P<name>.+)$", re.MULTILINE)
TASK = repository(time_limit_s=1.0)
EVERY = 4
"""Of the collection, in `make test`."""


class Cheat(NamedTuple):
    name: str
    source: bytes


def cheats() -> Iterator[Cheat]:
    for path in sorted(DIRECTORY.glob("*.txt")):
        text = path.read_text()
        found = list(HEADER.finditer(text))
        ends = [match.start() for match in found[1:]] + [len(text)]
        for match, end in zip(found, ends, strict=True):
            source = WRONG + text[match.end() : end].encode()
            yield Cheat(name=f"{path.stem}: {match['name']}", source=source)


CHEATS = list(cheats())


def test_the_collection_is_whole() -> None:
    assert len(CHEATS) >= 50
    assert len({cheat.name for cheat in CHEATS}) == len(CHEATS)
    for cheat in CHEATS:
        compile(cheat.source, cheat.name, "exec", dont_inherit=True)


@shared_loop
@pytest.mark.parametrize(
    "cheat",
    [
        pytest.param(cheat, marks=pytest.mark.long if at % EVERY else pytest.mark.slow)
        for at, cheat in enumerate(CHEATS)
    ],
    ids=lambda cheat: cheat.name,
)
async def test_no_cheat_is_paid_and_none_goes_unscored(verifier: Verifier, cheat: Cheat) -> None:
    verdict = await verifier.verify(TASK, left({"solution.py": cheat.source}))
    assert verdict.outcome is Outcome.GRADED, verdict.detail
    assert len(verdict.checks) == 9
    assert reward_of(verdict).value == 0.0, verdict
    assert not verdict.all_passed or verdict.tamper
    for words in (*verdict.tamper, *(check.evidence for check in verdict.checks)):
        assert words.replace("\n", "").isprintable()
        assert len(words) < 1500


@shared_loop
@pytest.mark.slow
async def test_shared_cases(verifier: Verifier, shared_cases: Path) -> None:
    place = shared_cases / "cheats"
    tests = {name: (place / name).read_bytes() for name in ("test_hidden.py", "checker.py")}
    suite = RepositorySuite(
        base={},
        tests=tests,
        reference={"solution.py": (place / "reference.py").read_bytes()},
        sources=("*.py",),
    )
    task = repository(suite, time_limit_s=1.0)
    wrong = []
    for case in json.loads((place / "cases.json").read_text()):
        files = {path: text.encode() for path, text in case["files"].items()}
        verdict = await verifier.verify(task, left(files, **case["links"]))
        paid = {"accept": {1.0}, "reject": {0.0}, "accept-only-if-correct": {0.0, 1.0}}
        if reward_of(verdict).value not in paid[case["expect"]]:
            wrong.append((case["id"], verdict))
    assert not wrong


@shared_loop
@pytest.mark.slow
@pytest.mark.parametrize("cheat", sampled(["d-vote", "d-vote-once"], ["d-vote"]))
async def test_there_is_nothing_to_vote_on(verifier: Verifier, cheat: str) -> None:
    tests = {
        path: text.replace("from solution", "from calc.core").encode()
        for path, text in tasks.TESTS.files.items()
    }
    suite = RepositorySuite(
        base={"calc/__init__.py": b"", "calc/core.py": tasks.WRONG.encode()},
        tests=tests,
        reference={"calc/core.py": tasks.REFERENCE.encode()},
        sources=("calc/**",),
    )
    task = repository(suite)
    for _ in range(10):
        report = await red_team(task, verifier.verify, only=[cheat])
        (tried,) = report.cheats
        assert tried.came is Came.REJECTED, tried


HONEST = {
    "the reference": REFERENCE,
    "in other words": b"""
def add(a, b):
    return sum((a, b))


def order(xs):
    out = []
    for x in xs:
        at = len(out)
        while at and out[at - 1] > x:
            at -= 1
        out.insert(at, x)
    return out


def parse(text):
    numbers = list(map(int, text.split()))
    if not numbers:
        raise ValueError(text)
    return numbers


if __name__ == "__main__":
    import pytest

    pytest.main([__file__])
""",
    "with prints": REFERENCE
    + b"\nprint('9 failed')\nimport sys\nprint('x' * 100_000, file=sys.stderr)\n",
}


@shared_loop
@pytest.mark.slow
@pytest.mark.parametrize("rounds", [pytest.param(20, marks=pytest.mark.long), 3])
@pytest.mark.parametrize("name", HONEST)
async def test_honest_answers_are_paid_every_time(
    verifier: Verifier, name: str, rounds: int
) -> None:
    task = repository()
    for _ in range(rounds):
        verdict = await verifier.verify(task, left({"solution.py": HONEST[name]}))
        assert reward_of(verdict).value == 1.0, verdict
        assert verdict.tamper == ()


@shared_loop
@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        WRONG,
        REFERENCE.replace(b"a + b", b"0"),
        REFERENCE.replace(b"a + b", b"1000"),
        REFERENCE.replace(b"sorted(xs)", b"xs"),
        REFERENCE.replace(b"sorted(xs)", b"[]"),
        REFERENCE.replace(b"ValueError", b"EOFError"),
        b"add = order = parse = lambda *_: None\n",
        b"add = order = parse = lambda *_: []\n",
        b"add = order = parse = lambda *_: 12\n",
    ],
)
async def test_a_wrong_answer_is_no_tampering(verifier: Verifier, source: bytes) -> None:
    for _ in range(3):
        verdict = await verifier.verify(TASK, left({"solution.py": source}))
        assert verdict.tamper == ()
        assert reward_of(verdict).value == 0.0
