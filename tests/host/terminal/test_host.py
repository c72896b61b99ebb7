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

from kasmon.backends.tmux import agent
from kasmon.backends.tmux.evidence import process_scan
from kasmon.boot_id import boot
from kasmon.errors import (
    RefusedError,
    RequestNotFoundError,
    SessionBusyError,
    SessionEndedError,
    SessionNotFoundError,
    TmuxMissingError,
    TmuxTooOldError,
    UnavailableError,
)
from kasmon.host.rpc.client import HostLink
from kasmon.host.rpc.frames import (
    DescribePane,
    ExecuteCommand,
    Quit,
    ReadTerminal,
    ReleasePane,
    RenameWindow,
    StartSession,
)
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.commands import Answer, Continue, Interrupt, Mode, Prompt, Stop
from kasmon.model.events import ConnectionLost, LogOpened, NoticeRaised, SessionEnded, SessionStarted, SignalSeen
from kasmon.model.permission import Decision, RequestId, RequestKind, SessionId
from kasmon.model.session_state import SessionState
from kasmon.paths import write_private
from kasmon.process_identity import is_running
from tests.host.inn import Inn, python, sh
from tests.tmux.asked import end_window, panes_of
from tests.waiting import auntil

ME = "abcdefgh"
S = SessionState

pytestmark = pytest.mark.usefixtures("as_within_the_inn")


async def do(link: HostLink, wish: Any) -> None:
    await link.ask(ExecuteCommand(n=0, session=SessionId(ME), wish=wish))


# How a session begins


async def test_a_started_session_is_in_its_log(inn: Inn) -> None:
    async with inn.serving() as link:
        await inn.run(link, ME, "cat")
        await inn.ready(ME)
        opened, started, *_ = inn.events(SessionId(ME))
        facts = inn.facts(ME)

        assert isinstance(opened, LogOpened)
        assert isinstance(started, SessionStarted)
        assert facts
        assert (facts.pid, os.getpid(), 1) == (started.pid, started.host_pid, started.generation)
        assert is_running(started.pid, started.pid_started, started.pid_boot)
        assert boot() == started.pid_boot
        assert os.getpid() == lock_holder(inn.places.host_lock(ME))


async def test_the_agent_is_the_panes_own_process_in_its_directory(inn: Inn) -> None:
    folder = inn.root / "dd#(touch pwned) ☃"
    folder.mkdir()
    async with inn.serving() as link:
        await inn.run(link, ME, "/bin/sh", "-c", 'pwd; echo "$$"; exec cat', workdir=str(folder))
        await auntil(lambda: inn.only(SignalSeen, SessionId(ME)))
        pid = inn.only(SessionStarted, SessionId(ME))[0].pid
        await auntil(lambda: any(str(pid) in signal.text for signal in inn.only(SignalSeen, SessionId(ME))))

        assert (str(folder), str(pid)) == await inn.text(link, ME)
    assert not list(inn.root.rglob("pwned"))


async def test_an_agent_knows_its_place_and_gets_its_own_variables_only(
    inn: Inn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_HOST", "1")
    launch = inn.wants(ME, *sh("env | sort; exec cat"), task=3, wave=2, peers=4, plan="p")
    write_private(inn.places.environment(ME), b"TOKEN=a=b\xe2\x98\x83\0")
    async with inn.serving() as link:
        await link.ask(StartSession(n=0, session=launch.session))
        await inn.ready(ME)
        await auntil(lambda: any(signal.text for signal in inn.only(SignalSeen, launch.session)))
        said = await inn.text(link, ME)
        names = [line.partition("=")[0] for line in said]

        place = {f"SESSION={ME}", "TASK=3", "WAVE=2", "PEERS=4", "PLAN=p"}
        ours = {line for line in said if line.startswith(("KASMON_", "KASMOS_"))}
        assert {f"{prefix}_{told}" for prefix in ("KASMON", "KASMOS") for told in place} == ours
        assert "TOKEN=a=b☃" in said
        assert not {"SECRET_OF_THE_HOST", "TMUX", "TMUX_PANE"} & set(names)
        assert f"XDG_STATE_HOME={inn.places.state.parent}" in said


async def test_an_agent_gets_the_surroundings_of_today_not_those_in_which_tmux_was_started(
    inn: Inn, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with inn.serving() as link:
        await inn.run(link, "first234", "cat")
        monkeypatch.setenv("EDITOR", "new-editor")
        await inn.run(link, ME, *sh("echo $EDITOR; exec cat"))

        await auntil(lambda: "new-editor" == inn.session(SessionId(ME)).last_line)


async def test_a_terminal_keeps_as_many_lines_as_the_config_says(inn: Inn) -> None:
    inn.places.config.mkdir()
    inn.places.config_file.write_text("[tmux]\nhistory_limit = 123\n")
    inn.open()
    async with inn.client() as link:
        await inn.run(link, ME, "cat")

    assert b"123\n" == inn.server.run("display-message", "-p", "-t", f"={ME}:", "#{history_limit}")


async def test_what_only_a_start_needs_is_gone_after_it(inn: Inn) -> None:
    async with inn.serving() as link:
        await inn.run(link, ME, "cat")
        await inn.ready(ME)

        await auntil(lambda: not list(inn.places.folder(ME).glob("pane.*")))


async def test_a_program_that_is_not_there_leaves_a_screen_that_says_so(inn: Inn) -> None:
    async with inn.serving() as link:
        await inn.run(link, ME, "no-such-program")
        ended = await inn.ended(ME)
        lines = await inn.text(link, ME)

        assert 127 == ended.exit_code
        assert "it exited immediately: 'no-such-program' was not found" in ended.why
        assert any("'no-such-program' was not found. Nothing was started." in line for line in lines)
        assert inn.session(SessionId(ME)).crashed


async def test_an_agent_that_does_not_understand_its_command_line_is_named_with_its_version(inn: Inn) -> None:
    claude = inn.root / "claude"
    claude.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "1.0.3 (Claude Code)" && exit\n'
        "echo \"error: unknown option '$1'\" >&2; echo 'For more, try --help'; exit 1\n"
    )
    claude.chmod(0o700)
    async with inn.serving() as link:
        await inn.run(link, ME, str(claude))
        ended = await inn.ended(ME)

    said = "it exited immediately: error: unknown option '--settings'. This is claude 1.0.3; kasmon was tested with"
    assert ended.why.startswith(said)
    assert ended.why.endswith("`claude update` installs the latest version.")


@pytest.mark.parametrize(
    ("young_s", "before"), [(60.0, "it exited immediately: "), (0.0, "")], ids=["at once", "later"]
)
async def test_what_keeps_it_from_starting_is_told_whole_however_narrow_its_pane_is(
    inn: Inn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, young_s: float, before: str
) -> None:
    monkeypatch.setattr(agent, "YOUNG_S", young_s)
    told = " ".join(str(number) for number in range(150))
    os.mkfifo(tmp_path / "begun")
    async with inn.serving() as link:
        await inn.run(link, ME, "sh", "-c", f"read _ <'{tmp_path}/begun'; echo 'kasmon: {told}'; exit 125")
        await inn.ready(ME)
        await asyncio.to_thread((tmp_path / "begun").write_text, "now\n")

        assert f"{before}{told}" == (await inn.ended(ME)).why


async def test_a_directory_that_is_not_there_is_said_too(inn: Inn) -> None:
    async with inn.serving() as link:
        await inn.run(link, ME, "cat", workdir="/no/such/place")

        assert "/no/such/place" in (await inn.ended(ME)).why


async def test_twenty_panes_become_ready_together(inn: Inn) -> None:
    names = [f"ab{chr(97 + number)}defgh" for number in range(20)]
    async with inn.serving() as link:
        await asyncio.gather(*(inn.run(link, name, "cat") for name in names))
        for name in names:
            await inn.ready(name)

        assert names == sorted(facts.kasmon_id for facts in panes_of(inn.server))


async def test_a_session_that_runs_is_not_started_again(inn: Inn) -> None:
    async with inn.serving() as link:
        session = await inn.run(link, ME, "cat")
        answers = await asyncio.gather(
            *(link.ask(StartSession(n=0, session=session)) for _ in range(3)), return_exceptions=True
        )

        assert [RefusedError] * 3 == [type(answer) for answer in answers]
        assert 1 == len(inn.only(SessionStarted, session))


async def test_the_name_is_shown_on_the_window_and_never_run(inn: Inn) -> None:
    name = f"fix #(touch {inn.root}/pwned) #{{pane_id}}; \x1b[31m☃"
    async with inn.serving() as link:
        session = await inn.run(link, ME, "cat", name=name)
        shown = ("list-windows", "-a", "-F", "#{@kasmon_id} #{window_name}")
        first = inn.server.run(*shown).decode()
        await link.ask(RenameWindow(n=0, session=session, name="new; name"))

        assert f"{ME} fix #(touch {inn.root}/pwned) #{{pane_id}}; ☃\n" in first
        assert f"{ME} new; name\n" in inn.server.run(*shown).decode()
    assert not (inn.root / "pwned").exists()


async def test_a_child_row_is_a_window_in_the_background_beside_its_parent(inn: Inn) -> None:
    async with inn.serving() as link:
        parent = await inn.run(link, ME, "cat")
        await inn.run(link, "child234", "cat", parent=parent)
        facts = {facts.kasmon_id: facts for facts in panes_of(inn.server)}
        active = inn.server.run("display-message", "-p", "-t", f"={ME}:", "#{window_id}").decode().strip()

        assert facts[ME].session_id == facts["child234"].session_id
        assert facts[ME].window_id == active != facts["child234"].window_id
        assert (120, 40) == ((await inn.pane(link, "child234")).width, (await inn.pane(link, "child234")).height)


# What it is heard to do


async def test_an_agent_without_signals_works_while_it_prints_and_is_unsure_then(inn: Inn) -> None:
    async with inn.serving() as link:
        await inn.run(link, ME, *python("print('one', flush=True); input(); print('two', flush=True); input()"))
        await inn.until_state(ME, S.WORKING)
        await inn.until_state(ME, S.UNSURE)
        session = inn.session(SessionId(ME))

        assert ("one", "output", "unknown program: no status detection") == (
            session.last_line,
            session.source,
            session.unsure_why,
        )
        await do(link, Prompt(text="go"))
        await auntil(lambda: "two" == inn.session(SessionId(ME)).last_line)


async def test_a_silent_agent_that_a_signal_stopped_is_known_stopped_and_can_be_continued(
    inn: Inn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is printed and nobody types. tmux itself continues only what it started: the pane's own process."""
    monkeypatch.setattr(process_scan, "STOPPED_S", 0.2)
    monkeypatch.setattr(process_scan, "PROCESSES_S", 0.2)
    monkeypatch.setattr(process_scan, "LATELY_S", 0.5)
    told = inn.root / "pid"
    child = f"echo $$ >{told}; exec sleep 600"
    async with inn.serving() as link:
        await inn.run(link, ME, *sh(f"sh -c {shlex.quote(child)}; true"), agent="claude")
        pid = int(await auntil(lambda: told.exists() and told.read_text(), 20, "the agent"))
        with pytest.raises(RefusedError, match="is not suspended"):
            await do(link, Continue())
        os.kill(pid, signal.SIGSTOP)
        await auntil(lambda: inn.session(SessionId(ME)).is_stopped, 20, "stopped")

        assert "stopped (SIGSTOP)" == inn.session(SessionId(ME)).unsure_why
        await do(link, Continue())
        await auntil(lambda: not inn.session(SessionId(ME)).is_stopped, 20, "continued")
        assert psutil.STATUS_STOPPED != psutil.Process(pid).status()


async def test_a_program_that_reports_its_state_is_believed(inn: Inn) -> None:
    report = r"printf '\033]7501;%s\007' "
    async with inn.serving() as link:
        await inn.run(
            link, ME, *sh(f"{report} 'state=idle'; read x; {report} 'state=blocked:kind=permission'; exec cat")
        )
        await inn.until_state(ME, S.IDLE)
        await do(link, Prompt(text="go"))
        await inn.until_state(ME, S.ASKING)
        session = inn.session(SessionId(ME))

        assert (RequestKind.PERMISSION, "program", ()) == (session.asking, session.source, session.asks)


async def test_what_a_program_says_of_itself_is_cleaned(inn: Inn) -> None:
    async with inn.serving() as link:
        await inn.run(link, ME, *sh(r"printf '\033]7501;state=working:msg=G1szMW1yZWQKYgc=\007'; exec cat"))
        await inn.until_state(ME, S.WORKING)

        assert "red b" == inn.session(SessionId(ME)).last_line


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


async def test_each_ending_is_told_as_it_was(inn: Inn) -> None:
    """Seven at once: tmux loses the reason of some when many die together, and has to be asked again."""
    names = [f"ab{chr(97 + number)}defgh" for number in range(len(ENDINGS))]
    async with inn.serving() as link:
        for name, (script, _, _) in zip(names, ENDINGS, strict=True):
            await inn.run(link, name, *sh(f"read x; {script}"))
            await inn.ready(name)
        await asyncio.gather(
            *(link.ask(ExecuteCommand(n=0, session=SessionId(name), wish=Prompt(text="x"))) for name in names)
        )
        told = {}
        for name in names:
            ended = await inn.ended(name)
            told[name] = (ended.exit_code, ended.signal)

        assert {name: ending[1:] for name, ending in zip(names, ENDINGS, strict=True)} == told


async def test_a_dead_pane_stays_to_be_read(inn: Inn) -> None:
    async with inn.serving() as link:
        await inn.run(link, ME, *sh("echo last words; exit 3"))
        await inn.ended(ME)

        assert "last words" in await inn.text(link, ME)
        await auntil(lambda: lock_holder(inn.places.host_lock(ME)) is None)
        with pytest.raises(SessionEndedError):
            await do(link, Prompt(text="x"))


async def test_stopped_it_ends_without_being_a_crash(inn: Inn) -> None:
    async with inn.serving() as link:
        await inn.run(link, ME, "cat")
        await inn.ready(ME)
        await do(link, Stop())
        ended = await inn.ended(ME)

        assert ("stopped", "SIGHUP") == (ended.why, ended.signal)
        assert not inn.session(SessionId(ME)).crashed


async def test_what_does_not_want_to_end_is_ended_after_the_grace(inn: Inn) -> None:
    async with inn.serving() as link:
        await inn.run(link, ME, *sh("trap 'echo not yet' HUP TERM INT; echo ready; while :; do sleep 0.1; done"))
        await auntil(lambda: any(signal.value == "printing" for signal in inn.only(SignalSeen, SessionId(ME))))
        await auntil(lambda: inn.server.run("capture-pane", "-p", "-t", f"={ME}:").startswith(b"ready"))
        await do(link, Stop(grace_s=0.4))

        assert ("SIGKILL", "stopped") == ((await inn.ended(ME)).signal, inn.only(SessionEnded, SessionId(ME))[0].why)


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ({}, b"\x03"),
        ({"agent": "claude"}, b"\x1b"),
        ({"agent": "claude", "interrupt_key": "ctrl-c"}, b"\x03"),
        ({"interrupt_key": "escape"}, b"\x1b"),
    ],
)
async def test_an_interrupt_is_the_key_that_this_agent_takes(inn: Inn, more: dict[str, str], key: bytes) -> None:
    async with inn.serving() as link:
        await inn.run(link, ME, *inn.recorder("typed"), **more)
        await auntil(lambda: (inn.root / "typed").exists())
        await do(link, Interrupt())

        await auntil(lambda: key == inn.recorded("typed"))


# Once more


async def test_a_restart_takes_the_same_window_and_the_next_generation(inn: Inn) -> None:
    async with inn.serving() as link:
        session = await inn.run(link, ME, *sh("echo run; read x"))
        await inn.ready(ME)
        before = inn.facts(ME)
        await do(link, Stop(grace_s=0))
        await inn.ended(ME)
        await link.ask(StartSession(n=0, session=session))
        await auntil(lambda: inn.session(session).exists)
        after = inn.facts(ME)

        assert before
        assert after
        assert (before.session_id, before.window_id) == (after.session_id, after.window_id)
        assert 1 == len([facts for facts in panes_of(inn.server) if facts.kasmon_id == ME])
        assert before.pid != after.pid
        assert [1, 2] == [started.generation for started in inn.only(SessionStarted, session)]


async def test_without_its_pane_a_restart_makes_a_new_one(inn: Inn) -> None:
    async with inn.serving() as link:
        session = await inn.run(link, ME, "cat")
        await inn.ready(ME)
        before = inn.facts(ME)
        assert before
        end_window(inn.server, before.window_id)
        assert "its pane no longer exists" == (await inn.ended(ME)).why
        await link.ask(StartSession(n=0, session=session))

        assert inn.facts(ME)
        assert inn.session(session).exists


async def test_the_first_prompt_is_given_in_the_first_generation_only(inn: Inn) -> None:
    async with inn.serving() as link:
        session = await inn.run(link, ME, *inn.recorder("typed"), prompt="hello")
        await auntil(lambda: b"hello\r" == inn.recorded("typed"))
        await do(link, Stop(grace_s=0))
        await inn.ended(ME)
        await link.ask(StartSession(n=0, session=session))
        await auntil(lambda: inn.session(session).exists)
        await do(link, Prompt(text="again"))

        await auntil(lambda: b"hello\ragain\r" == inn.recorded("typed"))


async def test_forgotten_its_pane_is_gone(inn: Inn) -> None:
    async with inn.serving() as link:
        session = await inn.run(link, ME, "cat")
        with pytest.raises(SessionBusyError) as refusal:
            await link.ask(ReleasePane(n=0, session=session))
        assert "Stop it first." == refusal.value.hint
        await do(link, Stop(grace_s=0))
        await inn.ended(ME)
        await link.ask(ReleasePane(n=0, session=session))

        await auntil(lambda: inn.facts(ME) is None)
        with pytest.raises(UnavailableError):
            await link.ask(DescribePane(n=0, session=session))


# What can be read


async def test_lines_are_read_by_range_and_wrapped_ones_joined(inn: Inn) -> None:
    long = "x" * 300
    async with inn.serving() as link:
        await inn.run(
            link, ME, *sh(f"i=0; while [ $i -lt 100 ]; do echo line $i; i=$((i+1)); done; echo {long}; exec cat")
        )
        await inn.ready(ME)
        await auntil(lambda: long[:50].encode() in inn.server.run("capture-pane", "-p", "-t", f"={ME}:"))

        assert (*(f"line {number}" for number in range(100)), long) == await inn.text(link, ME, screen_and=None)
        assert ("line 98", "line 99", long) == await inn.text(link, ME, screen_and=None, start=-3)
        assert ("line 0", "line 1") == await inn.text(link, ME, screen_and=None, end=1)
        assert ("line 5",) == await inn.text(link, ME, screen_and=None, start=5, end=5)
        assert 87 == len(await inn.text(link, ME))
        assert long == (await inn.text(link, ME, screen_and=0))[-1]


async def test_a_look_tells_what_tmux_knows_cleaned(inn: Inn) -> None:
    async with inn.serving() as link:
        await inn.run(
            link, ME, *sh(r"printf '\033]2;\342\220\236a\342\200\256b#(touch pwned)\033\\'; printf abc; exec cat")
        )
        await inn.ready(ME)
        await auntil(lambda: b"abc" in inn.server.run("capture-pane", "-p", "-t", f"={ME}:"))
        seen = await inn.pane(link, ME)

        assert (120, 40, (3, 0), 0) == (seen.width, seen.height, seen.cursor, seen.clients)
        assert ("␞a\ufffdb#(touch pwned)", str(inn.root)) == (seen.title, seen.cwd)
        assert re.fullmatch(r"@\d+", seen.window)
        assert {"attach-session", str(inn.places.tmux_socket)} <= set(seen.attach)


# What it does not do


async def test_what_no_terminal_asks_is_not_answered(inn: Inn) -> None:
    async with inn.serving() as link:
        await inn.run(link, ME, "cat")
        with pytest.raises(RequestNotFoundError):
            await do(link, Answer(request=RequestId("x"), digest="", decision=Decision.ALLOW))


@pytest.mark.parametrize("frame", [StartSession, ReleasePane, ReadTerminal, DescribePane])
async def test_a_session_that_is_not_there_is_not_found(inn: Inn, frame: Any) -> None:
    async with inn.serving() as link:
        for name in ("nosuchid", "../../etc", ""):
            with pytest.raises(SessionNotFoundError):
                await link.ask(frame(n=0, session=SessionId(name)))


async def test_a_structured_session_is_not_its_business(inn: Inn) -> None:
    inn.wants(ME, mode=Mode.SDK, backend="scripted")
    async with inn.serving() as link:
        with pytest.raises(RefusedError, match="structured"):
            await link.ask(StartSession(n=0, session=SessionId(ME)))


async def test_a_session_without_a_program_ends_and_says_why(inn: Inn) -> None:
    async with inn.serving() as link:
        with pytest.raises(Exception, match="has no program to run"):
            await inn.run(link, ME)

        assert "has no program to run" in (await inn.ended(ME)).why


# Without tmux


def fake_tmux(inn: Inn, version: str) -> str:
    path = inn.root / "tmux"
    path.write_text(f"#!/bin/sh\necho {version}\n")
    path.chmod(0o755)
    return str(path)


async def test_without_tmux_the_host_answers_and_says_what_is_missing(
    inn: Inn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KASMON_TMUX", "no-such-tmux")
    async with inn.serving() as link:
        assert "" == link.welcome.tmux
        with pytest.raises(TmuxMissingError, match="no-such-tmux"):
            await inn.run(link, ME, "cat")

        assert "'no-such-tmux' is not installed" in (await inn.ended(ME)).why
        assert S.ENDED is inn.session(SessionId(ME)).state


async def test_a_tmux_that_is_too_old_is_named(inn: Inn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KASMON_TMUX", fake_tmux(inn, "tmux 2.6"))
    async with inn.serving() as link:
        with pytest.raises(TmuxTooOldError, match=r"tmux 2\.6 is too old"):
            await inn.run(link, ME, "cat")


async def test_where_tmux_cannot_be_used_nobody_is_said_to_have_ended_and_the_next_host_finds_them(
    inn: Inn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever starts a host may have another tmux, or none: that is told, and is no end of anything."""
    async with inn.serving() as link:
        session = await inn.run(link, ME, "cat")
        await inn.ready(ME)

    with monkeypatch.context() as other:
        other.setenv("KASMON_TMUX", "no-such-tmux")
        async with inn.serving():
            assert S.LOST is inn.session(session).state
            (lost,) = inn.only(ConnectionLost, session)
            assert ("line to tmux", "'no-such-tmux' is not installed or not on PATH.") == (lost.what, lost.why)

    async with inn.serving():
        assert inn.session(session).exists
        assert S.LOST is not inn.session(session).state


# The host itself


async def test_it_says_which_tmux_it_talks_to(inn: Inn) -> None:
    async with inn.serving() as link:
        version = subprocess.run([inn.server.program, "-V"], capture_output=True, text=True).stdout

        assert version.strip() == f"tmux {link.welcome.tmux}"


async def test_it_ends_when_told_and_its_agents_go_on(inn: Inn) -> None:
    async with inn.serving() as link:
        session = await inn.run(link, ME, "cat")
        await inn.ready(ME)
        await link.ask(Quit(n=0))
        await auntil(lambda: not link.is_open)

    facts = inn.facts(ME)
    assert facts
    assert not facts.is_dead
    assert inn.session(session).exists
    assert not inn.only(NoticeRaised, session)
    assert lock_holder(inn.places.host_lock(ME)) is None


async def test_an_agent_may_not_end_it(inn: Inn) -> None:
    async with inn.serving():
        link = await HostLink.open(inn.places.tmux_host_socket, as_agent=True)
        with pytest.raises(RefusedError):
            await link.ask(Quit(n=0))
        await link.aclose()


def test_a_second_host_leaves_at_once(inn: Inn) -> None:
    first = inn.open()
    second = inn.open()

    assert 0 == second.wait(10)
    assert inn.listens(first.pid)


def test_it_ends_cleanly_when_asked_by_a_signal(inn: Inn) -> None:
    process = inn.open()
    process.send_signal(signal.SIGTERM)

    assert 0 == process.wait(10)
    assert not inn.places.tmux_host_socket.exists()


async def test_many_agents_that_flood_leave_the_host_free_to_answer(inn: Inn) -> None:
    async with inn.serving() as link:
        for name in ("floodaaa", "floodbbb"):
            await inn.run(link, name, *python("while True: print('y' * 2000)"))
        await inn.run(link, ME, "cat")
        await inn.ready(ME)

        assert (120, 40) == ((await inn.pane(link, ME)).width, (await inn.pane(link, ME)).height)
        await inn.until_state("floodaaa", S.WORKING)
