"""Show a link before it is opened: its whole address, with nothing hidden."""

from typing import TYPE_CHECKING

from kasmon.sanitize import visible
from kasmon.tui.dialogs.common import Confirmation, ConfirmDialog
from kasmon.tui.gateway.protocol import OpenLink
from kasmon.tui.terminal.links import is_link, warnings

if TYPE_CHECKING:
    from kasmon.tui.app import Kasmon


def look_at(app: "Kasmon", address: str) -> None:
    """Show *address* in a confirmation, if it is a link; only the confirming key opens it."""
    if is_link(address):
        question = Confirmation("Open a link", (visible(address), *warnings(address)), "open")
        wanted = OpenLink(address=address)
        app.push_screen(ConfirmDialog(app.look, app.keys, app.clock, question, lambda dialog: dialog.want(wanted)))
