"""How container systems are made peers: their bundle, and what is hidden from one of them."""

import json
from pathlib import Path

import pytest

from board import Board
from containers import container_peers, hybrid_mount, write_bundle
from tiltyard.core.execution import Limits

HYBRID = """\
30 28 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
22 28 0:20 / /proc rw - proc proc rw
"""


def test_a_second_version_beside_the_first_is_found() -> None:
    first, second, other = HYBRID.splitlines()
    assert hybrid_mount(HYBRID) == "/sys/fs/cgroup/unified"
    assert hybrid_mount("\n".join((first, other))) is None
    assert hybrid_mount("\n".join((second, other))) is None


def test_a_bundle_has_our_limits_and_shows_nothing_but_system_directories(tmp_path: Path) -> None:
    write_bundle(tmp_path, ["/bin/true"])
    config = json.loads((tmp_path / "config.json").read_text())
    limits = Limits()
    resources = config["linux"]["resources"]
    assert resources["memory"]["limit"] == limits.memory_bytes
    assert resources["pids"]["limit"] == limits.pids
    assert resources["cpu"]["quota"] / resources["cpu"]["period"] == limits.cpus
    assert config["root"]["readonly"] is True
    shown = [mount for mount in config["mounts"] if mount["type"] == "bind"]
    assert all("ro" in mount["options"] for mount in shown)
    tops = {Path(mount["source"]).parts[1] for mount in shown}
    assert "usr" in tops
    assert tops - {"usr", "bin", "sbin"} == {top for top in tops if top.startswith("lib")}


@pytest.mark.slow
async def test_each_container_system_works_or_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    async with container_peers(Board(seconds=0.1), "sandbox", ["/bin/true"]) as peers:
        working = {peer.name for peer in peers}
        for peer in peers:
            await peer.once()
    said = capsys.readouterr().out
    for name in {"runc", "crun", "runsc", "docker"} - working:
        assert f"left out: sandbox/{name}: " in said
    assert len(list(Path("/proc/self/fd").iterdir())) == before
