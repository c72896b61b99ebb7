"""The arguments of bubblewrap for a jail: namespaces, mounts, variables, and the files that replace others inside."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kasmon.model.sandbox.policy import MIB
from kasmon.sandbox.shared.filesystem_view import FilesystemView
from kasmon.sandbox.shared.guest_paths import HOME, INSIDE

LOCK: Final = "/run/jail.lock"
USER: Final = 1000
"""User id and group id of all processes inside, as seen from inside."""
NAMESPACES: Final = (
    "--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try",
    "--disable-userns",
)  # fmt: skip
LINKED: Final = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")
"""Top-level folders; mostly links into /usr."""
OF_ETC: Final = (
    "alternatives", "ca-certificates", "ca-certificates.conf", "ld.so.cache", "ld.so.conf", "ld.so.conf.d",
    "localtime", "mime.types", "pki/ca-trust", "pki/tls/cert.pem", "pki/tls/certs", "protocols", "services",
    "ssl/cert.pem", "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone",
)  # fmt: skip
"""Files of this machine's /etc that are visible inside; no accounts, no keys, no host names."""
RUN_BYTES: Final = 16 * MIB


def build_arguments(view: FilesystemView) -> list[str]:
    """Return bubblewrap's arguments for *view*, without the command that runs inside."""
    return [
        *NAMESPACES,
        *("--uid", str(USER), "--gid", str(USER), "--hostname", "sandbox", "--cap-drop", "ALL"),
        *(["--new-session"] if view.new_session else []),
        *(["--die-with-parent"] if view.dies_with_starter else []),
        *_system(),
        *_etc(view.things),
        *("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"),
        *("--dev", "/dev", *_build_tmpfs("/dev/shm", "1777", view.size.memory_bytes // 2), "--remount-ro", "/dev"),
        *_build_tmpfs("/tmp", "1777", view.size.memory_bytes // 2),
        *_build_tmpfs("/run", "0755", RUN_BYTES),
        *("--ro-bind", view.lock, LOCK, "--lock-file", LOCK),
        *("--dir", "/var", "--symlink", "../tmp", "/var/tmp", "--symlink", "../run", "/var/run"),
        *("--ro-bind", os.path.join(view.things, "opt"), INSIDE),  # noqa: PTH118 (an argument, not a used path)
        *("--bind", view.home, HOME),
        *(
            argument
            for bind in sorted(view.binds, key=lambda bind: bind.target.count("/"))
            for argument in ("--bind" if bind.writable else "--ro-bind", bind.source, bind.target)
        ),
        *("--remount-ro", "/", "--chdir", view.workdir),
        "--clearenv",
        *(argument for name, value in view.variables.items() for argument in ("--setenv", name, value)),
        *(["--info-fd", str(view.info)] if view.info is not None else []),
        *(["--block-fd", str(view.gate)] if view.gate is not None else []),
        *("--seccomp", view.seccomp),
    ]


def encode_arguments(arguments: Sequence[str]) -> bytes:
    """Encode *arguments* for bubblewrap's `--args`. Raises `ValueError` if a word contains a NUL."""
    if any("\0" in argument for argument in arguments):
        raise ValueError("a path or a variable contains a NUL")
    return b"".join(os.fsencode(argument) + b"\0" for argument in arguments)


def _system() -> list[str]:
    """Return the mounts of this machine's programs and libraries, read-only."""
    arguments = ["--ro-bind", "/usr", "/usr"]
    for name in LINKED:
        top = Path("/", name)
        if top.is_symlink():
            arguments += ["--symlink", str(top.readlink()).lstrip("/"), str(top)]
        elif top.is_dir():
            arguments += ["--ro-bind", str(top), str(top)]
    return arguments


def _etc(things: str) -> list[str]:
    ours = [Path(things, "etc", name) for name in ("group", "hostname", "hosts", "nsswitch.conf", "passwd")]
    arguments = [argument for file in ours for argument in ("--ro-bind", str(file), f"/etc/{file.name}")]
    for name in OF_ETC:
        if Path("/etc", name).exists():
            arguments += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    return arguments


def _build_tmpfs(target: str, mode: str, limit_bytes: int) -> list[str]:
    return ["--perms", mode, "--size", str(limit_bytes), "--tmpfs", target]
