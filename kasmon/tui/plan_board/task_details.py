"""All details of one task, as rows to read: state, prompt, dependencies, check output. Pure."""

from collections.abc import Sequence

from kasmon.model.plan.plan import Task
from kasmon.model.plan.progress import TaskRun
from kasmon.model.transcript.text import BLANK, Span, TextLine, Token, wrap
from kasmon.sanitize import clean_block, clean_line
from kasmon.scripted_agent.script import SCRIPTED, displayed_prompt
from kasmon.supervisor.plans.boards import PlanBoard
from kasmon.tui.plan_board.card_text import agent_of, standing

LABEL = 12
"""Cells of the column of labels."""


def task_rows(board: PlanBoard, task: Task, width: int) -> Sequence[TextLine]:
    """Return everything that the plan and its run record of *task*."""
    at = board.run.of(task.id)
    rows = wrap([(clean_line(task.title) or task.id, Token.HEADING)], width)
    for word, value in _facts(board, task, at):
        rows += _entry(word, value, width)
    for number, why in enumerate(at.failures, 1):
        rows += _entry(f"failure {number}", why, width, Token.WARNING)
    if at.check is not None and at.check.output:
        rows += [BLANK, TextLine((("Check output (end)", Token.STRONG),))]
        rows += _block(at.check.output.rstrip("\n"), width, Token.OUTPUT)
    told = displayed_prompt(task.body) if agent_of(board, task) == SCRIPTED else task.body
    if told.strip():
        rows += [BLANK, TextLine((("Prompt", Token.STRONG),))]
        rows += _block(told.strip("\n"), width, Token.TEXT)
    return rows


def _facts(board: PlanBoard, task: Task, at: TaskRun) -> list[tuple[str, str]]:
    how = standing(board, task)
    session = board.sessions.get(at.session)
    peers = [each.id for each in board.plan.wave(task.wave) if each.id != task.id]
    facts = [
        ("state", f"{how.word}, attempt {at.attempt}" if at.attempt > 1 else how.word),
        ("blocked by", board.ahead.blocked.get(task.id, "")),
        ("why", at.why),
        ("agent", agent_of(board, task)),
        ("session", at.name if session is None else session.name),
        ("wave", f"{task.wave} of {board.plan.waves}"),
        ("peers", ", ".join(peers)),
        ("needs", ", ".join(task.needs)),
        ("continues", task.inherits),
        ("runs", task.run),
        ("check", task.check),
        ("checked", _check(at)),
        ("may change", ", ".join(task.files)),
        ("changed", "" if at.changed is None else f"{at.changed} files"),
        ("branch", at.branch),
        ("base commit", at.base[:12]),
        ("conflicts", ", ".join(at.conflicts)),
        ("folder", at.workdir),
    ]
    return [(word, said) for word, said in facts if said]


def _check(at: TaskRun) -> str:
    if at.check is None:
        return ""
    if at.check.ok:
        return f"passed in {at.check.took_s:.1f} s"
    return at.check.why or f"failed (exit {at.check.exit_code}) after {at.check.took_s:.1f} s"


def _entry(word: str, value: str, width: int, token: Token = Token.TEXT) -> list[TextLine]:
    first: tuple[Span, ...] = ((f"{word:<{LABEL}} ", Token.FAINT),)
    return wrap([(clean_line(value), token)], width, first, ((" " * (LABEL + 1), Token.TEXT),))


def _block(text: str, width: int, token: Token) -> list[TextLine]:
    margin: tuple[Span, ...] = (("  ", Token.TEXT),)
    return [row for line in clean_block(text).split("\n") for row in wrap([(line, token)], width, margin, margin)]
