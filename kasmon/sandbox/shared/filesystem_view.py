"""The view that a jail of a policy has: which folders of this machine it sees, and its variables."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from kasmon.errors import RefusedError
from kasmon.model.sandbox.policy import SIZES, SandboxPolicy, SandboxSize
from kasmon.paths import Paths
from kasmon.sandbox.shared.guest_paths import HOME, INSIDE, PATH, PROJECT, TOP_MOUNTS, WORKSPACE, BindMount
from kasmon.sandbox.shared.host_folders import HostFolders

BASE: Final[Mapping[str, str]] = {
    "PATH": PATH,
    "HOME": HOME,
    "USER": "sandbox",
    "LOGNAME": "sandbox",
    "SHELL": "/bin/bash",
    "LANG": "C.UTF-8",
    "TMPDIR": "/tmp",
}
"""Variables of all processes inside."""
OURS: Final = frozenset({*BASE, "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "GNUPGHOME", "SSH_AGENT_PID", "SSH_AUTH_SOCK"})
"""Variables of this machine that have no meaning inside, or must not be passed."""
OURS_BEGIN: Final = ("XDG_", "TMUX", "WAYLAND_", "XAUTHORITY", "LD_", "KASMON_LISTEN", "KASMON_READY")
PROXIES: Final = frozenset({"http_proxy", "https_proxy", "all_proxy", "no_proxy"})
TOO_MUCH: Final = tuple(map(Path, ("/", "/boot", "/dev", "/etc", "/home", "/proc", "/root", "/run", "/sys", "/var")))
"""Folders that no sandbox may see as a whole."""
TASK_WORKTREE: Final = re.compile(r"a[0-9]+-[0-9]+")
"""The names of worktrees of tasks of other machines' plans, in the folder of the task."""
OWN_PATHS: Final = ("/proc/", "/sys/", "/dev/", "/usr/", f"{INSIDE}/")


class FilesystemView(msgspec.Struct, frozen=True, kw_only=True):
    """The file system and environment of one jail, as seen from inside."""

    things: str
    """kasmon's folder with the programs that run inside, and the files for /etc."""
    home: str
    lock: str
    """A file of this machine that is locked while the jail exists."""
    binds: Sequence[BindMount]
    workdir: str
    variables: Mapping[str, str]
    size: SandboxSize
    seccomp: str
    """The file descriptor of the seccomp filter, as an argument."""
    new_session: bool = True
    """Whether processes inside are cut off from the caller's terminal."""
    dies_with_starter: bool = False
    info: int | None = None
    """File descriptor to which bubblewrap writes the id of the jail's first process."""
    gate: int | None = None
    """File descriptor that bubblewrap reads before it runs anything inside."""


def build_view(
    host_folders: HostFolders,
    policy: SandboxPolicy,
    workdir: str,
    *,
    sockets: Mapping[str, str],
    variables: Mapping[str, str],
    programs: Sequence[Path] = (),
) -> tuple[FilesystemView, tuple[str, ...]]:
    """Return the view of a jail of *policy*, and notices for the user. Creates its session folder.

    Args:
        policy: the jail's policy.
        workdir: `/workspace`, which is the policy's; or a folder of this machine, which has the same path inside.
        sockets: path inside -> socket, or folder of sockets, of this machine.
        variables: variables of processes inside, besides `BASE`.
        programs: files and folders that are visible inside at the same path, read-only.

    Raises:
        RefusedError: if a folder does not exist, cannot be used, or must not be visible.
        OSError, UnsafeFolderError: if the session folder cannot be created.
    """
    folder = host_folders.make(policy.session)
    notices: list[str] = []
    binds: list[BindMount] = []

    def see(source: str, target: str, name: str, *, writable: bool) -> None:
        require_mountable(host_folders, source, target)
        settled = host_folders.settle(policy, Path(source), name, writable=writable)
        binds.append(BindMount(source=str(settled.path), target=target, writable=writable))
        if settled.notice:
            notices.append(settled.notice)

    if workdir != WORKSPACE:
        see(workdir, workdir, "workspace", writable=True)
    elif policy.workspace:
        see(policy.workspace, WORKSPACE, "workspace", writable=True)
    else:
        binds.append(BindMount(source=str(host_folders.own_workspace(policy.session)), target=WORKSPACE, writable=True))
    if policy.project:
        see(policy.project, PROJECT, "project", writable=policy.project_writable)
    for number, mount in enumerate(policy.mounts):
        see(mount.source, mount.target or mount.source, f"mount-{number}", writable=mount.writable)
    for program in programs:
        if not program.is_relative_to(workdir):
            see(str(program), str(program), f"program-{program.name}", writable=False)
    binds += [BindMount(source=source, target=target) for target, source in sockets.items()]
    made = FilesystemView(
        things=str(host_folders.things()),
        home=str(host_folders.home(policy.session)),
        lock=str(folder / "lock"),
        binds=binds,
        workdir=workdir,
        variables={**BASE, **variables},
        size=SIZES[policy.size],
        seccomp="{seccomp}",
    )
    return made, tuple(notices)


def require_mountable(host_folders: HostFolders, source: str, target: str) -> None:
    """Check that a jail may see *source* at *target*. Raises `RefusedError` if it may not."""
    if not target.startswith("/") or os.path.normpath(target) != target or "\0" in source + target:
        raise RefusedError(
            f"nothing can be mounted at {target!r} in a sandbox.", hint="Give an absolute path, without `..`."
        )
    if target in TOP_MOUNTS or target.startswith(OWN_PATHS):
        raise RefusedError(f"a sandbox has its own {target!r}: nothing can be mounted there.")
    real = Path(source).resolve()
    if real in (*TOO_MUCH, Path.home().resolve()) or Path("/proc") in real.parents or Path("/sys") in real.parents:
        raise RefusedError(f"{source!r} contains more than a sandbox should see.", hint="Give one of its folders.")
    if _is_kasmons(real, host_folders.paths, host_folders.base):
        raise RefusedError(f"{source!r} contains kasmon's own files, or is one of them: no sandbox may see those.")


def _is_kasmons(real: Path, paths: Paths, base: Path) -> bool:
    """Whether *real* contains one of kasmon's folders, or is inside one; worktrees of plans' tasks do not count."""
    ours = [folder.resolve() for folder in (paths.state, paths.config, paths.runtime, base)]
    if any(folder.is_relative_to(real) for folder in ours):
        return True
    state = paths.state.resolve()
    plans, tasks = state / paths.plans.name, state / paths.plan_tasks.name
    if real.is_relative_to(plans) and len(real.relative_to(plans).parts) > 2:
        return False
    if real.is_relative_to(tasks) and any(map(TASK_WORKTREE.fullmatch, real.relative_to(tasks).parts[2:3])):
        return False
    return any(real.is_relative_to(folder) for folder in ours)


def own_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return those of *variables* that are meaningful inside."""
    return {
        name: value
        for name, value in variables.items()
        if name not in OURS and not name.startswith(OURS_BEGIN) and name.lower() not in PROXIES
    }
