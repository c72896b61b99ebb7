"""The index: what it remembers, with what was added since, is what the logs say; nothing else is ever true."""

import ast
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kasmon
from kasmon.errors import UnavailableError
from kasmon.model import events
from kasmon.model.permission import Request, RequestId, SessionId
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.store import fleet_cache
from kasmon.store.fleet_cache import MIGRATIONS, FleetCache, connect, load_cache
from kasmon.store.fleet_index import FleetIndex
from tests.support.sample_events import facts
from tests.support.supervisor.env import NOW, Env, ended, started
from tests.support.syntax_trees import modules, nodes, parsed
from tests.support.wait import until

PACKAGE = Path(kasmon.__file__).parent
ME = "abcdefgh"
OTHER = "qrstuvwx"


@pytest.fixture
def env() -> Iterator[Env]:
    env = Env()
    env.has(ME, started(), events.TurnStarted(at=NOW, prompt="tidy up"), events.MessageWritten(at=NOW, text="done"))
    env.has(OTHER, started(), ended())
    yield env
    env.close()


def crowd(env: Env) -> None:
    """As many sessions as it takes to fill a few pages."""
    for number in range(60):
        env.has(f"b{number:07d}".translate(str.maketrans("0123456789", "abcdefghij")), started(), ended())


def read_all(fold: FleetIndex) -> dict[SessionId, Session]:
    """Everything that the logs hold now."""
    fold.read_fleet()
    for session in list(fold.sessions):
        fold.read_session(session)
    return {session: folded.session for session, folded in fold.sessions.items()}


def from_scratch(paths: Paths) -> dict[SessionId, Session]:
    return read_all(FleetIndex(paths))


def from_index(paths: Paths) -> dict[SessionId, Session]:
    fold = FleetIndex(paths)
    assert load_cache(paths.index, fold)
    return read_all(fold)


def written(paths: Paths) -> FleetIndex:
    """A fold that stands in the index."""
    fold = FleetIndex(paths)
    read_all(fold)
    keeper = FleetCache(paths.index)
    assert keeper.write(fold, (), ())
    keeper.close()
    return fold


def is_used(paths: Paths) -> bool:
    return load_cache(paths.index, FleetIndex(paths))


@settings(max_examples=60)
@given(told=st.lists(facts(), max_size=12), at=st.data())
def test_the_index_and_the_rest_of_the_log_give_the_whole_log_at_any_cut(
    told: list[events.Event], at: st.DataObject
) -> None:
    env = Env()
    try:
        env.has(ME)
        whole = b"".join(events.encode(fact) + b"\n" for fact in told)
        cut = at.draw(st.integers(0, len(whole)))
        env.paths.log(ME).write_bytes(whole[:cut])
        written(env.paths)
        with env.paths.log(ME).open("ab") as log:
            log.write(whole[cut:])

        assert from_scratch(env.paths) == from_index(env.paths)
    finally:
        env.close()


def test_any_request_of_an_agent_fits_into_the_index(env: Env) -> None:
    asked = {"big": 10**40, "small": -(10**40), "text": "\0\x1b\u2028", "deep": [[[[[]]]]]}
    request = Request(id=RequestId(f"{ME}-1"), session=SessionId(ME), input=asked)
    env.tells(ME, events.RequestOpened(at=NOW, request=request))

    written(env.paths)

    assert from_scratch(env.paths) == from_index(env.paths)


def test_indexed_events_are_not_read_again(env: Env) -> None:
    written(env.paths)
    log = env.paths.log(ME)
    log.write_bytes(b" " * (log.stat().st_size - 1) + b"\n")
    env.tells(ME, events.MessageWritten(at=NOW, text="and more"))

    session = from_index(env.paths)[SessionId(ME)]

    assert (1, "and more") == (session.turns, session.last_line)


def test_renamed_and_removed_sessions_are_so_in_the_index_too(env: Env) -> None:
    env.has("third")
    fold = written(env.paths)
    keeper = FleetCache(env.paths.index)
    assert keeper.write(fold, (), ())
    env.says(
        events.SessionRenamed(at=NOW, session=SessionId(ME), name="new"),
        events.SessionForgotten(at=NOW, session=SessionId(OTHER)),
    )
    moved = fold.read_fleet()
    assert keeper.write(fold, moved.changed, moved.removed)
    keeper.close()
    env.paths.fleet_log.write_bytes(b" " * (env.paths.fleet_log.stat().st_size - 1) + b"\n")

    assert {ME: "new", "third": "third"} == {session.id: session.name for session in from_index(env.paths).values()}


@pytest.mark.parametrize("kept", [0, 1, 40], ids=["nothing", "a byte", "a torn line"])
def test_a_log_shorter_than_its_cursor_is_folded_from_scratch(env: Env, kept: int) -> None:
    written(env.paths)
    with env.paths.log(ME).open("r+b") as log:
        log.truncate(kept)

    assert from_scratch(env.paths) == from_index(env.paths)


def test_a_log_that_was_replaced_is_folded_from_scratch(env: Env) -> None:
    written(env.paths)
    other = env.paths.log(ME).with_name("other")
    other.write_bytes(env.paths.log(OTHER).read_bytes() * 3)
    other.replace(env.paths.log(ME))

    assert from_scratch(env.paths) == from_index(env.paths)


def test_a_fleet_log_that_was_replaced_voids_the_index(env: Env) -> None:
    written(env.paths)
    env.paths.fleet_log.write_bytes(b"")

    assert {} == from_index(env.paths)


def test_a_deleted_log_removes_its_events(env: Env) -> None:
    written(env.paths)
    env.paths.log(ME).unlink()

    assert from_scratch(env.paths) == from_index(env.paths)
    assert 0 == from_index(env.paths)[SessionId(ME)].generation


def spoil(path: Path, how: str) -> None:
    with path.open("r+b") as file:
        if how == "emptied":
            file.truncate(0)
        elif how == "cut in the middle":
            file.truncate(path.stat().st_size // 2)
        elif how == "no database":
            file.write(b"this is a letter, not a database")
        elif how == "overwritten pages":
            file.seek(1024)
            file.write(random.Random(1).randbytes(path.stat().st_size - 1024))


@pytest.mark.parametrize("how", ["emptied", "cut in the middle", "no database", "overwritten pages"])
def test_a_damaged_index_changes_no_result(env: Env, how: str) -> None:
    written(env.paths)
    spoil(env.paths.index, how)
    fold = FleetIndex(env.paths)

    load_cache(env.paths.index, fold)

    assert from_scratch(env.paths) == read_all(fold)


@pytest.mark.parametrize("how", ["cut in the middle", "no database", "overwritten pages"])
def test_a_damaged_index_is_set_aside_and_built_again(env: Env, how: str) -> None:
    fold = written(env.paths)
    spoil(env.paths.index, how)
    spoilt = env.paths.index.read_bytes()
    keeper = FleetCache(env.paths.index, clock=lambda: NOW)

    assert not keeper.write(fold, (), ())
    assert keeper.write(fold, (), ())

    keeper.close()
    assert spoilt == env.paths.index.with_name(f"index.db~{int(NOW)}").read_bytes()
    assert from_scratch(env.paths) == from_index(env.paths)


def test_one_bad_page_is_enough_to_set_an_index_aside(env: Env) -> None:
    crowd(env)
    fold = written(env.paths)
    pages = env.paths.index.read_bytes()
    leaf = max(at for at in range(0, len(pages), 4096) if pages[at] == 0x0A)
    with env.paths.index.open("r+b") as file:
        file.seek(leaf)
        file.write(random.Random(1).randbytes(4096))

    assert not FleetCache(env.paths.index).write(fold, (), ())

    assert [pages[:100]] == [path.read_bytes()[:100] for path in env.paths.state.glob("index.db~*")]


def test_an_unreadable_row_voids_the_index(env: Env) -> None:
    written(env.paths)
    database = connect(env.paths.index, writing=True)
    database.execute("UPDATE session SET folded = x'c1' WHERE id = ?", (ME,))
    database.close()

    assert not is_used(env.paths)


@pytest.mark.parametrize(
    "change",
    ["UPDATE fleet SET fold = 'another'", "DELETE FROM fleet", "PRAGMA user_version = 0", "DROP TABLE session"],
)
def test_rows_of_another_fold_or_schema_are_not_used_and_are_built_again(env: Env, change: str) -> None:
    fold = written(env.paths)
    database = connect(env.paths.index, writing=True)
    database.execute(change)
    database.close()
    assert not is_used(env.paths)

    keeper = FleetCache(env.paths.index)
    until(lambda: keeper.write(fold, (), ()), what="the rebuilt index")

    keeper.close()
    assert is_used(env.paths)


def imported(module: str) -> set[str]:
    """Our modules that *module* imports, by path in the package, and those that these import."""
    found: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in found or not (PACKAGE / name).is_file():
            continue
        found.add(name)
        wanted = [node for node in nodes(parsed(PACKAGE / name)) if isinstance(node, ast.ImportFrom)]
        names = [f"{node.module}{part}" for node in wanted for part in ("", *(f".{name.name}" for name in node.names))]
        waiting += [f"{name.removeprefix('kasmon.').replace('.', '/')}.py" for name in names]
    return found


def test_the_version_of_the_fold_covers_all_code_that_it_depends_on() -> None:
    assert set(fleet_cache.FOLDED_BY) == imported("store/fleet_index.py") - {"errors.py", "paths.py"}


@pytest.mark.parametrize("changed", fleet_cache.FOLDED_BY)
def test_a_changed_fold_voids_the_index(
    env: Env, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    for name in fleet_cache.FOLDED_BY:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PACKAGE / name, tmp_path / name)
    assert fleet_cache.FOLD == fleet_cache.fold_name(tmp_path)
    written(env.paths)
    with (tmp_path / changed).open("a") as source:
        source.write("KEPT_RECEIPTS = 3\n")
    monkeypatch.setattr(fleet_cache, "FOLD", fleet_cache.fold_name(tmp_path))

    assert not is_used(env.paths)


def test_without_its_source_the_fold_has_its_version_number(tmp_path: Path) -> None:
    assert kasmon.__version__ == fleet_cache.fold_name(tmp_path)


def test_the_index_of_a_newer_kasmon_is_neither_read_nor_written(env: Env) -> None:
    fold = written(env.paths)
    database = connect(env.paths.index, writing=True)
    database.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    database.close()
    before = env.paths.index.read_bytes()
    keeper = FleetCache(env.paths.index)

    assert not is_used(env.paths)
    assert not keeper.write(fold, (), ())

    keeper.close()
    assert before == env.paths.index.read_bytes()


def test_an_older_schema_is_brought_up_to_date_in_place(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    fold = written(env.paths)
    inode = env.paths.index.stat().st_ino
    monkeypatch.setattr(
        fleet_cache, "MIGRATIONS", (*MIGRATIONS, lambda database: database.execute("CREATE TABLE more (x)"))
    )
    assert not is_used(env.paths)
    keeper = FleetCache(env.paths.index)

    assert keeper.write(fold, (), ())

    keeper.close()
    assert from_scratch(env.paths) == from_index(env.paths)
    assert inode == env.paths.index.stat().st_ino


def test_a_reader_can_change_nothing_and_leaves_no_trace(env: Env) -> None:
    written(env.paths)
    before = {path.name: path.stat().st_mtime_ns for path in env.paths.state.iterdir()}
    database = connect(env.paths.index)

    with pytest.raises(sqlite3.OperationalError):
        database.execute("DELETE FROM session")
    database.close()
    assert from_scratch(env.paths) == from_index(env.paths)
    assert before == {path.name: path.stat().st_mtime_ns for path in env.paths.state.iterdir()}


def test_a_reader_makes_no_index_where_there_is_none(env: Env) -> None:
    assert not is_used(env.paths)
    assert not env.paths.index.exists()


def test_the_index_is_private_has_no_memory_map_and_no_write_ahead_log(env: Env) -> None:
    written(env.paths)
    for writing in (True, False):
        database = connect(env.paths.index, writing=writing)
        assert [(0,)] == database.execute("PRAGMA mmap_size").fetchall()
        assert [("delete",)] == database.execute("PRAGMA journal_mode").fetchall()
        assert [(int(not writing),)] == database.execute("PRAGMA query_only").fetchall()
        database.close()

    assert 0o600 == env.paths.index.stat().st_mode & 0o777


def test_a_locked_index_is_written_later_and_read_from_the_logs(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_cache, "BUSY_S", 0.05)
    fold = written(env.paths)
    other = connect(env.paths.index, writing=True)
    other.execute("BEGIN EXCLUSIVE")
    keeper, reader, later = FleetCache(env.paths.index), FleetIndex(env.paths), FleetIndex(env.paths)
    env.tells(ME, events.MessageWritten(at=NOW, text="while it is locked"))
    truth = from_scratch(env.paths)

    assert not load_cache(env.paths.index, reader)
    assert truth == read_all(reader)
    assert truth == read_all(fold)
    assert not keeper.write(fold, [SessionId(ME)], ())
    other.close()
    assert keeper.write(fold, [SessionId(ME)], ())
    keeper.close()

    assert load_cache(env.paths.index, later)
    assert truth == {session: folded.session for session, folded in later.sessions.items()}


WRITER = """
import sys
from kasmon.paths import user_paths
from kasmon.store.fleet_index import FleetIndex
from kasmon.store.fleet_cache import FleetCache
here = user_paths()
fold, keeper = FleetIndex(here), FleetCache(here.index)
fold.read_fleet()
for session in list(fold.sessions):
    fold.read_session(session)
print("ready", flush=True)
while True:
    keeper.write(fold, list(fold.sessions), ())
"""


def test_a_writer_killed_in_the_middle_costs_nothing_but_time(env: Env) -> None:
    crowd(env)
    truth = from_scratch(env.paths)
    environment = {"PATH": os.environ["PATH"], "HOME": str(env.folder), **env.paths.environment_variables()}
    for _ in range(5):
        writer = subprocess.Popen([sys.executable, "-c", WRITER], env=environment, stdout=subprocess.PIPE)
        assert writer.stdout
        writer.stdout.readline()
        until(lambda: env.paths.index.exists(), what="a first write")
        writer.send_signal(signal.SIGKILL)
        writer.communicate()

        fold = FleetIndex(env.paths)
        load_cache(env.paths.index, fold)
        assert truth == read_all(fold)
    written(env.paths)
    assert truth == from_index(env.paths)


FULL = f"""
import resource
{WRITER.partition("print")[0]}
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
try:
    keeper.write(fold, (), ())
except Exception as error:
    print(type(error).__name__, error)
"""


def test_a_full_disk_is_an_error_that_names_it(env: Env) -> None:
    crowd(env)
    environment = {"PATH": os.environ["PATH"], "HOME": str(env.folder), **env.paths.environment_variables()}

    told = subprocess.run([sys.executable, "-c", FULL], env=environment, capture_output=True, text=True, check=True)

    assert told.stdout.startswith(UnavailableError.__name__)
    assert from_scratch(env.paths) == read_all(FleetIndex(env.paths))


@pytest.mark.parametrize("way", ["a folder", "a link"])
def test_an_index_that_the_system_refuses_to_open_is_an_error_that_names_it_and_is_written_later(
    env: Env, way: str
) -> None:
    target = env.paths.index.with_name("elsewhere")
    if way == "a folder":
        env.paths.index.mkdir()
    else:
        env.paths.index.symlink_to(target)
    index, fold = FleetCache(env.paths.index), FleetIndex(env.paths)
    fold.read_fleet()

    with pytest.raises(UnavailableError, match=r"the index '.*' cannot be written: .*(directory|links)"):
        index.write(fold, fold.sessions, ())

    assert not target.exists(), "no link is followed"
    env.paths.index.unlink() if way == "a link" else env.paths.index.rmdir()
    assert index.write(fold, fold.sessions, ())
    index.close()


def test_only_one_function_of_kasmon_opens_a_database() -> None:
    calls = [
        (path, function.name)
        for path, tree in modules().items()
        for function in nodes(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and node.attr == "connect" and ast.unparse(node.value) == "sqlite3"
    ]

    assert [("kasmon/store/fleet_cache.py", "connect")] == calls
