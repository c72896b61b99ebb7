"""Panes of a running server: made, seen, typed into, resized, shown and ended."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kasmon.errors import TmuxCommandError
from kasmon.tmux.control import requests
from kasmon.tmux.control.requests import PaneRow, PaneScreen, TmuxRequest
from kasmon.tmux.formats import PaneFacts
from kasmon.tmux.process_identity import identify
from kasmon.tmux.server import TmuxServer
from tests.support.tmux.hub_listener import Kept, Listener, python, recorder
from tests.support.tmux.sync_hub import end_window, panes_of, texts_of
from tests.support.wait import until


def facts(server: TmuxServer, pane: str) -> PaneFacts:
    return next(facts for facts in panes_of(server) if facts.pane_id == pane)


def test_a_session_has_our_id_as_its_name_and_runs_its_command_itself(server: TmuxServer) -> None:
    pane = server.create("kabcdef2", ["sleep", "1000"])

    assert b"kabcdef2\n" == server.run("display-message", "-p", "-t", pane.pane_id, "#{session_name}")
    assert "sleep" == texts_of(server, pane.pane_id).command
    seen = facts(server, pane.pane_id)
    assert (pane.pid, "kabcdef2", 120, 40, False) == (seen.pid, seen.kasmon_id, seen.width, seen.height, seen.is_dead)


def test_a_taken_name_is_refused(server: TmuxServer) -> None:
    server.create("twice", ["cat"])

    with pytest.raises(TmuxCommandError, match="duplicate session"):
        server.create("twice", ["cat"])


def test_many_sessions_are_made_at_once(shared: Listener) -> None:
    listener, server = shared, shared.server
    with ThreadPoolExecutor(8) as pool:
        panes = list(pool.map(lambda number: server.create(f"s{number}", ["cat"]), range(24)))

    assert {pane.pane_id for pane in panes} == {pane.pane_id for pane in listener.hub.panes()}
    for pane in panes:
        listener.hub.keys(pane.pane_id, b"heard\r")
    listener.until(lambda: all(b"heard" in listener.said[pane.pane_id] for pane in panes))


def test_a_further_window_is_beside_its_parents_and_does_not_get_the_focus(server: TmuxServer) -> None:
    parent = server.create("parent", ["cat"])
    child = server.create("child", ["cat"], parent=parent.session_id, size=(90, 20))

    assert parent.session_id == child.session_id
    assert b"parent\n" == server.run("display-message", "-p", "-t", f"{parent.session_id}:", "#{window_name}")
    assert (90, 20) == (facts(server, child.pane_id).width, facts(server, child.pane_id).height)
    assert (120, 40) == (facts(server, parent.pane_id).width, facts(server, parent.pane_id).height)
    assert ["parent", "child"] == [pane.kasmon_id for pane in panes_of(server)]


def test_ending_a_parents_window_leaves_the_child(shared: Listener) -> None:
    listener, server = shared, shared.server
    parent = server.create("parent", ["cat"])
    child = server.create("child", ["cat"], parent=parent.session_id)
    listener.hears(parent.pane_id)
    end_window(server, parent.window_id)

    listener.until(lambda: [parent.pane_id] == listener.closed)
    assert ["child"] == [pane.kasmon_id for pane in listener.hub.panes()]
    assert not facts(server, child.pane_id).is_dead


def test_a_parent_that_is_gone_has_no_children(server: TmuxServer) -> None:
    server.create("other", ["cat"])

    with pytest.raises(TmuxCommandError, match="can't find session"):
        server.create("child", ["cat"], parent="$77")


def test_a_pane_is_ended_wherever_it_is_linked(shared: Listener) -> None:
    listener, server = shared, shared.server
    pane = server.create("agent", ["cat"])
    listener.hears(pane.pane_id)
    listener.hub.kill_window(pane.window_id)

    listener.until(lambda: [pane.pane_id] == listener.closed)
    until(lambda: identify(pane.pid) is None)


def test_the_screen_comes_with_its_colours_cursor_and_modes(shared: Listener, folder: Path) -> None:
    listener, server = shared, shared.server
    coloured, modes = b"\033[1;31mred\033[0m  end\r\n", b"\033[?1h\033=\033[?1002h\033[?1006h\033[?25l"
    pane = server.create("agent", recorder(folder / "got", coloured + modes), size=(20, 3)).pane_id
    listener.until_shown(pane, "ready")
    kept = Kept()
    listener.hub.submit(requests.screen(pane), kept.append)
    listener.until(lambda: kept)

    screen = kept.answer
    assert isinstance(screen, PaneScreen)
    assert [b"\x1b[1m\x1b[31mred\x1b[0m\x1b[39m\x1b[49m  end", b"ready", b""] == [row.rstrip() for row in screen.rows]
    seen = screen.facts
    assert (20, 3, 5, 1, False) == (seen.width, seen.height, seen.cursor_x, seen.cursor_y, seen.cursor_visible)
    assert (True, False, True, True) == (
        seen.mouse_button,
        seen.mouse_all,
        seen.mouse_sgr,
        seen.application_cursor and seen.application_keypad,
    )
    assert not seen.alternate


def test_a_row_alone_comes_with_the_cursor(shared: Listener) -> None:
    listener, server = shared, shared.server
    pane = server.create("agent", python("import os\nos.write(1, b'one\\ntwo')\nos.read(0, 1)\n")).pane_id
    listener.until_shown(pane, "two")
    kept = Kept()
    listener.hub.submit(requests.row(pane, 1), kept.append)
    listener.until(lambda: kept)

    row = kept.answer
    assert isinstance(row, PaneRow)
    assert (1, b"two", 3, 1) == (row.y, row.row, row.facts.cursor_x, row.facts.cursor_y)


def test_the_alternate_screen_is_reported(shared: Listener) -> None:
    listener, server = shared, shared.server
    pane = server.create("agent", python("import os\nos.write(1, b'\\033[?1049hfull')\nos.read(0, 1)\n")).pane_id
    listener.until_shown(pane, "full")
    kept = Kept()
    listener.hub.cursor(pane, kept.append)
    listener.until(lambda: kept)

    assert getattr(kept.answer, "alternate", None) is True


def test_history_and_wrapped_lines_can_be_read(shared: Listener) -> None:
    listener, server = shared, shared.server
    lines = "import os\nos.write(1, b''.join(b'line%d\\n' % n for n in range(100)) + b'w' * 30)\nos.read(0, 1)\n"
    pane = server.create("agent", python(lines), size=(20, 5)).pane_id
    listener.until_shown(pane, "wwww")

    everything = listener.hub.call(requests.capture(pane, start="-", ansi=False, join=True))
    assert [b"line0", b"line1"] == everything[:2]
    assert b"w" * 30 == [row for row in everything if row][-1]
    assert 2 + 5 == len(listener.hub.call(requests.capture(pane, start=-2)))


def test_every_byte_of_a_key_arrives(shared: Listener, folder: Path) -> None:
    """Alt, function keys, UTF-8, NUL, high bytes, and what tmux would read as commands."""
    listener, server = shared, shared.server
    typed = (
        bytes(range(256))
        + "é✓🙂".encode()
        + b"\x1b[13;2u\x1bb;\n#{pid};kill-server\n-t x'\"$HOME"
        + bytes(range(256)) * 2
    )
    pane = server.create("agent", recorder(folder / "got")).pane_id
    listener.until_shown(pane, "ready")
    listener.hub.keys(pane, typed)

    listener.until(lambda: len(typed) == (folder / "got").stat().st_size)
    assert typed == (folder / "got").read_bytes()


def test_a_key_press_is_refused_by_a_dead_pane(listener: Listener, server: TmuxServer) -> None:
    pane = server.create("agent", ["true"]).pane_id
    listener.ending(pane)
    kept = Kept()
    listener.hub.press(pane, b"\r", kept.append)
    listener.until(lambda: kept)

    assert "pane-dead" == kept.error.code


def test_a_pane_that_is_not_there_is_an_error_in_every_answer(shared: Listener) -> None:
    listener = shared
    asked: list[TmuxRequest[Any]] = [
        requests.capture("%9999"),
        requests.screen("%9999"),
        requests.row("%9999", 0),
        requests.press("%9999", b"x"),
    ]
    for missing in asked:
        with pytest.raises(TmuxCommandError, match="can't find pane"):
            listener.hub.call(missing)
    with pytest.raises(TmuxCommandError, match="no pane %9999"):
        listener.hub.call(requests.screen_facts("%9999"))


def test_a_size_stays_until_a_client_attaches(shared: Listener) -> None:
    listener, server = shared, shared.server
    pane = server.create("agent", ["cat"])
    listener.hub.resize(pane.window_id, 77, 22)
    listener.until(lambda: (77, 22) == (facts(server, pane.pane_id).width, facts(server, pane.pane_id).height))
    assert b"" == server.run("show-options", "-wv", "-t", pane.window_id, "window-size")
    server.resize(pane.window_id, 88, 23)

    assert (88, 23) == (facts(server, pane.pane_id).width, facts(server, pane.pane_id).height)
    assert b"" == server.run("show-options", "-wv", "-t", pane.window_id, "window-size")


class Terminal:
    """A person's terminal: a pty with a program on it."""

    def __init__(self, argv: list[str], columns: int, rows: int) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color"}
        self.process = subprocess.Popen(
            argv, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
        )
        os.close(slave)
        self.shown = b""

    def shows(self, text: bytes) -> bool:
        while select.select([self.master], [], [], 0)[0]:
            try:
                self.shown += os.read(self.master, 65536)
            except OSError:
                break
        return text in self.shown


def test_a_user_can_attach_type_and_leave_with_one_key(listener: Listener, server: TmuxServer) -> None:
    """The window follows the terminal that looks at it, and our hub's client does not hold it back."""
    pane = server.create("agent", ["cat"])
    listener.hears(pane.pane_id)
    terminal = Terminal(server.attach_argv("agent"), 100, 30)
    try:
        listener.until(lambda: terminal.shows(b"\x1b[") and facts(server, pane.pane_id).attached == 1)
        assert (100, 30) == (facts(server, pane.pane_id).width, facts(server, pane.pane_id).height)
        os.write(terminal.master, b"hello there\r")
        listener.until(lambda: terminal.shows(b"hello there"))
        listener.until(lambda: b"hello there" in listener.said[pane.pane_id])
        os.write(terminal.master, b"\x1d")
        listener.until(lambda: terminal.shows(b"detached") and terminal.process.poll() is not None)
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.master)

    assert not facts(server, pane.pane_id).is_dead


def test_attaching_to_a_child_shows_the_child(server: TmuxServer) -> None:
    parent = server.create("parent", ["cat"])
    child = server.create("child", python("print('I am the child', flush=True)\ninput()\n"), parent=parent.session_id)
    terminal = Terminal(server.attach_argv(child.session_id, child.window_id), 100, 30)
    try:
        until(lambda: terminal.shows(b"I am the child"))
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.master)


def test_a_pane_can_be_restarted(listener: Listener, server: TmuxServer) -> None:
    pane = server.create("agent", ["false"])
    assert (1, None) == listener.ending(pane.pane_id)
    again = server.respawn(pane.pane_id, ["cat"])

    assert (pane.session_id, pane.window_id) == (again.session_id, again.window_id)
    assert pane.pid != again.pid
    assert [again.pane_id] == [seen.pane_id for seen in panes_of(server)]
    assert [("agent", 120, 40)] == [(seen.kasmon_id, seen.width, seen.height) for seen in panes_of(server)]
    listener.hub.keys(again.pane_id, b"alive\r")
    listener.until(lambda: b"alive" in listener.said[again.pane_id])


def test_a_pane_too_small_to_be_split_is_restarted_too(server: TmuxServer) -> None:
    pane = server.create("agent", ["cat"])
    server.resize(pane.window_id, 1, 1)

    again = server.respawn(pane.pane_id, ["cat"])

    assert [again.pane_id] == [seen.pane_id for seen in panes_of(server)]


def test_a_pane_with_unread_last_output_is_restarted_and_the_server_continues(server: TmuxServer) -> None:
    """tmux 3.3a dies of `respawn-pane` then, and every agent with it."""
    pane, flood = server.create("agent", ["sh", "-c", "read x; seq 300"]), server.create("flood", ["yes"])
    argv = [server.program, "-S", str(server.socket), "-C", "attach-session", "-f", "pause-after=1", "-t", "=agent"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=server.environment) as deaf:
        server.run("link-window", "-d", "-s", flood.window_id, "-t", f"{pane.session_id}:")
        server.run("send-keys", "-t", pane.pane_id, "Enter")
        until(lambda: any(seen.is_dead for seen in panes_of(server)))
        again = server.respawn(pane.pane_id, ["sh", "-c", "echo a; exec cat"])
        until(lambda: b"a\n" in server.run("capture-pane", "-p", "-t", again.pane_id))
        deaf.kill()


@pytest.mark.parametrize("name", ["fix the #1 bug; then #(rest)", 'it\'s "done";', "-t @0 {x} ~", "écrire 日本"])
def test_the_name_is_shown_to_attached_clients(shared: Listener, name: str) -> None:
    server = shared.server
    pane = server.create("agent", ["cat"])
    shared.hub.call(requests.rename(pane.window_id, name))

    assert f"{name}\n" == server.run("display-message", "-p", "-t", pane.window_id, "#{window_name}").decode()
    assert f"{name}\n" == server.run("show-options", "-wv", "-t", pane.window_id, "@kasmon_name").decode()
    assert "agent" == facts(server, pane.pane_id).kasmon_id


def test_a_program_can_write_its_title_but_not_its_name(shared: Listener) -> None:
    listener, server = shared, shared.server
    pane = server.create(
        "agent", python("import os\nos.write(1, b'\\033]2;my title\\007\\033kmy name\\033\\\\done')\nos.read(0, 1)\n")
    )
    listener.until_shown(pane.pane_id, "done")

    assert "my title" == listener.hub.call(requests.pane_text(pane.pane_id)).title
    assert b"agent\n" == server.run("display-message", "-p", "-t", pane.window_id, "#{window_name}")
