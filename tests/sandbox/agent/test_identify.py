"""Whether an agent is seen to be confined: what is not in a jail is never taken for one that is."""

import subprocess
from pathlib import Path

import msgspec
import pytest

from kasmon.model.commands import Launch, Mode
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SandboxPolicy
from kasmon.paths import Paths, user_paths, write_private
from kasmon.sandbox.agent import identify

ME = SessionId("abcdefgh")
LAUNCH = Launch(session=ME, name="docs", agent="shell", mode=Mode.TMUX, backend="tmux", sandbox="jail")


@pytest.fixture
def here(tmp_path: Path) -> Paths:
    found = user_paths({"XDG_STATE_HOME": str(tmp_path), "XDG_RUNTIME_DIR": "/tmp", "HOME": str(tmp_path)})
    found.sessions.mkdir(mode=0o700, parents=True)
    found.folder(ME).mkdir(mode=0o700)
    write_private(found.sandbox(ME), msgspec.json.encode(SandboxPolicy(session=ME)))
    return found


def test_an_agent_without_a_jail_is_no_match(here: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identify, "AGENT_START_S", 0.05)
    child = subprocess.Popen(["sleep", "60"])
    try:
        found = identify.identify_agent(here, LAUNCH, child.pid)
    finally:
        child.kill()
        child.wait()

    assert found is not None
    assert (False, None) == (found.ok, found.pid)
    assert "no sandbox" in found.mismatches[0]


def test_an_ended_agent_is_not_examined(here: Paths) -> None:
    child = subprocess.Popen(["true"])
    child.wait()

    assert None is identify.identify_agent(here, LAUNCH, child.pid)
