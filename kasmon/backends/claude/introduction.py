"""The first words: what they must hold, what follows from them, and why there were none."""

import re
from typing import Final

from kasmon.backends.child import Child
from kasmon.backends.claude.command import forks, model_of
from kasmon.backends.claude.history import Memory
from kasmon.backends.claude.plan import Plan
from kasmon.backends.claude.settings import Settings
from kasmon.backends.shape import Table, table, text
from kasmon.clean import clean_block, redact
from kasmon.errors import ExtraMissingError, LaunchError, UnfitAgentError
from kasmon.model.command import Launch
from kasmon.model.event import Event, NoticeRaised, SessionStarted

OLDEST: Final = (2, 0, 0)
"""The first version of Claude Code that the SDK talks to."""
VERSION: Final = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})")
LOG_IN: Final = "Log in with `claude` on a terminal and /login, or give the session ANTHROPIC_API_KEY by --env."
UNKNOWN_FLAG: Final = "unknown option"
HINTS: Final = {
    "No conversation found": "Its transcript is gone or lies elsewhere (HOME, CLAUDE_CONFIG_DIR); begin a new session.",
    "root/sudo privileges": "Set IS_SANDBOX=1 where this machine is a sandbox, or leave out what skips permissions.",
    UNKNOWN_FLAG: "Check the profile's flags.",
    "already in use": "Leave out --session-id.",
}
"""What can be done about what the agent says when it does not start."""


def check(launch: Launch, plan: Plan, answer: Table, conversation: str) -> None:
    """Refuse an agent that could not work, or would go on with something else.

    Args:
        launch: what was wanted.
        plan: how it was started.
        answer: to our introduction.
        conversation: the id of the one that it has; empty where that is not known.

    Raises:
        LaunchError: with the reason.
    """
    told = VERSION.match(text(answer, "claude_code_version"))
    if told and tuple(int(part) for part in told.groups()) < OLDEST:
        oldest = ".".join(str(part) for part in OLDEST)
        raise LaunchError(f"claude {told[0]} is too old.", hint=f"kasmon needs {oldest} or newer: `claude update`.")
    account = table(answer, "account")
    is_nobody = text(account, "tokenSource") == "none" and text(account, "apiKeySource") in ("", "none")
    if is_nobody and text(account, "apiProvider") == "firstParty":
        raise LaunchError("claude has no login and no key.", hint=LOG_IN)
    goes_on = plan.memory is not None and not forks(launch.argv[1:])
    if goes_on and conversation and conversation != launch.resume:
        raise LaunchError(f"claude opened the conversation {conversation!r} and not {launch.resume!r}.")


def introduction(
    launch: Launch, plan: Plan, settings: Settings, answer: Table, pid: int, at: float
) -> tuple[Event, ...]:
    """What the agent's session begins with; *settings* know its conversation already."""
    offered = settings.offered(answer, model_of(plan.argv), at)
    started = SessionStarted(
        at=at,
        generation=launch.generation,
        backend=launch.backend,
        mode=launch.mode,
        workdir=launch.workdir,
        pid=pid,
        resume_id=settings.conversation or None,
        model=settings.model,
        proof=proof(plan, launch.remembers),
    )
    if plan.memory in (Memory.WITHOUT_IT, Memory.NO_TRANSCRIPT) and launch.remembers:
        doubt = f"claude opened the conversation of before, but {plan.memory.value}."
        return started, offered, NoticeRaised(at=at, text=doubt, level="warning")
    return started, offered


def proof(plan: Plan, remembers: str) -> str:
    """How it is known that the conversation is the one of before; empty where it is new."""
    if plan.memory is None:
        return ""
    known = plan.memory in (Memory.ENDS_WITH_IT, Memory.HOLDS_IT) and remembers
    return f"claude opened it by its id{f', and {plan.memory.value}' if known else ''}"


def why_not(error: Exception, plan: Plan, child: Child, failure: str, limit_s: float) -> LaunchError:
    """Why the agent did not introduce itself; *failure* is what it said of that in its protocol, if anything."""
    if isinstance(error, ImportError):
        return ExtraMissingError("claude", "claude")
    words = redact(clean_block(failure), plan.secrets)[0] or child.last_words
    how = child.signal or (f"exit code {child.exit_code}" if child.exit_code is not None else "")
    if isinstance(error, TimeoutError):
        what = f"claude did not introduce itself within {limit_s:g} s"
    elif how:
        what = f"claude ended before it had introduced itself ({how})"
    else:
        what = f"claude did not introduce itself ({error})"
    hint = next((hint for said, hint in HINTS.items() if said in f"{failure}\n{child.last_words}"), "")
    program = f"{plan.argv[0]!r} is what was started."
    said = f"{failure}\n{child.last_words}"
    kind = UnfitAgentError if UNKNOWN_FLAG in said or not hint else LaunchError
    return kind(f"{what}{f': {words}' if words else ''}.".replace("..", "."), hint=hint or program)
