"""What every hostile Python program begins with: it tries things, and says what became of each.

An attempt prints `tried NAME: refused WHY` or `tried NAME: WORKED WHAT`, a reading `fact NAME:
VALUE`. The last line is `end`: without it, a program that died early would look contained. Names of
the host that an attempt needs come as variables of the environment. Runs inside; imports no
Tiltyard, and nothing that Python 3.9 lacks.
"""

import ctypes
import errno
import os
import platform
import select
import time  # noqa: F401 - for the programs behind it
from collections.abc import Callable
from typing import Any

# Those of x86_64 and of the generic table (aarch64, riscv64); from 424 on they are the same.
NUMBERS: dict[str, tuple[int, int]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "clone3": (435, 435),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, 999),
    "iopl": (172, 999),
    "ioctl": (16, 29),
    "ioprio_set": (251, 30),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "landlock_create_ruleset": (444, 444),
    "mbind": (237, 235),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "migrate_pages": (256, 238),
    "modify_ldt": (154, 999),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "mq_open": (240, 180),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pivot_root": (155, 41),
    "prlimit64": (302, 261),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "sched_setattr": (314, 274),
    "sched_setscheduler": (144, 119),
    "seccomp": (317, 277),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "setpriority": (141, 140),
    "settimeofday": (164, 170),
    "socket": (41, 198),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "timer_create": (222, 107),
    "tkill": (200, 130),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
COLUMN = 0 if platform.machine() == "x86_64" else 1
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def say(line: str) -> None:
    """One line, at once: the program may not live to see another."""
    os.write(1, line.replace("\n", " ").encode("utf-8", "backslashreplace") + b"\n")


def fact(name: str, value: object) -> None:
    say(f"fact {name}: {value}")


def attempt(name: str, action: Callable[[], object]) -> bool:
    """Tries one thing. True when it worked."""
    try:
        got = action()
    except OSError as error:
        say(f"tried {name}: refused {errno.errorcode.get(error.errno or 0, str(error))}")
    except (ValueError, MemoryError, OverflowError, AttributeError) as error:
        say(f"tried {name}: refused {type(error).__name__}")
    else:
        say(f"tried {name}: WORKED {str(got)[:200]}")
        return True
    return False


def call(name: str, *arguments: Any) -> int:
    """A raw system call; raises OSError. Integers are passed as longs, the rest as it is."""
    words = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    ctypes.set_errno(0)
    result = int(libc.syscall(ctypes.c_long(NUMBERS[name][COLUMN]), *words))
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def attempt_call(name: str, *arguments: Any) -> bool:
    """Tries a system call under its own name."""
    return attempt(name, lambda: call(name, *arguments))


def claim(name: str, worked: bool, what: object = "") -> None:  # noqa: FBT001 - a plain report
    """Says of something that was tried otherwise whether it worked."""
    say(f"tried {name}: WORKED {what}" if worked else f"tried {name}: refused {what}")


def only_inside(*kinds: str) -> None:
    """Ends the program where it shares one of these namespaces with the host.

    What comes next would then harm the host, and that it would is an escape already.
    """
    for kind in kinds:
        if os.readlink(f"/proc/self/ns/{kind}") == os.environ[f"HOST_NS_{kind.upper()}"]:
            claim(f"sharing the host's {kind} namespace", worked=True)
            end()


def of_the_host(path: str) -> bool:
    """Whether a directory is the host's own and could be changed, so that nothing in it may be."""
    about = os.stat(path)
    own = f"{about.st_dev}:{about.st_ino}" not in os.environ["HOST_TREES"].split()
    return not own and not os.statvfs(path).f_flag & os.ST_RDONLY


def opens_for_writing(path: str) -> int:
    """Whether a file could be written. It never is: the suite changes no setting anywhere."""
    os.close(os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK))
    return 1


def first_bytes(path: str) -> str:
    """What can be read of a file; an empty one raises, because nothing was learnt."""
    fd = os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    try:
        got = os.read(fd, 200)
    finally:
        os.close(fd)
    if not got:
        raise ValueError("nothing in it")
    return repr(got)


def number_of(name: str) -> int:
    """A number that the host gave in the environment."""
    return int(os.environ[name])


def hold(seconds: float = 0.4) -> None:
    """Keeps what was taken for a moment, so that the host can look while it lasts."""
    select.select([], [], [], seconds)


def end() -> None:
    """Everything was tried."""
    say("end")
    os._exit(0)
