"""A log-in that an agent renewed inside: brought back if nothing but its tokens changed, and nobody else wrote it."""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kasmon.model.sandbox.policy import CopiedFile
from kasmon.sandbox.agent import credential_files

ME = (os.getuid(), os.getgid())
LOGIN = CopiedFile(source="~/.agent/login.json", renews=True)
OLD: dict[str, Any] = {
    "oauth": {"accessToken": "old-a", "refreshToken": "old-r", "expiresAt": 1000, "scopes": ["model"], "plan": "pro"},
    "account_id": "mine",
}


def renewed(**more: Any) -> dict[str, Any]:
    return {
        **OLD,
        "oauth": {**OLD["oauth"], "accessToken": "new-a", "refreshToken": "new-r", "expiresAt": 2000, **more},
    }


class Handover:
    """A log-in in a home outside, its copy in a home inside, and what kasmon noted of it."""

    def __init__(self, root: Path) -> None:
        self.outside, self.home, self.host_folders = (
            root / "outside" / ".agent" / "login.json",
            root / "inside",
            root / "ground",
        )
        for folder in (self.outside.parent, self.home, self.host_folders):
            folder.mkdir(parents=True)
        self.outside.write_text(json.dumps(OLD))
        credential_files.record_digests([LOGIN], self.host_folders)
        credential_files.copy_in([LOGIN], self.home, ME)

    @property
    def copy(self) -> Path:
        return self.home / ".agent" / "login.json"

    def ended(self, file: CopiedFile = LOGIN) -> str:
        return " ".join(credential_files.copy_back([file], self.home, credential_files.load_digests(self.host_folders)))


@pytest.fixture
def over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Handover:
    monkeypatch.setenv("HOME", str(tmp_path / "outside"))
    return Handover(tmp_path)


def test_tokens_renewed_in_the_guest_are_copied_back_private(over: Handover) -> None:
    over.copy.write_text(json.dumps(renewed()))

    assert "which was copied back" in over.ended()
    assert renewed() == json.loads(over.outside.read_text())
    assert 0o600 == stat.S_IMODE(over.outside.stat().st_mode)


def test_a_login_file_that_is_a_link_is_renewed_at_its_target(over: Handover) -> None:
    real = over.outside.with_name("real.json")
    over.outside.rename(real)
    over.outside.symlink_to(real)
    over.copy.write_text(json.dumps(renewed()))

    assert "which was copied back" in over.ended()
    assert over.outside.is_symlink()
    assert renewed() == json.loads(real.read_text())


def test_an_unchanged_file_is_not_reported(over: Handover) -> None:
    before = over.outside.stat().st_ino

    assert "" == over.ended()
    assert before == over.outside.stat().st_ino


@pytest.mark.parametrize(
    ("now", "why"),
    [
        ({**renewed(), "account_id": "another's"}, "a field other than tokens and times changed"),
        (renewed(plan="max"), "a field other than tokens and times changed"),
        (renewed(scopes=["model", "files"]), "a field other than tokens and times changed"),
        (renewed(apiKey="x"), "it has other fields than before"),
        ({"oauth": renewed()["oauth"]}, "it has other fields than before"),
        (renewed(accessToken={"a": 1}), "a field other than tokens and times changed"),
        (renewed(accessToken=""), "it has no 'accessToken'"),
        (renewed(expiresAt=999), "it expires before the original"),
        ([], "a field other than tokens and times changed"),
    ],
)
def test_a_change_beyond_a_renewal_stays_in_the_guest_and_is_reported(over: Handover, now: Any, why: str) -> None:
    over.copy.write_text(json.dumps(now))
    told = over.ended()

    assert why in told
    assert "was not copied back" in told
    assert OLD == json.loads(over.outside.read_text())


@pytest.mark.parametrize("content", [b"", b"{", b"\xff" * 9, b"[" * 100_000])
def test_an_unreadable_file_stays_in_the_guest(over: Handover, content: bytes) -> None:
    over.copy.write_bytes(content)

    assert "cannot be read" in over.ended()
    assert OLD == json.loads(over.outside.read_text())


def test_a_file_that_changed_outside_meanwhile_is_left_alone(over: Handover) -> None:
    """Its own agent, or the end of another sandbox, was faster."""
    theirs = renewed(accessToken="of-another")
    over.outside.write_text(json.dumps(theirs))
    over.copy.write_text(json.dumps(renewed()))

    assert "changed meanwhile" in over.ended()
    assert theirs == json.loads(over.outside.read_text())


def test_a_file_removed_outside_is_not_created_again(over: Handover) -> None:
    over.outside.unlink()
    over.copy.write_text(json.dumps(renewed()))

    assert "changed meanwhile" in over.ended()
    assert not over.outside.exists()


def test_no_link_or_pipe_in_the_guest_is_followed_or_read(over: Handover, tmp_path: Path) -> None:
    mine = tmp_path / "mine.json"
    mine.write_text(json.dumps(renewed()))
    puts: list[Callable[[], None]] = [lambda: over.copy.symlink_to(mine), lambda: os.mkfifo(over.copy), over.copy.mkdir]
    for put in puts:
        over.copy.unlink()
        put()
        assert "" == over.ended()
    over.copy.rmdir()
    over.copy.parent.rmdir()
    over.copy.parent.symlink_to(tmp_path)

    assert "" == over.ended()
    assert OLD == json.loads(over.outside.read_text())


def test_a_file_that_is_no_login_file_of_its_profile_is_never_copied_back(over: Handover) -> None:
    over.copy.write_text(json.dumps(renewed()))

    assert "" == over.ended(CopiedFile(source=LOGIN.source))
    assert OLD == json.loads(over.outside.read_text())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            {
                "tokens": {"id_token": "a", "access_token": "b", "refresh_token": "c", "account_id": "d"},
                "last_refresh": "1",
            },
            {
                "tokens": {"id_token": "e", "access_token": "f", "refresh_token": "g", "account_id": "d"},
                "last_refresh": "2",
            },
            id="codex",
        ),
        pytest.param(
            {"access_token": "a", "scope": "s", "token_type": "Bearer", "expiry_date": 1, "refresh_token": "r"},
            {"access_token": "b", "scope": "s", "token_type": "Bearer", "expiry_date": 2, "refresh_token": "r"},
            id="gemini",
        ),
        pytest.param(
            {"anthropic": {"type": "oauth", "refresh": "a", "access": "b", "expires": 1}},
            {"anthropic": {"type": "oauth", "refresh": "c", "access": "d", "expires": 2}},
            id="opencode",
        ),
    ],
)
def test_the_log_ins_of_known_agents_are_renewed(before: Any, after: Any) -> None:
    assert "" == credential_files.find_fault(json.dumps(before).encode(), json.dumps(after).encode())
