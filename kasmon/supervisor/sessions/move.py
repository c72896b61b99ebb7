"""Move a session to the other mode, or to another account: end it and resume the same conversation there.

Nothing is ended before it is known that the other mode can be started, and a running turn is never cut off. If it
fails to start there nevertheless, or opens another conversation, the session returns to its previous mode and account.
"""

import asyncio
import contextlib
import os
import time
from pathlib import Path
from typing import Final

import msgspec

from kasmon.backends.common.environment import encoded, load_variables, program_of
from kasmon.config import Config, ResolvedProfile, resolve
from kasmon.config.permission_bypass import is_bypassing
from kasmon.errors import (
    KasmonError,
    LaunchError,
    PermissionModeError,
    RefusedError,
    SessionBusyError,
    SessionEndedError,
    UnableError,
)
from kasmon.host.rpc.peer import must_be_a_person
from kasmon.model.codex_permissions import CodexPermissions
from kasmon.model.commands import Launch, Mode, ReceiptState
from kasmon.model.events import ConfinementSeen, SessionEnded, SessionStarted
from kasmon.model.evidence import AT_ONCE
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE, SessionState
from kasmon.paths import Paths, write_private
from kasmon.store.session_reader import load_launch as launch_of
from kasmon.supervisor.fleet.new_events import NewEvents
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.limits.account import account_variables, copy_conversation, remove_account
from kasmon.supervisor.machines.delegation import run_there
from kasmon.supervisor.plans.task_folder import check_session
from kasmon.supervisor.sessions.conversation import (
    TELLING,
    codex_permissions,
    conversation_of,
    folder_of,
    home_of,
    import_turns,
)
from kasmon.supervisor.sessions.folder_config import profile_hash
from kasmon.supervisor.sessions.permission_mode import translate
from kasmon.supervisor.sessions.session_operations import stop
from kasmon.supervisor.sessions.start import add_conversation, begin, wait_for_host_exit

IN_A_TURN: Final = frozenset({SessionState.WORKING, SessionState.ASKING, SessionState.LIMITED, SessionState.STARTING})
BEGIN_S: Final = 10.0
"""How long after a prompt was sent it may still begin a turn, in seconds."""
SETTLE_S: Final = 15.0
"""How long an agent in a terminal may take to report its conversation, in seconds; a silent one is kept."""
HOLD_S: Final = 2.0
"""How long an agent that never reports it must run to count as started, in seconds."""


async def move(
    paths: Paths,
    config: Config,
    session: Session,
    to: Mode,
    account: str | None = None,
    *,
    changes_permissions: bool = False,
) -> Launch:
    """Continue the conversation of *session* in the mode *to*, with the same id and log.

    The permission mode last reported by the agent is kept.

    Args:
        config: the config that applies in its folder.
        to: the mode; with *account* also its own.
        account: the account of the config to use from now on, empty for the agent's own log-in; None: the same.
        changes_permissions: the user accepts that the agent may ask more or less than before, if the permission mode
            cannot be kept.

    Raises:
        PermissionModeError: if it cannot be kept, and the user has not accepted that.
        RefusedError: if it cannot be kept, and an agent calls; or if the session already runs in *to*, or prompts are
            queued; or if the worktree of its plan's task is gone.
        SessionBusyError: if a turn runs, or it is unknown whether one does.
        UnableError: if its program cannot continue there, or does not report its conversation.
        LaunchError: if it did not start there, or not with this conversation; it runs in its previous mode, unless the
            message says otherwise.
        KasmonError: as `run_there`, for a session of another machine.
    """
    if session.via:
        arguments = ["move", session.id, "--to", to.value, *["--change-permissions"] * changes_permissions]
        arguments += [] if account is None else [f"--account={account}"]
        generation = session.generation
        await run_there(paths, session, *arguments, until=lambda now: now is None or now.generation > generation)
        return await asyncio.to_thread(launch_of, paths, session.id)
    if session.adopted:
        raise RefusedError(f"cannot move session {session.name!r}: it is in your own tmux.")
    if to is session.mode and account is None:
        raise RefusedError(f"session {session.name!r} already runs in mode {to.value!r}.")
    if session.queue:
        raise RefusedError(
            f"session {session.name!r} has {session.queue} queued prompts.",
            hint="Let them run or remove them from the queue.",
        )
    given = (ReceiptState.TYPED, ReceiptState.SUBMITTED)
    latest = max((receipt.at for receipt in session.receipts if receipt.state in given), default=0.0)
    if session.state in ALIVE and session.mode is not Mode.TMUX and time.time() - latest < BEGIN_S:
        raise RefusedError(f"a prompt is being sent to session {session.name!r}.", hint="Try again in a moment.")
    await asyncio.to_thread(check_session, paths, session)
    before = await asyncio.to_thread(launch_of, paths, session.id)
    if before.machine:
        raise UnableError(
            f"session {session.name!r} runs on {before.machine!r}, where only terminal mode is available."
        )
    if before.agent not in config.agents:
        raise UnableError(
            f"cannot move {session.name!r} to {to.value!r}: it runs {before.agent!r}, which has no "
            "profile; structured mode requires one.",
            hint=f"Give it a table [agents.{before.agent}] in the config, or start an agent that has one:"
            f" `kasmon new NAME --agent AGENT --mode {to.value}`.",
        )
    resolved = resolve(config, before.agent, to, sandbox=before.sandbox or "")
    if resolved.mode is not to:
        raise UnableError(f"cannot move {session.name!r} to {to.value!r}: {resolved.fallback}.")
    program, home = Path(before.argv[0]).name if before.argv else "", home_of(paths, before)
    conversation = await asyncio.to_thread(_conversation, session, program, home)
    config_of_folder = await asyncio.to_thread(profile_hash, paths, config, before.workdir, before.agent)
    before = msgspec.structs.replace(before, brought=config_of_folder)
    permissions = await asyncio.to_thread(codex_permissions, paths, before, home, conversation)
    after, problem = _build_launch(session, before, resolved, conversation, permissions)
    if problem and not changes_permissions:
        raise PermissionModeError(session.name, problem)
    if problem:
        await must_be_a_person(os.getpid(), None, action="change a permission mode")
    change = None if account is None else await asyncio.to_thread(_change_account, paths, config, before, account, home)
    previous_profile = resolve(config, before.agent, session.mode, sandbox=before.sandbox or "")
    previous_launch, _ = _build_launch(session, before, previous_profile, conversation, permissions)
    if session.state in ALIVE:
        with contextlib.suppress(SessionEndedError):
            await stop(paths, session)
    await wait_for_host_exit(paths, session.id)
    if to is not Mode.TMUX and (folder := folder_of(paths, before, home)) is not None:
        await asyncio.to_thread(import_turns, paths, session.id, program_of(before.argv), folder, conversation)
    if change is None:
        await _start(paths, after, previous_launch, None, f"in mode {to.value!r}")
        return after
    after = msgspec.structs.replace(after, account=change.name, public_variables=change.public)
    await _start(paths, after, previous_launch, change, f"with the account {change.name!r}")
    return after


async def _start(paths: Paths, after: Launch, previous: Launch, change: "_AccountChange | None", where: str) -> None:
    """Start the agent of *after*, with its *change* of the account; if that fails, start that of *previous* again.

    Raises `LaunchError` if it did not start, as `move`; the message says *where*.
    """
    try:
        if change is not None:
            await asyncio.to_thread(change.apply, after.resume or "")
        await _resume(paths, after)
    except KasmonError as error:
        message = f"session {after.name!r} did not start {where}"
        back = "in its previous mode" if change is None else "with its previous account"
        try:
            await _end(paths, after)
            await wait_for_host_exit(paths, after.session)
            if change is not None:
                await asyncio.to_thread(change.revert)
            await _resume(paths, msgspec.structs.replace(previous, generation=after.generation + 1))
        except KasmonError as other:
            raise LaunchError(
                f"{message}: {error.message} It also did not restart {back}: {other.message}",
                hint=error.hint or other.hint,
            ) from error
        raise LaunchError(f"{message}, so it continues {back}: {error.message}", hint=error.hint) from error


class _AccountChange(msgspec.Struct, frozen=True, kw_only=True):
    """The change of a session to the account *name*: its variables, and where its conversation is and has to be."""

    paths: Paths
    launch: Launch
    name: str
    public: tuple[str, ...]
    before: dict[str, str]
    after: dict[str, str]

    def apply(self, conversation: str) -> None:
        """Copy *conversation*, then store the variables; if it cannot be copied, nothing is stored."""
        program = program_of(self.launch.argv, self.launch.agent)
        source = folder_of(self.paths, self.launch, None)
        self._store(self.after)
        try:
            target = folder_of(self.paths, self.launch, None)
            if source is None or target is None:
                raise UnableError(f"kasmon does not know where {program!r} keeps its conversations.")
            copy_conversation(program, conversation, source, target)
        except KasmonError:
            self.revert()
            raise

    def revert(self) -> None:
        """Store the previous variables."""
        self._store(self.before)

    def _store(self, variables: dict[str, str]) -> None:
        write_private(self.paths.environment(self.launch.session), encoded(variables))


def _change_account(paths: Paths, config: Config, launch: Launch, account: str, home: Path | None) -> _AccountChange:
    """Return the change of the session of *launch* to *account*; nothing is changed yet.

    Raises:
        RefusedError: if it uses that account.
        UnableError: if it is in a sandbox, or its program's conversations cannot be moved.
        KasmonError: as `account_variables`.
    """
    if account == launch.account:
        raise RefusedError(f"session {launch.name!r} uses that account.")
    if home is not None:
        raise UnableError(f"session {launch.name!r} is in a sandbox, which has a log-in of its own.")
    if folder_of(paths, launch, home) is None:
        program = program_of(launch.argv, launch.agent)
        raise UnableError(
            f"a conversation of {program!r} cannot be moved to another account: its files are not known.",
            hint="Start a new session with `kasmon new --account`.",
        )
    before = load_variables(paths, launch.session)
    after, public = remove_account(config, launch, before), frozenset[str]()
    if account:
        program = program_of(launch.argv, launch.agent)
        variables = account_variables(config, account, launch.agent, program, os.environ)
        after, public = after | variables.own, variables.public
    names = public.union(launch.public_variables) & after.keys()
    return _AccountChange(
        paths=paths, launch=launch, name=account, public=tuple(sorted(names)), before=before, after=after
    )


async def _resume(paths: Paths, launch: Launch) -> None:
    """Start the agent of *launch*, and verify that it continues its conversation; else raise `LaunchError`."""
    facts = await asyncio.to_thread(NewEvents, paths, launch.session)
    await asyncio.to_thread(write_private, paths.launch(launch.session), msgspec.json.encode(launch))
    await begin(paths, launch, again=True)
    if launch.mode is Mode.TMUX:  # the backend of a structured agent verifies it
        await _settle(launch, facts, home_of(paths, launch))


async def _settle(launch: Launch, facts: NewEvents, home: Path | None) -> None:
    """Return once the agent of *launch* in its terminal reports its conversation. Raises `LaunchError`."""
    program = Path(launch.argv[0]).name
    deadline = time.monotonic() + (SETTLE_S if program in TELLING else HOLD_S)
    pid: int | None = None
    while time.monotonic() < deadline:
        for event in await asyncio.to_thread(facts.more):
            if isinstance(event, SessionStarted | ConfinementSeen):
                pid = event.pid
            elif isinstance(event, SessionEnded):
                how = event.signal or f"exit code {event.exit_code}"
                reason = event.why.removeprefix(AT_ONCE).lstrip(": ").rstrip(".")
                raise LaunchError(
                    f"{program!r} exited immediately with {how}" + (f": {reason}." if reason else "."),
                    hint="Its last screen shows the reason.",
                )
        conversation_id = await asyncio.to_thread(conversation_of, program, pid, home) if pid else None
        if conversation_id is not None and conversation_id.id != launch.resume:
            raise LaunchError(
                f"{program!r} opened the conversation {conversation_id.id!r} instead of {launch.resume!r}."
            )
        if conversation_id is not None:
            return
        await asyncio.sleep(0.05)


async def _end(paths: Paths, launch: Launch) -> None:
    now = (await asyncio.to_thread(read_fleet, paths)).get(launch.session)
    if now is not None and now.state in ALIVE:
        with contextlib.suppress(SessionEndedError):
            await stop(paths, now)


def _conversation(session: Session, program: str, home: Path | None) -> str:
    """Return the conversation to continue, of an agent that is not in a turn. Raises as `move`."""
    is_busy: bool | None = session.state in IN_A_TURN
    if session.state is SessionState.LIMITED and session.mode is not Mode.TMUX:  # its turn may have ended
        is_busy = session.in_turn
    known = session.resume_id
    if session.mode is Mode.TMUX and session.state in ALIVE:
        conversation_id = conversation_of(program, session.pid, home) if session.pid else None
        if conversation_id is not None:
            known = conversation_id.id
        if conversation_id is not None and conversation_id.is_busy is not None:
            is_busy = conversation_id.is_busy
        elif session.state is SessionState.UNSURE:
            is_busy = None
    if is_busy is None:
        raise RefusedError(f"it is unknown whether {session.name!r} is in a turn.", hint="Stop it first, then move it.")
    if is_busy:
        is_asking = session.state is SessionState.ASKING
        hint = (
            "Answer its request first: `kasmon inbox`." if is_asking else "Wait until its turn ends, or interrupt it."
        )
        raise SessionBusyError(session.name, session.state, hint=hint)
    if not known:
        raise UnableError(f"cannot move {session.name!r}: its agent does not report which conversation it has.")
    return known


def _build_launch(
    session: Session, before: Launch, resolved: ResolvedProfile, conversation: str, codex: CodexPermissions
) -> tuple[Launch, str]:
    """Return the launch in the other mode, and why the agent would ask less there; empty if it would not."""
    program = program_of(resolved.argv)
    translated = translate(program, resolved.argv, session.permission_mode, resolved.mode, codex)
    launch = msgspec.structs.replace(
        before,
        name=session.name,
        mode=resolved.mode,
        backend=resolved.backend,
        argv=translated.argv,
        permission_mode=translated.permission_mode,
        model=resolved.model,
        fallback=None,
        bypassing=is_bypassing((program, *translated.argv[1:])),
        generation=session.generation + 1,
        resume=conversation,
    )
    if launch.mode is not Mode.TMUX:  # a structured agent gets the id by its protocol
        return launch, translated.problem
    program = Path(launch.argv[0]).name if launch.argv else ""
    argv = add_conversation(program, launch.argv, conversation)
    if argv is None:
        raise UnableError(
            f"kasmon does not know how {program!r} resumes a conversation in a terminal.",
            hint="Continue it in structured mode, or start a new session.",
        )
    return msgspec.structs.replace(launch, argv=argv), translated.problem
