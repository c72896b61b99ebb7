"""The handshake: how claude is started for it, what it must contain, and why it failed."""

import uuid
from importlib import metadata
from pathlib import Path
from typing import Final

import msgspec

from kasmon.backends.claude import command_line
from kasmon.backends.claude.history import PromptPresence, conversation_of, find_fork_point, memory, read_usage
from kasmon.backends.common.child_process import ChildProcess
from kasmon.backends.common.environment import build_environment, own_prefixes
from kasmon.backends.common.json_access import Table, table, text
from kasmon.backends.common.transcripts import claude_folder
from kasmon.backends.project_trust import check as check_trust
from kasmon.detection.version_range import version_of
from kasmon.errors import ExtraMissingError, LaunchError, UnfitAgentError
from kasmon.model.commands import ConversationUsage, Launch
from kasmon.model.events import NoticeRaised
from kasmon.paths import user_paths
from kasmon.sanitize import clean_block, redact

SDK: Final = "claude-agent-sdk"


class ClaudeLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """How one `claude` is to be started."""

    argv: tuple[str, ...]
    variables: dict[str, str]
    secrets: tuple[str, ...]
    conversation: str
    """The requested id; empty if the user's flags choose it."""
    memory: PromptPresence | None
    """What the transcript of a resumed conversation contains; None for a new one."""
    carried: ConversationUsage = ConversationUsage()
    """The usage figures that the agent continues from."""

    @property
    def config(self) -> Path:
        """The folder in which claude stores its settings and its conversations."""
        return claude_folder(self.variables)

    def proof(self, remembers: str) -> str:
        """Return how the resumed conversation was verified, whose last prompt is *remembers*; empty if it is new."""
        if self.memory is None:
            return ""
        known = self.memory in (PromptPresence.ENDS_WITH_IT, PromptPresence.HOLDS_IT) and remembers
        return f"claude opened it by its id{f', and {self.memory.value}' if known else ''}"

    def notices(self, remembers: str, at: float) -> list[NoticeRaised]:
        """Return the notice that the resumed conversation may be another one, if so."""
        if self.memory not in (PromptPresence.WITHOUT_IT, PromptPresence.NO_TRANSCRIPT) or not remembers:
            return []
        text = f"claude resumed the conversation, but {self.memory.value}."
        return [NoticeRaised(at=at, text=text, level="warning")]


def plan_launch(launch: Launch) -> ClaudeLaunch:
    """Return the plan for *launch*; reads files.

    A new conversation gets an id from kasmon, so that it is known before the first prompt. A conversation without any
    prompt has no transcript, and begins again under its id.

    Raises:
        ExtraMissingError: if the SDK is not installed.
        LaunchError: if there is no program, or the conversation to fork has no such prompt.
        UntrustedFolderError: if it would run what the user has not trusted.
    """
    if not launch.argv:
        raise LaunchError(f"cannot start {launch.agent!r}: its profile names no program.")
    try:
        sdk = metadata.version(SDK)
    except metadata.PackageNotFoundError as error:
        raise ExtraMissingError("claude", "claude") from error
    around = build_environment(launch, own_prefixes(("claude",)))
    variables = command_line.environment(launch, around.variables, sdk)
    check_trust("claude", launch.argv, launch.workdir, variables)
    if launch.sandbox is not None:  # its conversations are in its sandbox home
        from kasmon.sandbox.agent.launch import home_of

        variables["HOME"] = str(home_of(user_paths(), launch.session))
        variables.pop("CLAUDE_CONFIG_DIR", None)
    folder = claude_folder(variables)
    chosen = command_line.chooses_conversation(launch.argv[1:])
    known, begin, resume = None, "", launch.resume or ""
    forks_at: str | None = None
    if launch.fork is not None:
        if chosen:
            raise LaunchError("the profile's flags choose the conversation, so another one cannot be forked.")
        begin, resume = str(uuid.uuid4()), launch.fork.conversation
        forks_at = find_fork_point(folder, launch.fork) if launch.fork.prompt else ""
    elif resume:
        known = memory(folder, resume, launch.remembers)
        if known is PromptPresence.NO_TRANSCRIPT and not launch.remembers and not chosen:
            known, begin, resume = None, resume, ""
    elif not chosen:
        begin = str(uuid.uuid4())
    return ClaudeLaunch(
        argv=tuple(command_line.command(launch, begin=begin, resume=resume, forks_at=forks_at)),
        variables=variables,
        secrets=around.secrets,
        conversation=begin or resume,
        memory=known,
        carried=read_usage(folder, resume) if resume and forks_at is None else ConversationUsage(),
    )


OLDEST: Final = (2, 0, 0)
"""The oldest version of Claude Code that the SDK supports."""
LOG_IN: Final = "Log in with `claude` on a terminal and /login, or give the session ANTHROPIC_API_KEY by --env."
UNKNOWN_FLAG: Final = "unknown option"
HINTS: Final = {
    "No conversation found": "Its transcript was removed or is elsewhere (HOME, CLAUDE_CONFIG_DIR); start a new "
    "session.",
    "root/sudo privileges": "Set IS_SANDBOX=1 where this machine is a sandbox, or leave out what skips permissions.",
    UNKNOWN_FLAG: "Check the profile's flags.",
    "already in use": "Leave out --session-id.",
}
"""Hints for what the agent prints when it does not start."""


def check(launch: Launch, plan: ClaudeLaunch, answer: Table, conversation: str) -> None:
    """Raise `LaunchError` for an agent that could not work, or has another conversation.

    *answer*: its answer to the handshake; *conversation*: the id of its conversation, empty if unknown.
    """
    version = version_of(text(answer, "claude_code_version")) or ()
    if len(version) >= len(OLDEST) and version < OLDEST:  # a shorter text is not known to be a version
        found, oldest = (".".join(map(str, parts)) for parts in (version, OLDEST))
        raise LaunchError(f"claude {found} is too old.", hint=f"kasmon needs {oldest} or newer: `claude update`.")
    account = table(answer, "account")
    is_nobody = text(account, "tokenSource") == "none" and text(account, "apiKeySource") in ("", "none")
    if is_nobody and text(account, "apiProvider") == "firstParty":
        raise LaunchError("claude has no login and no key.", hint=LOG_IN)
    goes_on = plan.memory is not None and not command_line.forks(launch.argv[1:])
    if goes_on and conversation and conversation != launch.resume:
        raise LaunchError(f"claude opened the conversation {conversation!r} instead of {launch.resume!r}.")


def find_conversation(launch: Launch, config: Path, pid: int) -> str:
    """Return the id of the process's conversation; empty if unknown."""
    if launch.sandbox is None:
        return conversation_of(config, pid)
    from kasmon.sandbox.agent.identify import find_agent
    from kasmon.sandbox.shared.processes import name_inside

    agent = find_agent(pid)
    name = name_inside(agent) if agent is not None else ""
    return conversation_of(config, int(name)) if name else ""


def explain_failure(
    error: Exception, plan: ClaudeLaunch, child: ChildProcess, failure: str, limit_s: float
) -> LaunchError:
    """Return why the handshake failed; *failure* is the agent's own message in its protocol, if any."""
    reason = redact(clean_block(failure), plan.secrets)[0] or child.last_words
    how = child.signal or (f"exit code {child.exit_code}" if child.exit_code is not None else "")
    if isinstance(error, TimeoutError):
        what = f"claude did not initialise within {limit_s:g} s"
    elif how:
        what = f"claude ended before it had initialised ({how})"
    else:
        what = f"claude did not initialise ({error})"
    output = f"{failure}\n{child.last_words}"
    hint = next((hint for sign, hint in HINTS.items() if sign in output), "")
    kind = UnfitAgentError if UNKNOWN_FLAG in output or not hint else LaunchError
    message = f"{what}{f': {reason}' if reason else ''}.".replace("..", ".")
    return kind(message, hint=hint or f"The program was {plan.argv[0]!r}.")
