"""`python -m kasmon.scripted` in a real pty: its screen, its keys, what it reports, and what it leaves behind."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pyte
import pytest

from kasmon.scripted_agent.script import HARMLESS
from kasmon.scripted_agent.terminal.keyboard import Key, Keyboard

LIMIT_S = 100.0
REPORT = re.compile(rb"\x1b\]7501;([^\x07]*)\x07")
STRING = re.compile(rb"\x1b\][^\x07]*\x07")
KITTY = re.compile(rb"\x1b\[[<>]\d*u")
"""What pyte would print instead of doing."""
LEAVING = (b"\x1b[?1049l", b"\x1b[?2004l", b"\x1b[<u", b"\x1b[?25h", b"\x1b[23;0t")


class Program:
    """The program in a pty of its own, and everything that it wrote."""

    def __init__(self, *arguments: str, columns: int = 80, rows: int = 24, **variables: str) -> None:
        self.master, self.slave = pty.openpty()
        self.written = b""
        self._columns, self._rows = columns, rows
        self._size()
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "kasmon.scripted", *arguments],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            env={**os.environ, **variables},
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for descriptor in (self.master, self.slave):
            with contextlib.suppress(OSError):
                os.close(descriptor)

    @property
    def screen(self) -> list[str]:
        """The rows that a terminal would show now."""
        terminal = pyte.Screen(self._columns, self._rows)
        pyte.ByteStream(terminal).feed(KITTY.sub(b"", STRING.sub(b"", self.written)))
        return [row.rstrip() for row in terminal.display]

    @property
    def reports(self) -> list[dict[str, str]]:
        """What it said of its state, oldest first; the message in clear."""
        found = []
        for report in REPORT.findall(self.written):
            parts = dict(part.split("=", 1) for part in report.decode().split(":"))
            if "msg" in parts:
                parts["msg"] = b64decode(parts["msg"]).decode()
            found.append(parts)
        return found

    def type(self, keys: str | bytes) -> None:
        data = keys.encode() if isinstance(keys, str) else keys
        while data:
            data = data[os.write(self.master, data) :]

    def resize(self, columns: int, rows: int) -> None:
        self._columns, self._rows = columns, rows
        self._size()
        os.kill(self.process.pid, signal.SIGWINCH)

    def until_shown(self, text: str) -> list[str]:
        self._read_until(lambda: any(text in row for row in self.screen), text)
        return self.screen

    def until_state(self, state: str) -> dict[str, str]:
        self._read_until(lambda: bool(self.reports) and self.reports[-1]["state"] == state, f"the state {state}")
        return self.reports[-1]

    def until_over(self) -> int:
        self._read_until(lambda: self.process.poll() is not None, "its end")
        self._read(0)
        return self.process.returncode

    def _read_until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            self._read(0.05)
            if time.monotonic() > deadline:
                raise TimeoutError("\n".join([f"never: {what}", *self.screen]))

    def _read(self, limit_s: float) -> None:
        while select.select([self.master], [], [], limit_s)[0]:
            self.written += os.read(self.master, 1 << 16)
            limit_s = 0

    def _size(self) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", self._rows, self._columns, 0, 0))


@pytest.fixture
def agent() -> Iterator[Program]:
    """It is idle and does not pause."""
    with Program("--speed", "0") as program:
        program.until_state("idle")
        yield program


def test_it_has_a_screen_of_its_own_with_a_prompt_at_the_bottom(agent: Program) -> None:
    screen = agent.screen

    assert "scripted agent · idle" in screen[0]
    assert "❯" == screen[-2]
    assert b"\x1b[?1049h" in agent.written
    assert b"\x1b[?2004h" in agent.written


def test_text_typed_and_sent_with_enter_is_a_prompt(agent: Program) -> None:
    agent.type("say héllo 漢字\r")
    screen = agent.until_shown("  héllo")
    agent.until_state("done")

    assert "❯ say héllo 漢字" in screen
    assert "❯" == agent.screen[-2]


def test_other_text_is_answered(agent: Program) -> None:
    agent.type("Could you look at the login?\r")
    agent.until_state("done")

    assert sum("Could you look at the login?" in row for row in agent.screen) >= 2


@pytest.mark.parametrize(
    "new_line", [b"\x1b\r", b"\n", b"\x1b[13;2u", b"\x1b[27;2;13~"], ids=["alt", "ctrl-j", "kitty", "xterm"]
)
def test_a_prompt_may_have_many_lines(agent: Program, new_line: bytes) -> None:
    agent.type(b"say one" + new_line + b"say two\r")
    agent.until_state("done")

    assert {"  one", "  two"} <= set(agent.screen)


def test_a_paste_is_text_whatever_it_holds_and_is_sent_by_enter_alone(agent: Program) -> None:
    agent.type(b"\x1b[200~say one\rsay two\n\x03\x04\x1b[A\x1b[201~")
    agent.until_shown("say two")
    assert "idle" == agent.reports[-1]["state"]

    agent.type("\r")
    agent.until_state("done")
    assert {"  one", "  two"} <= set(agent.screen)


def test_a_large_paste_arrives_whole(agent: Program) -> None:
    agent.type(b"\x1b[200~notice " + b"x" * 200_000 + b" end\x1b[201~\r")
    agent.until_state("done")

    assert agent.until_shown(" end")


def test_the_text_can_be_edited(agent: Program) -> None:
    agent.type("say tree\x1b[D\x1b[D\x1b[D\x1b[Dth\x1b[3~\x05s\x7f!\x01\x1b[C\x1b[C\x1b[C\x1b[C=\x05 lost\x17\r")
    agent.until_state("done")

    assert "  =three!" in agent.screen


def test_a_permission_is_a_numbered_menu_with_its_exact_rule(agent: Program) -> None:
    agent.type("ask git push --force\r")
    report = agent.until_state("blocked")

    assert {"kind": "permission", "app": "scripted", "msg": "Bash git push --force"}.items() <= report.items()
    assert agent.screen[-6:-1] == [
        "Bash git push --force",
        "Do you want to proceed?",
        "❯ 1. Yes",
        "  2. Yes, and don't ask again for: Bash(git push:*)",
        "  3. No",
    ]


@pytest.mark.parametrize(
    ("keys", "told", "shown"),
    [
        ("1", "allowed once", "● Bash git push ✓"),
        ("\r", "allowed once", "● Bash git push ✓"),
        ("2", "always allowed", "· allowed by Bash(git push:*)"),
        ("\x1b[B\r", "always allowed", "· allowed by Bash(git push:*)"),
        ("\x1bOA\r", "denied", "  I did not use Bash on git push."),
        ("3", "denied", "  I did not use Bash on git push."),
        ("9x3", "denied", "  I did not use Bash on git push."),
    ],
)
def test_a_permission_is_answered_by_a_digit_or_by_arrows(agent: Program, keys: str, told: str, shown: str) -> None:
    agent.type("ask git push\n" + "ask git push --tags\r")
    agent.until_state("blocked")

    agent.type(keys)

    assert f"  ⎿ {told} by user" in agent.until_shown(told)
    assert shown in agent.until_shown(shown)


def test_a_question_is_answered_by_its_number(agent: Program) -> None:
    agent.type("question Which colour?|red|dark blue\r")
    assert "question" == agent.until_state("blocked")["kind"]

    agent.type("2")

    assert "  You chose dark blue." in agent.until_shown("You chose")


def test_one_request_is_answered_after_the_other(agent: Program) -> None:
    agent.type("ask a x &\nask b x\r")
    agent.until_shown("Bash (1 of 2) a x")
    agent.type("1")
    agent.until_shown("Bash b x")
    agent.type("1")

    agent.until_state("done")


@pytest.mark.parametrize("script", ["hang", "ask git push"])
def test_escape_interrupts(agent: Program, script: str) -> None:
    agent.type(f"{script}\r")
    agent.until_shown("hang" if script == "hang" else "Do you want to proceed?")

    agent.type("\x1b")

    agent.until_shown("── interrupted")
    assert "idle" == agent.until_state("idle")["state"]


def test_keys_right_after_an_escape_are_not_lost(agent: Program) -> None:
    agent.type("hang\r")
    agent.until_state("working")
    agent.type(b"\x1b\x1b[200~say on\x1b[201~\r")

    agent.until_state("done")
    assert "  on" in agent.screen


def test_its_state_is_reported_from_start_to_end(agent: Program) -> None:
    agent.type("hang\r")
    agent.until_state("working")
    agent.type("\x1b")
    agent.until_state("idle")
    agent.type("say a\nfail no network\r")
    assert "no network" == agent.until_state("error")["msg"]
    agent.type("\x04")
    agent.until_over()

    assert ["idle", "working", "idle", "error", "clear"] == [report["state"] for report in agent.reports]


def test_the_window_is_named_after_the_prompt(agent: Program) -> None:
    agent.type("prompt Fix the \u202elogin\nsay a\r")
    agent.until_state("done")

    assert "\x1b]2;scripted · Fix the \ufffdlogin\x07".encode() in agent.written


def test_no_control_character_reaches_the_terminal(agent: Program) -> None:
    agent.type(b"\x1b[200~say a\x1b]52;c;Zm9v\x07b\x9b6n\x1b[6nc\nask d\x1b[31m\x1b[201~\r")
    agent.until_state("blocked")

    ours = rb"\x1b\[[0-9;?<>]*[a-zA-Z]|\x1b\]7501;[^\x07]*\x07|\x1b\]2;[^\x07]*\x07"
    rest = re.sub(ours, b"", agent.written)
    assert b"\x1b" not in rest
    assert b"\x1b[6n" not in agent.written
    assert b"Zm9v" not in rest


def test_a_new_size_is_drawn_at_once(agent: Program) -> None:
    agent.type("say " + "word " * 30 + "\r")
    agent.until_state("done")
    before = len(agent.written)
    agent.resize(40, 12)

    agent._read_until(lambda: agent.screen[-2] == "❯" and "─" * 40 in agent.screen, "the new size")
    assert "scripted agent · done".encode() in agent.written[before:]


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (5, 4), (9, 2)])
def test_a_tiny_terminal_causes_no_crash(agent: Program, size: tuple[int, int]) -> None:
    agent.resize(*size)
    agent.type("say hello\nask git push\r")
    agent.until_state("blocked")
    agent.type("1")
    agent.until_state("done")


def test_long_transcripts_can_be_paged(agent: Program) -> None:
    agent.type("".join(f"say number {n}\n" for n in range(60)) + "\r")
    agent.until_shown("number 59")
    for _ in range(9):
        agent.type("\x1b[5~")
    agent.until_shown("  number 0")
    for _ in range(20):
        agent.type("\x1b[6~")

    agent.until_shown("number 59")


def test_prompts_to_a_busy_agent_are_counted_and_played_later(agent: Program) -> None:
    agent.type("hang\r")
    agent.until_state("working")
    agent.type("say later\r")
    agent.until_shown("1 waiting")
    agent.type("\x1b")

    assert "  later" in agent.until_shown("  later")


def is_as_before(program: Program) -> bool:
    return termios.tcgetattr(program.slave) == program.before and all(each in program.written for each in LEAVING)


@pytest.mark.parametrize("keys", ["\x04", "\x03\x03", "draft\x03\x03"], ids=["ctrl-d", "ctrl-c twice", "with a draft"])
def test_ctrl_d_or_two_ctrl_c_end_it(agent: Program, keys: str) -> None:
    agent.type(keys)

    assert 0 == agent.until_over()
    assert is_as_before(agent)
    assert "clear" == agent.reports[-1]["state"]


def test_ctrl_c_once_only_clears_the_draft(agent: Program) -> None:
    agent.type("draft\x03")
    agent.until_shown("Ctrl+C again")
    agent.type("say on\r")
    agent.until_state("done")

    assert "  on" in agent.screen


@pytest.mark.parametrize(("crash", "code"), [("3", 3), ("0", 0), ("SIGKILL", -9), ("-15", -15), ("SIGSEGV", -11)])
def test_a_crash_is_real_and_restores_the_terminal(agent: Program, crash: str, code: int) -> None:
    agent.type(f"say last words\ncrash {crash}\r")

    assert code == agent.until_over()
    assert is_as_before(agent)
    assert b"The scripted agent ended" in agent.written


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT])
def test_a_signal_ends_it_and_restores_the_terminal(agent: Program, number: signal.Signals) -> None:
    agent.process.send_signal(number)

    assert -number == agent.until_over()
    assert is_as_before(agent)


def test_it_does_not_outlive_its_terminal(agent: Program) -> None:
    os.close(agent.slave)
    os.close(agent.master)

    assert 129 == agent.process.wait(LIMIT_S) or agent.process.returncode == -signal.SIGHUP


def test_a_script_comes_from_a_file_or_from_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "script"
    file.write_text("say from a file\n", "utf-8")
    for arguments, said in ([str(file)], "  from a file"), (["-c", "say from here"], "  from here"):
        with Program("--speed", "0", "--seed", "3", *arguments) as program:
            program.until_state("done")
            assert said in program.screen


def test_it_reports_starting_while_its_script_boots() -> None:
    with Program("-c", "boot 1000\nsay never") as program:
        program.until_shown("scripted agent · starting")
        program.type("\x04")

        assert 0 == program.until_over()
        assert ["clear"] == [report["state"] for report in program.reports]


def test_without_colours_it_uses_none() -> None:
    with Program("--speed", "0", "-c", "say # a `b`\nnotice c", NO_COLOR="1") as program:
        program.until_state("done")

        assert {b"0", b"1", b"7"} >= set(re.findall(rb"\x1b\[([0-9;]*)m", program.written))


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--help"], 0, "Usage:"),
        (["--sed", "1"], 2, "there is no option '--sed'"),
        (["--seed", "x"], 2, "--seed 'x' is not a number"),
        (["--speed", "-1"], 2, "--speed '-1' is not 0 or more"),
        (["-c"], 2, "'-c' needs a value"),
        (["/nowhere/at/all"], 2, "cannot read '/nowhere/at/all'"),
        ([], 2, "must be a terminal"),
    ],
)
def test_an_invalid_option_gives_a_sentence(arguments: list[str], code: int, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "kasmon.scripted", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )

    assert code == done.returncode
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_only_signals_that_end_a_process_are_offered() -> None:
    ignored = {"SIGCHLD", "SIGCONT", "SIGURG", "SIGWINCH", "SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU"}

    assert ignored <= HARMLESS


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"ab", [Key("text", "ab")]),
        ("é漢".encode(), [Key("text", "é漢")]),
        (b"a\rb\x7f", [Key("text", "a"), Key("enter"), Key("text", "b"), Key("backspace")]),
        (b"\x1b[A\x1bOB", [Key("up"), Key("down")]),
        (b"\x1b[1;5C\x1b[3~\x1b[5~", [Key("right"), Key("delete"), Key("page-up")]),
        (b"\x1b[27u\x1b[99;5u\x1b[100;5u", [Key("escape"), Key("ctrl-c"), Key("ctrl-d")]),
        (b"\x1b]11;rgb:1/1/1\x1b\\\x1b[?62;4c\x1bP1$r\x1b\\a", [Key("text", "a")]),
        (b"\x1b[200~a\r\nb\x1b\x1b[201~c", [Key("paste", "a\nb\x1b"), Key("text", "c")]),
        (b"\x1bx\x00\x1b[<0;1;1M\x1b[I", []),
    ],
)
def test_bytes_are_keys_at_any_cut(data: bytes, keys: list[Key]) -> None:
    whole, cut = Keyboard(), Keyboard()

    assert keys == list(whole.feed(data))
    pieces = [key for n in range(len(data)) for key in cut.feed(data[n : n + 1])]
    assert "".join(map(str, _joined(keys))) == "".join(map(str, _joined(pieces)))


def _joined(keys: list[Key]) -> list[Key]:
    joined: list[Key] = []
    for key in keys:
        if key.name == "text" and joined and joined[-1].name == "text":
            joined[-1] = Key("text", joined[-1].text + key.text)
        elif key != Key("text", ""):
            joined.append(key)
    return joined


def test_an_escape_alone_is_a_key_when_nothing_follows_it() -> None:
    keyboard = Keyboard()

    assert [] == list(keyboard.feed(b"\x1b"))
    assert keyboard.waits
    assert [Key("escape")] == list(keyboard.give_up_waiting())
    assert [Key("escape"), Key("text", "[")] == [*keyboard.feed(b"\x1b["), *keyboard.give_up_waiting()]
