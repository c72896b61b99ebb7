"""`kasmon explain --screen`: what a screen says, by which rule, what else holds; and it becomes a golden folder."""

import asyncio
import json
import time
from pathlib import Path

import pytest

from kasmon.model.commands import Mode
from kasmon.model.events import SessionStarted, SignalSeen
from kasmon.model.evidence import judge
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.store.event_log import EventLog
from kasmon.store.session_reader import apply_log
from kasmon.supervisor.fleet.liveness import Liveness, derive
from kasmon.supervisor.sessions.explain import NO_HOST, ExplainedState, explain
from kasmon.supervisor.sessions.explanation_text import as_object, lines
from tests.support.cli.cli_runner import Cli
from tests.support.detection.expected import reading_of
from tests.support.detection.golden import FOLDER, load

ASKS = FOLDER / "claude" / "2.1.332" / "permission-bash"
CLAUDE = ("--agent", "claude", "--agent-version", "2.1.332")


def clock(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def test_explain_shows_the_state_the_rule_the_text_and_the_other_rules(kasmon: Cli) -> None:
    done = kasmon("explain", "--screen", str(ASKS), *CLAUDE)

    assert (0, "") == (done.code, done.err)
    lines = done.out.splitlines()
    assert "asking (permission) (source: screen)" == lines[0]
    assert "  screen    asking, rule 'permission' of claude/screen.toml" in lines
    assert "  choice    * allow: Yes" in lines
    assert "  choice    deny: No" in lines
    assert "  also      'some-prompt' matches too, for asking" in lines


def test_for_programs_it_is_one_object(kasmon: Cli) -> None:
    told = kasmon.json("explain", "--screen", str(ASKS), *CLAUDE)["explanation"]

    assert ("asking", "screen", "permission") == (told["state"], told["source"], told["asking"])
    assert ["screen"] == [signal["source"] for signal in told["evidence"]]
    assert ("permission", "claude/screen.toml", None) == tuple(told["screen"][key] for key in ("rule", "file", "note"))
    assert {"allow": "1", "always": "2", "deny": "4", "cancel": "\x1b"} == told["screen"]["menu"]["keys"]
    assert [] == told["transitions"]


def test_a_title_has_a_state_of_its_own(kasmon: Cli) -> None:
    screen = str(FOLDER / "codex" / "0.171.0" / "working-text" / "screen.txt")

    told = kasmon.json(
        "explain", "--screen", "-", "--agent", "codex", "--title", "⠙ work", given=Path(screen).read_text()
    )
    assert ("working", "title") == (told["explanation"]["state"], told["explanation"]["source"])

    told = kasmon.json("explain", "--screen", screen, "--agent", "codex", "--title", "work")
    assert ("unsure", "its screen says idle or working") == (told["explanation"]["state"], told["explanation"]["why"])


def test_an_unknown_version_is_reported(kasmon: Cli) -> None:
    done = kasmon("explain", "--screen", str(ASKS), "--agent", "claude")

    assert "  rules     its version is not known, so it is read as >=2.1.295" in done.out.splitlines()


def test_a_case_is_exported_as_a_golden_folder(kasmon: Cli) -> None:
    folder = kasmon.home / "out" / "claude" / "2.1.332" / "mine"

    done = kasmon("explain", "--screen", str(ASKS), *CLAUDE, "--export", str(folder))

    assert 0 == done.code
    assert "review it before you share it" in done.err
    original, exported = load(ASKS), load(folder)
    assert original.expected == exported.expected
    assert original.shot.text == exported.shot.text
    assert original.shot.facts == exported.shot.facts
    assert {0o600} == {path.stat().st_mode & 0o777 for path in folder.iterdir()}


def test_an_export_overwrites_nothing(kasmon: Cli) -> None:
    folder = kasmon.home / "out"
    folder.mkdir()
    (folder / "title.txt").write_text("mine\n")

    done = kasmon("explain", "--screen", str(ASKS), *CLAUDE, "--export", str(folder))

    assert 4 == done.code
    assert "title.txt' already exists" in done.err
    assert ["title.txt"] == [path.name for path in folder.iterdir()]


def test_a_users_own_file_applies_and_a_broken_one_is_reported(kasmon: Cli) -> None:
    folder = kasmon.paths.config / "screens"
    folder.mkdir(parents=True)
    (folder / "vim.toml").write_text('program = "vim"\n[[rule]]\nname = "all"\nstate = "working"\n')
    (folder / "bad.toml").write_text('program = "bad"\n[[rule]]\nname = "all"\nstate = "busy"\n')

    done = kasmon("explain", "--screen", "-", "--agent", "vim", given="hello\n")

    assert 0 == done.code
    assert done.out.startswith("working (source: screen)")
    assert "bad.toml:4 at 'rule[0].state': 'busy' is not a state." in done.err


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--screen", "/nowhere", "--agent", "claude"], 3, "there is no file '/nowhere'"),
        (["--screen", "/", "--agent", "claude"], 3, "there is no file '/screen.txt'"),
        (["--screen", str(ASKS), "--agent", "emacs"], 2, "there are no screen rules for 'emacs'. Known: aider, amp,"),
        (["--screen", str(ASKS)], 2, "--screen requires --agent, and cannot be combined with a session"),
        ([], 2, "`kasmon explain` requires a session or a screen"),
        (["fix-auth"], 3, "fix-auth"),
        (["fix-auth", "--agent", "claude"], 2, "require --screen"),
        (
            ["fix-auth", "--screen", str(ASKS), "--agent", "claude"],
            2,
            "--screen requires --agent, and cannot be combined with a session",
        ),
        (["--screen", "/dev/zero", "--agent", "claude"], 2, "is larger than 1024 KB"),
    ],
)
def test_an_invalid_explain_command_is_reported(kasmon: Cli, arguments: list[str], code: int, told: str) -> None:
    done = kasmon("explain", *arguments)

    assert code == done.code
    assert told in done.err
    assert "Traceback" not in done.err


def test_a_session_is_explained_by_its_events_and_by_its_current_screen(kasmon: Cli) -> None:
    session = kasmon("new", "one", "--", "/bin/sh", "-c", "PS1='$ ' exec sh").out.strip()
    assert 0 == kasmon("wait", "one", "--for", "idle", "--timeout", "20").code
    folder = kasmon.home / "out" / "sh" / "any" / "mine"

    done = kasmon("explain", "one", "--export", str(folder))

    assert 0 == done.code, done.err
    first, *lines = done.out.splitlines()
    assert f"one ({session}): idle (source: screen)" == first
    assert any(line.startswith("  screen    idle, rule ") for line in lines)
    assert any(
        line.startswith("  launch    says command") and line.endswith("it does not report the state") for line in lines
    )
    assert lines[-1].endswith("idle, by screen, on signal.seen screen")
    exported = load(folder)
    assert ("idle", "sh") == (exported.expected["state"], json.loads((folder / "evidence.json").read_text())["agent"])
    assert "idle" == reading_of(exported).state


def test_without_its_host_a_session_is_explained_by_its_log(kasmon: Cli) -> None:
    session = SessionId("abcdefgh")
    kasmon.paths.folder(session).mkdir(parents=True)
    log = EventLog(kasmon.paths.log(session))
    log.append(SessionStarted(at=1.0, generation=1, backend="tmux", mode=Mode.TMUX, workdir="/", pid=5))
    log.append(SignalSeen(at=2.0, source="screen", value="working", rule="tool"))
    folded, _ = apply_log(kasmon.paths, Session(id=session, mode=Mode.TMUX))

    found = asyncio.run(explain(kasmon.paths, derive(folded, Liveness(agent_runs=True, written_at=3.0), 9.0)))

    assert [
        "unsure (source: host): host gone, agent alive",
        f"  unseen    {NO_HOST}",
        f"  screen    says working, tool, since {clock(2.0)}",
        f"  {clock(2.0)}  working, by screen, on signal.seen screen",
    ] == lines(found)
    told = as_object(found)
    assert ("unsure", None, NO_HOST) == (told["state"], told["screen"], told["unseen"])


def test_unavailable_sources_of_an_agent_are_reported_with_the_reason() -> None:
    found = ExplainedState(verdict=judge((), 1.0), absent=(("program", "tmux does not\x1b[2J answer it"),))

    assert "  program   silent: tmux does not answer it" in lines(found)
    assert {"program": "tmux does not\x1b[2J answer it"} == as_object(found)["absent"]


def test_no_control_character_of_a_screen_reaches_the_terminal(kasmon: Cli) -> None:
    hostile = "\x1b]52;c;eA==\x07\x1b[2J\x1b[31mDo you\x07 want\u202e to?\n"

    done = kasmon("explain", "--screen", "-", "--agent", "amp", "--title", "\x1b]0;x\x07", given=hostile)

    assert 0 == done.code
    assert not set("\x1b\x07\u202e") & set(done.out + done.err)
