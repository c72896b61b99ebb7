"""The prompt box of a session on another machine: a command of the person, and the symbols of its code."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.errors import RefusedError, SessionEndedError, UnableError
from kasmon.host.session.shell_command import OUTPUT_BYTES
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.prompts.shell_command import run_command
from kasmon.supervisor.worktrees.code_symbols import CodeSymbol, list_symbols
from tests.support.agents.leading_agent import start_lead
from tests.support.bus.two_command_lines import TwoCommandLines
from tests.support.cli.fork_server import ForkServer
from tests.support.git_repo import Repo
from tests.support.wait import auntil


@pytest.fixture(scope="module", params=["stream", "nats"])
def joined(request: pytest.FixtureRequest, fork_server: ForkServer) -> Iterator[TwoCommandLines]:
    joined = TwoCommandLines(fork_server, request.param)
    yield joined
    joined.close()


@pytest.fixture(scope="module")
def session(joined: TwoCommandLines) -> Session:
    """One in a repository there."""
    repo = Repo(joined.there.home / "repo")
    (repo.folder / "app.py").write_text("class Door:\n    def open(self): ...\n")
    known = joined.new("worker", "say hi", "--dir", str(repo.folder))
    return read_fleet(joined.here.paths).require(SessionId(known))


async def test_a_command_runs_in_the_folder_on_the_machine(joined: TwoCommandLines, session: Session) -> None:
    said: list[str] = []

    code = await run_command(joined.here.paths, session, "pwd; echo bad >&2; exit 3", said.append)

    assert (3, [str(joined.there.home / "repo"), "bad"]) == (code, "".join(said).split())


async def test_a_command_on_the_machine_gets_none_of_the_variables_that_the_host_keeps_for_its_agent(
    joined: TwoCommandLines,
) -> None:
    given = ("--agent", "scripted", "--mode", "sdk", "--prompt", "say hi")
    known = joined.there("new", "keeper", *given, HUSH_TOKEN="open-sesame").out.strip()
    joined.until(known, lambda listed: listed is not None and listed["state"] == "idle")
    session = await asyncio.to_thread(lambda: read_fleet(joined.here.paths).require(SessionId(known)))
    said: list[str] = []

    assert 0 == await run_command(joined.here.paths, session, "env", said.append)

    listed = "".join(said)
    assert f"HOME={joined.there.home}\n" in listed
    assert "open-sesame" not in listed
    assert "KASMON_HOST=host\n" in listed, "for kasmon it is no person"


async def test_a_command_on_the_machine_ends_with_its_children_when_the_user_ends_it(
    joined: TwoCommandLines, session: Session
) -> None:
    said: list[str] = []
    command = "sh -c 'echo $$; exec sleep 600'"
    running = asyncio.create_task(run_command(joined.here.paths, session, command, said.append))
    await auntil(lambda: "".join(said).endswith("\n"))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    stat = Path(f"/proc/{int(''.join(said))}/stat")
    await auntil(lambda: not stat.exists() or stat.read_text().split()[2] == "Z")


async def test_a_command_on_the_machine_with_endless_output_is_ended(joined: TwoCommandLines, session: Session) -> None:
    said: list[str] = []
    with pytest.raises(UnableError, match="printed more than 256 KB"):
        await run_command(joined.here.paths, session, "yes", said.append)

    assert len("".join(said)) < 2 * OUTPUT_BYTES


def test_the_names_defined_by_its_code_there_are_listed(joined: TwoCommandLines, session: Session) -> None:
    found = list_symbols(joined.here.paths, session)

    assert [CodeSymbol("Door", "app.py", 1), CodeSymbol("open", "app.py", 2)] == found


def test_an_agent_cannot_run_a_command_as_the_user(joined: TwoCommandLines, session: Session) -> None:
    program = (
        "import asyncio\n"
        "from kasmon.errors import KasmonError\n"
        "from kasmon.host.rpc.connect import open_link\n"
        "from kasmon.host.rpc.frames import RunShellCommand\n"
        "from kasmon.paths import user_paths\n"
        "async def ask():\n"
        f"    host = await open_link(user_paths(), {session.id!r}, 'sdk')\n"
        f"    print(await host.ask(RunShellCommand(n=0, session={session.id!r}, command='true')))\n"
        "try:\n    asyncio.run(ask())\nexcept KasmonError as error:\n    print(error.message)\n"
    )

    assert "an agent cannot run commands of the person" in start_lead(joined.there).run(sys.executable, "-c", program)


def test_its_owner_must_allow_the_user_to_start_sessions_there(fork_server: ForkServer) -> None:
    limited = TwoCommandLines(fork_server)
    try:
        known = limited.new("worker")
        limited.there.paths.config.mkdir(parents=True, exist_ok=True)
        with limited.there.paths.config_file.open("a") as config:
            config.write('\n[machine]\nallow = ["see", "prompt", "answer", "type"]\n')
        limited.cut()
        limited.connect()
        session = read_fleet(limited.here.paths).require(SessionId(known))

        with pytest.raises(RefusedError, match="does not let you start and end its sessions, or run commands"):
            asyncio.run(run_command(limited.here.paths, session, "true", print))
        assert [] == list_symbols(limited.here.paths, session), "that needs no more than a prompt"
    finally:
        limited.close()


async def test_without_a_host_on_the_machine_it_is_refused(joined: TwoCommandLines, session: Session) -> None:
    joined.there("stop", session.id)
    joined.until(session.id, lambda known: known["state"] == "ended")

    ended = await asyncio.to_thread(lambda: read_fleet(joined.here.paths).require(session.id))
    with pytest.raises(SessionEndedError):
        await run_command(joined.here.paths, ended, "true", print)
