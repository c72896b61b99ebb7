"""What an agent asks a person: requests, their digests, and the answers to them.

A request never changes: changed text is a new request and the old one is void. Its digest is taken over exactly what
the agent sent, so an answer that carries the digest can only ever mean this text.
"""

from enum import StrEnum
from typing import Any, Final, NewType

import msgspec

SessionId = NewType("SessionId", str)
RequestId = NewType("RequestId", str)


NO_PLAN: Final = "The agent sent no plan text."
"""What a person reads in a request to approve a plan that has none."""


class RequestKind(StrEnum):
    """What a request wants from a person."""

    PERMISSION = "permission"
    QUESTION = "question"
    PLAN = "plan"
    AUTH = "auth"


class Decision(StrEnum):
    """What a person may answer."""

    ALLOW = "allow"
    ALWAYS = "always"
    DENY = "deny"
    NEVER = "never"
    """Deny, and deny the like from now on."""
    EDIT = "edit"
    CHOOSE = "choose"
    CANCEL = "cancel"
    """Deny, and end the turn."""
    LATER = "later"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that an agent waits for, exactly as it asked."""

    id: RequestId
    """`<session>-<n>`, n counted by the session's log."""
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
    """The decisions this request takes; LATER is always possible and not listed."""
    options: tuple[str, ...] = ()
    """For a question: the labels to choose from."""
    option_notes: tuple[str, ...] = ()
    """For a question: what each of the options means, in their order; empty where the agent did not say."""
    many: bool = False
    """For a question: more than one label may be chosen."""
    free_text: bool = False
    """For a question: it takes a person's own words beside the options."""
    takes_reason: bool = False
    """For one on a terminal's screen: a no can say why."""
    why: str = ""
    """The agent's own reason for asking; empty where it gave none."""
    rule: str = ""
    """What ALWAYS would allow, and NEVER deny, from then on, in words that say all of it; empty where neither is
    offered."""
    asked_at: float = 0.0
    digest: str = ""
    """SHA-256 of everything above that a person decides on; see `digest_of`."""
    later: bool = False
    """A person has set it aside: it waits on, and no longer rises by itself."""
    by_host: bool = False
    """kasmon's own host asks, and not the agent, so the end of a turn does not withdraw it."""
    answerable: bool = True
    """Whether kasmon can carry an answer to the agent; False for prompts seen on a terminal, where only focus helps."""
    may_be_cut: bool = False
    """It was read from a terminal, and nothing proves that all of it was shown: consent is given there only."""


MAY_BE_CUT: Final = "this may be truncated: open the terminal"
"""What is said of a request that `may_be_cut`."""
CONSENTS: Final = frozenset({Decision.ALLOW, Decision.ALWAYS, Decision.EDIT, Decision.CHOOSE})
"""Decisions by which the agent goes on with what it asked for."""


class ClosedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """How a request ended."""

    id: RequestId
    decision: Decision | None
    """None when it was withdrawn."""
    by: str
    """`user`, `policy`, or why it was withdrawn."""
    at: float
    who: str = ""
    """At which screen the person sat; empty where nobody knows."""
    rule: str = ""
    """The id of the rule that answered, or that the answer made."""
    diff: str = ""
    """What was edited in its input: a unified diff, of a long one the beginning."""


def digest_of(request: Request) -> str:
    """The SHA-256, in hex, of what a person decides on in *request*.

    Its id and time, that it was set aside, and how it can be answered do not count.
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


def sealed(request: Request) -> Request:
    """*request* with its digest filled in."""
    return msgspec.structs.replace(request, digest=digest_of(request))
