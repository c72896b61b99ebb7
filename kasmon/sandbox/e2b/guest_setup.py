"""Sets up a sandbox at the service: installs the guest program, and copies the workspace there and back.

Each function raises `SandboxError` if that fails.
"""

import io
import secrets
import shlex
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from kasmon.errors import SandboxError
from kasmon.sandbox.e2b.service import converted_errors, sdk
from kasmon.sandbox.remote_guest.folder_sync import FolderSync
from kasmon.sandbox.shared.filesystem_view import BASE
from kasmon.sandbox.shared.host_folders import INSIDE, list_program_files

if TYPE_CHECKING:
    import e2b

KASMON: Final = "/opt/kasmon"
WORKSPACE: Final = "/workspace"
AGENT: Final = f"{KASMON}/run/agent.sock"
"""The guest program's socket: on the sandbox's disk, since content of `/run` may be lost in a pause."""
PYTHON: Final = "python3 -I -S"
VARIABLES: Final[Mapping[str, str]] = {name: BASE[name] for name in ("SHELL", "LANG", "TMPDIR")}
"""The environment of all processes inside, as in other tiers. The command that starts the guest program sets it: once
the sandbox was paused, the service no longer applies the variables it was created with to commands."""
FORGET_PROGRAM: Final = f"""
import socket, sys
sys.path.append({KASMON!r})
from frames import pack_json
agent = socket.socket(socket.AF_UNIX)
agent.connect(sys.argv[1])
agent.sendall(pack_json({{"type": "forget", "id": "", "names": sys.argv[2:], "values": []}}))
sys.exit(not agent.recv(1 << 16))
"""
LINK_PYTHON: Final = '[ -x /usr/bin/python3 ] || ln -s "$(command -v python3)" /usr/bin/python3'
"""Agents' hooks use this path for Python in every sandbox."""
COMMAND_S: Final = 60.0
MIRROR_S: Final = 120.0
NEEDED: Final = "python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' && command -v bash"
TEMPLATE_HAS: Final = "Use a working directory with another name, or another template."
TEMPLATE: Final = "Set [sandbox] template to a template that has them; see the service's documentation on templates."


NOTES: Final[Mapping[str, str]] = {"workspace": f"{KASMON}/run/mirror.json", "home": f"{KASMON}/run/mirror-home.json"}
"""The files inside that record the synchronized state of each folder."""


class GuestFolder(NamedTuple):
    """A folder inside, and the folder here that it is synchronized with."""

    name: str
    """One of `NOTES`."""
    path: str
    outside: FolderSync


def set_up_guest(sandbox: "e2b.Sandbox", folders: Sequence[GuestFolder]) -> None:
    """Install the guest program and the files of *folders*, and start the guest program.

    If that fails, the sandbox is unusable.
    """
    with converted_errors("cannot create a sandbox"):
        try:
            sandbox.commands.run(NEEDED, timeout=COMMAND_S)
        except sdk().CommandExitException as error:
            raise SandboxError(
                "cannot create a sandbox", "its template has no Python 3.11 and bash", TEMPLATE
            ) from error
        user = sandbox.commands.run("id -un", timeout=COMMAND_S).stdout.strip()
        _check_paths_free(sandbox, [folder.path for folder in folders if folder.path != WORKSPACE])
        paths = shlex.join((KASMON, f"{KASMON}/run", *(folder.path for folder in folders)))
        run_command(sandbox, f"mkdir -p {paths} && chown {user} {paths} && {{ {LINK_PYTHON}; }}", user="root")
        sandbox.files.write(f"{KASMON}/run/inside.tar", _pack_guest())
        run_command(sandbox, f"tar -xf {KASMON}/run/inside.tar -C {KASMON} && rm {KASMON}/run/inside.tar")
        for folder in folders:
            _send_changes(sandbox, folder, folder.outside.whole())
        start_folder = shlex.quote(folders[0].path)
        run_command(sandbox, f"cd {start_folder} && {PYTHON} {KASMON}/standalone.py {AGENT}", variables=VARIABLES)


def _check_paths_free(sandbox: "e2b.Sandbox", paths: Sequence[str]) -> None:
    """Refuse a template with files at one of *paths*: they must not be mixed with those from here."""
    if not paths:
        return
    command = f'for each in {shlex.join(paths)}; do [ -z "$(ls -A "$each" 2>&1 | head -c 1)" ] || [ ! -e "$each" ] ||'
    occupied = run_command(sandbox, f'{command} echo "$each"; done', user="root").split("\n")[0]
    if occupied:
        raise SandboxError("cannot create a sandbox", f"its template has something at {occupied!r}", TEMPLATE_HAS)


def fetch_folders(sandbox: "e2b.Sandbox", folders: Iterable[GuestFolder]) -> tuple[str, ...]:
    """Bring *folders* here up to date with the sandbox; return a sentence for each path that was not."""
    sentences: list[str] = []
    with converted_errors("the files in its folders were not fetched"):
        for name, path, outside in folders:
            give_command = f"{PYTHON} {KASMON}/files.py give {shlex.quote(path)} {NOTES[name]}"
            sentences += outside.takes(run_command(sandbox, give_command, limit_s=MIRROR_S))
    return tuple(sentences)


def send_folders(sandbox: "e2b.Sandbox", folders: Iterable[GuestFolder]) -> tuple[str, ...]:
    """Copy changes of *folders* here into the sandbox; return a sentence for each path that was not applied as is.

    If that fails, the next call sends them again.
    """
    sentences: list[str] = []
    for folder in folders:
        try:
            changes = folder.outside.changes()
        except SandboxError as error:
            sentences.append(error.message)
            continue
        if changes is None:
            continue
        content, now = changes
        with converted_errors("changes on this machine were not sent"):
            conflicting = _send_changes(sandbox, folder, content)
        folder.outside.record_files(now)
        sentences += [
            f"{path!r} was changed here and in the sandbox: the sandbox keeps its own version next to it."
            for path in conflicting
        ]
    return tuple(sentences)


def delete_credentials(sandbox: "e2b.Sandbox", files: Sequence[str], variables: Sequence[str]) -> None:
    """Delete *files* in it, and remove *variables* from its interpreters; values that code derived from them stay."""
    with converted_errors("credentials were not removed"):
        run_command(sandbox, f"rm -f -- {shlex.join(files)}")
        run_command(sandbox, f"{PYTHON} -c {shlex.quote(FORGET_PROGRAM)} {AGENT} {shlex.join(variables)}")


def _send_changes(sandbox: "e2b.Sandbox", folder: GuestFolder, content: bytes) -> tuple[str, ...]:
    bundle_path = f"{KASMON}/run/bundle-{secrets.token_hex(6)}"
    sandbox.files.write(bundle_path, content)
    take = f"{PYTHON} {KASMON}/files.py take {shlex.quote(folder.path)} {NOTES[folder.name]} {bundle_path}"
    answer = run_command(sandbox, take, limit_s=MIRROR_S)
    try:
        return msgspec.json.decode(answer, type=tuple[str, ...])
    except msgspec.MsgspecError as error:
        raise SandboxError("the sandbox gave an invalid answer", str(error)) from error


def run_command(
    sandbox: "e2b.Sandbox",
    command: str,
    *,
    user: str | None = None,
    limit_s: float = COMMAND_S,
    variables: Mapping[str, str] = {},
) -> str:
    """Run *command* with *variables* added to the service's, and return its stdout."""
    try:
        return str(sandbox.commands.run(command, user=user, timeout=limit_s, envs=dict(variables)).stdout)
    except sdk().CommandExitException as error:
        why = (error.stderr.strip().splitlines() or [f"it ended with {error.exit_code}"])[-1]
        raise SandboxError("a command in the sandbox failed", f"{command.split()[0]}: {why}") from error


def _pack_guest() -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for path in list_program_files(INSIDE):
            data = path.read_bytes()
            facts = tarfile.TarInfo(path.name)
            facts.size, facts.mode = len(data), 0o644
            tar.addfile(facts, io.BytesIO(data))
    return content.getvalue()
