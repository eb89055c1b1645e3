"""Task directories for tests, written as their users would."""

from collections.abc import Mapping
from pathlib import Path

FUNCTION: Mapping[str, str] = {
    "task.toml": '[tiltyard.verify]\nmode = "split"\nmodule = "solution"\n',
    "instruction.md": "Write add(a, b) and srt(xs).\n",
    "tests/test_hidden.py": (
        "from checker import eq\nfrom solution import add, srt\n\n\n"
        "def test_small():\n    want = 12\n    assert eq(add(5, 7), want)\n\n\n"
        "def test_large():\n    assert eq(add(123, 877), 1000)\n\n\n"
        "def test_order():\n    xs = [3, 1, 2]\n    assert eq(srt(xs), sorted(xs))\n"
    ),
    "tests/checker.py": "def eq(a, b):\n    return a == b\n",
    "solution/solution.py": "def add(a, b):\n    return a + b\n\n\ndef srt(xs):\n"
    "    return sorted(xs)\n",
}
PROGRAM: Mapping[str, str] = {
    "task.toml": '[tiltyard.verify]\nmode = "split"\nkind = "program"\n',
    "instruction.md": "Print the sum of the numbers.\n",
    "tests/one.in": "1 2\n",
    "tests/one.out": "3\n",
    "tests/deep/two.out": "0\n",
    "tests/deep/two.args": "--base 'a b'\n",
    "solution/solution.py": "print(sum(map(int, input().split())))\n",
}
REPOSITORY: Mapping[str, str] = {
    "task.toml": (
        '[verifier]\ntimeout_sec = 90\n[tiltyard.verify]\nmode = "overlay"\n'
        'sources = ["src/", "setup.py"]\nprotected = ["src/vendored/**"]\n'
    ),
    "instruction.md": "Mend it.\n",
    "environment/Dockerfile": "FROM scratch\n",
    "environment/src/p/__init__.py": "x = 0\n",
    "environment/src/p/Dockerfile": "kept\n",
    "tests/test.sh": "pytest\n",
    "tests/test_p.py": "import p\n\n\ndef test_x():\n    assert p.x == 1\n",
    "solution/solve.sh": "cp\n",
    "solution/src/p/__init__.py": "x = 1\n",
}
SCRIPT: Mapping[str, str] = {
    "task.toml": (
        'schema_version = "1.1"\nartifacts = ["/app/out.txt", { source = "/app/made/" }]\n'
        '[task]\nname = "some/words here"\n[metadata]\ndifficulty = "easy"\n'
        "[verifier]\ntimeout_sec = 120.0\n[environment]\ncpus = 1\n"
    ),
    "instruction.md": "Write out.txt.\n",
    "environment/Dockerfile": "FROM scratch\n",
    "environment/given.txt": "given\n",
    "tests/test.sh": "echo 1 > /logs/verifier/reward.txt\n",
    "solution/solve.sh": "echo done > out.txt\n",
}


def lay(path: Path, *files: Mapping[str, str | bytes | None]) -> Path:
    """Writes a directory of files; a later mapping goes over an earlier, and None leaves out."""
    merged: dict[str, str | bytes | None] = {}
    for each in files:
        merged.update(each)
    for name, content in merged.items():
        if content is not None:
            place = path / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content.encode() if isinstance(content, str) else content)
    return path
