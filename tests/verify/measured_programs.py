"""Programs that are measured: one question in C, C++ and Python, answered in several ways.

The question: how many of the numbers on standard input are different?
"""

from textwrap import dedent, indent

from tiltyard.core.checks import Checks, Growth, Inputs
from tiltyard.core.ids import TaskId
from tiltyard.core.task import CallSuite, ProgramCase, ProgramSuite, Split, Submission, Task
from tiltyard.core.verdict import Verdict
from tiltyard.verify.verifier import Verifier

NUMBERS = """
def generate(rng, size):
    return " ".join(str(rng.randrange(10 * size)) for _ in range(size)) + "\\n"
"""
CASES = (
    ProgramCase(id="three", stdin=b"3 1 3\n", expected=b"2\n"),
    ProgramCase(id="none", stdin=b"\n", expected=b"0\n"),
)
C_FRAME = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int xs[1 << 20], n;
static int by_value(const void *a, const void *b) {
  int x = *(const int *)a, y = *(const int *)b;
  return (x > y) - (x < y);
}
int main(void) {
  int count = 0;
  while (scanf("%d", &xs[n]) == 1) n++;
BODY
  printf("%d\\n", count);
  return 0;
}
"""
C_SORTED = """
qsort(xs, n, sizeof *xs, by_value);
for (int i = 0; i < n; i++) count += i == 0 || xs[i] != xs[i - 1];
"""
C_PAIRS = """
for (int i = 0; i < n; i++) {
  int seen = 0;
  for (int j = 0; j < i; j++) seen |= xs[j] == xs[i];
  count += !seen;
}
"""
CPP_SORTED = """
#include <algorithm>
#include <iostream>
#include <vector>
int main() {
  std::vector<int> xs;
  int x;
  while (std::cin >> x) xs.push_back(x);
  std::sort(xs.begin(), xs.end());
  std::cout << std::unique(xs.begin(), xs.end()) - xs.begin() << std::endl;
}
"""
CPP_LIST = """
#include <algorithm>
#include <iostream>
#include <vector>
int main() {
  std::vector<int> seen;
  int x;
  while (std::cin >> x)
    if (std::find(seen.begin(), seen.end(), x) == seen.end()) seen.push_back(x);
  std::cout << seen.size() << std::endl;
}
"""
PY_SET = "print(len(set(map(int, open(0).read().split()))))\n"
PY_SORTED = """
xs = sorted(int(word) for word in open(0).read().split())
print(sum(1 for at, x in enumerate(xs) if at == 0 or x != xs[at - 1]))
"""
PY_LIST = """
seen = []
for word in open(0).read().split():
    if word not in seen:
        seen.append(word)
print(len(seen))
"""
PYTHON = ProgramSuite(source="solution.py", run=("python3", "solution.py"), cases=CASES)
C = ProgramSuite(
    source="main.c", build=("cc", "-O1", "-o", "main", "main.c"), run=("./main",), cases=CASES
)
CPP = ProgramSuite(
    source="main.cc", build=("c++", "-O1", "-o", "main", "main.cc"), run=("./main",), cases=CASES
)


def in_c(body: str) -> str:
    """A whole program in C that counts in `count` how many of `xs[0..n)` are different."""
    return C_FRAME.replace("BODY", indent(dedent(body).strip(), "  "))


def counting_task(
    suite: ProgramSuite,
    reference: str,
    checks: Checks,
    *,
    time_limit_s: float = 5.0,
) -> Task:
    """The question as a task."""
    return Task(
        id=TaskId("different"),
        family="measured",
        split=Split.TRAIN,
        revision="1",
        instruction="",
        starter="",
        time_limit_s=time_limit_s,
        reference=reference,
        visible=CallSuite(cases=()),
        hidden=suite,
        checks=checks,
    )


def growing(
    suite: ProgramSuite, reference: str, *, seconds_max: float = 3.0, source: str = NUMBERS
) -> Task:
    """The question, with how time grows."""
    growth = Growth(size_max=500_000, seconds_max=seconds_max)
    return counting_task(suite, reference, Checks(inputs=Inputs(source=source), growth=growth))


def fresh(
    suite: ProgramSuite = PYTHON,
    reference: str = PY_SET,
    *,
    source: str = NUMBERS,
    cases: int = 4,
    time_limit_s: float = 5.0,
) -> Task:
    """The question, with new inputs."""
    checks = Checks(inputs=Inputs(source=source, fresh_cases=cases))
    return counting_task(suite, reference, checks, time_limit_s=time_limit_s)


async def verdict_on(
    verifier: Verifier, task: Task, source: str, *, seed: int | None = None
) -> Verdict:
    assert isinstance(task.hidden, ProgramSuite)
    submission = Submission(files={task.hidden.source: source.encode()})
    return await verifier.verify(task, submission, seed=seed)
