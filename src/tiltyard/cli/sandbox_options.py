"""The options and help texts of `tiltyard sandbox`. What a command does is in `sandbox`."""

from typing import Annotated

import typer

from tiltyard.cli.boundary import run_async
from tiltyard.cli.quantities import parse_duration, parse_size
from tiltyard.config import load_settings
from tiltyard.core.errors import UsageError
from tiltyard.core.execution import Limit, Limits, NetworkMode
from tiltyard.core.files import Links

app = typer.Typer(
    name="sandbox",
    help="Sandboxes that outlive a command: make one, use it, end it.",
    epilog="The first [bold]create[/bold] starts a small daemon that keeps the sandboxes; it ends "
    "by itself a minute after the last one. Every sandbox ends at its deadline. "
    "[bold]exec[/bold] and [bold]shell[/bold] exit as the program did, with 128+N for signal N, "
    "127 when it could not be started and 125 for what is not the program's doing.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The sandbox, as create printed it.")]
User = Annotated[
    str | None,
    typer.Option(help="Name or number inside; other than root where Tiltyard runs as root."),
]
_LIMITS = Limits()
SHELL = ("sh", "-c", "command -v bash >/dev/null && exec bash -i; exec sh -i")
AFTER_ID = {"allow_interspersed_args": False, "ignore_unknown_options": False}


@app.command()
def create(
    memory: Annotated[str, typer.Option(help="Memory, files included; like 512M or 2G.")] = "512M",
    cpus: Annotated[float, typer.Option(help="Cores that it may use.")] = _LIMITS.cpus,
    pids: Annotated[int, typer.Option(help="Processes and threads.")] = _LIMITS.pids,
    disk: Annotated[str, typer.Option(help="Bytes that it may write.")] = "256M",
    inodes: Annotated[int, typer.Option(help="Files that it may make.")] = _LIMITS.inodes,
    open_files: Annotated[int, typer.Option(help="Of each process.")] = _LIMITS.open_files,
    allow_unenforced: Annotated[
        list[Limit] | None,
        typer.Option(
            help="A limit that may go unheld where it cannot be held here for a whole sandbox; any "
            "other such is refused. Without this option that are cpu and memory (which is then "
            "held in each process by itself), and standard error says so."
        ),
    ] = None,
    writable: Annotated[
        bool, typer.Option("--writable", help="Root inside may change the image's own files.")
    ] = False,
    network: Annotated[NetworkMode, typer.Option(help="What of a network.")] = NetworkMode.NONE,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="RULE", help="With --network allow: *.example.org, 192.0.2.7:8080."),
    ] = None,
    bandwidth_up: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Bytes a second out of it; like 1M. Else no limit."),
    ] = None,
    bandwidth_down: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Bytes a second into it; like 1M. Else no limit."),
    ] = None,
    ttl: Annotated[str, typer.Option(help="How long it may live; like 90s, 10m, 1h30m.")] = "1h",
    as_json: Json = False,
) -> int:
    """Make a sandbox and print its id."""
    from tiltyard.cli.sandbox import create as work
    from tiltyard.cli.yard.wire import TTL_S_MAX, Create

    ttl_s = parse_duration("--ttl", ttl)
    if not 0 < ttl_s <= TTL_S_MAX:
        raise UsageError(f"--ttl {ttl} is no time to live.", fix="30 days at most.")
    request = Create(
        memory_bytes=parse_size("--memory", memory),
        pids=pids,
        cpus=cpus,
        open_files=open_files,
        disk_bytes=parse_size("--disk", disk),
        inodes=inodes,
        # An ordinary user often has no cgroup, and shall have sandboxes, but not unknowingly.
        allow_unenforced=[Limit.CPU, Limit.MEMORY]
        if allow_unenforced is None
        else allow_unenforced,
        writable=writable,
        network=network,
        allow=allow or [],
        bandwidth_up_bytes_s=_size_or_none("--bandwidth-up", bandwidth_up),
        bandwidth_down_bytes_s=_size_or_none("--bandwidth-down", bandwidth_down),
        ttl_s=ttl_s,
    )
    directory, accepted = load_settings().runtime_dir, allow_unenforced or ()
    return run_async(work(directory, request, accepted=accepted, as_json=as_json))


@app.command(name="exec", context_settings=AFTER_ID)
def execute(
    sandbox: Id,
    argv: Annotated[list[str], typer.Argument(metavar="-- PROGRAM [ARGUMENTS]")],
    cwd: Annotated[str, typer.Option(help="Its working directory.")] = "/workspace",
    env: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A variable more for it.")
    ] = None,
    timeout: Annotated[
        str | None, typer.Option(help="Kill it after so long; like 30s. Else with its sandbox.")
    ] = None,
    user: User = None,
    cpu_time: Annotated[
        str | None,
        typer.Option(help="CPU time of each of its processes; like 30s. Else no limit."),
    ] = None,
    idle: Annotated[
        str | None,
        typer.Option(help="Kill it when it wrote nothing for so long. Else no limit."),
    ] = None,
    output_max: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Kill it when it wrote more; like 1M. Else no limit."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Run a program: standard input goes in, its output comes out, its exit code is this one's.

    Options come before the ID. Ctrl-C kills the program. If a limit ended it, standard error names
    that limit, and the code is 137, or 152 for CPU time.
    """
    from tiltyard.cli.sandbox import execute as work
    from tiltyard.cli.yard.wire import Exec, asked_for

    words = argv[1:] if argv[0] == "--" else argv
    if not words:
        raise UsageError("exec: which program?", fix="`tiltyard sandbox exec ID -- PROGRAM`.")
    variables = dict(_variable(each) for each in env or ())
    with asked_for():
        request = Exec(
            id=sandbox,
            argv=[_utf8(word) for word in words],
            cwd=cwd,
            env=variables,
            timeout_s=_seconds_or_none("--timeout", timeout),
            terminal=None,
            user=user,
            cpu_s=_whole_seconds("--cpu-time", cpu_time),
            idle_s=_seconds_or_none("--idle", idle),
            output_bytes_max=_size_or_none("--output-max", output_max),
        )
    return run_async(work(load_settings().runtime_dir, request, as_json=as_json))


@app.command(context_settings=AFTER_ID)
def shell(
    sandbox: Id,
    argv: Annotated[
        list[str] | None, typer.Argument(metavar="-- PROGRAM [ARGUMENTS]", help="Else a shell.")
    ] = None,
    cwd: Annotated[str, typer.Option(help="Its working directory.")] = "/workspace",
    user: User = None,
) -> int:
    """Work in a sandbox: a shell, or another program, on this terminal."""
    from tiltyard.cli.sandbox import shell as work
    from tiltyard.cli.yard.terminal import size
    from tiltyard.cli.yard.wire import Exec, asked_for

    settings = load_settings()
    words = argv[1:] if argv and argv[0] == "--" else argv
    with asked_for():
        request = Exec(
            id=sandbox,
            argv=[_utf8(word) for word in words or SHELL],
            cwd=cwd,
            env={"TERM": settings.terminal},
            timeout_s=None,
            terminal=size(),
            user=user,
        )
    return run_async(work(settings.runtime_dir, request))


@app.command()
def cp(
    source: Annotated[str, typer.Argument(help="[bold]ID:path[/bold], or a path here.")],
    target: Annotated[str, typer.Argument(help="The other of the two.")],
    links: Annotated[
        Links,
        typer.Option(help="Links in a tree out of a sandbox; kept are those that stay inside it."),
    ] = Links.KEEP,
    as_json: Json = False,
) -> int:
    """Copy a file or a directory into a sandbox or out of one.

    Onto a directory means into it, under its own name, as with `cp -r`. Relative paths of a sandbox
    are below its workspace.
    """
    from tiltyard.cli.sandbox import copy as work

    directory = load_settings().runtime_dir
    return run_async(work(directory, source, target, links=links, as_json=as_json))


@app.command()
def ls(as_json: Json = False) -> int:
    """List the sandboxes, also those that were lost because their daemon was killed."""
    from tiltyard.cli.sandbox import ls as work

    return run_async(work(load_settings().runtime_dir, as_json=as_json))


@app.command()
def top(
    interval: Annotated[float, typer.Option(min=0.1, max=60, help="Seconds between looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once, and do not stay.")] = False,
    as_json: Json = False,
) -> int:
    """Show what the sandboxes use, until Ctrl-C; once where the output is no terminal."""
    from tiltyard.cli.sandbox import top as work

    directory = load_settings().runtime_dir
    return run_async(work(directory, interval_s=interval, once=once, as_json=as_json))


@app.command()
def rm(
    sandboxes: Annotated[list[str] | None, typer.Argument(metavar="ID...")] = None,
    every: Annotated[bool, typer.Option("--all", help="End all of them.")] = False,
    as_json: Json = False,
) -> int:
    """End sandboxes with all that runs in them, and print their ids."""
    from tiltyard.cli.sandbox import rm as work

    directory = load_settings().runtime_dir
    return run_async(work(directory, sandboxes or [], every=every, as_json=as_json))


@app.command()
def sweep(as_json: Json = False) -> int:
    """Remove what no living process claims: dead and lost sandboxes, and cgroups left behind.

    Never touches a living sandbox, whoever owns it.
    """
    from tiltyard.cli.sandbox_sweep import sweep as work

    return run_async(work(load_settings().runtime_dir, as_json=as_json))


@app.command()
def stop() -> int:
    """End the daemon with every sandbox that it keeps."""
    from tiltyard.cli.sandbox import stop as work

    return run_async(work(load_settings().runtime_dir))


def _size_or_none(option: str, words: str | None) -> int | None:
    return None if words is None else parse_size(option, words)


def _seconds_or_none(option: str, words: str | None) -> float | None:
    """A bound on a program's time; None is none."""
    from tiltyard.sandbox.orders import TIMEOUT_S_MAX

    if words is None:
        return None
    seconds = parse_duration(option, words)
    if not 0 < seconds <= TIMEOUT_S_MAX:
        raise UsageError(f"{option} {words} is no bound.", fix="more than 0, and 7 days at most.")
    return seconds


def _whole_seconds(option: str, words: str | None) -> int:
    """The kernel counts CPU time to a limit in whole seconds; 0 is no limit."""
    seconds = _seconds_or_none(option, words) or 0
    if seconds != int(seconds):
        raise UsageError(f"{option} {words} is no limit.", fix="whole seconds, like 2s.")
    return int(seconds)


def _variable(words: str) -> tuple[str, str]:
    name, equals, value = _utf8(words).partition("=")
    if not name or not equals:
        raise UsageError(f"--env {words!r} is no variable.", fix="write it like NAME=VALUE.")
    return name, value


def _utf8(word: str) -> str:
    try:
        word.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"{word!r} is not valid UTF-8, which arguments must be.",
            fix="write it into a file of the sandbox.",
        ) from None
    return word
