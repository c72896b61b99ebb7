"""Operations on sessions, shared by the command line and the dashboard. Each succeeds, or raises the reason.

A `Session` argument is the state that the caller saw; where that matters, the host decides by the current state.
"""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from kasmon.backends.common.claude_background import attached_id
from kasmon.backends.common.environment import program_of
from kasmon.config.agent_address import machine_of
from kasmon.config.parser import load_or_default
from kasmon.config.permission_bypass import is_bypassing
from kasmon.config.schema import BudgetConfig
from kasmon.errors import (
    HostUnreachableError,
    InteractiveOnlyError,
    KasmonError,
    NameTakenError,
    ProtocolVersionError,
    RefusedError,
    RemoteUnreachableError,
    SessionEndedError,
    TimedOutError,
    UnableError,
    UsageError,
)
from kasmon.host.rpc.actor import find_actor
from kasmon.host.rpc.connect import reach
from kasmon.host.rpc.control import ControlKind
from kasmon.host.rpc.event_loop import run_in_thread, sleep
from kasmon.host.rpc.frames import (
    CommandResult,
    DescribePane,
    ExecuteCommand,
    PaneDescription,
    ProposeFinish,
    RecordPeerMessage,
    ReportContext,
)
from kasmon.model.commands import (
    ActingAgent,
    AgentCommand,
    Continue,
    Hibernate,
    Interrupt,
    Launch,
    Mode,
    Prompt,
    Receipt,
    Requeue,
    Sender,
    Stop,
    When,
)
from kasmon.model.events import PeerMessageWritten, SessionEnded, TurnEnded
from kasmon.model.fleet import find_children
from kasmon.model.permission import SessionId
from kasmon.model.prompts.image import PromptImage, check_images
from kasmon.model.reducers.apply import apply
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE, OVER, SessionState
from kasmon.paths import Paths, write_private
from kasmon.store.session_reader import apply_log, load_initial_session
from kasmon.store.session_reader import load_launch as launch_of
from kasmon.supervisor.fleet.new_events import NewEvents
from kasmon.supervisor.fleet.snapshot import read_fleet, require_free_conversation
from kasmon.supervisor.machines.dispatch import dispatch
from kasmon.supervisor.sessions.folder_config import check_brought
from kasmon.supervisor.sessions.handover import end_orphan, hand_over, request, speaks_other_version
from kasmon.supervisor.sessions.permission_mode import FLAGS, translate
from kasmon.supervisor.sessions.start import (
    add_conversation,
    begin,
    leave_ended,
    leave_notice,
    remove_conversation,
    wait_for_host_exit,
)

if TYPE_CHECKING:
    from kasmon.config import Config
    from kasmon.supervisor.sessions.create import NewSession

WAKING_S: Final = 180.0
"""How long a host may take to resume a session from disk before it executes a command, in seconds."""
INTERRUPT_S: Final = 10.0
"""How long a turn may take to end when it is interrupted, in seconds."""
END_UNKNOWN: Final = "interrupt sent; it is unknown whether the turn ended"
IN_TURN: Final = frozenset({SessionState.WORKING, SessionState.ASKING, SessionState.LIMITED})
ENDING_S: Final = 20.0
"""How long a stop may take in addition to its grace until the log has the end of the agent, in seconds."""


async def create_with_free_name(paths: Paths, config: "Config", new: "NewSession") -> tuple[SessionId, str]:
    """Do as `create`, with the first free number behind the name if that is taken; return the id and the name."""
    name = new.name
    while True:
        try:
            return await create(paths, config, msgspec.structs.replace(new, name=name)), name
        except NameTakenError:
            from kasmon.supervisor.sessions.names import next_name  # rarely needed

            name = await run_in_thread(next_name, paths, new.name)


async def create(paths: Paths, config: "Config", new_session: "NewSession") -> SessionId:
    """Start the requested session and return its id; its agent runs then. Raises as `prepare` and `begin`.

    If the agent could not be started, the session has ended.
    """
    from kasmon.supervisor.sessions.create import prepare  # most commands create none

    if new_session.prompt.strip():
        await run_in_thread(_check_budget, paths, None)
    launch = await run_in_thread(prepare, paths, config, new_session, time.time())
    launch = await run_in_thread(_set_up, paths, launch)
    try:
        await begin(paths, launch)
    except ProtocolVersionError as error:
        end = SessionEnded(at=time.time(), why=error.message, never_began=True)
        await run_in_thread(leave_ended, paths, launch.session, end)
        raise
    except TimedOutError:  # it may still start
        raise
    except KasmonError as error:
        if launch.worktree is not None:
            from kasmon.supervisor.worktrees.session_worktree import discard  # rarely needed

            kept = await run_in_thread(discard, launch.worktree)
            error.hint = f"{error.hint} {kept}".strip()
        raise
    return launch.session


async def send(
    paths: Paths,
    session: Session,
    text: str,
    when: When = "now",
    by: Sender = "user",
    *,
    anyway: bool = False,
    login: str = "",
    key: str = "",
    over_budget: bool = False,
    images: Sequence[PromptImage] = (),
    actor: ActingAgent | None = None,
    resumes: bool = True,
    on_resumed: Callable[[float], None] = lambda _: None,
) -> Receipt:
    """Send the agent *text* as one prompt, and return its receipt so far; the log has the later states.

    A structured agent whose host has another version is first resumed by this one, and a hibernated one is resumed.

    Args:
        anyway, login, key: as in `Prompt`. A session of another machine that is resumed first gets no login.
        over_budget: also if a budget of the config is used up.
        images: the pictures that go with it.
        actor: the agent of another machine that sends it, as its kasmon says it; one of this machine is found instead.
        resumes: whether the agent is resumed for it where that is necessary; if not, that raises.
        on_resumed: called with how long the resume of a hibernated one took, in seconds.

    Raises:
        UsageError: if there is no text, or there are too many pictures.
        UnableError: if the agent accepts no pictures.
        RefusedError: if a budget is used up, or an agent sends it and has reached a limit of the table [fleet].
        SessionBusyError: if the agent is in a turn and *when* is `refuse`.
        SessionEndedError, HostUnreachableError: if no host can take it.
        TimedOutError: if the host did not answer in time; whether it has the prompt is unknown then.
    """
    if not text.strip():
        raise UsageError("missing prompt.")
    _check_images(session, images)
    if not over_budget:
        await run_in_thread(_check_budget, paths, session)
    sender = actor if session.actor is None else await run_in_thread(find_actor, paths, os.getpid()) or actor
    if session.actor is not None and sender is not None:
        from kasmon.supervisor.limits.agents import check_prompt  # only for agents

        await run_in_thread(check_prompt, paths, session, sender)
    prompt = Prompt(text=text, when=when, by=by, anyway=anyway, login=login, over_budget=over_budget, key=key)
    prompt = msgspec.structs.replace(prompt, images=tuple(images), actor=actor)
    if not resumes or (not session.handed_over and session.state is not SessionState.HIBERNATED):
        try:
            return _receipt_in(await execute(paths, session, prompt), session)
        except ProtocolVersionError:
            if not resumes or (session.mode is not Mode.SDK and not session.via):
                raise
        except SessionEndedError:
            if not resumes:
                raise
            session = await _await_hibernation(paths, session)
            if session.state is not SessionState.HIBERNATED:
                raise
    return await _resume_and_send(paths, session, prompt, on_resumed)


@dispatch
async def _resume_and_send(
    paths: Paths, session: Session, prompt: Prompt, on_resumed: Callable[[float], None]
) -> Receipt:
    was_hibernated, began = session.state is SessionState.HIBERNATED, time.monotonic()
    await restart(paths, session, actor=prompt.actor)
    if was_hibernated:
        on_resumed(time.monotonic() - began)
    resumed_session = msgspec.structs.replace(session, state=SessionState.STARTING, handed_over=False)
    return _receipt_in(await execute(paths, resumed_session, prompt), session)


def _check_images(session: Session, images: Sequence[PromptImage]) -> None:
    check_images(images)
    if not images or "receives_images" in session.abilities:
        return
    kind = "agent in a terminal" if session.mode is Mode.TMUX else "agent"
    raise UnableError(
        f"the {kind} of {session.label!r} accepts no pictures from kasmon.",
        hint="Write the path of the picture into the prompt.",
    )


def _check_budget(paths: Paths, session: Session | None) -> None:
    """Raise if a budget of the config does not allow a prompt to *session*, or to a new one. Blocks."""
    config = load_or_default(paths)
    if config.budget == BudgetConfig():
        return
    from kasmon.supervisor.limits.budgets import require_budget  # only with a budget

    require_budget(config, session, read_fleet(paths).sessions)


async def _await_hibernation(paths: Paths, session: Session) -> Session:
    """Return *session* as it is once its agent has ended, if it is being hibernated; else as it is now."""
    deadline = time.monotonic() + ENDING_S
    while True:
        now = (await run_in_thread(read_fleet, paths)).get(session.id) or session
        if now.freed_bytes is None or now.state is SessionState.HIBERNATED or time.monotonic() > deadline:
            return now
        await sleep(0.02)


@_resume_and_send.elsewhere
async def _send_there(paths: Paths, session: Session, prompt: Prompt, on_resumed: Callable[[float], None]) -> Receipt:
    from kasmon.supervisor.machines.link_client import parse_receipt, run_for  # only for sessions of other machines

    if prompt.images:
        raise UnableError(f"pictures cannot be sent to {session.label!r} before its agent was resumed.")
    arguments = ["send", session.id, "-", "--when", prompt.when, *["--anyway"] * prompt.anyway]
    arguments += [
        *([f"--key={prompt.key}"] if prompt.key else []),
        *([f"--by={prompt.by}"] if prompt.by != "user" else []),
    ]
    output = await run_in_thread(run_for, paths, session, *arguments, stdin=prompt.text.encode())
    return parse_receipt(session.via, output)


async def requeue(paths: Paths, session: Session, command: Requeue) -> Receipt:
    """Change, move or cancel a queued prompt, and return its receipt. Raises as `execute`.

    The host raises `NotFoundError` if there is no such prompt, `RefusedError` if it is no longer queued, and
    `UsageError` if it would be empty.
    """
    return _receipt_in(await execute(paths, session, command), session)


async def declare(paths: Paths, session: Session, *, waiting: str | None = None, done: str | None = None) -> None:
    """Log what the session's agent reports: what it deliberately waits for, or that its task is done.

    Raises `SessionEndedError` or `HostUnreachableError` if it does not run.
    """
    await _ask_running_host(paths, session, ReportContext(n=0, session=session.id, waiting=waiting, done=done))


async def propose_finish(
    paths: Paths, session: Session, text: str, actor: ActingAgent | None = None, name: str = ""
) -> None:
    """Log that this process's agent proposes to the person to finish *session*; *text* says what was done.

    *actor*, *name*: the agent of another machine that proposes it instead, and the name of its session.

    Raises:
        UsageError: if there is no text, or too much.
        RefusedError: if this process belongs to no agent.
        SessionEndedError, HostUnreachableError: if *session* does not run.
    """
    request = ProposeFinish(n=0, session=session.id, text=text, actor=actor, name=name)
    await _ask_running_host(paths, session, request)


async def record_peer_message(paths: Paths, session: Session, message: PeerMessageWritten) -> None:
    """Log a message of the session's agent to a peer on another machine. Raises as `declare`."""
    await _ask_running_host(paths, session, RecordPeerMessage(n=0, session=session.id, event=message))


async def _ask_running_host(
    paths: Paths, session: Session, frame: ReportContext | ProposeFinish | RecordPeerMessage
) -> None:
    if session.state in OVER:
        raise SessionEndedError(session.name, is_hibernated=session.state is SessionState.HIBERNATED)
    async with reach(paths, session.id, session.mode) as host:
        await host.ask(frame)


async def interrupt(paths: Paths, session: Session) -> str:
    """Interrupt the agent's turn, and describe the result; "interrupted" means that the turn has ended.

    It also says what happens to prompts that were queued, or sent during the turn. Raises as `execute`, and
    `TimedOutError` if the agent's turn continues.
    """
    facts = await run_in_thread(NewEvents, paths, session.id)
    now = (await run_in_thread(read_fleet, paths)).get(session.id) or session
    await execute(paths, session, Interrupt())
    if now.state is SessionState.UNSURE:
        return END_UNKNOWN
    if now.state not in IN_TURN:
        return "no turn was running"
    deadline = time.monotonic() + INTERRUPT_S
    while time.monotonic() < deadline:
        for event in await run_in_thread(facts.more):
            now = apply(now, event)
            if isinstance(event, TurnEnded) and event.reason != "interrupted":
                return "the turn had already ended"
            if isinstance(event, TurnEnded) or now.state not in {*IN_TURN, SessionState.UNSURE}:
                dropped = len(event.dropped) if isinstance(event, TurnEnded) else 0
                return f"interrupted{_describe_queue(now, dropped)}"
        await sleep(0.02)
    if now.state is SessionState.UNSURE:
        return END_UNKNOWN
    raise TimedOutError(
        f"{session.name!r} was interrupted but is still working: its turn had not ended after {INTERRUPT_S:g} s.",
        hint=f"Interrupt it again, or stop it: `kasmon stop {session.id}`.",
    )


def _describe_queue(now: Session, dropped: int) -> str:
    """Return what happens to queued prompts after an interrupt, and of *dropped* ones; empty if there are none."""
    sent = f"; the next of {now.queue} queued prompts is sent now" if now.queue > 1 else ""
    sent = "; the queued prompt is sent now" if now.queue == 1 else sent
    lost = f"; {dropped} {'prompt' if dropped == 1 else 'prompts'} sent during the turn did not reach the agent"
    return sent + (lost if dropped else "")


async def continue_stopped(paths: Paths, session: Session) -> None:
    """Continue an agent that a stop signal (Ctrl-Z) stopped in its terminal. Raises as `execute`."""
    await execute(paths, session, Continue())


@dispatch
async def stop(paths: Paths, session: Session, grace_s: float = 5.0) -> None:
    """Ask the agent to finish, end it after *grace_s* seconds, and return when it has ended. Raises as `execute`.

    It raises `TimedOutError` if it was sent, but the end of the agent was not logged in time.
    """
    if session.is_orphaned:
        await _end_orphan(session)
        end = SessionEnded(at=time.time(), why="stopped")
        await run_in_thread(leave_ended, paths, session.id, end)
        return
    facts = await run_in_thread(NewEvents, paths, session.id)
    try:
        await execute(paths, session, Stop(grace_s=grace_s))
    except ProtocolVersionError as other:
        if session.mode is Mode.TMUX or other.host_version is None:
            raise
        await request(paths, session, ControlKind.STOP)
    deadline = time.monotonic() + grace_s + ENDING_S
    while not any(isinstance(event, SessionEnded) for event in await run_in_thread(facts.more)):
        if time.monotonic() > deadline:
            raise TimedOutError(f"session {session.name!r} was asked to stop but has not ended yet.")
        await sleep(0.02)


@stop.elsewhere
async def _stop_there(paths: Paths, session: Session, grace_s: float = 5.0) -> None:
    from kasmon.supervisor.machines.delegation import run_there  # only for sessions of other machines, as below

    await run_there(paths, session, "stop", session.id, until=lambda now: now is None or not now.exists)


async def stop_children(paths: Paths, session: Session) -> tuple[Session, ...]:
    """Stop the running children of *session*, those that its agent started and theirs, and return them.

    Raises as `stop`, for the first that fails; the others were stopped all the same.
    """
    fleet = await run_in_thread(read_fleet, paths)
    stopped, errors = [], []
    for child in find_children(fleet, session.id):
        if child.state in ALIVE:
            try:
                await stop(paths, child)
                stopped.append(child)
            except KasmonError as error:
                errors.append(error)
    if errors:
        raise errors[0]
    return tuple(stopped)


@dispatch
async def restart(
    paths: Paths,
    session: Session,
    *,
    force: bool = False,
    skips_setup: bool = False,
    actor: ActingAgent | None = None,
) -> None:
    """Start the agent again, with its conversation if its backend can; id and log stay, the generation increments.

    The setup of its worktree runs again if it failed, unless *skips_setup*. A hibernated one is started only if its
    conversation is still proven to be stored. *actor* is as in `send`.

    A structured agent that runs under a host of another version is moved to this one, once its turn has ended. The
    agent asks as much as it last reported, or a notice in the log says why it may not.

    Raises:
        TimedOutError: if that host did not hand over in time.
        RefusedError: if it runs under a host of this version and *force* is not set, which would stop it first; or if
            its agent is defined by a folder's own config that no longer applies; or if the worktree of its plan's
            task is gone; or if an agent requests it, and has reached a limit of the table [fleet]; or if another
            session that runs has its conversation.
        NotHibernatedError: if it is hibernated, and its agent no longer has its conversation.
        KasmonError: as `begin` raises; for a session of another machine as `run_there`.
    """
    if session.adopted:
        raise RefusedError(
            f"session {session.name!r} is in your own tmux: kasmon starts nothing there.",
            hint=f"Start it there, then run `kasmon adopt {session.adopted}`.",
        )
    if session.actor is not None:
        from kasmon.supervisor.limits.agents import check_restart  # only for sessions that agents started

        await run_in_thread(check_restart, paths, session, actor)
    if session.plan:
        from kasmon.supervisor.plans.task_folder import check_session  # it loads plans and git

        await run_in_thread(check_session, paths, session)
    await run_in_thread(lambda: check_brought(paths, launch_of(paths, session.id)))
    await run_in_thread(_check_worktree, session)
    if session.resume_id:
        await run_in_thread(require_free_conversation, paths, session.resume_id, session.id)
    if session.state is SessionState.HIBERNATED:
        from kasmon.supervisor.hibernation.hibernate import check_resumable  # it reads the files of agents

        await run_in_thread(check_resumable, paths, session)
    if session.is_orphaned or session.state is SessionState.LOST:
        await _end_orphan(session)
    elif session.state in ALIVE:
        if not force and session.mode is Mode.SDK and await speaks_other_version(paths, session):
            await hand_over(paths, session)
        elif not force:
            raise RefusedError(
                f"session {session.name!r} is already running ({session.state}).",
                hint=f"Stop it first: `kasmon stop {session.id}`.",
            )
        else:
            with contextlib.suppress(SessionEndedError):
                await stop(paths, session)
    launch = await run_in_thread(launch_of, paths, session.id)
    conversation = session.resume_id or launch.resume
    if launch.generation > session.generation:  # a host was started, and its agent's start was not logged
        await _end_remains(session, since=(await run_in_thread(paths.launch(session.id).stat)).st_mtime)
    launch, problem = await run_in_thread(_with_permission_mode, paths, launch, conversation)
    argv = launch.argv
    if launch.mode is Mode.TMUX and conversation and argv:
        argv = add_conversation(Path(argv[0]).name, argv, conversation) or argv
    launch = msgspec.structs.replace(
        launch,
        name=session.name,
        generation=session.generation + 1,
        resume=conversation,
        argv=argv,
    )
    if problem:
        await wait_for_host_exit(paths, session.id)
        notice = f"After the restart the agent may ask more or less than before: {problem}."
        await run_in_thread(leave_notice, paths, session.id, notice)
    launch = await run_in_thread(_set_up, paths, launch, skips=skips_setup)
    await run_in_thread(write_private, paths.launch(session.id), msgspec.json.encode(launch))
    await begin(paths, launch, again=True)


@restart.elsewhere
async def _restart_there(
    paths: Paths,
    session: Session,
    *,
    force: bool = False,
    skips_setup: bool = False,
    actor: ActingAgent | None = None,
) -> None:
    from kasmon.supervisor.machines.delegation import run_there

    if force and session.state in ALIVE:
        await stop(paths, session)
    arguments = ["restart", session.id, *["--skip-setup"] * skips_setup]
    await run_there(paths, session, *arguments, until=lambda now: now is None or now.generation > session.generation)


def _set_up(paths: Paths, launch: Launch, *, skips: bool = False) -> Launch:
    """Set up the worktree of *launch*, if that is due, and return the launch without it. Blocks.

    The output is in the session's log. Raises `LaunchError` if it failed; the session has ended then.
    """
    if launch.worktree is None or not launch.worktree.setup_s:
        return launch
    done = msgspec.structs.replace(launch, worktree=msgspec.structs.replace(launch.worktree, setup_s=0.0))
    if not skips:
        from kasmon.supervisor.worktrees.setup import set_up  # rarely needed

        set_up(paths, launch, launch.worktree)
    write_private(paths.launch(launch.session), msgspec.json.encode(done))
    return done


def _check_worktree(session: Session) -> None:
    """Raise `RefusedError` if the worktree of *session* is gone; one of a failed start is created again. Blocks."""
    if session.worktree is None or Path(session.worktree.path).is_dir():
        return
    from kasmon.supervisor.worktrees.session_worktree import create_again  # rarely needed

    create_again(session.worktree, has_begun=session.generation > 0)


async def _end_orphan(session: Session) -> None:
    """End the agent of *session*, whose host is gone. Raises `RefusedError` if it still runs afterwards."""
    if not await run_in_thread(end_orphan, session.pid, session.pid_started, session.pid_boot):
        raise RefusedError(
            f"cannot stop the agent of session {session.name!r} (pid {session.pid}): it has lost its host.",
            hint=f"End process {session.pid} yourself, then try again.",
        )
    await _end_remains(session)


async def _end_remains(session: Session, since: float = 0.0) -> None:
    """End what the agent of *session* left, if it is structured and has no host; *since* as `end_remains`."""
    if session.mode is Mode.SDK:
        from kasmon.backends.common.process_family import end_remains  # loads psutil, and is rarely needed

        await run_in_thread(end_remains, session.id, since)


def _with_permission_mode(paths: Paths, launch: Launch, conversation: str | None) -> tuple[Launch, str]:
    """Return *launch* with the permission mode that its agent last reported, and why it may not be kept. Blocks.

    Arguments that resume a conversation are removed. An agent that never reported its mode keeps its arguments.
    """
    argv, is_terminal = launch.argv, launch.mode is Mode.TMUX
    if is_terminal and argv:
        argv = remove_conversation(Path(argv[0]).name, argv, launch.resume)
    mode, program = apply_log(paths, load_initial_session(paths, launch.session))[0].permission_mode, program_of(argv)
    if not mode or launch.is_command or attached_id(program, argv):
        return msgspec.structs.replace(launch, argv=argv), ""
    if launch.backend == "acp" and program not in FLAGS:  # every agent of this protocol takes its mode by it
        return msgspec.structs.replace(launch, permission_mode=mode), ""
    from kasmon.supervisor.sessions.conversation import codex_permissions, home_of  # they load psutil

    auto = tuple(argument for argument in argv if argument == "--auto" and program == "opencode" and is_terminal)
    plain = tuple(argument for argument in argv if argument not in auto)  # which stays where it is
    codex = codex_permissions(paths, launch, home_of(paths, launch), conversation or "")
    carried = translate(program, plain, mode, launch.mode, codex)
    kept = msgspec.structs.replace(
        launch,
        argv=(*carried.argv, *auto),
        permission_mode=carried.permission_mode,
        bypassing=is_bypassing((program, *carried.argv[1:], *auto)),
    )
    return kept, carried.problem


async def pane(paths: Paths, session: Session, *, attaching: bool = False) -> PaneDescription:
    """Return tmux's description of the session's pane. *attaching*: a user is about to attach to it.

    Raises `InteractiveOnlyError` if it has no pane, `UnavailableError` if tmux or its host is unavailable.
    """
    if session.mode is not Mode.TMUX:
        raise InteractiveOnlyError(session.name)
    async with reach(paths, session.id, session.mode) as host:
        seen = await host.ask(DescribePane(n=0, session=session.id, attaching=attaching))
    if not isinstance(seen, PaneDescription):
        raise HostUnreachableError(session.name, "it did not describe its pane")
    return seen


@dispatch
async def attach_argv(paths: Paths, session: Session) -> list[str]:
    """Return the command line that attaches a terminal to the session's pane; for another machine's, by ssh.

    For a structured session it is `kasmon attach`, which starts the agent's own screen. Raises as `pane` and
    `find_own_screen`, and `NotFoundError` if its machine is no longer registered.
    """
    if session.mode is Mode.SDK:
        from kasmon.supervisor.sessions.own_screen import find_own_screen  # rarely needed

        await run_in_thread(find_own_screen, paths, session)
        return [sys.executable, "-P", "-m", "kasmon", "attach", session.id]
    return list((await pane(paths, session, attaching=True)).attach)


@attach_argv.elsewhere
async def _attach_argv_there(paths: Paths, session: Session) -> list[str]:
    if session.mode is not Mode.TMUX:
        raise InteractiveOnlyError(session.name)
    from kasmon.supervisor.machines.registration import terminal_argv

    return await run_in_thread(terminal_argv, paths, session.via, ("attach", session.id))


def _receipt_in(result: CommandResult, session: Session) -> Receipt:
    if result.receipt is None:
        raise HostUnreachableError(session.name, "it did not report the receipt of the prompt")
    return result.receipt


async def execute(paths: Paths, session: Session, command: AgentCommand | Requeue | Hibernate) -> CommandResult:
    """Have the host of *session* execute *command*, and return its answer.

    Raises:
        SessionEndedError, HostUnreachableError: if it does not run, or no host can take it.
        RequestClosedError, StaleRequestError, RequestNotFoundError: for an `Answer`, if the agent does not wait for it.
        UnableError: if the agent cannot do this, or accepts no such answer.
        KasmonError: why the host did not do it otherwise.
    """
    if session.state in OVER:
        raise SessionEndedError(session.name, is_hibernated=session.state is SessionState.HIBERNATED)
    if session.state is SessionState.LOST:
        why = (session.end_why or "it is lost").rstrip(".")
        effect = "reconnects" if machine_of(session.agent) else "restarts it"
        raise HostUnreachableError(session.name, f"{why}; `kasmon restart {session.id}` {effect}")
    if session.is_orphaned:
        hint = f"`kasmon stop {session.id}` stops it, `kasmon restart {session.id}` restarts it"
        raise HostUnreachableError(session.name, f"{session.unsure_why}; {hint}")
    async with reach(paths, session.id, session.mode) as host:
        limit_s = WAKING_S if session.state is SessionState.PAUSED else None  # else the host's own limit
        try:
            done = await host.ask(ExecuteCommand(n=0, session=session.id, command=command), limit_s)
        except (HostUnreachableError, TimedOutError) as error:
            if not session.via:
                raise
            why = "the connection ended; it is unknown whether this was done: look at the session"
            raise RemoteUnreachableError(session.via, why, is_registered=True) from error
    if not isinstance(done, CommandResult):
        raise HostUnreachableError(session.name, "it sent an unexpected answer")
    return done
