"""The dialogs that list the registered machines, and add or remove one."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from textual import events
from textual.strip import Strip
from textual.widget import Widget

from kasmon import __version__
from kasmon.errors import KasmonError, NotInstalledError
from kasmon.model.formatting import age, unreachable_words
from kasmon.model.transcript.text import Token
from kasmon.sanitize import clean_line
from kasmon.tui.actions.dialogs import confirm_action, confirm_operation
from kasmon.tui.clock import Clock
from kasmon.tui.dialogs.base import Dialog
from kasmon.tui.dialogs.fields import DialogField
from kasmon.tui.error_text import sentence
from kasmon.tui.keymap import KeyMap
from kasmon.tui.textual_ext.inputs import LineInput
from kasmon.tui.theme.look import StyledSpan, ThemeStyles
from kasmon.tui.widgets.reader import Sentences
from kasmon.tui.widgets.row_list import RowList

if TYPE_CHECKING:
    from kasmon.store.machines import MachineStatus

ROWS: Final = 12
NAME_CELLS: Final = 16
REFRESH_S: Final = 0.5
NONE: Final = "No other machines. Press a to add one that ssh reaches without a password."


class MachinesDialog(Dialog):
    """Lists the registered machines: `a` adds one, `X` removes the one under the cursor."""

    title_text = "Machines"

    def __init__(self, look: ThemeStyles, keys: KeyMap, clock: Clock) -> None:
        super().__init__(look, keys)
        self.clock = clock
        self.list: RowList[MachineStatus] = RowList(look, self._draw, most_rows=ROWS, id="machines")
        self.said = Sentences(look, id="machine")

    def inside(self) -> Iterable[Widget]:
        yield self.list
        yield self.said

    def on_mount(self) -> None:
        self.begin(self.list)
        self._show()
        self.set_interval(REFRESH_S, self._show)

    def _show(self) -> None:
        before = self.list.values
        self.list.put(self.dashboard.machines)
        if before != self.list.values or not self.named_keys:
            choosing = (("up down", "choose"), ("X", "remove")) if self.list.values else ()
            self.offer(*choosing, ("a", "add"), ("esc", "close"))
        self._explain()

    def on_row_list_moved(self, message: RowList.Moved) -> None:
        self._explain()

    def _explain(self) -> None:
        status = self.list.chosen
        if status is None:
            self.said.say((NONE, Token.FAINT))
            return
        machine, presence = status.machine, status.presence
        place = f"ssh {machine.ssh}" if machine.ssh else "another kasmon on this machine"
        count = len(presence.sessions)
        known = f"kasmon {presence.kasmon or 'of unknown version'}, {count} {'session' if count == 1 else 'sessions'}"
        why = clean_line(presence.why or "the link to it is being started") if status.is_unreachable else ""
        lines = [("", Token.TEXT), (f"{clean_line(place)}; {clean_line(known)}", Token.FAINT)]
        problems = [f"Unreachable: {why}."] if why else []
        problems += [f"{sentence(status.clock_problem)}."] if status.clock_problem else []
        self.said.say(*lines, *((problem, Token.WARNING) for problem in problems))

    def _draw(self, status: "MachineStatus", is_selected: bool, width: int) -> Strip:
        since, now = status.presence.since, self.clock.now()
        connected = f"connected {age(now - since)}" if since else "connected"
        lost = unreachable_words(since, now) if since else "unreachable"
        state: StyledSpan = (lost, "bad.bold") if status.is_unreachable else (connected, "good")
        state = ("late: no sign of life for some seconds", "warn") if status.state == "late" else state
        left: list[StyledSpan] = [
            (self.look.mark("cursor") if is_selected else " ", "accent"),
            (f" {self.look.fit(status.machine.name, NAME_CELLS)}", "text.bold" if is_selected else "text"),
            ("  ", "text"),
            state,
            ("  drained: no new sessions" if status.machine.drained else "", "faint"),
        ]
        return self.look.between(left, [], width, "selected" if is_selected else "raised")

    def on_key(self, event: events.Key) -> None:
        if event.key == "a":
            event.stop()
            self.app.push_screen(AddMachineDialog(self.look, self.keys))
        elif event.key == "X" and (status := self.list.chosen) is not None:
            event.stop()
            self._ask_removal(status.machine.name)

    def _ask_removal(self, name: str) -> None:
        lines = (
            f"Remove {name}, and the copies of its sessions here?",
            "Its sessions continue there, and their logs are kept there.",
        )
        confirm_operation(
            self.dashboard, "Remove machine", lines, "remove", lambda operations: operations.remove_machine(name)
        )


class AddMachineDialog(Dialog):
    """Asks for the name and the ssh destination of a machine, and whether to install kasmon there if it is missing."""

    title_text = "Add a machine"

    def __init__(self, look: ThemeStyles, keys: KeyMap) -> None:
        super().__init__(look, keys)
        self.name_box = LineInput(placeholder="gpu-1", id="machine-name")
        self.ssh_box = LineInput(placeholder="HOST or USER@HOST", id="destination")
        self.said = Sentences(look, ("ssh must reach it without a password.", Token.FAINT), id="adding")

    def inside(self) -> Iterable[Widget]:
        yield DialogField("Name", self.name_box)
        yield DialogField("ssh", self.ssh_box)
        yield self.said

    def on_mount(self) -> None:
        self.offer(("enter", "add"), ("tab", "next field"), ("esc", "cancel"))
        self.begin(self.name_box)

    def submit(self) -> None:
        name, destination = self.name_box.value.strip(), self.ssh_box.value.strip()
        if not name or not destination:
            self.set_focus(self.ssh_box if name else self.name_box)
        else:
            self.run_operation(lambda operations: operations.add_machine(name, destination))

    def handle_failure(self, error: KasmonError) -> bool:
        if self.is_open and isinstance(error, NotInstalledError):
            self.busy = False
            self._ask_installation(self.name_box.value.strip(), self.ssh_box.value.strip())
            return True
        return super().handle_failure(error)

    def _ask_installation(self, name: str, destination: str) -> None:
        lines = (
            f"kasmon is not installed on {destination}.",
            f"Copy this kasmon ({__version__}) there, and install it into ~/.local/share/kasmon/venv?",
            "It needs no root and opens no port. pip downloads there what kasmon needs.",
        )

        def install() -> None:
            self.said.say((f"Installing kasmon on {destination}. This takes a minute.", Token.FAINT))
            self.run_operation(lambda operations: operations.add_machine(name, destination, install=True))

        confirm_action(self.dashboard, "Install kasmon", lines, "install", install)
