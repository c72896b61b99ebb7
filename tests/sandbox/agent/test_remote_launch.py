"""Agents in sandboxes that keep their memory: the same process goes on after it was on disk, or another is begun."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.model.events import NoticeRaised, SandboxPhaseChanged, TurnEnded
from kasmon.model.sandbox.policy import SandboxPhase, Tier
from kasmon.model.session_state import SessionState
from kasmon.sandbox.e2b import service as calls
from kasmon.sandbox.microvm.machine import MicroVm
from kasmon.sandbox.microvm.warm_pool import MEMORY
from tests.support.cli.cli_runner import Cli
from tests.support.cli.fork_server import ForkServer
from tests.support.e2b.local_service import Served, served
from tests.support.sandbox.machine_image import IMAGE, need_machine, warmed
from tests.support.sandbox.pausing_agents import begun, lodged, put_to_disk, robbed, there, tier_of
from tests.support.sandbox.requirements import need_jail
from tests.support.sandbox.sandboxed_agents import ACP, configured, facts, folder, session_of, shows, until_state
from tests.support.wait import until

pytestmark = [pytest.mark.sandboxes, pytest.mark.timeout(240)]  # a machine that begins plays its processor itself
workdir = pytest.fixture(folder)


class LodgerContract:
    """What every tier promises to agents whom it keeps; a subclass gives `tier`."""

    tier: Tier

    @pytest.fixture
    def kasmon(self, fork_server: ForkServer) -> Iterator[Cli]:
        yield from lodged(fork_server, self.tier)

    def test_its_conversation_continues_after_its_memory_was_on_disk_and_after_everything_was_killed(
        self, kasmon: Cli, workdir: Path
    ) -> None:
        session = begun(kasmon, self.tier, workdir)
        assert there(kasmon, session).front
        until_state(kasmon, session, SessionState.IDLE)
        row = kasmon.json("show", session)["session"]
        proven = None if self.tier == "e2b" else True  # how it is there, the service alone knows
        assert (self.tier, proven, []) == (row["sandbox"], row["confined"], row["mismatches"])
        kasmon("send", session, "say first")
        shows(kasmon, session, "❯ say first")
        until_state(kasmon, session, SessionState.IDLE)
        put_to_disk(kasmon, session)

        assert 0 == kasmon("send", session, "say second").code
        assert "❯ say first" in shows(kasmon, session, "❯ say second")
        until_state(kasmon, session, SessionState.IDLE)
        put_to_disk(kasmon, session)
        robbed(kasmon, session)
        assert 0 == kasmon("restart", session).code
        there(kasmon, session, 2)
        assert "❯ say second" in shows(kasmon, session, "❯ say first")
        until_state(kasmon, session, SessionState.IDLE)
        assert 0 == kasmon("stop", session).code
        tier, policy = tier_of(kasmon, session)
        until(lambda: tier.adopt(policy) is None and tier.kept(policy) is None)
        assert 0 == kasmon("rm", session).code
        assert not tier.host_folders.of(session).exists()


class TestInMicroVm(LodgerContract):
    tier: Tier = "microvm"

    @pytest.fixture(autouse=True)
    def _require_available(self) -> None:
        need_machine()
        warmed(MicroVm(image=IMAGE))


class TestInE2b(LodgerContract):
    tier: Tier = "e2b"

    @pytest.fixture
    def kasmon(self, kasmon_there: Cli) -> Cli:
        return kasmon_there


@pytest.fixture(scope="module")
def at_service() -> Iterator[Served]:
    need_jail()  # it makes its sandboxes by the same program
    with served() as running:
        yield running


@pytest.fixture(params=["microvm"])
def tier(request: pytest.FixtureRequest) -> Tier:
    """Whose agents they are: of one kind, or of each that a test names."""
    found: Tier = request.param
    return found


@pytest.fixture
def kasmon(fork_server: ForkServer, tier: Tier, request: pytest.FixtureRequest) -> Iterator[Cli]:
    if tier == "microvm":
        need_machine()
        warmed(MicroVm(image=IMAGE))
        yield from lodged(fork_server, tier)
    else:
        yield request.getfixturevalue("kasmon_there")


@pytest.fixture
def kasmon_there(fork_server: ForkServer, at_service: Served) -> Iterator[Cli]:
    yield from lodged(fork_server, "e2b", at_service.access.variables())


handed = pytest.mark.parametrize(
    ("config", "words"),
    [
        ('confined.credentials = [{ name = "TOKEN", command = ["printf", "sesame"] }]', ("--yes",)),
        ("", ("--env", "TOKEN=sesame")),
    ],
    ids=["credential", "env"],
)
in_both = pytest.mark.parametrize("tier", ["microvm", "e2b"], indirect=True)


@in_both
def test_a_structured_agent_continues_on_its_pipes_after_its_memory_was_on_disk(
    kasmon: Cli, tier: Tier, workdir: Path
) -> None:
    program = workdir / "agent.py"
    program.write_text(ACP)
    configured(kasmon, '[agents.mine]\nprogram = "/usr/bin/python3"\nacp = ["agent.py"]\n')
    session = begun(kasmon, tier, workdir, "--mode", "sdk", agent="mine")
    until_state(kasmon, session, SessionState.IDLE)
    there(kasmon, session)
    for count, text in enumerate(("one", "two"), start=1):
        assert 0 == kasmon("send", session, text).code
        until(lambda count=count: count == len(facts(kasmon, session, TurnEnded)))  # type: ignore[misc]
        put_to_disk(kasmon, session)
    assert 1 == session_of(kasmon, session).generation


def test_at_a_service_it_is_paused_once_by_the_timer_and_a_prompt_resumes_it(
    kasmon_there: Cli, at_service: Served, workdir: Path
) -> None:
    """Both of the clock's steps are one there: its memory is kept at once."""
    kasmon = kasmon_there
    configured(kasmon, "[session]\nstandby_after_seconds = 0.5\nidle_timeout_seconds = 1")
    session = begun(kasmon, "e2b", workdir, agent="shell")
    before = len(at_service.asked("pause"))
    until_state(kasmon, session, SessionState.PAUSED)
    (workdir / "note").write_text("made here\n")

    assert 0 == kasmon("send", session, "cat note; echo inside > mine; echo wo''ken").code
    assert "made here" in shows(kasmon, session, "woken")
    until_state(kasmon, session, SessionState.PAUSED)
    assert "inside\n" == (workdir / "mine").read_text()
    assert before + 2 == len(at_service.asked("pause"))
    moved = [
        (each.phase, each.held) for each in facts(kasmon, session, SandboxPhaseChanged) if each.step == "confirmed"
    ]
    assert [(SandboxPhase.PAUSED, False), (SandboxPhase.RUNNING, False), (SandboxPhase.PAUSED, False)] == moved[-3:]


def test_a_sandbox_that_the_service_lost_ends_with_a_report_and_the_next_start_has_its_home(
    kasmon_there: Cli, at_service: Served, workdir: Path
) -> None:
    kasmon = kasmon_there
    session = begun(kasmon, "e2b", workdir, agent="shell")
    until_state(kasmon, session, SessionState.IDLE)
    kasmon("send", session, "echo kept > ~/note; kasmon ctx --waiting 'for tea'; echo th''en")
    shows(kasmon, session, "then")
    until(lambda: "for tea" == session_of(kasmon, session).waits)
    put_to_disk(kasmon, session)
    calls.kill(at_service.access, there(kasmon, session).remote)

    said = kasmon("sandbox", "resume", session)
    assert 0 != said.code
    assert "the service no longer has it" in said.err
    until_state(kasmon, session, SessionState.ENDED)
    assert "its memory is lost" in session_of(kasmon, session).end_why
    assert 0 == kasmon("restart", session).code
    there(kasmon, session, 2)
    until_state(kasmon, session, SessionState.IDLE)
    kasmon("send", session, "clear; cat ~/note; echo a''gain; exit 7")
    until_state(kasmon, session, SessionState.ENDED)
    assert 7 == session_of(kasmon, session).exit_code


def test_a_shell_knows_its_terminal_and_the_output_of_a_short_command_stays(kasmon: Cli, workdir: Path) -> None:
    """What asks a shell how a command ended takes itself off the screen: a dumb terminal does not wrap it."""
    session = begun(kasmon, "microvm", workdir, agent="shell")
    until_state(kasmon, session, SessionState.IDLE)
    kasmon("send", session, "echo o''ne $TERM")
    until_state(kasmon, session, SessionState.IDLE)
    kasmon("send", session, "echo t''wo")
    until_state(kasmon, session, SessionState.IDLE)

    assert "one tmux-256color" in shows(kasmon, session, "two")


def test_the_timer_pauses_it_then_writes_it_to_disk_and_a_prompt_resumes_it(kasmon: Cli, workdir: Path) -> None:
    configured(kasmon, "[session]\nstandby_after_seconds = 0.5\nidle_timeout_seconds = 3")
    session = begun(kasmon, "microvm", workdir, agent="shell")
    until_state(kasmon, session, SessionState.STANDBY)
    until_state(kasmon, session, SessionState.PAUSED)
    moved = [
        (each.phase, each.held) for each in facts(kasmon, session, SandboxPhaseChanged) if each.step == "confirmed"
    ]
    assert [(SandboxPhase.PAUSED, True), (SandboxPhase.RUNNING, False), (SandboxPhase.PAUSED, False)] == moved[-3:]

    assert 0 == kasmon("send", session, "echo wo''ken").code
    shows(kasmon, session, "woken")


def test_an_unusable_memory_ends_the_agent_with_a_report_and_the_next_start_has_its_home(
    kasmon: Cli, workdir: Path
) -> None:
    session = begun(kasmon, "microvm", workdir, agent="shell")
    until_state(kasmon, session, SessionState.IDLE)
    kasmon("send", session, "echo kept > ~/note; kasmon ctx --waiting 'for tea'; echo th''en")
    shows(kasmon, session, "then")
    until(lambda: "for tea" == session_of(kasmon, session).waits)
    put_to_disk(kasmon, session)
    tier, _ = tier_of(kasmon, session)
    [part] = tier.host_folders.of(session).glob(f"memory/*/{MEMORY}")
    os.truncate(part, 10)

    said = kasmon("sandbox", "resume", session)
    assert 0 != said.code
    assert "truncated" in said.err
    until_state(kasmon, session, SessionState.ENDED)
    assert "its memory is lost" in session_of(kasmon, session).end_why
    assert 0 == kasmon("restart", session).code
    there(kasmon, session, 2)
    until_state(kasmon, session, SessionState.IDLE)
    kasmon("send", session, "clear; cat ~/note; echo a''gain; exit 7")
    until_state(kasmon, session, SessionState.ENDED)
    assert 7 == session_of(kasmon, session).exit_code


@handed
def test_an_agent_with_secrets_is_not_written_to_disk_and_that_is_reported(
    kasmon: Cli, workdir: Path, config: str, words: tuple[str, ...]
) -> None:
    configured(kasmon, f"[agents.shell]\n{config}\n")
    session = begun(kasmon, "microvm", workdir, *words, agent="shell")
    until_state(kasmon, session, SessionState.IDLE)
    kasmon("send", session, 'echo "<${#TOKEN}>"')
    shows(kasmon, session, "<6>")

    until(lambda: any("memory snapshot" in each.text for each in facts(kasmon, session, NoticeRaised)))
    until_state(kasmon, session, SessionState.IDLE)
    done = kasmon("sandbox", "pause", session, "--disk")
    assert 0 != done.code
    assert "where kasmon stores no secret" in done.err
    assert SessionState.IDLE is session_of(kasmon, session).state


@handed
def test_an_agent_with_secrets_is_never_paused_at_a_service_and_ends_instead(
    kasmon_there: Cli, at_service: Served, workdir: Path, config: str, words: tuple[str, ...]
) -> None:
    kasmon = kasmon_there
    configured(kasmon, f"[session]\nstandby_after_seconds = 0.3\nidle_timeout_seconds = 4\n[agents.shell]\n{config}\n")
    session = begun(kasmon, "e2b", workdir, *words, agent="shell")
    paused = len(at_service.asked("pause"))
    there(kasmon, session)
    assert False is at_service.asked("create")[-1]["autoPause"]
    until_state(kasmon, session, SessionState.IDLE)
    kasmon("send", session, 'echo "<${#TOKEN}>"')
    shows(kasmon, session, "<6>")

    until_state(kasmon, session, SessionState.IDLE)
    for how in ("--disk", "--hold"):
        done = kasmon("sandbox", "pause", session, how)
        assert 0 != done.code
        assert "where kasmon stores no secret" in done.err
    until_state(kasmon, session, SessionState.ENDED)
    told = " ".join(each.text for each in facts(kasmon, session, NoticeRaised))
    assert "where kasmon stores no secret" in told
    assert "was not paused" not in told
    assert paused == len(at_service.asked("pause"))
