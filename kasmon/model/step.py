"""The steps of a script: what a scripted agent does, one after the other."""

from typing import Any, Final, Literal, TypeAlias

import msgspec

from kasmon.model.event import PlanItem

NAMING: Final = ("command", "file_path", "path", "pattern", "query", "url")
"""The members of a tool's input that say what it is used on."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a script."""

    line: int = 0
    """Where it stands in its script, counted from 1."""


class Shown(Step, frozen=True, kw_only=True):
    """The prompt that people are shown for this script."""

    text: str


class Boot(Step, frozen=True, kw_only=True):
    """How long the agent takes to start, where its launch has this script."""

    seconds: float


class Say(Step, frozen=True, kw_only=True):
    """The agent says *text*, or thinks it."""

    text: str
    thinking: bool = False


class Tool(Step, frozen=True, kw_only=True):
    """The agent uses a tool."""

    name: str
    input: dict[str, Any] = {}
    ok: bool = True
    output: str = ""
    diff: str = ""

    @property
    def title(self) -> str:
        """What it is used on, in one line: its command, file or pattern; else its first text."""
        texts = {key: value for key, value in self.input.items() if isinstance(value, str)}
        chosen = next((texts[key] for key in NAMING if key in texts), next(iter(texts.values()), ""))
        return chosen.split("\n", 1)[0]


class Ask(Step, frozen=True, kw_only=True):
    """A permission to use `tool`; joined ones are open together."""

    tool: Tool
    joined: bool = False


class Question(Step, frozen=True, kw_only=True):
    """The agent asks which of *options*; *many*: any number of them may be chosen."""

    text: str
    options: tuple[str, ...]
    many: bool = False


class Approve(Step, frozen=True, kw_only=True):
    """The agent shows a plan and waits for a yes to it."""

    text: str


class Login(Step, frozen=True, kw_only=True):
    """The agent waits for somebody to log in."""


class ToDo(Step, frozen=True, kw_only=True):
    """The agent's to-do list is this now."""

    items: tuple[PlanItem, ...]


class Notice(Step, frozen=True, kw_only=True):
    """The agent says something that people should know."""

    text: str


class Usage(Step, frozen=True, kw_only=True):
    """What it used, as totals of the session: tokens, those in its context now, and how many fit there."""

    input: int
    output: int
    context: int = 0
    limit: int = 0
    cost_usd: float | None = None


class Slow(Step, frozen=True, kw_only=True):
    """It takes *seconds* before it goes on."""

    seconds: float


class Limit(Step, frozen=True, kw_only=True):
    """Its provider takes no more for *seconds*; with None its turn ends there, limited until the next prompt."""

    seconds: float | None


class Fail(Step, frozen=True, kw_only=True):
    """The turn ends with the error *text*."""

    text: str


class Crash(Step, frozen=True, kw_only=True):
    """Its process ends at once, by an exit code or a signal."""

    code: int | None = None
    signal: str | None = None


class Word(Step, frozen=True, kw_only=True):
    """A verb that says all there is."""

    verb: Literal["wait", "hang", "loop"]


class Bad(Step, frozen=True, kw_only=True):
    """A line that cannot be read, and why."""

    text: str
    why: str


AnyStep: TypeAlias = (
    Shown
    | Boot
    | Say
    | Tool
    | Ask
    | Question
    | Approve
    | Login
    | ToDo
    | Notice
    | Usage
    | Slow
    | Limit
    | Fail
    | Crash
    | Word
    | Bad
)
Script: TypeAlias = tuple[AnyStep, ...]
