"""Whether the user is at the desk."""

import asyncio
from pathlib import Path

import pytest

from kasmon.config import Config, Notify, NotifyTarget
from kasmon.errors import UnavailableError
from kasmon.model.fleet import Fleet
from kasmon.paths import Paths, write_private
from kasmon.supervisor.notifications.presence import is_screen_locked, last_key_at, note_key
from kasmon.tui.gateway.operations import Operations


@pytest.fixture
def where(tmp_path: Path) -> Paths:
    return Paths(state=tmp_path / "s", config=tmp_path / "c", given_runtime=tmp_path / "r")


def test_the_last_key_of_any_dashboard_counts(where: Paths) -> None:
    assert 0.0 == last_key_at(where)
    for at in (1000.0, 2000.0, 1500.0):
        note_key(where, at)
    assert 2000.0 == last_key_at(where)


@pytest.mark.parametrize(
    ("loginctl", "is_locked"),
    [
        ('case "$1" in show-user) echo c2;; show-session) [ "$2" = c2 ] && echo yes;; esac', True),
        ('case "$1" in show-user) echo c2;; show-session) echo no;; esac', False),
        ("[ $1 = show-session ] && echo yes", False),
        ("echo yes; exit 1", False),
        ("", False),
    ],
)
def test_logind_says_whether_the_graphical_session_is_locked(
    loginctl: str, is_locked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if loginctl:
        program = tmp_path / "loginctl"
        program.write_text(f"#!/bin/sh\n{loginctl}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert is_locked == is_screen_locked()


def test_a_dashboard_reports_each_failure_to_push_once(where: Paths) -> None:
    config = Config(notify=Notify(targets={"phone": NotifyTarget(url="ntfy://127.0.0.1/x")}))
    operations = Operations(where, lambda: config, Fleet)
    note_key(where, 1.0)
    asyncio.run(operations.maintain_notifier(5.0))
    for why in ("it answered 403 (Forbidden)", "it cannot be reached"):
        write_private(where.notifications / "status.json", b'{"targets": {"phone": {"why": "%s"}}}' % why.encode())
        with pytest.raises(UnavailableError) as told:
            asyncio.run(operations.maintain_notifier(5.0))
        assert f"cannot push to 'phone': {why}." == told.value.message
        asyncio.run(operations.maintain_notifier(5.0))
    assert not where.notifier_lock.exists(), "without a session no process is started"
