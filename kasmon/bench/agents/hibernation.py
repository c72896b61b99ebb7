"""Measures the resume of hibernated sessions against a restart, and the reading of what 50 sessions use."""

from typing import Final

from kasmon.bench.agents.many_sessions import MANY, new_command, run_command
from kasmon.bench.support.figure import Figure, ratio, took_ms, wait_until
from kasmon.bench.support.fleet import scratch
from kasmon.bench.support.terminal import KASMON, environment
from kasmon.config import Config
from kasmon.host.rpc import event_loop
from kasmon.model.commands import Mode
from kasmon.model.events import TurnEnded
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.paths import Paths
from kasmon.supervisor.fleet.new_events import NewEvents
from kasmon.supervisor.fleet.process_usage import read_usage
from kasmon.supervisor.fleet.snapshot import read_fleet, read_session
from kasmon.supervisor.hibernation.hibernate import hibernate
from kasmon.supervisor.sessions import session_operations
from kasmon.supervisor.sessions.create import NewSession

ANSWER_S: Final = 30.0


def measure_resume(rounds: int) -> Figure:
    """Measure the time from a prompt for a hibernated scripted agent to its answer; the limit is that of a restart."""
    resumed: list[float] = []
    restarted: list[float] = []
    with scratch() as paths:
        new = NewSession(name="idle", agent="scripted", mode=Mode.SDK, workdir="/", speed=0.0)
        session = event_loop.run(session_operations.create(paths, Config(), new))
        _answer(paths, session)
        for _ in range(rounds):
            event_loop.run(hibernate(paths, _at_rest(paths, session)))
            resumed.append(took_ms(lambda: _answer(paths, session)))
            event_loop.run(session_operations.stop(paths, _at_rest(paths, session)))
            restarted.append(took_ms(lambda: _restart_and_answer(paths, session)))
    return ratio("hibernated session: prompt to answer", resumed, restarted, "restart, prompt to answer", 1.2)


def measure_usage(rounds: int) -> Figure:
    """Measure one reading of what 50 structured sessions use."""
    with scratch() as paths:
        own = environment(paths.environment_variables())
        run_command(new_command("structured", "fix-{n}", "--count", str(MANY)), own)
        sessions = read_fleet(paths).sessions
        values = [took_ms(lambda: read_usage(sessions)) for _ in range(rounds)]
        run_command([*KASMON, "stop", "--all", "--yes"], own)
    note = "the dashboard reads it every 10 s, in a thread"
    return ratio(f"memory and processor of {MANY} sessions, read once", values, None, "", 100.0, note)


def _restart_and_answer(paths: Paths, session: SessionId) -> None:
    event_loop.run(session_operations.restart(paths, read_session(paths, session)))
    _answer(paths, session)


def _answer(paths: Paths, session: SessionId) -> None:
    """Prompt *session*, and return when its turn has ended."""
    facts = NewEvents(paths, session)
    event_loop.run(session_operations.send(paths, read_session(paths, session), "say yes"))
    wait_until(
        lambda: any(isinstance(event, TurnEnded) for event in facts.more()), ANSWER_S, "the agent did not answer"
    )


def _at_rest(paths: Paths, session: SessionId) -> Session:
    """Return *session* once its prompt is settled; what its host starts after a turn has ended by then."""

    def is_idle() -> bool:
        now = read_session(paths, session)
        return not now.awaits_turn and now.state is SessionState.IDLE

    wait_until(is_idle, ANSWER_S, "the agent was not idle")
    return read_session(paths, session)
