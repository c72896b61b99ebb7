"""What is written to a terminal comes whole, and in one call where the system takes it."""

import os
import threading

import pytest

from kasmon.tui.output import Output


def test_a_whole_screen_is_one_call() -> None:
    """Between two calls the thread that draws would go first."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as there, os.fdopen(writing, "w", encoding="utf-8", buffering=1) as file:
        file.write("kept back, ")
        output = Output(file)
        output.write("▌" * 10_000)

        assert "kept back, " + "▌" * 10_000 == os.read(there.fileno(), 1 << 16).decode()


def test_a_letter_that_the_terminal_does_not_have_is_one_cell() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as there, os.fdopen(writing, "w", encoding="ascii") as file:
        Output(file).write("a▌b")

        assert b"a?b" == os.read(there.fileno(), 100)


def test_a_terminal_that_does_not_wait_gets_all_of_it_too() -> None:
    """Another program that shares it may have set it so."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    got: list[bytes] = []
    with os.fdopen(reading, "rb") as there, os.fdopen(writing, "w", encoding="utf-8") as file:
        reader = threading.Thread(target=lambda: got.append(there.read(1_000_000)))
        reader.start()
        Output(file).write("x" * 1_000_000)
        reader.join(timeout=20)

    assert [1_000_000] == [len(data) for data in got]


def test_a_terminal_that_is_gone_is_told() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", encoding="utf-8") as file, pytest.raises(BrokenPipeError):
        Output(file).write("x")
