"""The way to the agent inside: what it gives back, and that no code runs twice however the line breaks."""

import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from kasmon.errors import AgentLostError, SandboxError, UsageError
from kasmon.model.sandbox.policy import ServiceSpec
from kasmon.sandbox.guest_client import channel as channels
from kasmon.sandbox.guest_client import connection
from kasmon.sandbox.guest_client.channel import GuestChannel
from kasmon.sandbox.guest_client.protocol import GuestStatus
from tests.support.sandbox.guest_agent import Agent, running
from tests.support.wait import until


@pytest.fixture
def channel(agent: Agent) -> Iterator[GuestChannel]:
    channel = agent.channel("dev-1")
    yield channel
    channel.close()


class Relay:
    """Stands between a channel and its agent, and cuts the line once, where it was told to."""

    def __init__(self, agent: Agent, cut: str) -> None:
        self.path, self._agent, self._cut = str(agent.folder / f"relay-{cut}"), agent, cut
        Path(self.path).unlink(missing_ok=True)
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(self.path)
        self._listening.listen(8)
        self._open: list[socket.socket] = [self._listening]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        threads = []
        while True:
            try:
                near = self._listening.accept()[0]
            except OSError:
                break
            far = socket.socket(socket.AF_UNIX)
            far.connect(self._agent.path)
            self._open += [near, far]
            threads += [
                threading.Thread(target=carry, args=(near, far), daemon=True) for carry in (self._out, self._back)
            ]
            for thread in threads[-2:]:
                thread.start()
        for thread in threads:
            thread.join()

    def _out(self, near: socket.socket, far: socket.socket) -> None:
        while (frame := _frame(near)) is not None:
            if b'"execute"' in frame and self._cut == "in the request":
                self._cut = ""
                far.sendall(frame[: len(frame) // 2])
                break
            far.sendall(frame)
            if b'"execute"' in frame and self._cut == "after the request":
                self._cut = ""
                break
        self._end(near, far)

    def _back(self, near: socket.socket, far: socket.socket) -> None:
        while (frame := _frame(far)) is not None:
            if b'"result"' in frame and self._cut in ("before the answer", "in the answer"):
                half = frame[: len(frame) // 2] if self._cut == "in the answer" else b""
                self._cut = ""
                near.sendall(half)
                break
            try:
                near.sendall(frame)
            except OSError:
                break
        self._end(near, far)

    def _end(self, *ends: socket.socket) -> None:
        for end in ends:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def close(self) -> None:
        self._end(*self._open)
        self._thread.join()
        for each in self._open:
            each.close()


def _frame(stream: socket.socket) -> bytes | None:
    try:
        head = stream.recv(4, socket.MSG_WAITALL)
        if len(head) < 4:
            return None
        return head + stream.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
    except OSError:
        return None


@pytest.mark.parametrize("cut", ["in the request", "after the request", "before the answer", "in the answer"])
def test_a_cut_connection_is_retried_and_the_code_has_run_once(agent: Agent, channel: GuestChannel, cut: str) -> None:
    channel.run("python", "times = 0", timeout_s=20)
    with closing(Relay(agent, cut)) as relay, closing(GuestChannel(relay.path)) as broken:
        ran = broken.run("python", "import time; time.sleep(0.05); times += 1\nprint('times', times)", timeout_s=20)

    assert ("times 1\n", 0) == (ran.stdout, ran.exit_code)
    assert "1\n" == channel.run("python", "times", timeout_s=20).stdout


def test_a_repeated_run_with_its_key_returns_the_first_result(channel: GuestChannel) -> None:
    first = channel.run("python", "import os; os.urandom(8).hex()", timeout_s=20, run="word-1")

    assert first == channel.run("python", "import os; os.urandom(8).hex()", timeout_s=20, run="word-1")
    assert first.stdout != channel.run("python", "os.urandom(8).hex()", timeout_s=20, run="word-2").stdout


def test_a_repeated_run_that_still_runs_is_waited_for(channel: GuestChannel) -> None:
    code = "import time; time.sleep(0.2); twice = globals().get('twice', 0) + 1\ntwice"
    with ThreadPoolExecutor(3) as others:
        all_ = [others.submit(channel.run, "python", code, timeout_s=20, run="word-3") for _ in range(3)]

        assert ["1\n"] * 3 == [each.result().stdout for each in all_]


def test_a_dropped_answer_does_not_run_the_code_again(channel: GuestChannel) -> None:
    channel.run("python", "ran_often = 1", timeout_s=20, run="word-4")
    channel.forget([], [])
    ran = channel.run("python", "ran_often += 1", timeout_s=20, run="word-4")

    assert 125 == ran.exit_code
    assert "not run again" in ran.stderr
    assert "1\n" == channel.run("python", "ran_often", timeout_s=20).stdout


def test_the_ids_of_the_specification_are_no_keys(agent: Agent) -> None:
    """A client of the seed may count from one on each connection."""
    for code in ("echo a", "echo b"):
        assert f"{code[-1]}\n" == agent.connect().ask(id="req-1", interpreter="bash", code=code)["stdout"]
    agent.hang_up()


def test_if_the_agent_dies_during_a_run_the_result_is_unknown_and_nothing_is_sent_to_the_next() -> None:
    with running() as agent:
        channel = agent.channel()
        with ThreadPoolExecutor(1) as others:
            code = "from pathlib import Path\nPath('runs').open('a').write('x')\nimport time; time.sleep(60)"
            going = others.submit(channel.run, "python", code, timeout_s=90)
            until(lambda: (agent.workspace / "runs").exists() and (agent.workspace / "runs").read_text("utf-8"))
            agent.end()
            agent.start()
            with pytest.raises(AgentLostError) as lost:
                going.result()

        assert lost.value.may_have_run
        assert "It is unknown whether" in lost.value.hint
        assert "x" == (agent.workspace / "runs").read_text("utf-8")
        assert "2\n" == channel.run("python", "2", timeout_s=20).stdout
        channel.close()


def test_without_a_listener_nothing_is_done_and_that_is_reported_within_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sum(connection.PAUSES_S) < 2.5
    monkeypatch.setattr(connection, "PAUSES_S", (0.01, 0.02))
    channel = GuestChannel(str(tmp_path / "none"))
    with pytest.raises(AgentLostError) as lost:
        channel.run("python", "1", timeout_s=20)

    assert not lost.value.may_have_run
    assert "Nothing was done." == lost.value.hint


def test_a_silent_listener_gets_one_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code inside can stop the agent there (`kill -STOP`); a wait for each of many tries would be a minute and more."""
    monkeypatch.setattr(connection, "LIMIT_S", 0.05)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "s"))
        silent.listen()
        with closing(GuestChannel(str(tmp_path / "s"))) as channel, pytest.raises(AgentLostError) as lost:
            channel.run("python", "1", timeout_s=20)
        silent.accept()[0].close()
        silent.setblocking(False)
        with pytest.raises(BlockingIOError):
            silent.accept()

    assert not lost.value.may_have_run


def test_a_late_agent_is_waited_for(agent: Agent, tmp_path: Path) -> None:
    path = agent.folder / "later"
    channel = GuestChannel(str(path))
    timer = threading.Timer(0.1, path.symlink_to, [agent.path])
    timer.start()

    assert "1\n" == channel.run("python", "1", timeout_s=20).stdout
    timer.join()
    channel.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"\0\0\0\2{}", b"\0\0\0\1x", b"\xff\xff\xff\xff", b"\0\0\0\4nope"[:6],
        struct.pack(">I", 30) + b'{"type":"result","exit_code":"x"}'[:30],
    ],
    ids=["nothing", "no json", "endless", "half", "other types"],
)  # fmt: skip
def test_an_invalid_answer_is_refused(monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    """The agent's socket may be answered by whatever runs in the sandbox."""
    monkeypatch.setattr(connection, "PAUSES_S", (0.01, 0.02))
    with running() as agent:
        path = str(agent.folder / "liar")
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(path)
        listening.listen(8)
        clients = []

        def lie() -> None:
            while True:
                try:
                    clients.append(listening.accept()[0])
                    clients[-1].recv(1000)
                    clients[-1].sendall(answer)
                    clients[-1].shutdown(socket.SHUT_WR)
                except OSError:
                    return

        thread = threading.Thread(target=lie, daemon=True)
        thread.start()
        with pytest.raises(SandboxError):
            GuestChannel(path).run("python", "1", timeout_s=20)
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()
        for each in (listening, *clients):
            each.close()


def test_code_that_is_not_text_or_too_long_is_refused_here(channel: GuestChannel) -> None:
    with pytest.raises(UsageError, match="not Unicode text"):
        channel.run("python", "'\udcff'", timeout_s=20)
    with pytest.raises(UsageError, match="frame too large"):
        channel.run("python", "x" * (17 << 20), timeout_s=20)


def test_an_error_of_a_listener_is_raised_here_and_the_run_continues(channel: GuestChannel) -> None:
    def hear(stream: str, text: str) -> None:
        raise KeyError(text)

    with pytest.raises(KeyError):
        channel.run("bash", "echo one; sleep 0.05; went=on", timeout_s=20, on_output=hear)
    assert "on\n" == channel.run("bash", "echo $went", timeout_s=20).stdout


@pytest.mark.sandboxes
def test_a_run_is_waited_for_while_its_sandbox_is_paused(
    agent: Agent, channel: GuestChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "LOOK_S", 0.1)
    monkeypatch.setattr(channels, "EXTRA_S", 0.2)
    with ThreadPoolExecutor(1) as others:
        going = others.submit(channel.run, "bash", "sleep 0.2; echo woke", timeout_s=0.6)
        until(lambda: channel.ping("n").workers["bash"].busy)
        channel.is_asleep = True
        agent.process.send_signal(signal.SIGSTOP)
        with pytest.raises(TimeoutError):
            going.result(2.5)
        agent.process.send_signal(signal.SIGCONT)
        channel.is_asleep = False

        assert "woke\n" == going.result().stdout


@pytest.mark.sandboxes
def test_a_run_of_an_agent_that_is_silent_beyond_its_time_limit_is_given_up(
    agent: Agent, channel: GuestChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "EXTRA_S", 0.2)
    with ThreadPoolExecutor(1) as others:
        going = others.submit(channel.run, "bash", "sleep 0.3", timeout_s=0.6)
        until(lambda: channel.ping("n").workers["bash"].busy)
        agent.process.send_signal(signal.SIGSTOP)
        with pytest.raises(AgentLostError) as lost:
            going.result(20)
        agent.process.send_signal(signal.SIGCONT)

    assert lost.value.may_have_run


def test_closing_ends_the_wait_and_not_the_run(agent: Agent, channel: GuestChannel) -> None:
    closing = agent.channel()
    with ThreadPoolExecutor(1) as others:
        going = others.submit(closing.run, "bash", "sleep 0.2; stayed=1", timeout_s=20)
        until(lambda: channel.ping("n").workers["bash"].busy)
        closing.close()
        with pytest.raises(AgentLostError):
            going.result()

    assert "1\n" == channel.run("bash", "echo $stayed", timeout_s=20).stdout
    with pytest.raises(AgentLostError):
        closing.ping("n")


def test_a_ping_returns_the_pid_and_the_state_of_the_interpreters(agent: Agent, channel: GuestChannel) -> None:
    channel.reset("bash")
    before = channel.ping("nonce")
    channel.run("bash", ":", timeout_s=20)
    channel.run("bash", ":", timeout_s=20)
    after = channel.ping("nonce")

    assert (agent.process.pid, 1, before.instance) == (after.pid, 1, after.instance)
    assert after.up_s >= before.up_s > 0
    assert abs(after.now - time.time()) < 5
    assert (2, 1, False) == (
        after.workers["bash"].turns - before.workers["bash"].turns,
        after.workers["bash"].starts - before.workers["bash"].starts,
        after.workers["bash"].busy,
    )
    assert (0, True, 0) == (before.workers["bash"].pid, after.workers["bash"].pid > 0, len(after.busy))
    assert after.counters["bash"] == after.workers["bash"].turns


def test_an_agent_without_the_nonce_is_not_trusted(channel: GuestChannel, monkeypatch: pytest.MonkeyPatch) -> None:
    status = GuestStatus("other", "i", 1, 1, 1.0, 1.0, {}, {})
    monkeypatch.setattr(channel._pool, "ask", lambda frame, receive, again: status)

    with pytest.raises(SandboxError, match="nonce"):
        channel.ping("mine")


def test_warm_interpreters_run_at_once(channel: GuestChannel) -> None:
    channel.reset("python")
    assert {} == channel.prewarm(["python", "bash"])

    assert channel.ping("n").workers["python"].pid
    turns = channel.ping("n").workers["python"].turns
    assert turns + 1 == channel.run("python", "1", timeout_s=20).turn


def test_a_volatile_file_is_written_whole_with_its_mode_and_its_folders(agent: Agent, channel: GuestChannel) -> None:
    path = agent.folder / "tmp" / "run" / "deep" / "token"
    for content in (b"first", b"\xff" * 1_000_000):
        channel.write_volatile(str(path), content, 0o640)

        assert (content, 0o640) == (path.read_bytes(), path.stat().st_mode & 0o777)
    assert 0o700 == path.parent.stat().st_mode & 0o777
    assert [path] == [*path.parent.iterdir()]


def test_a_volatile_file_is_not_written_through_a_link(agent: Agent, channel: GuestChannel) -> None:
    target, link = agent.folder / "target", agent.folder / "link"
    target.write_text("as it was", "utf-8")
    link.symlink_to(target)
    channel.write_volatile(str(link), b"new", 0o600)

    assert ("as it was", "new") == (target.read_text("utf-8"), link.read_text("utf-8"))
    assert not link.is_symlink()


def test_a_volatile_file_that_cannot_be_written_is_an_error_with_its_reason(channel: GuestChannel) -> None:
    with pytest.raises(SandboxError, match="write_volatile"):
        channel.write_volatile("/proc/none/x", b"", 0o600)


def test_a_service_is_started_once_is_found_on_its_port_and_is_started_again(
    agent: Agent, channel: GuestChannel
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert not channel.listens(port)
    code = f'import socket, time; s = socket.create_server(("127.0.0.1", {port})); time.sleep(600)'
    start = f"echo said; exec python3 -c '{code}'"
    service = ServiceSpec(name="db", port=port, start=start)
    channel.spawn(service, {"OWN": "1"})
    until(lambda: channel.listens(port))
    first = channel.ping("n").services["db"]

    assert (True, "", "said\n") == (first.pid > 0, first.ended, first.said)
    channel.spawn(service)
    until(lambda: channel.listens(port))
    assert channel.ping("n").services["db"].pid != first.pid
    os.kill(channel.ping("n").services["db"].pid, 9)
    until(lambda: channel.ping("n").services["db"].ended)
    assert not channel.listens(port)


def test_a_correct_clock_is_left_alone(agent: Agent, channel: GuestChannel) -> None:
    """Here it is this machine's own, which nobody sets."""
    assert abs(channel.set_clock(time.time())) < 0.5
    assert not agent.connect().ask(type="set_clock", now=time.time())["set"]
    agent.hang_up()


@pytest.mark.parametrize("rounds", [3, pytest.param(12, marks=pytest.mark.nightly)])
def test_a_signal_that_arrives_at_the_end_of_a_run_is_not_for_the_next_one(channel: GuestChannel, rounds: int) -> None:
    """node itself keeps it, in every fourth try, and ends whatever runs next."""
    thrice = "for (let n = 0; n < 3; n++) process.kill(process.pid, 'SIGINT')"
    goes_on = "for (const end = Date.now() + 10; Date.now() < end;); 'it went on'"
    for _ in range(rounds):
        while channel.run("node", thrice, timeout_s=20).exit_code != 130:  # it was over before the first was heard
            until(lambda: channel.run("node", goes_on, timeout_s=20).exit_code == 0)
        later = channel.run("node", goes_on, timeout_s=20)

        assert ("'it went on'\n", "", 0) == (later.stdout, later.stderr, later.exit_code)


def test_many_threads_use_one_channel(channel: GuestChannel) -> None:
    with ThreadPoolExecutor(8) as others:
        said = others.map(lambda n: channel.run("python", f"print({n})", timeout_s=20).stdout, range(40))

        assert [f"{n}\n" for n in range(40)] == [*said]


def test_variables_of_the_environment_are_set_for_running_and_future_interpreters() -> None:
    """And code may change them: they are given once, not with each run."""
    asks = {
        "bash": "echo $WAY",
        "python": "import os; print(os.environ['WAY'])",
        "node": "console.log(process.env.WAY)",
    }
    with running() as agent, closing(agent.channel("dev-2")) as channel:
        channel.prewarm(("bash", "python"))
        channel.set_variables({"WAY": "it's $HOME"})
        channel.prewarm(("node",))
        assert dict.fromkeys(asks, "it's $HOME\n") == {
            name: channel.run(name, code, timeout_s=20).stdout  # type: ignore[arg-type]
            for name, code in asks.items()
        }

        channel.set_variables({"WAY": "other"})
        channel.run("bash", "export WAY=own", timeout_s=20)
        assert "own\n" == channel.run("bash", asks["bash"], timeout_s=20).stdout
        assert "other\n" == channel.run("node", asks["node"], timeout_s=20).stdout
        with pytest.raises(SandboxError, match="is not a valid variable name"):
            channel.set_variables({"no variable": "x"})
