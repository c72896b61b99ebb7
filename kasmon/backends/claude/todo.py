"""The agent's own to-do list: the tool `TodoWrite` writes it whole, the `Task` tools piece by piece."""

from typing import Final, Literal

from kasmon.backends.shape import Table, rows, table, text
from kasmon.model.event import PlanItem

STATES: Final[dict[str, Literal["open", "doing", "done"]]] = {"in_progress": "doing", "completed": "done"}


class ToDo:
    """The list as far as this process of the agent has told it."""

    def __init__(self) -> None:
        self._tasks: dict[str, PlanItem] = {}
        """By id, in the order in which they were made."""

    def finished(self, tool: str, asked: Table, result: Table) -> tuple[PlanItem, ...] | None:
        """The list after *tool* did what it was *asked*; None where that says nothing new."""
        if tool == "TodoWrite":
            todos = rows(result, "newTodos") or rows(asked, "todos")
            self._tasks = {str(n): _item(todo, "content") for n, todo in enumerate(todos)}
        elif tool == "TaskCreate" and (made := table(result, "task")):
            self._tasks[text(made, "id")] = _item(made, "subject")
        elif tool == "TaskUpdate" and result.get("success") is True:
            self._update(text(result, "taskId"), asked, text(table(result, "statusChange"), "to"))
        elif tool == "TaskList" and "tasks" in result:
            self._tasks = {text(task, "id"): _item(task, "subject") for task in rows(result, "tasks")}
        else:
            return None
        return tuple(self._tasks.values())

    def stated(self, statuses: list[Table]) -> tuple[PlanItem, ...]:
        """The list after the agent itself set these *statuses*."""
        for status in statuses:
            self._update(text(status, "id"), {}, text(status, "status"))
        return tuple(self._tasks.values())

    def forget(self) -> bool:
        """Begin anew; whether there was anything."""
        was_there = bool(self._tasks)
        self._tasks.clear()
        return was_there

    def _update(self, task: str, asked: Table, status: str) -> None:
        if status == "deleted":
            self._tasks.pop(task, None)
            return
        known = self._tasks.get(task)
        if known is not None:
            state = STATES.get(status, "open") if status else known.state
            self._tasks[task] = PlanItem(text=text(asked, "subject") or known.text, state=state)


def _item(todo: Table, name: str) -> PlanItem:
    return PlanItem(text=text(todo, name), state=STATES.get(text(todo, "status"), "open"))
