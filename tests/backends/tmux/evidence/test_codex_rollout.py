"""How much codex asks, read from the end of the rollout that it writes."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kasmon import system
from kasmon.backends.tmux.evidence.codex_rollout import BLOCK_BYTES, CodexRollout, OpenRollouts, permissions
from kasmon.model.codex_permissions import CodexPermissions
from kasmon.system.linux import Linux

READ, FULL = {"type": "managed", "network": "restricted"}, {"type": "disabled"}
ID = "01a208b2-ad32-7012-98b0-56a79064848a"


def line(kind: str, **payload: Any) -> str:
    return json.dumps(
        {"timestamp": "2026-11-23T13:57:45.278Z", "type": kind, "payload": payload}, separators=(",", ":")
    )


def turn(policy: str, sandbox: str, profile: object = READ, mode: str = "default") -> str:
    return line(
        "turn_context",
        approval_policy=policy,
        permission_profile=profile,
        collaboration_mode={"mode": mode},
        sandbox_policy={"type": sandbox},
    )


def applied(policy: str, profile: object = READ, mode: str = "default") -> str:
    told = {"approval_policy": policy, "permission_profile": profile, "collaboration_mode": {"mode": mode}}
    return line("event_msg", type="thread_settings_applied", thread_settings=told)


def told(path: Path, *lines: str) -> CodexPermissions:
    path.write_text("".join(f"{each}\n" for each in lines))
    return permissions(path)._replace(read_to=0)


def test_the_last_entry_counts_and_a_turn_reports_its_sandbox(tmp_path: Path) -> None:
    file, long = tmp_path / "rollout", line("response_item", text="x" * 2 * BLOCK_BYTES)
    assert CodexPermissions() == told(file)
    assert CodexPermissions("on-request", "read-only") == told(
        file, turn("never", "x"), turn("on-request", "read-only"), long
    )
    assert CodexPermissions("never", "read-only", True) == told(
        file, turn("on-request", "read-only"), long, applied("never", mode="plan")
    )


def test_a_sandbox_that_changed_since_its_turn_is_unknown(tmp_path: Path) -> None:
    assert CodexPermissions("never", "") == told(
        tmp_path / "rollout", turn("on-request", "read-only"), applied("never", FULL)
    )


def test_a_malformed_line_is_ignored(tmp_path: Path) -> None:
    odd = (
        '{"type":"turn_context"',
        '"type":"turn_context"',
        '{"type":"turn_context","payload":[]}',
        turn("x", "y")[:-9],
    )
    assert CodexPermissions("never", "read-only") == told(tmp_path / "rollout", turn("never", "read-only"), *odd)


def test_only_appended_lines_are_read_and_a_partial_line_is_read_later(tmp_path: Path) -> None:
    path = tmp_path / f"rollout-2026-11-23T13-57-37-{ID}.jsonl"
    rollout, pids = CodexRollout(), [os.getpid()]
    with path.open("w") as file:
        file.write(f"{turn('on-request', 'read-only')}\n")
        file.flush()
        assert "on-request" == rollout.permission_mode(pids)
        later = f"{applied('never')}\n"
        file.write(later[:40])
        file.flush()
        assert "on-request" == rollout.permission_mode(pids)
        file.write(later[40:])
        file.flush()
        assert "never" == rollout.permission_mode(pids)
        limits = {"primary": {"used_percent": 12.0, "window_minutes": 300, "resets_at": 5000}, "secondary": None}
        file.write(f"{line('event_msg', type='token_count', rate_limits=limits)}\n")
        file.write(f"{line('event_msg', type='token_count')}\n")
        file.flush()
        assert "never" == rollout.permission_mode(pids)
        assert [("five_hour", 0.12, 5000.0)] == [(each.name, each.used, each.resets_at) for each in rollout.limits]


def test_a_new_rollout_replaces_the_first_as_soon_as_it_is_open(tmp_path: Path) -> None:
    first, second = (tmp_path / f"rollout-{day}-{ID}.jsonl" for day in (1, 2))
    opened, pids = OpenRollouts(), [os.getpid()]
    assert [] == opened.read(pids)

    with first.open("w"):
        assert [str(first)] == [path for path, _ in opened.read(pids)]
        assert [str(first)] == [path for path, _ in opened.read(pids)]
    with second.open("w"):
        assert [str(second)] == [path for path, _ in opened.read(pids)]
    assert [] == opened.read(pids)


@pytest.mark.skipif(system.HERE.count_open_files(os.getpid()) == 0, reason="the number of open files is not known here")
def test_files_are_listed_again_only_after_one_was_opened_or_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[int] = []

    def list_open_files(pid: int) -> Iterator[tuple[str, str]]:
        listed.append(pid)
        return Linux().list_open_files(pid)

    monkeypatch.setattr(system.HERE, "list_open_files", list_open_files)
    opened, pids = OpenRollouts(), [os.getpid()]
    with (tmp_path / f"rollout-1-{ID}.jsonl").open("w"):
        for _ in range(3):
            opened.read(pids)
        assert pids == listed

        opened.read(pids, afresh=True)
        assert 2 * pids == listed
