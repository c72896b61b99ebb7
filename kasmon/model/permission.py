"""Requests of agents to people, their digests, and the possible decisions.

A request never changes: changed text is a new request and the old one is void. Its digest is taken over exactly what
the agent sent, so an answer that carries the digest can only ever mean this text.
"""

from enum import StrEnum
from typing import Any, Final, NewType

import msgspec

from kasmon.errors import UsageError

SessionId = NewType("SessionId", str)
RequestId = NewType("RequestId", str)


NO_PLAN: Final = "The agent sent no plan text."
"""The text of a request to approve a plan that has none."""


class RequestKind(StrEnum):
    PERMISSION = "permission"
    QUESTION = "question"
    PLAN = "plan"
    AUTH = "auth"


class Decision(StrEnum):
    """The possible answers."""

    ALLOW = "allow"
    ALWAYS = "always"
    DENY = "deny"
    NEVER = "never"
    """Deny this and all similar requests from now on."""
    EDIT = "edit"
    CHOOSE = "choose"
    CANCEL = "cancel"
    """Deny and end the turn."""
    LATER = "later"


def parse_decision(text: str) -> Decision:
    """Return the decision named *text*. Raises `UsageError` if there is none."""
    try:
        return Decision(text)
    except ValueError as error:
        raise UsageError(f"unknown answer {text!r}.", hint=f"Answers: {', '.join(Decision)}.") from error


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request of an agent, exactly as it was sent."""

    id: RequestId
    """`<session>-<n>`, n counted in the session's log."""
    session: SessionId
    kind: RequestKind = RequestKind.PERMISSION
    tool: str = ""
    """The tool the agent wants to use, e.g. `Bash` or `Edit`; empty for questions."""
    title: str = ""
    """One line: what it is about."""
    input: dict[str, Any] = {}
    """The tool's input as the agent sent it; for a command, `{"command": ...}` or `{"argv": [...]}`."""
    shown: str = ""
    """The whole request as text to read: a command, a question, a plan, a unified diff."""
    is_diff: bool = False
    """Whether `shown` is a unified diff."""
    required: tuple[str, ...] = ()
    """The fields that an edited input must have, where the tool's schema is known; empty: each field of `input`."""
    choices: tuple[Decision, ...] = ()
    """The accepted decisions; LATER is always possible and not listed."""
    options: tuple[str, ...] = ()
    """For a question: the labels to choose from."""
    option_notes: tuple[str, ...] = ()
    """For a question: the meaning of each option, in their order; empty if the agent sent none."""
    many: bool = False
    """For a question: more than one label may be chosen."""
    free_text: bool = False
    """For a question: it accepts a custom text beside the options."""
    takes_reason: bool = False
    """For one on a terminal's screen: a denial can carry a reason."""
    why: str = ""
    """The agent's own reason for asking; empty where it gave none."""
    rule: str = ""
    """What ALWAYS would allow, and NEVER deny, from then on, completely described; empty if neither is offered."""
    asked_at: float = 0.0
    digest: str = ""
    """SHA-256 of every field above that matters for a decision; see `digest_of`."""
    later: bool = False
    """A person has set it aside: it stays open, but no longer pops up."""
    by_host: bool = False
    """kasmon's own host asks, not the agent, so the end of a turn does not withdraw it."""
    answerable: bool = True
    """Whether kasmon can pass an answer to the agent; False for screen prompts to be answered in the terminal."""
    may_be_cut: bool = False
    """It was read from a terminal and may have been truncated: consent is only possible there."""


MAY_BE_CUT: Final = "this may be truncated: open the terminal"
"""The note on a request that `may_be_cut`."""
CONSENTS: Final = frozenset({Decision.ALLOW, Decision.ALWAYS, Decision.EDIT, Decision.CHOOSE})
"""Decisions after which the agent proceeds with what it asked for."""


class ClosedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """How a request ended."""

    id: RequestId
    decision: Decision | None
    """None if it was withdrawn."""
    by: str
    """`user`, `policy`, or why it was withdrawn."""
    at: float
    who: str = ""
    """The terminal at which the person answered, after the link if they used one; empty if unknown."""
    rule: str = ""
    """The id of the rule that answered, or that the answer created."""
    diff: str = ""
    """The edit of its input: a unified diff, truncated if long."""


def digest_of(request: Request) -> str:
    """Return the SHA-256, in hex, of everything in *request* that matters for a decision.

    Its id and time, whether it was set aside, and how it can be answered do not count.
    """
    import hashlib  # only here: `kasmon ls` takes no digest, and the libraries take 4 ms to load
    import json

    decided = (
        request.session,
        request.kind,
        request.tool,
        request.title,
        request.input,
        request.shown,
        request.is_diff,
        request.choices,
        request.options,
        request.option_notes,
        request.many,
        request.free_text,
        request.why,
        request.rule,
    )
    try:
        content = msgspec.json.encode(decided, order="deterministic")
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can hold and UTF-8 cannot
        content = json.dumps(msgspec.to_builtins(decided), sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()


def seal(request: Request) -> Request:
    """Return *request* with its digest filled in."""
    return msgspec.structs.replace(request, digest=digest_of(request))
