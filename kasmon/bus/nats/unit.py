"""The units that keep a service of kasmon running: systemd's for a user, or a launchd agent.

A service is `cluster-NAME`, the server of a cluster, or `bus-NAME`, which serves this machine to the cluster.
"""

import os
import plistlib
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from kasmon import system
from kasmon.errors import RefusedError, UnavailableError
from kasmon.paths import write_private

UnitKind = Literal["systemd", "launchd", ""]
CALL_S: Final = 20.0


def supervisor_here() -> UnitKind:
    """Return what can keep a process running for this user; empty if nothing can."""
    if system.HERE.service_supervisor == "launchd":
        return "launchd" if shutil.which("launchctl") else ""
    if shutil.which("systemctl") and _call(["systemctl", "--user", "show-environment"]) is None:
        return "systemd"
    return ""


def unit_name(kind: UnitKind, service: str) -> str:
    return f"kasmon-{service}.service" if kind == "systemd" else f"org.kasmon.{service.replace('-', '.', 1)}"


def render_unit(kind: UnitKind, service: str, argv: Sequence[str], variables: Mapping[str, str], log: Path) -> str:
    """Return the text of the unit that runs *argv* with *variables*."""
    if kind == "launchd":
        return plistlib.dumps(
            {
                "Label": unit_name(kind, service),
                "ProgramArguments": list(argv),
                "EnvironmentVariables": dict(variables),
                "RunAtLoad": True,
                "KeepAlive": {"SuccessfulExit": False},
                "StandardErrorPath": str(log),
                "Umask": 0o077,
            }
        ).decode()
    lines = [
        "[Unit]",
        f"Description=kasmon {service}",
        "",
        "[Service]",
        f"ExecStart={' '.join(_quote(each).replace('$', '$$') for each in argv)}",
        *(f"Environment={_quote(f'{name}={value}')}" for name, value in variables.items()),
        "UMask=0077",
        "Restart=on-failure",
        "RestartSec=2",
        f"RestartPreventExitStatus={RefusedError.exit_code}",
        f"StandardError=append:{str(log).replace('%', '%%')}",
        "",
        "[Install]",
        "WantedBy=default.target",
        "",
    ]
    return "\n".join(lines)


def unit_file(kind: UnitKind, service: str) -> Path:
    if kind == "launchd":
        return Path.home() / "Library" / "LaunchAgents" / f"{unit_name(kind, service)}.plist"
    given = os.environ.get("XDG_CONFIG_HOME", "")
    config = Path(given) if given else Path.home() / ".config"
    return config / "systemd" / "user" / unit_name(kind, service)


def start_unit(kind: UnitKind, service: str, text: str, instead: str) -> None:
    """Write the unit, and start it now and at each log-in. One that runs is started again with the new text.

    Args:
        instead: the command that runs the service without a unit.

    Raises:
        UnavailableError: if the supervisor refuses it.
    """
    file = unit_file(kind, service)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(file, text.encode())
    if kind == "launchd":
        _call(["launchctl", "bootout", f"gui/{os.getuid()}/{unit_name(kind, service)}"])
        calls = [["launchctl", "bootstrap", f"gui/{os.getuid()}", str(file)]]
    else:
        calls = [["systemctl", "--user", *arguments] for arguments in (("daemon-reload",), ("enable", file.name))]
        calls.append(["systemctl", "--user", "restart", file.name])
    for call in calls:
        if (why := _call(call)) is not None:
            raise UnavailableError(f"`{' '.join(call)}` failed: {why}.", hint=f"`{instead}` runs it without a unit.")


def remove_unit(service: str) -> bool:
    """Stop the unit and remove it; return whether there was one."""
    kind = supervisor_here()
    if not kind or not (file := unit_file(kind, service)).exists():
        return False
    if kind == "launchd":
        _call(["launchctl", "bootout", f"gui/{os.getuid()}/{unit_name(kind, service)}"])
    else:
        _call(["systemctl", "--user", "disable", "--now", file.name])
    file.unlink(missing_ok=True)
    return True


def _call(argv: Sequence[str]) -> str | None:
    """Return why *argv* failed; None if it did not."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=CALL_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else done.stderr.strip() or f"exit code {done.returncode}"


def _quote(text: str) -> str:
    """Return *text* as one word of a systemd unit, where `%` and quotes have a meaning."""
    for char, escaped in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("\n", "\\n")):
        text = text.replace(char, escaped)
    return f'"{text}"'
