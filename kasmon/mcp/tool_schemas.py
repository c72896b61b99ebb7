"""The tools as a client sees them: names, descriptions and schemas. Values only."""

from typing import Any, Final

import msgspec

from kasmon.model.sandbox.policy import INTERPRETERS

INSTRUCTIONS: Final = (
    "Runs code in an isolated sandbox on the user's machine. Pass `session` to keep variables, functions, folder and "
    "files for later calls: python, bash and node of one session share /workspace. Without it, "
    "every run gets a new sandbox, which is removed afterwards. There is no network unless the user allowed hosts."
)
SESSION: Final[dict[str, str | list[str]]] = {"type": "string", "description": "Session ID, as passed to run."}


class ToolSchema(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    description: str
    properties: dict[str, dict[str, str | list[str]]] = {}
    """Its arguments, each a string."""
    required: tuple[str, ...] = ()

    @property
    def schema(self) -> dict[str, Any]:
        """Its input, as JSON Schema."""
        schema: dict[str, Any] = {"type": "object", "properties": self.properties}
        return schema | {"required": list(self.required)} if self.required else schema

    def fault(self, given: dict[str, Any]) -> str:
        """Return the fault in *given* as its input, as a sentence; empty if there is none."""
        if strange := [name for name in given if name not in self.properties]:
            known = ", ".join(self.properties) or "nothing"
            return f"{self.name} has no argument {strange[0]!r}; its arguments are {known}."
        for name in self.required:
            if given.get(name) is None:
                return f"{self.name} needs {name!r}."
        for name, value in given.items():
            if value is not None and not isinstance(value, str):
                return f"{name!r} must be a string."
        return ""


RUN: Final = ToolSchema(
    name="run",
    description="Execute code in an isolated sandbox and return its stdout, stderr and exit_code.",
    properties={
        "code": {"type": "string", "description": "Code to execute (raw code, not interpreter invocations)"},
        "env": {"type": "string", "description": "Execution environment.", "enum": [*INTERPRETERS]},
        "session": {"type": "string", "description": "Session ID for persistent state. Omit for ephemeral."},
    },
    required=("code", "env"),
)
SESSIONS: Final = (
    ToolSchema(name="list_sessions", description="List your sessions with their state and what was lost."),
    ToolSchema(
        name="end_session",
        description="End a session, and delete its interpreters, files and checkpoints.",
        properties={"session": SESSION},
        required=("session",),
    ),
    ToolSchema(
        name="interrupt",
        description=(
            "Interrupt your runs in a session. Interpreter state is kept if the interpreter reacts. A run "
            "that has ended, or that is not yours, is not interrupted, and the result says so."
        ),
        properties={
            "session": SESSION,
            "env": {"type": "string", "description": "Only in this environment.", "enum": [*INTERPRETERS]},
            "run": {"type": "string", "description": "Only this run, by its id from list_sessions."},
        },
        required=("session",),
    ),
    ToolSchema(
        name="checkpoint",
        description="Create a checkpoint of a session: its files and the interpreter state that can be saved. "
        "Returns an id.",
        properties={"session": SESSION},
        required=("session",),
    ),
    ToolSchema(
        name="restore",
        description="Restore a checkpoint of a session, and report what could not be restored.",
        properties={
            "session": SESSION,
            "checkpoint": {"type": "string", "description": "The id returned by checkpoint."},
        },
        required=("session", "checkpoint"),
    ),
)
PLACE: Final = (
    ToolSchema(name="my_task", description="Get your task, wave and plan, and the path of the plan's notes."),
    ToolSchema(name="peers", description="List your peers in the wave: their tasks, states, branches and files."),
    ToolSchema(
        name="done",
        description="Report your task as done. A person or the plan's checks decide whether it is.",
        properties={"summary": {"type": "string", "description": "The result, in one line."}},
    ),
)
"""For an agent that is itself a kasmon session."""
