"""A sandbox at the service gets what kasmon runs in one: the agent, its files, and a workspace like the one here."""

import io
import secrets
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import kasmon.sandbox.inside
from kasmon.errors import SandboxError
from kasmon.sandbox.e2b.service import ours, sdk
from kasmon.sandbox.far import gift

if TYPE_CHECKING:
    import e2b

OURS: Final = "/opt/kasmon"
WORKSPACE: Final = "/workspace"
AGENT: Final = f"{OURS}/run/agent.sock"
"""Where the agent listens: on its disk, since what lies in `/run` may be gone after a pause."""
NOTE: Final = f"{OURS}/run/mirror.json"
PYTHON: Final = "python3 -I -S"
COMMAND_S: Final = 60.0
MIRROR_S: Final = 120.0
NEEDED: Final = "python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' && command -v bash"
TEMPLATE: Final = "[sandbox] template names one that has them; see the service's pages on templates."


def inhabit(sandbox: "e2b.Sandbox", workspace: str) -> None:
    """Put the agent and the files of *workspace* into it, and start the agent.

    Raises:
        SandboxError: if it cannot be; the sandbox is of no use then.
    """
    with ours("no sandbox was made"):
        try:
            sandbox.commands.run(NEEDED, timeout=COMMAND_S)
        except sdk().CommandExitException as error:
            raise SandboxError("no sandbox was made", "its template has no Python 3.11 and bash", TEMPLATE) from error
        user = sandbox.commands.run("id -un", timeout=COMMAND_S).stdout.strip()
        folders = f"{OURS} {OURS}/run {WORKSPACE}"
        said(sandbox, f"mkdir -p {folders} && chown {user} {folders}", user="root")
        sandbox.files.write(f"{OURS}/run/inside.tar", _inside())
        said(sandbox, f"tar -xf {OURS}/run/inside.tar -C {OURS} && rm {OURS}/run/inside.tar")
        put = f"{OURS}/run/gift-{secrets.token_hex(6)}"
        sandbox.files.write(put, gift.packed(workspace))
        said(sandbox, f"{PYTHON} {OURS}/mirror.py take {WORKSPACE} {NOTE} {put}", limit_s=MIRROR_S)
        said(sandbox, f"cd {WORKSPACE} && {PYTHON} {OURS}/alone.py {AGENT}")


def fetched(sandbox: "e2b.Sandbox", folder: str) -> tuple[str, ...]:
    """Bring *folder* up to what its workspace has; what of it is not here, each as one sentence.

    Raises:
        SandboxError: if it cannot be.
    """
    with ours("the workspace was not fetched"):
        return gift.taken(said(sandbox, f"{PYTHON} {OURS}/mirror.py give {WORKSPACE} {NOTE}", limit_s=MIRROR_S), folder)


def said(sandbox: "e2b.Sandbox", command: str, *, user: str | None = None, limit_s: float = COMMAND_S) -> str:
    """What *command* says on stdout.

    Raises:
        SandboxError: if it fails.
    """
    try:
        return str(sandbox.commands.run(command, user=user, timeout=limit_s).stdout)
    except sdk().CommandExitException as error:
        why = (error.stderr.strip().splitlines() or [f"it ended with {error.exit_code}"])[-1]
        raise SandboxError("the sandbox does not do what it should", f"{command.split()[0]}: {why}") from error


def _inside() -> bytes:
    """What runs inside, as a tar."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for path in sorted(Path(next(iter(kasmon.sandbox.inside.__path__))).iterdir()):
            if path.is_file() and path.suffix != ".pyc":
                data = path.read_bytes()
                facts = tarfile.TarInfo(path.name)
                facts.size, facts.mode = len(data), 0o644
                tar.addfile(facts, io.BytesIO(data))
    return content.getvalue()
