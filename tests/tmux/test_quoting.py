"""How values stand in tmux commands."""

import pytest

from kasmon.tmux.control import requests
from kasmon.tmux.quoting import argument, command_line, escape_format, exact, own_name, quote_text

NO_IDS = [
    "",
    "%",
    "1",
    "%-1",
    "%1 ; kill-server",
    "%1\nkill-server",
    "%01",
    "=name",
    "abc",
    "{last}",
    "%1;",
    "%١",
    "$x",
]


@pytest.mark.parametrize("target", NO_IDS, ids=repr)
def test_only_an_id_is_a_target(target: str) -> None:
    with pytest.raises(ValueError, match="no tmux id"):
        exact(target)


@pytest.mark.parametrize("target", ["$0", "@12", "%3456"])
def test_ids_pass(target: str) -> None:
    assert target == exact(target)


@pytest.mark.parametrize("name", ["", "-x", "a.b", "a:b", "a b", "#(id)", "x" * 41, "a\n", "é", "_km;"], ids=repr)
def test_a_users_name_is_not_one_of_ours(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name"):
        own_name(name)


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "a\0b"], ids=repr)
def test_text_that_would_start_a_new_command_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="contains a line break or NUL"):
        quote_text(text)
    with pytest.raises(ValueError, match="one line"):
        requests.command(f"display-message {text}")


def test_an_empty_line_would_detach_us_and_is_refused() -> None:
    with pytest.raises(ValueError, match="one line"):
        requests.command(" ")


def test_quotes_end_no_word() -> None:
    assert "'it'\\''s'" == quote_text("it's")


def test_a_semicolon_ends_no_argument() -> None:
    assert "echo hi\\;" == argument("echo hi;")
    assert "a;b" == argument("a;b")


def test_formats_are_escaped() -> None:
    assert "##(touch x) ##{pid}" == escape_format("#(touch x) #{pid}")


def test_a_single_word_is_passed_to_no_shell() -> None:
    assert ["/bin/sh", "-c", 'exec "$0"', "my program"] == command_line(["my program"])
    with pytest.raises(ValueError, match="no command"):
        command_line([])


@pytest.mark.parametrize(
    "build",
    [
        lambda target: requests.capture(target),
        lambda target: requests.screen(target),
        lambda target: requests.row(target, 0),
        lambda target: requests.screen_facts(target),
        lambda target: requests.pane_text(target),
        lambda target: requests.keys(target, b"x")[0],
        lambda target: requests.press(target, b"x"),
        lambda target: requests.paste(target, "buffer"),
        lambda target: requests.resize(target, 80, 24),
        lambda target: requests.rename(target, "x"),
        lambda target: requests.kill_window(target),
    ],
)
def test_every_request_checks_its_target(build: object) -> None:
    assert callable(build)
    with pytest.raises(ValueError, match="no tmux id"):
        build("%1 ; kill-server")


def test_keys_are_hex_in_pieces_of_at_most_256_bytes() -> None:
    lines = [piece.line for piece in requests.keys("%1", bytes(range(256)) * 2 + b"\n;")]

    assert 3 == len(lines)
    assert "send-keys -t %1 -H 0a 3b" == lines[2]
    assert all(set(line.removeprefix("send-keys -t %1 -H ")) <= set("0123456789abcdef ") for line in lines)
