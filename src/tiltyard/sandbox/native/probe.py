"""What this machine can do for sandboxes, found by trying, with the fix for what it cannot.

Nothing is inferred from version numbers or from the existence of files: each feature is used once.
"""

import asyncio
import os
import platform

from tiltyard.core.errors import SandboxError, TiltyardError
from tiltyard.core.execution import (
    MIB,
    Enforcement,
    ExecResult,
    Limit,
    Network,
    NetworkMode,
    SandboxSpec,
)
from tiltyard.sandbox.capabilities import CapabilityReport, Finding, Health
from tiltyard.sandbox.native.landlock import SCOPE_VERSION, landlock_version
from tiltyard.sandbox.native.programs import native_program
from tiltyard.sandbox.native.provider import NativeProvider, usable_hierarchies

TRY_TIMEOUT_S = 10.0


_INSIDE = """
grep -E '^(Seccomp|NoNewPrivs|CapEff):' /proc/self/status
echo "links: $(cut -d: -f1 -s /proc/net/dev | tr -d ' \\n')"
touch /usr/probe 2>/dev/null && echo 'usr: writable' || echo 'usr: read-only'
test -e /etc/shadow && echo 'shadow: visible' || echo 'shadow: absent'
stat -f -c 'root: %T' /
"""
_EXPECTED = {
    "Seccomp": ("system-call filter", "2"),
    "NoNewPrivs": ("no new privileges", "1"),
    "links": ("no network", "lo"),
    "usr": ("read-only image", "read-only"),
    "shadow": ("hidden host files", "absent"),
    "root": ("overlay file system", "overlayfs"),
}
_CALL_FIXES = {
    "unshare(user": "allow user namespaces: `sysctl -w user.max_user_namespaces=15000`, on Debian "
    "also kernel.unprivileged_userns_clone=1, on Ubuntu "
    "kernel.apparmor_restrict_unprivileged_userns=0; in a container, run it with them allowed.",
    "clone3": "allow user, pid, mount, network, ipc and uts namespaces: see user.max_*_namespaces; "
    "in a container, its seccomp profile must allow clone3.",
    "mount(overlay)": "load the overlay module (`modprobe overlay`); a user needs Linux 5.11.",
    "mount(proc)": "the container masks /proc: run it with an unmasked /proc "
    "(docker: --security-opt systempaths=unconfined).",
    "mount": "a security module or the container forbids mounts: allow them, or run elsewhere.",
    "write(uid_map)": "an id range is not allowed here: run as real root or as an ordinary user.",
    "mkdir(cgroup)": "the cgroup directory is not writable: run as root or in a delegated cgroup.",
    "seccomp": "build the kernel with CONFIG_SECCOMP_FILTER.",
}


async def probe() -> CapabilityReport:
    """Tries everything once, in a sandbox of its own. Never raises for what the machine lacks."""
    findings = [_kernel(), _programs(), *_cgroups(), _landlock()]
    isolation, enforced = "", dict[Limit, Enforcement]()
    try:
        async with asyncio.timeout(TRY_TIMEOUT_S * 3), NativeProvider() as provider:
            isolation, enforced = provider.isolation, dict(provider.enforced)
            spec = SandboxSpec(allow_unenforced=frozenset(Limit))
            sandbox = await provider.create(spec)
            try:
                result = await sandbox.run(["sh", "-c", _INSIDE], timeout_s=TRY_TIMEOUT_S)
            finally:
                await sandbox.close()
            network = await _network(provider)
        findings += [_rung(isolation), *_inside(result), *network]
        if any(finding.health is not Health.OK for finding in network):
            enforced[Limit.NETWORK] = Enforcement.NONE
    except (SandboxError, TimeoutError, OSError) as error:
        said = error.message if isinstance(error, TiltyardError) else str(error)
        fix = next((fix for call, fix in _CALL_FIXES.items() if call in said), "see the message.")
        findings.append(
            Finding(feature="sandbox", health=Health.MISSING, detail=said or "timed out", fix=fix)
        )
        isolation = ""
    return CapabilityReport(findings=tuple(findings), isolation=isolation, enforced=enforced)


async def _network(provider: NativeProvider) -> list[Finding]:
    """Whether a sandbox can have a way out, and a limit on it. Most sandboxes want neither."""
    wanted = Network(mode=NetworkMode.OPEN, bandwidth_up_bytes_s=MIB, bandwidth_down_bytes_s=MIB)
    spec = SandboxSpec(network=wanted, allow_unenforced=frozenset(Limit))
    try:
        sandbox = await provider.create(spec)
    except SandboxError as error:
        return [
            Finding(
                feature="network proxy",
                health=Health.WEAK,
                detail=f"only the network mode none works: {error.message}",
                fix="see the message; a container may show /proc/sys read-only.",
            )
        ]
    held = sandbox.enforced[Limit.NETWORK] is Enforcement.QDISC
    await sandbox.close()
    return [
        Finding(feature="network proxy", health=Health.OK, detail="listens inside a sandbox"),
        Finding(
            feature="network bandwidth",
            health=Health.OK if held else Health.WEAK,
            detail="held by htb, each way" if held else "this kernel holds no limit of it",
            fix="" if held else "load them: `modprobe sch_htb cls_bpf`.",
        ),
    ]


def _kernel() -> Finding:
    release = platform.release()
    return Finding(feature="kernel", health=Health.OK, detail=f"{platform.system()} {release}")


def _programs() -> Finding:
    try:
        where = native_program("tiltyard-launcher").parent
    except SandboxError as error:
        return Finding(
            feature="native programs",
            health=Health.MISSING,
            detail=error.message,
            fix=error.fix or "",
        )
    return Finding(feature="native programs", health=Health.OK, detail=str(where))


def _cgroups() -> list[Finding]:
    found = {
        name: tree.version for tree in usable_hierarchies() for name in sorted(tree.controllers)
    }
    fix = "run as root, or `systemd-run --user --scope -p Delegate=yes`; else limits are weaker."
    weaker = {
        "memory": "by RLIMIT_AS, per process only",
        "pids": "by RLIMIT_NPROC, per user and sandbox",
        "cpu": "no CPU share is held",
    }
    return [
        Finding(feature=f"cgroup {name}", health=Health.OK, detail=f"v{found[name]}")
        if name in found
        else Finding(feature=f"cgroup {name}", health=Health.WEAK, detail=how, fix=fix)
        for name, how in weaker.items()
    ]


def _landlock() -> Finding:
    version = landlock_version()
    fix = "boot with `lsm=...,landlock`, on Linux 6.12 or newer."
    if version >= SCOPE_VERSION:
        return Finding(feature="landlock", health=Health.OK, detail=f"version {version}")
    detail = f"version {version} of {SCOPE_VERSION}" if version else "not there"
    return Finding(
        feature="landlock", health=Health.WEAK, detail=f"{detail}: the second layer", fix=fix
    )


def _rung(isolation: str) -> Finding:
    detail = {
        "root": "as root: each sandbox has its own range of unprivileged ids",
        "user-namespace": f"as uid {os.getuid()}: in-sandbox root is this user",
    }[isolation]
    return Finding(feature="isolation", health=Health.OK, detail=detail)


def _inside(result: ExecResult) -> list[Finding]:
    if not result.ok:
        said = f"{result.reason} {result.detail} {result.stderr.text[:200]}"
        return [Finding(feature="sandbox", health=Health.MISSING, detail=said, fix="see the text.")]
    lines = (line.partition(":") for line in result.stdout.text.splitlines())
    values = {name.strip(): value.strip() for name, _, value in lines}
    return [
        Finding(feature=feature, health=Health.OK, detail=f"{name} is {expected}")
        if values.get(name) == expected
        else Finding(
            feature=feature,
            health=Health.MISSING,
            detail=f"{name} is {values.get(name)!r} inside a sandbox, expected {expected!r}",
            fix="this is a defect: please report it with this output.",
        )
        for name, (feature, expected) in _EXPECTED.items()
    ]
