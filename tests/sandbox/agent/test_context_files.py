"""What of kasmon is seen inside: the context, a `kasmon` that knows only `ctx`, and a file for notes to the host."""

import json
import os
import runpy
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kasmon.model.commands import Launch, Mode
from kasmon.model.permission import SessionId
from kasmon.paths import Paths, user_paths, write_private
from kasmon.sandbox.agent import context_files
from kasmon.sandbox.agent.context_files import NOTES, SESSION, AgentContextFiles, context

ME = (os.getuid(), os.getgid())
CTX = Path(context_files.__file__).parents[1] / "guest" / "ctx.py"
LAUNCH = Launch(
    session=SessionId("abcdefgh"), name="docs", agent="claude", mode=Mode.TMUX, backend="tmux", task=3, sandbox="jail"
)


@pytest.fixture
def here(tmp_path: Path) -> Paths:
    found = user_paths({"XDG_STATE_HOME": str(tmp_path), "HOME": str(tmp_path)})
    found.make()
    found.folder("abcdefgh").mkdir()
    return found


@pytest.fixture
def made(tmp_path: Path) -> AgentContextFiles:
    made = AgentContextFiles(tmp_path)
    made.make(ME, b'{"name": "docs", "id": "abcdefgh", "peer_sessions": [{"name": "other", "state": "idle"}]}')
    return made


def said(made: AgentContextFiles, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """The exit code of `kasmon` with *words*, as inside."""
    module: dict[str, Any] = runpy.run_path(str(CTX))
    monkeypatch.setitem(module["main"].__globals__, "HERE", str(made.folder))
    code = module["main"](list(words))
    assert isinstance(code, int)
    return code


def test_only_the_notes_can_be_written_to(made: AgentContextFiles) -> None:
    assert {SESSION: False, NOTES: True} == {bind.target: bind.writable for bind in made.binds}
    for name, mode in {"bin/kasmon": 0o755, "context.json": 0o644, "emit.py": 0o644, "hooks.jsonl": 0o600}.items():
        assert mode == stat.S_IMODE((made.folder / name).stat().st_mode), name
    made.notes.write_text("x")
    made.make(ME, b"{}")
    assert "" == made.notes.read_text()


def test_ctx_prints_the_context_and_logs_the_agents_report(
    made: AgentContextFiles, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KASMON_NONCE", "n")
    assert 0 == said(made, monkeypatch, "ctx", "--json")
    assert "docs" == json.loads(capsys.readouterr().out)["name"]
    assert 0 == said(made, monkeypatch, "ctx", "--done", "--waiting", "for tea")
    assert "peer    other: idle" in capsys.readouterr().out

    [note] = [json.loads(line) for line in made.notes.read_text().splitlines()]
    assert ("kasmon.ctx", "", "for tea", "n") == (note["event"], note["done"], note["waiting"], note["nonce"])


def test_other_commands_and_unknown_words_are_refused_and_log_nothing(
    made: AgentContextFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    for words in (["ls"], [], ["ctx", "--answer", "x"], ["ctx", "--waiting"]):
        assert 2 == said(made, monkeypatch, *words), words
    assert "" == made.notes.read_text()


def test_the_context_is_that_of_its_plan_with_its_identity(here: Paths) -> None:
    alone = msgspec.json.decode(context(here, LAUNCH))
    assert ("docs", 3, "jail") == (alone["name"], alone["task"], alone["sandbox"])

    write_private(here.context("abcdefgh"), b'{"name": "the plan", "title": "Write it", "notes": "/n"}')
    told = msgspec.json.decode(context(here, LAUNCH))
    assert ("docs", "Write it") == (told["name"], told["title"])
    write_private(here.context("abcdefgh"), b"[not an object")
    assert "docs" == msgspec.json.decode(context(here, LAUNCH))["name"]
