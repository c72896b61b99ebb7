"""What a dialog cuts is read from the agent's own view: on a real terminal, while nobody is focused there."""

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kasmon.backends.common.environment import encoded
from kasmon.backends.tmux import agent as tmux_agent
from kasmon.backends.tmux.agent import TmuxAgent
from kasmon.backends.tmux.evidence import hooks
from kasmon.backends.tmux.input import answer_delivery, full_view
from kasmon.backends.tmux.terminal_backend import TmuxBackend
from kasmon.errors import PromptChangedError, RefusedError, UnableError
from kasmon.model.commands import Answer, Launch, Mode
from kasmon.model.permission import Decision, Request
from kasmon.paths import write_private
from kasmon.tmux.server import TmuxServer
from tests.backends.tmux.evidence.test_tool_calls import recorded
from tests.backends.tmux.input import test_answer_delivery
from tests.backends.tmux.input.test_answer_delivery import ME, Room
from tests.support.agents.backend_contract import LIMIT_S, Listener
from tests.support.detection.golden import FOLDER, load
from tests.support.detection.scenes.studio import steps as recorded_steps
from tests.support.tmux.attached_terminal import attached
from tests.support.wait import auntil, until

pytestmark = pytest.mark.story

room = test_answer_delivery.room
ALLOW, DENY = Decision.ALLOW, Decision.DENY

CUTTER = r"""
import json, os, signal, sys, tty
if "--version" in sys.argv:
    sys.exit()
tty.setraw(0)
asks, log = json.loads(sys.argv[1]), open(sys.argv[2], "a", buffering=1)
is_open, top = False, 0
def draw():
    if not asks:
        rows = ["IDLE"]
    elif is_open:
        rows = ["ALL OF IT", *asks[0][top : top + 8], "-" * 20, "v goes back"]
    else:
        rows = ["=" * 20, *asks[0][:3], "", "> 1. Yes", "  2. No", "v shows all"]
    os.write(1, ("\x1b[H\x1b[2J\x1b[?25l" + "\r\n".join(rows)).encode())
def swap(*_):
    asks.pop(0)
    draw()
signal.signal(signal.SIGUSR1, swap)
draw()
while True:
    data = os.read(0, 64).decode()
    log.write(json.dumps([data, asks[0][-1] if asks else ""]) + "\n")
    if data == "v":
        is_open, top = not is_open, 0
    elif data == "j" and is_open:
        top = min(top + 1, max(0, len(asks[0]) - 8))
    elif data == "k" and is_open:
        top = max(0, top - 1)
    elif data in "12" and asks and not is_open:
        asks.pop(0)
    draw()
"""
RULES = r"""
program = "cutter"

[[region]]
name = "dialog"
below = '^={10}'

[[rule]]
name = "permission"
priority = 90
state = "asking"
asking = "permission"
menu = "permission"

[[rule]]
name = "idle"
priority = 10
state = "idle"
all = ['^IDLE$']

[[menu]]
name = "permission"
kind = "permission"
in = "dialog"
question = '\S'
choice = '^(?P<mark>>)? *(?P<number>[1-9])\. (?P<label>\S.*)$'
foot = '^v shows all'

[menu.answers]
allow = '^Yes$'
deny = '^No$'

[[menu.whole]]
rows = 6

[menu.view]
key = "v"
back = "v"
shows = '^v goes back$'
from = '^ALL OF IT$'
to = '^-{10}'
on = "j"
undo = "k"
"""


CALL = r"""
[menu.call]
begins = '^(?P<text>\S.*)$'
row = '^(?P<text>.*)$'
"""


def steps(end: str, count: int = 6) -> list[str]:
    return [*(f"echo step {number}" for number in range(1, count)), f"echo {end}"]


class Stage:
    """A fake agent that shows three rows of what it asks, heard."""

    def __init__(self, room: Room, heard: Listener) -> None:
        assert isinstance(heard.agent, TmuxAgent)
        self.room, self.log, self.heard, self.agent = room, room.folder / "log", heard, heard.agent

    def pressed(self) -> list[str]:
        return [key for key, _ in self.said()]

    def said(self) -> list[tuple[str, str]]:
        """Each key that it heard, and the last row of what it asked then."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [(key, ask) for key, ask in map(json.loads, lines)]

    async def asked(self, text: str = "step") -> Request:
        return await auntil(
            lambda: next((one for one in self.heard.session.requests if text in one.shown), None), LIMIT_S, text
        )

    def calls(self, *texts: str) -> None:
        """Have the agent's hooks say that it is about to run each of *texts*; its screen is looked at once more."""
        notes = ({"event": "PreToolUse", "call": text, "input": {"command": text}} for text in texts)
        lines = (json.dumps({**note, "pids": [self.agent.pid]}) + "\n" for note in notes)
        with (self.room.here.folder(ME) / hooks.FILE).open("a") as file:
            file.writelines(lines)
        self.agent.state_monitor.begin()

    async def answer(self, request: Request, decision: Decision) -> None:
        await self.agent.send(Answer(request=request.id, digest=request.digest, decision=decision))


@contextlib.asynccontextmanager
async def staged(room: Room, *asks: list[str], watched: bool = False, rules: str = RULES) -> AsyncIterator[Stage]:
    here, folder = room
    program = folder / "cutter"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!{sys.executable} -IS\n{CUTTER}")
    program.chmod(0o755)
    (here.config / "screens").mkdir(parents=True)
    (here.config / "screens" / "cutter.toml").write_text(rules)
    argv = (str(program), json.dumps(asks), str(folder / "log"))
    launch = Launch(
        session=ME, name="w", agent="cutter", mode=Mode.TMUX, backend="tmux", argv=argv, workdir=str(folder)
    )
    backend = TmuxBackend(here)
    try:
        agent = await backend.open(launch)
        agent.is_watched = lambda: watched
        async with Listener(agent, launch).listening() as heard:
            yield Stage(room, heard)
    finally:
        await backend.aclose()
        await asyncio.to_thread(TmuxServer(here.tmux_socket).kill_server)


@pytest.fixture(autouse=True)
def _in_no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_delivery, "YOUNG_S", 0.0)


async def test_a_request_that_the_dialog_cuts_is_read_from_the_full_view_shown_and_allowed(room: Room) -> None:
    async with staged(room, steps("one"), steps("two")) as stage:
        one = await stage.asked("echo one")
        assert not one.may_be_cut
        assert {ALLOW, DENY} <= set(one.choices)
        assert ["v", "j", "v"] == stage.pressed()

        await stage.answer(one, DENY)
        two = await stage.asked("echo two")
        assert one.digest != two.digest
        await stage.answer(two, ALLOW)
        assert [("2", "echo one"), ("1", "echo two")] == [said for said in stage.said() if said[0] in "12"]


async def test_while_a_viewer_has_the_focus_no_key_is_typed_and_nothing_is_allowed(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once nobody is, it is read."""
    monkeypatch.setattr(full_view, "AGAIN_S", 0.1)
    async with staged(room, steps("one"), watched=True) as stage:
        request = await stage.asked()
        assert request.may_be_cut
        assert [DENY] == list(request.choices)
        assert [] == stage.pressed()

        stage.agent.is_watched = lambda: False
        assert not (await stage.asked("echo one")).may_be_cut


async def test_while_a_terminal_is_attached_there_no_key_is_typed_and_nothing_is_allowed(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person who looks at it in tmux: kasmon hears none of their keys."""
    monkeypatch.setattr(full_view, "AGAIN_S", 0.1)
    async with staged(room, steps("one"), ["ls", *steps("two")], watched=True) as stage:
        await stage.asked()
        server = stage.agent._line.server
        with attached(server, ME):
            await asyncio.to_thread(until, lambda: server.run("list-clients", "-t", f"={ME}"), LIMIT_S, "the terminal")
            stage.agent.is_watched = lambda: False
            os.kill(stage.agent.pid, signal.SIGUSR1)
            request = await stage.asked("ls")
            assert request.may_be_cut
            assert [DENY] == list(request.choices)
            assert [] == stage.pressed()

        assert not (await stage.asked("echo two")).may_be_cut


async def test_while_a_user_types_no_key_is_typed_and_nothing_is_allowed(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(full_view, "AGAIN_S", 0.1)
    monkeypatch.setattr(tmux_agent, "TYPED_S", 3600.0)
    async with staged(room, steps("one"), ["ls", *steps("two")], watched=True) as stage:
        await stage.asked()
        stage.agent.pane_writer.type_keys(b"z")
        await auntil(lambda: ["z"] == stage.pressed(), LIMIT_S, "the key")
        stage.agent.is_watched = lambda: False
        os.kill(stage.agent.pid, signal.SIGUSR1)
        request = await stage.asked("ls")
        assert request.may_be_cut
        assert [DENY] == list(request.choices)
        assert ["z"] == stage.pressed()

        monkeypatch.setattr(tmux_agent, "TYPED_S", 0.0)
        assert not (await stage.asked("echo two")).may_be_cut


async def test_a_view_that_keeps_scrolling_proves_nothing_and_is_left_unchanged(room: Room) -> None:
    async with staged(room, steps("one", 12)) as stage:
        request = await stage.asked()

        assert request.may_be_cut
        assert [DENY] == list(request.choices)
        assert ["v", "j", "k", "v"] == stage.pressed()


async def test_a_dialog_that_only_looks_the_same_is_not_allowed(room: Room) -> None:
    """What is cut is read once more before the key: the text that was shown is not the one that waits."""
    async with staged(room, steps("one"), steps("two")) as stage:
        one = await stage.asked("echo one")
        os.kill(stage.agent.pid, signal.SIGUSR1)
        with pytest.raises((PromptChangedError, RefusedError)):
            await stage.answer(one, ALLOW)

        assert not [key for key in stage.pressed() if key in "12"]
        assert one.digest != (await stage.asked("echo two")).digest


async def test_a_key_of_the_view_is_sent_only_to_the_screen_that_was_read(room: Room) -> None:
    async with staged(room, ["rm -rf x", *steps("one")], ["ls", *steps("two")]) as stage:
        press = stage.agent.pane_writer.press
        swapped: list[Any] = []

        async def late(key: bytes, unless: str = "") -> None:
            if not swapped:
                swapped.append(key)
                os.kill(stage.agent.pid, signal.SIGUSR1)
                await auntil_shown(stage, "ls")
            await press(key, unless)

        stage.agent.pane_writer.press = late  # type: ignore[method-assign]
        await stage.asked("echo two")

        assert [] == [said for said in stage.said() if said[1] == "echo one"]
        assert ["v", "j", "v"] == stage.pressed()


async def test_a_call_in_the_agents_own_record_is_requested_whole_without_a_key(room: Room) -> None:
    """Two calls that the dialog could be about say nothing: then nobody knows which one waits."""
    one, other = "\n".join(steps("one")), "\n".join(steps("other"))
    async with staged(room, steps("one"), watched=True, rules=RULES + CALL) as stage:
        stage.calls("echo step 9", one)
        request = await stage.asked("echo one")
        assert one in request.shown
        assert not request.may_be_cut

        stage.calls(other)
        cut = await auntil(lambda: next((ask for ask in stage.heard.session.requests if ask.may_be_cut), None), LIMIT_S)
        assert [DENY] == list(cut.choices)
        assert [] == stage.pressed()


async def test_allowing_a_recorded_call_does_not_allow_the_next_one_that_looks_the_same(
    room: Room,
) -> None:
    async with staged(room, steps("one"), steps("two"), watched=True, rules=RULES + CALL) as stage:
        stage.calls("\n".join(steps("one")))
        one = await stage.asked("echo one")
        with (room.here.folder(ME) / hooks.FILE).open("a") as file:
            file.write(json.dumps({"event": "Stop", "pids": [stage.agent.pid]}) + "\n")
        os.kill(stage.agent.pid, signal.SIGUSR1)
        stage.calls("\n".join(steps("two")))
        with pytest.raises(PromptChangedError):
            await stage.answer(one, ALLOW)

        assert [] == stage.pressed()
        assert one.digest != (await stage.asked("echo two")).digest


# Recorded screens of the agents themselves, by the screen files that kasmon ships.

PLAYER = r"""
import json, os, signal, sys, tty
if "--version" in sys.argv:
    sys.exit(print(VERSION))
tty.setraw(0)
screens, moves, now = *json.loads(open(sys.argv[-2]).read()), "menu"
log = open(sys.argv[-1], "a", buffering=1)
def draw(*_):
    if os.get_terminal_size() == (120, 40):
        os.write(1, ("\x1b[?1049h\x1b[H\x1b[2J\x1b[?25l" + "\r\n".join(screens[now].rstrip("\n").split("\n"))).encode())
signal.signal(signal.SIGWINCH, draw)
signal.signal(signal.SIGALRM, draw)
draw()
while True:
    key = os.read(0, 64).decode()
    log.write(json.dumps([key, now]) + "\n")
    now = moves[now].get(key, now)
    if now == HALF:
        os.write(1, b"\x1b[H\x1b[2J" + screens[now][:300].replace("\n", "\r\n").encode())
        signal.setitimer(signal.ITIMER_REAL, 0.3)
    else:
        draw()
"""
"""Shows recorded screens, and moves between them as the agent does; what HALF names it draws in two steps."""
CTRL_F, WHEEL_DOWN, WHEEL_UP = "\x06", "\x1b[<65;9;9M", "\x1b[<64;9;9M"
OPENCODE = {"menu": {CTRL_F: "view"}, "view": {WHEEL_DOWN: "on", CTRL_F: "menu"}, "on": {WHEEL_UP: "view"}}
CODEX = {"menu": {"\x01": "view"}, "view": {"\x1b[F": "on", "q": "menu"}, "on": {"q": "menu"}}


def prepared(
    room: Room, case: str, moves: dict[str, dict[str, str]], *, scrolls: bool, records: tuple[str, ...], half: str
) -> Launch:
    """How `played` starts its agent, whose files are written."""
    here, folder = room
    menu = load(FOLDER / case)
    view = load(FOLDER / f"{case}-view").shot.text
    on = re.sub(r"step (\d+)", lambda step: f"step {int(step[1]) + 1}", view) if scrolls else view
    (folder / "screens").write_text(json.dumps([{"menu": menu.shot.text, "view": view, "on": on}, moves]))
    program = folder / menu.agent
    program.write_text(
        f"#!{sys.executable} -IS\n{PLAYER.replace('VERSION', repr(menu.version)).replace('HALF', repr(half))}"
    )
    program.chmod(0o755)
    data = folder / "data"
    if records:
        recorded(data, *({"status": "running", "input": {"command": command}} for command in records))
    write_private(here.environment(ME), encoded({"XDG_DATA_HOME": str(data)}))
    return Launch(
        session=ME,
        name="w",
        agent=menu.agent,
        mode=Mode.TMUX,
        backend="tmux",
        argv=(str(program), str(folder / "screens"), str(folder / "log")),
        workdir=str(folder),
    )


@contextlib.asynccontextmanager
async def played(
    room: Room,
    case: str,
    moves: dict[str, dict[str, str]],
    *,
    scrolls: bool,
    records: tuple[str, ...] = (),
    half: str = "",
) -> AsyncIterator[Stage]:
    """The agent of the golden *case* in a terminal of the size in which it was recorded.

    Args:
        room: where it lives.
        case: its menu; the view has the same name with `-view` behind it.
        moves: by screen, where which key leads.
        scrolls: whether the view has more than one page.
        records: the commands that opencode's own database says are about to run; without one there is none.
        half: the screen that it draws in two steps.
    """
    here = room.here
    launch = await asyncio.to_thread(prepared, room, case, moves, scrolls=scrolls, records=records, half=half)
    backend = TmuxBackend(here)
    try:
        agent = await backend.open(launch)
        assert isinstance(agent, TmuxAgent)
        async with Listener(agent, launch).listening() as heard:
            size = ("resize-window", "-t", agent.pane, "-x", "120", "-y", "40")
            await asyncio.to_thread(agent._line.server.run, *size)
            yield Stage(room, heard)
    finally:
        await backend.aclose()
        await asyncio.to_thread(TmuxServer(here.tmux_socket).kill_server)


@pytest.mark.parametrize(
    ("case", "moves", "pressed"),
    [
        ("opencode/1.18.33/permission-long", OPENCODE, [CTRL_F, WHEEL_DOWN, WHEEL_UP, CTRL_F]),
        ("codex/0.171.0/permission-long", CODEX, ["\x01", "\x1b[F", "q"]),
    ],
    ids=["opencode", "codex"],
)
async def test_without_records_a_command_longer_than_the_agents_view_is_allowed_in_its_terminal_only(
    room: Room, case: str, moves: dict[str, dict[str, str]], pressed: list[str]
) -> None:
    async with played(room, case, moves, scrolls=True) as stage:
        request = await stage.asked()

        assert request.may_be_cut
        assert [DENY] == list(request.choices)
        assert pressed == stage.pressed()[: len(pressed)]
        for decision in (ALLOW, Decision.ALWAYS):
            with pytest.raises((RefusedError, UnableError)):
                await stage.answer(request, decision)
        assert {*pressed} == {*stage.pressed()}


async def test_without_records_opencodes_view_of_one_page_shows_all_of_a_command(room: Room) -> None:
    async with played(room, "opencode/1.18.33/permission-long-fits", OPENCODE, scrolls=False) as stage:
        request = await stage.asked("touch end-a.txt")

        assert not request.may_be_cut
        assert {ALLOW, DENY} <= set(request.choices)
        assert [CTRL_F, WHEEL_DOWN, CTRL_F] == stage.pressed()[:3]


async def test_a_one_page_view_that_is_partly_drawn_has_not_moved(room: Room) -> None:
    async with played(room, "opencode/1.18.33/permission-long-fits", OPENCODE, scrolls=False, half="on") as stage:
        assert not (await stage.asked("touch end-a.txt")).may_be_cut


async def test_opencodes_record_has_a_whole_command_that_its_view_cuts(room: Room) -> None:
    command = recorded_steps()
    async with played(
        room, "opencode/1.18.33/permission-long", OPENCODE, scrolls=True, records=("ls", command)
    ) as stage:
        request = await stage.asked(command)

        assert not request.may_be_cut
        assert {ALLOW, DENY} <= set(request.choices)
        assert [] == stage.pressed()


async def test_two_records_that_match_opencodes_dialog_prove_nothing(room: Room) -> None:
    records = (recorded_steps(end="a"), recorded_steps(end="b"))
    async with played(room, "opencode/1.18.33/permission-long", OPENCODE, scrolls=True, records=records) as stage:
        assert (await stage.asked()).may_be_cut


async def auntil_shown(stage: Stage, text: str) -> None:
    """Wait until *text* begins a row of the screen, by tmux's own word."""
    server = stage.agent._line.server

    async def there() -> bool:
        seen = await asyncio.to_thread(server.run, "capture-pane", "-p", "-t", stage.agent.pane)
        return any(row.startswith(text) for row in seen.decode().splitlines())

    async with asyncio.timeout(LIMIT_S):
        while not await there():
            pass
