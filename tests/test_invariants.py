"""Invariants of ARCHITECTURE.md that can be read off the source; the others are tested in rooms."""

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from test_tidy import ROOT, below, dotted, imported, offences

SOURCE = ROOT / "src/tiltyard"
RUNS_CODE = {"exec", "eval", "compile", "__import__", "importlib.import_module", "runpy.run_path"}
STARTS_PROCESSES = {"subprocess", "multiprocessing", "os.fork", "os.posix_spawn", "pty"}


def outside(*allowed: str) -> list[Path]:
    """Source files of the trusted side, but for those below the allowed paths."""
    exempt = [SOURCE / place for place in allowed]
    return [
        path
        for path in below("src")
        if "inside" not in path.parts and not any(path.is_relative_to(place) for place in exempt)
    ]


def runs_code(node: ast.AST) -> str | None:
    if isinstance(node, ast.Call) and dotted(node.func) in RUNS_CODE:
        return f"{dotted(node.func)}: the trusted side executes nothing that it was given"
    return None


def makes_a_reward(node: ast.AST) -> str | None:
    if isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] == "Reward":
        return "makes a Reward: only the verify room does"
    return None


def declares_a_fault(node: ast.AST) -> str | None:
    if not (isinstance(node, ast.Call) and dotted(node.func) in {"Verdict", "replace"}):
        return None
    faults = {"Outcome.INFRA_FAULT", "Outcome.GRADER_FAULT"}
    named = {dotted(each) for keyword in node.keywords for each in ast.walk(keyword.value)}
    return "declares a fault of ours" if named & faults else None


def starts_a_process(node: ast.AST) -> str | None:
    names = {name for name in imported(node) if name.partition(".")[0] in STARTS_PROCESSES}
    call = dotted(node.func) if isinstance(node, ast.Call) else ""
    if names or call in STARTS_PROCESSES or "create_subprocess" in call:
        return f"starts a process: {call or names}"
    return None


@pytest.mark.parametrize(
    ("rule", "allowed"),
    [
        # 1: the pack runs its own templates, which come with the package.
        (runs_code, ["tasks/repair/trial.py"]),
        # 2: the store reads rewards back; it makes none.
        (makes_a_reward, ["verify"]),
        (declares_a_fault, ["verify/verifier.py", "rollout/episode.py"]),
        # 7: the launcher forks sandboxes; learner and yard daemon are processes of their own.
        (
            starts_a_process,
            ["sandbox/native/launcher.py", "training/learner_client.py", "cli/yard/start.py"],
        ),
    ],
)
def test_only_the_named_places_do_it(
    rule: Callable[[ast.AST], str | None], allowed: list[str]
) -> None:
    found = offences(outside(*allowed), rule)

    assert not found, "\n".join(found)
    assert offences([p for p in below("src") if p not in outside(*allowed)], rule), (
        "it sees nothing"
    )


def test_what_runs_inside_imports_nothing_of_ours() -> None:
    def rule(node: ast.AST) -> str | None:
        ours = [name for name in imported(node) if name.partition(".")[0] == "tiltyard"]
        return f"imports {ours}" if ours else None

    inside = [path for path in below("src") if "inside" in path.parts]

    assert len(inside) > 4
    assert not offences(inside, rule)
