"""Plans in Markdown, as the ancestor writes them: `## Wave N`, `### Task N: title`, in front of them the goal.

What stands between code fences is text of the task. The forms are those of the ancestor (kasmos), so that its plans
run here; where it takes a faulty plan without a word, the fault is told.
"""

import re
from typing import Final

import msgspec

from kasmon.model.plan.draft import Draft
from kasmon.model.plan.spec import Fault, Plan, Task

WAVE: Final = re.compile(r"## +Wave +(\d{1,9})\b")
TASK: Final = re.compile(r"### +Task +(\d{1,9}) *: *(.*)")
ALMOST: Final = re.compile(r"#{2,6} *(wave|task)\b|# *(wave|task) *\d", re.IGNORECASE)
"""What was meant for a heading of ours. A title may well be about a task."""
FIELD: Final = re.compile(r"\*\*(Goal|Architecture|Tech Stack|Agent|Mode|Worktree):?\*\*:? *(.*)")
FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
TITLE: Final = re.compile(r"# +(.+)")


def read(text: str, name: str) -> Draft:
    """The plan that *text* describes, as far as it can be read, with all that is wrong with it.

    Args:
        name: what it is called where its first heading does not say.
    """
    return _Reader(name).read(text)


class _Reader:
    """One pass over the lines."""

    def __init__(self, name: str) -> None:
        self._plan = Plan(name=name)
        self._faults: list[Fault] = []
        self._tasks: list[Task] = []
        self._body: list[str] = []
        self._wave = 0
        self._waves: dict[int, int] = {}
        """Wave -> its line."""
        self._fence: tuple[str, int] | None = None
        """What opened the code that we are in, and where."""

    def read(self, text: str) -> Draft:
        for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
            if self._in_fence(line, number) or not self._is_heading(line, number):
                self._say(line)
        self._end_task()
        if self._fence is not None:
            self._wrong(self._fence[1], "the code that begins here has no end")
        if not self._waves and not self._faults:
            self._wrong(0, "it has no heading `## Wave 1`")
        self._check_order()
        plan = msgspec.structs.replace(self._plan, tasks=tuple(self._tasks))
        return Draft(plan, tuple(self._faults), tells_gaps=True)

    def _in_fence(self, line: str, number: int) -> bool:
        """Whether *line* belongs to code, its fences included."""
        fence = FENCE.match(line)
        if self._fence is None:
            if fence is None or (fence[1][0] == "`" and "`" in fence[2]):
                return False
            self._fence = fence[1], number
        elif fence is not None and fence[1].startswith(self._fence[0]) and not fence[2].strip():
            self._fence = None
        return True

    def _is_heading(self, line: str, number: int) -> bool:
        """Whether *line* says something of the plan itself, which then is noted."""
        if wave := WAVE.match(line):
            self._end_task()
            self._begin_wave(int(wave[1]), number)
        elif task := TASK.match(line):
            self._end_task()
            self._begin_task(int(task[1]), task[2].strip(), number)
        elif ALMOST.match(line):
            self._wrong(number, f"{line.strip()!r} reads as neither `## Wave N` nor `### Task N: title`")
        elif not self._waves and (field := FIELD.match(line)):
            self._note(field[1], field[2].strip(), number)
        elif not self._waves and (title := TITLE.match(line)):
            self._plan = msgspec.structs.replace(self._plan, name=title[1].strip())
        else:
            return False
        return True

    def _begin_wave(self, wave: int, number: int) -> None:
        if wave in self._waves:
            self._wrong(number, f"there is a wave {wave} already, on line {self._waves[wave]}")
        elif wave != len(self._waves) + 1:
            self._wrong(number, f"wave {wave} stands where wave {len(self._waves) + 1} would")
        self._waves.setdefault(wave, number)
        self._wave = wave

    def _begin_task(self, task: int, title: str, number: int) -> None:
        if not self._wave:
            self._wrong(number, f"task {task} stands before the first `## Wave`")
        if not title:
            self._wrong(number, f"task {task} has no title")
        if not task:
            self._wrong(number, "task 0 is none: tasks are counted from 1")
        self._tasks.append(Task(id=str(task), number=task, title=title, wave=self._wave or 1, line=number))
        self._body = []

    def _end_task(self) -> None:
        if self._tasks and self._body:
            body = "\n".join(self._body).strip("\n")
            self._tasks[-1] = msgspec.structs.replace(self._tasks[-1], body=body)
        self._body = []

    def _say(self, line: str) -> None:
        if self._tasks and self._tasks[-1].wave == self._wave:
            self._body.append(line)

    def _note(self, field: str, value: str, number: int) -> None:
        key = field.lower().replace(" ", "_")
        if key == "worktree" and value not in ("shared", "own", "folder"):
            self._wrong(number, f"the worktree is {value!r}; it can be shared, own or folder")
        elif key == "mode" and value not in ("tmux", "sdk"):
            self._wrong(number, f"the mode is {value!r}; it can be tmux or sdk")
        else:
            self._plan = msgspec.structs.replace(self._plan, **{key: value})

    def _check_order(self) -> None:
        """Tell of waves without tasks, and of numbers that are left out."""
        full = {task.wave for task in self._tasks}
        for wave, number in self._waves.items():
            if wave not in full:
                self._wrong(number, f"wave {wave} has no task")
        numbers = {task.number for task in self._tasks}
        for expected in range(1, max(numbers, default=0)):
            if expected not in numbers:
                behind = next(task for task in self._tasks if task.number > expected)
                self._wrong(behind.line, f"task {expected} is missing before task {behind.number}")
                break

    def _wrong(self, line: int, why: str) -> None:
        self._faults.append(Fault(line=line, why=why))
