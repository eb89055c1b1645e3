"""What a program can learn of the host, of its users and of its own place there."""

from tiltyard.sandbox.conformance.case import Case, Family, Finding, Observed, Program
from tiltyard.sandbox.conformance.judging import (
    contained,
    escaped,
    inconclusive,
    nothing_worked,
    ran,
    refuses_all,
    said,
    succeeds,
    together,
)

USER_RUNG = "user-namespace"
"""There the map names ids of a namespace in between, whose root is that user."""

_NAMES = """
for path in ("/proc/sys/kernel/hostname", "/etc/hostname", "/etc/machine-id", "/etc/hosts",
             "/var/lib/dbus/machine-id", "/proc/sys/kernel/random/boot_id", "/etc/resolv.conf",
             "/sys/class/dmi/id/product_uuid", "/proc/cmdline", "/proc/self/cgroup",
             "/proc/sys/kernel/domainname"):
    try:
        fact(path, first_bytes(path))
    except (OSError, ValueError) as error:
        fact(path, error)
fact("uname", os.uname().nodename)
end()
"""
_PROCESSES = """
seen = []
for name in os.listdir("/proc"):
    if name.isdigit():
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                seen.append(file.read(300).replace(b"\\0", b" ").decode("utf-8", "replace"))
        except OSError:
            pass
for each in seen:
    fact(f"process {seen.index(each)}", each)
fact("processes", len(seen))
claim("more processes than its own", len(seen) > 20, len(seen))
attempt("the host's process", lambda: os.kill(int(os.environ["HOST_PID"]), 0))
end()
"""
_MOUNTS = """
with open("/proc/self/mountinfo") as file:
    lines = file.read().splitlines()
writable = []
for line in lines:
    left, right = line.split(" - ")
    point, options = left.split()[4:6]
    fact(point, options)
    kind = right.split()[0]
    if kind in ("ext4", "xfs", "btrfs", "nfs", "ext3", "zfs", "virtiofs", "9p"):
        claim(f"a disk of the host at {point}, writable", "rw" in options.split(","), kind)
    if point == "/proc" or point.startswith(("/proc/", "/dev/")):
        continue
    claim(f"setuid programs or devices at {point}", "nosuid" not in options.split(","), options)
fact("mounts", len(lines))
end()
"""
_IDS = """
for name in ("uid_map", "gid_map"):
    with open(f"/proc/self/{name}") as file:
        fact(name, file.read().replace("\\n", " "))
with open("/proc/self/setgroups") as file:
    fact("setgroups", file.read())
def writes(name):
    fd = os.open(f"/proc/self/{name}", os.O_WRONLY)
    try:
        os.write(fd, b"0 0 1")
    finally:
        os.close(fd)
for name in ("uid_map", "gid_map"):
    attempt(f"another {name}", lambda: writes(name))
about = os.stat("/usr/bin/env")
fact("owner of the image", about.st_uid)
end()
"""
_ENVIRONMENT = """
own = {"PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "PWD", "LC_CTYPE", "HOSTNAME", "TERM",
       "SHLVL", "_", "MEMORY_BYTES", "PIDS", "OPEN_FILES", "DISK_BYTES", "INODES"}
for name in os.environ:
    if name not in own and not name.startswith("HOST_"):
        claim(f"the variable {name}", True)
claim("the host's variables", "SSH_AUTH_SOCK" in os.environ, "not there")
for path in ("/home", "/root", "/var", "/srv", "/mnt", "/media", "/run", "/boot"):
    for top, names, files in os.walk(path):
        for name in files:
            claim(f"the file {os.path.join(top, name)}", True)
for path in ("/run/docker.sock", "/var/run/docker.sock", "/run/containerd/containerd.sock",
             "/run/systemd/private", "/run/dbus/system_bus_socket", "/root/" + ".ssh",
             "/etc/sudoers",
             "/var/run/secrets/kubernetes.io"):
    attempt(path, lambda: os.stat(path))
end()
"""
_OURSELVES = """
import sys
found = 0
for top, names, files in os.walk("/opt"):
    for name in names + files:
        if "tiltyard" in name.lower() and top != "/opt":
            found += 1
            path = os.path.join(top, name)
            empty = not os.listdir(path) if os.path.isdir(path) else not os.path.getsize(path)
            claim(f"what is in {path}", not empty, "empty")
fact("of ours", found)
sys.path.append("/opt/tiltyard/env/lib/python%d.%d/site-packages" % sys.version_info[:2])
def imports():
    import tiltyard.tasks
    return tiltyard.tasks
try:
    imports()
except ImportError as error:
    claim("importing Tiltyard", False, error)
else:
    claim("importing Tiltyard", True)
end()
"""


def _hides_host(observed: Observed) -> Finding:
    marks = observed.marks
    text = "\n".join(each.stdout.text for each in ran(observed))
    if not said(observed).ends:
        return inconclusive("the program did not come to its end")
    names = {"boot id": marks.boot_id, "machine id": marks.machine_id}
    if marks.hostname not in {"localhost", "sandbox"}:
        facts = said(observed).facts
        shown = (facts.get("uname", ""), facts.get("/proc/sys/kernel/hostname", ""))
        if any(marks.hostname in name.strip("b'\\n").split(".") for name in shown):
            return escaped("it learnt the host's name")
    for name, mark in names.items():
        if mark and mark in text:
            return escaped(f"it learnt the host's {name}")
    return contained("no name of the host's was found")


def _root_is_nobody(observed: Observed) -> Finding:
    line = said(observed).facts.get("uid_map", "").split()
    if len(line) < 3:
        return inconclusive("no map of ids was read")
    inside, outside, count = map(int, line[:3])
    if observed.isolation == USER_RUNG:
        return contained("root inside is the user who runs this, and nobody else")
    if inside == 0 and outside == 0:
        return escaped("root inside is root outside")
    return contained(f"root inside is user {outside} outside, with {count} ids")


CASES = (
    Case(
        name="names-of-the-host",
        family=Family.IDENTITY,
        tries="host name, machine id, boot id, and its place in the host's cgroups",
        safe="none of the host's names is found",
        programs=(Program(source=_NAMES),),
        judge=_hides_host,
    ),
    Case(
        name="processes-of-others",
        family=Family.IDENTITY,
        tries="looks for other processes, by list and by number",
        safe="it sees its own",
        programs=(Program(source=_PROCESSES),),
        judge=refuses_all(),
    ),
    Case(
        name="mount-table",
        family=Family.IDENTITY,
        tries="looks for a disk of the host that it could write to",
        safe="whatever is the host's is read-only and without setuid",
        programs=(Program(source=_MOUNTS),),
        judge=together(succeeds(), nothing_worked),
    ),
    Case(
        name="root-outside",
        family=Family.IDENTITY,
        tries="is root inside, and changes who that is outside",
        safe="root inside is an unprivileged user outside",
        programs=(Program(source=_IDS),),
        judge=together(refuses_all(), _root_is_nobody),
    ),
    Case(
        name="environment",
        family=Family.IDENTITY,
        tries="variables, homes, sockets of services and secrets of the host",
        safe="none is there",
        programs=(Program(source=_ENVIRONMENT),),
        judge=refuses_all(),
    ),
    Case(
        name="our-own-code",
        family=Family.IDENTITY,
        tries="imports Tiltyard, which can make the reference solutions of its tasks",
        safe="it is not there",
        programs=(Program(source=_OURSELVES),),
        judge=refuses_all(),
        slow=True,
    ),
)
