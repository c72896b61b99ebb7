"""The tools, as a client sees them: names, words and schemas. Values only."""

from typing import Any, Final

import msgspec

INSTRUCTIONS: Final = (
    "Runs code in an isolated sandbox on the user's machine. Pass `session` to keep variables, functions, folder and "
    "files for later calls: python, bash and node of one session share /workspace. Without it every run has a sandbox "
    "of its own, which is gone afterwards. There is no network unless the user allowed hosts."
)
SESSION: Final = {"type": "string", "description": "Session ID, as it was given to run."}


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """One tool."""

    name: str
    description: str
    properties: dict[str, dict[str, str]] = {}
    """What it takes, each a string."""
    required: tuple[str, ...] = ()

    @property
    def schema(self) -> dict[str, Any]:
        """Its input, as JSON Schema."""
        schema: dict[str, Any] = {"type": "object", "properties": self.properties}
        return schema | {"required": list(self.required)} if self.required else schema

    def fault(self, given: dict[str, Any]) -> str:
        """What is wrong with *given* as its input, as a sentence; empty where nothing is."""
        if strange := [name for name in given if name not in self.properties]:
            known = ", ".join(self.properties) or "nothing"
            return f"{self.name} takes no {strange[0]!r}, it takes {known}."
        for name in self.required:
            if given.get(name) is None:
                return f"{self.name} needs {name!r}."
        for name, value in given.items():
            if value is not None and not isinstance(value, str):
                return f"{name!r} has to be a text."
        return ""


RUN: Final = Tool(
    name="run",
    description="Execute code in an isolated sandbox and return its stdout, stderr and exit_code.",
    properties={
        "code": {"type": "string", "description": "Code to execute (raw code, not interpreter invocations)"},
        "env": {"type": "string", "description": "Execution environment: python, node, bash, or custom"},
        "session": {"type": "string", "description": "Session ID for persistent state. Omit for ephemeral."},
    },
    required=("code", "env"),
)
SESSIONS: Final = (
    Tool(name="list_sessions", description="List your sessions: which there are, how they are, what was lost of them."),
    Tool(
        name="end_session",
        description="End a session: its interpreters, its files and its checkpoints are gone then.",
        properties={"session": SESSION},
        required=("session",),
    ),
    Tool(
        name="interrupt",
        description=(
            "Interrupt what you run in a session. What its interpreters hold is kept where they react. A run that is "
            "over, or another's, is not touched, and that is said."
        ),
        properties={
            "session": SESSION,
            "env": {"type": "string", "description": "Only in this environment: python, node or bash."},
            "run": {"type": "string", "description": "Only this run, by its id, which list_sessions tells."},
        },
        required=("session",),
    ),
    Tool(
        name="checkpoint",
        description="Keep a session as it is now: its files, and of its interpreters what can be kept. Returns an id.",
        properties={"session": SESSION},
        required=("session",),
    ),
    Tool(
        name="restore",
        description="Put a session back to a checkpoint, and say what could not be restored.",
        properties={
            "session": SESSION,
            "checkpoint": {"type": "string", "description": "The id that checkpoint returned."},
        },
        required=("session", "checkpoint"),
    ),
)
PLACE: Final = (
    Tool(name="my_task", description="Which task, wave and plan you work on, and where the plan's notes are."),
    Tool(name="peers", description="Who works beside you in your wave: their tasks, states, branches and files."),
    Tool(
        name="done",
        description="Say that your task is done. A person, or the plan's checks, decides whether it is.",
        properties={"summary": {"type": "string", "description": "What came of it, in a line."}},
    ),
)
"""For an agent that is a session of kasmon's itself."""
