"""Plans in TOML: everything from Markdown, and also needs, checks, retries, time limits, worktrees and terminals.

name = "tidy"                 goal, architecture, tech_stack, agent, mode, worktree, base, fetch, env
machine = "gpu-1"             or "any"; labels = ["linux", "gpu"], limit = 8, per_machine = 2
accounts = ["work", "home"]   spread = "least-used" or "round-robin"
advance = "ask"               or "auto"; without_check = "ask" or "advance"; done_by = "turn" or "said"

[[task]]
id = "parser"                 its number if omitted
title = "Write the parser"
prompt = "..."                or run = "make", a shell command
needs = ["lexer"]             wave = 2, inherits = "lexer", agent, mode, sandbox, worktree, base, files, host
machine = "gpu-1"             or "any", "local"; labels = ["linux", "gpu"], accounts = ["work"]
check = "pytest -q"           check_time_limit = "10m", retries = 1, time_limit = "30m"

`docs/plans.md` describes each key.
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from typing import Any, Final

from kasmon.model.plan.plan import CHECK_LIMIT_S, GIT_LOCAL, Plan, PlanFault, Task
from kasmon.model.plan.validation import PlanDraft
from kasmon.sanitize import first_line

VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0}
LONGEST_S: Final = 1e9
"""Time limits are capped at this, in seconds: thirty years are as good as none."""
PLAN_KEYS: Final[Mapping[str, Any]] = {
    "name": str,
    "goal": str,
    "architecture": str,
    "tech_stack": str,
    "agent": str,
    "machine": str,
    "labels": list,
    "accounts": list,
    "spread": ("least-used", "round-robin"),
    "mode": ("tmux", "sdk"),
    "worktree": ("shared", "own", "folder"),
    "base": str,
    "fetch": ("remote",),
    "advance": ("ask", "auto"),
    "without_check": ("ask", "advance"),
    "done_by": ("turn", "said"),
    "limit": int,
    "per_machine": int,
    "env": list,
    "task": list,
}
TASK_KEYS: Final[Mapping[str, Any]] = {
    "id": object,
    "title": str,
    "prompt": str,
    "run": str,
    "wave": int,
    "needs": list,
    "inherits": object,
    "agent": str,
    "host": str,
    "machine": str,
    "labels": list,
    "accounts": list,
    "mode": ("tmux", "sdk"),
    "sandbox": ("jail", "microvm", "e2b"),
    "worktree": ("shared", "own", "folder"),
    "base": str,
    "files": list,
    "check": str,
    "check_time_limit": object,
    "retries": int,
    "time_limit": object,
}


def read(text: str, name: str) -> PlanDraft:
    """Parse the plan in *text* as far as possible, and report all its faults."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"\(at line (\d+)", str(error))
        line = int(found[1]) if found else text.count("\n") + 1
        return PlanDraft(Plan(name=name), (PlanFault(line=line, why=f"it is not valid TOML: {error}"),))
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits, 1,000 nested lists
        return PlanDraft(Plan(name=name), (PlanFault(line=0, why=f"it cannot be read as TOML: {error}"),))
    lines, faults = _Lines(text), list[PlanFault]()
    plan = _Table(table, PLAN_KEYS, "the plan", lambda key: lines.of_key(0, key), faults)
    entries = table.get("task", [])
    tasks = []
    if isinstance(entries, list):
        for number, entry in enumerate(entries, 1):
            if isinstance(entry, dict):
                tasks.append(_task(number, entry, lines, faults))
            else:
                faults.append(PlanFault(line=lines.of_task(number), why=f"task {number} is not a table"))
    good = {
        key: value
        for key, value in table.items()
        if key not in ("task", "env", "labels", "accounts")
        and key in PLAN_KEYS
        and _fits(value, PLAN_KEYS[key])
        and value != ""
    }
    for key in ("limit", "per_machine"):
        if key in good and good[key] < 1:
            plan.add_fault(key, f"the {key} is {good.pop(key)}; the minimum is 1")
    good |= {key: plan.names(key) for key in ("labels", "accounts", "env")}
    if bad := [name for name in good["env"] if not VARIABLE.fullmatch(name)]:
        why = f"env of the plan holds {bad[0]!r}; it lists names of variables, whose values come from your environment"
        plan.add_fault("env", why)
    if bad := [name for name in good["env"] if name in GIT_LOCAL]:
        why = f"env of the plan holds {bad[0]!r}, by which git would work in another repository than the task's"
        plan.add_fault("env", why)
    if "advance" not in table and not any(task.wave for task in tasks):
        good["advance"] = "auto"
    good["lines"] = tuple((key, lines.of_key(0, key)) for key in table)
    return PlanDraft(Plan(**{"name": name, **good, "tasks": tuple(tasks)}), tuple(faults))


def _task(number: int, entry: Mapping[str, Any], lines: "_Lines", faults: list[PlanFault]) -> Task:
    line = lines.of_task(number)
    id_ = _name(entry.get("id", number))
    whose = f"task {id_ or number!r}"
    task = _Table(entry, TASK_KEYS, whose, lambda key: lines.of_key(number, key), faults)
    if not id_:
        task.add_fault("id", f"the id {entry.get('id')!r} is neither a string nor a number")
    needs, files = task.names("needs"), task.names("files")
    body, run = task.value("prompt", ""), task.value("run", "")
    if bool(body.strip()) == bool(run.strip()):
        what = "both a prompt and a command to run" if body else "neither a prompt nor a command to run"
        faults.append(PlanFault(line=task.line_of("run") if body else line, why=f"{whose} has {what}"))
    agent, host = task.value("agent", ""), task.value("host", "")
    if host and "@" in agent:
        task.add_fault("host", f"{whose} names two hosts: {agent!r} and {host!r}")
    elif host:
        agent = f"{agent or ('shell' if run else '')}@{host}"
    for key, least in (("retries", 0), ("wave", 1)):
        if task.value(key, least) < least:
            task.add_fault(key, f"{key} of {whose} is {entry[key]}; the minimum is {least}")
    return Task(
        id=id_ or str(number),
        number=number,
        title=task.value("title", "") or first_line(body or run)[:80],
        body=body,
        run=run,
        wave=max(task.value("wave", 0), 0),
        needs=needs,
        inherits=_name(entry.get("inherits", "")),
        agent=agent,
        machine=task.value("machine", ""),
        labels=task.names("labels"),
        accounts=task.names("accounts"),
        mode=task.value("mode", ""),
        sandbox=task.value("sandbox", ""),
        worktree=task.value("worktree", ""),
        base=task.value("base", ""),
        files=files,
        check=task.value("check", ""),
        retries=max(task.value("retries", 0), 0),
        check_limit_s=task.seconds("check_time_limit") or CHECK_LIMIT_S,
        time_limit_s=task.seconds("time_limit"),
        line=line,
        lines=tuple(("agent" if key == "host" and "agent" not in entry else key, task.line_of(key)) for key in entry),
    )


class _Table:
    """One table of the file, *whose* for people. What is wrong in it is added to *faults*, as it is read."""

    def __init__(
        self,
        table: Mapping[str, Any],
        keys: Mapping[str, Any],
        whose: str,
        line_of: Callable[[str], int],
        faults: list[PlanFault],
    ) -> None:
        self._table, self._keys, self._whose, self._faults = table, keys, whose, faults
        self.line_of = line_of
        for key, value in table.items():
            if key not in keys:
                self.add_fault(key, f"{whose} has no key {key!r}; the keys are {', '.join(keys)}")
            elif not _fits(value, keys[key]):
                wanted = keys[key]
                kinds = " or ".join(wanted) if isinstance(wanted, tuple) else _KINDS[wanted]
                self.add_fault(key, f"{key} of {whose} is {value!r}; it must be {kinds}")

    def add_fault(self, key: str, why: str) -> None:
        self._faults.append(PlanFault(line=self.line_of(key), why=why))

    def value(self, key: str, otherwise: Any) -> Any:
        value = self._table.get(key, otherwise)
        return value if _fits(value, self._keys[key]) else otherwise

    def names(self, key: str) -> tuple[str, ...]:
        given = self._table.get(key, [])
        if not isinstance(given, list):
            return ()
        for value in given:
            if not _name(value):
                self.add_fault(key, f"{key} of {self._whose} holds {value!r}, which is not a name")
        return tuple(dict.fromkeys(filter(None, map(_name, given))))

    def seconds(self, key: str) -> float | None:
        """Return the time limit under *key*, in seconds: a number of seconds, or `90s`, `30m`, `2h`."""
        value = self._table.get(key)
        if value is None:
            return None
        seconds = 0.0
        if isinstance(value, int | float) and not isinstance(value, bool):
            seconds = float(min(value, LONGEST_S))
        elif isinstance(value, str) and (match := re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh])", value.strip())):
            seconds = min(float(match[1]) * UNITS[match[2]], LONGEST_S)
        if seconds > 0:
            return seconds
        which = "the time limit of the check" if key == "check_time_limit" else "the time limit"
        self.add_fault(key, f'{which} of {self._whose} is {value!r}; use a form like "90s", "30m" or "2h"')
        return None


_KINDS: Final = {str: "a text", int: "a whole number", list: "a list", object: "a string or a number"}


def _fits(value: object, wanted: Any) -> bool:
    if isinstance(wanted, tuple):
        return value in wanted or value == ""
    if wanted is object:
        return isinstance(value, str | int | float) and not isinstance(value, bool)
    return isinstance(value, wanted) and not isinstance(value, bool)


def _name(value: object) -> str:
    """Return *value* as a task's name: a string, or a whole number; empty if it is neither."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) else ""


class _Lines:
    """The line of each task and of its keys in a TOML text, which tomllib does not report."""

    def __init__(self, text: str) -> None:
        self._tasks = [1]
        self._keys: dict[tuple[int, str], int] = {}
        task, depth, quote, is_known, in_tasks = 0, 0, "", True, False
        for number, line in enumerate(text.split("\n"), 1):  # as tomllib counts
            if not quote and not depth:
                if re.match(r"\s*\[\[\s*task\s*\]\]", line):
                    self._tasks.append(number)
                    task, is_known = len(self._tasks) - 1, True
                elif table := re.match(r"""\s*\[\[?\s*(task\s*\.\s*)?["']?([\w-]+)[^,]*\]\s*(?:#|$)""", line):
                    self._keys.setdefault((task if table[1] else 0, table[2]), number)
                    is_known = False  # its keys belong to no task
                elif is_known and (key := re.match(r"""\s*["']?([\w-]+)["']?\s*[.=]""", line)):
                    self._keys.setdefault((task, key[1]), number)
                    in_tasks = (task, key[1]) == (0, "task")
            depth, quote, tables = _scan(line, depth, quote)
            self._tasks += [number] * tables if in_tasks else []

    def of_task(self, number: int) -> int:
        return self._tasks[number] if number < len(self._tasks) else self._keys.get((0, "task"), self._tasks[-1])

    def of_key(self, task: int, key: str) -> int:
        return self._keys.get((task, key), self.of_task(task))


_TOKEN: Final = re.compile(r"""\"{3}|'{3}|"(?:\\.|[^"\\])*"|'[^']*'|\#.*|[\[\]{}]""")
_END: Final = {'"""': re.compile(r'(?:\\.|[^\\])*?"{3,5}'), "'''": re.compile(r".*?'{3,5}")}
"""Triple quote -> what ends a text that it began; up to two quotes before its end belong to the text."""


def _scan(line: str, depth: int, quote: str) -> tuple[int, str, int]:
    """Return how many brackets and which triple quote are open behind *line*, and how many tables began in a list.

    *depth* and *quote* are what was open before it.
    """
    at = tables = 0
    while at < len(line):
        found = _END[quote].match(line, at) if quote else _TOKEN.search(line, at)
        if found is None:
            break
        at, token = found.end(), found[0]
        if quote:
            quote = ""
        elif token in _END:
            quote = token
        elif token in "[{":
            tables += (depth, token) == (1, "{")
            depth += 1
        elif token in "]}":
            depth -= 1
    return depth, quote, tables
