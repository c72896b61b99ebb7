"""A session of interpreters through its host: turns, sleep, waking, ends by the clock; and the seed's own tests."""

import asyncio
import contextlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from blockbuster import BlockBuster, blockbuster_ctx

from kasmon.backends.interpreter import agent as interpreter
from kasmon.backends.interpreter.backend import InterpreterBackend, SandboxParts
from kasmon.backends.interpreter.threads import RUNNERS
from kasmon.errors import KasmonError, RefusedError, SandboxError, SessionEndedError, UnableError
from kasmon.host.journal.session_log import SessionLog
from kasmon.host.rpc.client import HostLink
from kasmon.host.rpc.frames import CommandResult, ExecuteCommand, FromHost, RunOutputChunk
from kasmon.mcp.results import of_once, of_run
from kasmon.model.commands import (
    AgentCommand,
    Checkpoint,
    Configure,
    Interrupt,
    Mode,
    Pause,
    Prompt,
    Resume,
    Run,
    SandboxCommand,
    Stop,
)
from kasmon.model.events import (
    Checkpointed,
    ContextReported,
    NoticeRaised,
    SandboxMeasured,
    SandboxPhaseChanged,
    SessionEnded,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    encode,
)
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import RunResult, SandboxPhase, SandboxPolicy, SandboxRuntime, SandboxSize
from kasmon.model.session_state import SessionState
from kasmon.paths import write_private
from kasmon.sandbox import tiers
from kasmon.sandbox.agent.context_files import AgentContextFiles
from kasmon.sandbox.base import UsageReport
from kasmon.sandbox.guest_client.channel import GuestChannel
from kasmon.store.event_log import Cursor, EventLog
from kasmon.supervisor.sandboxes.sandbox_operations import _not_paused
from tests.support.agents.fake_agent import FakeAgent
from tests.support.host.env import ME, Env
from tests.support.sandbox.unconfined_tier import UnconfinedTier
from tests.support.wait import auntil

pytestmark = [pytest.mark.sandboxes, pytest.mark.short]
OTHER = SessionId("otherone")


@pytest.fixture(autouse=True)
def _no_blocked_loop() -> Iterator[BlockBuster]:
    """In place of the one for all tests: these read logs on the loop that the host runs on."""
    with blockbuster_ctx("kasmon.backends.interpreter") as blockbuster:
        yield blockbuster


class Lab(Env):
    """A kasmon whose sandboxes are not confined."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.tier = UnconfinedTier(root / "bare")
        self.quiet_s = 0.05
        self.reach = tiers.connect_guest
        self.links: dict[SessionId, HostLink] = {}
        self.printed: list[RunOutputChunk] = []
        self.asking: list[asyncio.Task[RunResult]] = []
        """Of hosts that went away."""

    def settings(self, **lifetime: float | str | bool) -> None:
        """Write the config's [session]."""
        words = {True: "true", False: "false"}
        lines = [
            f"{key} = {words[value] if isinstance(value, bool) else repr(value)}" for key, value in lifetime.items()
        ]
        self.paths.config.mkdir(mode=0o700, exist_ok=True)
        self.paths.config_file.write_text("[session]\n" + "\n".join(lines).replace("'", '"') + "\n")

    @contextlib.asynccontextmanager
    async def lab(self, session: SessionId = ME, started: bool = True, **policy: Any) -> AsyncIterator[None]:
        """A host for *session* in this process, with a link to it; *started*: wait until it has its sandbox."""
        launch = self.wants(session, agent="interpreters", mode=Mode.INTERPRETER, backend="interpreter", sandbox="jail")
        if not self.paths.sandbox(session).exists():
            write_private(self.paths.sandbox(session), msgspec.json.encode(SandboxPolicy(session=session, **policy)))
        parts = SandboxParts(tier=lambda _: self.tier, reach=self.reach, points=tiers.checkpoint_store)
        async with self.hosting(InterpreterBackend(parts, self.quiet_s), launch):
            link = self.links[session] = await self.linked(session)
            link.on_push = self._pushed
            if started:
                await auntil(lambda: self.session(session).state is not SessionState.STARTING)
            try:
                yield
            finally:
                await link.aclose()

    async def do(self, wish: AgentCommand | SandboxCommand, session: SessionId = ME) -> CommandResult:
        done = await self.links[session].ask(ExecuteCommand(n=0, session=session, command=wish), 30)
        assert isinstance(done, CommandResult)
        return done

    async def ran(self, code: str, interpreter: str = "python", session: SessionId = ME, **more: Any) -> RunResult:
        ran = (await self.do(Run(interpreter=interpreter, code=code, **more), session)).ran  # type: ignore[arg-type]
        assert ran is not None
        return ran

    async def until_state(self, *states: SessionState, session: SessionId = ME) -> None:
        await auntil(lambda: self.session(session).state in states, what=f"one of {states}")

    async def until_turn_is_over(self, turns: int) -> None:
        await auntil(lambda: len(self.only(TurnEnded)) >= turns, what=f"{turns} turns")

    def _pushed(self, frame: FromHost) -> None:
        if isinstance(frame, RunOutputChunk):
            self.printed.append(frame)

    def close(self) -> None:
        for session in (ME, OTHER):
            self.tier.destroy(SandboxPolicy(session=session), None)
        super().close()


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    root = Path(tempfile.mkdtemp(prefix="kl-", dir="/tmp"))
    built = Lab(root)
    for name, value in built.environment.items():
        monkeypatch.setenv(name, value)
    yield built
    built.close()
    shutil.rmtree(root, ignore_errors=True)


# The seed's own tests, under their names


async def test_session_state_persists(lab: Lab) -> None:
    async with lab.lab():
        await lab.ran("x = [1, 2, 3, 4, 5]")

        assert "15\n" == (await lab.ran("print(sum(x))")).stdout


async def test_different_sessions_isolated(lab: Lab) -> None:
    async with lab.lab(), lab.lab(OTHER):
        await lab.ran("y = 1")
        await lab.ran("y = 2", session=OTHER)

        assert ("1\n", "2\n") == ((await lab.ran("print(y)")).stdout, (await lab.ran("print(y)", session=OTHER)).stdout)


async def test_session_expires_after_idle(lab: Lab) -> None:
    lab.settings(standby_after_seconds=0.2, idle_timeout_seconds=0.6)
    async with lab.lab():
        await lab.ran("z = 1")
        await lab.until_state(SessionState.ENDED)
        with pytest.raises(KasmonError):
            await lab.ran("print(z)")
    lab.settings()
    lab.wants(agent="interpreters", mode=Mode.INTERPRETER, backend="interpreter", generation=2)

    async with lab.lab():
        again = await lab.ran("print(z)")

    assert 1 == again.exit_code
    assert "name 'z' is not defined" in again.stderr


# Turns


async def test_consecutive_runs_are_one_turn_and_their_code_and_output_are_logged(lab: Lab) -> None:
    lab.quiet_s = 0.3
    async with lab.lab():
        await lab.ran("print(6 * 7)")
        await lab.ran("echo hm >&2; exit 3", "bash")
        await lab.until_turn_is_over(1)

    assert 1 == len(lab.only(TurnStarted)) == len(lab.only(TurnEnded))
    assert [("python", "print(6 * 7)"), ("bash", "echo hm >&2; exit 3")] == [
        (fact.tool, fact.title) for fact in lab.only(ToolStarted)
    ]
    assert [(True, 0, "42"), (False, 3, "hm")] == [
        (fact.ok, fact.exit_code, fact.output.splitlines()[0]) for fact in lab.only(ToolFinished)
    ]


async def test_bash_runs_while_python_is_busy(lab: Lab) -> None:
    async with lab.lab():
        slow = asyncio.create_task(lab.ran("import time, os\nwhile not os.path.exists('go'): time.sleep(0.01)"))
        await auntil(lambda: lab.only(ToolStarted))

        assert 0 == (await lab.ran("touch go", "bash")).exit_code
        assert 0 == (await slow).exit_code


async def test_output_of_a_run_arrives_before_its_end(lab: Lab) -> None:
    async with lab.lab():
        slow = asyncio.create_task(
            lab.ran("echo first; while [ ! -e go ]; do sleep 0.01; done; echo last", "bash", id="r1")
        )
        await auntil(lambda: "".join(frame.stdout for frame in lab.printed) == "first\n")
        await lab.ran("_ = open('go', 'w')")

        assert "first\nlast\n" == (await slow).stdout
        assert {"r1"} == {frame.run for frame in lab.printed}


async def test_a_repeated_run_runs_once(lab: Lab) -> None:
    async with lab.lab():
        both = await asyncio.gather(*(lab.ran("echo x >> file; wc -l < file", "bash", id="r1") for _ in range(2)))
        again = await lab.ran("echo x >> file; wc -l < file", "bash", id="r1")

    assert ["1"] * 3 == [ran.stdout.strip() for ran in (*both, again)]
    assert 1 == len(lab.only(ToolStarted))


async def test_an_interrupt_ends_the_run_and_keeps_the_state(lab: Lab) -> None:
    async with lab.lab():
        await lab.ran("x = 42")
        endless = asyncio.create_task(lab.ran("while True: pass"))
        await auntil(lambda: len(lab.only(ToolStarted)) == 2)
        while not endless.done():
            await lab.do(Interrupt())

        assert 0 != (await endless).exit_code
        assert "42\n" == (await lab.ran("print(x)")).stdout


async def test_an_interrupt_of_an_ended_or_another_run_has_no_effect_and_reports_that(lab: Lab) -> None:
    async with lab.lab():
        await lab.ran("x = 42", id="over")
        going = asyncio.create_task(lab.ran("while True: pass", id="going"))
        await auntil(lambda: len(lab.only(ToolStarted)) == 2)
        for run in ("over", "none"):
            with pytest.raises(RefusedError, match=f"nothing was interrupted: run '{run}' has ended or does not exist"):
                await lab.do(Interrupt(run=run))
        assert not going.done()

        await lab.do(Interrupt(run="going"))

        assert 130 == (await going).exit_code
        assert "42\n" == (await lab.ran("print(x)")).stdout


async def test_an_interrupt_arrives_at_the_limit_of_runs(lab: Lab) -> None:
    async with lab.lab():
        going = [asyncio.create_task(lab.ran("while True: pass", id=f"r{number}")) for number in range(RUNNERS)]
        await auntil(lambda: len(lab.only(ToolStarted)) == RUNNERS)
        for number in range(RUNNERS):
            await lab.do(Interrupt(run=f"r{number}"))

        assert {130} == {(await each).exit_code for each in going}


async def test_a_prompt_is_code_for_the_last_used_interpreter(lab: Lab) -> None:
    async with lab.lab():
        await lab.do(Prompt(text="echo $((6*7)) > answer"))
        await auntil(lambda: lab.only(ToolFinished))
        await lab.ran("pass")
        await lab.do(Prompt(text="print(open('answer').read())"))
        await auntil(lambda: len(lab.only(ToolFinished)) == 3)

    assert ["bash", "python", "python"] == [fact.tool for fact in lab.only(ToolStarted)]
    assert "42" == lab.only(ToolFinished)[-1].output.strip()


async def test_a_client_that_leaves_does_not_end_its_run(lab: Lab) -> None:
    async with lab.lab():
        leaving = await lab.linked()
        asking = asyncio.create_task(
            leaving.ask(
                ExecuteCommand(n=0, session=ME, command=Run(interpreter="bash", code="sleep 0.1; echo x=1 > left")), 20
            )
        )
        await auntil(lambda: lab.only(ToolStarted))
        await leaving.aclose()
        await asyncio.gather(asking, return_exceptions=True)

        await auntil(lambda: lab.only(ToolFinished))
        assert "x=1\n" == (await lab.ran("cat left", "bash")).stdout


async def test_its_idle_time_is_counted_from_the_end_of_a_turn(lab: Lab) -> None:
    lab.settings(standby_after_seconds=100, idle_timeout_seconds=200)
    async with lab.lab():
        await lab.ran("import time; time.sleep(0.6)")
        await lab.until_turn_is_over(1)

        sandbox_state, ended = lab.session().sandbox_state, lab.only(TurnEnded)[0].at

    assert sandbox_state is not None
    assert sandbox_state.standby_at is not None
    assert sandbox_state.expires_at is not None
    assert abs(sandbox_state.standby_at - ended - 100) < 0.5
    assert abs(sandbox_state.expires_at - ended - 200) < 0.5


# Sleep


async def test_an_unused_sandbox_is_paused_and_a_run_resumes_it(lab: Lab) -> None:
    lab.settings(standby_after_seconds=0.3)
    async with lab.lab():
        await lab.ran("x = 42")
        await lab.until_state(SessionState.STANDBY)

        assert "42\n" == (await lab.ran("print(x)")).stdout
        await auntil(lambda: lab.session().phase == SandboxPhase.RUNNING.value)


async def test_a_prompt_resumes_it_too(lab: Lab) -> None:
    async with lab.lab():
        await lab.do(Pause())
        await lab.do(Prompt(text="echo awake", when="idle"))

        await auntil(lambda: lab.only(ToolFinished))
    assert "awake" == lab.only(ToolFinished)[0].output.strip()


async def test_without_resume_on_use_only_a_resume_command_does(lab: Lab) -> None:
    lab.settings(auto_resume=False)
    async with lab.lab():
        await lab.do(Pause())
        with pytest.raises(RefusedError, match="is paused, and is not resumed on use"):
            await lab.ran("1")

        await lab.do(Resume())

        assert 0 == (await lab.ran("1")).exit_code


async def test_a_running_turn_is_never_idle(lab: Lab) -> None:
    lab.settings(standby_after_seconds=0.1, idle_timeout_seconds=0.2)
    async with lab.lab():
        began = time.monotonic()

        assert 0 == (await lab.ran("import time; time.sleep(0.7)")).exit_code
        assert time.monotonic() - began >= 0.7
        facts = lab.events()
        started = next(at for at, fact in enumerate(facts) if isinstance(fact, TurnStarted))
        ended = next((at for at, fact in enumerate(facts) if isinstance(fact, TurnEnded)), len(facts))
        assert not [fact for fact in facts[started:ended] if _sleeps(fact)]


def _sleeps(fact: object) -> bool:
    return isinstance(fact, SandboxPhaseChanged) and fact.phase in (SandboxPhase.PAUSING, SandboxPhase.PAUSED)


async def test_a_pause_requested_in_a_turn_is_done_once_after_it(lab: Lab) -> None:
    lab.quiet_s = 0.3
    async with lab.lab():
        await lab.ran("x = 1")
        sleeping = asyncio.create_task(lab.do(Pause()))
        for _ in range(3):
            await lab.ran("x += 1")
        await sleeping

        facts = list(enumerate(lab.events()))
        slept = [
            at for at, fact in facts if isinstance(fact, SandboxPhaseChanged) and fact.phase is SandboxPhase.PAUSED
        ]
        ended = [at for at, fact in facts if isinstance(fact, TurnEnded)]
        assert 1 == len(slept)
        assert ended[0] < slept[0]
        assert 1 == len(lab.only(TurnStarted))
        assert "4\n" == (await lab.ran("print(x)")).stdout


async def test_a_failed_pause_is_a_warning_and_no_failed_turn(lab: Lab) -> None:
    lab.settings(standby_after_seconds=0.2)
    async with lab.lab():
        await lab.ran("x = 42")
        lab.tier.fails = "the kernel said no"
        await auntil(lambda: [fact for fact in lab.only(NoticeRaised) if "was not paused" in fact.text])

        assert "42\n" == (await lab.ran("print(x)")).stdout
        assert {"done"} == {fact.reason for fact in lab.only(TurnEnded)}


class Weighed(UnconfinedTier):
    """Its files may take 1000 bytes."""

    def usage(self, policy: SandboxPolicy, runtime: SandboxRuntime) -> UsageReport:
        files = [path for path in Path(self.workspace(policy)).iterdir() if path.is_file()]
        size = SandboxSize(time_s=30, cpus=1, memory_bytes=1, disk_bytes=1000)
        weight = sum(path.stat().st_size for path in files)
        return UsageReport(memory_bytes=0, disk_bytes=weight, processes=1, allowed=size)


async def test_code_that_fills_the_disk_is_interrupted_and_code_that_frees_it_is_not(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its interpreters hold is kept."""
    monkeypatch.setattr(interpreter, "LOOK_S", 0.02)
    lab.tier = Weighed(lab.tier.root)
    async with lab.lab():
        fills = await lab.ran("n=7; while :; do head -c 200 /dev/zero >> big; done", "bash", timeout_s=20)
        assert (130, True) == (fills.exit_code, fills.session_preserved)
        assert fills.disk_full
        assert "The disk of the sandbox is full" in fills.hint
        await auntil(lambda: any("The disk of the sandbox is full" in fact.output for fact in lab.only(ToolFinished)))
        for answer in (of_run(fills, "lab", "lab"), of_once(fills)):
            assert answer["disk_full"]
            assert "disk" in answer["hint"]
        assert {True} == {"disk of the sandbox is full" in fact.text for fact in lab.only(NoticeRaised)}
        makes_room = "while truncate -s -200 big && [ -s big ]; do :; done; rm big; echo $n"
        then = await lab.ran(makes_room, "bash")
        assert ("7\n", False) == (then.stdout, then.disk_full)


async def test_with_files_over_the_limit_only_bash_runs_until_some_are_removed(lab: Lab) -> None:
    lab.tier = Weighed(lab.tier.root)
    async with lab.lab():
        await lab.ran("head -c 2000 /dev/zero > big", "bash")
        await auntil(lambda: [fact for fact in lab.only(SandboxMeasured) if fact.disk_bytes == 2000])
        with pytest.raises(RefusedError, match="is full"):
            await lab.ran("1")

        assert 0 == (await lab.ran("rm big", "bash")).exit_code
        await auntil(lambda: [fact for fact in lab.only(SandboxMeasured)[1:] if fact.disk_bytes == 0])
        assert 0 == (await lab.ran("1")).exit_code


# Ends


async def test_a_lifetime_ends_after_its_time_without_a_crash(lab: Lab) -> None:
    lab.settings(max_lifetime_seconds=0.8)
    async with lab.lab():
        await lab.ran("x = 1")
        await auntil(lambda: lab.only(SessionEnded))

    session = lab.session()
    assert ("expired", False) == (session.phase, session.crashed)
    assert "maximum lifetime of 0.8 s reached" == session.end_why
    assert all(child.poll() is not None for child in lab.tier.made)


async def test_a_stop_ends_the_sandbox_during_any_run(lab: Lab) -> None:
    async with lab.lab():
        endless = asyncio.create_task(lab.ran("while True: pass"))
        await auntil(lambda: lab.only(ToolStarted))
        await lab.do(Stop())
        await lab.until_state(SessionState.ENDED)
        await asyncio.gather(endless, return_exceptions=True)

    assert lab.session().stopped
    assert all(child.poll() is not None for child in lab.tier.made)
    assert not list(lab.paths.runtime.iterdir())


async def test_nothing_runs_in_an_ended_sandbox(lab: Lab) -> None:
    async with lab.lab():
        await lab.do(Stop())
        with pytest.raises(KasmonError) as refused:
            await lab.ran("1")
    assert isinstance(refused.value, SessionEndedError | KasmonError)


# What dies


async def test_code_that_ran_when_the_agent_died_is_not_repeated_and_that_is_reported(lab: Lab) -> None:
    async with lab.lab():
        await lab.ran("x = 42")
        slow = asyncio.create_task(lab.ran("echo x >> runs; sleep 30", "bash"))
        await auntil(lambda: (lab.tier.root / ME / "workspace" / "runs").exists())
        lab.tier.made[0].kill()

        lost = await slow

        assert not lost.session_preserved
        assert "It is unknown how far this ran; it was not run again." in lost.stderr
        assert "files kept" in lost.hint
        assert "1" == (await lab.ran("wc -l < runs", "bash")).stdout.strip()


async def test_a_sandbox_that_can_neither_be_resumed_nor_replaced_ends_the_session(lab: Lab) -> None:
    async with lab.lab():
        await lab.ran("x = 42")
        await lab.do(Pause())

        def no_room(*_: object) -> SandboxRuntime:
            raise SandboxError("it failed", "there is no room")

        lab.tier.resume = lab.tier.create = no_room  # type: ignore[method-assign]
        with pytest.raises(SandboxError, match="no room"):
            await lab.ran("1")
        await auntil(lambda: lab.only(SessionEnded))

    assert (SessionState.ENDED, True) == (lab.session().state, lab.session().crashed)
    assert "it failed: there is no room." == lab.session().end_why


async def test_an_agent_that_died_without_a_run_is_replaced_and_the_next_answer_reports_the_kept_state(
    lab: Lab,
) -> None:
    async with lab.lab():
        await lab.ran("x = 42")
        await lab.until_turn_is_over(1)
        lab.tier.made[0].kill()
        lab.tier.made[0].wait()

        after = await lab.ran("print(x)")

    assert "42\n" == after.stdout
    assert (False, True) == (after.session_preserved, after.restarted)
    assert "saved variables were restored" in after.hint


async def test_the_next_host_continues_with_the_sandbox_of_a_killed_one(lab: Lab) -> None:
    async with a_host_that_is_killed(lab):
        await lab.ran("x = 42")

    async with lab.lab():
        assert "42\n" == (await lab.ran("print(x)")).stdout
    assert 1 == len(lab.tier.made)


@contextlib.asynccontextmanager
async def a_host_that_is_killed(lab: Lab) -> AsyncIterator[None]:
    """It only lets go of its sandbox at the end, and notes nothing of that."""
    async with lab.lab():
        yield
        facts = lab.paths.log(ME).read_bytes()
        lab.tier.destroy = lambda policy, runtime: None  # type: ignore[method-assign]
    lab.paths.log(ME).write_bytes(facts)
    del lab.tier.destroy
    await asyncio.gather(*lab.asking, return_exceptions=True)


SLOW = "echo x >> runs; echo one; until [ -e go ]; do sleep 0.1; done; echo two"


async def begun(lab: Lab, code: str = SLOW, run: str = "r1") -> None:
    """A run of *code* is under way, which made the file `runs`."""
    asking = asyncio.create_task(lab.ran(code, "bash", id=run))
    lab.asking.append(asking)
    await auntil(lambda: (lab.tier.root / ME / "workspace" / "runs").exists() and lab.only(ToolStarted))


async def test_a_run_whose_host_was_killed_is_found_again_reported_and_not_repeated(lab: Lab) -> None:
    async with a_host_that_is_killed(lab):
        await begun(lab)

    async with lab.lab():
        assert SessionState.WORKING is lab.session().state
        again = asyncio.create_task(lab.ran(SLOW, "bash", id="r1", again=True))
        await lab.ran("open('go', 'w').close()")
        ran = await again
        await lab.until_turn_is_over(1)

        assert "1" == (await lab.ran("wc -l < runs", "bash")).stdout.strip()
    assert ("one\ntwo\n", 0, True) == (ran.stdout, ran.exit_code, ran.session_preserved)
    assert "a new host reconnected to it" in ran.hint
    assert ["r1"] == [fact.call for fact in lab.only(ToolFinished) if "one\ntwo" in fact.output]


async def until_open(lab: Lab) -> None:
    """Wait until the host has its agent; before that it refuses, and says that the session is still starting."""
    while True:
        try:
            await lab.do(Configure(model="none"))
        except UnableError:
            return
        except RefusedError:
            await asyncio.sleep(0)


async def test_a_run_can_be_interrupted_through_the_next_host(lab: Lab) -> None:
    async with a_host_that_is_killed(lab):
        await begun(lab)

    async with lab.lab():
        await until_open(lab)
        await lab.do(Interrupt(run="r1"))
        await auntil(lambda: lab.only(ToolFinished))

    assert [("r1", 130)] == [(fact.call, fact.exit_code) for fact in lab.only(ToolFinished)]


@pytest.mark.parametrize("wish", [Interrupt(run="r1"), Interrupt()], ids=["by its id", "whatever runs"])
async def test_an_interrupt_waits_for_the_next_host_to_reach_the_sandbox(lab: Lab, wish: Interrupt) -> None:
    """It is not refused as if nothing ran."""
    async with a_host_that_is_killed(lab):
        await begun(lab)
    asked, reached = threading.Event(), threading.Event()

    def late(runtime: SandboxRuntime, name: str = "") -> GuestChannel:
        asked.set()
        assert reached.wait(20)
        return tiers.connect_guest(runtime, name)

    lab.reach = late
    async with lab.lab(started=False):
        assert await asyncio.to_thread(asked.wait, 20)
        await until_open(lab)
        interrupting = asyncio.create_task(lab.do(wish))
        with pytest.raises(UnableError):  # the host takes requests in their order
            await lab.do(Configure(model="none"))
        reached.set()
        await interrupting
        await auntil(lambda: lab.only(ToolFinished))

    assert [("r1", 130)] == [(fact.call, fact.exit_code) for fact in lab.only(ToolFinished)]


async def test_a_run_whose_host_and_sandbox_were_killed_is_unknown_and_not_repeated(lab: Lab) -> None:
    async with a_host_that_is_killed(lab):
        await begun(lab)
    lab.tier.made[0].kill()
    lab.tier.made[0].wait()

    async with lab.lab():
        ran = await lab.ran(SLOW, "bash", id="r1", again=True)
        unnoted = await lab.ran("echo x >> runs", "bash", id="r2", again=True)
        new = await lab.ran("wc -l < runs", "bash")

    for told in (ran, unnoted):
        assert (137, False) == (told.exit_code, told.session_preserved)
        assert "It is unknown how far this ran; it was not run again." in told.stderr
        assert "files kept" in told.hint
    assert "1" == new.stdout.strip()


async def test_a_run_that_never_reached_its_sandbox_runs_once_when_it_is_repeated(lab: Lab) -> None:
    async with a_host_that_is_killed(lab):
        await lab.until_turn_is_over(0)
    started = ToolStarted(at=time.time(), call="r1", tool="bash", title="echo x", input='{"code":"echo x"}')
    with lab.paths.log(ME).open("ab") as log:
        log.write(encode(started) + b"\n")

    async with lab.lab():
        ran = await lab.ran("echo x >> runs; wc -l < runs", "bash", id="r1", again=True)
        told = await lab.ran("echo x >> runs; wc -l < runs", "bash", id="r1", again=True)

    assert ["1"] * 2 == [each.stdout.strip() for each in (ran, told)]
    assert "It did not run: its host ended before it reached the sandbox." in lab.only(ToolFinished)[0].output


async def test_a_run_that_ended_when_its_host_was_killed_is_reported_again(lab: Lab) -> None:
    """By the agent inside; where that is gone too, as the log has it."""
    async with a_host_that_is_killed(lab):
        await lab.ran("echo x >> runs; echo out; echo err >&2; exit 3", "bash", id="r1")
    async with a_host_that_is_killed(lab):
        by_agent = await lab.ran("never", "bash", id="r1", again=True)
    lab.tier.made[0].kill()
    lab.tier.made[0].wait()

    async with lab.lab():
        by_log = await lab.ran("never", "bash", id="r1", again=True)

    assert ("out\n", "err", 3) == (by_agent.stdout, by_agent.stderr.splitlines()[0], by_agent.exit_code)
    assert (["out", "err"], 3) == (by_log.stdout.splitlines()[:2], by_log.exit_code)
    assert "its output from the log" in by_log.hint


async def test_a_run_is_answered_only_once_its_end_is_in_the_log(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    async with lab.lab():
        await lab.ran("x = 1", "bash")
        may_write, flush = threading.Event(), SessionLog.flush

        def late(book: SessionLog) -> bool:
            assert may_write.wait(30)
            return flush(book)

        monkeypatch.setattr(SessionLog, "flush", late)
        running = asyncio.create_task(lab.ran("touch done; exit 3", "bash", id="r1"))
        await auntil(lambda: (lab.tier.root / ME / "workspace" / "done").exists())
        early, _ = await asyncio.wait([running], timeout=0.3)
        may_write.set()

        assert set() == early
        assert 3 == (await running).exit_code
        assert ["r1"] == [fact.call for fact in lab.only(ToolFinished) if fact.exit_code == 3]


async def test_an_intent_is_in_the_log_before_anything_is_executed(lab: Lab) -> None:
    seen: list[str] = []

    class Watching(UnconfinedTier):
        def create(self, policy: SandboxPolicy, /) -> SandboxRuntime:
            seen.append(lab.paths.log(ME).read_text())
            return super().create(policy)

    lab.tier = Watching(lab.tier.root)
    async with lab.lab():
        pass

    assert '"phase":"creating","step":"intended"' in seen[0]


async def test_nothing_is_created_while_the_log_cannot_be_written(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kasmon.backends.interpreter.event_queue.WRITTEN_S", 0.3)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    lab.paths.folder(ME).mkdir(mode=0o700)
    monkeypatch.setattr("kasmon.store.event_log.EventLog.append", full)
    hosting = asyncio.create_task(_lived(lab))
    await asyncio.sleep(0)
    await auntil(lambda: hosting.done() or lab.paths.socket(ME).exists())
    deadline = time.monotonic() + 1
    await auntil(lambda: time.monotonic() > deadline)
    assert [] == lab.tier.made
    monkeypatch.undo()
    for name, value in lab.environment.items():
        os.environ[name] = value
    await hosting

    assert [SessionEnded] == [type(fact) for fact in lab.only(SessionEnded)]
    assert "the command could not be logged" in lab.only(SessionEnded)[0].why


async def _lived(lab: Lab) -> None:
    launch = lab.wants(agent="interpreters", mode=Mode.INTERPRETER, backend="interpreter")
    write_private(lab.paths.sandbox(ME), msgspec.json.encode(SandboxPolicy(session=ME)))
    parts = SandboxParts(tier=lambda _: lab.tier, reach=tiers.connect_guest, points=tiers.checkpoint_store)
    async with lab.hosting(InterpreterBackend(parts, 0.05), launch):
        await auntil(lambda: lab.only(SessionEnded))


# Pauses, confirmed by what the log has of them


async def test_a_pause_that_another_caller_ended_at_once_still_counts(lab: Lab) -> None:
    async with lab.lab():
        await lab.ran("x = 42")
        log, since = EventLog(lab.paths.log(ME)), Cursor(lab.paths.log(ME).stat().st_size)
        await lab.do(Pause())
        asleep = Cursor(log.size())
        await lab.ran("x += 1")

        assert "" == _not_paused(lab.paths, lab.session(), log, since, False)
        assert "" == _not_paused(lab.paths, lab.session(), log, asleep, False)  # it slept already, and was woken
        assert _not_paused(lab.paths, lab.session(), log, Cursor(log.size()), False)


async def test_a_pause_that_lost_everything_does_not_count_though_another_sandbox_is_paused(lab: Lab) -> None:
    async with lab.lab():
        await lab.ran("x = 42")
        since = Cursor(lab.paths.log(ME).stat().st_size)
        lab.tier.made[0].kill()
        lab.tier.made[0].wait()
        await lab.ran("1")
        await lab.do(Pause())

        assert "interpreter state lost; files kept" in _not_paused(
            lab.paths, lab.session(), EventLog(lab.paths.log(ME)), since, False
        )


async def test_a_pause_to_disk_without_its_snapshot_does_not_count(lab: Lab) -> None:
    async with lab.lab():
        await lab.ran("x = 42")
        log, since = EventLog(lab.paths.log(ME)), Cursor(lab.paths.log(ME).stat().st_size)
        await lab.do(Pause())
        now = lab.session()
    assert now.sandbox_state is not None
    now = msgspec.structs.replace(
        now, sandbox="microvm", sandbox_state=msgspec.structs.replace(now.sandbox_state, held=False, tier="microvm")
    )

    assert "its memory snapshot: it no longer exists" == _not_paused(lab.paths, now, log, since, True)


# Checkpoints, and what other agents are


async def test_each_turn_has_a_checkpoint_before_and_after_it(lab: Lab) -> None:
    async with lab.lab():
        for number in range(2):
            await lab.ran(f"echo {number} > file", "bash")
            await lab.until_turn_is_over(number + 1)
        asked = (await lab.do(Checkpoint())).outcome

    kept = [(fact.when, fact.turn) for fact in lab.only(Checkpointed)]
    assert [("before", 1), ("after", 1), ("after", 2), ("asked", 2)] == kept
    assert asked == lab.only(Checkpointed)[-1].checkpoint


async def test_another_kind_of_agent_runs_no_code(lab: Lab) -> None:
    fake = FakeAgent()
    async with lab.hosting(fake):
        link = await lab.linked()
        with pytest.raises(UnableError, match="is not an interpreter sandbox"):
            await link.ask(ExecuteCommand(n=0, session=ME, command=Run(interpreter="bash", code="1")), 10)
        await link.aclose()


# What those inside know, and say


def note(own: AgentContextFiles, waiting: str) -> str:
    """Code that leaves what `kasmon ctx --waiting` does."""
    line = "json.dumps({'event': 'kasmon.ctx', 'at': time.time(), 'waiting': " + repr(waiting) + "})"
    return f"import json, time; print({line}, file=open({str(own.notes)!r}, 'a'))"


async def test_a_ctx_report_in_the_guest_is_logged_once_and_the_context_is_current(lab: Lab) -> None:
    """Here its folder is made by the test; in a jail it is the jail's."""
    own = AgentContextFiles(lab.tier.root / ME)
    async with a_host_that_is_killed(lab):
        own.make((os.getuid(), os.getgid()), b"{}")
        await lab.ran(note(own, "over \x07there"))
        await auntil(lambda: lab.only(ContextReported))
        write_private(lab.paths.context(ME), b'{"title": "Write it"}')
        await auntil(lambda: b"Write it" in (own.folder / "context.json").read_bytes())

    async with lab.lab():
        await lab.ran("1")
        await lab.ran(note(own, "there again"))
        await auntil(lambda: len(lab.only(ContextReported)) > 1)

    assert ["over there", "there again"] == [fact.waiting for fact in lab.only(ContextReported)]
