"""How each client calls what a script wants done: names and arguments of its tools."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.support.model_stub.model_request import Asked, example
from tests.support.model_stub.piece import Call, Spoken, text
from tests.support.model_stub.script import ScriptError, Step, nested, new_lines

Arguments = dict[str, Any] | str
Spelling = Callable[[list[str]], Arguments]
"""The arguments of a tool for the parts of a step's argument, which `|` separates."""

DESCRIPTION: Final = "Run a scripted command"


def _options(parts: list[str]) -> list[dict[str, str]]:
    return [{"label": option, "description": f"choose {option}"} for option in parts[1:] or ["yes", "no"]]


def _form(parts: list[str]) -> dict[str, Any]:
    """A form with one field."""
    field = {"type": "string", "enum": parts[1:] or ["yes", "no"]}
    return {"message": parts[0], "requestedSchema": {"properties": {"answer": field}, "required": ["answer"]}}


def _question(parts: list[str], **more: object) -> dict[str, Any]:
    return {"questions": [{"question": parts[0], "header": "Stub", "options": _options(parts), **more}]}


def _rest(parts: list[str], default: str = "") -> str:
    return "|".join(parts[1:]) or default


def _todos(parts: list[str]) -> list[dict[str, str]]:
    return [{"content": part, "status": "pending"} for part in parts]


def _added(parts: list[str]) -> str:
    lines = "\n".join(f"+{line}" for line in _rest(parts, "stub").rstrip("\n").split("\n"))
    return f"*** Begin Patch\n*** Add File: {parts[0]}\n{lines}\n*** End Patch"


def _updated(parts: list[str]) -> str:
    path, old, new = (*parts, "", "")[:3]
    return f"*** Begin Patch\n*** Update File: {path}\n@@\n-{old}\n+{new}\n*** End Patch"


def _changed(parts: list[str], path: str, old: str, new: str, **more: str) -> dict[str, str]:
    given = (*parts, "", "")
    return {path: given[0], old: given[1], new: given[2], **more}


def _agent(parts: list[str], kind: str) -> dict[str, str]:
    return {"description": "A scripted task", "prompt": nested("|".join(parts)), "subagent_type": kind}


# fmt: off
SPELLINGS: Final[dict[str, dict[str, Spelling]]] = {
    "bash": {
        "Bash": lambda p: {"command": "|".join(p), "description": DESCRIPTION},
        "exec_command": lambda p: {"cmd": "|".join(p)},
        "shell_command": lambda p: {"command": "|".join(p)},
        "shell": lambda p: {"command": ["bash", "-lc", "|".join(p)]},
        "bash": lambda p: {"command": "|".join(p), "description": DESCRIPTION},
        "run_shell_command": lambda p: {"command": "|".join(p), "description": DESCRIPTION},
        "run_terminal_command": lambda p: {"command": "|".join(p)},
        "run_commands": lambda p: {"commands": ["|".join(p)]},
        "Execute": lambda p: {"command": "|".join(p)},
    },
    "write": {
        "Write": lambda p: {"file_path": p[0], "content": _rest(p, "stub\n")},
        "apply_patch": _added,
        "write": lambda p: {"filePath": p[0], "content": _rest(p, "stub\n")},
        "write_file": lambda p: {"file_path": p[0], "content": _rest(p, "stub\n")},
        "Create": lambda p: {"file_path": p[0], "content": _rest(p, "stub\n")},
        "create": lambda p: {"file_path": p[0], "content": _rest(p, "stub\n")},
        "editor": lambda p: {"path": p[0], "new_text": _rest(p, "stub\n")},
    },
    "edit": {
        "Edit": lambda p: _changed(p, "file_path", "old_string", "new_string"),
        "apply_patch": _updated,
        "edit": lambda p: _changed(p, "filePath", "oldString", "newString"),
        "replace": lambda p: _changed(p, "file_path", "old_string", "new_string", instruction="A scripted edit"),
        "editor": lambda p: _changed(p, "path", "old_text", "new_text"),
        "search_replace": lambda p: _changed(p, "file_path", "old_string", "new_string"),
    },
    "read": {
        "Read": lambda p: {"file_path": p[0]},
        "read": lambda p: {"filePath": p[0]},
        "read_file": lambda p: {"file_path": p[0]},
        "view": lambda p: {"path": p[0]},
    },
    "ask": {
        "AskUserQuestion": lambda p: _question(p, multiSelect=False),
        "request_user_input": lambda p: _question(p, id="q1"),
        "question": _question,
        "ask_user": lambda p: {**_question(p, type="choice"), **_form(p)},  # gemini's, and copilot's
        "ask_question": lambda p: {"question": p[0], "options": p[1:] or ["yes", "no"]},
        "ask_user_question": lambda p: _question(p, multiSelect=False),
    },
    "plan": {
        "ExitPlanMode": lambda p: {"plan": "|".join(p)},
        "update_plan": lambda p: {"plan": [{"step": part, "status": "pending"} for part in p]},
        "plan_exit": lambda p: {},
        "exit_plan_mode": lambda p: {"plan_path": "|".join(p), "plan": "|".join(p)},
        "ExitSpecMode": lambda p: {"plan": "|".join(p)},
    },
    "todo": {
        "TodoWrite": lambda p: {"todos": [{**todo, "activeForm": todo["content"]} for todo in _todos(p)]},
        "update_plan": lambda p: {"plan": [{"step": part, "status": "pending"} for part in p]},
        "todowrite": lambda p: {"todos": [{**todo, "priority": "medium"} for todo in _todos(p)]},
        "write_todos": lambda p: {"todos": [{"description": part, "status": "pending"} for part in p]},
        "todo_write": lambda p: {"todos": [{"id": str(n), **todo} for n, todo in enumerate(_todos(p))]},
        "TodoList": lambda p: {"todos": _todos(p)},
        "TaskCreate": lambda p: {},  # one call for each
    },
    "task": {
        "Agent": lambda p: _agent(p, "general-purpose"),
        "Task": lambda p: _agent(p, "general-purpose"),
        "spawn_agent": lambda p: {"message": nested("|".join(p))},
        "task": lambda p: _agent(p, "general"),
        "invoke_agent": lambda p: {"agent_name": "generalist", "prompt": nested("|".join(p))},
    },
}
# fmt: on
"""For each verb the tools that do it, in the order in which they are preferred."""


def done(step: Step, asked: Asked) -> list[Spoken]:
    """The call that does *step*; where a client wants it otherwise, several, or a text.

    Raises:
        ScriptError: if the client offers no tool for it, or the step's JSON is wrong.
    """
    if step.verb == "tool":
        return [_verbatim(step)]
    if "exec" in asked.tools and "exec_command" not in asked.tools and step.verb in ("bash", "write", "edit"):
        return [Call("exec", _program(step))]
    parts = _parts(step)
    if asked.edits_in_text:
        return [text(_block(step.verb, parts))]
    name = next((name for name in SPELLINGS[step.verb] if name in asked.tools), None)
    if name is None and step.verb == "plan" and asked.api == "responses":
        return [text(f"<proposed_plan>\n{'|'.join(parts)}\n</proposed_plan>")]
    if name is None:
        raise ScriptError(f"the client offers no tool for {step.verb!r}; it has {', '.join(sorted(asked.tools))}")
    if name == "TaskCreate":
        return [Call(name, {"subject": part, "description": part}) for part in parts]
    if name == "ExitPlanMode" and asked.plan_file:
        return [Call("Write", {"file_path": asked.plan_file, "content": "|".join(parts)}), Call(name, {})]
    arguments = SPELLINGS[step.verb][name](parts)
    if isinstance(arguments, str) and not asked.tools[name].takes_text:
        return [Call(name, {"input": arguments})]
    return [Call(name, _fitted(arguments, asked.tools[name].schema))]


SAME: Final = (
    ("file_path", "path", "filePath"),
    ("content", "file_text", "title"),
    ("old_string", "old_str", "oldString", "before", "oldText"),
    ("new_string", "new_str", "newString", "after", "newText"),
)
"""Names that clients have for one thing."""


def _fitted(value: Any, schema: Mapping[str, Any]) -> Any:
    """*value* as *schema* has it: arguments by its names, those that it demands, and none that it does not know."""
    kind, known = schema.get("type"), schema.get("properties") or {}
    if isinstance(value, list):
        if kind == "string":
            return value[-1] if isinstance(value[-1], str) else json.dumps(value)
        return [_fitted(item, schema.get("items") or {}) for item in value]
    if not isinstance(value, dict) or not known:
        return value
    fitted: dict[str, Any] = {}
    for name, given in value.items():
        names = next((same for same in SAME if name in same), (name,))
        if found := next((each for each in (name, *names) if each in known), None):
            fitted[found] = _fitted(given, known[found])
    if "edits" in known:  # pi: several changes of one file
        fitted["edits"] = [_fitted(value, known["edits"].get("items") or {})]
    for name in schema.get("required") or ():
        if name not in fitted:
            wanted = known.get(name, {})
            fitted[name] = DESCRIPTION if wanted.get("type") == "string" and "enum" not in wanted else example(wanted)
    return fitted


def _block(verb: str, parts: list[str]) -> str:
    """What a client that has no tools reads in a text: an edit, or a command that it offers to run.

    Raises:
        ScriptError: for anything else.
    """
    path, old, new = parts[0], "", _rest(parts, "stub")
    if verb == "bash":
        return f"```bash\n{'|'.join(parts)}\n```"
    if verb == "edit":
        old, new = ([*parts[1:], "", ""])[:2]
    elif verb != "write":
        raise ScriptError(f"a client without tools cannot do {verb!r}")
    rows = [path, "```", "<<<<<<< SEARCH", *old.splitlines(), "=======", *new.splitlines(), ">>>>>>> REPLACE", "```"]
    return "\n".join(rows)


def _parts(step: Step) -> list[str]:
    """The parts of its argument; a command has its own way to write a new line."""
    return (step.argument if step.verb == "bash" else new_lines(step.argument)).split("|")


def _verbatim(step: Step) -> Call:
    name, _, arguments = step.argument.partition(" ")
    if not arguments.lstrip().startswith("{"):
        return Call(name, arguments or {})
    try:
        return Call(name, dict(json.loads(arguments)))
    except ValueError as error:
        raise ScriptError(f"the arguments of {name!r} are no JSON: {error}") from error


def _program(step: Step) -> str:
    """Codex's "code mode": one tool runs JavaScript, which calls the others."""
    parts = _parts(step)
    if step.verb == "bash":
        command = json.dumps(SPELLINGS["bash"]["exec_command"](parts))
        return f"const r = await tools.exec_command({command}); text(r.output ?? JSON.stringify(r));"
    return f"text(await tools.apply_patch({json.dumps(SPELLINGS[step.verb]['apply_patch'](parts))}));"
