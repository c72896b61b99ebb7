"""One control client, with small programs in tmux's place: what a pipe can do to it."""

import fcntl
import sys
import termios
from collections.abc import Callable, Iterator

import pytest

from kasmon.errors import KasmonError, TmuxCommandError, TmuxServerGoneError
from kasmon.tmux.control import client as control_client
from kasmon.tmux.control.client import ControlClient
from kasmon.tmux.control.requests import TmuxRequest, command
from kasmon.tmux.process_identity import identify
from tests.support.tmux.hub_listener import Kept, python
from tests.support.wait import until

ECHO = (
    "import os, sys\n"
    "number = 0\n"
    "def answer(*lines, word='end', flags=1):\n"
    "    global number\n"
    "    number += 1\n"
    "    body = ''.join(f'{line}\\n' for line in lines)\n"
    "    sys.stdout.write(f'%begin 1 {number} {flags}\\n{body}%{word} 1 {number} {flags}\\n')\n"
    "    sys.stdout.flush()\n"
)
POLITE = (
    ECHO + "answer(flags=0)\n"
    "for line in sys.stdin:\n"
    "    for part in line.strip().split(' ; '):\n"
    "        if part == 'bad':\n"
    "            answer('no such thing', word='error')\n"
    "            break\n"
    "        if part == 'leave':\n"
    "            print('%exit', flush=True)\n"
    "            sys.exit()\n"
    "        if part == 'spoof':\n"
    "            import signal\n"
    "            signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "            answer('row', f'%end 1 {number + 1} 1', 'row')\n"
    "            continue\n"
    "        print('%output %5 before', flush=True)\n"
    "        answer(part[:40], len(part))\n"
)
Start = Callable[[str], ControlClient]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a client on a program; closed and gone in the end."""
    clients: list[ControlClient] = []

    def start(code: str) -> ControlClient:
        clients.append(ControlClient(python(code)))
        return clients[-1]

    yield start
    for client in clients:
        client.close()
        assert identify(client.pid) is None


def two(line: str) -> TmuxRequest[list[list[bytes]]]:
    return TmuxRequest(line, 2, lambda answers: list(answers))


def test_a_call_gives_its_own_answer(start: Start) -> None:
    client = start(POLITE)

    assert [b"one", b"3"] == client.call(command("one"))
    assert [b"three", b"5"] == client.call(command("three"))


def test_answers_come_in_order_each_to_its_own_question(start: Start) -> None:
    client, answers = start(POLITE), list[object]()
    for number in range(200):
        client.submit(command(f"n{number}"), answers.append)
    client.call(command("last"))

    assert [[f"n{number}".encode(), str(len(f"n{number}")).encode()] for number in range(200)] == answers


def test_a_line_of_two_commands_has_two_answers_and_one_if_the_first_fails(start: Start) -> None:
    client = start(POLITE)

    assert [[b"a", b"1"], [b"b", b"1"]] == client.call(two("a ; b"))
    with pytest.raises(TmuxCommandError, match="no such thing"):
        client.call(two("bad ; b"))
    assert [b"c", b"1"] == client.call(command("c"))


def test_output_of_panes_is_reported_in_order_meanwhile(start: Start) -> None:
    client, told = start(POLITE), list[object]()
    client.on_output = lambda pane, data: told.append((pane, data))
    client.submit(command("a"), told.append)
    client.call(command("b"))

    assert [("%5", b"before"), [b"a", b"1"], ("%5", b"before")] == told


def test_a_callback_may_call(start: Start) -> None:
    """And what had come behind its own news is told after it, not lost."""
    client, told = start(POLITE), list[object]()

    def ask_more(answer: object) -> None:
        told.append(answer)
        told.append(client.call(command("inner")))

    client.submit(command("outer"), ask_more)
    client.submit(command("behind"), told.append)
    client.call(command("last"))

    assert [b"outer", b"behind", b"inner"] == [answer[0] for answer in told if isinstance(answer, list)]


def test_a_full_pipe_blocks_no_caller_and_loses_nothing(start: Start) -> None:
    client, answers = start("import sys\nsys.stdin.readline()\n" + POLITE), list[object]()
    long = "x" * 8000
    client.submit(command("not read"))
    for _ in range(100):
        client.submit(command(long), answers.append)

    assert client.wants_write()

    def all_answered() -> bool:
        client.flush()
        client.pump()
        return len(answers) == 99

    until(all_answered)
    assert not client.wants_write()


def test_every_request_is_answered_at_the_end(start: Start) -> None:
    client, kept, gone = start(POLITE), Kept(), list[int]()
    client.on_exit = lambda: gone.append(1)
    client.submit(command("leave"), kept.append)
    until(lambda: not client.pump())

    assert isinstance(kept.error, TmuxServerGoneError)
    assert [1] == gone
    late = Kept()
    client.submit(command("too late"), late.append)
    assert isinstance(late.error, TmuxServerGoneError)
    with pytest.raises(TmuxServerGoneError):
        client.call(command("too late"))


def test_an_answer_that_never_comes_is_waited_for_within_a_limit(start: Start) -> None:
    client = start("import sys\nsys.stdin.read()\n")

    with pytest.raises(TmuxCommandError, match="no answer"):
        client.call(command("hello"), limit_s=0.05)


def test_an_error_in_parsing_an_answer_is_the_answer(start: Start) -> None:
    client, kept = start(POLITE), Kept()

    def refuse(answers: object) -> None:
        raise KasmonError("no")

    client.submit(TmuxRequest("a", 1, refuse), kept.append)
    client.call(command("b"))

    assert "no" == str(kept.error)


def test_a_connection_that_a_screen_has_confused_is_ended(start: Start) -> None:
    client, kept = start(POLITE), Kept()
    client.submit(command("spoof"), kept.append)
    until(lambda: not client.pump())

    assert [b"row"] == kept.answer
    assert not client.is_open


def test_closing_ends_a_client_that_ignores_all_signals_but_kill(start: Start) -> None:
    client = start(
        "import os, signal\nsignal.signal(15, signal.SIG_IGN)\nos.write(1, b'%up\\n')\nwhile True: signal.pause()\n"
    )
    ups = list[str]()
    client.on_notice = lambda notice: ups.append(notice.kind)
    until(lambda: (client.pump(), ups)[-1])
    client.close()
    client.close()

    assert identify(client.pid) is None


def test_closing_ends_a_client_that_cannot_write_its_last_output(start: Start) -> None:
    client = start("import os\nos.read(0, 1)\nos.write(1, b'x' * 1_000_000)\n")
    client.close()

    assert identify(client.pid) is None


def test_closing_answers_open_requests_and_is_not_reported_as_lost(start: Start) -> None:
    client, kept, gone = start("import sys\nsys.stdin.read()\n"), Kept(), list[int]()
    client.on_exit = lambda: gone.append(1)
    client.submit(command("hello"), kept.append)
    client.close()

    assert isinstance(kept.error, TmuxServerGoneError)
    assert [] == gone


def test_a_flood_leaves_time_for_other_tasks(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """One pump reads so much and no more, however much is there."""
    monkeypatch.setattr(control_client, "READ_BYTES", 100)
    monkeypatch.setattr(control_client, "PUMP_BYTES", 1000)
    client, sizes = start("import os, sys\nos.write(1, b'%output %1 x\\n' * 1000)\nsys.stdin.read()\n"), list[int]()
    client.on_output = lambda pane, data: sizes.append(len(data))

    def all_there() -> bool:
        held = fcntl.ioctl(client.fileno(), termios.FIONREAD, b"\0" * 4)
        return int.from_bytes(held, sys.byteorder) >= 13_000

    until(all_there)
    client.pump()
    assert 50 < len(sizes) < 100
    until(lambda: client.pump() and len(sizes) == 1000)
