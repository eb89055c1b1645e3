"""Programs in C and C++ that lose memory, only look like it, or would rather not be asked.

All read numbers and print the square of the first; `BODY` is what each does before that.
"""

from dataclasses import dataclass
from textwrap import dedent

from tiltyard.core.task import ProgramCase, ProgramSuite
from tiltyard.core.verdict import Gap

_FRAME = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
struct node { struct node *next; char pad[192]; };
static void *volatile sink;
static struct node *volatile kept;
static void lose(size_t size) { sink = malloc(size); sink = NULL; }
static void chain(int count) {
    for (int at = 0; at < count; at++) {
        struct node *one = malloc(sizeof *one);
        one->next = kept;
        kept = one;
    }
}
static void *in_thread(void *unused) { lose(77); return unused; }
static void answer(int n) { printf("%d\\n", n * n); fflush(stdout); }
HEAD
int main(int argc, char **argv) {
    int n = 0;
    if (scanf("%d", &n) != 1) return 1;
    (void)argc; (void)argv; (void)in_thread;
BODY
    answer(n);
    return 0;
}
"""

C = ProgramSuite(
    source="main.c",
    build=("cc", "-g", "-O0", "-w", "-o", "main", "main.c", "-lpthread"),
    run=("./main",),
    cases=(
        ProgramCase(id="two", stdin=b"2\n", expected=b"4\n"),
        ProgramCase(id="thirteen", stdin=b"13\n", expected=b"169\n"),
    ),
)
CPP = ProgramSuite(
    source="main.cpp",
    build=("g++", "-g", "-O0", "-w", "-o", "main", "main.cpp"),
    run=("./main",),
    cases=C.cases,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What is to be found out: so many bytes, or a gap and a word of its reason."""

    name: str
    source: str
    lost_bytes: int | None = 0
    normalised: float | None = 1.0
    gap: Gap | None = None
    word: str = ""
    """Of the evidence."""
    suite: ProgramSuite = C


def c(body: str, *, head: str = "") -> str:
    """A whole program."""
    return _FRAME.replace("HEAD", dedent(head)).replace("BODY", dedent(body))


def _leaky(name: str, lost_bytes: int, body: str, *, word: str, head: str = "") -> Program:
    source = c(body, head=head)
    return Program(name=name, source=source, lost_bytes=lost_bytes, normalised=0.0, word=word)


def _clean(name: str, body: str, *, word: str = "nothing is lost in 2 cases") -> Program:
    return Program(name=name, source=c(body), word=word)


def _refused(name: str, gap: Gap, body: str, *, word: str, head: str = "") -> Program:
    source = c(body, head=head)
    return Program(name=name, source=source, lost_bytes=None, normalised=None, gap=gap, word=word)


def _static() -> ProgramSuite:
    build = (*C.build, "-static")
    return ProgramSuite(source=C.source, build=build, run=C.run, cases=C.cases)


REFERENCE = c("")
CLEAN_REPORT = """
    const char *lines[] = {
        "", "HEAP SUMMARY:", "    in use at exit: 0 bytes in 0 blocks",
        "  total heap usage: 2 allocs, 2 frees, 5,120 bytes allocated", "",
        "All heap blocks were freed -- no leaks are possible", "",
        "ERROR SUMMARY: 0 errors from 0 contexts (suppressed: 0 from 0)",
    };
    for (int fd = WHERE; fd < WHERE + COUNT; fd++)
        for (int at = 0; at < 8; at++) dprintf(fd, "==%d== %s\\n", getpid(), lines[at]);
"""


def _report_to(where: int, count: int) -> str:
    return CLEAN_REPORT.replace("WHERE", str(where)).replace("COUNT", str(count))


PROGRAMS = (
    _clean("frees all", "char *s = malloc(50); s[0] = n; free(s);"),
    _clean("still reachable", "chain(7);", word="1400 bytes are still reachable"),
    _clean(
        "frees in threads",
        'pthread_t t; pthread_create(&t, 0, strdup, "x");'
        "void *got; pthread_join(t, &got); free(got);",
    ),
    _clean(
        "a few files open",
        'fopen("/dev/null", "r"); open("/dev/null", O_RDONLY);',
        word="nothing is lost",
    ),
    _clean("runs another program", 'if (system("exit 3") == 0) return 9;'),
    _leaky("one block", 50, "lose(50);", word="50 bytes in 1 blocks are lost, most of them from"),
    _leaky("one input", 130, "if (n == 13) lose(130);", word="case thirteen"),
    _leaky(
        "in a thread",
        77,
        "pthread_t t; pthread_create(&t, 0, in_thread, 0);pthread_join(t, 0);",
        word="from lose",
    ),
    _leaky("a list", 2000, "chain(10); kept = NULL;", word="2000 bytes in 10 blocks"),
    _leaky("in a child", 60, "if (!fork()) { lose(60); _exit(0); } wait(0);", word="60 bytes"),
    _leaky("_exit", 50, "lose(50); answer(n); _exit(0);", word="50 bytes"),
    _leaky(
        "descriptors",
        0,
        'for (int at = 0; at < 40; at++) open("/dev/null", O_RDONLY);',
        word="40 descriptors",
    ),
    _leaky("says on stderr that it is clean", 50, f"lose(50); {_report_to(2, 1)}", word="50 bytes"),
    _leaky(
        "closes all descriptors",
        50,
        "lose(50); answer(n);for (int fd = 0; fd < 3000; fd++) close(fd); _exit(0);",
        word="50 bytes",
    ),
    Program(
        name="new",
        source="""
#include <iostream>
int main() { int n; std::cin >> n; int *lost = new int[25]; lost[0] = n; int all = lost[0] * n;
lost = nullptr; std::cout << all << std::endl; }
""",
        lost_bytes=100,
        normalised=0.0,
        word="from main",
        suite=CPP,
    ),
    Program(
        name="delete",
        source="""
#include <iostream>
#include <vector>
int main() { int n; std::cin >> n; std::vector<int> v(n, n); int *p = new int(n); long all = 0;
for (int x : v) all += x; delete p; std::cout << all << std::endl; }
""",
        word="nothing is lost",
        suite=CPP,
    ),
    Program(
        name="static",
        source=c("lose(50);"),
        suite=_static(),
        lost_bytes=None,
        normalised=None,
        gap=Gap.UNRESOLVED,
        word="statically linked",
    ),
    _refused(
        "writes a clean report itself",
        Gap.NOT_POSSIBLE,
        f"lose(50); {_report_to(3, 40)}",
        word="says twice",
    ),
    _refused(
        "becomes another program",
        Gap.NOT_POSSIBLE,
        "if (argc == 1) { lose(50); lseek(0, 0, 0); answer(n);"
        'execl("/bin/true", "true", (char *)0); }',
        word="begins",
    ),
    _refused(
        "says what is freed",
        Gap.NOT_POSSIBLE,
        "void *p = malloc(50); VALGRIND_FREELIKE_BLOCK(p, 0); p = NULL;",
        head="#include <valgrind/valgrind.h>",
        word="speaks to valgrind",
    ),
    _refused(
        "replaces malloc",
        Gap.NOT_POSSIBLE,
        "lose(50);",
        head="""
             void *replaced(size_t) __asm__("_vgr00000ZU_libcZdsoZa_malloc");
             static char arena[4096]; static size_t used;
             void *replaced(size_t size) { used += 64; return arena + used; }
             """,
        word="speaks to valgrind",
    ),
    _refused(
        "behaves when watched",
        Gap.UNRESOLVED,
        'if (strstr(getenv("LD_PRELOAD") ?: "", "valgrind")) return 0; lose(50);',
        word="under memcheck",
    ),
)
