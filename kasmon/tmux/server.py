"""kasmon's own tmux server, and the operations on its panes.

Every call is one short tmux process, bounded, and safe from any thread. Continuous traffic goes through `hub`.
"""

import uuid
from collections.abc import Sequence

from kasmon.errors import TmuxCommandError
from kasmon.tmux.formats import (
    PANE_FORMAT,
    CreatedPane,
    read_pane,
)
from kasmon.tmux.quoting import argument, command_line, escape_format, exact, own_name
from kasmon.tmux.server_config import CELLS
from kasmon.tmux.server_process import ServerProcess


class TmuxServer(ServerProcess):
    """kasmon's tmux server at a socket; `start()` it first."""

    def create(
        self, session_id: str, argv: Sequence[str], *, size: tuple[int, int] = CELLS, parent: str | None = None
    ) -> CreatedPane:
        """Create a pane that runs *argv*: in a session named *session_id*, or a new window of session *parent* (`$3`).

        No client's current window changes. The program starts in `/`; `launch.py` changes to the agent's directory, as
        tmux would expand a directory's name as a format. *size* is columns, rows.

        Raises:
            TmuxServerGoneError: if the server does not run.
            TmuxCommandError: if the name is taken or the parent is gone.
            ValueError: if *session_id* is no valid name, or *argv* is empty.
        """
        name = own_name(session_id)
        words = command_line(argv)
        if parent is None:
            where = ["new-session", "-d", "-s", name, "-x", str(size[0]), "-y", str(size[1])]
            window = f"={name}:"
        else:
            where = ["new-window", "-d", "-t", f"{exact(parent)}:"]
            window = f"{exact(parent)}:={name}"
        tag = [";", "set-option", "-w", "-t", window, "@kasmon_id", name]
        fit = [";", "resize-window", "-t", window, "-x", str(size[0]), "-y", str(size[1])] if parent else []
        unpin = [";", "set-option", "-w", "-u", "-t", window, "window-size"] if parent else []
        answer = self.run(*where, "-n", name, "-c", "/", "-P", "-F", PANE_FORMAT, "--", *words, *tag, *fit, *unpin)
        pane = read_pane(answer)
        if pane is None:
            raise TmuxCommandError(where[0], f"it answered {answer!r}")
        return pane

    def respawn(self, pane: str, argv: Sequence[str]) -> CreatedPane:
        """Run *argv* in the window of *pane*, in place of its program; return the new pane that replaces *pane*.

        After a respawn, tmux 3.3a continues to count the old program's bytes. It crashes, with all agents, if a client
        had not read them all. So this makes a new pane and kills the old one.

        Raises:
            TmuxServerGoneError, TmuxCommandError: if there is no such server or pane.
        """
        target = exact(pane)
        make = ["split-window", "-d", "-t", target, "-c", "/", "-P", "-F", PANE_FORMAT, "--", *command_line(argv)]
        try:
            answer = self.run(*make, ";", "kill-pane", "-t", target)
        except TmuxCommandError as error:
            if not error.reason.startswith("no space"):
                raise
            self.resize(target, *CELLS)  # the window holds both panes for a moment
            answer = self.run(*make, ";", "kill-pane", "-t", target)
        made = read_pane(answer)
        if made is None:
            raise TmuxCommandError("split-window", f"it answered {answer!r}")
        return made

    def rename(self, window: str, name: str) -> None:
        """Show *name*, which a person chose, to attached clients; it is never read as a format."""
        target = exact(window)
        self.run(
            *("set-option", "-w", "-t", target, "@kasmon_name", argument(name), ";"),
            *("rename-window", "-t", target, "--", argument(escape_format(name))),
        )

    def resize(self, window: str, width: int, height: int) -> None:
        """Resize *window* until a client attaches, whose size then counts."""
        target = exact(window)
        self.run(
            *("resize-window", "-t", target, "-x", str(max(width, 1)), "-y", str(max(height, 1)), ";"),
            *("set-option", "-w", "-u", "-t", target, "window-size"),
        )

    def load(self, text: bytes) -> str:
        """Load *text* into a new buffer, over a pipe, and return the buffer's name; `Hub.paste_buffer` deletes it.

        Raises:
            ValueError: if *text* is empty: tmux stores no empty buffer.
        """
        if not text:
            raise ValueError("nothing to paste")
        buffer = f"kasmon-{uuid.uuid4().hex}"
        self.run("load-buffer", "-b", buffer, "-", stdin=text)
        return buffer

    def attach_argv(self, session: str, window: str | None = None) -> list[str]:
        """Return the command that shows *session* (our id, or `$3`) in a terminal; with *window* (`@5`), that one."""
        target = exact(session) if session.startswith("$") else f"={own_name(session)}"
        place = f"{target}:{exact(window)}" if window else target
        return [self.program, "-u", "-S", str(self.socket), "attach-session", "-t", place]
