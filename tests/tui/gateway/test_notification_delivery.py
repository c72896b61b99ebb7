"""A call that leaves the terminal: to the desktop, and to the command of the user's own config."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from kasmon.config import Notify
from kasmon.errors import UnavailableError
from kasmon.model.permission import SessionId
from kasmon.supervisor.notifications.alerts import Alert
from kasmon.tui.gateway.notification_delivery import NotificationDelivery
from tests.support.wait import until

ALERT = Alert(kind="asking", title="docs asks; $(id)", text="Bash `make`", sessions=(SessionId("a"), SessionId("b")))
WRITES = "import json, os, sys; json.dump([dict(os.environ), sys.stdin.read(), sys.argv[1:]], open(sys.argv[1], 'w'))"


def command(*argv: str) -> Notify:
    return Notify(desktop="no", command=argv)


async def test_the_command_gets_the_notification_in_its_environment_and_stdin_without_a_shell(tmp_path: Path) -> None:
    into = tmp_path / "told"
    await NotificationDelivery().call(ALERT, command(sys.executable, "-c", WRITES, str(into), "$HOME; ls"))
    variables, given, argv = json.loads(into.read_text())

    assert ["asking", "docs asks; $(id)", "Bash `make`", "a b"] == [
        variables[f"KASMON_NOTIFY_{name}"] for name in ("KIND", "TITLE", "TEXT", "SESSIONS")
    ]
    assert {"kind": "asking", "title": "docs asks; $(id)", "text": "Bash `make`", "sessions": ["a", "b"]} == json.loads(
        given
    )
    assert [str(into), "$HOME; ls"] == argv


async def test_a_command_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    into = tmp_path / "pid"
    script = f"sleep 600 & echo $! > {into}; wait"
    with pytest.raises(UnavailableError, match=r"'/bin/sh' of \[notify\] took longer than 1 s"):
        await NotificationDelivery(limit_s=1).call(ALERT, command("/bin/sh", "-c", script))

    pid = int(into.read_text())
    until(lambda: not runs(pid), what="its child's end")


@pytest.mark.parametrize(
    ("argv", "why"),
    [(("/nowhere/notify",), "cannot be run: No such file"), (("/bin/sh", "-c", "exit 3"), "ended with exit code 3")],
)
async def test_a_fault_of_the_command_is_reported_once(argv: tuple[str, ...], why: str) -> None:
    caller = NotificationDelivery()
    with pytest.raises(UnavailableError, match=why):
        await caller.call(ALERT, command(*argv))

    await caller.call(ALERT, command(*argv))


async def test_without_a_command_or_a_desktop_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[object] = []

    async def counted(*argv: object, **how: Any) -> Any:
        begun.append(argv)
        return await begin(*argv, **how)

    begin: Any = asyncio.create_subprocess_exec
    monkeypatch.setattr(asyncio, "create_subprocess_exec", counted)
    await NotificationDelivery().call(ALERT, Notify(desktop="no"))
    assert [] == begun

    await NotificationDelivery().call(ALERT, command("/bin/true"))
    assert [("/bin/true",)] == begun


async def test_without_a_desktop_auto_is_silent_and_yes_gives_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere/bus")

    await NotificationDelivery().call(ALERT, Notify())
    with pytest.raises(UnavailableError, match="cannot show a desktop notification"):
        await NotificationDelivery().call(ALERT, Notify(desktop="yes"))


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return b") Z" not in Path(f"/proc/{pid}/stat").read_bytes()
    except FileNotFoundError:
        return not Path("/proc").is_dir()
