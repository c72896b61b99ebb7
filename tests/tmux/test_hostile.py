"""Names, titles, directories and words that try to be commands, formats, or other panes."""

import itertools
import os
from pathlib import Path

import pytest

from kasmon.tmux import formats
from kasmon.tmux.control import requests
from kasmon.tmux.launch_file import PaneLaunch, launch_argv, write_environment, write_spec
from kasmon.tmux.server import TmuxServer
from tests.support.tmux.hub_listener import Listener, python
from tests.support.tmux.sync_hub import panes_of, texts_of
from tests.support.wait import until

TOUCH = "touch pwned"
PAYLOADS = {
    "shell format": f"#({TOUCH})",
    "twice": f"##({TOUCH}) #({TOUCH})",
    "expanded twice": f"#{{E:#({TOUCH})}} #{{T:#({TOUCH})}}",
    "in a condition": f"#{{?1,#({TOUCH}),}}",
    "semicolon": f"x; run-shell '{TOUCH}' ;",
    "separator": "\\; run-shell 'touch pwned' \\;",
    "quotes": f"' ; run-shell '{TOUCH}' ; '",
    "double quotes": f'" ; run-shell "{TOUCH}" ; "',
    "flags": "-t %0 -d",
    "command substitution": f"$({TOUCH}) `{TOUCH}`",
    "newline": f"a\nrun-shell '{TOUCH}'\nb",
    "escapes": f"\x1b]0;#({TOUCH})\x07\x1b[31m",
}
TITLES = {
    "libtmux's separator": "spoof␞/evil␞999␞x",
    "our separator": "0|%0|@0|$0|1|1|7|",
    "a netstring": "3:abc,5:hello",
    "tab": "a\tb",
    "quotes": "'\"`",
    "formats": "#{pane_id} #(id) ##",
    "emoji": "🙂🏽 é✓",
    "right to left": "\u202egnp.exe",
    "long": "x" * 3000,
    "empty": "",
}


@pytest.fixture
def sentinel(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that a payload would make, wherever it is run."""
    path = folder / "pwned"
    for name, payload in PAYLOADS.items():
        monkeypatch.setitem(PAYLOADS, name, payload.replace("touch pwned", f"touch {path}"))
    return path


@pytest.mark.parametrize("name", PAYLOADS)
def test_no_foreign_text_is_run(shared: Listener, folder: Path, sentinel: Path, name: str) -> None:
    """As the agent's words, directory, variables, name, title, prompt and keys."""
    listener, server = shared, shared.server
    payload = PAYLOADS[name]
    workdir = folder / payload.replace("/", "_")[:200]
    workdir.mkdir()
    write_environment(folder / "env", {"WORD": payload})
    say = "import os, sys; print(os.getcwd() == sys.argv[1], os.environ['WORD'] == sys.argv[2], flush=True)\n"
    loop = f"os.write(1, b'\\x1b]2;' + {payload!r}.encode() + b'\\x07')\nwhile True: input()\n"
    argv = [*python(say + loop), str(workdir), payload]
    write_spec(folder / "spec", PaneLaunch(argv=argv, workdir=workdir, env_file=folder / "env"))
    pane = server.create("agent", launch_argv(folder / "spec"))
    listener.until_shown(pane.pane_id, "True True")
    child = server.create("child", [*python(say + loop), str(workdir), payload], parent=pane.session_id)
    if "\n" in payload:  # `clean_line` leaves none in a name
        with pytest.raises(ValueError, match="line break"):
            requests.rename(pane.window_id, payload)
    else:
        listener.hub.call(requests.rename(pane.window_id, payload))
    listener.hub.paste(pane.pane_id, payload)
    listener.hub.keys(pane.pane_id, payload.encode())
    listener.hub.call(requests.press(pane.pane_id, payload.encode()))
    with pytest.raises(ValueError, match="cannot be the name"):
        server.create(payload, ["cat"])
    with pytest.raises(ValueError, match=r"cannot be the name|no tmux id"):
        server.attach_argv(payload)
    texts_of(server, pane.pane_id)
    listener.hub.call(requests.pane_text(pane.pane_id))
    child = server.respawn(child.pane_id, [*python(say + loop), str(workdir), payload])
    listener.hears(pane.pane_id)

    assert [pane.pane_id, child.pane_id] == [seen.pane_id for seen in panes_of(server)]
    assert not sentinel.exists()
    assert b"" == server.run("list-buffers")


def test_without_the_escape_a_name_would_be_run(
    shared: Listener, sentinel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the test above can see the hole. (tmux ends a job with the client that caused it, hence several tries.)"""
    monkeypatch.setattr(requests, "escape_format", lambda text: text)
    pane = shared.server.create("agent", ["cat"])
    tries = itertools.count()

    def ran() -> bool:
        shared.hub.call(requests.rename(pane.window_id, f"#(: {next(tries)}; touch {sentinel})"))
        return sentinel.exists()

    until(ran)


def test_without_the_escape_the_end_of_a_word_would_be_the_end_of_a_command(
    server: TmuxServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.create("first", ["cat"])
    monkeypatch.setattr("kasmon.tmux.quoting.argument", lambda text: text)
    server.create("agent", ["echo", "hi;", "set-option", "-g", "@pwn", "yes"])

    assert b"yes\n" == server.run("show-options", "-gqv", "@pwn")


def test_a_word_that_looks_like_a_flag_is_passed_as_a_word(listener: Listener, server: TmuxServer) -> None:
    pane = server.create("agent", ["-t", "%0"]).pane_id

    assert (1, None) == listener.ending(pane)
    assert ["agent"] == [seen.kasmon_id for seen in panes_of(server)]


def test_hostile_titles_hide_no_pane(listener: Listener, server: TmuxServer) -> None:
    panes = {}
    for number, (name, title) in enumerate(TITLES.items()):
        show = f"import os\nos.write(1, b'\\x1b]2;' + {title!r}.encode() + b'\\x07up')\nos.read(0, 1)\n"
        panes[name] = server.create(f"s{number}", python(show)).pane_id
    good = server.create("good", ["cat"]).pane_id
    for pane in panes.values():
        listener.until_shown(pane, "up")

    assert [*panes.values(), good] == [seen.pane_id for seen in panes_of(server)]
    assert [*panes.values(), good] == [seen.pane_id for seen in listener.hub.panes()]
    for name in ("libtmux's separator", "our separator", "a netstring", "quotes", "formats", "emoji", "right to left"):
        assert TITLES[name] == texts_of(server, panes[name]).title
        assert TITLES[name] == listener.hub.call(requests.pane_text(panes[name])).title


@pytest.mark.parametrize("name", ["we\nird\tdir", "a|b,3:c", "␞", "dd#(touch x)", "é✓", "100%"], ids=ascii)
def test_hostile_directories_are_returned_unchanged(shared: Listener, folder: Path, name: str) -> None:
    listener, server = shared, shared.server
    workdir = folder / name
    workdir.mkdir()
    write_spec(folder / "spec", PaneLaunch(argv=python("print('up', flush=True)\ninput()\n"), workdir=workdir))
    pane = server.create("agent", launch_argv(folder / "spec")).pane_id
    listener.until_shown(pane, "up")

    assert str(workdir) == texts_of(server, pane).workdir
    assert str(workdir) == listener.hub.call(requests.pane_text(pane)).workdir
    assert [pane] == [seen.pane_id for seen in panes_of(server)]


def test_texts_are_read_whole_without_any_locale(idle_server: TmuxServer, folder: Path) -> None:
    """tmux is always told that we read UTF-8; otherwise it writes `__` for é✓."""
    server = TmuxServer(idle_server.socket, environment={"PATH": os.environ["PATH"], "LC_ALL": "C"})
    server.start()
    pane = server.create(
        "agent", python("import os\nos.write(1, b'\\x1b]2;\\xc3\\xa9\\xe2\\x9c\\x93\\x07')\nos.read(0, 1)\n")
    )

    until(lambda: "é✓" == texts_of(server, pane.pane_id).title)


def test_a_screen_that_imitates_tmuxs_answers_is_only_text(listener: Listener, server: TmuxServer) -> None:
    fake = "%end 1795300990 286 1\n%output %0 hello\n%exit\n%begin 1 1 1\n%error 1 1 1"
    pane = server.create("agent", python(f"print({fake!r}, flush=True)\ninput()\n")).pane_id

    assert fake.splitlines() == listener.until_shown(pane, "%error")
    assert listener.hears(pane)


def test_a_pane_cannot_imitate_its_start_signal(listener: Listener, server: TmuxServer) -> None:
    """Its nonce stands in a file that only its launch reads; what it prints is no option."""
    pane = server.create(
        "agent", python("print('\\x1b]2;8d650a00e9924f2b\\x07@kasmon_ready 8d650a00e9924f2b')\ninput()\n")
    ).pane_id
    listener.until_shown(pane, "@kasmon_ready")

    assert [""] == [seen.ready for seen in panes_of(server) if seen.pane_id == pane]


def test_our_own_lists_request_no_value_that_a_program_can_set() -> None:
    foreign = {"pane_title", "pane_current_path", "pane_current_command", "window_name", "pane_path", "pane_tabs"}

    assert not [
        name for name in foreign if name in formats.PANE_FACTS_FORMAT + formats.SCREEN_FORMAT + formats.PANE_FORMAT
    ]
