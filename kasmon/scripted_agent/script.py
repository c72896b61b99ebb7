"""Parser for the scripts of the scripted agent: one verb a line, parsed into steps. A script runs no command.

| line | the agent |
|---|---|
| `prompt TEXT` | first line only: shows TEXT as its prompt, instead of the script |
| `boot S` | takes S seconds to start, if launched with this script; ignored in a prompt |
| `say TEXT` / `think TEXT` | says or thinks it, word by word |
| `tool NAME [JSON] [=> OUTPUT]` | uses a tool; `!> OUTPUT` is a tool that failed |
| `ask COMMAND [&]` | asks to run it in Bash; with `&` it continues without waiting for the answer |
| `edit FILE` / `change FILE` | asks to edit the file, or edits it unasked: a diff in words |
| `question TEXT\\|A\\|B` / `choose TEXT\\|A\\|B` | asks for one label, or for several; `\\|...`: or for a text |
| `approve TEXT` / `login` | asks for approval of its plan, or for a person to sign in |
| `plan` | shows its to-do list |
| `notice TEXT` / `usage IN OUT [CONTEXT [LIMIT [COST]]]` | raises a notice; reports these totals |
| `slow S` / `limit [S]` | does nothing for S seconds; is limited for S seconds (without S: until the next prompt) |
| `window NAME PERCENT S` | reports that PERCENT of the limit NAME is used, which resets in S seconds |
| `fail TEXT` / `wait` | ends its turn, with or without an error; the next prompt continues with the rest |
| `hang` | never finishes the turn |
| `crash N` | ends with exit code N; by signal -N; or by a signal's name |
| `loop` | ends its turn and begins the script again |

Indented lines belong to the verb above them: more text (`say think approve`), output (`tool ask`), diff lines
`-old`, `+new`, ` same`, `@@ ... @@` (`edit change`), items `[x] done`, `[~] doing`, `[ ] open` (`plan`). Empty lines
and those that begin with `#` are ignored. A line that cannot be parsed becomes a `BadStep` at its position.
"""

import json
import re
import signal
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from kasmon.model.events import PlanItem
from kasmon.scripted_agent import steps

SCRIPTED: Final = "scripted"
"""The agent name for which prompts are parsed as scripts."""
LONGEST_S: Final = 1e7
"""The longest pause that a script may contain, in seconds."""
LARGEST: Final = 2**53
"""The largest count that a script may contain."""
HARMLESS: Final = frozenset({"SIGCHLD", "SIGCONT", "SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGWINCH"})
"""Signals that do not end a process."""
ScriptLine: TypeAlias = tuple[int, str]
"""A line's number and its text."""


class _UnreadableError(Exception):
    """The reason why a line cannot be parsed, and `line` if that is not the verb's own line."""

    def __init__(self, why: str, line: int | None = None) -> None:
        self.why, self.line = why, line


def is_script(text: str) -> bool:
    """Return whether a line of *text* begins with a verb; any other text is ordinary conversation."""
    return any(row.split(None, 1)[0] in VERBS for _, row in _rows(text) if row[:1].strip())


def parse(text: str) -> steps.Script:
    """Parse *text* into steps, in order. Never raises: each line that cannot be parsed becomes a `BadStep`."""
    parsed: list[steps.AnyStep] = []
    rows = deque(_rows(text))
    while rows:
        number, row = rows.popleft()
        if row.strip() and not row.startswith("#"):
            takes_lines = row.split(None, 1)[0] in BODIES and row[0] not in " \t"
            body = _read_body(rows) if takes_lines else []
            parsed.append(_step(number, row, body, is_first=not parsed))
    return tuple(parsed)


def displayed_prompt(text: str) -> str:
    """Return the prompt to display for *text*: the text of its `prompt` line, if it is a script with one."""
    first = next(iter(parse(text)), None) if is_script(text) else None
    return first.text if isinstance(first, steps.TextStep) and first.verb == "prompt" else text


def boot_s(text: str) -> float:
    """Return how long an agent that is launched with *text* takes to start, in seconds."""
    script = parse(text) if is_script(text) else ()
    return sum(step.seconds or 0.0 for step in script if isinstance(step, steps.TimedStep) and step.verb == "boot")


def _rows(text: str) -> list[ScriptLine]:
    """Return the numbered lines of *text*, without common indentation and characters that cannot be encoded."""
    whole = text.encode("utf-8", "replace").decode("utf-8")
    lines = [line.removesuffix("\r") for line in whole.split("\n")]
    common = min((len(line) - len(line.lstrip(" ")) for line in lines if line.strip()), default=0)
    return [(number, line[common:] if line.strip() else "") for number, line in enumerate(lines, 1)]


def _read_body(rows: deque[ScriptLine]) -> list[ScriptLine]:
    """Remove the indented rows from the head of *rows* and return them without common indentation."""
    body: list[ScriptLine] = []
    while rows and (not rows[0][1].strip() or rows[0][1][0] in " \t"):
        body.append(rows.popleft())
    while body and not body[-1][1].strip():
        body.pop()
    common = min((len(row) - len(row.lstrip(" \t")) for _, row in body if row.strip()), default=0)
    return [(number, row[common:]) for number, row in body]


def _step(number: int, row: str, body: Sequence[ScriptLine], *, is_first: bool) -> steps.AnyStep:
    verb, *argument = row.rstrip().split(None, 1)
    try:
        if row[0] in " \t":
            raise _UnreadableError("an indented line follows no command")
        if verb not in VERBS:
            raise _UnreadableError(f"the command {verb!r} is unknown; use one of {', '.join(VERBS)}")
        if verb == "prompt" and not is_first:
            raise _UnreadableError("'prompt' is allowed only on the first line")
        return msgspec.structs.replace(VERBS[verb]("".join(argument), body), line=number)
    except _UnreadableError as wrong:
        return steps.BadStep(line=wrong.line or number, text=row, why=wrong.why)


def _text(argument: str, body: Sequence[ScriptLine]) -> str:
    text = _lines([argument] if argument else [], body)
    if not text.strip():
        raise _UnreadableError("it requires a text")
    return text


def _lines(first: Sequence[str], body: Sequence[ScriptLine]) -> str:
    return "\n".join([*first, *(line for _, line in body)])


def _tool(argument: str, body: Sequence[ScriptLine]) -> steps.ToolStep:
    match = re.match(r"[\w.:/-]+(?=\s|$)", argument)
    if match is None:
        raise _UnreadableError("it requires the tool's name first")
    rest = argument[match.end() :].strip()
    tool_input: dict[str, Any] = {}
    if rest.startswith("{"):
        try:
            tool_input, end = json.JSONDecoder().raw_decode(rest)
            msgspec.json.encode(tool_input)
        except (ValueError, OverflowError, RecursionError) as error:
            raise _UnreadableError(f"its input is not valid JSON: {error}") from error
        rest = rest[end:].strip()
    mark, first = rest[:2], rest[2:].strip()
    if rest and mark not in ("=>", "!>"):
        raise _UnreadableError("write its input as a JSON object after its name, then `=> output` or `!> error`")
    return steps.ToolStep(
        name=match[0], input=tool_input, ok=mark != "!>", output=_lines([first] if first else [], body)
    )


def _ask(argument: str, body: Sequence[ScriptLine]) -> steps.AskStep:
    command, joined = _split_joined(argument)
    if not command:
        raise _UnreadableError("it requires a command")
    return steps.AskStep(
        tool=steps.ToolStep(name="Bash", input={"command": command}, output=_lines([], body)), joined=joined
    )


def _edit(argument: str, body: Sequence[ScriptLine]) -> steps.AskStep:
    file, joined = _split_joined(argument)
    return steps.AskStep(tool=_change(file, body), joined=joined)


def _split_joined(argument: str) -> tuple[str, bool]:
    """Return *argument* without a final `&`, and whether it had one."""
    head = argument.removesuffix("&")
    return (head.rstrip(), True) if head != argument and head[-1:] in ("", " ") else (argument, False)


def _change(argument: str, body: Sequence[ScriptLine]) -> steps.ToolStep:
    if not argument:
        raise _UnreadableError("it requires a file")
    for number, line in body:
        if line and line[0] not in "-+ @":
            raise _UnreadableError("each line of a diff must start with `-`, `+`, a space or `@@`", number)
    rows = [line or " " for _, line in body]
    if not any(row[0] in "-+" for row in rows):
        raise _UnreadableError("it requires indented lines that start with `-` or `+`")
    if not rows[0].startswith("@@"):
        old, new = (sum(row[0] in f" {side}" for row in rows) for side in "-+")
        rows.insert(0, f"@@ -{min(old, 1)},{old} +{min(new, 1)},{new} @@")
    diff = "\n".join([f"--- a/{argument}", f"+++ b/{argument}", *rows]) + "\n"
    return steps.ToolStep(name="Edit", input={"file_path": argument, "diff": diff}, diff=diff)


def _question(argument: str, body: Sequence[ScriptLine]) -> steps.QuestionStep:
    text, *options = (part.strip() for part in argument.split("|"))
    if not text or not options or not all(options) or len(set(options)) < len(options):
        raise _UnreadableError("it requires a text and different labels: `TEXT|A|B`")
    labels = tuple(option for option in options if option != "...")
    return steps.QuestionStep(text=text, options=labels, free_text=len(labels) < len(options))


def _todo(argument: str, body: Sequence[ScriptLine]) -> steps.TodoStep:
    _refuse_argument(argument)
    marks: dict[str, Literal["open", "doing", "done"]] = {" ": "open", "~": "doing", "x": "done"}
    items = []
    for number, line in body:
        match = re.fullmatch(r"\s*\[([ ~x])\]\s+(\S.*)", line)
        if match is None:
            raise _UnreadableError("each item must be `[x] done`, `[~] doing` or `[ ] open`", number)
        items.append(PlanItem(text=match[2].rstrip(), state=marks[match[1]]))
    if not items:
        raise _UnreadableError("it requires indented items: `[x] done`, `[~] doing`, `[ ] open`")
    return steps.TodoStep(items=tuple(items))


def _usage(argument: str, body: Sequence[ScriptLine]) -> steps.UsageStep:
    counts = argument.split()
    if not 2 <= len(counts) <= 5:
        raise _UnreadableError("it requires IN OUT [CONTEXT [LIMIT [COST]]]")
    numbers = [int(_number(count, LARGEST)) for count in counts[:4]]
    cost = _number(counts[4], LARGEST) if len(counts) == 5 else None
    return steps.UsageStep(
        input=numbers[0], output=numbers[1], context=sum(numbers[2:3]), limit=sum(numbers[3:4]), cost_usd=cost
    )


def _window(argument: str, body: Sequence[ScriptLine]) -> steps.WindowStep:
    parts = argument.split()
    if len(parts) != 3:
        raise _UnreadableError("it requires NAME PERCENT SECONDS")
    return steps.WindowStep(name=parts[0], used=_number(parts[1], 100) / 100, seconds=_number(parts[2], LONGEST_S))


def _number(text: str, most: float) -> float:
    try:
        number = float(text)
    except ValueError:
        raise _UnreadableError(f"{text!r} is not a number") from None
    if not 0 <= number <= most:
        raise _UnreadableError(f"{text!r} is not between 0 and {most:g}")
    return number


def _crash(argument: str, body: Sequence[ScriptLine]) -> steps.CrashStep:
    if argument.startswith(("SIG", "-")):
        try:
            name = signal.Signals[argument] if argument[0] == "S" else signal.Signals(-int(argument))
        except (KeyError, ValueError):
            raise _UnreadableError(f"the signal {argument!r} is unknown") from None
        if name.name in HARMLESS:
            raise _UnreadableError(f"{name.name} does not end a process")
        return steps.CrashStep(signal=name.name)
    code = _number(argument or "1", 255)
    if code != int(code):
        raise _UnreadableError(f"{argument!r} is not an exit code")
    return steps.CrashStep(code=int(code))


def _refuse_argument(argument: str) -> None:
    if argument:
        raise _UnreadableError("it takes no argument")


def _build_text_reader(verb: Literal["prompt", "approve", "notice", "fail"]) -> "StepReader":
    return lambda argument, body: steps.TextStep(verb=verb, text=_text(argument, body))


def _build_time_reader(verb: Literal["boot", "slow", "limit"]) -> "StepReader":
    def read(argument: str, body: Sequence[ScriptLine]) -> steps.TimedStep:
        is_open = verb == "limit" and not argument
        return steps.TimedStep(verb=verb, seconds=None if is_open else _number(argument, LONGEST_S))

    return read


def _build_verb_reader(verb: Literal["login", "wait", "hang", "loop"]) -> "StepReader":
    def read(argument: str, body: Sequence[ScriptLine]) -> steps.VerbStep:
        _refuse_argument(argument)
        return steps.VerbStep(verb=verb)

    return read


StepReader: TypeAlias = Callable[[str, Sequence[ScriptLine]], steps.AnyStep]
VERBS: Final[dict[str, StepReader]] = {
    "prompt": _build_text_reader("prompt"),
    "boot": _build_time_reader("boot"),
    "say": lambda argument, body: steps.SayStep(text=_text(argument, body)),
    "think": lambda argument, body: steps.SayStep(text=_text(argument, body), thinking=True),
    "tool": _tool,
    "ask": _ask,
    "edit": _edit,
    "change": _change,
    "question": _question,
    "choose": lambda argument, body: msgspec.structs.replace(_question(argument, body), many=True),
    "approve": _build_text_reader("approve"),
    "login": _build_verb_reader("login"),
    "plan": _todo,
    "notice": _build_text_reader("notice"),
    "usage": _usage,
    "slow": _build_time_reader("slow"),
    "limit": _build_time_reader("limit"),
    "window": _window,
    "fail": _build_text_reader("fail"),
    "crash": _crash,
    "hang": _build_verb_reader("hang"),
    "wait": _build_verb_reader("wait"),
    "loop": _build_verb_reader("loop"),
}
BODIES: Final = frozenset({"prompt", "say", "think", "tool", "ask", "edit", "change", "approve", "plan"})
"""The verbs that take indented lines."""
