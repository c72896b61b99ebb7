"""Standing rules: what a person allowed or denied for the future, and `decide`, which finds the rule for a request.

A rule covers exactly one of four things, and its text describes all of it:

| match | covers | text |
|---|---|---|
| words | every plain command that begins with these words | `Bash(git push:*)` |
| command | this command and no other | `Bash(rm -rf build)` |
| path | every edit of this file by this tool | `Edit(src/app.py)` |
| input | this tool with exactly this input | `WebFetch({"url":"https://example.org/"})` |

There is no catch-all: a rule always names its tool and what it is used on. A rule that denies wins.
"""

import re
from collections.abc import Iterable
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Final, Literal, NamedTuple

import msgspec

from kasmon.model.permission import Request, RequestKind

Scope = Literal["session", "plan", "project"]
Match = Literal["words", "command", "path", "input"]

PLAIN: Final = re.compile(r"[\w@%+=:,./ -]+")
"""A command without quotes, expansions or operators: it runs exactly as written."""
SUBCOMMAND: Final = re.compile(r"[a-z][a-z0-9-]*")
MANY_IN_ONE: Final = frozenset(
    {"bun", "cargo", "docker", "gh", "git", "go", "kubectl", "npm", "pip", "pnpm", "poetry", "uv", "yarn"}
)
"""Programs whose second word determines what they do, so that the first two together are worth a rule."""
RUN_ANYTHING: Final = frozenset(
    {"alias", "bisect", "config", "create", "difftool", "dlx", "exec", "filter-branch", "init", "mergetool", "rebase"}
    | {"run", "submodule", "x"}
)
"""Second words after which anything may be run: such a command gets a rule for itself alone."""
HARMLESS: Final = frozenset({"description", "reason", "timeout", "timeout_ms", "title"})
"""Fields of a command's input that do not change what is run."""
FOLDERS: Final = ("cwd", "workdir", "directory")
PATHS: Final = ("file_path", "filePath", "filepath", "path", "notebook_path")
LONGEST: Final = 500
"""A rule longer than this, in characters, is not offered: people would not read it."""


class RuleEffect(StrEnum):
    ALLOW = "allow"
    DENY = "deny"


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A decision of a person for all requests of a kind."""

    id: str
    effect: RuleEffect
    scope: Scope
    of: str
    """The session's id, the plan's id, or the project's folder as a full path."""
    tool: str
    match: Match
    text: str
    made_at: float = 0.0
    """Its creation time, in seconds since the epoch."""
    request: str = ""

    @property
    def words(self) -> str:
        """The text that describes what it covers."""
        return describe(self.tool, self.match, self.text)


class RequestSource(NamedTuple):
    """Where a request comes from: the ids that the rules of its session, plan and project refer to."""

    session: str
    plan: str | None
    project: str
    workdir: str

    def of(self, scope: Scope) -> str | None:
        """Return the id that rules of *scope* refer to; None if there is none."""
        return {"session": self.session, "plan": self.plan, "project": self.project}[scope]


class RuleDraft(NamedTuple):
    """The content of a rule for one request."""

    match: Match
    text: str


def draft_rule(request: Request, workdir: str) -> RuleDraft | None:
    """Return a standing rule for requests like this one; None if none is exact, or short enough to be read."""
    if request.kind is not RequestKind.PERMISSION or not request.tool:
        return None
    found = _command(request, workdir) or _path(request) or _input(request)
    if found is None or len(found.text) > LONGEST or "\n" in found.text or found.text.endswith(":*"):
        return None
    return found


def describe(tool: str, match: Match, text: str) -> str:
    return f"{tool}({text}:*)" if match == "words" else f"{tool}({text})"


def covers(rule: Rule, request: Request, workdir: str) -> bool:
    """Whether *rule* covers *request*, made in *workdir*."""
    if rule.tool != request.tool or request.kind is not RequestKind.PERMISSION:
        return False
    command = _command_text(request, workdir)
    match rule.match:
        case "command":
            return command == rule.text
        case "words":
            text = command or ""
            return PLAIN.fullmatch(text) is not None and (text == rule.text or text.startswith(f"{rule.text} "))
        case "path" | "input":
            return draft_rule(request, workdir) == RuleDraft(rule.match, rule.text)


def decide(request: Request, rules: Iterable[Rule], where: RequestSource) -> Rule | None:
    """Return the rule that answers *request*; None if a person has to. A denying rule wins over an allowing one."""
    if request.kind is not RequestKind.PERMISSION:
        return None
    speaking = [
        rule for rule in rules if rule.of and rule.of == where.of(rule.scope) and covers(rule, request, where.workdir)
    ]
    return next((rule for rule in speaking if rule.effect is RuleEffect.DENY), next(iter(speaking), None))


def _command(request: Request, workdir: str) -> RuleDraft | None:
    command = _command_text(request, workdir)
    if command is None:
        return None
    first, second = (*command.split(" "), "", "")[:2]
    if (
        PLAIN.fullmatch(command)
        and first in MANY_IN_ONE
        and SUBCOMMAND.fullmatch(second)
        and second not in RUN_ANYTHING
    ):
        return RuleDraft("words", f"{first} {second}")
    return RuleDraft("command", command)


def _command_text(request: Request, workdir: str) -> str | None:
    """Return the command of *request*; None if it has none, or its input contains more than that."""
    rest = dict(request.input)
    command = rest.pop("command", None) or rest.pop("argv", None)
    if isinstance(command, list) and command and all(isinstance(word, str) for word in command):
        import shlex  # only here: the dashboard's first frame does not need it

        command = shlex.join(command)
    if not isinstance(command, str) or not command.strip():
        return None
    for name in FOLDERS:
        if name in rest and rest.pop(name) != workdir:
            return None
    return command.strip() if rest.keys() <= HARMLESS else None


def _path(request: Request) -> RuleDraft | None:
    paths = [request.input[name] for name in PATHS if isinstance(request.input.get(name), str)]
    if not request.is_diff or len(paths) != 1 or ".." in PurePosixPath(paths[0]).parts:
        return None
    return RuleDraft("path", paths[0])


def _input(request: Request) -> RuleDraft | None:
    if request.is_diff or not request.input:
        return None
    try:
        return RuleDraft("input", msgspec.json.encode(request.input, order="deterministic").decode())
    except (TypeError, ValueError, RecursionError):
        return None
