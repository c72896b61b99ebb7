"""The steps of a script: what a scripted agent does, one after the other."""

from typing import Any, Final, Literal, TypeAlias

import msgspec

from kasmon.model.events import PlanItem

NAMING: Final = ("command", "file_path", "path", "pattern", "query", "url")
"""The members of a tool's input that say what it is used on."""


class ScriptStep(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a script."""

    line: int = 0
    """Where it stands in its script, counted from 1."""


class ShownStep(ScriptStep, frozen=True, kw_only=True):
    """The prompt that people are shown for this script."""

    text: str


class BootStep(ScriptStep, frozen=True, kw_only=True):
    """How long the agent takes to start, where its launch has this script."""

    seconds: float


class SayStep(ScriptStep, frozen=True, kw_only=True):
    """The agent says *text*, or thinks it."""

    text: str
    thinking: bool = False


class ToolStep(ScriptStep, frozen=True, kw_only=True):
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


class AskStep(ScriptStep, frozen=True, kw_only=True):
    """A permission to use `tool`; joined ones are open together."""

    tool: ToolStep
    joined: bool = False


class QuestionStep(ScriptStep, frozen=True, kw_only=True):
    """The agent asks which of *options*; *many*: any number of them may be chosen."""

    text: str
    options: tuple[str, ...]
    many: bool = False


class ApproveStep(ScriptStep, frozen=True, kw_only=True):
    """The agent shows a plan and waits for a yes to it."""

    text: str


class LoginStep(ScriptStep, frozen=True, kw_only=True):
    """The agent waits for somebody to log in."""


class TodoStep(ScriptStep, frozen=True, kw_only=True):
    """The agent's to-do list is this now."""

    items: tuple[PlanItem, ...]


class NoticeStep(ScriptStep, frozen=True, kw_only=True):
    """The agent says something that people should know."""

    text: str


class UsageStep(ScriptStep, frozen=True, kw_only=True):
    """What it used, as totals of the session: tokens, those in its context now, and how many fit there."""

    input: int
    output: int
    context: int = 0
    limit: int = 0
    cost_usd: float | None = None


class SlowStep(ScriptStep, frozen=True, kw_only=True):
    """It takes *seconds* before it goes on."""

    seconds: float


class LimitStep(ScriptStep, frozen=True, kw_only=True):
    """Its provider takes no more for *seconds*; with None its turn ends there, limited until the next prompt."""

    seconds: float | None


class FailStep(ScriptStep, frozen=True, kw_only=True):
    """The turn ends with the error *text*."""

    text: str


class CrashStep(ScriptStep, frozen=True, kw_only=True):
    """Its process ends at once, by an exit code or a signal."""

    code: int | None = None
    signal: str | None = None


class VerbStep(ScriptStep, frozen=True, kw_only=True):
    """A verb that says all there is."""

    verb: Literal["wait", "hang", "loop"]


class BadStep(ScriptStep, frozen=True, kw_only=True):
    """A line that cannot be read, and why."""

    text: str
    why: str


AnyStep: TypeAlias = (
    ShownStep
    | BootStep
    | SayStep
    | ToolStep
    | AskStep
    | QuestionStep
    | ApproveStep
    | LoginStep
    | TodoStep
    | NoticeStep
    | UsageStep
    | SlowStep
    | LimitStep
    | FailStep
    | CrashStep
    | VerbStep
    | BadStep
)
Script: TypeAlias = tuple[AnyStep, ...]
