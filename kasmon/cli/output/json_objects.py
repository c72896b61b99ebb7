"""The objects of `--json`, as documented in `docs/cli.md`: every field is always present, values are JSON only. Pure.

Fields are only added.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kasmon.errors import KasmonError
from kasmon.model.commands import Receipt
from kasmon.model.events import Event
from kasmon.model.permission import Request
from kasmon.model.rule import Rule
from kasmon.model.session import HostProbe, Session, Tokens
from kasmon.model.session_state import OVER, SessionState

if TYPE_CHECKING:
    from kasmon.repository.branch import BranchState

SCHEMA: Final = 1


def answer(**parts: Any) -> dict[str, Any]:
    """Return a command's output: the schema, and *parts* by their name."""
    return {"schema": SCHEMA, **parts}


def session_object(session: Session, branch: "BranchState | None" = None) -> dict[str, Any]:
    """Return *session* as an object for programs; *branch* is the state of its worktree, where it was read."""
    host = session.host or HostProbe(pid=None, alive=False)
    confinement = session.sandbox_state.confinement if session.sandbox_state else None
    return {
        "id": session.id,
        "name": session.name,
        "agent": session.agent,
        "mode": session.mode.value,
        "backend": session.backend,
        "parent": session.parent,
        "actor": msgspec.to_builtins(session.actor),
        "tools": list(session.tools),
        "sandbox": session.sandbox,
        "phase": session.phase,
        "confined": confinement.ok if confinement else None,
        "mismatches": list(confinement.mismatches) if confinement else [],
        "plan": session.plan,
        "tags": list(session.tags),
        "fallback": session.fallback,
        "bypassing": session.bypassing,
        "adopted": session.adopted or None,
        "state": session.state.value,
        "source": session.source,
        "since": session.since,
        "asking": session.asking.value if session.asking else None,
        "unsure_why": session.unsure_why,
        "stuck": session.stuck,
        "stuck_why": session.stuck_why or None,
        "waits": session.waits or None,
        "done": session.done,
        "finish_proposed": session.finish_proposed or None,
        "finish_proposed_by": session.finish_proposed_by or None if session.finish_proposed else None,
        "finish_proposed_at": session.finish_proposed_at if session.finish_proposed else None,
        "finished_at": session.finished_at or None,
        "turn_ended": session.turn_ended or None,
        "turn_error": session.turn_error or None,
        "viewed_at": session.viewed_at or None,
        "unviewed": session.is_unviewed,
        "limited_until": session.limited_until,
        "account": session.account or None,
        "last_line": session.last_line or None,
        "end_why": session.end_why or None,
        "exit_code": session.exit_code,
        "signal": session.signal,
        "freed_bytes": session.freed_bytes if session.state is SessionState.HIBERNATED else None,
        "task": session.task,
        "wave": session.wave,
        "peers": session.peers,
        "pid": None if session.state in OVER else session.pid,
        "generation": session.generation,
        "resume_id": session.resume_id,
        "expires_at": session.expires_at,
        "pause_at": session.sandbox_state.pause_at if session.sandbox_state else None,
        "queue": session.queue,
        "tokens": tokens_object(session.tokens),
        "cost_usd": session.cost_usd,
        "workdir": session.workdir,
        "worktree": None if session.worktree is None else msgspec.to_builtins(session.worktree),
        "branch": msgspec.to_builtins(branch),
        "machine": session.machine,
        "created_at": session.created_at,
        "host": {"pid": host.pid, "alive": host.alive},
    }


def tokens_object(tokens: Tokens | None) -> dict[str, int | None] | None:
    """Return *tokens*, with null for unreported figures; every turn uses tokens, so a sum of 0 is unreported."""
    if tokens is None:
        return None
    is_counted = tokens.used is not None
    return {
        "input": tokens.input if is_counted else None,
        "output": tokens.output if is_counted else None,
        "context": tokens.context or None,
        "limit": tokens.limit or None,
    }


def shown_object(
    session: Session,
    peers: Iterable[Session],
    events: Iterable[Event],
    pane: dict[str, Any] | None,
    branch: "BranchState | None" = None,
) -> dict[str, Any]:
    """Return *session* with everything that `show` adds; *pane* is None if tmux could not be queried."""
    return session_object(session, branch) | {
        "model": session.model or None,
        "models": list(session.models),
        "permission_mode": session.permission_mode or None,
        "permission_modes": list(session.permission_modes),
        "switches": msgspec.to_builtins(session.switches),
        "abilities": list(session.abilities),
        "proof": session.proof or None,
        "last_words": session.last_words or None,
        "peer_sessions": [
            {"id": peer.id, "name": peer.name, "task": peer.task, "state": peer.state.value} for peer in peers
        ],
        "evidence": [msgspec.to_builtins(signal) for signal in session.signals],
        "receipts": [receipt_object(receipt) for receipt in session.receipts],
        "permissions": [request_object(request) for request in session.requests],
        "closed": [msgspec.to_builtins(closed) for closed in session.closed],
        "pane": pane,
        "events": [msgspec.to_builtins(event) for event in events],
    }


def request_object(request: Request) -> dict[str, Any]:
    """Return *request* unredacted, because its digest covers that."""
    shown = msgspec.to_builtins(request) | {"required": list(request.required or request.input)}
    return {name: value for name, value in shown.items() if name not in ("takes_reason", "by_host")}


def receipt_object(receipt: Receipt) -> dict[str, Any]:
    shown = msgspec.to_builtins(receipt)
    shown |= {"reason": receipt.reason or None, "carried_by": receipt.carried_by or None, "by": receipt.by or None}
    return {name: value for name, value in shown.items() if name not in ("digest", "key")}


def error_object(error: KasmonError) -> dict[str, Any]:
    """Return the output of a failed command."""
    return answer(error={"code": error.code, "message": error.message, "hint": error.hint})


def rule_object(rule: Rule) -> dict[str, Any]:
    """Return *rule* as an object for programs, with its text."""
    return {**msgspec.to_builtins(rule), "words": rule.words}
