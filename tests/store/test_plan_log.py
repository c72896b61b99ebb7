"""The log of one plan's run, as every process of ours may add to it."""

import threading

import pytest

from kasmon.errors import PlanNotFoundError, UnavailableError
from kasmon.model.plan.events import PlanBegan, TaskBegan, TaskClaimed
from kasmon.model.plan.plan import Task
from kasmon.model.plan.progress import TaskState
from kasmon.paths import Paths, private_folder, user_paths
from kasmon.store.plan_log import PlanLog, plans

BEGAN = PlanBegan(at=1, plan="tidy", name="tidy", file="/f.md", folder="/", digest="d")


@pytest.fixture
def where() -> Paths:
    where = user_paths()
    where.make()
    for folder in (where.plans, where.plan("tidy")):
        private_folder(folder)
    return where


@pytest.fixture
def book(where: Paths) -> PlanLog:
    book = PlanLog(where, "tidy")
    book.add(BEGAN)
    return book


def test_a_plan_log_folds_events_added_since_it_was_last_read(book: PlanLog) -> None:
    assert book.more()
    assert not book.more()
    book.add(TaskBegan(at=2, task="a", attempt=1, session="s"))

    assert book.more()
    assert ("/f.md", TaskState.RUNNING) == (book.run.file, book.run.of("a").state)


def test_a_later_reader_gets_the_same_state(where: Paths, book: PlanLog) -> None:
    book.add(TaskBegan(at=2, task="a", attempt=1, session="s"))
    book.record_decision("pause")
    other = PlanLog(where, "tidy")
    other.more()
    book.more()

    assert other.run == book.run
    assert "paused" == other.run.state


def test_an_unwritten_plan_log_is_empty(where: Paths) -> None:
    book = PlanLog(where, "tidy")

    assert not book.more()
    assert (0, "") == (book.size(), book.run.file)


def test_a_partial_line_is_left_until_it_is_whole(book: PlanLog) -> None:
    path = book.folder / "events.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"kind":"plan.steered","at":5,"de')
    assert book.more()
    assert not book.more()

    path.write_bytes(whole + b'{"kind":"plan.steered","at":5,"deed":"pause"}\n')
    assert book.more()
    assert "paused" == book.run.state


@pytest.mark.parametrize("line", [b"\n", b"\0\0\0\n", b"no fact\n", b'{"kind":"task.flew","at":1}\n', b"\xff\xfe\n"])
def test_a_broken_line_does_not_end_the_log(book: PlanLog, line: bytes) -> None:
    with (book.folder / "events.jsonl").open("ab") as log:
        log.write(line)
    book.record_decision("pause")

    assert book.more()
    assert "paused" == book.run.state


def test_many_writers_lose_nothing(where: Paths, book: PlanLog) -> None:
    def write(number: int) -> None:
        own = PlanLog(where, "tidy")
        for attempt in range(1, 11):
            own.add(TaskBegan(at=attempt, task=f"t{number}", attempt=attempt, session="s"))

    writers = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    book.more()

    assert [10] * 8 == [book.run.of(f"t{number}").attempt for number in range(8)]


def test_a_failed_write_gives_an_error(book: PlanLog) -> None:
    (book.folder / "events.jsonl").unlink()
    (book.folder / "events.jsonl").mkdir()

    with pytest.raises(UnavailableError, match=r"cannot write .*events\.jsonl"):
        book.record_decision("pause")


def test_the_agreed_text_is_found_under_its_own_name(book: PlanLog) -> None:
    with pytest.raises(PlanNotFoundError):
        _ = book.agreed
    private_folder(book.folder / "agreed")
    (book.folder / "agreed" / ".half-written").touch()
    (book.folder / "agreed" / "tidy.toml").touch()

    assert "tidy.toml" == book.agreed.name


def test_results_have_the_number_of_their_task_for_any_name(book: PlanLog) -> None:
    assert book.folder / "results" / "task-3.md" == book.result(Task(id="../../etc/passwd", number=3))


def test_all_plans_are_listed_by_their_ids(where: Paths, book: PlanLog) -> None:
    (where.plans / "a-file").touch()

    assert ["tidy"] == plans(where)
    assert [] == plans(Paths(state=where.state / "no", given_runtime=where.runtime, config=where.config))


def test_events_have_the_actor_of_each_decision(book: PlanLog) -> None:
    book.add(TaskBegan(at=2, task="a", attempt=1, session="s"))
    book.add(TaskClaimed(at=3, task="a", attempt=1, by="said"))
    book.record_decision("replace", "a", "codex")
    book.more()

    assert ("codex", TaskState.WAITING) == (book.run.of("a").agent, book.run.of("a").state)
