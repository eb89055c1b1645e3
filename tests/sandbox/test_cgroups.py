"""Cgroups by controller on v1, v2 and hybrid machines, from the kernel's tables as text."""

import os
from pathlib import Path

import pytest

from tiltyard.core.execution import MIB, Enforcement, Limit, Limits, open_limits
from tiltyard.sandbox.ending import Usage
from tiltyard.sandbox.native import cgroups
from tiltyard.sandbox.native.cgroups import (
    Hierarchy,
    Readings,
    detect,
    enforcement,
    plan,
    readings,
)
from tiltyard.sandbox.native.counters import CounterFiles

ROOT = Path("/sys/fs/cgroup")
LIMITS = Limits(memory_bytes=64 * MIB, pids=10, cpus=0.5)


def mount(point: str, kind: str, options: str, *, root: str = "/") -> str:
    return f"30 23 0:26 {root} {ROOT}{point} rw,nosuid shared:9 - {kind} {kind} {options}\n"


HYBRID_MOUNTS = (
    "22 1 8:1 / / rw,relatime - ext4 /dev/root rw\n"
    + mount("/unified", "cgroup2", "rw")
    + mount("/memory", "cgroup", "rw,memory")
    + mount("/cpu,cpuacct", "cgroup", "rw,cpu,cpuacct")
    + mount("/pids", "cgroup", "rw,pids")
    + mount("/freezer", "cgroup", "rw,freezer")
)
HYBRID_OWN = "5:memory:/a/b\n4:pids:/\n3:cpu,cpuacct:/user\n2:freezer:/\n0::/session\n"
V2_MOUNTS = mount("", "cgroup2", "rw,nsdelegate")


class Machine:
    """A cgroup tree as text: what its files hold, and where directories may be made."""

    def __init__(self, files: dict[str, str], *, closed: tuple[str, ...] = ()) -> None:
        self.files = {ROOT / name: content for name, content in files.items()}
        self.closed = {ROOT / name for name in closed}

    def detect(self, mountinfo: str, own: str) -> dict[str, Hierarchy]:
        found = detect(
            mountinfo,
            own,
            writable=lambda path: path not in self.closed,
            read=lambda path: self.files.get(path, ""),
        )
        return {name: tree for tree in found for name in tree.controllers}


def test_hybrid_uses_v1_below_its_own_groups() -> None:
    found = Machine({"unified/cgroup.controllers": "hugetlb"}).detect(HYBRID_MOUNTS, HYBRID_OWN)
    assert {name: (tree.version, tree.base) for name, tree in found.items()} == {
        "memory": (1, ROOT / "memory/a/b"),
        "pids": (1, ROOT / "pids"),
        "cpu": (1, ROOT / "cpu,cpuacct/user"),
        "cpuacct": (1, ROOT / "cpu,cpuacct/user"),
    }


def test_v2_makes_them_beside_a_group_that_holds_processes() -> None:
    files = {
        "user/scope/cgroup.procs": "77\n",
        "user/cgroup.procs": "",
        "user/cgroup.controllers": "cpu memory pids io\n",
    }
    found = Machine(files).detect(V2_MOUNTS, "0::/user/scope\n")
    assert set(found) == {"cpu", "memory", "pids"}
    assert {(tree.version, tree.base) for tree in found.values()} == {(2, ROOT / "user")}


def test_v2_falls_back_to_the_root_and_then_to_nothing() -> None:
    files = {
        "user/cgroup.procs": "1\n",
        "user/cgroup.controllers": "memory",
        "cgroup.procs": "1\n",
        "cgroup.controllers": "memory pids",
    }
    own = "0::/user/scope\n"
    assert {tree.base for tree in Machine(files).detect(V2_MOUNTS, own).values()} == {ROOT}
    assert Machine(files, closed=("",)).detect(V2_MOUNTS, own) == {}


def test_a_container_sees_the_tree_from_its_own_group_on() -> None:
    mounts = mount("/memory", "cgroup", "rw,memory", root="/docker/abc")
    found = Machine({}).detect(mounts, "5:memory:/docker/abc/deeper\n")
    assert found["memory"].base == ROOT / "memory/deeper"
    inside = Machine({}).detect(mounts, "5:memory:/\n")
    assert inside["memory"].base == ROOT / "memory"


def test_a_tree_mounted_twice_is_used_once() -> None:
    mounts = mount("/memory", "cgroup", "rw,memory") + mount("/again", "cgroup", "rw,memory")
    found = detect(mounts, "5:memory:/\n", writable=lambda _: True, read=lambda _: "")
    assert [tree.base for tree in found] == [ROOT / "memory"]


def test_a_mount_point_with_a_space() -> None:
    found = Machine({}).detect(mount("/my\\040memory", "cgroup", "rw,memory"), "5:memory:/\n")
    assert found["memory"].base == ROOT / "my memory"


def test_what_may_not_be_written_is_not_used() -> None:
    closed = ("memory/a/b", "pids", "cpu,cpuacct/user")
    found = Machine({}, closed=closed).detect(HYBRID_MOUNTS, HYBRID_OWN)
    assert found == {}
    held = enforcement(found.values())
    assert held[Limit.MEMORY] is held[Limit.PIDS] is Enforcement.RLIMIT
    assert held[Limit.CPU] is Enforcement.NONE
    assert open_limits(held) == (Limit.MEMORY, Limit.CPU), "a tree can exceed its memory together"
    everything = Hierarchy(version=2, controllers=frozenset({"memory", "pids", "cpu"}), base=ROOT)
    assert open_limits(enforcement([everything])) == ()


@pytest.mark.parametrize("text", ["", "\n\n", "1 2 3 - \n", "x\n"])
def test_a_table_without_cgroups_finds_none(text: str) -> None:
    assert Machine({}).detect(text, "") == {}


def planned(tree: Hierarchy, *, swap: bool, networked: bool = False) -> dict[str, str]:
    made = plan([tree], owner="owner", name="s1", limits=LIMITS, swap=swap, networked=networked)
    assert made.directories == (str(tree.base / "owner" / "s1"),)
    return {path.removeprefix(f"{made.directories[0]}/"): value for path, value in made.settings}


def test_limits_on_v1() -> None:
    tree = Hierarchy(
        version=1, controllers=frozenset({"memory", "pids", "cpu", "cpuacct"}), base=ROOT
    )
    assert planned(tree, swap=True) == {
        "memory.limit_in_bytes": str(64 * MIB),
        "memory.memsw.limit_in_bytes": str(64 * MIB),
        "pids.max": "11",
        "cpu.cfs_period_us": "100000",
        "cpu.cfs_quota_us": "50000",
    }
    assert "memory.memsw.limit_in_bytes" not in planned(tree, swap=False)
    assert next(iter(planned(tree, swap=True))) == "memory.limit_in_bytes", (
        "the kernel wants it first"
    )
    networked = planned(tree, swap=False, networked=True)
    assert networked["memory.kmem.tcp.limit_in_bytes"] == str(16 * MIB)


def test_limits_on_v2() -> None:
    tree = Hierarchy(version=2, controllers=frozenset({"memory", "pids", "cpu"}), base=ROOT)
    assert planned(tree, swap=True) == {
        "memory.max": str(64 * MIB),
        "memory.swap.max": "0",
        "pids.max": "11",
        "cpu.max": "50000 100000",
    }


def read_once(found: Readings, *, reset_peak: bool = False) -> Usage:
    files = CounterFiles()
    usage = cgroups.read_usage(found, reset_peak=reset_peak, counters=files)
    files.close(found.paths)
    assert len(files) == 0
    return usage


def counters(base: Path, version: int, files: dict[str, str]) -> Usage:
    names = {"memory", "pids", "cpu"} | ({"cpuacct"} if version == 1 else set())
    tree = Hierarchy(version=version, controllers=frozenset(names), base=base)
    at = base / "owner" / "s1"
    at.mkdir(parents=True)
    for name, content in files.items():
        (at / name).write_text(content)
    found = readings([tree], owner="owner", name="s1")
    return read_once(found)


def test_readings_of_v1(tmp_path: Path) -> None:
    used = counters(
        tmp_path,
        1,
        {
            "memory.max_usage_in_bytes": "4096\n",
            "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
            "pids.events": "max 2\n",
            "cpuacct.usage": "1500000000\n",
        },
    )
    assert (used.cpu_s, used.memory_peak_bytes, used.oom_kills, used.pids_refused) == (
        1.5,
        4096,
        3,
        2,
    )


def test_readings_of_v2(tmp_path: Path) -> None:
    used = counters(
        tmp_path,
        2,
        {
            "memory.peak": "8192\n",
            "memory.events": "low 0\nhigh 0\nmax 9\noom 1\noom_kill 1\noom_group_kill 0\n",
            "pids.events": "max 0\n",
            "cpu.stat": "usage_usec 250000\nuser_usec 1\nsystem_usec 2\n",
        },
    )
    assert (used.cpu_s, used.memory_peak_bytes, used.oom_kills, used.pids_refused) == (
        0.25,
        8192,
        1,
        0,
    )


def test_readings_of_what_has_gone(tmp_path: Path) -> None:
    used = counters(tmp_path, 1, {})
    assert (used.cpu_s, used.memory_peak_bytes, used.oom_kills) == (None, None, 0)
    nothing = read_once(readings([], owner="o", name="s"), reset_peak=True)
    assert nothing.cpu_s is nothing.memory_peak_bytes is None


def test_the_peak_starts_anew_where_the_kernel_lets_it(tmp_path: Path) -> None:
    tree = Hierarchy(version=1, controllers=frozenset({"memory"}), base=tmp_path)
    peak = tmp_path / "o" / "s" / "memory.max_usage_in_bytes"
    peak.parent.mkdir(parents=True)
    peak.write_text("9\n")
    found = readings([tree], owner="o", name="s")
    assert read_once(found).memory_peak_bytes == 9
    read_once(found, reset_peak=True)
    assert peak.read_text().startswith("0")


def test_the_sweep_takes_dead_owners_only(tmp_path: Path) -> None:
    tree = Hierarchy(version=1, controllers=frozenset({"memory"}), base=tmp_path)
    own_start = cgroups.start_time_of(os.getpid())
    assert own_start is not None
    live = tmp_path / f"{cgroups.PREFIX}{os.getpid()}-{own_start}-0"
    reused_pid = tmp_path / f"{cgroups.PREFIX}{os.getpid()}-{own_start + 1}-0"
    dead = tmp_path / f"{cgroups.PREFIX}4194305-77-3"  # no pid can be that large
    others = tmp_path / "session-4.scope"
    unlike = tmp_path / f"{cgroups.PREFIX}1-x"
    for owner in (live, reused_pid, dead, others, unlike):
        (owner / "s1").mkdir(parents=True)
    assert cgroups.sweep([tree], start_time_of=cgroups.start_time_of) == 2
    assert {path.name for path in tmp_path.iterdir()} == {live.name, others.name, unlike.name}
    assert (live / "s1").is_dir()


def test_one_owner_is_removed_alone(tmp_path: Path) -> None:
    trees = [
        Hierarchy(version=1, controllers=frozenset({name}), base=tmp_path / name)
        for name in ("memory", "pids")
    ]
    for tree in trees:
        for owner in ("a-1", "a-10"):
            (tree.base / owner / "s1").mkdir(parents=True)
    assert cgroups.remove_owner(trees, "a-1")
    left = {path.name for tree in trees for path in tree.base.iterdir()}
    assert left == {"a-10"}
    (trees[0].base / "a-10" / "s1" / "e1" / "busy").mkdir(parents=True)
    assert not cgroups.remove_owner(trees, "a-10")


def test_a_process_that_is_not_has_no_start() -> None:
    assert cgroups.start_time_of(4194305) is None


def test_counters_are_read_anew_each_time(tmp_path: Path) -> None:
    path = tmp_path / "counter"
    path.write_text("1\n")
    files = CounterFiles()
    assert files.read(str(path)) == b"1\n"
    files.write(str(path), b"25")
    assert files.read(str(path)) == b"25"
    files.close([str(path)])
    assert files.read(str(tmp_path / "missing")) == files.read("") == b""
    files.write(str(tmp_path / "missing"), b"0")
    assert len(files) == 0


def test_no_more_files_stay_open_than_may(tmp_path: Path) -> None:
    files = CounterFiles(open_max=3)
    before = len(list(Path("/proc/self/fd").iterdir()))
    paths = [tmp_path / str(number) for number in range(5)]
    for path in paths:
        path.write_text(path.name)
    for _ in range(2):
        assert [files.read(str(path)) for path in paths] == [b"0", b"1", b"2", b"3", b"4"]
        assert len(files) == 3
    assert len(list(Path("/proc/self/fd").iterdir())) == before + 3
    files.close(map(str, paths))
    assert len(list(Path("/proc/self/fd").iterdir())) == before
