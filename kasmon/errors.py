"""Every error that kasmon raises.

KasmonError
    UsageError                  the arguments make no sense as written                   exit 2
        ConfigError  PlanFaultyError
    NotFoundError               nothing has that name                                    exit 3
        SessionNotFoundError  AmbiguousSessionError  RequestNotFoundError  LogMissingError
        PlanNotFoundError  NotInstalledError
    RefusedError                understood, but not done                                 exit 4
        NameTakenError  StaleRequestError  RequestClosedError  SessionBusyError  SessionEndedError
            PromptChangedError
        InteractiveOnlyError  PaneDeadError  PasteRefusedError  ScreenChangedError  PromptBoxError  UnableError
        UntrustedFolderError  PushedCommitsError  MergeConflictError  ProtocolVersionError  PermissionModeError
        OtherMachineError  NotHibernatedError
    TimedOutError               not done in time; nothing else is known                  exit 5
    UnavailableError            something that kasmon requires is missing                exit 69
        HostUnreachableError  GitError  RemoteUnreachableError  NoSandboxError
        TmuxError
            TmuxMissingError  TmuxTooOldError  TmuxServerGoneError  TmuxCommandError
    LaunchError                 an agent could not be started                            exit 1
        AgentNotFoundError  UnfitAgentError  ExtraMissingError  RemoteLaunchError  LogInRequiredError
    PromptLostError             typed, but it is unknown whether the agent has it        exit 1
    SandboxError                a sandbox could not be made, found, paused or resumed    exit 1
        AgentLostError  SandboxUnreachableError  SnapshotRefusedError
    UnsafeFolderError           others could write to one of kasmon's folders            exit 1
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

NOT_REGULAR: Final = "it is not a regular file"
"""Why kasmon does not open a FIFO, a device or a folder in the place of one of its files (`paths.open_regular`)."""


class KasmonError(Exception):
    """An error with a plain message: one sentence that names the value, the cause and the next step."""

    exit_code: ClassVar[int] = 1
    code: ClassVar[str] = "failed"
    """A stable code for programs; the message may change, this does not."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        """Store *message* with one final mark, even where the cause at its end brought its own."""
        dots = len(message) - len(message.rstrip("."))
        if dots in (2, 4) or (dots == 1 and message[-2:-1] in ("!", "?", "…")):
            message = message[:-1]
        self.message, self.hint = message, hint
        super().__init__(message)

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


def explain_error(error: "KasmonError | OSError") -> str:
    """Return what *error* says, without its hint, its path and its final dot, to be put into another sentence."""
    return (error.message if isinstance(error, KasmonError) else error.strerror or str(error)).rstrip(".")


def of_system(error: OSError | KasmonError) -> KasmonError:
    """Return an operating system error as a `KasmonError`, for callers that know nothing more about it; or itself."""
    if isinstance(error, KasmonError):
        return error
    why = error.strerror or str(error) or type(error).__name__
    if why == NOT_REGULAR:
        hint = "Restore the original file, or move this one away."
        return KasmonError(f"cannot use {str(error.filename)!r}: {why}.", hint=hint)
    place = f" {str(error.filename)!r}" if error.filename else ""
    return KasmonError(f"a system call failed{place}: {why}.")


class UsageError(KasmonError):
    """The arguments make no sense as written; the same call will fail again."""

    exit_code, code = 2, "usage"


class ConfigError(UsageError):
    """A config or theme file that cannot be used as it is; kasmon does not change the file."""

    code = "config"

    def __init__(
        self,
        file: str,
        why: str,
        *,
        line: int | None = None,
        key: str = "",
        allowed: Sequence[str] = (),
        hint: str = "",
    ) -> None:
        self.file, self.why, self.line, self.key, self.allowed = file, why, line, key, tuple(allowed)
        place = f"{file}:{line}" if line else file
        at_key = f" at {key!r}" if key else ""
        choices = f"Allowed: {', '.join(allowed)}." if allowed else ""
        super().__init__(f"{place}{at_key}: {why}.", hint=choices or hint)


class PlanFaultyError(UsageError):
    """A plan file with faults; nothing of it was run."""

    code = "plan"

    def __init__(self, faults: Sequence[str]) -> None:
        """*faults*: each as `FILE:LINE: why.`; at least one."""
        self.faults = tuple(faults)
        and_more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        super().__init__(f"{faults[0]}{and_more}", hint="`kasmon plan check` lists all faults.")


class NotFoundError(KasmonError):
    """Nothing has this name."""

    exit_code, code = 3, "not-found"


class SessionNotFoundError(NotFoundError):
    """No session has this id, name or id prefix."""

    def __init__(self, wanted: str, near: str = "") -> None:
        """*near*: the name of a session with a similar spelling."""
        self.wanted = wanted
        meant = f"Did you mean {near!r}? " if near else ""
        super().__init__(
            f"there is no session {wanted!r}.",
            hint=f"{meant}See `kasmon ls`; give an id, an exact name or an id prefix.",
        )


class AmbiguousSessionError(NotFoundError):
    """More than one session has this id prefix, or sessions of several machines this name."""

    def __init__(self, wanted: str, candidates: Sequence[str]) -> None:
        self.wanted, self.candidates = wanted, tuple(candidates)
        super().__init__(
            f"{wanted!r} is ambiguous: it matches {', '.join(candidates)}.", hint="Give a longer prefix of the id."
        )


class RequestNotFoundError(NotFoundError):
    """No open or closed request has this id; or, without an id, *session* has no open request."""

    def __init__(self, request: str = "", session: str = "") -> None:
        self.request, self.session = request, session
        what = f"there is no request {request!r}." if request else f"session {session!r} has no open request."
        super().__init__(what, hint="See `kasmon inbox`.")


class PlanNotFoundError(NotFoundError):
    """No plan that was run has this id or file."""

    def __init__(self, wanted: str, why: str = "") -> None:
        self.wanted = wanted
        reason = f": {why}." if why else "."
        super().__init__(
            f"there is no plan {wanted!r}{reason}", hint="`kasmon plan ls` lists the plans that have been run."
        )


class LogMissingError(NotFoundError):
    """The session never had a log."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"there is no log at {path!r}.")


class NotInstalledError(NotFoundError):
    """There is no kasmon on another machine."""


class RefusedError(KasmonError):
    """The request was understood and refused; nothing changed."""

    exit_code, code = 4, "refused"


class NameTakenError(RefusedError):
    """Another listed session has this name."""

    def __init__(self, name: str, holder: str) -> None:
        self.name, self.holder = name, holder
        super().__init__(f"a session named {name!r} already exists: {holder}.", hint="Choose another name.")


class StaleRequestError(RefusedError):
    """The request is open, but its text differs from the one that was answered."""

    code = "stale"

    def __init__(self, request: str) -> None:
        self.request = request
        super().__init__(
            f"request {request!r} has changed since it was shown: its digest differs.",
            hint="Review it again: `kasmon inbox`.",
        )

    @classmethod
    def of_plan(cls, session: str, what: str, review: str) -> "StaleRequestError":
        """Return the error that *what* changed since a plan was shown; *review* says how to see the plan again."""
        error = cls(session)
        message = f"{what} changed since this was planned. Nothing was done."
        KasmonError.__init__(error, message, hint=f"Review it again: {review}.")
        return error


class PromptChangedError(StaleRequestError):
    """The prompt on the agent's screen is not the one that was answered; no key was sent that could answer it."""

    def __init__(self, request: str) -> None:
        super().__init__(request)
        KasmonError.__init__(
            self,
            f"request {request!r} was not answered: the prompt in the terminal has changed. Nothing was sent.",
            hint="Review the current prompt.",
        )


class RequestClosedError(RefusedError):
    """The request is already answered or withdrawn."""

    code = "closed"

    def __init__(self, request: str, how: str) -> None:
        self.request, self.how = request, how
        super().__init__(f"request {request!r} is closed: {how}.", hint="Nothing was sent.")


class SessionBusyError(RefusedError):
    """The agent is in a turn, and the caller asked not to disturb it. The default hint is for `kasmon send`."""

    code = "busy"

    def __init__(self, session: str, state: str, *, hint: str = "") -> None:
        self.session, self.state = session, state
        hint = hint or "Use --when idle to queue, or --when interrupt."
        super().__init__(f"session {session!r} is {state}.", hint=hint)


class SessionEndedError(RefusedError):
    """The agent is not running, so it cannot take this."""

    code = "ended"

    def __init__(self, session: str, *, is_hibernated: bool = False) -> None:
        self.session = session
        how, what = ("is hibernated", "resumes it") if is_hibernated else ("has ended", "starts it again")
        super().__init__(f"session {session!r} {how}.", hint=f"`kasmon restart {session}` {what}.")


class NotHibernatedError(RefusedError):
    """The agent cannot be ended until its next use: something waits for it, or it could not be resumed."""

    code = "not-hibernated"

    def __init__(self, session: str, why: str) -> None:
        self.session, self.why = session, why
        super().__init__(f"cannot hibernate session {session!r}: {why}.", hint="`kasmon show` shows its state.")


class ProtocolVersionError(RefusedError):
    """A host and its client are kasmon versions with different protocols; nothing was done."""

    code = "other-version"

    def __init__(
        self, host: str, pid: int, host_version: int | None, host_kasmon: str, version: int, kasmon: str
    ) -> None:
        """Args:
        host: the session's id, or `tmux` for the shared tmux host.
        pid: the host's process; 0 if unknown.
        host_version: the host's protocol version; None if it is older than the greeting that reports it.
        host_kasmon: the host's kasmon version; empty likewise.
        version: the client's protocol version.
        kasmon: the client's kasmon version."""
        self.host, self.pid, self.host_version, self.host_kasmon = host, pid, host_version, host_kasmon
        process = f" (pid {pid})" if pid else ""
        if host_version is None:
            what = f"the host {host!r}{process} is older than this kasmon ({kasmon}) and cannot hand over its session."
            super().__init__(what, hint=end_old_host(host, pid))
            return
        what = f"the host {host!r}{process} of kasmon {host_kasmon} speaks protocol {host_version}"
        hint = "`kasmon doctor --fix` replaces the host with one of this version."
        if host_version > version:
            hint = f"Use kasmon {host_kasmon}, or replace the host: {hint}"
        super().__init__(f"{what}, this kasmon ({kasmon}) protocol {version}.", hint=hint)


def end_old_host(host: str, pid: int) -> str:
    """Return how to end a host that cannot hand over, and what happens to its agents."""
    kill = f"`kill {pid}` ends it" if pid else "End its process"
    if host == "tmux":
        return f"{kill}; agents in terminals keep running, and the next command starts a new host."
    return f"{kill} and its agent; `kasmon restart {host}` then resumes the agent."


class InteractiveOnlyError(RefusedError):
    """The operation needs a terminal; a structured session has none."""

    code = "interactive-only"

    def __init__(
        self, session: str, operation: str = "attach to", why: str = "a structured session has no terminal"
    ) -> None:
        """*operation* is the whole verb phrase before the session's name: `detach from`."""
        self.session, self.operation, self.why = session, operation, why
        super().__init__(
            f"cannot {operation} {session!r}: {why}.",
            hint="Send prompts from the dashboard or with `kasmon send`.",
        )


class PaneDeadError(RefusedError):
    """The pane's program has ended; the pane only keeps its last screen."""

    code = "pane-dead"

    def __init__(self, pane: str) -> None:
        self.pane = pane
        super().__init__(f"the program in pane {pane!r} has exited.", hint="Restart the session.")


class PasteRefusedError(RefusedError):
    """The text was not pasted: the pane is dead, in copy mode, or has its input off."""

    code = "paste-refused"

    def __init__(self, pane: str, why: str) -> None:
        self.pane, self.why = pane, why
        super().__init__(f"cannot paste into pane {pane!r}: {why}. Nothing was pasted.")


class ScreenChangedError(RefusedError):
    """The pane no longer shows the screen that the keys were meant for; none was sent."""

    code = "screen-changed"

    def __init__(self, pane: str) -> None:
        self.pane = pane
        super().__init__(f"the screen of pane {pane!r} has changed since it was read.", hint="Read the screen again.")


class PromptBoxError(RefusedError):
    """Nothing was typed: the agent's prompt box is covered, or cannot be recognised."""

    code = "prompt-box"
    is_unseen = False
    """The prompt box cannot be recognised; the caller may ask to type anyway."""

    def __init__(self, session: str, why: str, *, hint: str = "", is_unseen: bool = False) -> None:
        self.session, self.why, self.is_unseen = session, why, is_unseen
        super().__init__(f"cannot type into {session!r}: {why}. Nothing was typed.", hint=hint)


class UnableError(RefusedError):
    """This kind of agent cannot do that; see its abilities."""

    code = "unable"


class PermissionModeError(RefusedError):
    """After the move the agent would ask less than before, and the user has not agreed to that; nothing was done."""

    code = "permission-mode"

    def __init__(self, session: str, why: str) -> None:
        self.session, self.why = session, why
        super().__init__(
            f"cannot move {session!r} with its permission mode: {why}.",
            hint="Pass --change-permissions to move it with the permission mode of its profile and its own settings.",
        )


class OtherMachineError(RefusedError):
    """It needs the files or processes of a session, or all of those of a machine, which is a registered one."""

    def __init__(self, session: str, name: str, machine: str) -> None:
        """*session*, *name*: empty for all that is on *machine*."""
        self.session, self.name, self.machine = session, name, machine
        what = f"session {name!r} is on {machine!r}, and so are its" if session else f"{machine!r} has its own"
        super().__init__(
            f"{what} files and processes.",
            hint="The command line runs this command there.",
        )


class UntrustedFolderError(RefusedError):
    """The agent would run files of the folder's project, and the user has not marked that folder as trusted."""

    code = "untrusted"

    def __init__(self, agent: str, folder: str, things: str, fix: str) -> None:
        self.agent, self.folder, self.things = agent, folder, things
        super().__init__(f"{folder!r} is not trusted by {agent}, which could run {things} there.", hint=fix)


class PushedCommitsError(RefusedError):
    """Commits that are pushed would be replaced; the user may want that."""


class MergeConflictError(RefusedError):
    """Branches to be merged in a worktree conflict; the merge is left there for the user to resolve."""

    code = "conflict"

    def __init__(self, branches: Sequence[str], folder: str, files: Sequence[str]) -> None:
        self.branches, self.folder, self.files = tuple(branches), folder, tuple(files)
        super().__init__(
            f"{' and '.join(repr(branch) for branch in branches)} conflict in "
            f"{', '.join(map(repr, files))}. Resolve the conflicts in {folder!r} and commit the merge.",
            hint="Then retry the task.",
        )


class SandboxError(KasmonError):
    """A sandbox could not be made, found, paused or resumed; the message names what is retained."""

    code = "sandbox"

    def __init__(self, what: str, why: str, hint: str = "") -> None:
        super().__init__(f"{what}: {why}.", hint=hint)


class AgentLostError(SandboxError):
    """The guest agent in a sandbox does not respond, or no longer. Nothing was retried."""

    code = "agent-lost"

    def __init__(self, why: str, *, may_have_run: bool) -> None:
        self.may_have_run = may_have_run
        effect = "It is unknown whether the sandbox executed the request." if may_have_run else "Nothing was done."
        super().__init__("the guest program in the sandbox does not respond", why, hint=effect)


class SandboxUnreachableError(SandboxError):
    """The sandbox's provider does not respond, or cannot resume it now. Nothing is lost; the caller may retry."""

    code = "sandbox-unreachable"


class SnapshotRefusedError(SandboxError):
    """A memory snapshot is not restored: it was used before, or is stale, truncated, damaged or another sandbox's."""

    code = "snapshot-refused"

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__("its memory snapshot is not used", why)


class TimedOutError(KasmonError):
    """It was not done in time. Nothing was allowed, undone or assumed because of that."""

    exit_code, code = 5, "timeout"


class UnavailableError(KasmonError):
    """Something that kasmon requires is missing: tmux, a host process, the network."""

    exit_code, code = 69, "unavailable"


class NoSandboxError(UnavailableError):
    """This machine cannot make a sandbox of the tier; nothing was started, and no other tier is used instead."""

    code = "no-sandbox"

    def __init__(self, tier: str, why: str, hint: str = "") -> None:
        self.tier, self.why = tier, why
        super().__init__(f"sandbox {tier!r} is unavailable here: {why}.", hint=hint)


class HostUnreachableError(UnavailableError):
    """The process that talks to the agent does not answer."""

    def __init__(self, session: str, why: str) -> None:
        self.session, self.why = session, why
        super().__init__(
            f"the host of session {session!r} does not respond: {why}.", hint="Run `kasmon doctor` for a diagnosis."
        )


class GitError(UnavailableError):
    """git failed or is not installed."""

    code = "git"

    def __init__(self, what: str, why: str, *, hint: str = "") -> None:
        self.what, self.why = what, why
        super().__init__(f"git cannot {what}: {why}.", hint=hint)


class RemoteUnreachableError(UnavailableError):
    """There is no connection to another machine; the processes there keep running."""

    code = "remote-unreachable"

    def __init__(self, machine: str, why: str, *, hint: str = "", is_registered: bool = False) -> None:
        """*hint*: what to do next, if neither ssh nor the state of the link says it; else *is_registered* decides."""
        self.machine, self.why = machine, why
        ssh = f"Run `ssh {machine}` to see the cause: kasmon enters no password and accepts no new host key."
        usual = f"`kasmon machines show {machine}` shows what its link reports." if is_registered else ssh
        super().__init__(f"cannot reach {machine!r}: {why}.", hint=hint or usual)


class TmuxError(UnavailableError):
    """tmux is missing, not usable, or failed."""

    code = "tmux"


class TmuxMissingError(TmuxError):
    """The tmux program is not installed."""

    def __init__(self, program: str) -> None:
        self.program = program
        super().__init__(
            f"{program!r} is not installed or not on PATH.",
            hint="Install tmux 3.2 or newer (for example `apt-get install tmux` or `brew install tmux`); "
            "structured sessions work without it.",
        )


class TmuxTooOldError(TmuxError):
    def __init__(self, version: str) -> None:
        self.version = version
        hint = "kasmon needs 3.2 or newer; structured sessions work without it."
        super().__init__(f"tmux {version} is too old.", hint=hint)


class TmuxServerGoneError(TmuxError):
    """kasmon's tmux server ended during a request."""

    def __init__(self, socket: str) -> None:
        self.socket = socket
        super().__init__(
            f"the tmux server at {socket!r} is gone.", hint="Its sessions are lost; `kasmon restart` starts them again."
        )


class TmuxCommandError(TmuxError):
    def __init__(self, command: str, reason: str) -> None:
        self.command, self.reason = command, reason
        super().__init__(f"tmux refused {command!r}: {reason}.")


class LaunchError(KasmonError):
    """An agent could not be started."""

    code = "launch"


class AgentNotFoundError(LaunchError):
    """The program that runs this agent is not installed or not on PATH."""

    def __init__(self, agent: str, program: str, startable: Sequence[str] = ()) -> None:
        self.agent, self.program = agent, program
        super().__init__(
            f"cannot start {agent!r}: {program!r} is not on PATH.",
            hint=f"Install it, or set [agents.{agent}] program in the config. "
            f"Agents that can start: {', '.join(startable) or 'none'}.",
        )


class UnfitAgentError(LaunchError):
    """The agent's program does not follow the expected protocol: it is another version, or another program."""


class LogInRequiredError(LaunchError):
    """The agent requires a log-in first."""

    def __init__(
        self, message: str, *, hint: str, title: str = "", argv: Sequence[str] = (), variables: Mapping[str, str] = {}
    ) -> None:
        """*argv* is the command that logs in in a terminal, with *variables*, under the agent's *title* for it; empty
        if the agent offers none."""
        self.title, self.argv, self.variables = title, tuple(argv), dict(variables)
        super().__init__(message, hint=hint)


class RemoteLaunchError(LaunchError):
    """An agent could not be started on another machine."""

    code = "remote"

    def __init__(self, machine: str, why: str) -> None:
        self.machine, self.why = machine, why
        super().__init__(
            f"cannot start it on {machine!r}: {why}.", hint=f"Run `ssh {machine}` to check what is installed there."
        )


class ExtraMissingError(LaunchError):
    """A Python package that this backend needs is not installed."""

    def __init__(self, backend: str, extra: str) -> None:
        self.backend, self.extra = backend, extra
        super().__init__(
            f"the backend {backend!r} is not installed.", hint=f"`pipx install --force '.[{extra}]'` in kasmon's clone."
        )


class PromptLostError(KasmonError):
    """A prompt was typed, maybe in part, and not seen to be taken. It is not repeated: the agent may have it."""

    code = "lost"

    def __init__(self, session: str, why: str) -> None:
        self.session, self.why = session, why
        super().__init__(
            f"the prompt for {session!r} is lost: {why}.", hint="Check its terminal before you send the prompt again."
        )


class UnsafeFolderError(KasmonError):
    """A folder that must be private to kasmon is a link, has another owner, or is writable by others."""

    code = "unsafe-folder"

    def __init__(self, path: str, why: str, *, is_link: bool = False) -> None:
        self.path, self.why = path, why
        hint = "Move it away: kasmon creates a folder there." if is_link else f"Make it private: `chmod 700 {path}`."
        super().__init__(f"cannot use {path!r}: {why}.", hint=hint)
