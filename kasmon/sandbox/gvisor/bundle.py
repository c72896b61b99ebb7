"""What `runsc` is told of a sandbox: a folder with its root and its `config.json`, made of a jail's scene."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from kasmon.model.sandbox import MIB
from kasmon.paths import private_folder, write_private
from kasmon.sandbox.jail.arguments import HOME, INSIDE, LINKED, OF_ETC, RUN_BYTES, USER, Scene
from kasmon.sandbox.jail.limits import FILES
from kasmon.sandbox.jail.tree import raze

AGENT: Final = "/run/kasmon/agent.sock"
"""Where the agent listens: in memory, which is kept."""
NAMESPACES: Final = ("pid", "network", "ipc", "uts", "mount")
_READ: Final = ("bind", "ro", "nosuid", "nodev")
_WRITE: Final = ("bind", "rw", "nosuid", "nodev")


def write(folder: Path, scene: Scene) -> None:
    """Make the bundle of *scene* in *folder*, in the place of one that is there.

    Raises:
        OSError: if it cannot be made.
    """
    raze(folder)
    root = private_folder(private_folder(folder) / "root")
    for name in LINKED:
        top = Path("/", name)
        if top.is_symlink():
            (root / name).symlink_to(str(top.readlink()).lstrip("/"))
    private_folder(root / "var")
    (root / "var/tmp").symlink_to("../tmp")
    (root / "var/run").symlink_to("../run")
    for path in (root, root / "var"):
        path.chmod(0o755)
    write_private(folder / "config.json", msgspec.json.encode(config(root, scene)))


def config(root: Path, scene: Scene) -> dict[str, Any]:
    """The specification of *scene* over *root*. Pure but for what of this machine is there to be seen."""
    return {
        "ociVersion": "1.0.0",
        "hostname": "sandbox",
        "root": {"path": str(root), "readonly": True},
        "process": {
            "user": {"uid": USER, "gid": USER},
            "cwd": scene.workdir,
            "args": ["/usr/bin/python3", "-I", "-S", f"{INSIDE}/alone.py", AGENT, "stay"],
            "env": [f"{name}={value}" for name, value in scene.variables.items()],
            "capabilities": {},
            "noNewPrivileges": True,
            "rlimits": [_limit(*each) for each in _limits(scene)],
        },
        "mounts": list(_mounts(scene)),
        "linux": {"namespaces": [{"type": name} for name in NAMESPACES]},
    }


def _limits(scene: Scene) -> Sequence[tuple[str, int]]:
    size = scene.size
    held = (("DATA", size.memory_bytes), ("FSIZE", size.disk_bytes), ("NPROC", size.processes), ("NOFILE", FILES))
    return (*held, ("CORE", 0))


def _limit(name: str, most: int) -> dict[str, Any]:
    return {"type": f"RLIMIT_{name}", "hard": most, "soft": most}


def _mounts(scene: Scene) -> Sequence[dict[str, Any]]:
    things = Path(scene.things)
    half = scene.size.memory_bytes // 2
    found = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        _bound("/usr", "/usr"),
        *(_bound(f"/{name}", f"/{name}") for name in LINKED if Path("/", name).is_dir() and not _is_link(name)),
        *(_bound(f"/etc/{name}", f"/etc/{name}") for name in OF_ETC if Path("/etc", name).exists()),
        *(_bound(str(file), f"/etc/{file.name}") for file in sorted((things / "etc").iterdir())),
        _memory("/tmp", "1777", half),
        _memory("/dev/shm", "1777", half),
        _memory("/run", "0755", RUN_BYTES),
        _memory("/run/kasmon", "1777", MIB),
        {"destination": "/dev/pts", "type": "devpts", "source": "devpts"},
        _bound(str(things / "opt"), INSIDE),
        _bound(scene.home, HOME, writable=True),
    ]
    binds = sorted(scene.binds, key=lambda bind: bind.target.count("/"))
    return [*found, *(_bound(bind.source, bind.target, writable=bind.writable) for bind in binds)]


def _is_link(name: str) -> bool:
    return os.path.islink(f"/{name}")  # noqa: PTH114 (words, not a place of ours)


def _bound(source: str, target: str, *, writable: bool = False) -> dict[str, Any]:
    return {"destination": target, "type": "bind", "source": source, "options": [*(_WRITE if writable else _READ)]}


def _memory(target: str, mode: str, limit_bytes: int) -> dict[str, Any]:
    options = [f"mode={mode}", f"size={limit_bytes}"]
    return {"destination": target, "type": "tmpfs", "source": "tmpfs", "options": options}
