"""What is given to a shell finishes with its exit code, and nothing is left of the question."""

import asyncio
import contextlib
import os
import re
import shutil
from collections.abc import AsyncIterator
from typing import cast

import pytest

from kasmon.backends.common.environment import encoded
from kasmon.backends.tmux.evidence.screen_reader import ScreenObservation
from kasmon.backends.tmux.input import command_completion
from kasmon.backends.tmux.input.command_completion import TYPED_SINCE, CommandCompletion, question, supports_query
from kasmon.backends.tmux.input.pane_writer import PaneWriter
from kasmon.detection.prompt_box import Composer
from kasmon.detection.reader import ScreenReading
from kasmon.detection.terminal_screen import captured
from kasmon.host.rpc.client import HostLink
from kasmon.host.rpc.frames import SendKeys, StartSession
from kasmon.model.commands import Receipt, ReceiptState
from kasmon.model.events import ReceiptChanged
from kasmon.model.permission import SessionId
from kasmon.model.session_state import SessionState
from kasmon.paths import write_private
from tests.support.host.tmux_env import TmuxEnv, prompted
from tests.support.wait import auntil

ME = SessionId("abcdefgh")
BASH = ("bash", "--norc", "--noprofile")
SHELLS = [BASH, ("/bin/sh",), ("zsh", "-f"), ("zsh",), ("fish", "--no-config"), ("fish",), ("ksh",)]
"""zsh and fish also with what they make of themselves."""


@pytest.fixture
async def link(tmux: TmuxEnv) -> AsyncIterator[HostLink]:
    tmux.open()
    async with tmux.client() as link:
        yield link


async def run(tmux: TmuxEnv, link: HostLink, *shell: str, **variables: str) -> None:
    """Start *shell* with a history of its own, and wait for its prompt."""
    launch = tmux.wants(ME, *shell)
    own = {"HISTFILE": str(tmux.root / "history"), "HOME": str(tmux.root), **variables}
    (tmux.root / ".zshrc").touch()  # else zsh asks who it is for
    write_private(tmux.paths.environment(ME), encoded(own))
    await link.ask(StartSession(n=0, session=launch.session), limit_s=40)
    await tmux.until_state(ME, SessionState.IDLE)


async def finished(tmux: TmuxEnv, receipt: Receipt) -> Receipt:
    def last() -> Receipt | None:
        moved = [one.receipt for one in tmux.only(ReceiptChanged, ME) if one.receipt.id == receipt.id]
        return moved[-1] if moved and moved[-1].state is ReceiptState.FINISHED else None

    await auntil(lambda: last() is not None, what=f"the end of {receipt.text}")
    found = last()
    assert found is not None
    return found


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
async def test_a_command_finishes_with_its_exit_code_and_leaves_no_trace_of_the_query(
    tmux: TmuxEnv, link: HostLink, shell: tuple[str, ...]
) -> None:
    if shutil.which(shell[0]) is None:
        pytest.skip(f"{shell[0]} is not installed")
    await run(tmux, link, *shell)

    fails, status = ("sh -c 'exit 7'", "$status") if shell[0] == "fish" else ("(exit 7)", "$?")
    codes = [await code(tmux, link, text) for text in ("true", f"echo one; {fails}", f"echo again {status}")]

    assert [0, 7, 0] == codes
    screen = tmux.server.run("capture-pane", "-p", "-t", f"={ME}:").decode()
    assert "KASMON" not in screen
    assert [row for row in screen.splitlines() if row.startswith(("one", "again"))] == ["one", "again 7"]


async def code(tmux: TmuxEnv, link: HostLink, text: str) -> int | None:
    return (await finished(tmux, await prompted(link, ME, text))).exit_code


async def test_a_command_typed_during_the_query_has_its_exit_code_too(tmux: TmuxEnv, link: HostLink) -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    asked, go, own = tmux.root / "asked", tmux.root / "go", tmux.root / "own" / "sh"
    own.parent.mkdir()
    own.write_text(f'#!/bin/sh\n: >{asked}\nuntil test -e {go}; do sleep 0.02; done\nexec /bin/sh "$@"\n')
    own.chmod(0o755)
    await run(tmux, link, "fish", "--no-config", PATH=f"{own.parent}:{os.environ['PATH']}")
    one = await prompted(link, ME, "true")
    await auntil(asked.exists, what="the question")

    other = asyncio.create_task(prompted(link, ME, "false"))
    for _ in range(20):  # it has all the time to be typed too early
        await asyncio.to_thread(tmux.server.run, "capture-pane", "-p", "-t", f"={ME}:")
    go.touch()

    assert 0 == (await finished(tmux, one)).exit_code
    assert 1 == (await finished(tmux, await other)).exit_code


async def test_while_a_command_runs_the_shell_is_not_queried_and_typing_makes_its_end_unknown(
    tmux: TmuxEnv, link: HostLink
) -> None:
    await run(tmux, link, *BASH)
    receipt = await prompted(link, ME, "echo rea''dy; read line; echo got $line")
    await tmux.shows(ME, "ready")
    link.send(SendKeys(session=ME, data=b"mine\r"))

    ended = await finished(tmux, receipt)

    assert (None, TYPED_SINCE) == (ended.exit_code, ended.reason)
    await tmux.shows(ME, "got mine")


@pytest.mark.parametrize("shell", ["sh", "fish"])
@pytest.mark.parametrize("columns", [40, 80, 97, 120, 400])
def test_a_query_removes_only_its_own_rows_from_the_screen(columns: int, shell: str) -> None:
    for column in range(columns):
        asked = question("0123456789abcdef", column, columns, shell)
        rows, rest = divmod(column + len(asked), columns)

        assert rest, "at the edge nobody knows in which row the cursor is"
        assert f"[{rows + 1}A" in asked


@pytest.mark.parametrize(
    ("argv", "can"),
    [
        (("/bin/bash",), True),
        (("bash", "--norc", "-i"), True),
        (("-zsh",), True),
        (("sh", "-c", "read x"), False),
        (("bash", "-lc", "make"), False),
        (("bash", "script.sh"), False),
        (("fish",), True),
        (("fish", "-c", "make"), False),
        (("nu",), False),
        (("claude",), False),
        ((), False),
    ],
)
def test_only_an_interactive_shell_is_queried(argv: tuple[str, ...], can: bool) -> None:
    assert can is supports_query(argv)


async def test_a_query_stays_out_of_the_history_of_bash(tmux: TmuxEnv, link: HostLink) -> None:
    await run(tmux, link, *BASH)
    found = [await code(tmux, link, text) for text in ("true", "history | grep KASMO[N]")]

    assert [0, 1] == found


class SlowShell:
    """A shell whose prompt stands there still, for it has not read what was typed."""

    has_ended = is_asking = False

    def __init__(self) -> None:
        self.looks = 0
        self.pressed: list[bytes] = []
        self.keyed_at = 0.0

    async def see_now(self) -> ScreenObservation:
        self.looks += 1
        box = Composer(first_row=0, last_row=0)
        return ScreenObservation(
            captured("$ \n", cursor=(2, 0)), ScreenReading(state="idle", composer=box), None, (80, 1)
        )

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator["SlowShell"]:
        yield self

    async def press(self, keys: bytes, unless: str = "") -> None:
        self.pressed.append(keys)


async def test_a_shell_is_not_queried_before_it_has_read_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command may read what is typed behind it."""
    monkeypatch.setattr(command_completion, "has_terminal", lambda pid: True)
    monkeypatch.setattr(command_completion, "LONGEST_S", 0)
    monkeypatch.setattr(command_completion, "FIRST_S", 0)
    shell = SlowShell()
    asked = CommandCompletion(shell, cast("PaneWriter", shell), 1)
    ending = asyncio.create_task(asked.wait_for_end())
    for _ in range(50):
        asked.feed(b"\x1b[?2004h")
        await asyncio.sleep(0)
    assert 0 == shell.looks

    asked.feed(b"read line\r\n")
    await auntil(lambda: shell.pressed)
    nonce = re.search(rb"_DONE_([0-9a-f]+) ", shell.pressed[0])
    assert nonce is not None
    asked.feed(shell.pressed[0])
    asked.feed(b"\x1b]1337;KASMON_DONE_" + nonce[1][:4])
    asked.feed(nonce[1][4:] + b";42\x07$ ")

    assert (42, "") == await ending


async def test_a_command_has_finished_only_once_the_query_has_ended_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the next command would be taken for one that is typed into a program."""
    is_back = True
    looks: list[bool] = []

    def has_terminal(pid: int) -> bool:
        looks.append(is_back)
        return is_back

    monkeypatch.setattr(command_completion, "has_terminal", has_terminal)
    for name in ("FIRST_S", "LONGEST_S"):
        monkeypatch.setattr(command_completion, name, 0)
    shell = SlowShell()
    asked = CommandCompletion(shell, cast("PaneWriter", shell), 1, has_begun=True)
    ending = asyncio.create_task(asked.wait_for_end())
    await auntil(lambda: shell.pressed)
    is_back = False
    looks.clear()
    nonce = re.search(rb"_DONE_([0-9a-f]+) ", shell.pressed[0])
    assert nonce is not None
    asked.feed(b"\x1b]1337;KASMON_DONE_" + nonce[1] + b";42\x07")
    await auntil(lambda: len(looks) > 3)
    assert (False, False) == (asked.over.is_set(), ending.done())

    is_back = True

    assert (42, "") == await ending
    assert asked.over.is_set()


async def test_a_command_that_ends_while_no_host_runs_has_its_exit_code_from_the_next_one(tmux: TmuxEnv) -> None:
    first = tmux.open()
    async with tmux.client() as link:
        await run(tmux, link, *BASH)
        receipt = await prompted(link, ME, "until test -e go; do sleep 0.05; done; (exit 7)")
    first.kill()
    first.wait()
    (tmux.root / "go").touch()

    async with tmux.serving():
        ended = await finished(tmux, receipt)

    assert (7, "") == (ended.exit_code, ended.reason)
