"""What a terminal printed, on disk: numbered, bounded, readable while it is written, gone with its session."""

import stat
from pathlib import Path

from kasmon.store.terminal_record import TerminalRecord, everything, forget, number_lines, parts, read, screen


def opened(folder: Path, limit_bytes: int = 100_000) -> TerminalRecord:
    record = TerminalRecord(folder, limit_bytes)
    record.open(6)
    return record


def lines(folder: Path) -> list[tuple[int, str]]:
    return [(number, text) for number, _, text in number_lines(everything(folder))]


def test_lines_are_numbered_from_the_first_on_and_the_screen_is_after_them(tmp_path: Path) -> None:
    record = opened(tmp_path / "terminal")
    record.append(["one", "two"], 1.0)
    record.append(["three"], 2.0)
    record.show(["$ _"], 3.0)

    assert [(0, "one"), (1, "two"), (2, "three"), (3, "$ _")] == lines(record.folder)


def test_the_next_writer_continues_where_the_last_one_ended(tmp_path: Path) -> None:
    opened(tmp_path / "terminal").append([f"line {n}" for n in range(10)], 1.0)
    record = TerminalRecord(tmp_path / "terminal", 100_000)

    assert ["line 8", "line 9"] == record.open(2)
    record.append(["line 10"], 2.0)
    assert (10, "line 10") == lines(record.folder)[-1]


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    record = opened(tmp_path / "terminal")
    record.append(["one"], 1.0)
    record.show(["two"], 1.0)

    assert 0o700 == stat.S_IMODE(record.folder.stat().st_mode)
    assert {0o600} == {stat.S_IMODE(path.stat().st_mode) for path in record.folder.iterdir()}


def test_the_oldest_lines_are_dropped_at_the_size_limit_and_the_rest_keeps_its_numbers(tmp_path: Path) -> None:
    record = opened(tmp_path / "terminal", limit_bytes=4000)
    for number in range(500):
        record.append([f"line {number}"], 1.0)
    kept = lines(record.folder)

    assert sum(part.stat().st_size for part in parts(record.folder)) <= 4000
    assert 20 < len(kept) < 100
    assert [(number, f"line {number}") for number in range(kept[0][0], 500)] == kept


def test_a_line_cut_by_a_dead_writer_is_skipped_and_ended(tmp_path: Path) -> None:
    record = opened(tmp_path / "terminal")
    record.append(["one"], 1.0)
    with parts(record.folder)[0].open("ab") as file:
        file.write(b'{"at":2.0,"first":1,"li')
    record = opened(tmp_path / "terminal")
    record.append(["two"], 3.0)

    assert [(0, "one"), (1, "two")] == lines(record.folder)


def test_missing_lines_are_reported_and_earlier_ones_do_not_count_as_recorded(tmp_path: Path) -> None:
    record = opened(tmp_path / "terminal")
    record.append(["one"], 1.0)
    record.append(["nine"], 2.0, gap=True)

    assert [False, True] == [printed.gap for printed in read(parts(record.folder)[0])]
    assert ["nine"] == TerminalRecord(record.folder, 1000).open(6)


def test_a_removed_or_missing_record_is_empty(tmp_path: Path) -> None:
    record = opened(tmp_path / "terminal")
    record.append(["one"], 1.0)
    forget(record.folder)
    forget(record.folder)

    assert not record.folder.exists()
    assert [] == parts(record.folder)
    assert screen(record.folder) is None
