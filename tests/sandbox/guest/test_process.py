"""A process that is worked with over a line that may break: nothing is lost by that, and nothing comes twice."""

import base64
import contextlib
import select
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kasmon.sandbox.guest.process import InputBuffer, OutputBuffer
from kasmon.sandbox.guest_client.connection import AgentConnection, pack_request
from kasmon.sandbox.remote_guest.attach import NoSuchRunError, ProcessStream, StreamFrame
from tests.support.sandbox.guest_agent import Agent

LIMIT_S = 100.0


class Worked:
    """Somebody who works with one process, by lines that he may let go."""

    def __init__(self, agent: Agent, run: str) -> None:
        self.agent, self.said = agent, dict[str, bytearray]()
        self.tether = ProcessStream(run, lambda stream, data: self.said.setdefault(stream, bytearray()).extend(data))
        self.join()

    def join(self) -> None:
        assert self.tether.connect(self.agent.path)

    def text(self, stream: str = "out") -> str:
        return self.said.get(stream, bytearray()).decode()

    def until(self, done: Callable[[], object]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not done():
            left_s = deadline - time.monotonic()
            assert left_s > 0, f"not in time: {self.said}"
            if select.select([self.tether.fileno()], [], [], left_s)[0]:
                self.tether.read()

    def ended(self) -> int:
        self.until(lambda: self.tether.code is not None)
        assert self.tether.code is not None
        return self.tether.code


@pytest.fixture
def ask(agent: Agent) -> Iterator[Callable[..., dict[str, Any]]]:
    with contextlib.closing(AgentConnection(agent.path, LIMIT_S)) as line:

        def ask(what: str, **words: object) -> dict[str, Any]:
            line.send(pack_request({"id": "1", "type": what, **words}), LIMIT_S)
            return line.receive(dict, time.monotonic() + LIMIT_S)

        yield ask


@pytest.fixture
def work(agent: Agent) -> Iterator[Callable[[str], Worked]]:
    with contextlib.ExitStack() as stack:

        def work(run: str) -> Worked:
            worked = Worked(agent, run)
            stack.callback(worked.tether.disconnect)
            return worked

        yield work


@pytest.fixture
def start(work: Callable[[str], Worked], ask: Callable[..., dict[str, Any]]) -> Callable[..., Worked]:
    def start(run: str, *argv: str, columns: int = 0, rows: int = 0, variables: Mapping[str, str] = {}) -> Worked:
        words = {"columns": columns, "rows": rows, "variables": dict(variables), "workdir": "/"}
        assert ask("process_start", run=run, argv=list(argv), **words)["started"]
        return work(run)

    return start


def test_on_pipes_its_streams_are_apart_and_its_stdin_can_end(start: Callable[..., Worked]) -> None:
    worked = start("pipes", "sh", "-c", "cat; echo wrong >&2; exit 5")
    worked.tether.write(b"one\ntwo\n")
    worked.tether.close()

    assert 5 == worked.ended()
    assert ("one\ntwo\n", "wrong\n") == (worked.text(), worked.text("err"))


def test_on_a_terminal_it_has_size_keys_and_signals(start: Callable[..., Worked]) -> None:
    code = "trap 'stty size' WINCH; trap 'echo caught' INT; stty size; tty; while :; do sleep 0.02; done"
    worked = start("terminal", "bash", "-c", code, columns=70, rows=20, variables={"TERM": "xterm"})
    worked.until(lambda: "20 70" in worked.text() and "/dev/pts/" in worked.text())
    worked.tether.ask("process_resize", columns=99, rows=33)
    worked.until(lambda: "33 99" in worked.text())
    worked.tether.write(b"\x03")
    worked.until(lambda: "caught" in worked.text())
    worked.tether.ask("process_signal", number=int(signal.SIGTERM))

    assert -signal.SIGTERM == worked.ended()


def test_a_cut_connection_loses_nothing_and_repeats_nothing(start: Callable[..., Worked]) -> None:
    worked = start(
        "broken", "sh", "-c", "stty -echo -onlcr 2>/dev/null; while read word; do echo got $word; done; exit 3"
    )
    expected = ""
    for number in range(20):
        worked.tether.write(f"{number}\n".encode())
        if number % 3:  # before anybody could say that it was taken
            worked.tether.disconnect()
            worked.join()
        expected += f"got {number}\n"
        if number % 4 == 0:
            worked.until(lambda expected=expected: worked.text() == expected)  # type: ignore[misc]
            worked.tether.disconnect()
            worked.join()
    worked.tether.close()

    assert 3 == worked.ended()
    assert expected == worked.text()


def test_a_connection_that_replaces_another_takes_no_data_from_it(start: Callable[..., Worked], agent: Agent) -> None:
    worked = start("late", "sh", "-c", "while read word; do echo got $word; done; exit 3")
    worked.tether.write(b"one\n")
    worked.until(lambda: worked.text() == "got one\n")

    with contextlib.closing(AgentConnection(agent.path, LIMIT_S)) as late:  # it was sent before, and is heard after
        late.send(pack_request({"id": "process_join", "type": "process_join", "run": "late", "has": {}}), LIMIT_S)
        assert "answer" == late.receive(dict, time.monotonic() + LIMIT_S)["type"]
        worked.tether.write(b"two\n")
    worked.tether.close()

    assert 3 == worked.ended()
    assert "got one\ngot two\n" == worked.text()


def test_output_without_a_reader_is_kept_for_the_next_one_and_blocks_beyond_a_limit(
    start: Callable[..., Worked],
) -> None:
    worked = start("alone", "sh", "-c", "seq 1 200000; exit 9")
    worked.until(lambda: worked.text())
    worked.tether.disconnect()
    kept = worked.text()
    worked.join()

    assert 9 == worked.ended()
    assert worked.text().startswith(kept)
    assert "".join(f"{number}\n" for number in range(1, 200_001)) == worked.text()


def test_it_is_started_once_by_its_name_and_controlled_in_order_only(
    start: Callable[..., Worked], ask: Callable[..., dict[str, Any]]
) -> None:
    worked = start("once", "cat")

    assert not ask("process_start", run="once", argv=["true"])["started"]
    assert "bytes 0 to 7 are missing" in ask("process_tell", run="once", at=7, data="YQ==")["stderr"]
    assert 2 == ask("process_tell", run="once", at=0, data=base64.b64encode(b"ab").decode())["taken"]
    assert 3 == ask("process_tell", run="once", at=1, data=base64.b64encode(b"bc").decode())["taken"]
    ask("process_close", run="once")
    assert 0 == worked.ended()
    assert "abc" == worked.text()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ({"argv": ["no-such-program"]}, 127),
        ({"argv": ["true"], "workdir": "/no/such/folder"}, 127),
        ({"argv": ["/etc/passwd"]}, 126),
    ],
    ids=["no program", "no folder", "no program's file"],
)
def test_a_failed_start_gives_the_reason_and_leaves_no_run(
    words: dict[str, Any], code: int, ask: Callable[..., dict[str, Any]]
) -> None:
    said = ask("process_start", run="none", **words)

    assert (0, code) == (said["pid"], said["code"])
    assert (words.get("workdir") or words["argv"][0]) in said["why"]
    assert "no such run" in ask("process_join", run="none")["stderr"]


def test_an_invalid_request_is_refused_with_a_message(ask: Callable[..., dict[str, Any]]) -> None:
    for words in (
        {"run": ""},
        {"run": "x"},
        {"run": "x", "argv": ["a\0b"]},
        {"run": "x", "argv": ["a"], "columns": -1},
    ):
        assert 1 == ask("process_start", **words)["exit_code"]
    for what in ("process_tell", "process_close", "process_resize", "process_signal", "process_has"):
        assert "no such run" in ask(what, run="nobody")["stderr"]


def test_a_request_for_a_missing_process_is_an_error(work: Callable[[str], Worked]) -> None:
    worked = work("never")

    with pytest.raises(NoSuchRunError):
        worked.until(lambda: False)


def test_notes_arrive_at_once_and_are_not_in_the_output(
    work: Callable[[str], Worked], ask: Callable[..., dict[str, Any]], agent: Agent, tmp_path: Path
) -> None:
    notes = tmp_path / "of" / "notes"
    argv = ["sh", "-c", f"echo noted >> {notes}; cat"]
    assert ask("process_start", run="notes", argv=argv, notes=str(notes), workdir="/")["started"]
    worked = work("notes")

    worked.until(lambda: worked.text("notes"))
    assert ("noted\n", "") == (worked.text("notes"), worked.text())
    worked.tether.close()
    assert 0 == worked.ended()
    with contextlib.closing(agent.channel()) as channel:  # who opened a pipe that nobody hears would wait for ever
        assert "gone\n" == channel.run("bash", f"[ -e {notes} ] || echo gone", timeout_s=20).stdout


def test_a_process_that_is_silent_is_reported_as_idle(start: Callable[..., Worked]) -> None:
    rested: list[str] = []
    worked = start("rests", "sh", "-c", "echo once; cat")
    take = worked.tether._handle_frame

    def taken(answer: Any) -> None:
        rested.append(answer.type)
        take(answer)

    worked.tether._handle_frame = taken  # type: ignore[method-assign]
    worked.until(lambda: "rest" in rested)

    assert 1 == rested.count("rest")
    worked.tether.close()
    assert 0 == worked.ended()


def test_received_bytes_are_counted_from_the_first() -> None:
    heard = OutputBuffer()
    heard.add(b"abcdef")
    heard.forget(2)
    heard.forget(1)

    assert (2, 6, 4) == (heard.begin, heard.end, heard.held)
    assert (b"cd", b"f", b"") == (heard.since(2, 2), heard.since(5, 9), heard.since(6, 9))
    heard.forget(99)
    assert (6, 0) == (heard.begin, heard.held)


def test_repeated_input_is_accepted_once() -> None:
    told = InputBuffer()
    told.accept(0, b"abc")
    told.accept(1, b"bcd")
    told.accept(0, b"ab")

    assert (4, b"abcd") == (told.end, bytes(told.waiting))
    with pytest.raises(ValueError, match="bytes 4 to 6 are missing"):
        told.accept(6, b"x")


def test_repeated_data_is_passed_on_once_and_invalid_data_not_at_all() -> None:
    said: list[tuple[str, bytes]] = []
    carrier = ProcessStream("any", lambda stream, data: said.append((stream, data)))
    for at, text in ((0, b"abc"), (1, b"bcd"), (0, b"ab")):
        carrier._handle_frame(StreamFrame(type="stream", name="out", at=at, data=base64.b64encode(text).decode()))
    carrier._handle_frame(StreamFrame(type="stream", name="out", at=4, data="no base64!"))

    assert [("out", b"abc"), ("out", b"d")] == said
    assert {"out": 4} == carrier.has
