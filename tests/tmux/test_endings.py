"""How an agent's end is told, for every way to end."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kasmon.tmux.control import requests
from kasmon.tmux.formats import CreatedPane
from kasmon.tmux.launch_file import PaneLaunch, launch_argv, write_spec
from kasmon.tmux.server import TmuxServer
from tests.support.tmux.hub_listener import Ending, Listener, python
from tests.support.tmux.sync_hub import SyncHub

SUICIDE = "import os, signal; os.kill(os.getpid(), {})\n"
TALKATIVE = "import os, signal; os.write(1, b'last words'); input(); {}\n"
ENDINGS: dict[str, tuple[list[str], Ending]] = {
    "exit 0": (["true"], (0, None)),
    "exit 1": (["false"], (1, None)),
    "exit 7": (["/bin/sh", "-c", "exit 7"], (7, None)),
    "exit 255": (["/bin/sh", "-c", "exit 255"], (255, None)),
    "SIGKILL": (python(SUICIDE.format("signal.SIGKILL")), (None, signal.SIGKILL)),
    "SIGSEGV": (python(SUICIDE.format("signal.SIGSEGV")), (None, signal.SIGSEGV)),
    "SIGTERM": (python(SUICIDE.format("signal.SIGTERM")), (None, signal.SIGTERM)),
    "SIGHUP": (python(SUICIDE.format("signal.SIGHUP")), (None, signal.SIGHUP)),
    "SIGPIPE": (["/bin/sh", "-c", "kill -PIPE $$"], (None, signal.SIGPIPE)),
    "exit 9 after words": (python(TALKATIVE.format("os._exit(9)")), (9, None)),
    "SIGABRT after words": (python(TALKATIVE.format("os.abort()")), (None, signal.SIGABRT)),
    "not found": (["no-such-program"], (127, None)),
    "not executable": (["/etc/passwd"], (126, None)),
    "no directory": (["true"], (127, None)),
    "children that keep the terminal": (["/bin/sh", "-c", "sleep 2 & exit 3"], (3, None)),
    "input at its end": (["/bin/sh", "-c", "cat; exit 0"], (0, None)),  # cat alone may be told as SIGHUP: see `deaths`
}
WORDS = ["exit 9 after words", "SIGABRT after words"]


class Ended:
    """Panes that ended in all these ways at once, on one server."""

    def __init__(self, server: TmuxServer, folder: Path) -> None:
        hub = SyncHub(server)
        self.server, self.listener, self.panes = server, Listener(hub), dict[str, CreatedPane]()
        hub.open()
        for number, (name, (argv, _)) in enumerate(ENDINGS.items()):
            workdir = folder / "gone" if name == "no directory" else folder
            write_spec(folder / f"spec{number}", PaneLaunch(argv=argv, workdir=workdir))
            self.panes[name] = server.create(f"s{number}", launch_argv(folder / f"spec{number}"))
        self.listener.hears(self.panes["input at its end"].pane_id)
        hub.keys(self.panes["input at its end"].pane_id, b"\r\x04")
        for name in WORDS:
            self.listener.until_shown(self.panes[name].pane_id, "last words")
            hub.keys(self.panes[name].pane_id, b"\r")
        self.living = server.create("living", ["cat"]).pane_id


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ended]:
    """One server for the whole table, since tmux tells some deaths by a timer of one second."""
    folder = tmp_path_factory.mktemp("kmt")
    server = TmuxServer(folder / "t.sock")
    server.start()
    ended = Ended(server, folder)
    yield ended
    ended.listener.hub.close()
    server.kill_server()


@pytest.mark.parametrize("name", ENDINGS)
def test_an_end_is_reported_with_its_code_or_signal(ended: Ended, name: str) -> None:
    assert ENDINGS[name][1] == ended.listener.ending(ended.panes[name].pane_id)


def test_each_end_is_reported_once_and_running_ones_are_not(ended: Ended) -> None:
    for pane in ended.panes.values():
        ended.listener.ending(pane.pane_id)
    ended.listener.hub.refresh()
    ended.listener.hears(ended.living)

    assert sorted(pane.pane_id for pane in ended.panes.values()) == sorted(death[0] for death in ended.listener.deaths)


@pytest.mark.parametrize("name", WORDS)
def test_the_last_screen_stays(ended: Ended, name: str) -> None:
    """One row higher: tmux adds a line that says that the pane is dead.

    What is printed in the very moment of the end, tmux 3.3a loses once in some hundred times; so these two wait.
    """
    ended.listener.ending(ended.panes[name].pane_id)

    rows = ended.listener.hub.call(requests.capture(ended.panes[name].pane_id, start="-", ansi=False))
    assert any(b"last words" in row for row in rows)


def test_a_hub_that_connects_later_reports_all_ends(ended: Ended) -> None:
    """The host was not there when they died."""
    for pane in ended.panes.values():
        ended.listener.ending(pane.pane_id)
    later = Listener(SyncHub(ended.server))
    later.hub.open()

    assert sorted(ended.listener.deaths) == sorted(later.deaths)
    later.hub.close()
