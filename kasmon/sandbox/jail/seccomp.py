"""The seccomp filter of a jail, assembled here as BPF for the machine types listed in `AUDIT`.

It covers what the namespaces and missing capabilities do not. Keyrings and vsock are shared with the host. A character
pushed into the terminal (TIOCSTI) reaches the shell outside. A setuid or setgid file in a shared folder runs outside
as the jail's user. Some calls mostly serve attacks on the kernel. Debuggers do not work inside.

A mode with setuid is refused. A `chmod` with setgid alone succeeds and changes nothing: git and tar want it of folders,
as `chmod 755` does on one that inherited it, and the filter sees the mode only. Folders still inherit setgid from a
folder that has it.
"""

import struct
from typing import Final, Literal, NamedTuple, TypeAlias

from kasmon.errors import SandboxError

Architecture: TypeAlias = Literal["x86_64", "aarch64"]
AUDIT: Final[dict[Architecture, int]] = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""The kernel's audit number of each machine type."""
DENIED: Final[dict[str, tuple[int | None, int | None]]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "migrate_pages": (256, 238),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
"""Calls that fail with EPERM: their numbers on x86_64 and aarch64."""
LOOKED_AT: Final[dict[str, tuple[int | None, int | None]]] = {
    "chmod": (90, None),
    "clone": (56, 220),
    "clone3": (435, 435),
    "creat": (85, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "ioctl": (16, 29),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "open": (2, None),
    "openat": (257, 56),
    "openat2": (437, 437),
    "socket": (41, 198),
}
MODE_AT: Final[dict[str, str]] = {
    "chmod": "change 1",
    "creat": "create 1",
    "fchmod": "change 1",
    "fchmodat": "change 2",
    "fchmodat2": "change 2",
    "mknod": "create 1",
    "mknodat": "create 2",
    "open": "open",
    "openat": "openat",
}
"""The label where the filter checks the mode of the call; the number is that of its argument, counted from 0.

`mkdir` and `mkdirat` are missing: the kernel itself ignores both bits in their modes.
"""
SET_UID, SET_GID = 0o4000, 0o2000
"""S_ISUID and S_ISGID: outside, where no mount forbids it, such a file runs as its owner or its group."""
CREATES: Final = 0x400040
"""The bits of open's flags that make its mode count: O_CREAT, and O_TMPFILE without O_DIRECTORY."""
FAMILIES: Final = (1, 2, 10, 16)
"""The allowed socket families: unix, IPv4, IPv6, netlink."""
NEW_NAMESPACES: Final = 0x7E020000
"""The bits of clone's flags that request a namespace."""
TYPING: Final = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX: both push characters into a terminal's input."""

KILL, ALLOW = 0x80000000, 0x7FFF0000
NO_EFFECT, EPERM, ENOSYS, EAFNOSUPPORT = (0x00050000 | number for number in (0, 1, 38, 97))
"""The call is not made and fails with this error; `NO_EFFECT` reports success."""
X32: Final = 0x40000000
NUMBER, ARCHITECTURE, FIRST, SECOND, THIRD, FOURTH = 0, 4, 16, 24, 32, 40
"""Offsets of a call's number, machine and arguments (the lower halves, which are all that is read)."""
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06


class _Step(NamedTuple):
    code: int
    value: int
    then: str = ""
    """The label to jump to if the comparison holds; empty is the next step."""
    otherwise: str = ""


def build_filter(machine: str) -> bytes:
    """Return the filter for *machine*, as `platform` names it. Raises `SandboxError` if there is none for it."""
    for index, known in enumerate(AUDIT):
        if machine == known:
            return _assemble(_build_steps(known, index))
    raise SandboxError(
        "cannot create a jail",
        f"kasmon has no seccomp filter for {machine!r}",
        f"It has one for {' and '.join(AUDIT)}.",
    )


def _build_steps(machine: Architecture, index: int) -> list[_Step | str]:
    """Return the filter as steps, with labels (strings) in front of the jump targets."""
    numbers = {name: number for name, both in LOOKED_AT.items() if (number := both[index]) is not None}
    denied = sorted(number for both in DENIED.values() if (number := both[index]) is not None)
    return [
        _Step(_LOAD, ARCHITECTURE),
        _Step(_EQUAL, AUDIT[machine], otherwise="kill"),
        _Step(_LOAD, NUMBER),
        *([_Step(_AT_LEAST, X32, then="unknown")] if machine == "x86_64" else []),
        *[_Step(_EQUAL, number, then="refuse") for number in denied],
        _Step(_EQUAL, numbers["clone3"], then="unknown"),  # its flags are in memory: libc falls back to clone
        _Step(_EQUAL, numbers["openat2"], then="unknown"),  # likewise, to openat
        *[_Step(_EQUAL, numbers[name], then=label) for name, label in MODE_AT.items() if name in numbers],
        _Step(_EQUAL, numbers["clone"], then="clone"),
        _Step(_EQUAL, numbers["ioctl"], then="ioctl"),
        _Step(_EQUAL, numbers["socket"], then="socket", otherwise="allow"),
        "openat",
        _Step(_LOAD, THIRD),
        _Step(_ANY_BIT, CREATES, otherwise="allow"),
        _Step(_LOAD, FOURTH),
        _Step(_ANY_BIT, SET_UID | SET_GID, then="refuse", otherwise="allow"),
        "open",
        _Step(_LOAD, SECOND),
        _Step(_ANY_BIT, CREATES, otherwise="allow"),
        "create 2",
        _Step(_LOAD, THIRD),
        _Step(_ANY_BIT, SET_UID | SET_GID, then="refuse", otherwise="allow"),
        "create 1",
        _Step(_LOAD, SECOND),
        _Step(_ANY_BIT, SET_UID | SET_GID, then="refuse", otherwise="allow"),
        "change 2",
        _Step(_LOAD, THIRD),
        _Step(_ANY_BIT, SET_UID, then="refuse"),
        _Step(_ANY_BIT, SET_GID, then="no effect", otherwise="allow"),
        "change 1",
        _Step(_LOAD, SECOND),
        _Step(_ANY_BIT, SET_UID, then="refuse"),
        _Step(_ANY_BIT, SET_GID, then="no effect", otherwise="allow"),
        "clone",
        _Step(_LOAD, FIRST),
        _Step(_ANY_BIT, NEW_NAMESPACES, then="refuse", otherwise="allow"),
        "ioctl",
        _Step(_LOAD, SECOND),
        _Step(_EQUAL, TYPING[0], then="refuse"),
        _Step(_EQUAL, TYPING[1], then="refuse", otherwise="allow"),
        "socket",
        _Step(_LOAD, FIRST),
        *[_Step(_EQUAL, family, then="allow") for family in FAMILIES],
        _Step(_RETURN, EAFNOSUPPORT),
        "allow",
        _Step(_RETURN, ALLOW),
        "refuse",
        _Step(_RETURN, EPERM),
        "no effect",
        _Step(_RETURN, NO_EFFECT),
        "unknown",
        _Step(_RETURN, ENOSYS),
        "kill",
        _Step(_RETURN, KILL),
    ]


def _assemble(steps: list[_Step | str]) -> bytes:
    labels: dict[str, int] = {}
    lines: list[_Step] = []
    for step in steps:
        if isinstance(step, str):
            labels[step] = len(lines)
        else:
            lines.append(step)

    def distance(position: int, label: str) -> int:
        return labels[label] - position - 1 if label else 0

    return b"".join(
        struct.pack("<HBBI", step.code, distance(position, step.then), distance(position, step.otherwise), step.value)
        for position, step in enumerate(lines)
    )
