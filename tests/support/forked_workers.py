"""A plugin that runs tests in several processes, forked after collection: the tests are imported and collected once.

`pytest --workers 4`. Each of pytest-xdist's workers collects all tests for itself.
Tests that compare a snapshot run in the first process, because syrupy counts there which snapshots are unused.
"""

import contextlib
import io
import itertools
import multiprocessing
import os
import queue
import sys
import threading
from collections.abc import Iterator, Sequence
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from types import ModuleType

import pytest
from _pytest.assertion import rewrite

from tests.support import syntax_trees

LONGEST = 16
"""So many tests a worker takes at once at most."""
CONTEXT = multiprocessing.get_context("fork")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=0, help="number of processes that run tests")


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Rewrite changed test files in several processes: in a fresh clone that is half of what the collection costs."""
    count = 0 if sys.dont_write_bytecode else session.config.option.workers
    processes = [CONTEXT.Process(target=_rewrite, args=(session.config, number, count)) for number in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


def _rewrite(config: pytest.Config, number: int, count: int) -> None:
    """By pytest's own functions (8.4)."""
    paths = [config.rootpath / argument.partition("::")[0] for argument in config.args]
    files = sorted({file for place in paths for file in ([place] if place.is_file() else place.rglob("test_*.py"))})
    for file in files[number::count]:
        compiled = rewrite.get_cache_dir(file) / f"{file.stem}{rewrite.PYC_TAIL}"
        if rewrite._read_pyc(file, compiled) is None and rewrite.try_makedirs(compiled.parent):
            stat, code = rewrite._rewrite_test(file, config)
            rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, stat, compiled)


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    option = session.config.option
    if not option.workers or option.collectonly or session.testsfailed:
        return None  # pytest's own loop
    _Run(session).run(option.workers)
    return True


class _Run:
    """The tests of *session*, and the workers that run them."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._hook = session.config.hook
        own = {item for item in session.items if "snapshot" in getattr(item, "fixturenames", ())}
        self._own = [item for item in session.items if item in own]
        self._left = {item.nodeid: item for item in session.items if item not in own}
        self._workers: dict[Connection, ForkProcess] = {}
        self._current: dict[Connection, str] = {}
        self._messages: queue.SimpleQueue[tuple[Connection, object]] = queue.SimpleQueue()

    def run(self, count: int) -> None:
        shares = list(_shares(list(self._left.values()), count))
        taken, numbers = os.pipe()
        os.write(numbers, b"".join(number.to_bytes(2) for number in range(len(shares))))
        os.close(numbers)
        for number in range(count):
            ours, theirs = CONTEXT.Pipe(duplex=False)
            worker = CONTEXT.Process(target=_work, args=(self._session.config, number, shares, taken, theirs))
            worker.start()
            theirs.close()
            self._workers[ours] = worker
        for ours, worker in self._workers.items():  # after the last fork
            threading.Thread(target=self._receive, args=(ours, worker), daemon=True).start()
        try:
            self._run_here(self._own)
            while self._workers:
                self._take_reports(1.0)
        finally:
            for worker in self._workers.values():
                worker.terminate()
                worker.join()
        self._run_here(list(self._left.values()))  # those that a worker took before it died

    def _run_here(self, items: Sequence[pytest.Item]) -> None:
        for item, following in itertools.pairwise([*items, None]):
            assert item is not None
            self._hook.pytest_runtest_protocol(item=item, nextitem=following)
            self._take_reports(0.0)

    def _receive(self, connection: Connection, worker: ForkProcess) -> None:
        """In a thread: else a worker whose pipe is full waits for a test that runs here, until its own test times out.

        None follows the last message. What a test left running may hold the other end.
        """
        with contextlib.suppress(EOFError, OSError):
            while True:
                if connection.poll(1.0):
                    self._messages.put((connection, connection.recv()))
                elif not worker.is_alive() and not connection.poll():
                    break
        self._messages.put((connection, None))

    def _take_reports(self, wait_s: float) -> None:
        """Take those that came; if there is none, wait for one."""
        with contextlib.suppress(queue.Empty):
            while self._workers:
                connection, message = self._messages.get(timeout=wait_s)
                wait_s = 0.0
                if message is None:
                    self._end(connection)
                else:
                    self._take(connection, message)
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)

    def _end(self, connection: Connection) -> None:
        worker = self._workers.pop(connection)
        worker.join()
        if lost := self._left.get(self._current.pop(connection, "")):
            why = f"its process ended with exit code {worker.exitcode}"
            self._report(pytest.TestReport(lost.nodeid, lost.location, {}, "failed", why, "call"))
            self._finish(lost)

    def _take(self, connection: Connection, message: object) -> None:
        if isinstance(message, str):
            self._current[connection] = message
        else:
            self._report(self._hook.pytest_report_from_serializable(config=self._session.config, data=message))

    def _report(self, report: pytest.TestReport) -> None:
        self._hook.pytest_runtest_logreport(report=report)
        if report.when == "teardown":
            self._finish(self._left[report.nodeid])

    def _finish(self, item: pytest.Item) -> None:
        del self._left[item.nodeid]
        self._hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def _shares(items: Sequence[pytest.Item], count: int) -> Iterator[Sequence[pytest.Item]]:
    """Consecutive tests of one file, which may share fixtures; at the end few, so that all workers end together.

    Those that look at all of kasmon's syntax trees come first, for one worker: to make the trees takes seconds.
    """
    if together := [item for item in items if _reads_trees(item)]:
        yield together
    others = [item for item in items if not _reads_trees(item)]
    left = len(others)
    for _, beside in itertools.groupby(others, lambda item: item.path):
        while share := list(itertools.islice(beside, min(LONGEST, max(1, left // (4 * count))))):
            yield share
            left -= len(share)


def _reads_trees(item: pytest.Item) -> bool:
    assert isinstance(item, pytest.Function)
    return _imports_trees(item.module)


@cache
def _imports_trees(module: ModuleType) -> bool:
    return any(value is syntax_trees or value is syntax_trees.modules for value in vars(module).values())


class _Reporter:
    """Sends a worker's reports to the first process."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._connection.send(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send(data)


def _work(
    config: pytest.Config, number: int, shares: Sequence[Sequence[pytest.Item]], numbers: int, connection: Connection
) -> None:
    """A worker: it takes shares, by their *numbers*, until none is left."""
    with contextlib.suppress(PermissionError):
        os.setsid()  # as in `pytest_configure` of tests/conftest.py
    capture = config.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    capture.stop_global_capturing()  # its files are those of the first process
    capture.start_global_capturing()
    factory = config._tmp_path_factory  # type: ignore[attr-defined]
    factory._basetemp = factory.mktemp(f"worker-{number}", numbered=False)
    config.get_terminal_writer()._file = io.StringIO()  # the first process prints the reports
    config.pluginmanager.register(_Reporter(config, connection))

    def taken() -> Iterator[pytest.Item | None]:
        while share := os.read(numbers, 2):
            yield from shares[int.from_bytes(share)]
        yield None

    for item, following in itertools.pairwise(taken()):
        assert item is not None
        config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    capture.stop_global_capturing()
