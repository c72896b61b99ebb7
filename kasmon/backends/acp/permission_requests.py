"""Convert an agent's permission request to kasmon's, and the answer to one of the agent's options. Pure.

An option of the kind `allow_always` or `reject_always` is a rule that the agent would store. kasmon has its own rules,
which can be listed and revoked, and never chooses one of those. What the agent receives:

| decision | sent to the agent |
|---|---|
| allow | its only option of the kind `allow_once`; without one, allow is not offered, and `why` explains it |
| deny | its option of the kind `reject_once`; without one, `cancelled`, which allows nothing either |
| cancel | `cancelled`, and the turn ends |
| choose | if it has several options of a kind "once": the one of that name |

The protocol has no field for the reason of a denial.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from acp.schema import PermissionOption, RequestPermissionRequest
from pydantic import ValidationError

from kasmon.agents.profile import Quirk
from kasmon.backends.acp.content import diff_of, edits, texts
from kasmon.backends.acp.tool_calls import AcpToolCall, AcpToolCalls
from kasmon.backends.common.diff import shorten_path
from kasmon.backends.common.json_access import as_json, text
from kasmon.model.commands import Answer
from kasmon.model.permission import NO_PLAN, Decision, Request, RequestId, RequestKind, SessionId, seal

CANCELLED: Final[dict[str, Any]] = {"outcome": {"outcome": "cancelled"}}
ONLY_ALWAYS: Final = "The agent offers no single permission here, only lasting ones ({}), which kasmon does not give."
NO_WAY_TO_ALLOW: Final = "The agent offers no option to allow this."
COMMAND_KIND: Final = "execute"
PLAN_KIND: Final = "switch_mode"
WORDS: Final = frozenset({"description", "cwd"})
"""What an agent may add to a command while its request is open; `cwd` must be the folder that it works in anyway."""
PATHS: Final = ("file_path", "filePath", "filepath", "path", "notebook_path")


class AcpPermission(NamedTuple):
    """One permission request: as kasmon shows it, and what the answers mean to the agent."""

    request: Request
    call: str
    options: Mapping[str, str]
    """Label -> the agent's id of that option; for CHOOSE."""
    allow: str | None
    """The id of the option to allow it this once."""
    deny: str | None

    def outcome(self, answer: Answer) -> dict[str, Any]:
        chosen = {
            Decision.ALLOW: self.allow,
            Decision.DENY: self.deny,
            Decision.CHOOSE: self.options.get(answer.labels[0]) if answer.labels else None,
        }.get(answer.decision)
        return CANCELLED if chosen is None else {"outcome": {"outcome": "selected", "optionId": chosen}}

    def allows(self, answer: Answer) -> bool:
        return answer.decision is Decision.ALLOW or (
            answer.decision is Decision.CHOOSE and self.options.get(answer.labels[0]) != self.deny
        )


def understood(params: Any) -> RequestPermissionRequest:
    """Return the agent's request; options of an unknown kind are left out.

    Raises:
        ValidationError: if it is invalid.
    """
    try:
        return RequestPermissionRequest.model_validate(params)
    except ValidationError:
        if not isinstance(params, dict) or not isinstance(params.get("options"), list):
            raise
        return RequestPermissionRequest.model_validate(
            {**params, "options": [option for option in params["options"] if _is_option(option)]}
        )


def ask(
    asked: RequestPermissionRequest,
    tool: AcpToolCall,
    tools: AcpToolCalls,
    *,
    number: RequestId,
    session: SessionId,
    workdir: str,
) -> AcpPermission:
    """Return the request *number* about *tool*, which already includes *asked* and later updates."""
    allowing, denying = _of_kind(asked.options, "allow_once"), _of_kind(asked.options, "reject_once")
    labels = _labels([*allowing, *denying])
    is_choice = len(allowing) > 1
    contents = tool.contents
    diff = diff_of(edits(contents), workdir)
    data = _input(tool, tools.habits, workdir)
    kind = RequestKind.QUESTION if is_choice else RequestKind.PERMISSION
    kind = RequestKind.PLAN if tool.kind == PLAN_KIND else kind
    text = texts(contents)
    shown, why = (diff, text) if diff else _format_request(tool, data, text, kind, workdir)
    if not allowing:
        lasting = ", ".join(f"“{option.name}”" for option in _of_kind(asked.options, "allow_always"))
        why = "\n".join(filter(None, (why, ONLY_ALWAYS.format(lasting) if lasting else NO_WAY_TO_ALLOW)))
    accepting = (Decision.CHOOSE,) if is_choice else (Decision.ALLOW,) if allowing else ()
    request = Request(
        id=number,
        session=session,
        kind=kind,
        tool=tools.name(tool),
        title=tools.title(tool),
        input=data,
        shown=shown,
        is_diff=bool(diff),
        choices=(*accepting, Decision.DENY, Decision.CANCEL),
        options=tuple(labels) if is_choice else (),
        why=why,
    )
    return AcpPermission(
        request=seal(request),
        call=tool.call,
        options=labels,
        allow=allowing[0].option_id if len(allowing) == 1 else None,
        deny=denying[0].option_id if denying else None,
    )


def only_explains(after: Request, before: Request, tool: AcpToolCall, workdir: str) -> bool:
    """Whether *after* requests the same command as *before*, and only adds the agent's description of it.

    opencode requests a command first and describes it afterwards, while the user may already be reading.
    """
    if tool.kind != COMMAND_KIND or not isinstance(before.input.get("command"), str):
        return False
    added = {name: value for name, value in after.input.items() if name not in before.input}
    kept = {name: value for name, value in after.input.items() if name in before.input}
    same = seal(msgspec.structs.replace(after, input=before.input, why=before.why)).digest == before.digest
    is_told_there = added.keys() <= WORDS and added.get("cwd", workdir) == workdir
    return same and kept == before.input and is_told_there and before.why in ("", after.why)


def _of_kind(options: Sequence[PermissionOption], kind: str) -> list[PermissionOption]:
    return [option for option in options if option.kind == kind]


def _labels(options: Sequence[PermissionOption]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for number, option in enumerate(options, 1):
        labels[option.name if option.name not in labels else f"{option.name} ({number})"] = option.option_id
    return labels


def _is_option(option: object) -> bool:
    try:
        PermissionOption.model_validate(option)
    except ValidationError:
        return False
    return True


def _input(tool: AcpToolCall, habits: frozenset[Quirk], workdir: str) -> dict[str, Any]:
    """Return the tool's input as the agent sent it last; without any, what the agent displays instead.

    Rules match it, so it never omits anything that is shown.
    """
    paths = sorted({edit.path for edit in edits(tool.contents)})
    raw = tool.input
    if raw and len(paths) > 1:
        return {"paths": paths, "input": raw}
    if isinstance(raw, dict) and raw:
        return raw if all(_is_of(raw, path, workdir) for path in paths) else {"paths": paths, "input": raw}
    if raw:
        return {"input": raw}
    if paths:
        return {"path": paths[0]} if len(paths) == 1 else {"paths": paths}
    text = texts(tool.contents)
    if tool.kind == COMMAND_KIND and Quirk.COMMAND_AS_TITLE in habits:
        return {"command": tool.title, **_surroundings(text, workdir)}
    return {"title": tool.title, **({"text": text} if text else {})}


def _is_of(raw: Mapping[str, Any], path: str, workdir: str) -> bool:
    """Whether the paths that *raw* names, if any, are that of the shown diff."""
    named = [value for name in PATHS if isinstance(value := raw.get(name), str)]
    return all(shorten_path(value, workdir) == shorten_path(path, workdir) for value in named)


def _surroundings(text: str, workdir: str) -> dict[str, Any]:
    """Parse gemini's description of a command: `[current working directory D] (description) [background]`."""
    folder_line = f"[current working directory {workdir}]"
    rest = text.removeprefix(folder_line).strip()
    if text.startswith(folder_line) and "[background]" not in rest:
        return {"cwd": workdir, **({"description": rest} if rest else {})}
    return {"text": text} if text else {}


def _format_request(
    tool: AcpToolCall, data: Mapping[str, Any], given_text: str, kind: RequestKind, workdir: str
) -> tuple[str, str]:
    """Return the whole request as text, and the agent's own reason."""
    command = data.get("command")
    if tool.kind == COMMAND_KIND and isinstance(command, str):
        fields = {"command": command, "description": data.get("description"), "cwd": workdir, "text": given_text}
        rest = {name: value for name, value in data.items() if name not in fields or value != fields[name]}
        return "\n\n".join([command, *([as_json(rest, 2)] if rest else [])]), given_text or text(data, "description")
    if kind is RequestKind.PLAN and given_text:
        return given_text, ""
    details = as_json(data, 2) if set(data) - {"title", "text"} else ""
    parts = (
        NO_PLAN if kind is RequestKind.PLAN else "",
        tool.title,
        given_text if given_text not in tool.title else "",
        details,
    )
    return "\n\n".join(part for part in parts if part), ""
