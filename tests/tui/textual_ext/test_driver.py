"""Stdin through a real terminal and Textual's own driver: what is typed, what arrives, what is left behind."""

import json
import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kasmon.tui.textual_ext.driver import TerminalOutput
from tests.model.prompts.test_image import png
from tests.support.tui.pty_program import OnTerminal, program
from tests.support.wait import until
from tests.tui.terminal.test_clipboard import reply
from tests.tui.textual_ext.test_driver_tap import FOR_TEXTUAL, PLAIN_KEYS, REPLIES


def test_a_whole_screen_is_one_call() -> None:
    """Between two calls the thread that draws would go first."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as there, os.fdopen(writing, "w", encoding="utf-8", buffering=1) as file:
        file.write("kept back, ")
        output = TerminalOutput(file)
        output.write("▌" * 10_000)

        assert "kept back, " + "▌" * 10_000 == os.read(there.fileno(), 1 << 16).decode()


def test_a_letter_unknown_to_the_terminal_is_one_cell() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as there, os.fdopen(writing, "w", encoding="ascii") as file:
        TerminalOutput(file).write("a▌b")

        assert b"a?b" == os.read(there.fileno(), 100)


def test_a_nonblocking_terminal_gets_all_output_too() -> None:
    """Another program that shares it may have set it so."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    got: list[bytes] = []
    with os.fdopen(reading, "rb") as there, os.fdopen(writing, "w", encoding="utf-8") as file:
        reader = threading.Thread(target=lambda: got.append(there.read(1_000_000)))
        reader.start()
        TerminalOutput(file).write("x" * 1_000_000)
        reader.join(timeout=20)

    assert [1_000_000] == [len(data) for data in got]


def test_a_closed_terminal_is_reported() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", encoding="utf-8") as file, pytest.raises(BrokenPipeError):
        TerminalOutput(file).write("x")


class Dashboard:
    """`tests.support.tui.programs.tapped` at work: its terminal, and what its session was told."""

    def __init__(self, terminal: OnTerminal, notes: Path) -> None:
        self.terminal, self._path = terminal, notes

    @property
    def told(self) -> list[tuple[str, object]]:
        lines = self._path.read_text().split("\n")[:-1] if self._path.exists() else []  # the last one is being written
        return [(kind, value) for kind, value in map(json.loads, lines)]

    def values(self, kind: str) -> list[object]:
        return [value for each, value in self.told if each == kind]

    @property
    def keys(self) -> bytes:
        return b"".join(bytes.fromhex(str(value)) for value in self.values("keys"))

    def until_told(self, *wanted: str) -> None:
        until(lambda: all(self.values(kind) for kind in wanted), what=f"{wanted} among {self.told[-9:]}")


@contextmanager
def dashboard(
    home: Path,
    *,
    modes: dict[str, object] | None = None,
    history: int = 0,
    clean: bool = True,
    controlling: bool = True,
    **more: object,
) -> Iterator[Dashboard]:
    notes = home / "notes"
    asked = json.dumps({"modes": modes or {}, "history": history, "clean": clean, **more})
    with OnTerminal(program("tapped", str(notes), asked), home, controlling=controlling) as screen:
        running = Dashboard(screen, notes)
        running.until_told("live", "focus")
        yield running


def test_every_key_arrives_byte_for_byte(tmp_path: Path) -> None:
    with dashboard(tmp_path) as running:
        for name, key in PLAIN_KEYS.items():
            before = running.keys
            running.terminal.send(key)
            until(lambda before=before: len(running.keys) > len(before), what=f"anything of {name}")  # type: ignore[misc]
            until(lambda before=before, key=key: running.keys == before + key, what=name)  # type: ignore[misc]


def test_replies_of_the_terminal_are_not_passed_on(tmp_path: Path) -> None:
    with dashboard(tmp_path) as running:
        for reply in (*REPLIES.values(), *FOR_TEXTUAL.values()):
            running.terminal.send(reply)
        running.terminal.send("é".encode()[:1])
        running.terminal.send("é".encode()[1:] + b".")
        until(lambda: running.keys.endswith(b"."))

        assert "é.".encode() == running.keys
        assert [] == running.values("textual")
        running.until_told("app-blur")


def test_the_leave_key_returns_the_focus_at_once(tmp_path: Path) -> None:
    """Also the rest of the same read is the dashboard's."""
    with dashboard(tmp_path) as running:
        running.terminal.until(b"\x1b[>0u")
        running.terminal.send(b"ab\x1dx")
        running.until_told("left", "textual")

        assert (b"ab", ["x"]) == (running.keys, running.values("textual"))
        assert ["blur", "watch", "left"] == [kind for kind, _ in running.told if kind in ("blur", "left", "watch")][-3:]
        running.terminal.until(b"\x1b[<u")


def test_the_picture_in_the_clipboard_is_taken_out_of_the_terminals_reply_and_keys_arrive(tmp_path: Path) -> None:
    picture = png(40, 20) + bytes(range(256)) * 400
    with dashboard(tmp_path) as running:
        running.terminal.send(b"\x1dx")
        running.until_told("left", "textual")
        running.terminal.send(b"\x1bv")
        running.terminal.until(b"\x1b]5522;type=read:id=1;")
        running.terminal.send(reply(picture, asked=b"1") + b"y")
        running.until_told("picture")
        until(lambda: running.values("textual")[-1] == "y", what="the key")

        assert [[picture.hex(), ""]] == running.values("picture")
        assert ["x", "alt+v", "y"] == running.values("textual")


def test_a_paste_arrives_whole(tmp_path: Path) -> None:
    text = "line one\rline two é\r" * 4000
    with dashboard(tmp_path) as running:
        running.terminal.send(b"\x1b[200~" + text.encode() + b"\x1b[201~\x1b[200~a\x1b[31mb\x1b[201~!")
        until(lambda: running.keys.endswith(b"!"))

        assert [text] == running.values("paste")
        assert b"\x1b[200~a\x1b[31mb\x1b[201~!" == running.keys


def test_the_mouse_belongs_to_the_program_inside_and_to_the_dashboard_outside(tmp_path: Path) -> None:
    with dashboard(tmp_path, modes={"mouse": "standard", "mouse_sgr": True}) as running:
        running.terminal.send(b"\x1b[<0;10;6M\x1b[<0;10;6m\x1b[<0;3;1M")
        running.until_told("mouse")

        assert b"\x1b[<0;10;3M\x1b[<0;10;3m" == running.keys
        assert [[2.0, 0.0]] == running.values("mouse")


def test_typing_returns_from_the_scrollback(tmp_path: Path) -> None:
    with dashboard(tmp_path, history=5) as running:
        running.terminal.send(b"\x1b[5;2~\x1b[<65;10;6Mx")
        until(lambda: running.keys == b"x")

        assert [5, 2, 0] == running.values("scroll")


def test_a_dialog_above_takes_the_focus_and_returns_it(tmp_path: Path) -> None:
    with dashboard(tmp_path) as running:
        os.kill(running.terminal.pid, signal.SIGUSR1)
        running.until_told("dialog")
        until(lambda: running.terminal.seen.rstrip().count(b"\x1b[<u") == 1)
        running.terminal.send(b"a\x1d\r")
        until(lambda: "enter" in running.values("dialog-key"))
        until(lambda: running.terminal.seen.count(b"\x1b[>0u") == 2)
        running.terminal.send(b"b")
        until(lambda: running.keys)

        assert (["a", "ctrl+right_square_bracket", "enter"], b"b") == (running.values("dialog-key"), running.keys)
        assert [] == running.values("left")


def test_a_new_size_reaches_the_session_and_an_empty_one_is_ignored(tmp_path: Path) -> None:
    with dashboard(tmp_path) as running:
        running.terminal.resize(0, 0)
        running.terminal.resize(100, 30)
        until(lambda: [100, 26] == running.values("focus")[-1])

        assert all(all(size) for size in running.values("focus") if isinstance(size, list))


def test_a_stop_and_a_continue_keep_the_focus_and_the_terminal(tmp_path: Path) -> None:
    with dashboard(tmp_path) as running:
        screen = running.terminal
        os.kill(screen.pid, signal.SIGTSTP)
        os.waitpid(screen.pid, os.WUNTRACED)
        assert [None] == running.values("suspended")
        assert not screen.is_raw
        until(lambda: screen.seen.endswith(b"\x1b[?1049l\x1b[?25h\x1b[?1004l"))
        assert 2 == screen.seen[screen.seen.rindex(b"\x1b[>0u") :].count(b"\x1b[<u")

        for _ in range(2):
            shown = len(screen.seen)
            os.kill(screen.pid, signal.SIGCONT)
            until(lambda shown=shown: b"dashboard" in screen.seen[shown:])  # type: ignore[misc]
            until(lambda: screen.is_raw)
        screen.send(b"on")
        until(lambda: b"on" == running.keys)


def test_a_stop_in_the_middle_of_a_write_does_not_lock_up(tmp_path: Path) -> None:
    """Textual writes to the terminal in the signal handler itself, and waits there for a lock that it may hold."""
    with dashboard(tmp_path) as running:
        screen = running.terminal
        os.kill(screen.pid, signal.SIGUSR2)
        until(lambda: os.waitpid(screen.pid, os.WUNTRACED | os.WNOHANG)[0], what="the stop")
        assert not screen.is_raw
        os.kill(screen.pid, signal.SIGCONT)

        screen.send(b"x")
        until(lambda: running.keys)


def test_a_busy_dashboard_comes_back_from_a_program_that_had_its_terminal(tmp_path: Path) -> None:
    """However much there was to draw meanwhile, it draws nothing then, and everything afterwards."""
    counted = tmp_path / "counted"
    with OnTerminal(program("attaching", str(counted)), tmp_path) as screen:
        screen.until(b"it is yours")
        shown = len(screen.seen)
        until(lambda: int(counted.read_text() or 0) > 100, what="what Textual keeps waiting, three times over")
        assert not screen.is_raw
        assert b"<" not in screen.seen[shown:]

        screen.send(b"\n")
        until(lambda: b"what does not change" in screen.seen[shown:], what="the whole picture")
        until(lambda: int(re.findall(rb"<(\d+)>", screen.seen)[-1]) > 100, what="what is new in it")
        assert screen.is_raw


def test_a_dashboard_returns_also_from_a_program_that_could_not_start(tmp_path: Path) -> None:
    with OnTerminal(program("attaching", str(tmp_path / "counted"), "/no/such/program"), tmp_path) as screen:
        screen.until(b"cannot start '/no/such/program'")

        assert screen.is_raw


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT])
def test_a_signal_ends_the_dashboard_with_a_clean_terminal(tmp_path: Path, number: signal.Signals) -> None:
    with dashboard(tmp_path) as running:
        screen = running.terminal
        assert screen.is_raw
        os.kill(screen.pid, number)

        assert 128 + number == screen.ended()
        assert screen.before == screen.modes
        left_behind = screen.seen[screen.seen.rindex(b"\x1b[>0u") :]
        for undone in (b"\x1b[?1049l", b"\x1b[?1000l", b"\x1b[?1003l", b"\x1b[?2004l", b"\x1b[?1004l", b"\x1b[?25h"):
            assert undone in left_behind
        assert 2 == left_behind.count(b"\x1b[<u")


def test_a_signal_ends_a_dashboard_with_a_blocked_loop(tmp_path: Path) -> None:
    with dashboard(tmp_path, sticks=True, last_resort_s=0.1) as running:
        os.kill(running.terminal.pid, signal.SIGUSR1)
        running.until_told("stuck")
        os.kill(running.terminal.pid, signal.SIGHUP)

        assert 129 == running.terminal.ended()


@pytest.mark.parametrize("controlling", [True, False], ids=["with a controlling terminal", "without one"])
def test_a_closed_terminal_ends_the_dashboard_without_a_busy_loop(tmp_path: Path, controlling: bool) -> None:
    """A lost ssh connection; textual#6690 spins for ever where no SIGHUP comes."""
    with dashboard(tmp_path, controlling=controlling) as running:
        running.terminal.hang_up()

        assert 129 == running.terminal.ended()


def test_a_closed_terminal_is_detected_also_without_a_reader(tmp_path: Path) -> None:
    """Neither a signal nor a read says so here; a look at it does, about once a second."""
    with dashboard(tmp_path, controlling=False, deaf=True) as running:
        running.terminal.hang_up()

        assert 129 == running.terminal.ended()


def test_a_driver_without_the_guard_ends_with_its_terminal_too(tmp_path: Path) -> None:
    """Also where nobody watches over it, a read that fails is not tried for ever."""
    with dashboard(tmp_path, controlling=False, clean=False) as running:
        running.terminal.hang_up()

        assert running.terminal.ended()
