"""What leaves a real terminal's screen is written down once, without secrets, whatever the terminal does meanwhile."""

from collections.abc import AsyncIterator

import pytest

from kasmon.backends.tmux.server_connection import ServerConnection
from kasmon.config import Config, SearchConfig
from kasmon.host.journal import known_secrets
from kasmon.host.rpc.frames import ReleasePane, SendKeys
from kasmon.host.terminal.recorder import Recorder
from kasmon.model.permission import SessionId
from kasmon.store.terminal_record import TerminalRecord, everything, number_lines, screen
from tests.support.host.tmux_env import TmuxEnv, sh
from tests.support.wait import auntil

ME = "abcdefgh"
ASKS = "while read from to; do seq -f 'line %.0f' $from $to; done"
"""Prints `line N` for all from one number to another, as often as it is told two."""

pytestmark = pytest.mark.usefixtures("in_tmux_env")


class Desk:
    """One pane, and what is recorded of it."""

    def __init__(self, tmux: TmuxEnv, line: ServerConnection, pane: str) -> None:
        self.tmux_env, self.line, self.pane = tmux, line, pane
        self.folder = tmux.paths.record(ME)
        self.recorder = self.made()

    def made(self) -> Recorder:
        return Recorder(self.line, self.pane, TerminalRecord(self.folder, 1_000_000), every_s=3600.0)

    def run(self, *argv: str) -> None:
        self.tmux_env.server.run(*argv)

    async def prints(self, first: int, last: int) -> None:
        """Have lines printed, and wait until the last stands on the screen."""
        self.run("send-keys", "-t", self.pane, f"{first} {last}", "Enter")
        await auntil(
            lambda: f"line {last}\n".encode() in self.tmux_env.server.run("capture-pane", "-p", "-t", self.pane)
        )

    async def looks(self) -> None:
        """Have it looked at, and wait until that is written."""
        self.recorder.read()
        await auntil(lambda: self.recorder._looking is None)

    @property
    def left(self) -> list[str]:
        """The lines that left the screen, but for the commands."""
        shown = screen(self.folder)
        end = shown.first if shown is not None else 0
        return [text for number, _, text in number_lines(everything(self.folder)) if number < end and "line" in text]

    @property
    def shown(self) -> list[str]:
        last = screen(self.folder)
        return [*last.lines] if last is not None else []


@pytest.fixture
async def cli(tmux: TmuxEnv) -> AsyncIterator[Desk]:
    tmux.paths.folder(ME).mkdir(parents=True)
    line = ServerConnection(tmux.server)
    await line.open()
    pane = tmux.server.create(ME, argv=list(sh(f"{ASKS}")))
    cli = Desk(tmux, line, pane.pane_id)
    yield cli
    cli.recorder.close()
    await line.aclose()


def upto(last: int) -> list[str]:
    return [f"line {number}" for number in range(last)]


async def test_each_line_is_recorded_once_when_it_leaves_the_screen(cli: Desk) -> None:
    for first, last in ((0, 9), (10, 99), (100, 119), (120, 320)):
        await cli.prints(first, last)
        await cli.looks()

    assert upto(320 - 38) == cli.left[: 320 - 38]
    assert len(set(cli.left)) == len(cli.left)
    assert "line 320" == cli.shown[-1]


async def test_a_resize_records_nothing_twice_and_loses_nothing(cli: Desk) -> None:
    await cli.prints(0, 199)
    await cli.looks()
    for width, height in ((30, 10), (8, 60), (200, 50)):
        cli.run("resize-window", "-t", cli.pane, "-x", str(width), "-y", str(height))
        await cli.looks()
    await cli.prints(200, 399)
    await cli.looks()

    assert upto(340) == cli.left[:340]
    assert len(set(cli.left)) == len(cli.left)


async def test_the_next_host_continues_and_a_cleared_history_is_a_gap(cli: Desk) -> None:
    await cli.prints(0, 99)
    await cli.looks()
    cli.recorder.close()
    cli.recorder = cli.made()
    await cli.prints(100, 199)
    await cli.looks()
    assert upto(150) == cli.left[:150]
    cli.run("clear-history", "-t", cli.pane)
    await cli.prints(200, 299)
    await cli.looks()

    assert "line 250" in cli.left
    assert len(set(cli.left)) == len(cli.left)
    assert [False, False, True] == [printed.gap for printed in everything(cli.folder)][:3]


async def test_no_secret_of_the_screen_or_the_history_is_recorded(cli: Desk) -> None:
    known_secrets.add_secrets(["hunter2-of-the-line"])
    cli.run("send-keys", "-t", cli.pane, "say hunter2-of-the-line", "Enter")
    await cli.prints(1, 1)
    await cli.looks()

    assert "say ⟨hidden: 19 characters⟩" in cli.shown
    await cli.prints(2, 99)
    await cli.looks()

    assert "⟨hidden: 19 characters⟩" in "".join(text for _, _, text in number_lines(everything(cli.folder)))
    assert all(b"hunter2" not in path.read_bytes() for path in cli.folder.iterdir())


async def test_the_host_records_by_itself_and_deletes_with_the_session(
    tmux: TmuxEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Recorder.__init__, "__kwdefaults__", {"is_blank": False, "every_s": 0.05})
    folder = tmux.paths.record(ME)
    async with tmux.serving() as link:
        await tmux.run(link, ME, *sh("seq -f 'line %.0f' 200; read x; exit 0"))
        await auntil(lambda: (shown := screen(folder)) is not None and "line 200" in shown.lines)
        assert "line 1" in [text for _, _, text in number_lines(everything(folder))]
        link.send(SendKeys(session=SessionId(ME), data=b"\r"))
        await tmux.ended(ME)
        await link.ask(ReleasePane(n=0, session=SessionId(ME)))

    assert not folder.exists()


async def test_without_the_setting_nothing_is_recorded(tmux: TmuxEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recorder.__init__, "__kwdefaults__", {"is_blank": False, "every_s": 0.01})
    async with tmux.serving(Config(search=SearchConfig(record=False))) as link:
        await tmux.run(link, ME, *sh("seq 200; exec cat"))
        await tmux.shows(ME, "200")
        await tmux.text(link, ME)

    assert not tmux.paths.record(ME).exists()
