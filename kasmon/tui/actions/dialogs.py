"""The dialogs that several actions open, and where the user was when an action began."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from kasmon.model.session import Session
from kasmon.model.transcript.text import TextLine
from kasmon.sanitize import visible
from kasmon.tui.app_protocols import Dashboard
from kasmon.tui.gateway.protocol import Operation

if TYPE_CHECKING:
    from kasmon.tui.dialogs.common import Confirmation, ConfirmDialog

SHOWN: Final = 200
"""How much of an address that cannot be opened is shown, in characters."""


def find_location(app: Dashboard) -> tuple[object, bool]:
    """Return the top screen, and whether a session is open.

    A slow result is shown only if this is still the same as when it was requested. Over another screen it would take
    the keys meant for that.
    """
    return app.screen, app.main_view.focused_inside


def confirm_operation(app: Dashboard, title: str, lines: Sequence[str], yes: str, operation: Operation) -> None:
    """Run *operation* once the user confirms, and close the dialog once it is done; *yes* labels the confirming key."""
    from kasmon.tui.dialogs.common import Confirmation

    confirm(app, Confirmation(title, tuple(lines), yes), lambda dialog: dialog.run_operation(operation))


def confirm_action(app: Dashboard, title: str, lines: Sequence[str], yes: str, act: Callable[[], object]) -> None:
    """Close the dialog and call *act* once the user confirms; *yes* labels the confirming key."""
    from kasmon.tui.dialogs.common import Confirmation

    def close_and_act(dialog: "ConfirmDialog") -> None:
        dialog.dismiss()
        act()

    confirm(app, Confirmation(title, tuple(lines), yes), close_and_act)


def confirm(
    app: Dashboard,
    question: "Confirmation",
    then: "Callable[[ConfirmDialog], None]",
    then_all: "Callable[[ConfirmDialog], None] | None" = None,
) -> None:
    """Call *then* once the user confirms *question*; *then_all* instead if they press `a`."""
    from kasmon.tui.dialogs.common import ConfirmDialog

    app.push_screen(ConfirmDialog(app.look, app.keys, app.clock, question, then, then_all))


def show_text(app: Dashboard, title: str, rows: Callable[[int], Sequence[TextLine]]) -> None:
    """Show these *rows*, built for a width in cells."""
    from kasmon.tui.dialogs.common import TextDialog

    app.push_screen(TextDialog(app.look, app.keys, title, rows))


def write_prompt(app: Dashboard, sessions: Sequence[Session], left_out: Sequence[Session] = ()) -> None:
    from kasmon.tui.dialogs.prompt import PromptDialog

    app.push_screen(PromptDialog(app.look, app.keys, app.clock, sessions, left_out=left_out))


def offer_link(app: Dashboard, address: str) -> None:
    """Show all of *address*, with nothing hidden, if it may be opened; only the confirming key opens it."""
    from kasmon.model.transcript.markdown.links import is_link, warnings  # not before the first frame

    if is_link(address):
        lines = (visible(address), *warnings(address))
        confirm_operation(app, "Open a link", lines, "open", lambda operations: operations.open_link(address))
    else:
        app.say(f"Only http and https addresses are opened, not {visible(address[:SHOWN])}.", severity="warning")


def offer_links(app: Dashboard, addresses: Sequence[str]) -> None:
    """Offer the one of *addresses*, as `offer_link`; of several, the user chooses one first."""
    from kasmon.tui.dialogs.common import LinkDialog  # not before the first frame

    if not addresses:
        app.say("No link here.")
    elif len(addresses) == 1:
        offer_link(app, addresses[0])
    else:
        app.push_screen(LinkDialog(app.look, app.keys, addresses, lambda address: offer_link(app, address)))
