"""An agent's process is heard line by line, whatever it writes, and ends with all that it started."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil
import pytest

from kasmon.backends.common import child_process as room
from kasmon.backends.common.child_process import KEPT_BYTES, LINE_BYTES, ChildProcess
from kasmon.errors import LaunchError, SessionEndedError
from tests.support.wait import auntil

DAEMON = """
import os, time
if not os.fork():
    os.setsid()
    if pid := os.fork():
        print(pid, flush=True)
        os._exit(0)
    time.sleep(600)
os.wait()
"""
"""Leaves a process behind that has left its family and holds its pipes open, and says its id."""
UNMARKED = """
import os
if not os.fork():
    os.setsid()
    executed, inherited = os.pipe()
    if pid := os.fork():
        os.close(inherited)
        os.read(executed, 1)
        print(pid, flush=True)
        os._exit(0)
    os.execve("/bin/sleep", ["sleep", "600"], {})
os.wait()
"""
"""Likewise; and what it leaves behind has shed its environment before its id is said."""
APART = """
import subprocess, time
print(subprocess.Popen(["sleep", "600"], start_new_session=True).pid, flush=True)
time.sleep(600)
"""
"""Starts one in a session of its own, and says its id."""
BREEDING = """
import os, subprocess, time
os.setsid()
for _ in range(1000):
    print(subprocess.Popen(["sleep", "600"], start_new_session=True).pid, flush=True)
    time.sleep(0.002)
"""
SECRET = "s3cr3t-of-nobody-0123456789"


@asynccontextmanager
async def started(
    code: str, *, variables: Mapping[str, str] | None = None, secrets: tuple[str, ...] = ()
) -> AsyncIterator[ChildProcess]:
    """A Python program as somebody's child; ended at the end."""
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"} | dict(variables or {})
    child = await ChildProcess.start(
        (sys.executable, "-S", "-c", code), workdir="/tmp", environment=environment, secrets=secrets
    )
    try:
        yield child
    finally:
        await child.end()


async def heard(child: ChildProcess) -> list[bytes]:
    return [line async for line in child.lines()]


async def first(child: ChildProcess) -> bytes:
    return await anext(child.lines())


def is_alive(pid: int) -> bool:
    with suppress(psutil.Error):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


class TestLines:
    async def test_each_line_comes_without_its_end_and_the_last_may_be_half(self) -> None:
        async with started(r"print('one'); print(); print('two\r')") as child:
            assert [b"one", b"", b"two"] == await heard(child)

        async with started("import sys; sys.stdout.write('whole\\nhal')") as child:
            assert [b"whole", b"hal"] == await heard(child)

    async def test_bytes_that_are_no_text_and_a_line_of_ten_megabytes_come_whole(self) -> None:
        garbage = bytes(range(256)).replace(b"\n", b"")
        async with started(f"import os; os.write(1, {garbage!r} + b'\\nafter\\n')") as child:
            assert [garbage, b"after"] == await heard(child)

        async with started("print('x' * 10_000_000); print('after')") as child:
            assert [10_000_000, 5] == [len(line) for line in await heard(child)]

    async def test_an_oversized_line_returns_its_beginning_and_then_the_next_line(self) -> None:
        code = "import os\nfor _ in range(100): os.write(1, b'x' * 1_000_000)\nos.write(1, b'\\nafter\\n')"
        async with started(code) as child:
            long, after = await heard(child)

            assert LINE_BYTES < 100_000_000
            assert (b"x" * KEPT_BYTES, b"after") == (long, after)

    async def test_an_endless_line_returns_its_beginning(self) -> None:
        code = "import os\nfor _ in range(70): os.write(1, b'x' * 1_000_000)"
        async with started(code) as child:
            assert [KEPT_BYTES] == [len(line) for line in await heard(child)]

    async def test_unread_output_stays_in_the_process(self) -> None:
        """A flood costs the host no memory, and does not keep the process from being ended."""
        code = """
import os, time
os.set_blocking(1, False)
written = refused = 0
while refused < 20:
    try:
        written += os.write(1, b"x" * 9_999 + b"\\n")
        refused = 0
    except BlockingIOError:
        refused += 1
        time.sleep(0.01)
os.write(2, b"%d\\n" % written)
os.set_blocking(1, True)
while True:
    os.write(1, b"x" * 9_999 + b"\\n")
"""
        async with started(code) as child:
            written = int(await auntil(lambda: child.last_words))
            await child.end()

            assert written < 1_000_000
            assert "SIGTERM" == child.signal

    async def test_output_before_a_kill_is_read(self) -> None:
        code = (
            "import os, signal\nos.write(1, b'x' * 9_999 + b'\\n' + b'last\\n')\nos.kill(os.getpid(), signal.SIGKILL)"
        )
        async with started(code) as child:
            assert b"last" == (await heard(child))[-1]

    async def test_the_lines_end_with_the_process_though_another_process_holds_its_pipes(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A daemon that left the family keeps its stdout open for ever."""
        monkeypatch.setattr(room, "REST_S", 0.1)
        async with started(UNMARKED) as child:
            (line,) = await heard(child)
            await child.wait()

            assert 0 == child.exit_code
            assert is_alive(int(line))
            os.kill(int(line), signal.SIGKILL)

    async def test_the_lines_end_also_if_the_reader_starts_after_the_exit(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(room, "REST_S", 0.1)
        async with started(UNMARKED) as child:
            await child.wait()
            (line,) = await heard(child)

            os.kill(int(line), signal.SIGKILL)


class TestWriting:
    async def test_a_line_is_written_to_its_stdin(self) -> None:
        async with started("print(input()[::-1])") as child:
            await child.write(b"abc")

            assert b"cba" == await first(child)

    async def test_a_process_that_closed_its_stdin_accepts_no_input(self) -> None:
        async with started("import os, time; os.close(0); print('closed', flush=True); time.sleep(600)") as child:
            assert b"closed" == await first(child)
            await auntil(lambda: child._pipes.stdin is not None and child._pipes.stdin.is_closing())
            with pytest.raises(SessionEndedError):
                await child.write(b"x")

    async def test_a_process_that_has_exited_accepts_no_input(self) -> None:
        async with started("pass") as child:
            await child.wait()
            with pytest.raises(SessionEndedError):
                await child.write(b"x")

    async def test_a_process_that_is_being_ended_accepts_no_input(self) -> None:
        async with started("import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)") as child:
            ending = asyncio.create_task(child.end(grace_s=60))
            await auntil(lambda: child._pipes.stdin is not None and child._pipes.stdin.is_closing())
            with pytest.raises(SessionEndedError):
                await child.write(b"x")
            os.kill(child.pid, signal.SIGKILL)
            await ending

    async def test_a_write_waits_while_the_process_does_not_read(self) -> None:
        async with started("import time; time.sleep(600)") as child:
            writing = asyncio.create_task(child.write(b"x" * 1_000_000))
            await asyncio.wait([writing], timeout=0.1)
            assert not writing.done()

            await child.end()
            with pytest.raises(SessionEndedError):
                await writing


class TestStart:
    async def test_a_missing_program_is_named(self) -> None:
        with pytest.raises(LaunchError, match=r"cannot start '/nowhere/codex': No such file"):
            await ChildProcess.start(("/nowhere/codex",), workdir="/tmp", environment={})

    async def test_a_file_that_is_no_program_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "plain").write_text("no program")
        with pytest.raises(LaunchError, match="Permission denied"):
            await ChildProcess.start((str(tmp_path / "plain"),), workdir="/tmp", environment={})

    async def test_a_missing_folder_is_named(self) -> None:
        with pytest.raises(LaunchError, match="there is no folder '/nowhere/at all'"):
            await ChildProcess.start((sys.executable,), workdir="/nowhere/at all", environment={})

    async def test_an_invalid_argument_is_an_error_and_no_crash(self) -> None:
        with pytest.raises(LaunchError, match="null byte"):
            await ChildProcess.start((sys.executable, "a\0b"), workdir="/tmp", environment={})

    async def test_the_process_has_the_passed_environment_and_its_mark_and_nothing_else(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ANOTHER_AGENTS_KEY", "x")
        async with started("import os; print(sorted(os.environ))", variables={"MINE": "1"}) as child:
            assert b"['KASMON_RUN', 'LC_ALL', 'MINE', 'PATH']" == await first(child)

    async def test_the_process_leads_its_own_session(self) -> None:
        async with started("import os; print(os.getsid(0), os.getpgrp(), flush=True); input()") as child:
            assert f"{child.pid} {child.pid}".encode() == await first(child)


class TestEnd:
    @pytest.mark.parametrize(
        ("code", "exit_code", "signal_name"),
        [("raise SystemExit(3)", 3, None), ("pass", 0, None), ("import os; os.kill(os.getpid(), 9)", None, "SIGKILL")],
    )
    async def test_the_end_has_the_exit_code_or_the_signal(
        self, code: str, exit_code: int | None, signal_name: str | None
    ) -> None:
        async with started(code) as child:
            await child.wait()

            assert (exit_code, signal_name, False) == (child.exit_code, child.signal, child.is_running)

    async def test_a_process_that_exits_when_its_stdin_closes_is_not_signalled(self) -> None:
        async with started("import sys; sys.stdin.read(); raise SystemExit(7)") as child:
            await child.end(grace_s=20)

            assert 7 == child.exit_code

    async def test_a_process_that_ignores_the_signal_is_killed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(room, "TERM_S", 0.1)
        code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
        async with started(code) as child:
            await first(child)
            await child.end()

            assert "SIGKILL" == child.signal

    async def test_ending_a_process_ends_its_group(self) -> None:
        code = "import os, time; pid = os.fork(); print(pid, flush=True) if pid else None; time.sleep(600)"
        async with started(code) as child:
            grandchild = int(await first(child))
            await child.end()

            assert not is_alive(grandchild)

    async def test_ending_a_process_ends_a_grandchild_in_its_own_session(self) -> None:
        code = "import subprocess as s, time; p = s.Popen(['sleep', '600'], start_new_session=True)\n"
        async with started(code + "print(p.pid, flush=True); time.sleep(600)") as child:
            grandchild = int(await first(child))
            await child.end()

            assert not is_alive(grandchild)

    async def test_the_grandchild_ends_also_if_the_process_exits_when_its_stdin_closes(self) -> None:
        code = "import subprocess as s, sys; p = s.Popen(['sleep', '600'], start_new_session=True)\n"
        async with started(code + "print(p.pid, flush=True); sys.stdin.read()") as child:
            grandchild = int(await first(child))
            await child.end(grace_s=20)

            assert 0 == child.exit_code
            assert not is_alive(grandchild)

    async def test_a_grandchild_that_starts_during_the_end_is_ended_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(room, "TERM_S", 0.2)
        code = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
sys.stdin.read()
print(subprocess.Popen(["sleep", "600"], start_new_session=True).pid, flush=True)
time.sleep(600)
"""
        async with started(code) as child:
            lines = child.lines()
            assert b"ready" == await anext(lines)
            ending = asyncio.create_task(child.end(grace_s=0.5))
            grandchild = int(await anext(lines))
            assert [] == [line async for line in lines]
            await ending

            await auntil(lambda: not is_alive(grandchild))

    async def test_when_the_process_is_killed_its_group_ends_at_once(self) -> None:
        code = "import os, time; pid = os.fork(); print(pid, flush=True) if pid else None; time.sleep(600)"
        async with started(code) as child:
            grandchild = int(await first(child))
            os.kill(child.pid, signal.SIGKILL)
            await child.wait()

            await auntil(lambda: not is_alive(grandchild))

    async def test_when_the_process_is_killed_its_other_descendants_end_too(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """They are known from the last look, which comes soon after a line."""
        monkeypatch.setattr(room, "LOOK_S", 0.01)
        code = "import subprocess as s, time; p = s.Popen(['sleep', '600'], start_new_session=True)\n"
        async with started(code + "print(p.pid, flush=True); time.sleep(600)") as child:
            grandchild = int(await first(child))
            await auntil(lambda: child._family.descendants)
            os.kill(child.pid, signal.SIGKILL)
            await child.wait()

            assert not is_alive(grandchild)

    @pytest.mark.parametrize("code", [APART, DAEMON + "time.sleep(600)"], ids=["in its family", "that left it"])
    async def test_a_child_started_right_before_the_kill_ends_too(
        self, code: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No look has seen it, and nobody is its parent any more: it is known by its mark."""
        monkeypatch.setattr(room, "LOOK_S", 600.0)
        async with started(code) as child:
            late = int(await first(child))
            os.kill(child.pid, signal.SIGKILL)
            await child.wait()

            assert not child._family.descendants
            assert not is_alive(late)

    async def test_a_child_of_a_late_child_is_ended_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(room, "LOOK_S", 600.0)
        code = (
            f"import subprocess as s, sys, time\ns.Popen([sys.executable, '-S', '-c', {BREEDING!r}])\ntime.sleep(600)"
        )
        async with started(code) as child:
            lines = child.lines()
            young = [int(await anext(lines)) for _ in range(3)]
            os.kill(child.pid, signal.SIGKILL)
            young += [int(line) async for line in lines if line.isdigit()]
            await child.wait()

            assert young
            await auntil(lambda: not any(is_alive(pid) for pid in young), what="the end of all of them")

    async def test_processes_of_another_start_of_the_same_session_are_left_alone(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A session of another kasmon may even have the same id."""
        monkeypatch.setattr(room, "LOOK_S", 600.0)
        same = {"KASMON_SESSION": "kasmonx1"}
        async with started(APART, variables=same) as other, started(APART, variables=same) as child:
            theirs = int(await first(other))
            await first(child)
            os.kill(child.pid, signal.SIGKILL)
            await child.wait()

            assert (True, True) == (other.is_running, is_alive(theirs))

    async def test_a_process_that_left_the_group_earlier_is_left_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A daemon that an agent started on purpose is not ours to end."""
        monkeypatch.setattr(room, "REST_S", 0.1)
        async with started(DAEMON + "print('left', flush=True); time.sleep(600)") as child:
            lines = child.lines()
            daemon = int(await anext(lines))
            assert b"left" == await anext(lines)
            await child.end()

            assert is_alive(daemon)
            os.kill(daemon, signal.SIGKILL)

    async def test_ending_a_process_twice_sends_no_second_signal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """By then another process may have its id."""
        async with started("pass") as child:
            await child.end()
            signalled: list[int] = []
            monkeypatch.setattr(os, "killpg", lambda pid, _number: signalled.append(pid))
            await child.end()

            assert [] == signalled

    async def test_two_callers_that_end_a_process_both_wait_for_it(self) -> None:
        async with started("import time; time.sleep(600)") as child:
            await asyncio.gather(child.end(), child.end())

            assert not child.is_running


class TestLastWords:
    async def test_the_last_output_is_the_last_lines_of_stderr(self) -> None:
        async with started("import sys\nfor n in range(100): print('line', n, file=sys.stderr)") as child:
            await child.wait()

            assert [f"line {n}" for n in range(80, 100)] == child.last_words.splitlines()

    async def test_an_endless_flood_is_cut(self) -> None:
        async with started("import sys; sys.stderr.write('x' * 5_000_000 + '\\nend')") as child:
            await child.wait()

            assert ["x" * 2000, "end"] == child.last_words.splitlines()

    async def test_the_last_output_is_cleaned(self) -> None:
        async with started(r"import sys; sys.stderr.write('\x1b[31mError\x1b[0m: \x1b]0;title\x07no\n')") as child:
            await child.wait()

            assert "Error: no" == child.last_words

    @pytest.mark.parametrize(
        "text",
        [
            f"key {SECRET} is wrong",
            "x" * (2000 - 10) + SECRET + "y" * 100,
            f"\x1b[1m{SECRET[:9]}\x1b[0m{SECRET[9:]}",
            f"{SECRET}\n" * 5,
        ],
        ids=["in a line", "where a long line is cut", "in colour", "often"],
    )
    async def test_the_last_output_has_no_secret(self, text: str) -> None:
        code = f"import os; os.write(2, {text.encode()!r} + os.environ['KEY'].encode())"
        async with started(code, variables={"KEY": SECRET}, secrets=(SECRET,)) as child:
            await child.wait()

            assert "⟨hidden: 27 characters⟩" in child.last_words
            assert not [at for at in range(len(SECRET) - 8) if SECRET[at : at + 8] in child.last_words]

    async def test_no_line_of_a_multi_line_secret_is_in_the_last_output(self) -> None:
        key = "first line of it\r\nsecond line of it\r\nthird line of it"
        code = f"import os\nos.write(2, {key.encode()!r} + b'\\nline' * 18)"
        async with started(code, secrets=(key,)) as child:
            await child.wait()

            assert "line of it" not in child.last_words

    async def test_the_last_output_ends_with_the_process_though_another_process_holds_its_stderr(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(room, "REST_S", 0.1)
        async with started("import sys; print('last', file=sys.stderr, flush=True)" + DAEMON) as child:
            pid = int(await first(child))
            await child.wait()

            assert "last" == child.last_words
            os.kill(pid, signal.SIGKILL)
