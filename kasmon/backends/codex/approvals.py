"""Codex's approval calls as requests: run a command, change files, get permissions, use a server's tool."""

from typing import Final

from kasmon.backends.codex import diff
from kasmon.backends.codex.items import PATCH, SHELL, script
from kasmon.backends.codex.request import APPROVAL, CodexRequest, CodexRequestContext
from kasmon.backends.common.json_access import Table, as_json, at, rows, table, text, texts
from kasmon.model.permission import Request, RequestKind

BOOKKEEPING: Final = frozenset(
    {
        "threadId",
        "turnId",
        "itemId",
        "approvalId",
        "startedAtMs",
        "environmentId",
        "availableDecisions",
        "commandActions",
    }
)
"""Fields that do not describe the request, or repeat another field."""
PROPOSALS: Final = frozenset({"proposedExecpolicyAmendment", "proposedNetworkPolicyAmendments"})
"""Rules that codex would store itself; kasmon has its own."""
ACCEPT: Final[Table] = {"decision": "accept"}
DECLINE: Final[Table] = {"decision": "decline"}
CANCEL: Final[Table] = {"decision": "cancel"}


def command(params: Table, setting: CodexRequestContext) -> CodexRequest:
    """Build the request to run a command, to type into a running one, or to reach a host."""
    line = script(text(params, "command"))
    host = text(params, "networkApprovalContext", "host")
    where = text(params, "cwd")
    given = {key: value for key, value in params.items() if value is not None and key not in BOOKKEEPING | PROPOSALS}
    if line:
        given["command"] = line
    if where == setting.workdir:
        given.pop("cwd", None)
    if text(params, "kind") == "command":
        given.pop("kind", None)
    given.pop("reason", None)
    shown = [line] if line else []
    if host:
        shown.append(f"network: {text(params, 'networkApprovalContext', 'protocol')} to {host}")
    if text(params, "kind") == "writeStdin":
        shown.append("types into a running command")
    if where and where != setting.workdir:
        shown.append(f"in {where}")
    shown += [f"with {permission}" for permission in _permissions(table(params, "additionalPermissions"))]
    title = f"reach {host}" if host else line
    return _approval(setting, SHELL, title, given, "\n".join(shown) or as_json(given, 2), why=text(params, "reason"))


def files(params: Table, setting: CodexRequestContext) -> CodexRequest:
    """Build the request to change files, as listed in the preceding item."""
    changed = diff.unified(setting.changes, setting.workdir)
    paths = diff.paths(setting.changes, setting.workdir)
    root = text(params, "grantRoot")
    reasons = [text(params, "reason"), f"It also asks to write anything below {root} from now on." if root else ""]
    changes = [{"path": text(change, "path"), **table(change, "kind")} for change in setting.changes]
    given: Table = {"changes": changes} | ({"grantRoot": root} if root else {})
    if _is_one_edit(setting) and not root:
        given = {"path": text(setting.changes[0], "path")}
    return _approval(
        setting,
        PATCH,
        ", ".join(paths) or "change files (codex did not list them)",
        given,
        changed or as_json(params, 2),
        is_diff=bool(changed),
        why=" ".join(reason for reason in reasons if reason),
    )


def _is_one_edit(setting: CodexRequestContext) -> bool:
    """Whether the change only gives one file new content."""
    kinds = [text(change, "kind", "type") for change in setting.changes]
    return kinds in (["add"], ["update"]) and not text(setting.changes[0], "kind", "move_path")


def permissions(params: Table, setting: CodexRequestContext) -> CodexRequest:
    """Build the request for more permissions until the turn ends."""
    wanted = table(params, "permissions")
    listed = _permissions(wanted)
    granted = {part: value for part, value in wanted.items() if value is not None}
    refused: Table = {"permissions": {}, "scope": "turn"}
    return _approval(
        setting,
        "request_permissions",
        "more permissions for this turn",
        {"permissions": granted},
        "\n".join(listed) or as_json(wanted, 2),
        why=text(params, "reason"),
        results=({"permissions": granted, "scope": "turn"}, refused, refused),
    )


def tool(params: Table, setting: CodexRequestContext) -> CodexRequest:
    """Build the request to use a tool of an MCP server; codex sends it as a form without fields."""
    server, meta = text(params, "serverName"), table(params, "_meta")
    name = ".".join(part for part in (server, text(meta, "tool_name")) if part)
    given = table(meta, "tool_params")
    described = text(meta, "tool_description")
    parts = [text(params, "message"), as_json(given, 2) if given else "", f"The tool: {described}" if described else ""]
    shown = "\n\n".join(part for part in parts if part)
    return _approval(setting, name, text(params, "message"), given, shown, results=elicited({}))


def url(params: Table, setting: CodexRequestContext) -> CodexRequest:
    """Build the request to open an address, for example to sign in, and to confirm it."""
    shown = f"{text(params, 'message')}\n\n{text(params, 'url')}"
    given = {"url": text(params, "url")}
    return _approval(
        setting,
        text(params, "serverName"),
        "open an address",
        given,
        shown,
        kind=RequestKind.AUTH,
        results=elicited(None),
    )


def elicited(content: Table | None) -> tuple[Table, Table, Table]:
    """Return the results that accept an MCP server's request with *content*, decline it, and cancel it."""
    accepted: Table = {"action": "accept", "content": content, "_meta": None}
    return (
        accepted,
        {**accepted, "action": "decline", "content": None},
        {**accepted, "action": "cancel", "content": None},
    )


def _approval(
    setting: CodexRequestContext,
    name: str,
    title: str,
    given: Table,
    shown: str,
    *,
    is_diff: bool = False,
    why: str = "",
    kind: RequestKind = RequestKind.PERMISSION,
    results: tuple[Table, Table, Table] = (ACCEPT, DECLINE, CANCEL),
) -> CodexRequest:
    allow, deny, cancel = results
    lines = title.strip().splitlines()
    request = Request(
        id=setting.request_id(),
        session=setting.session,
        kind=kind,
        tool=name,
        title=lines[0] if lines else name,
        input=given,
        shown=shown,
        is_diff=is_diff,
        choices=APPROVAL,
        why=why,
        asked_at=setting.now,
    )
    return CodexRequest(requests=(request,), allow=allow, deny=deny, cancel=cancel, ends_turn=cancel is CANCEL)


def _permissions(wanted: Table) -> list[str]:
    permissions = ["network access"] if at(wanted, "network", "enabled") else []
    entries = rows(wanted, "fileSystem", "entries")
    permissions += [f"{text(entry, 'access')} access to {_place(table(entry, 'path'))}" for entry in entries]
    if not entries:
        for access in ("read", "write"):
            permissions += [f"{access} access to {path}" for path in texts(wanted, "fileSystem", access)]
    return permissions


def _place(path: Table) -> str:
    return text(path, "path") or text(path, "pattern") or as_json(path, 2)
