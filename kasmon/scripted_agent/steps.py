"""The steps of a script: the actions of a scripted agent, in order."""

from typing import Any, Final, Literal, TypeAlias

import msgspec

from kasmon.model.events import PlanItem

NAMING: Final = ("command", "file_path", "path", "pattern", "query", "url")
"""The keys of a tool's input that name its subject."""


class ScriptStep(msgspec.Struct, frozen=True, kw_only=True):
    line: int = 0
    """Its line number in the script, from 1."""


class TextStep(ScriptStep, frozen=True, kw_only=True):
    """The displayed prompt of this script, a plan to approve, a notice, or the error that ends the turn."""

    verb: Literal["prompt", "approve", "notice", "fail"]
    text: str


class TimedStep(ScriptStep, frozen=True, kw_only=True):
    """The agent takes so long to start with this script, does nothing, or is rate-limited.

    Without *seconds* it is limited until the next prompt, and its turn ends: until the last reported window resets.
    """

    verb: Literal["boot", "slow", "limit"]
    seconds: float | None


class VerbStep(ScriptStep, frozen=True, kw_only=True):
    """A verb without arguments; at `login` the agent waits for a person to sign in."""

    verb: Literal["login", "wait", "hang", "loop"]


class SayStep(ScriptStep, frozen=True, kw_only=True):
    """The agent says *text*, or thinks it."""

    text: str
    thinking: bool = False


class ToolStep(ScriptStep, frozen=True, kw_only=True):
    name: str
    input: dict[str, Any] = {}
    ok: bool = True
    output: str = ""
    diff: str = ""

    @property
    def title(self) -> str:
        """The tool's subject in one line: its command, file or pattern; else its first text."""
        texts = {key: value for key, value in self.input.items() if isinstance(value, str)}
        chosen = next((texts[key] for key in NAMING if key in texts), next(iter(texts.values()), ""))
        return chosen.split("\n", 1)[0]


class AskStep(ScriptStep, frozen=True, kw_only=True):
    """The agent asks for permission to use `tool`; with `joined` it continues, so several requests can be open."""

    tool: ToolStep
    joined: bool = False


class QuestionStep(ScriptStep, frozen=True, kw_only=True):
    """The agent asks for one of *options*; *many*: for any number of them; *free_text*: or for another text."""

    text: str
    options: tuple[str, ...]
    many: bool = False
    free_text: bool = False


class TodoStep(ScriptStep, frozen=True, kw_only=True):
    """The agent sets its to-do list."""

    items: tuple[PlanItem, ...]


class UsageStep(ScriptStep, frozen=True, kw_only=True):
    """The agent reports its totals for the session: tokens, tokens in its context, and the context limit."""

    input: int
    output: int
    context: int = 0
    limit: int = 0
    cost_usd: float | None = None


class WindowStep(ScriptStep, frozen=True, kw_only=True):
    """The agent reports the used share of a limit of its account, and in how many seconds that resets."""

    name: str
    used: float
    seconds: float


class CrashStep(ScriptStep, frozen=True, kw_only=True):
    """The agent's process ends at once, with an exit code or by a signal."""

    code: int | None = None
    signal: str | None = None


class BadStep(ScriptStep, frozen=True, kw_only=True):
    """A line that cannot be parsed, and the reason."""

    text: str
    why: str


AnyStep: TypeAlias = (
    AskStep
    | BadStep
    | CrashStep
    | QuestionStep
    | SayStep
    | TextStep
    | TimedStep
    | TodoStep
    | ToolStep
    | UsageStep
    | VerbStep
    | WindowStep
)
Script: TypeAlias = tuple[AnyStep, ...]
