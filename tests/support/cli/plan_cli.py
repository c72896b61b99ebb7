"""The command line in this process, on plans that somebody agreed to and that nobody runs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kasmon.cli.commands import run
from kasmon.host.rpc.host_lock import HostLock
from kasmon.model.plan.events import PlanFact
from kasmon.model.plan.parser import read
from kasmon.paths import Paths, user_paths, write_private
from kasmon.store.plan_log import PlanLog
from kasmon.supervisor.plans import start
from tests.support.cli.cli_runner import Done

PLAN = """# Tidy

**Goal:** less

## Wave 1
### Task 1: sweep
say swept
### Task 2: dust
say dusted

## Wave 2
### Task 3: polish
say shines
"""
AGENTS = 'default_agent = "scripted"\n[agents.codex]\nprogram = "scripted"\n'


class PlanCli:
    """Runs commands; holds the locks of its plans' runners, so that none is started."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.paths: Paths = user_paths()
        self.paths.config.mkdir(exist_ok=True, mode=0o700)
        write_private(self.paths.config / "config.toml", AGENTS.encode())
        self._heard = capture
        self._locks: list[HostLock] = []

    def __call__(self, *arguments: str) -> Done:
        self._heard.readouterr()
        code = run(["plan", *arguments])
        return Done(code, *self._heard.readouterr())

    def json(self, *arguments: str) -> Any:
        """What a command that succeeds prints with --json."""
        done = self(*arguments, "--json")
        assert 0 == done.code, done.err
        return done.json

    def file(self, text: str = PLAN, name: str = "tidy.md") -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def agreed(
        self, *facts: PlanFact, text: str = PLAN, name: str = "tidy.md", headless: bool = False, on: str = ""
    ) -> PlanLog:
        """A plan that was agreed to, and then these facts."""
        file = self.file(text, name)
        book = start.store_approved_plan(
            self.paths, read(text, file, on=on), text, Path(file), self.folder, headless=headless, on=on
        )
        lock = HostLock(book.lock)
        assert lock.acquire()
        self._locks.append(lock)
        for fact in facts:
            book.add(fact)
        book.more()
        return book

    def close(self) -> None:
        for lock in self._locks:
            lock.let_go()


def words(done: Done) -> Sequence[str]:
    return done.out.splitlines()


def as_json(text: str) -> Any:
    return json.loads(text)
