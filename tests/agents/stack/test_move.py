"""A real agent's conversation goes on: in the other mode, after its host, after itself; and no turn is lost."""

import asyncio
import json
import re
from pathlib import Path
from typing import Final

import pytest

from kasmon.model.commands import Configure
from kasmon.model.events import EntryImported, MessageWritten, ToolFinished, TurnStarted
from kasmon.model.session_state import SessionState
from kasmon.paths import private_folder, user_paths, write_private
from kasmon.store.machines import Machine, write_machine
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.sessions import session_operations
from tests.support.agents.full_stack import LIMIT_S, PROMPT, Stack, beside, gone, killed, stacked
from tests.support.cli.cli_runner import Done
from tests.support.cli.fork_server import KASMON, ForkServer
from tests.support.wait import until

pytestmark = pytest.mark.agents
stub, stack = pytest.fixture(beside), pytest.fixture(stacked)
ALONE: Final = {"claude": (), "codex": ("-c features.daemon_auto_start=false",)}
"""Without, codex leaves its conversation to a server that outlives it."""
OWN_FOLDERS: Final = ("XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME")
"""The variables with the folders of a kasmon."""
BOTH = pytest.mark.parametrize("name", ["claude", "codex"])


@BOTH
def test_a_killed_agent_resumes_its_conversation(stack: Stack) -> None:
    """Host and agent with -9 while a turn runs, then the agent alone, then its host alone."""
    said = ["go %% say one"]
    session = stack.new("worker", said[0])
    begun = stack.turned(session)
    stack("send", "worker", "go %% say busy %% hang")
    stack.until_state(session, SessionState.WORKING)
    for count, dies in enumerate(("both", "agent", "host"), 2):
        agent, host = stack.agent_of(session), stack.host_of(session)
        killed(*{"both": (host, agent), "agent": (agent,), "host": (host,)}[dies])
        over = stack.until_state(session, SessionState.ENDED if dies == "agent" else SessionState.LOST)
        assert dies != "agent" or "SIGKILL" == over.signal

        done = stack("restart", "worker")
        assert 0 == done.code, done.err
        now = stack.until_state(session, SessionState.IDLE)
        assert (begun.resume_id, count) == (now.resume_id, now.generation)
        assert " id" in now.proof
        if dies != "both":  # a turn that has just begun may not be in the agent's history yet
            assert re.search("our last prompt|(ends with|contains) the last prompt", now.proof)
        gone(agent)
        said.append(f"go %% say {dies}")
        stack.turn(session, said[-1])
        assert said == [prompt for prompt in stack.heard(said[-1]) if prompt in said]


@BOTH
def test_a_conversation_moves_to_a_terminal_and_back(stack: Stack) -> None:
    """Not while a turn runs, and then without losing one."""
    first, second, third = "go %% say one", "go %% say two", "go %% say three"
    busy, inside = "go %% say busy %% hang", "go %% say inside %% hang"
    session = stack.new("worker", first)
    before = stack.turned(session)
    stack("send", "worker", busy)
    stack.until_state(session, SessionState.WORKING)
    until(lambda: 2 == stack("read", "worker").out.count("busy"), LIMIT_S, "its words behind the prompt")
    refused = stack("move", "worker", "--to", "tmux")
    assert (True, True) == (refused.code != 0, "working" in refused.err), refused
    stack("interrupt", "worker")
    stack.turned(session, 1)

    moved = stack("move", "worker", "--to", "tmux")
    assert 0 == moved.code, moved.err
    stack.shows(session, "say one")
    stack.turn_in_terminal(session, second)
    assert [first, second] == [said for said in stack.heard(second) if said in (first, second)]

    stack("send", "worker", inside)
    until(lambda: 2 == stack("read", "worker").out.count("inside"), LIMIT_S, "its words behind the prompt")
    refused = stack("move", "worker", "--to", "sdk")
    assert (True, True) == (refused.code != 0, "working" in refused.err), refused
    stack("interrupt", "worker")
    stack.shows(session, "nterrupted")

    moved = stack("move", "worker", "--to", "sdk")
    assert 0 == moved.code, moved.err
    now = stack.until_state(session, SessionState.IDLE)
    assert (before.resume_id, 3, session) == (now.resume_id, now.generation, now.id)
    stack.turn(session, third)
    assert [first, busy, second, inside, third] == [said for said in stack.heard(third) if "%%" in said]


@BOTH
def test_a_session_of_another_machine_moves_there_and_back(
    stack: Stack, tmp_path: Path, fork_server: ForkServer
) -> None:
    """This kasmon is the other machine; a second one, of the same user, shows its session and moves it."""
    folders = {name: str(private_folder(tmp_path / name)) for name in OWN_FOLDERS}
    here = user_paths(stack.variables | folders)
    here.make()
    command = ("env", *(f"{name}={stack.variables[name]}" for name in OWN_FOLDERS), *KASMON)
    write_machine(here, Machine(name="gpu-1", command=command))

    def run(*words: str) -> Done:
        return Done(*fork_server.run(words, stack.variables | folders, stack.agent.workdir, "", LIMIT_S))

    session = stack.new("worker", "go %% say one")
    before = stack.turned(session)
    assert run("machines").code == 0  # it starts the link
    try:
        until(lambda: run("show", "gpu-1:worker").code == 0, LIMIT_S, "the session of the other machine")
        moved = run("move", "gpu-1:worker", "--to", "tmux")
        assert moved.code == 0, moved.err
        assert json.loads(run("show", session, "--json").out)["session"]["mode"] == "tmux"
        stack.shows(session, "say one")
        stack.turn_in_terminal(session, "go %% say two")
        until(lambda: run("move", session, "--to", "sdk").code == 0, LIMIT_S, "the move, once the turn is over")
        now = json.loads(run("show", session, "--json").out)["session"]
        assert (now["mode"], now["generation"], now["machine"]) == ("sdk", 3, "gpu-1")
        assert stack.turn(session, "go %% say three").resume_id == before.resume_id
        assert read_fleet(here).require(session).generation == 3
    finally:
        run("machines", "rm", "gpu-1")


ASKS: Final = {"claude": "default", "codex": "on-request"}
"""The permission mode of each in which it asks before a command that may change something."""
CARRIED: Final = {"claude": ("--permission-mode", "default"), "codex": ("-a", "on-request", "-s", "read-only")}


def starts_with(stack: Stack, *flags: str) -> None:
    """Give the agent *flags* beside those that it always needs here."""
    stack.configure(*ALONE[stack.agent.name], *flags)


@BOTH
def test_the_permission_mode_that_the_agent_reports_moves_to_a_terminal_and_back(stack: Stack) -> None:
    """What needed an answer as a structured session needs one in the terminal too; claude alone would begin in auto."""
    name = stack.agent.name
    starts_with(stack, *{"claude": (), "codex": ("-s read-only",)}[name])
    first, touch, third = "go %% say one", "go %% bash touch unasked.txt %% say two", "go %% say three"
    session = stack.new("worker", first)
    assert ASKS[name] == stack.turned(session).permission_mode

    moved = stack("move", "worker", "--to", "tmux")
    assert 0 == moved.code, moved.err
    command = stack.agent_of(session).cmdline()
    assert " ".join(CARRIED[name]) in " ".join(command)
    stack.shows(session, "say one")
    stack("send", "worker", touch)
    if name == "claude":
        assert "touch unasked.txt" in stack.asked(session)["shown"]
        assert not (stack.agent.workdir / "unasked.txt").exists()
        stack("interrupt", "worker")
    until(lambda: ASKS[name] == stack.json("show", "worker")["session"]["permission_mode"], LIMIT_S, "its own word")
    assert f"({ASKS[name]})" in stack("ls").out

    def back() -> bool:
        return 0 == stack("move", "worker", "--to", "sdk").code

    until(back, LIMIT_S, "the move, once the turn is over")
    now = stack.turn(session, third)
    assert ASKS[name] == now.permission_mode


@pytest.mark.parametrize("name", ["claude"])
def test_a_mode_that_the_user_chose_is_kept_in_both_directions(stack: Stack) -> None:
    """By Configure in the structured session, and by Shift+Tab in the terminal."""
    session = stack.new("worker", "go %% say one")
    before = stack.turned(session)
    asyncio.run(session_operations.execute(stack.paths, before, Configure(permission_mode="plan")))
    until(lambda: stack.session(session).permission_mode == "plan", LIMIT_S)
    moved = stack("move", "worker", "--to", "tmux")
    assert 0 == moved.code, moved.err
    until(lambda: stack.session(session).permission_mode == "plan", LIMIT_S, "the footer's word")

    stack.keys(session, "BTab")
    chosen = until(lambda: (mode := stack.session(session).permission_mode) != "plan" and mode, LIMIT_S, "another mode")
    moved = stack("move", "worker", "--to", "sdk")
    assert 0 == moved.code, moved.err
    assert chosen == stack.session(session).permission_mode


@pytest.mark.parametrize("name", ["claude", "gemini", "opencode"])
def test_a_fresh_terminal_agents_row_shows_the_mode_that_it_reports(stack: Stack) -> None:
    stack.stub.must_be_called = False
    if stack.agent.name in ("gemini", "opencode"):
        stack.configure(*stack.agent.flags[1:])
    session = stack.new("worker", mode="tmux")
    mode = {"claude": "auto", "gemini": "default", "opencode": "build"}[stack.agent.name]
    until(lambda: mode == stack.session(session).permission_mode, LIMIT_S, "the mode that it reports")
    assert f"tmux ({mode})" in stack("ls").out
    assert f"  permits   {mode}" in stack("show", "worker").out
    family = [stack.agent_of(session), *stack.agent_of(session).children(recursive=True)]
    assert 0 == stack("stop", "worker").code
    for process in family:
        gone(process)


@pytest.mark.parametrize("name", ["codex"])
def test_an_approval_policy_that_a_terminal_does_not_support_is_reported_before_anything_ends(stack: Stack) -> None:
    starts_with(stack, "-a untrusted")
    first, second = "go %% say one", "go %% say two"
    session = stack.new("worker", first)
    before = stack.turned(session)
    refused = stack("move", "worker", "--to", "tmux")
    assert (4, True) == (refused.code, "'untrusted'" in refused.err), refused
    assert "--change-permissions" in refused.err
    now = stack.session(session)
    assert (before.pid, before.generation, "sdk") == (now.pid, now.generation, now.mode)

    moved = stack("move", "worker", "--to", "tmux", "--change-permissions")
    assert 0 == moved.code, moved.err
    stack.turn_in_terminal(session, second)
    until(lambda: "on-request" == stack.session(session).permission_mode, LIMIT_S, "the rollout's word")


@BOTH
def test_messages_from_the_terminal_are_in_the_transcript_after_the_move_back(stack: Stack) -> None:
    """Marked as imported, once however often it moves, and nothing that the log had before."""
    starts_with(
        stack,
        *{"claude": ("--permission-mode auto",), "codex": ("-a never", "-s danger-full-access")}[stack.agent.name],
    )
    first, second, third = "go %% say one", "go %% bash echo in-the-terminal %% say two", "go %% say three"
    session = stack.new("worker", first)
    stack.turned(session)
    for prompt in (second, third):
        moved = stack("move", "worker", "--to", "tmux")
        assert 0 == moved.code, moved.err
        stack.shows(session, "say one")
        stack.turn_in_terminal(session, prompt)
        until(lambda: 0 == stack("move", "worker", "--to", "sdk").code, LIMIT_S, "the move, once the turn is over")

    imported = [fact.entry for fact in stack.facts(session, EntryImported)]
    assert [second, third] == [entry.prompt for entry in imported if isinstance(entry, TurnStarted)]
    assert ["two", "three"] == [entry.text for entry in imported if isinstance(entry, MessageWritten)]
    assert ["in-the-terminal"] == [entry.output.strip() for entry in imported if isinstance(entry, ToolFinished)]
    shown = stack("read", "worker").out
    assert [1, 1, 1] == [shown.count(f"❯ {prompt}") for prompt in (first, second, third)]
    assert f"from {stack.agent.name}'s own transcript" in shown
    assert 2 == stack("export", "worker").out.count("## Prompt in the terminal")


@pytest.mark.parametrize("name", ["codex"])
def test_an_agent_that_does_not_start_in_the_other_mode_returns_to_the_first(stack: Stack) -> None:
    """A codex that has an app-server and no screen, and a permission mode that only the first takes."""
    program = stack.path / "codex"
    program.write_text(f'#!/bin/sh\ncase " $* " in *" app-server "*) exec {stack.agent.program} "$@";; esac\nexit 3\n')
    program.chmod(0o700)
    private_folder(stack.paths.config)
    profile = f'[agents.codex]\nprogram = "{program}"\nflags = ["-a untrusted"]\n'
    write_private(stack.paths.config_file, profile.encode())
    first, second = "go %% say one", "go %% say two"
    session = stack.new("worker", first)
    stack.turned(session)
    done = stack("move", "worker", "--to", "tmux", "--change-permissions")

    assert 0 != done.code
    assert "so it continues in its previous mode: 'codex' exited immediately with exit code 3. Its last" in done.err
    now = stack.until_state(session, SessionState.IDLE)
    assert ("sdk", 3, "untrusted") == (now.mode, now.generation, now.permission_mode)
    stack.turn(session, second)
    assert [first, second] == [said for said in stack.heard(second) if "%%" in said]


@BOTH
def test_a_conversation_that_began_in_a_terminal_moves(stack: Stack) -> None:
    stack.configure(*ALONE[stack.agent.name])
    first, second = "go %% say inside %% say done", "go %% say two"
    session = stack.new("worker", mode="tmux")
    stack.shows(session, PROMPT[stack.agent.name])
    stack.turn_in_terminal(session, first)
    until(lambda: 2 == stack("read", "worker").out.count("inside"), LIMIT_S, "its words behind the prompt")
    agent = stack.agent_of(session)
    until(lambda: 0 == stack("move", "worker", "--to", "sdk").code, LIMIT_S, "the move, once the turn is over")

    gone(agent)
    assert " id" in stack.session(session).proof
    stack.turn(session, second)
    assert [first, second] == [said for said in stack.heard(second) if "%%" in said]


@pytest.mark.parametrize("name", ["gemini", "opencode"])
def test_an_acp_agents_conversation_moves_to_a_terminal_and_back(stack: Stack) -> None:
    stack.configure(*stack.agent.flags[1:])
    first, second, third = "go %% say one", "go %% say two", "go %% say three"
    session = stack.new("worker", first)
    before = stack.turned(session)
    mode = {"gemini": "autoEdit", "opencode": "plan"}[stack.agent.name]
    asyncio.run(session_operations.execute(stack.paths, before, Configure(permission_mode=mode)))
    until(lambda: stack.session(session).permission_mode == mode, LIMIT_S, "its word for the mode")
    moved = stack("move", "worker", "--to", "tmux")
    assert 0 == moved.code, moved.err
    stack.until_state(session, SessionState.IDLE)
    stack.turn_in_terminal(session, second)
    assert mode == stack.session(session).permission_mode
    assert [first, second] == [said for said in stack.heard(second) if "%%" in said]

    stack.until_state(session, SessionState.IDLE)
    moved = stack("move", "worker", "--to", "sdk")
    assert 0 == moved.code, moved.err
    now = stack.until_state(session, SessionState.IDLE)
    assert (before.resume_id, 3, " id" in now.proof) == (now.resume_id, now.generation, True)
    assert mode == now.permission_mode
    stack.turn(session, third)
    assert [first, second, third] == [said for said in stack.heard(third) if "%%" in said]
