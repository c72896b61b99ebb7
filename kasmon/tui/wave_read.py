"""All about one task, as rows to read: how it stands, what it is told, what it needs, what its check printed. Pure."""

from collections.abc import Sequence

from kasmon.clean import clean_block, clean_line
from kasmon.model.plan.run import TaskRun
from kasmon.model.plan.spec import Task
from kasmon.model.script import SCRIPTED, shown
from kasmon.model.text import BLANK, Line, Span, Token, fitted
from kasmon.supervisor.plans.boards import Board
from kasmon.tui.wave_words import agent_of, standing

LABEL = 12
"""Cells of the column of words."""


def task_rows(board: Board, task: Task, width: int) -> Sequence[Line]:
    """Everything that the plan and its run say of *task*."""
    at = board.run.of(task.id)
    rows = fitted([(clean_line(task.title) or task.id, Token.HEADING)], width)
    for word, said in _facts(board, task, at):
        rows += _entry(word, said, width)
    for number, why in enumerate(at.failures, 1):
        rows += _entry(f"failure {number}", why, width, Token.WARNING)
    if at.check is not None and at.check.output:
        rows += [BLANK, Line((("The end of what its check printed", Token.STRONG),))]
        rows += _block(at.check.output.rstrip("\n"), width, Token.OUTPUT)
    told = shown(task.body) if agent_of(board, task) == SCRIPTED else task.body
    if told.strip():
        rows += [BLANK, Line((("What it is told", Token.STRONG),))]
        rows += _block(told.strip("\n"), width, Token.TEXT)
    return rows


def _facts(board: Board, task: Task, at: TaskRun) -> list[tuple[str, str]]:
    """Word and value, of what there is."""
    how = standing(board, task)
    session = board.sessions.get(at.session)
    peers = [each.id for each in board.plan.wave(task.wave) if each.id != task.id]
    facts = [
        ("state", f"{how.word}, attempt {at.attempt}" if at.attempt > 1 else how.word),
        ("waits", board.ahead.blocked.get(task.id, "")),
        ("why", at.why),
        ("agent", agent_of(board, task)),
        ("session", at.name if session is None else session.name),
        ("wave", f"{task.wave} of {board.plan.waves}"),
        ("peers", ", ".join(peers)),
        ("needs", ", ".join(task.needs)),
        ("goes on from", task.inherits),
        ("runs", task.run),
        ("check", task.check),
        ("checked", _check(at)),
        ("may change", ", ".join(task.files)),
        ("changed", "" if at.changed is None else f"{at.changed} files"),
        ("branch", at.branch),
        ("folder", at.workdir),
    ]
    return [(word, said) for word, said in facts if said]


def _check(at: TaskRun) -> str:
    if at.check is None:
        return ""
    if at.check.ok:
        return f"it passed in {at.check.took_s:.1f} s"
    return at.check.why or f"it ended with {at.check.exit_code} after {at.check.took_s:.1f} s"


def _entry(word: str, said: str, width: int, token: Token = Token.TEXT) -> list[Line]:
    first: tuple[Span, ...] = ((f"{word:<{LABEL}} ", Token.FAINT),)
    return fitted([(clean_line(said), token)], width, first, ((" " * (LABEL + 1), Token.TEXT),))


def _block(text: str, width: int, token: Token) -> list[Line]:
    margin: tuple[Span, ...] = (("  ", Token.TEXT),)
    return [row for line in clean_block(text).split("\n") for row in fitted([(line, token)], width, margin, margin)]
