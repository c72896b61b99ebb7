"""A pane of the user's own tmux through the host: seen, focused, typed into; never sized, named or ended."""

import asyncio
import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.backends.tmux.adopted_backend import AdoptedConnection
from kasmon.errors import LaunchError, RefusedError, UnableError
from kasmon.host.rpc.client import HostLink
from kasmon.host.rpc.frames import (
    Blur,
    ExecuteCommand,
    Focus,
    ForeignPanes,
    ListForeignPanes,
    ReleasePane,
    RenameWindow,
    SendKeys,
    StartSession,
    TerminalRows,
    Unwatch,
    Watch,
)
from kasmon.model.commands import AdoptedPane, Answer, Interrupt, Stop
from kasmon.model.events import SessionEnded
from kasmon.model.permission import Decision, SessionId
from kasmon.model.session_state import SessionState
from kasmon.tmux.control import requests as ask
from kasmon.tmux.foreign_server import ForeignHub, ForeignServer, forbidden
from kasmon.tmux.process_identity import ProcessIdentity, identify
from tests.support.agents.menu_agent import NO, YES, MenuAgent, dialog
from tests.support.host.tmux_env import TmuxEnv
from tests.support.wait import auntil

ME = SessionId("abcdefgh")
PATHS = "#{session_name} #{window_name} #{window_width}x#{window_height} #{pane_pid} #{pane_dead}"


class Mine:
    """A tmux that the user started, with one session `work` of 70x20 whose program echoes."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "mine.sock"
        self.run("-f", "/dev/null", "new-session", "-d", "-s", "work", "-n", "main", "-x", "70", "-y", "20", "/bin/cat")
        self.pid = int(self.run("display-message", "-p", "#{pid}"))

    def run(self, *argv: str) -> str:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TMUX")}
        argv = ("tmux", "-S", str(self.socket), *argv)
        return subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=20).stdout

    @property
    def state(self) -> str:
        return self.run("list-panes", "-a", "-F", PATHS) + self.run("show-options", "-t", "work")

    def adopted(self, process: ProcessIdentity | None = None) -> AdoptedPane:
        process = process or identify(self.pid)
        assert process is not None
        return AdoptedPane(
            socket=str(self.socket), pane="%0", target="work", server_pid=process.pid, server_started=process.started
        )


@pytest.fixture
def mine() -> Iterator[Mine]:
    folder = Path(tempfile.mkdtemp(prefix="kmt", dir="/tmp"))
    own = Mine(folder)
    yield own
    own.run("kill-server")
    shutil.rmtree(folder)


class Eyes:
    """What a client sees of the pane."""

    def __init__(self, link: HostLink) -> None:
        self.rows: list[str] = []
        self.size = (0, 0)
        link.on_push = self.take

    def take(self, push: object) -> None:
        if isinstance(push, TerminalRows):
            if push.full:
                self.rows = [""] * push.height
            for number, text in push.changed:
                self.rows[number] = text
            self.size = (push.columns, push.height)

    def show(self, text: str, times: int = 1) -> bool:
        return "\n".join(self.rows).count(text) >= times


async def adopt(tmux: TmuxEnv, link: HostLink, mine: Mine, **more: object) -> None:
    await tmux.run(link, ME, "cat", **{"adopted": mine.adopted(), "agent": "cat", **more})


async def test_an_adopted_pane_is_shown_and_typed_into_at_its_own_size(tmux: TmuxEnv, mine: Mine) -> None:
    before = mine.state
    async with tmux.serving() as link:
        await adopt(tmux, link, mine)
        screen_reader = Eyes(link)
        link.send(Watch(session=ME))
        link.send(Focus(session=ME, columns=40, rows=10))
        link.send(SendKeys(session=ME, data=b"hello\r"))
        await auntil(lambda: screen_reader.show("hello", 2), what="its echo")
        assert (70, 20) == screen_reader.size
        assert "no-output" not in mine.run("list-clients", "-F", "#{client_flags}")
        link.send(Blur(session=ME))
        link.send(Unwatch(session=ME))
        await auntil(lambda: "no-output" in mine.run("list-clients", "-F", "#{client_flags}"), what="a quiet client")

        assert before == mine.state


async def test_a_pane_that_closes_without_a_watcher_has_ended(tmux: TmuxEnv, mine: Mine) -> None:
    mine.run("new-session", "-d", "-s", "other", "/bin/cat")
    async with tmux.serving() as link:
        await adopt(tmux, link, mine)
        await auntil(lambda: tmux.session(ME).generation == 1)
        mine.run("kill-session", "-t", "work")

        assert "its pane no longer exists" == (await tmux.ended(ME)).why


async def test_when_its_server_ends_it_is_lost(tmux: TmuxEnv, mine: Mine) -> None:
    async with tmux.serving() as link:
        await adopt(tmux, link, mine)
        mine.run("kill-server")

        await tmux.until_state(ME, SessionState.LOST)


async def test_every_command_that_would_end_rename_or_move_it_is_refused(tmux: TmuxEnv, mine: Mine) -> None:
    before = mine.state
    async with tmux.serving() as link:
        await adopt(tmux, link, mine)
        for grace_s in (0, 5):
            with pytest.raises(UnableError, match="where kasmon ends nothing"):
                await link.ask(ExecuteCommand(n=0, session=ME, command=Stop(grace_s=grace_s)))
        await link.ask(RenameWindow(n=0, session=ME, name="mine"))
        with pytest.raises(RefusedError, match="is already running"):
            await link.ask(StartSession(n=0, session=ME))

        assert before == mine.state


async def test_requests_are_answered_in_its_terminal(tmux: TmuxEnv, mine: Mine) -> None:
    asker = MenuAgent(tmux.root / "bin", dialog("git push", YES, NO), dialog("git pull", YES, NO))
    mine.run("respawn-pane", "-k", "-t", "work", *asker.argv)
    async with tmux.serving() as link:
        await adopt(tmux, link, mine, agent="scripted", argv=asker.argv)
        before = mine.state
        for text, decision in (("git push", Decision.ALLOW), ("git pull", Decision.DENY)):
            request = await auntil(
                lambda text=text: next((r for r in tmux.session(ME).requests if text in r.shown), None)  # type: ignore[misc]
            )
            wish = Answer(request=request.id, digest=request.digest, decision=decision)
            await link.ask(ExecuteCommand(n=0, session=ME, command=wish), limit_s=40)

        assert [("git push", YES), ("git pull", NO)] == asker.taken()
        assert before == mine.state


async def test_an_interrupt_is_a_key(tmux: TmuxEnv, mine: Mine) -> None:
    mine.run("respawn-pane", "-k", "-t", "work", "sh -c 'trap \"echo got it\" INT; while :; do sleep 0.05; done'")
    async with tmux.serving() as link:
        await adopt(tmux, link, mine)
        await link.ask(ExecuteCommand(n=0, session=ME, command=Interrupt()))
        await auntil(lambda: "got it" in mine.run("capture-pane", "-p", "-t", "work"), what="the interrupt")


async def test_releasing_it_leaves_it_running(tmux: TmuxEnv, mine: Mine) -> None:
    before = mine.state
    async with tmux.serving() as link:
        await adopt(tmux, link, mine)
        await link.ask(ReleasePane(n=0, session=ME))

        assert ["stopped"] == [fact.why for fact in tmux.only(SessionEnded, ME)]
        assert "" == mine.run("list-clients")
        assert before == mine.state


async def test_another_server_at_the_same_socket_is_not_the_adopted_one(tmux: TmuxEnv, mine: Mine) -> None:
    """After a restart of the user's tmux its pane %0 is another pane."""
    async with tmux.serving() as link:
        with pytest.raises(Exception, match=r"gone|not there|no server"):
            await adopt(tmux, link, mine, adopted=mine.adopted(ProcessIdentity(mine.pid, "long ago")))

        assert "" == mine.run("list-clients")


async def test_a_pane_that_is_gone_is_not_adopted(tmux: TmuxEnv, mine: Mine) -> None:
    async with tmux.serving() as link:
        process = identify(mine.pid)
        assert process is not None
        gone = AdoptedPane(
            socket=str(mine.socket), pane="%9", server_pid=process.pid, server_started=process.started, target="x"
        )
        with pytest.raises(LaunchError):
            await adopt(tmux, link, mine, adopted=gone)


async def test_an_adopted_pane_is_marked_in_the_list(tmux: TmuxEnv, mine: Mine) -> None:
    async with tmux.serving() as link:
        await adopt(tmux, link, mine)
        seen = await link.ask(ListForeignPanes(n=0, socket=str(mine.socket)))

        assert isinstance(seen, ForeignPanes)
        assert [("work:0.0", ME)] == [(pane.target, pane.adopted) for pane in seen.panes]


@pytest.mark.parametrize(
    "request_",
    [
        ask.resize("@0", 10, 10),
        ask.kill_window("@0"),
        ask.command("rename-window -t @0 x"),
        ask.rename("@0", "x"),
        ask.command("set-option -g status off"),
        ask.command("refresh-client -C 80x24"),
        ask.guarded("%0", "kill-pane -t %0"),
        ask.command("respawn-pane -k -t %0"),
        ask.command("display-message -p x ; kill-server"),
    ],
    ids=lambda one: one.line.split(" ")[0],
)
async def test_no_command_that_changes_the_users_tmux_is_ever_sent(
    mine: Mine, request_: ask.TmuxRequest[object]
) -> None:
    before = mine.state
    with tempfile.TemporaryDirectory(dir="/tmp") as turns:
        server = ForeignServer(mine.socket, Path(turns))
        sent: list[object] = []
        async with contextlib.aclosing(AdoptedConnection(server)) as line:
            line.adopt(ME, "%0")
            await line.open()
            line.submit(request_, sent.append)
            with pytest.raises(RefusedError, match="the user's own"):
                await line.ask(request_)
        hub = ForeignHub(server)
        hub.adopt("%0")

        def tried() -> list[object]:
            hub.open()
            try:
                answers: list[object] = []
                hub.submit(request_, answers.append)
                with pytest.raises(RefusedError, match="the user's own"):
                    hub.call(request_)
                return answers
            finally:
                hub.close()

        (answer,) = await asyncio.to_thread(tried)

    assert isinstance(answer, RefusedError)
    assert [RefusedError] == [type(each) for each in sent]
    assert before == mine.state


@pytest.mark.parametrize(
    "request_",
    [
        ask.press("%0", b"y"),
        ask.paste("%0", "kasmon-1"),
        ask.screen("%0"),
        ask.all_panes(),
        *ask.keys("%0", b"kill-server"),
    ],
)
def test_read_and_input_commands_are_allowed(request_: ask.TmuxRequest[object]) -> None:
    assert "" == forbidden(request_.line)


@pytest.mark.parametrize("act", ["start", "kill_server", "create", "respawn", "run", "resize"])
def test_the_server_itself_is_never_changed(mine: Mine, act: str, tmp_path: Path) -> None:
    server, before = ForeignServer(mine.socket, tmp_path), mine.state
    arguments = {
        "create": ("x", ["sh"]),
        "respawn": ("%0", ["sh"]),
        "run": ("kill-window", "-t", "@0"),
    }
    given = arguments.get(act, ("@0", 10, 10) if act == "resize" else ())
    with pytest.raises(RefusedError, match="the user's own"):
        getattr(server, act)(*given)

    assert before == mine.state
