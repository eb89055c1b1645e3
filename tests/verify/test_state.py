"""State checks: what is asserted of a sandbox as an agent left it."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from tiltyard.core.checks import StateCheck, StateKind
from tiltyard.core.errors import GraderError
from tiltyard.core.execution import Network, NetworkMode
from tiltyard.core.verdict import Component, Gap
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.supervised import Sandbox
from tiltyard.verify.state.observe import StateChecks
from verify.tasks import SPEC

pytestmark = [pytest.mark.sandbox, pytest.mark.asyncio(loop_scope="module")]

LEFT_BEHIND = r"""
set -e
printf 'port = 80\n' > app.conf; chmod 600 app.conf
ln -s app.conf link; mkfifo pipe; : > empty
python3 - <<'END'
import sqlite3
db = sqlite3.connect("shop.db"); db.execute("pragma journal_mode = wal")
db.execute("create table number (n)")
db.executemany("insert into number values (?)", ((n,) for n in range(1001)))
db.execute("create table item (name text, price real, left_over blob)")
db.execute("insert into item values ('tea', 2.5, null), ('nut', 1, x'ff')"); db.commit()
import os; os._exit(0)
END
printf '<h1>hello</h1>' > index.html
head -c 300000 /dev/zero | tr '\0' y > large.html
sleep 5000 & echo $! > sleep.pid
python3 -m http.server 8080 --bind 127.0.0.1 > log 2>&1 & echo $! > http.pid
true & dead=$!; wait $dead; echo $dead > dead.pid
for i in $(seq 100); do
    python3 -c 'import socket; socket.create_connection(("127.0.0.1", 8080))' 2>/dev/null && exit 0
done
exit 1
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def left(provider: NativeProvider) -> AsyncIterator[Sandbox]:
    spec = replace(SPEC, network=Network(mode=NetworkMode.LOOPBACK))
    sandbox = await provider.create(spec)
    try:
        made = await sandbox.spawn(["sh", "-c", LEFT_BEHIND])
        result = await made.wait()
        assert result.ok, result.stderr.text + result.stdout.text
        yield sandbox
    finally:
        await sandbox.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def checks(provider: NativeProvider) -> AsyncIterator[StateChecks]:
    async with StateChecks(provider, interpreter=provider.interpreter, spec=SPEC) as opened:
        yield opened


def check(kind: StateKind, path: str = "", **fields: object) -> StateCheck:
    return StateCheck(id="one", kind=kind, path=path, **fields)  # type: ignore[arg-type]


QUERY = "select name, price, left_over from item order by name"
NUMBERS = "select n from number order by n"
THOUSAND = tuple((str(n),) for n in range(1000))
ROWS = (("nut", "1.0", "b'\\xff'"), ("tea", "2.5", "None"))


@pytest.mark.parametrize(
    "held",
    [
        check(StateKind.FILE, "app.conf", equals="port = 80\n", mode=0o600),
        check(StateKind.FILE, "app.conf", matches="^port = [0-9]+$"),
        check(StateKind.FILE, "/workspace/empty", equals=""),
        check(StateKind.ABSENT, "nothing"),
        check(StateKind.ABSENT, "app.conf/below"),
        check(StateKind.PROCESS, matches="sleep 5000"),
        check(StateKind.PORT, port=8080),
        check(StateKind.HTTP, "/index.html", port=8080, equals="<h1>hello</h1>"),
        check(StateKind.HTTP, "/large.html", port=8080, equals="y" * 300_000),
        check(StateKind.HTTP, "/none", port=8080, status=404),
        check(StateKind.SQL, "shop.db", query=QUERY, rows=ROWS),
        check(StateKind.SERVICE, "http.pid", matches="http.server"),
        check(StateKind.SERVICE, "sleep.pid"),
    ],
    ids=lambda each: f"{each.kind} {each.path}",
)
async def test_what_is_so_holds(checks: StateChecks, left: Sandbox, held: StateCheck) -> None:
    component = await checks.observe(left, [held])
    assert component.normalised == 1.0, component.evidence


@pytest.mark.parametrize(
    ("unmet", "words"),
    [
        (check(StateKind.FILE, "nothing"), "nothing"),
        (check(StateKind.FILE, "app.conf", equals="port = 81\n"), "holds"),
        (check(StateKind.FILE, "app.conf", mode=0o644), "0o600"),
        (check(StateKind.FILE, "app.conf", matches="^port = x"), "match"),
        (check(StateKind.FILE, "link", equals="port = 80\n"), "link"),
        (check(StateKind.FILE, "pipe"), "fifo"),
        (check(StateKind.ABSENT, "link"), "link"),
        (check(StateKind.PROCESS, matches="no such program"), "none of"),
        (check(StateKind.PORT, port=8081), "8081"),
        (check(StateKind.HTTP, "/index.html", port=8080, equals="x"), "holds"),
        (check(StateKind.HTTP, "/none", port=8080), "404"),
        (check(StateKind.HTTP, "/", port=8081), "no answer"),
        (check(StateKind.SQL, "shop.db", query=QUERY, rows=ROWS[:1]), "gave"),
        (check(StateKind.SQL, "shop.db", query=NUMBERS, rows=THOUSAND), "gave"),
        (check(StateKind.SQL, "shop.db", query="select nonsense"), "Error"),
        (check(StateKind.SQL, "app.conf", query=QUERY, rows=ROWS), "DatabaseError"),
        (check(StateKind.SERVICE, "dead.pid"), "no process"),
        (check(StateKind.SERVICE, "app.conf"), "no pid"),
        (check(StateKind.SERVICE, "sleep.pid", matches="nginx"), "sleep"),
    ],
)
async def test_what_is_not_so_is_told(
    checks: StateChecks, left: Sandbox, unmet: StateCheck, words: str
) -> None:
    component = await checks.observe(left, [unmet])
    assert component.normalised == 0.0
    assert words in component.evidence[0].message


async def test_weights_share_the_component(checks: StateChecks, left: Sandbox) -> None:
    component = await checks.observe(
        left,
        [
            StateCheck(id="a", kind=StateKind.ABSENT, path="nothing", weight=3.0),
            StateCheck(id="b", kind=StateKind.ABSENT, path="app.conf", weight=1.0),
        ],
    )
    assert component.raw == pytest.approx(0.75)
    assert [(each.code, each.value) for each in component.evidence] == [("a", 1.0), ("b", 0.0)]


async def test_an_endless_query_and_a_hostile_pattern_end(
    checks: StateChecks, left: Sandbox
) -> None:
    endless = "with recursive n(i) as (select 1 union all select i + 1 from n) select max(i) from n"
    wide = "select hex(zeroblob(1000000)) from item"
    for query in (endless, wide):
        component = await checks.observe(left, [check(StateKind.SQL, "shop.db", query=query)])
        assert component.normalised == 0.0
    await left.write("long", "a" * 100_000)
    slow = check(StateKind.FILE, "long", matches="(a+)+(a+)+b")
    assert (await checks.observe(left, [slow])).normalised == 0.0


SLOW_SERVER = """
import socket, time
server = socket.create_server(("127.0.0.1", 8090))
while True:
    served, _ = server.accept()
    served.sendall(b"HTTP/1.1 200 OK\\r\\n\\r\\n")
    try:
        while True:
            served.sendall(b"x")
            time.sleep(0.5)
    except OSError:
        pass
"""


@pytest.mark.long
async def test_a_server_that_answers_for_ever_takes_no_other_service_away(
    provider: NativeProvider, checks: StateChecks
) -> None:
    spec = replace(SPEC, network=Network(mode=NetworkMode.LOOPBACK))
    sandbox = await provider.create(spec)
    try:
        await sandbox.write("slow.py", SLOW_SERVER)
        await sandbox.run(["sh", "-c", "python3 slow.py > log 2>&1 & sleep 5000 > log &"])
        port = check(StateKind.PORT, port=8090)
        while (await checks.observe(sandbox, [port])).raw != 1.0:
            pass
        slow = check(StateKind.HTTP, "/", port=8090, equals="x")
        assert (await checks.observe(sandbox, [slow])).raw == 0.0
        alive = check(StateKind.PROCESS, matches="sleep 5000")
        assert (await checks.observe(sandbox, [port, alive])).raw == 1.0
    finally:
        await sandbox.close()


async def test_a_bad_pattern_is_the_tasks_fault(checks: StateChecks, left: Sandbox) -> None:
    with pytest.raises(GraderError, match="RE2"):
        await checks.observe(left, [check(StateKind.FILE, "app.conf", matches="(?=x)")])


async def test_a_lost_sandbox_is_a_gap_and_no_zero(
    provider: NativeProvider, checks: StateChecks
) -> None:
    sandbox = await provider.create(SPEC)
    sandbox.destroy()
    component = await checks.observe(sandbox, [check(StateKind.PROCESS, matches="x")])
    await sandbox.close()
    assert (component.raw, component.gap) == (None, Gap.INFRA)
    assert isinstance(component, Component)
