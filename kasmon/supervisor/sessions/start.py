"""Start an agent, for the first time or again: reach its host, and wait until the log shows that it runs."""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from kasmon.agents.catalog import find
from kasmon.agents.profile import ID, StartArguments
from kasmon.backends.common.claude_background import attached_id
from kasmon.backends.common.environment import encoded, inherited, own_prefixes, secret_values
from kasmon.config import load_or_default
from kasmon.config.profile import NATIVE
from kasmon.errors import (
    HostUnreachableError,
    KasmonError,
    LaunchError,
    ProtocolVersionError,
    SessionEndedError,
    TimedOutError,
    UnavailableError,
)
from kasmon.host.rpc.connect import reach
from kasmon.host.rpc.event_loop import run_in_thread, sleep
from kasmon.host.rpc.frames import StartSession
from kasmon.host.rpc.host_lock import HostLock, lock_holder
from kasmon.model.commands import Launch, Mode
from kasmon.model.events import ConnectionRestored, NoticeRaised, SessionEnded, SessionStarted
from kasmon.model.permission import SessionId
from kasmon.model.session_state import OVER, SessionState
from kasmon.paths import Paths, write_private
from kasmon.store.session_reader import apply_log, load_initial_session, load_launch
from kasmon.supervisor.fleet.new_events import NewEvents

if TYPE_CHECKING:
    from kasmon.host.journal.session_log import SessionLog

START_S: Final = 60.0
"""How long an agent may take until its log shows that it runs, in seconds: longer than the handshake of any kind.
If the config allows a longer handshake, this increases with it."""
LODGED_S: Final = 240.0
"""How much longer it may take in a sandbox other than a jail, in seconds: the first VM of its size must start."""
LEAVE_S: Final = 10.0
"""How long the host of an agent that has ended may take to clean up, in seconds."""


async def begin(paths: Paths, launch: Launch, *, again: bool = False) -> None:
    """Start the agent of *launch* and return when it runs, or has run.

    If it does not start, the session ends with the reason. One that was started meanwhile is not started twice.
    *again*: it ran before, so its last host may still be ending.

    Raises:
        KasmonError: if it could not be started.
        TimedOutError: if no start was logged in time; it may still start.
        ProtocolVersionError: if the host has another version; nothing is logged.
    """
    try:
        facts = await run_in_thread(NewEvents, paths, launch.session)
        now, _ = await run_in_thread(lambda: apply_log(paths, load_initial_session(paths, launch.session)))
        if now.generation < launch.generation:
            await _start(paths, launch, facts, again)
        await run_in_thread(forget_prompt, paths, launch.session)
        await run_in_thread(start_companions, paths)
    except (TimedOutError, ProtocolVersionError):
        raise
    except KasmonError as error:
        end = SessionEnded(at=time.time(), why=error.message, never_began=True)
        await run_in_thread(leave_ended, paths, launch.session, end, unless_lost=bool(launch.machine))
        raise
    except OSError as error:
        raise UnavailableError(f"cannot read the state of {launch.name!r}: {error.strerror or error}.") from error


def start_companions(paths: Paths) -> None:
    """Start the processes that push notifications and feed watchers, if the config has any."""
    with contextlib.suppress(OSError):
        content = paths.config_file.read_bytes()
        if b"[[watch]]" in content:
            from kasmon.supervisor.watchers.feeder import start_feeder

            start_feeder(paths)
        if b"targets" in content:  # few configs have some
            from kasmon.supervisor.notifications.notifier import start_notifier

            with contextlib.suppress(KasmonError):
                start_notifier(paths)


def forget_prompt(paths: Paths, session: SessionId) -> None:
    """Remove the first prompt from the session's `launch.json`; the log has it, and its delivery.

    It stays there until the agent runs, since a retry of a failed start needs it.
    """
    with contextlib.suppress(KasmonError, OSError):  # it is a courtesy, and only this user can read the file
        launch = load_launch(paths, session)
        if launch.prompt:
            spent = msgspec.structs.replace(launch, prompt="")
            write_private(paths.launch(session), msgspec.json.encode(spent))


async def _start(paths: Paths, launch: Launch, facts: NewEvents, again: bool) -> None:
    unreachable: KasmonError | None = None
    passed = inherited_by(launch, os.environ)
    if launch.sandbox is not None and launch.mode is not Mode.INTERPRETER:
        await run_in_thread(_note_secrets, paths, launch, passed)
    try:
        async with reach(paths, launch.session, launch.mode, start=again) as host:
            if launch.mode is Mode.TMUX:
                passed |= await run_in_thread(_credentials, paths, launch)
                await host.ask(StartSession(n=0, session=launch.session, variables=encoded(passed)), START_S)
    except (SessionEndedError, HostUnreachableError) as error:  # it may have ended already: the log shows that
        unreachable = error
    await _wait_until_running(paths, launch, facts, unreachable)


async def _wait_until_running(paths: Paths, launch: Launch, facts: NewEvents, unreachable: KasmonError | None) -> None:
    """Wait until *facts* show that the agent runs, or never will."""
    is_tmux = launch.mode is Mode.TMUX
    lock = paths.tmux_host_lock if is_tmux else paths.host_lock(launch.session)
    limit_s = START_S + ((await run_in_thread(load_or_default, paths)).limits.handshake_s or 0.0)
    limit_s += 0.0 if launch.sandbox in (None, "jail") else LODGED_S
    deadline, pause_s = time.monotonic() + limit_s, 0.01
    while True:
        is_hosted = unreachable is None and await run_in_thread(lock_holder, lock) is not None
        for event in await run_in_thread(facts.more):
            if isinstance(event, SessionStarted | ConnectionRestored):
                return
            if isinstance(event, SessionEnded):
                why = (event.why or "it exited immediately").rstrip(".")
                raise LaunchError(f"session {launch.name!r} could not be started: {why}.")
        if not is_hosted:
            from kasmon.host.rpc.spawn import read_last_line  # it starts processes, and is rarely needed

            last_message = await run_in_thread(
                read_last_line, paths.tmux_host_log if is_tmux else paths.host_log(launch.session)
            )
            raise unreachable or HostUnreachableError(launch.name, last_message or "it ended without a message")
        if time.monotonic() > deadline:
            raise TimedOutError(
                f"session {launch.name!r} did not start within {limit_s:g} s.", hint="`kasmon show` shows its state."
            )
        await sleep(pause_s)
        pause_s = min(pause_s * 2, 0.2)


def inherited_by(launch: Launch, variables: Mapping[str, str]) -> dict[str, str]:
    """Return those of the caller's *variables* that the agent of *launch* inherits."""
    return inherited(own_prefixes((launch.backend,) if launch.backend in NATIVE else launch.argv), variables)


def secret_names(launch: Launch, variables: Mapping[str, str]) -> frozenset[str]:
    """Return the names of those *variables* of the agent of *launch* whose values are secret by their names."""
    named = {name for name, value in variables.items() if secret_values({name: value})}
    return frozenset(named.difference(launch.public_variables))


def _note_secrets(paths: Paths, launch: Launch, passed: Mapping[str, str]) -> None:
    """Note in its sandbox's policy which of the variables *passed* by this caller are secret: it is paused by that."""
    from kasmon.sandbox.tiers import policy_of  # only imported if there is a sandbox

    policy = policy_of(paths, launch.session)
    secret = secret_names(launch, passed).union(policy.secret_variables)
    if secret != frozenset(policy.secret_variables):
        policy = msgspec.structs.replace(policy, secret_variables=tuple(sorted(secret)))
        write_private(paths.sandbox(launch.session), msgspec.json.encode(policy))


def _credentials(paths: Paths, launch: Launch) -> dict[str, str]:
    """Return our variables that its sandbox's credentials come from, or that its remote sandbox service needs."""
    if launch.sandbox is None:
        return {}
    from kasmon.sandbox.tiers import policy_of  # only imported if there is a sandbox

    needed = [credential.variable for credential in policy_of(paths, launch.session).credentials]
    if launch.sandbox == "e2b":
        from kasmon.host.rpc.spawn import SERVICES  # likewise

        needed += [name for name in os.environ if name.startswith(SERVICES)]
    return {name: os.environ[name] for name in needed if name in os.environ}


@contextlib.contextmanager
def open_log(paths: Paths, session: SessionId) -> "Iterator[SessionLog | None]":
    """Yield the log of *session* to write to; None if its host runs, which alone may write. Raises `OSError`."""
    from kasmon.host.journal.session_log import SessionLog  # few commands write a log

    lock = HostLock(paths.host_lock(session))
    try:
        yield SessionLog(paths, session) if lock.acquire() else None
    finally:
        lock.let_go()


def leave_ended(paths: Paths, session: SessionId, end: SessionEnded, unless_lost: bool = False) -> None:
    """Log *end* of *session*, if no host runs that could and it has not ended; *unless_lost*: nor was it lost.

    If it cannot be written, the session is displayed as lost.
    """
    with contextlib.suppress(OSError), open_log(paths, session) as session_log:
        before = None if session_log is None else session_log.session.state
        if session_log and before not in OVER and not (unless_lost and before is SessionState.LOST):
            session_log.append(end)


async def wait_for_host_exit(paths: Paths, session: SessionId) -> None:
    """Wait at most `LEAVE_S` until the host of an ended agent has cleaned up; the next host waits no longer."""
    deadline = time.monotonic() + LEAVE_S
    while await run_in_thread(lock_holder, paths.host_lock(session)) is not None:
        if time.monotonic() > deadline:
            return
        await sleep(0.01)


def leave_notice(paths: Paths, session: SessionId, text: str, level: Literal["info", "warning"] = "warning") -> bool:
    """Log the notice *text* of *session*, if no host runs that could; return whether it was written."""
    with contextlib.suppress(OSError), open_log(paths, session) as session_log:
        if session_log is not None:
            session_log.append(NoticeRaised(at=time.time(), text=text, level=level))
            return True
    return False


def can_resume(program: str) -> bool:
    """Whether kasmon knows how *program* resumes a conversation in its terminal."""
    return bool(find(program).start.resume)


def add_conversation(program: str, argv: Sequence[str], conversation: str) -> tuple[str, ...] | None:
    """Return *argv* with the arguments that resume *conversation*; None if unknown for *program*.

    The screen of a background session resumes nothing either: the conversation continues behind it.
    """
    known = find(program).start
    arguments = _resume_arguments(known, conversation)
    if not arguments or attached_id(program, argv):
        return None
    always = () if set(known.terminal) <= set(argv) else known.terminal
    if arguments[0].startswith("-"):
        return (argv[0], *always, *argv[1:], *arguments)
    return (argv[0], *arguments, *always, *argv[1:])


def remove_conversation(program: str, argv: Sequence[str], conversation: str | None) -> tuple[str, ...]:
    """Return *argv* without the arguments that resume *conversation*, if it has them."""
    arguments = _resume_arguments(find(program).start, conversation) if conversation else ()
    if arguments and not arguments[0].startswith("-") and tuple(argv[1 : 1 + len(arguments)]) == arguments:
        return (argv[0], *argv[1 + len(arguments) :])
    if arguments and arguments[0].startswith("-") and tuple(argv[-len(arguments) :]) == arguments:
        return tuple(argv[: -len(arguments)])
    return tuple(argv)


def _resume_arguments(start: StartArguments, conversation: str) -> tuple[str, ...]:
    return tuple(argument.replace(ID, conversation) for argument in start.resume)
