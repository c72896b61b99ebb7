"""`kasmon task`: the commands by which the runner of another machine's plan has a task work here.

Each takes a request as JSON on stdin, and prints the reply as JSON (`kasmon.supervisor.plans.machines.task_requests`).
`offer` is not here: it needs half of these imports, and each placement of a task waits for it.
"""

import sys
from typing import TypeVar

import msgspec

from kasmon.cli.arguments import Json
from kasmon.cli.output.console import print_json
from kasmon.config import load
from kasmon.errors import UsageError
from kasmon.host.rpc import event_loop
from kasmon.paths import user_paths
from kasmon.supervisor.plans.machines import task_work
from kasmon.supervisor.plans.machines.task_requests import (
    AddCommits,
    EndTask,
    FetchCommits,
    PrepareTask,
    ReadResult,
    RunTaskCheck,
    StartTask,
)
from kasmon.supervisor.plans.peers.context import WriteContexts, store_contexts

Request = TypeVar("Request", bound=msgspec.Struct)


def prepare(*, wants_json: Json = False) -> None:
    """Claim a task for this machine, and create its worktree; the request is JSON on stdin."""
    where = user_paths()
    _print(event_loop.run(task_work.prepare(where, load(where), _read(PrepareTask))))


def add(*, wants_json: Json = False) -> None:
    """Add a part of the commits that a task starts from; the request is JSON on stdin."""
    _print(task_work.add_commits(user_paths(), _read(AddCommits)))


def start(*, wants_json: Json = False) -> None:
    """Start the session of a prepared task; the request is JSON on stdin."""
    where = user_paths()
    _print(event_loop.run(task_work.start(where, load(where), _read(StartTask))))


def check(*, wants_json: Json = False) -> None:
    """Start a task's check, or show its state; the request is JSON on stdin."""
    _print(task_work.check(user_paths(), _read(RunTaskCheck)))


def result(*, wants_json: Json = False) -> None:
    """Show what a task left: its result, its last commit; the request is JSON on stdin."""
    _print(task_work.read_result(user_paths(), _read(ReadResult)))


def fetch(*, wants_json: Json = False) -> None:
    """Print a part of a task's commits; the request is JSON on stdin."""
    _print(task_work.fetch(user_paths(), _read(FetchCommits)))


def end(*, wants_json: Json = False) -> None:
    """End a task's session and claim, and show what it did; the request is JSON on stdin."""
    _print(event_loop.run(task_work.end(user_paths(), _read(EndTask))))


def context(*, wants_json: Json = False) -> None:
    """Store what the agents of tasks may know of their peers; the request is JSON on stdin."""
    print_json(sessions=list(store_contexts(user_paths(), _read(WriteContexts))))


def _read(kind: type[Request]) -> Request:
    """Return the request on stdin. Raises `UsageError` if there is none of *kind*."""
    try:
        return msgspec.json.decode(sys.stdin.buffer.read(), type=kind)
    except msgspec.DecodeError as error:
        raise UsageError(f"stdin is no request of this kind: {error}.") from error


def _print(reply: msgspec.Struct) -> None:
    print_json(reply=msgspec.to_builtins(reply))
