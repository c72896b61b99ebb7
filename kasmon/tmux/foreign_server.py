"""Access to the user's own tmux server, for adopted panes: kasmon observes them and types on request, nothing else.

Only allowlisted commands are sent, which change no size, name or option of the user's and end nothing. Our control
client requests no size, gets output only while a pane is watched, applies no environment; `list-clients` shows it.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NoReturn, TypeVar

from kasmon.errors import RefusedError, TmuxCommandError
from kasmon.tmux.control import requests as ask
from kasmon.tmux.control.protocol import NoticeItem
from kasmon.tmux.formats import PANE_FACTS_FORMAT, CreatedPane, PaneFacts, read_pane_facts
from kasmon.tmux.hub import PAUSE_AFTER_S, Hub
from kasmon.tmux.quoting import ID, exact, quote_text
from kasmon.tmux.server import TmuxServer

Answer = TypeVar("Answer")

MAY_RUN: Final = frozenset({"list-panes", "display-message", "load-buffer", "-V"})
"""Commands that a short tmux process may run there. A buffer holds a text until it is pasted."""
MAY_ASK: Final = frozenset(
    {
        "capture-pane",
        "delete-buffer",
        "display-message",
        "if-shell",
        "list-clients",
        "list-panes",
        "paste-buffer",
        "refresh-client",
        "send-keys",
        "switch-client",
    }
)
"""Commands that our control client may send there; `switch-client` moves only this client itself."""
NEVER: Final = frozenset(
    {
        *("kill-pane", "kill-server", "kill-session", "kill-window", "link-window", "move-pane", "move-window"),
        *("new-session", "new-window", "rename-session", "rename-window", "resize-pane", "resize-window"),
        *("respawn-pane", "respawn-window", "run-shell", "set-buffer", "set-environment", "set-hook", "set-option"),
        *("set-window-option", "split-window", "swap-pane", "swap-window", "unlink-window"),
    }
)
"""Commands that no request to it may contain, not even inside an `if-shell`."""
SUBSCRIPTION_FORMAT: Final = (
    "#{S:#{W:#{P:#{pane_id} #{session_id} #{pane_pid} #{pane_dead} #{pane_dead_status} #{pane_dead_signal} "
    "#{window_activity} #{history_size} #{cursor_x} #{cursor_y};}}}"
)
"""The subscription format, which tmux compares once a second, for all panes of all sessions."""


class ForeignServer(TmuxServer):
    """The user's tmux server at *socket*; *lock_folder* is a kasmon folder for the lock file of `quiet`."""

    def __init__(self, socket: Path, lock_folder: Path) -> None:
        super().__init__(socket)
        self._lock_folder = lock_folder

    def run(self, *argv: str, stdin: bytes = b"") -> bytes:
        """As `TmuxServer.run`, for the commands in `MAY_RUN` only. Raises `RefusedError` for any other command."""
        if argv[0] not in MAY_RUN or any(argument == ";" for argument in argv):
            self._refuse(argv[0])
        return super().run(*argv, stdin=stdin)

    def start(self) -> int:
        self._refuse("start-server")

    def kill_server(self, patience_s: float = 2.0) -> None:
        self._refuse("kill-server")

    def heal_socket(self) -> bool:
        """Return whether the server runs; its socket is never recreated."""
        return self.process() is not None

    def everywhere(self) -> list[PaneFacts]:
        """Return the facts of every pane, once for each session that contains it.

        Raises:
            TmuxServerGoneError: if the server does not run.
        """
        lines = self.run("list-panes", "-a", "-F", PANE_FACTS_FORMAT).splitlines()
        return [facts for line in lines if (facts := read_pane_facts(line))]

    def attach_argv(self, session: str, window: str | None = None) -> list[str]:
        """Return the command that shows *session* in a terminal; its client does not affect the window size."""
        argv = super().attach_argv(session, window)
        at = argv.index("attach-session") + 1
        return [*argv[:at], "-E", "-f", "ignore-size", *argv[at:]]

    def create(self, *_: object, **__: object) -> CreatedPane:
        self._refuse("new-session")

    def respawn(self, *_: object, **__: object) -> CreatedPane:
        self._refuse("respawn-pane")

    @property
    def _lock_file(self) -> Path:
        """The lock file, beside our own socket: kasmon puts no file into the user's folder."""
        return self._lock_folder / "foreign.turn"

    def _refuse(self, command: str) -> NoReturn:
        raise build_refusal(command)


class ForeignHub(Hub):
    """A `Hub` for the adopted panes of a foreign server, with one control client.

    tmux compares an unwatched pane once a second. While a pane is watched, our client is in its session and receives
    its output.
    """

    def __init__(self, server: ForeignServer) -> None:
        super().__init__(server)
        self._foreign = server
        self._adopted: set[str] = set()
        self._last_entries: dict[str, str] = {}
        """The last subscription entry of each adopted pane."""
        self._sessions: dict[str, str] = {}
        """The tmux session (`$3`) that each pane is in."""
        self._recheck: set[str] = set()
        """Panes that changed in the last second: `tick` reports them again, for output since then."""
        self._dead: set[str] = set()
        self._client_session = ""
        self._receives_output = False

    def focus(self, windows: Sequence[str]) -> None:
        """Do nothing: the user chooses the current window of their own session."""

    def adopt(self, pane: str) -> None:
        """Report changes of *pane* from now on."""
        self._adopted.add(exact(pane))

    def release(self, pane: str) -> None:
        """Stop reporting changes of *pane*."""
        self._adopted.discard(pane)
        self._last_entries.pop(pane, None)

    def open(self) -> None:
        """Attach to the session of an adopted pane and report adopted panes that no longer exist; idempotent.

        Raises:
            TmuxServerGoneError: if the server does not run.
            TmuxCommandError: if none of the panes exists.
        """
        if self.is_open:
            return
        self.close()
        panes = self._foreign.everywhere()
        self._sessions = {facts.pane_id: facts.session_id for facts in panes}
        self._last_entries, self._recheck, self._receives_output = {}, set(), False
        for pane in self._adopted - self._sessions.keys():
            self._report_closed(pane)
        existing = sorted(self._adopted & self._sessions.keys())
        if not existing:
            raise TmuxCommandError("attach-session", "the pane no longer exists")
        try:
            self._client_session = self._sessions[existing[0]]
            flags = f"ignore-size,no-output,pause-after={PAUSE_AFTER_S}"
            self._client = self._attach_client("-E", "-f", flags, "-t", exact(self._client_session))
            self._client.on_output, self._client.on_notice = self._handle_output, self._handle_notice
            self._client.on_exit = lambda: self.on_exit()
            self._client.check = check
            self.server_pid = int(self.call(ask.command("display-message -p '#{pid}'"))[0])
            self.submit(ask.command(f"refresh-client -B {quote_text('kasmon::' + SUBSCRIPTION_FORMAT)}"))
        except BaseException:
            self.close()
            raise
        for pane in existing:
            self.on_output(pane, b"")
        self.watch(self._watched)

    def tick(self) -> None:
        """Report again the panes that changed in the last second. Call it about once a second."""
        recheck, self._recheck = self._recheck, set()
        for pane in recheck & self._adopted:
            self.on_output(pane, b"")

    def watch(self, panes: Iterable[str]) -> None:
        """Receive output of the first adopted pane of *panes* at once; the other panes are compared once a second."""
        self._watched = frozenset(panes)
        looked_at = next((pane for pane in sorted(self._watched & self._adopted) if pane in self._sessions), None)
        if not self.is_open:
            return
        if looked_at is None:
            if self._receives_output:
                self._receives_output = False
                self.submit(ask.command("refresh-client -f no-output"))
            return
        if self._sessions[looked_at] != self._client_session:
            self._client_session = self._sessions[looked_at]
            self.submit(ask.command(f"switch-client -E -t {exact(self._client_session)}"))
        if not self._receives_output:
            self._receives_output = True
            self.submit(ask.command("refresh-client -f '!no-output'"))
            self.on_output(looked_at, b"")

    def refresh(self) -> None:
        """Do nothing: the subscription reports every change."""

    def _handle_output(self, pane: str, data: bytes) -> None:
        if pane in self._adopted:
            self.on_output(pane, data)

    def _handle_notice(self, notice: NoticeItem) -> None:
        if notice.kind == "subscription-changed" and notice.rest.startswith(b"kasmon "):
            self._process_update(notice.rest.partition(b" : ")[2].decode("ascii", "replace"))
        elif notice.kind == "pause":
            pane = notice.rest.split(b" ")[0].decode("ascii", "replace")
            if ID.fullmatch(pane):
                self._set_flow(pane, "continue")
                self._handle_output(pane, b"")

    def _process_update(self, update: str) -> None:
        """Process one subscription update, which lists all panes."""
        entries = {entry.split(" ", 1)[0]: entry for entry in (part.strip() for part in update.split(";")) if entry}
        for pane in list(self._adopted):
            line = entries.get(pane)
            if line is None:
                self._report_closed(pane)
            elif line != self._last_entries.get(pane):
                _, self._sessions[pane], _, dead, status, number = line.split(" ")[:6]
                self._last_entries[pane] = line
                if dead == "1":
                    self._report_death(pane, status, number)
                else:
                    self._dead.discard(pane)
                    self._recheck.add(pane)
                    self.on_output(pane, b"")

    def _report_death(self, pane: str, status: str, number: str) -> None:
        if pane not in self._dead:
            self._dead.add(pane)
            self.on_death(
                pane, int(status) if status.isdecimal() else None, int(number) if number.isdecimal() else None
            )

    def _report_closed(self, pane: str) -> None:
        self.release(pane)
        self.on_closed(pane)


def forbidden(line: str) -> str:
    """Return the first command in the request *line* that must not reach a foreign server; empty if it may be sent."""
    first = line.split(" ", 1)[0]
    tokens = line.replace("'", " ").replace('"', " ").replace("{", " ").replace(";", " ").split()
    violations = [first] if first not in MAY_ASK else [found for found in tokens if found in NEVER]
    if first == "refresh-client" and "-C" in tokens:
        violations.append("refresh-client -C")
    return violations[0] if violations else ""


def check(line: str) -> RefusedError | None:
    """Return why the request *line* must not reach a foreign server; None if it may be sent."""
    return build_refusal(command) if (command := forbidden(line)) else None


def build_refusal(command: str) -> RefusedError:
    """Return the error for a *command* that must not reach a foreign server."""
    return RefusedError(
        f"{command!r} is refused: this tmux is the user's own.",
        hint="kasmon watches an adopted session and types into it; it never resizes, renames or ends it.",
    )
