"""The shared tmux host, in this process, with real programs in real panes."""

import asyncio
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from kasmon import errors
from kasmon.backends.tmux import agent
from kasmon.backends.tmux.evidence import process_scan
from kasmon.boot_id import boot
from kasmon.host.rpc import frames
from kasmon.host.rpc.client import HostLink
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.commands import Answer, Continue, Interrupt, Mode, Prompt, Stop
from kasmon.model.events import ConnectionLost, LogOpened, NoticeRaised, SessionEnded, SessionStarted, SignalSeen
from kasmon.model.permission import Decision, RequestId, RequestKind, SessionId
from kasmon.model.session_state import SessionState
from kasmon.paths import write_private
from kasmon.process_identity import is_running
from tests.support.host.tmux_env import TmuxEnv, python, sh
from tests.support.tmux.sync_hub import end_window, panes_of
from tests.support.wait import auntil

ME = "abcdefgh"
S = SessionState

pytestmark = pytest.mark.usefixtures("in_tmux_env")


async def do(link: HostLink, wish: Any) -> None:
    await link.ask(frames.ExecuteCommand(n=0, session=SessionId(ME), command=wish))


# How a session begins


async def test_a_started_session_is_in_its_log(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, "cat")
        await tmux.ready(ME)
        opened, started, *_ = tmux.events(SessionId(ME))
        facts = tmux.facts(ME)

        assert isinstance(opened, LogOpened)
        assert isinstance(started, SessionStarted)
        assert facts
        assert (facts.pid, os.getpid(), 1) == (started.pid, started.host_pid, started.generation)
        assert is_running(started.pid, started.pid_started, started.pid_boot)
        assert boot() == started.pid_boot
        assert os.getpid() == lock_holder(tmux.paths.host_lock(ME))


async def test_the_agent_is_the_panes_own_process_in_its_directory(tmux: TmuxEnv) -> None:
    folder = tmux.root / "dd#(touch pwned) ☃"
    folder.mkdir()
    async with tmux.serving() as link:
        await tmux.run(link, ME, "/bin/sh", "-c", 'pwd; echo "$$"; exec cat', workdir=str(folder))
        await auntil(lambda: tmux.only(SignalSeen, SessionId(ME)))
        pid = tmux.only(SessionStarted, SessionId(ME))[0].pid
        await auntil(lambda: any(str(pid) in signal.text for signal in tmux.only(SignalSeen, SessionId(ME))))

        assert (str(folder), str(pid)) == await tmux.text(link, ME)
    assert not list(tmux.root.rglob("pwned"))


async def test_an_agent_has_its_variables_only_and_its_session_id(
    tmux: TmuxEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_HOST", "1")
    launch = tmux.wants(ME, *sh("env | sort; exec cat"), task=3, wave=2, peers=4, plan="p")
    write_private(tmux.paths.environment(ME), b"TOKEN=a=b\xe2\x98\x83\0")
    async with tmux.serving() as link:
        await link.ask(frames.StartSession(n=0, session=launch.session))
        await tmux.ready(ME)
        await auntil(lambda: any(signal.text for signal in tmux.only(SignalSeen, launch.session)))
        said = await tmux.text(link, ME)
        names = [line.partition("=")[0] for line in said]

        place = {f"SESSION={ME}", "TASK=3", "WAVE=2", "PEERS=4", "PLAN=p"}
        ours = {line for line in said if line.startswith(("KASMON_", "KASMOS_"))}
        assert {f"{prefix}_{told}" for prefix in ("KASMON", "KASMOS") for told in place} == ours
        assert "TOKEN=a=b☃" in said
        assert not {"SECRET_OF_THE_HOST", "TMUX", "TMUX_PANE"} & set(names)
        assert f"XDG_STATE_HOME={tmux.paths.state.parent}" in said


async def test_an_agent_gets_the_current_environment_and_not_that_of_the_tmux_server(
    tmux: TmuxEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, "first234", "cat")
        monkeypatch.setenv("EDITOR", "new-editor")
        await tmux.run(link, ME, *sh("echo $EDITOR; exec cat"))

        await auntil(lambda: "new-editor" == tmux.session(SessionId(ME)).last_line)


async def test_a_terminal_keeps_the_number_of_lines_in_the_config(tmux: TmuxEnv) -> None:
    tmux.paths.config.mkdir()
    tmux.paths.config_file.write_text("[tmux]\nhistory_limit = 123\n")
    tmux.open()
    async with tmux.client() as link:
        await tmux.run(link, ME, "cat")

    assert b"123\n" == tmux.server.run("display-message", "-p", "-t", f"={ME}:", "#{history_limit}")


async def test_start_only_files_are_deleted_afterwards(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, "cat")
        await tmux.ready(ME)

        await auntil(lambda: not list(tmux.paths.folder(ME).glob("pane.*")))


async def test_a_missing_program_leaves_a_screen_that_reports_it(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, "no-such-program")
        ended = await tmux.ended(ME)
        lines = await tmux.text(link, ME)

        assert 127 == ended.exit_code
        assert "it exited immediately: 'no-such-program' was not found" in ended.why
        assert any("'no-such-program' was not found. Nothing was started." in line for line in lines)
        assert tmux.session(SessionId(ME)).crashed


@pytest.mark.parametrize("young_s", [60.0, 0.0], ids=["at once", "on a busy machine"])
async def test_an_agent_that_does_not_understand_its_command_line_is_named_with_its_version(
    tmux: TmuxEnv, monkeypatch: pytest.MonkeyPatch, young_s: float
) -> None:
    monkeypatch.setattr(agent, "YOUNG_S", young_s)
    claude, starts = tmux.root / "claude", tmux.root / "starts"
    os.mkfifo(starts)
    claude.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "1.0.3 (Claude Code)" && exit\n'
        f"read _ <'{starts}'; "
        "echo \"error: unknown option '$1'\" >&2; echo 'For more, try --help'; exit 1\n"
    )
    claude.chmod(0o700)
    async with tmux.serving() as link:
        await tmux.run(link, ME, str(claude))
        await tmux.ready(ME)
        await asyncio.to_thread(starts.write_text, "now\n")
        ended = await tmux.ended(ME)

    said = "it exited immediately: error: unknown option '--settings'. This is claude 1.0.3; kasmon was tested with"
    assert ended.why.startswith(said)
    assert ended.why.endswith("`claude update` installs the latest version.")


@pytest.mark.parametrize("is_command", [True, False], ids=["a command", "a program without detection rules"])
async def test_a_later_failure_is_not_reported_as_a_rejected_command_line(
    tmux: TmuxEnv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_command: bool
) -> None:
    monkeypatch.setattr(agent, "YOUNG_S", 0.0)
    os.mkfifo(tmp_path / "begun")
    script = tmp_path / "my-agent"
    script.write_text(f"#!/bin/sh\nread _ <'{tmp_path}/begun'; echo 'ls: unknown option'; exit 2\n")
    script.chmod(0o700)
    async with tmux.serving() as link:
        await tmux.run(link, ME, str(script), is_command=is_command)
        await auntil(lambda: any(signal.source == "launch" for signal in tmux.only(SignalSeen, SessionId(ME))))
        await asyncio.to_thread((tmp_path / "begun").write_text, "now\n")
        ended = await tmux.ended(ME)

    assert (2, "") == (ended.exit_code, ended.why)


@pytest.mark.parametrize(
    ("young_s", "before"), [(60.0, "it exited immediately: "), (0.0, "")], ids=["at once", "later"]
)
async def test_the_reason_of_a_failed_start_is_reported_whole_however_narrow_its_pane_is(
    tmux: TmuxEnv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, young_s: float, before: str
) -> None:
    monkeypatch.setattr(agent, "YOUNG_S", young_s)
    told = " ".join(str(number) for number in range(150))
    os.mkfifo(tmp_path / "begun")
    async with tmux.serving() as link:
        await tmux.run(link, ME, "sh", "-c", f"read _ <'{tmp_path}/begun'; echo 'kasmon: {told}'; exit 125")
        await tmux.ready(ME)
        await asyncio.to_thread((tmp_path / "begun").write_text, "now\n")

        assert f"{before}{told}" == (await tmux.ended(ME)).why


async def test_a_missing_directory_is_reported_too(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, "cat", workdir="/no/such/place")

        assert "/no/such/place" in (await tmux.ended(ME)).why


async def test_twenty_panes_become_ready_together(tmux: TmuxEnv) -> None:
    names = [f"ab{chr(97 + number)}defgh" for number in range(20)]
    async with tmux.serving() as link:
        await asyncio.gather(*(tmux.run(link, name, "cat") for name in names))
        for name in names:
            await tmux.ready(name)

        assert names == sorted(facts.kasmon_id for facts in panes_of(tmux.server))


async def test_a_session_that_runs_is_not_started_again(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        session = await tmux.run(link, ME, "cat")
        answers = await asyncio.gather(
            *(link.ask(frames.StartSession(n=0, session=session)) for _ in range(3)), return_exceptions=True
        )

        assert [errors.RefusedError] * 3 == [type(answer) for answer in answers]
        assert 1 == len(tmux.only(SessionStarted, session))


async def test_the_name_is_shown_on_the_window_and_never_run(tmux: TmuxEnv) -> None:
    name = f"fix #(touch {tmux.root}/pwned) #{{pane_id}}; \x1b[31m☃"
    async with tmux.serving() as link:
        session = await tmux.run(link, ME, "cat", name=name)
        shown = ("list-windows", "-a", "-F", "#{@kasmon_id} #{window_name}")
        first = tmux.server.run(*shown).decode()
        await link.ask(frames.RenameWindow(n=0, session=session, name="new; name"))

        assert f"{ME} fix #(touch {tmux.root}/pwned) #{{pane_id}}; ☃\n" in first
        assert f"{ME} new; name\n" in tmux.server.run(*shown).decode()
    assert not (tmux.root / "pwned").exists()


async def test_a_child_row_is_a_background_window_beside_its_parent(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        parent = await tmux.run(link, ME, "cat")
        await tmux.run(link, "child234", "cat", parent=parent)
        facts = {facts.kasmon_id: facts for facts in panes_of(tmux.server)}
        active = tmux.server.run("display-message", "-p", "-t", f"={ME}:", "#{window_id}").decode().strip()

        assert facts[ME].session_id == facts["child234"].session_id
        assert facts[ME].window_id == active != facts["child234"].window_id
        assert (120, 40) == ((await tmux.pane(link, "child234")).width, (await tmux.pane(link, "child234")).height)


# What it is heard to do


async def test_an_agent_without_signals_is_working_while_it_prints_and_unsure_afterwards(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, *python("print('one', flush=True); input(); print('two', flush=True); input()"))
        await tmux.until_state(ME, S.WORKING)
        await tmux.until_state(ME, S.UNSURE)
        session = tmux.session(SessionId(ME))

        assert ("one", "output", "unknown program: no status detection") == (
            session.last_line,
            session.source,
            session.unsure_why,
        )
        await do(link, Prompt(text="go"))
        await auntil(lambda: "two" == tmux.session(SessionId(ME)).last_line)


async def test_a_silent_agent_that_a_signal_stopped_is_shown_as_stopped_and_can_be_continued(
    tmux: TmuxEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is printed and nobody types. tmux itself continues only what it started: the pane's own process."""
    monkeypatch.setattr(process_scan, "STOPPED_S", 0.2)
    monkeypatch.setattr(process_scan, "PROCESSES_S", 0.2)
    monkeypatch.setattr(process_scan, "LATELY_S", 0.5)
    told = tmux.root / "pid"
    child = f"echo $$ >{told}; exec sleep 600"
    async with tmux.serving() as link:
        await tmux.run(link, ME, *sh(f"sh -c {shlex.quote(child)}; true"), agent="claude")
        pid = int(await auntil(lambda: told.exists() and told.read_text(), what="the agent"))
        with pytest.raises(errors.RefusedError, match="is not suspended"):
            await do(link, Continue())
        os.kill(pid, signal.SIGSTOP)
        await auntil(lambda: tmux.session(SessionId(ME)).is_stopped, what="stopped")

        assert "stopped (SIGSTOP)" == tmux.session(SessionId(ME)).unsure_why
        await do(link, Continue())
        await auntil(lambda: not tmux.session(SessionId(ME)).is_stopped, what="continued")
        assert psutil.STATUS_STOPPED != psutil.Process(pid).status()


async def test_a_reported_state_is_accepted(tmux: TmuxEnv) -> None:
    report = r"printf '\033]7501;%s\007' "
    async with tmux.serving() as link:
        await tmux.run(
            link, ME, *sh(f"{report} 'state=idle'; read x; {report} 'state=blocked:kind=permission'; exec cat")
        )
        await tmux.until_state(ME, S.IDLE)
        await do(link, Prompt(text="go"))
        await tmux.until_state(ME, S.ASKING)
        session = tmux.session(SessionId(ME))

        assert (RequestKind.PERMISSION, "program", ()) == (session.asking, session.source, session.requests)


async def test_a_reported_text_is_cleaned(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, *sh(r"printf '\033]7501;state=working:msg=G1szMW1yZWQKYgc=\007'; exec cat"))
        await tmux.until_state(ME, S.WORKING)

        assert "red b" == tmux.session(SessionId(ME)).last_line


# How it ends

ENDINGS = [
    ("exit 0", 0, None),
    ("exit 7", 7, None),
    ("kill -9 $$", None, "SIGKILL"),
    ("kill -TERM $$", None, "SIGTERM"),
    ("kill -SEGV $$", None, "SIGSEGV"),
    ("exec no-such-program", 127, None),
    ("sleep 100 & exit 3", 3, None),
]


async def test_each_end_is_reported_with_its_cause(tmux: TmuxEnv) -> None:
    """Seven at once: tmux loses the reason of some when many die together, and has to be asked again."""
    names = [f"ab{chr(97 + number)}defgh" for number in range(len(ENDINGS))]
    async with tmux.serving() as link:
        for name, (script, _, _) in zip(names, ENDINGS, strict=True):
            await tmux.run(link, name, *sh(f"read x; {script}"))
            await tmux.ready(name)
        await asyncio.gather(
            *(link.ask(frames.ExecuteCommand(n=0, session=SessionId(name), command=Prompt(text="x"))) for name in names)
        )
        told = {}
        for name in names:
            ended = await tmux.ended(name)
            told[name] = (ended.exit_code, ended.signal)

        assert {name: ending[1:] for name, ending in zip(names, ENDINGS, strict=True)} == told


async def test_a_dead_pane_stays_readable(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, *sh("echo last words; exit 3"))
        await tmux.ended(ME)

        assert "last words" in await tmux.text(link, ME)
        await auntil(lambda: lock_holder(tmux.paths.host_lock(ME)) is None)
        with pytest.raises(errors.SessionEndedError):
            await do(link, Prompt(text="x"))


async def test_a_stopped_agent_ends_without_a_crash(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, "cat")
        await tmux.ready(ME)
        await do(link, Stop())
        ended = await tmux.ended(ME)

        assert ("stopped", "SIGHUP") == (ended.why, ended.signal)
        assert not tmux.session(SessionId(ME)).crashed


async def test_an_agent_that_does_not_exit_is_killed_after_the_grace_period(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, *sh("trap 'echo not yet' HUP TERM INT; echo ready; while :; do sleep 0.1; done"))
        await auntil(lambda: any(signal.value == "printing" for signal in tmux.only(SignalSeen, SessionId(ME))))
        await auntil(lambda: tmux.server.run("capture-pane", "-p", "-t", f"={ME}:").startswith(b"ready"))
        await do(link, Stop(grace_s=0.4))

        assert ("SIGKILL", "stopped") == ((await tmux.ended(ME)).signal, tmux.only(SessionEnded, SessionId(ME))[0].why)


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ({}, b"\x03"),
        ({"agent": "claude"}, b"\x1b"),
        ({"agent": "claude", "interrupt_key": "ctrl-c"}, b"\x03"),
        ({"interrupt_key": "escape"}, b"\x1b"),
    ],
)
async def test_an_interrupt_is_this_agents_own_key(tmux: TmuxEnv, more: dict[str, str], key: bytes) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, *tmux.recorder("typed"), **more)
        await auntil(lambda: (tmux.root / "typed").exists())
        await do(link, Interrupt())

        await auntil(lambda: key == tmux.recorded("typed"))


# Once more


async def test_a_restart_takes_the_same_window_and_the_next_generation(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        session = await tmux.run(link, ME, *sh("echo run; read x"))
        await tmux.ready(ME)
        before = tmux.facts(ME)
        await do(link, Stop(grace_s=0))
        await tmux.ended(ME)
        await link.ask(frames.StartSession(n=0, session=session))
        await auntil(lambda: tmux.session(session).exists)
        after = tmux.facts(ME)

        assert before
        assert after
        assert (before.session_id, before.window_id) == (after.session_id, after.window_id)
        assert 1 == len([facts for facts in panes_of(tmux.server) if facts.kasmon_id == ME])
        assert before.pid != after.pid
        assert [1, 2] == [started.generation for started in tmux.only(SessionStarted, session)]


async def test_without_its_pane_a_restart_makes_a_new_one(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        session = await tmux.run(link, ME, "cat")
        await tmux.ready(ME)
        before = tmux.facts(ME)
        assert before
        end_window(tmux.server, before.window_id)
        assert "its pane no longer exists" == (await tmux.ended(ME)).why
        await link.ask(frames.StartSession(n=0, session=session))

        assert tmux.facts(ME)
        assert tmux.session(session).exists


async def test_the_first_prompt_is_sent_in_the_first_generation_only(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        session = await tmux.run(link, ME, *tmux.recorder("typed"), prompt="hello")
        await auntil(lambda: b"hello\r" == tmux.recorded("typed"))
        await do(link, Stop(grace_s=0))
        await tmux.ended(ME)
        await link.ask(frames.StartSession(n=0, session=session))
        await auntil(lambda: tmux.session(session).exists)
        await do(link, Prompt(text="again"))

        await auntil(lambda: b"hello\ragain\r" == tmux.recorded("typed"))


async def test_a_removed_session_has_no_pane(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        session = await tmux.run(link, ME, "cat")
        with pytest.raises(errors.SessionBusyError) as refusal:
            await link.ask(frames.ReleasePane(n=0, session=session))
        assert "Stop it first." == refusal.value.hint
        await do(link, Stop(grace_s=0))
        await tmux.ended(ME)
        await link.ask(frames.ReleasePane(n=0, session=session))

        await auntil(lambda: tmux.facts(ME) is None)
        with pytest.raises(errors.UnavailableError):
            await link.ask(frames.DescribePane(n=0, session=session))


# What can be read


async def test_lines_are_read_by_range_and_wrapped_ones_joined(tmux: TmuxEnv) -> None:
    long = "x" * 300
    async with tmux.serving() as link:
        await tmux.run(
            link, ME, *sh(f"i=0; while [ $i -lt 100 ]; do echo line $i; i=$((i+1)); done; echo {long}; exec cat")
        )
        await tmux.ready(ME)
        await auntil(lambda: long[:50].encode() in tmux.server.run("capture-pane", "-p", "-t", f"={ME}:"))

        assert (*(f"line {number}" for number in range(100)), long) == await tmux.text(link, ME, screen_and=None)
        assert ("line 98", "line 99", long) == await tmux.text(link, ME, screen_and=None, start=-3)
        assert ("line 0", "line 1") == await tmux.text(link, ME, screen_and=None, end=1)
        assert ("line 5",) == await tmux.text(link, ME, screen_and=None, start=5, end=5)
        assert 87 == len(await tmux.text(link, ME))
        assert long == (await tmux.text(link, ME, screen_and=0))[-1]


async def test_a_status_request_returns_tmuxs_values_cleaned(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        await tmux.run(
            link, ME, *sh(r"printf '\033]2;\342\220\236a\342\200\256b#(touch pwned)\033\\'; printf abc; exec cat")
        )
        await tmux.ready(ME)
        await auntil(lambda: b"abc" in tmux.server.run("capture-pane", "-p", "-t", f"={ME}:"))
        seen = await tmux.pane(link, ME)

        assert (120, 40, (3, 0), 0) == (seen.width, seen.height, seen.cursor, seen.clients)
        assert ("␞a\ufffdb#(touch pwned)", str(tmux.root)) == (seen.title, seen.cwd)
        assert re.fullmatch(r"@\d+", seen.window)
        assert {"attach-session", str(tmux.paths.tmux_socket)} <= set(seen.attach)


# What it does not do


async def test_a_request_that_no_terminal_has_is_not_answered(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        await tmux.run(link, ME, "cat")
        with pytest.raises(errors.RequestNotFoundError):
            await do(link, Answer(request=RequestId("x"), digest="", decision=Decision.ALLOW))


@pytest.mark.parametrize("frame", [frames.StartSession, frames.ReleasePane, frames.ReadTerminal, frames.DescribePane])
async def test_a_missing_session_is_not_found(tmux: TmuxEnv, frame: Any) -> None:
    async with tmux.serving() as link:
        for name in ("nosuchid", "../../etc", ""):
            with pytest.raises(errors.SessionNotFoundError):
                await link.ask(frame(n=0, session=SessionId(name)))


async def test_a_structured_session_is_refused(tmux: TmuxEnv) -> None:
    tmux.wants(ME, mode=Mode.SDK, backend="scripted")
    async with tmux.serving() as link:
        with pytest.raises(errors.RefusedError, match="structured"):
            await link.ask(frames.StartSession(n=0, session=SessionId(ME)))


async def test_a_session_without_a_program_ends_with_the_reason(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        with pytest.raises(Exception, match="has no program to run"):
            await tmux.run(link, ME)

        assert "has no program to run" in (await tmux.ended(ME)).why


# Without tmux


def fake_tmux(tmux: TmuxEnv, version: str) -> str:
    path = tmux.root / "tmux"
    path.write_text(f"#!/bin/sh\necho {version}\n")
    path.chmod(0o755)
    return str(path)


async def test_without_tmux_the_host_answers_and_reports_it_missing(
    tmux: TmuxEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KASMON_TMUX", "no-such-tmux")
    async with tmux.serving() as link:
        assert "" == link.welcome.tmux
        with pytest.raises(errors.TmuxMissingError, match="no-such-tmux"):
            await tmux.run(link, ME, "cat")

        assert "'no-such-tmux' is not installed" in (await tmux.ended(ME)).why
        assert S.ENDED is tmux.session(SessionId(ME)).state


async def test_a_tmux_that_is_too_old_is_named(tmux: TmuxEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KASMON_TMUX", fake_tmux(tmux, "tmux 2.6"))
    async with tmux.serving() as link:
        with pytest.raises(errors.TmuxTooOldError, match=r"tmux 2\.6 is too old"):
            await tmux.run(link, ME, "cat")


async def test_without_a_usable_tmux_no_session_is_reported_as_ended_and_the_next_host_finds_them(
    tmux: TmuxEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever starts a host may have another tmux, or none: that is told, and is no end of anything."""
    async with tmux.serving() as link:
        session = await tmux.run(link, ME, "cat")
        await tmux.ready(ME)

    with monkeypatch.context() as other:
        other.setenv("KASMON_TMUX", "no-such-tmux")
        async with tmux.serving():
            assert S.LOST is tmux.session(session).state
            (lost,) = tmux.only(ConnectionLost, session)
            assert ("line to tmux", "'no-such-tmux' is not installed or not on PATH.") == (lost.what, lost.why)

    async with tmux.serving():
        assert tmux.session(session).exists
        assert S.LOST is not tmux.session(session).state


# The host itself


async def test_the_host_reports_its_tmux_version(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        version = subprocess.run([tmux.server.program, "-V"], capture_output=True, text=True).stdout

        assert version.strip() == f"tmux {link.welcome.tmux}"


async def test_it_ends_on_request_and_its_agents_keep_running(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        session = await tmux.run(link, ME, "cat")
        await tmux.ready(ME)
        await link.ask(frames.Quit(n=0))
        await auntil(lambda: not link.is_open)

    facts = tmux.facts(ME)
    assert facts
    assert not facts.is_dead
    assert tmux.session(session).exists
    assert not tmux.only(NoticeRaised, session)
    assert lock_holder(tmux.paths.host_lock(ME)) is None


async def test_an_agent_may_not_end_it(tmux: TmuxEnv) -> None:
    async with tmux.serving():
        link = await HostLink.open(tmux.paths.tmux_host_socket, as_agent=True)
        with pytest.raises(errors.RefusedError):
            await link.ask(frames.Quit(n=0))
        await link.aclose()


def test_a_second_host_exits_at_once(tmux: TmuxEnv) -> None:
    first = tmux.open()

    assert 0 == tmux.open().wait(60)
    assert tmux.listens(first.pid)


def test_it_ends_cleanly_by_a_signal(tmux: TmuxEnv) -> None:
    process = tmux.open()
    process.send_signal(signal.SIGTERM)

    assert 0 == process.wait(60)
    assert not tmux.paths.tmux_host_socket.exists()


async def test_many_agents_that_flood_leave_the_host_free_to_answer(tmux: TmuxEnv) -> None:
    async with tmux.serving() as link:
        for name in ("floodaaa", "floodbbb"):
            await tmux.run(link, name, *python("while True: print('y' * 2000)"))
        await tmux.run(link, ME, "cat")
        await tmux.ready(ME)

        assert (120, 40) == ((await tmux.pane(link, ME)).width, (await tmux.pane(link, ME)).height)
        await tmux.until_state("floodaaa", S.WORKING)
