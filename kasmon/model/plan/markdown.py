"""Plans in Markdown, in the format of kasmos: `## Wave N`, `### Task N: title`, preceded by the goal.

A task may have `**Check:**`, `**Agent:**`, `**Machine:**`, `**Labels:**`, `**Accounts:**`, `**Needs:**`,
`**Worktree:**` and `**Base:**`, each on its own line. The rest of its text is its prompt. A line that begins with
another bold field stays text and causes a warning.

Text in code fences belongs to the task. The forms are those of the predecessor (kasmos), so that its plans run here;
faults that kasmos accepts silently are reported.
"""

import re
from collections.abc import Collection
from typing import Final

import msgspec

from kasmon.model.plan.plan import Plan, PlanFault, Task
from kasmon.model.plan.toml import TASK_KEYS
from kasmon.model.plan.validation import PlanDraft

WAVE: Final = re.compile(r"## +Wave +(\d{1,9})\b")
TASK: Final = re.compile(r"### +Task +(\d{1,9}) *: *(.*)")
ALMOST: Final = re.compile(r"#{2,6} *(wave|task)\b|# *(wave|task) *\d", re.IGNORECASE)
"""A line meant as one of the plan's headings. A title may mention a task."""
OF_PLAN: Final = (
    "Goal", "Architecture", "Tech Stack", "Agent", "Machine", "Labels", "Accounts", "Spread", "Mode", "Worktree",
    "Base",
)  # fmt: skip
OF_TASK: Final = ("Check", "Agent", "Machine", "Labels", "Accounts", "Needs", "Worktree", "Base")
FIELD: Final = re.compile(rf"\*\*({'|'.join(OF_PLAN)}):?\*\*:? *(.*)")
BOLD: Final = re.compile(r" {0,3}((?:(?:[-*+]|\d{1,9}[.)]) +|> ?)*)\*\*([^*:]{1,40})(?::\*\*|\*\*:)[ \t]*(.*)")
"""A line that looks like a field: optional marks of a list or a quote, the name, the value."""
NEARLY_BOLD: Final = re.compile(r" {0,3}(?:(?:[-*+]|\d{1,9}[.)]) +|> ?)*\*\*([^*:]{1,40})(?:\*\*[ \t]+:|:[^*]+\*\*)")
"""A line that looks like a field with its colon or its value in the wrong place: the name."""
NO_FIELD: Final = f"is not a field of a task and is read as its text; the fields are {', '.join(OF_TASK)}"
WORKTREES: Final = ("shared", "own", "folder")
SPREADS: Final = ("least-used", "round-robin")
NAMES: Final = re.compile(r"\s*(?:[,;]|\band\b)\s*", re.IGNORECASE)
"""The separators between the tasks that a task needs, and between labels or accounts."""
FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
TITLE: Final = re.compile(r"# +(.+)")


def read(text: str, name: str) -> PlanDraft:
    """Parse the plan in *text* as far as possible, and report all its faults.

    Args:
        name: the plan's name if its first heading gives none.
    """
    return _Reader(name).read(text)


class _Reader:
    """A parser that passes over the lines once."""

    def __init__(self, name: str) -> None:
        self._plan = Plan(name=name)
        self._faults: list[PlanFault] = []
        self._tasks: list[Task] = []
        self._body: list[str] = []
        self._wave = 0
        self._warnings: list[PlanFault] = []
        self._fields: dict[str, int] = {}
        """The fields of the current task -> their lines."""
        self._waves: dict[int, int] = {}
        """Wave -> its line."""
        self._fence: tuple[str, int] | None = None
        """The opening fence of the current code block, and its line."""

    def read(self, text: str) -> PlanDraft:
        for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
            if self._is_in_fence(line, number) or not self._is_heading(line, number):
                self._say(line)
        self._end_task()
        if self._fence is not None:
            self._add_fault(self._fence[1], "the code block that starts here is not closed")
        if not self._waves and not self._faults:
            self._add_fault(0, "the heading `## Wave 1` is missing")
        self._check_order()
        plan = msgspec.structs.replace(self._plan, tasks=tuple(self._tasks), warnings=tuple(self._warnings))
        return PlanDraft(plan, tuple(self._faults), reports_gaps=True)

    def _is_in_fence(self, line: str, number: int) -> bool:
        """Whether *line* belongs to a code block, fences included."""
        fence = FENCE.match(line)
        if self._fence is None:
            if fence is None or (fence[1][0] == "`" and "`" in fence[2]):
                return False
            self._fence = fence[1], number
        elif fence is not None and fence[1].startswith(self._fence[0]) and not fence[2].strip():
            self._fence = None
        return True

    def _is_heading(self, line: str, number: int) -> bool:
        """Whether *line* is part of the plan's structure; if so, apply it."""
        if wave := WAVE.match(line):
            self._end_task()
            self._begin_wave(int(wave[1]), number)
        elif task := TASK.match(line):
            self._end_task()
            self._begin_task(int(task[1]), task[2].strip(), number)
        elif ALMOST.match(line):
            self._add_fault(number, f"{line.strip()!r} reads as neither `## Wave N` nor `### Task N: title`")
        elif not self._waves and (field := FIELD.match(line)):
            self._note(field[1], field[2].strip(), number)
        elif field := BOLD.match(line):
            return self._is_field(field[2].strip(), _bare(field[3]), number, in_list=bool(field[1]))
        elif field := NEARLY_BOLD.match(line):
            self._warn_of_form(field[1].strip(), number)
            return False
        elif not self._waves and (title := TITLE.match(line)):
            self._plan = msgspec.structs.replace(self._plan, name=title[1].strip())
        else:
            return False
        return True

    def _begin_wave(self, wave: int, number: int) -> None:
        if wave in self._waves:
            self._add_fault(number, f"wave {wave} is already defined on line {self._waves[wave]}")
        elif wave != len(self._waves) + 1:
            self._add_fault(number, f"found wave {wave} where wave {len(self._waves) + 1} was expected")
        self._waves.setdefault(wave, number)
        self._wave = wave

    def _begin_task(self, task: int, title: str, number: int) -> None:
        if not self._wave:
            self._add_fault(number, f"task {task} is before the first `## Wave`")
        if not title:
            self._add_fault(number, f"task {task} has no title")
        if not task:
            self._add_fault(number, "there is no task 0: tasks are numbered from 1")
        self._tasks.append(Task(id=str(task), number=task, title=title, wave=self._wave or 1, line=number))
        self._body = []
        self._fields = {}

    def _end_task(self) -> None:
        if self._tasks and self._body:
            body = "\n".join(self._body).strip("\n")
            self._tasks[-1] = msgspec.structs.replace(self._tasks[-1], body=body)
        self._body = []

    def _is_field(self, name: str, value: str, number: int, *, in_list: bool) -> bool:
        """Whether the bold *name* is a field of the current task; if so, apply it, otherwise warn."""
        shown = f"'**{name}:**'"
        in_task = bool(self._tasks) and self._tasks[-1].wave == self._wave
        if in_list and in_task and _is_key(name, TASK_KEYS) and name not in OF_TASK:
            self._warn(number, f"{shown} {NO_FIELD}")
        if in_list:
            self._warn_of_form(name, number)
            return False
        if in_task and name in OF_TASK:
            self._note_task(name.lower(), value, number)
            return True
        if in_task:
            self._warn(number, f"{shown} {NO_FIELD}")
        elif self._waves:
            self._warn(number, f"{shown} belongs to no task: it is before the first one of wave {self._wave}")
        else:
            self._warn(number, f"{shown} is not a field of a plan and is ignored; the fields are {', '.join(OF_PLAN)}")
        return False

    def _warn_of_form(self, name: str, number: int) -> None:
        """Warn if *name* is a field, as its line does not begin like one."""
        in_task = bool(self._tasks) and self._tasks[-1].wave == self._wave
        if in_task and name in OF_TASK:
            self._warn(number, f"{name!r} is read as text of the task; a field begins its line: '**{name}:** ...'")
        elif not self._waves and name in OF_PLAN:
            self._warn(number, f"{name!r} is ignored; a field begins its line: '**{name}:** ...'")

    def _note_task(self, field: str, value: str, number: int) -> None:
        task = self._tasks[-1]
        given: str | tuple[str, ...] = value
        if field in self._fields:
            self._add_fault(number, f"task {task.number} already has a {field}, on line {self._fields[field]}")
        elif not value:
            self._add_fault(number, f"the {field} of task {task.number} is empty; write it on the same line")
        elif field == "worktree" and value not in WORKTREES:
            self._add_fault(
                number, f"the worktree of task {task.number} is {value!r}; it must be shared, own or folder"
            )
        else:
            if field == "needs":
                given = tuple(dict.fromkeys(_task_id(name) for name in NAMES.split(value) if name))
            elif field in ("labels", "accounts"):
                given = _names(value)
            lines = (*task.lines, (field, number))
            self._tasks[-1] = msgspec.structs.replace(task, **{field: given}, lines=lines)
        self._fields.setdefault(field, number)

    def _say(self, line: str) -> None:
        if self._tasks and self._tasks[-1].wave == self._wave:
            self._body.append(line)

    def _note(self, field: str, value: str, number: int) -> None:
        key = field.lower().replace(" ", "_")
        if key == "worktree" and value not in WORKTREES:
            self._add_fault(number, f"the worktree is {value!r}; it must be shared, own or folder")
        elif key == "mode" and value not in ("tmux", "sdk"):
            self._add_fault(number, f"the mode is {value!r}; it must be tmux or sdk")
        elif key == "spread" and _bare(value) not in SPREADS:
            self._add_fault(number, f"the spread is {value!r}; it must be least-used or round-robin")
        else:
            is_bare = key in ("base", "machine", "spread")
            given = _names(value) if key in ("labels", "accounts") else _bare(value) if is_bare else value
            lines = (*self._plan.lines, (key, number))
            self._plan = msgspec.structs.replace(self._plan, **{key: given}, lines=lines)

    def _check_order(self) -> None:
        """Report waves without tasks, and missing task numbers."""
        full = {task.wave for task in self._tasks}
        for wave, number in self._waves.items():
            if wave not in full:
                self._add_fault(number, f"wave {wave} has no task")
        numbers = {task.number for task in self._tasks}
        for expected in range(1, max(numbers, default=0)):
            if expected not in numbers:
                behind = next(task for task in self._tasks if task.number > expected)
                self._add_fault(behind.line, f"task {expected} is missing before task {behind.number}")
                break

    def _add_fault(self, line: int, why: str) -> None:
        self._faults.append(PlanFault(line=line, why=why))

    def _warn(self, line: int, why: str) -> None:
        self._warnings.append(PlanFault(line=line, why=why))


def _names(value: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in NAMES.split(_bare(value)) if name))


def _bare(value: str) -> str:
    """Return *value* without backticks that enclose all of it."""
    value = value.strip()
    inner = value[1:-1]
    return inner.strip() if len(value) > 1 and value[0] == value[-1] == "`" and "`" not in inner else value


def _is_key(name: str, keys: Collection[str]) -> bool:
    """Whether *name* means one of the TOML *keys*; many other bold words begin the items of a list."""
    return name.lower().replace(" ", "_") in keys


def _task_id(name: str) -> str:
    """Return the id of the task that *name* means: `2`, `#2`, `Task 2`."""
    number = re.fullmatch(r"(?:task *)?#?(\d{1,9})", name, re.IGNORECASE)
    return str(int(number[1])) if number else name
