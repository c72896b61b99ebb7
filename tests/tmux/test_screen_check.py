"""tmux itself says whether rows that were read still stand there, whatever signs they hold."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.tmux.quoting import quote_text
from kasmon.tmux.screen_check import LONGEST, MOST, changed
from kasmon.tmux.server import TmuxServer
from tests.support.wait import until

SIZE = (100, 30)
ROWS = [
    "● working on 想要 继续吗 files",
    "─" * 100,
    " Bash command  #{pane_id} #(touch pwned) #[fg=red] %H {a,b} | x:y ; $HOME 'quoted' \"too\"",
    " rm -rf build && make * [a-z]? \\n é ｗｉｄｅ 👍🏽 done",
    " Do you want to proceed?",
    " ❯ 1. Yes",
    "   2. Yes, and don't ask again for: rm -rf build:*",
    "   3. No",
    "Esc to cancel",
]
READ = range(2, 8)


@pytest.fixture(scope="module")
def server() -> Iterator[TmuxServer]:
    folder = Path(tempfile.mkdtemp(prefix="kst-", dir="/tmp"))
    server = TmuxServer(folder / "t.sock", environment={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"})
    server.start()
    server.run("new-session", "-d", "-s", "x", "-x", "100", "-y", "30", "sleep 600")
    yield server
    server.kill_server()
    shutil.rmtree(folder)


def is_changed(server: TmuxServer, rows: list[str], read: range = READ, size: tuple[int, int] = SIZE) -> bool:
    """What tmux says, of the screen that shows `ROWS`."""
    said = server.run("display-message", "-p", "-t", "=x:", changed(size, rows, read)).decode().strip()
    assert said in ("0", "1"), said
    return said == "1"


@pytest.fixture(scope="module")
def shown(server: TmuxServer, tmp_path_factory: pytest.TempPathFactory) -> TmuxServer:
    """The server, whose pane shows `ROWS`."""
    file = tmp_path_factory.mktemp("shown") / "rows"
    file.write_text("\n".join(ROWS))
    server.run("respawn-pane", "-k", "-t", "=x:", f"cat {file}; sleep 600")
    until(lambda: b"Esc to cancel" in server.run("capture-pane", "-p", "-t", "=x:"))
    return server


def test_an_unchanged_screen_matches(shown: TmuxServer) -> None:
    assert not is_changed(shown, ROWS)
    assert not is_changed(shown, ROWS, range(len(ROWS)))


@pytest.mark.parametrize("at", [*READ])
def test_a_changed_word_in_any_row_does_not_match(shown: TmuxServer, at: int) -> None:
    words = ROWS[at].split()
    longest = max(words, key=len)
    rows = [*ROWS[:at], ROWS[at].replace(longest, "another"), *ROWS[at + 1 :]]

    assert is_changed(shown, rows)


@pytest.mark.parametrize(
    "rows",
    [
        [*ROWS[:5], "   1. Yes", " ❯ 2. Yes, and don't ask again for: rm -rf build:*", *ROWS[7:]],
        [*ROWS[:5], " ❯ 1. No", ROWS[6], "   3. Yes", ROWS[8]],
        ["", *ROWS],
        ROWS[1:],
    ],
    ids=["the mark", "the labels", "lower", "higher"],
)
def test_a_moved_mark_label_or_row_does_not_match(shown: TmuxServer, rows: list[str]) -> None:
    moved = len(rows) - len(ROWS)

    assert is_changed(shown, rows, range(READ.start + moved, READ.stop + moved))


def test_another_size_does_not_match(shown: TmuxServer) -> None:
    assert is_changed(shown, ROWS, size=(99, 30))


def test_only_letters_digits_and_marks_of_a_row_are_compared() -> None:
    for row in (*ROWS, *(chr(code) * 3 for code in range(256)), "#{l:\udc80}", "a" * 500):
        asked = changed((1, 1), [row], range(1))
        for part in asked.split("#{C:")[1:]:
            pattern = part.partition("}")[0]
            assert len(pattern) <= LONGEST
            assert pattern.count("*") <= 3
            assert all(sign.isascii() and sign.isalnum() for sign in pattern if sign not in "?*❯›●▶►"), pattern
        assert quote_text(asked)


def test_the_lowest_rows_of_a_long_request_are_compared() -> None:
    rows = [f"row {number} of many" for number in range(200)]

    asked = changed((1, 1), rows, range(200))
    assert MOST == asked.count("#{C:")
    assert "row?199?of?many" in asked
